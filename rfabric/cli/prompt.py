"""The prompt of `rfabric shell`: a line goes to the fabric that is up, what it says comes back.

Ctrl-C ends what runs, Ctrl-D the session; Tab completes, the arrows lead through history.
Where stdin is no terminal, each of its lines is an order; exit code 1 where one was refused.

RFabricError for options that do not go together.
"""

import argparse
import cmd
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from ..emulate.orders import ORDERS
from ..emulate.sandbox import require
from ..emulate.world import Session, session
from ..errors import RFabricError, RunError
from ..fabric import Fabric, parse_fabric
from ..schedulers.traffic import read_traffic
from ..units import parse_rate
from .terminal import Talk

HISTORY = 1000  # lines that are kept
LEAVE = ("exit", "quit", "EOF")


def prompt(args: argparse.Namespace) -> int:
    """Bring the fabric up and take orders; 1 where one was refused and nobody was there to see."""
    if args.json:
        raise RFabricError("shell --json: a shell answers in lines of text; leave out --json")
    fabric, rate = parse_fabric(args.topo), parse_rate(args.rate, "--rate")
    trace = read_traffic(args.traffic).trace if args.traffic else None
    require()
    with Talk(args.quiet) as talk:
        tell = talk.of(args.topo)
        with session(fabric, rate, trace, args.policy, tell, args.out) as up:
            talk.quiet = True
            return _talked(Prompt(fabric, up))


def _talked(prompt: "Prompt") -> int:
    if not sys.stdin.isatty():
        prompt.prompt = ""
        _loop(prompt)
        return 1 if prompt.refused else 0
    print(
        f"{prompt.fabric.spec or prompt.fabric.name} is up; type help for its commands, Ctrl-D to "
        "leave"
    )
    with _history():
        _loop(prompt)
    return 0


def _loop(prompt: "Prompt") -> None:
    """Until the end of stdin; Ctrl-C at the prompt begins a new line."""
    while True:
        try:
            return prompt.cmdloop()
        except KeyboardInterrupt:
            print("^C")


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """The lines of earlier sessions, and these for later ones."""
    import readline

    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    file = Path(state) / "rfabric" / "shell_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(HISTORY)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)


class Prompt(cmd.Cmd):
    """The loop over lines; `refused` counts those that could not be done."""

    prompt = "rfabric> "

    def __init__(self, fabric: Fabric, up: Session):
        super().__init__()
        self.fabric, self.up, self.refused = fabric, up, 0

    def onecmd(self, line: str) -> bool:
        """Do one line; True: it was the last."""
        word = (line.split() or ["#"])[0]
        if word in LEAVE:
            return True
        if word in ("help", "?"):
            self.do_help("")
        elif word[0] != "#":
            self._order(line.strip())
        return False

    def do_help(self, _: str) -> None:
        """The orders."""
        width = max(map(len, ORDERS))
        for name, what in ORDERS.items():
            print(f"{name:{width}}  {what}")
        print(f"{'HOST ...':{width}}  a command on a host: h1 ping h2 (4 of them, or -c N)")
        print("Ctrl-C ends what runs, Ctrl-D or exit the session")

    def completenames(self, text: str, *_) -> list[str]:
        """Orders and hosts."""
        return _beginning(text, [*ORDERS, *self.fabric.hosts, "help", "exit"])

    def completedefault(self, text: str, *_) -> list[str]:
        """Names of nodes."""
        return _beginning(text, [node.name for node in self.fabric.nodes])

    def _order(self, line: str) -> None:
        try:
            with self._interruptible():
                for text in self.up.ask(line):
                    print(text, flush=True)
        except RunError:  # the fabric has broken
            raise
        except RFabricError as error:
            self.refused += 1
            print(f"error: {error}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the order, not the session."""
        before = signal.signal(signal.SIGINT, lambda *_: self.up.stop())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _beginning(text: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(text)]
