"""The machines of a run, and how their agents are started: as rsync starts its own, through ssh or
what stands for it.

    --on gpu1,root@gpu2=10.0.0.2 --rsh "ssh -p 2222"  ->  ssh -p 2222 root@gpu2 rfabric agent
"""

import contextlib
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RFabricError

# a machine that vanishes ends the connection within the time of three unanswered signs of life
RSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
AGENT = "rfabric agent"
GOES_S = 8.0  # s an agent has to clear away its world


@dataclass(frozen=True)
class Machine:
    """One machine: its name for the remote shell, and the address the others reach it at."""

    name: str
    address: str


@dataclass(frozen=True)
class Machines:
    """Where a run takes place: here alone where there are none, else on these."""

    all: tuple[Machine, ...] = ()
    rsh: str = RSH
    agent: str = AGENT

    def __bool__(self) -> bool:
        return bool(self.all)


def parse_machines(text: str, rsh: str = RSH, agent: str = AGENT) -> Machines:
    """`host1,user@host2=ADDRESS` -> Machines; RFabricError for what is none, named twice, or has an
    address that others cannot reach.
    """
    some = [_machine(word.strip()) for word in text.split(",")]
    for what in ("name", "address"):
        seen = [getattr(machine, what) for machine in some]
        if twice := next((word for word in seen if seen.count(word) > 1), ""):
            raise RFabricError(f"--on {text}: {what} {twice} stands for two machines")
    if len(some) > 1 and (own := next((m for m in some if m.address.startswith("127.")), None)):
        raise RFabricError(
            f"--on {text}: {own.name} is {own.address}, which others cannot reach; write "
            f"{own.name}=ADDRESS"
        )
    for name, words in (("--rsh", rsh), ("--rfabric-path", agent)):
        _words(name, words)
    return Machines(tuple(some), rsh, agent)


def _machine(word: str) -> Machine:
    name, _, address = word.partition("=")
    if not name or name.startswith("-") or any(c.isspace() for c in word):
        raise RFabricError(f"--on: {word!r} is no machine; write HOST or HOST=ADDRESS")
    asked = address or name.rpartition("@")[2]
    try:
        ipv4 = socket.getaddrinfo(asked, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        raise RFabricError(
            f"--on: {asked} has no IPv4 address ({error}); write {name}=ADDRESS"
        ) from error
    return Machine(name, str(ipv4))


def _words(option: str, text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RFabricError(f"{option} {text!r}: {error}") from error
    if not words:
        raise RFabricError(f"{option}: it is empty; it must name a program")
    return words


@contextlib.contextmanager
def agents(machines: Machines, folder: Path) -> Iterator[list[subprocess.Popen]]:
    """An agent on each machine, for as long as the block lasts; what they say beside frames goes to
    `folder`/agent-N.log.
    """
    rsh, agent = _words("--rsh", machines.rsh), _words("--rfabric-path", machines.agent)
    started: list[subprocess.Popen] = []
    try:
        for number, machine in enumerate(machines.all):
            with open(log_of(folder, number), "wb") as log:
                started.append(_start([*rsh, machine.name, *agent], log))
        yield started
    finally:
        forget(started)  # with its stdin the agent ends
        for process in started:
            _end(process)


def log_of(folder: Path, number: int) -> Path:
    """Where what machine `number` says beside frames is written."""
    return folder / f"agent-{number}.log"


def descriptors(some: Sequence[subprocess.Popen]) -> list[tuple[int, int]]:
    """(to read from, to write to) each agent."""
    return [(process.stdout.fileno(), process.stdin.fileno()) for process in some]


def forget(some: Sequence[subprocess.Popen]) -> None:
    """Close our ends of the pipes: whoever has them now alone keeps the agents alive."""
    for process in some:
        process.stdin.close()
        process.stdout.close()


def _start(words: list[str], log) -> subprocess.Popen:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True)
    except OSError as error:
        raise RFabricError(f"--rsh: cannot start {words[0]}: {error.strerror}") from error


def _end(process: subprocess.Popen) -> None:
    try:
        process.wait(GOES_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
