"""A trace on a fabric under a policy, in the Mininet world: real packets, real OpenFlow, a private
world per run.

    this process                       process 1 of a private world (pid, network, mount namespaces)
    emulate(...) -- job folder ------> worker: Open vSwitch, Ryu, Mininet, the replay
                 <-- JSON lines ------ progress, then {"done": ...} or {"error": ...}
                 <-- measured.npz ---- start, finish, bytes

When this process ends, however it ends, the world ends with it.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ..errors import BY_NAME, PaceError, RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, RewireRecord, Timing, parse_policy
from ..optics.policies import spelled
from ..report.result import Pace, Progress, Result, Scale
from ..routing.schemes import DEFAULT_SCHEME, one_way
from ..trace import Trace, write_trace
from ..units import show_rate, show_time
from . import sandbox
from .drills import UP, WELL_S, Drilled, judged
from .foreseen import SimulatedTraffic
from .machines.remote import Machines, agents, descriptors, forget
from .machines.slices import sliced
from .network import fastest_line, scales
from .scale import refuse_long_dark
from .soak import Soaked
from .stream import Loss

JOB_FOLDER = re.compile(r"emulation-\d+-[0-9a-f]{4}")
SILENT = "the emulation ended without a result"
HEARS = 1 << 20  # bytes that a world may say before it is heard: it is not to wait for us
PATIENCE_END = 8.0  # s a world has to end by itself once it has said its last word


def emulate(
    fabric: Fabric,
    trace: Trace,
    policy: str = "own",
    *,
    scale: Scale,
    routing: str = DEFAULT_SCHEME,
    timing: Timing = Timing(),
    traffic: str = "",
    seed: int = 0,
    progress: Progress | None = None,
    out: str | Path = "runs",
    captures: Mapping[str, Path] = MappingProxyType({}),
    looks: Progress | None = None,
    machines: Machines = Machines(),
    known: SimulatedTraffic = SimulatedTraffic(),
) -> Result:
    """Replay `trace` on `fabric` with real packets.

    captures: files, by node, that get the packets there, as pcapng. looks: gets, some times a
    second, what has come since (see the module `looks`). machines: those that carry the fabric, a
    part each, where it is not this one alone. known: what its simulation says of it.
    `policy` is what `optics.parse_policy` reads, `routing` one of `routing.schemes.SCHEMES`: one
    way a pair; `scale` comes from `choose_scale`.

    Of `timing` nothing settles here: a circuit is usable with its light. RFabricError for what
    cannot be emulated, PaceError when the host could not keep pace, RunError when the run broke.
    Nothing of the run is left on the host in any of these cases.
    """
    one_way(routing)
    trace = trace.fit(fabric)
    policy, played = emulatable(fabric, policy), trace.whole()
    if machines:
        sliced(fabric, len(machines.all))
        if captures:
            raise RFabricError("--pcap captures packets of this machine; with --on there are none")
    if timing.settle:
        raise RFabricError(
            f"settling, {show_time(timing.settle)}, is not emulated; add it to the OCS delay "
            "of the fabric"
        )
    refuse_long_dark(fabric, policy, scale.dilation)
    job = {
        "task": "replay",
        "fabric": fabric.to_json(),
        "policy": policy,
        "routing": routing,
        "scale": asdict(scale),
        "timing": asdict(timing),
        "pcap": list(captures),
        "live": looks is not None,
        "known": known.to_json(),
    }
    with job_folder(out) as folder:
        write_trace(trace, folder / "trace.csv")
        done = in_world(job, folder, _parted(progress or (lambda _: None), looks), machines)
        for node, file in captures.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / f"{node}.pcapng", file)
        measured = _measured(folder / "measured.npz")
    result = Result(
        engine="emulate",
        fabric=fabric,
        policy=policy if fabric.ocses else "ecmp",
        routing=routing,
        trace=played,
        traffic=traffic,
        seed=seed,
        rewires=tuple(_record(r) for r in done["rewires"]),
        epochs=tuple((e["time_s"], Circuits.from_json(e["circuits"])) for e in done["epochs"]),
        scale=scale,
        pace=Pace.from_json(done["pace"]),
        versions=done["versions"],
        notes=tuple(done["notes"]),
        **measured,
    ).check()
    return _kept(result)


def _measured(file: Path) -> dict[str, np.ndarray]:
    names = "start", "finish", "sent", "received", "link_bytes"
    with np.load(file, allow_pickle=False) as columns:
        return {name: columns[name] for name in names}


def _parted(progress: Progress, looks: Progress | None) -> Progress:
    """News go to `progress`, looks to `looks`."""

    def hear(news: dict) -> None:
        if "look" in news:
            looks(news["look"])
        else:
            progress(news)

    return hear if looks else progress


def _kept(result: Result) -> Result:
    """The result; a PaceError that holds it where the host did not keep pace."""
    pace = result.pace
    if not pace.ok:
        why = f"the host did not keep pace: {'; '.join(pace.reasons)}; {pace.advice}"
        raise PaceError(why, [result])
    return result


def emulatable(fabric: Fabric, policy: str) -> str:
    """The policy, spelled out, that an emulation of `fabric` follows; RFabricError where circuits
    turn in slots or rounds.
    """
    policy = spelled(policy, fabric)
    parsed = parse_policy(policy, fabric)
    if fabric.ocses and parsed.granularity == "time-slotted":
        raise RFabricError(
            f"fabric {fabric.name}, policy {policy}: its circuits turn every "
            f"{show_time(parsed.slot)} whatever is under way, an emulation changes them where a "
            "phase or collective begins; `rfabric simulate` follows the slots, or emulate the "
            f"same cables with --policy demand,granularity=per-phase or --policy static"
        )
    if fabric.ocses and parsed.granularity == "intra-collective":
        raise RFabricError(
            f"fabric {fabric.name}, policy {policy}: in rounds flows send a share at a time "
            "and pause, an emulation changes circuits where a phase or collective begins; "
            "`rfabric simulate` plays the rounds, or emulate the same cables with --policy "
            "demand,granularity=per-collective"
        )
    return policy


def calibrate(*, progress: Progress | None = None, out: str | Path = "runs") -> float:
    """Packet-hops a second that this host's datapath moves, measured in a private world in a few
    seconds.
    """
    with job_folder(out) as folder:
        return float(
            in_world({"task": "calibrate"}, folder, progress or (lambda _: None))["packet_hops"]
        )


def drills(
    fabric: Fabric, faults: Sequence[str], progress: Progress, out: str | Path = "runs"
) -> list[Drilled]:
    """Strike `fabric`, up and carrying packets, with these faults of `drills.INSIDE` in turn."""
    job = {"task": "drill", "fabric": fabric.to_json(), "faults": list(faults)}
    with job_folder(out) as folder:
        return [Drilled.from_json(row) for row in in_world(job, folder, progress)["drills"]]


def soak(fabric: Fabric, seconds: float, progress: Progress, out: str | Path = "runs") -> Soaked:
    """Rewire `fabric` under packets for so many s of wall clock, and count what must not grow."""
    job = {"task": "soak", "fabric": fabric.to_json(), "seconds": seconds}
    with job_folder(out) as folder:
        return Soaked(**in_world(job, folder, progress))


def kill_sender(fabric: Fabric, progress: Progress, out: str | Path = "runs") -> Drilled:
    """kill -9 of the process that sends, while it does: what is said, and when nothing is left."""
    struck: list[tuple[float, str]] = []

    def strike(news: dict) -> None:
        progress(news)
        if news["stage"] == UP:
            sender = sandbox.process_1(folder)
            struck.append((time.monotonic(), sandbox.world_of(sender)))
            os.kill(sender, signal.SIGKILL)

    with job_folder(out) as folder:
        try:
            in_world({"task": "wait", "fabric": fabric.to_json()}, folder, strike)
        except RunError as error:
            if not struck:
                raise
            said = str(error)
    ((at, world),) = struck
    broken = [] if SILENT in said else [f"the run ended by saying {said}"]
    while (left := sandbox.inhabitants(world)) and time.monotonic() < at + WELL_S:
        time.sleep(0.02)
    broken += [f"processes {left} are left"] if left else []
    return judged("sender", Loss(0, 0, 0.0), time.monotonic() - at, broken)


def sweep(out: str | Path, run_id: str | None = None) -> list[str]:
    """Remove what broken emulations left under `out`; with `run_id`, end that one even if it lives.

    Returns their ids.
    """
    cleaned = sandbox.clean(out, run_id) if Path(out).is_dir() else []
    for name in cleaned:
        if JOB_FOLDER.fullmatch(name):
            shutil.rmtree(Path(out) / name, ignore_errors=True)
    return cleaned


@contextlib.contextmanager
def job_folder(out: str | Path) -> Iterator[Path]:
    """A folder of its own for one world, gone afterwards; what broken runs left there goes first.
    RFabricError where none can be made.
    """
    sandbox.require()
    sweep(out)
    folder = Path(out).resolve() / f"emulation-{os.getpid()}-{secrets.token_hex(2)}"
    made = [p for p in (Path(out), *Path(out).parents) if not p.exists()]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RFabricError(
            f"cannot write {folder}: {error.strerror}; give another place with --out"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def in_world(job: dict, folder: Path, progress: Progress, machines: Machines = Machines()) -> dict:
    """Run one job in a private world, and on these machines, and return its last word; Ctrl-C ends
    all worlds.
    """
    with agents(machines, folder) as some:
        ends = descriptors(some)
        if some:
            job |= {"pipes": ends, "names": [one.name for one in machines.all]}
            job |= {"addresses": [one.address for one in machines.all]}
        passed = [end for pair in ends for end in pair]
        process, patience = _launched(job, folder, subprocess.DEVNULL, passed), 0.0
        forget(some)
        messages = _messages(process)
        try:
            while "done" not in (message := next(messages)):
                progress(message)
            patience = PATIENCE_END
            return message["done"]
        finally:
            sandbox.end(process, folder, patience)


def _launched(job: dict, folder: Path, stdin: int, passed: Sequence[int] = ()) -> subprocess.Popen:
    (folder / "job.json").write_text(json.dumps(job))
    return sandbox.launch(
        [sys.executable, "-m", "rfabric.emulate.worker", str(folder)], folder,
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        pipesize=HEARS, pass_fds=passed,
    )  # fmt: skip


def _messages(process: subprocess.Popen) -> Iterator[dict]:
    """What a world says; its errors are raised, and that it ended without a last word."""
    talk: list[str] = []
    listener = threading.Thread(target=lambda: talk.extend(process.stderr), daemon=True)
    listener.start()
    for line in process.stdout:
        message = json.loads(line)
        if "error" in message:
            raise BY_NAME[message["kind"]](message["error"])
        yield message
    code = process.wait()
    listener.join(1.0)
    raise RunError(f"{SILENT} (exit code {code}): {''.join(talk[-5:]).strip() or 'no message'}")


class Session:
    """A fabric that is up and takes orders; see `orders`."""

    def __init__(self, process: subprocess.Popen, messages: Iterator[dict]):
        self._process, self._messages = process, messages

    def ask(self, order: str) -> Iterator[str]:
        """The lines that an order says; RFabricError where it is refused."""
        self._tell({"order": order})
        yield from self.heard(lambda _: None)

    def stop(self) -> None:
        """End the order under way."""
        self._tell({"stop": True})

    def heard(self, progress: Progress) -> Iterator[str]:
        """Lines until it is ready for the next order. RFabricError with what the worker refused."""
        while "ready" not in (message := next(self._messages)):
            if "refused" in message:
                raise RFabricError(message["refused"])
            if "text" in message:
                yield message["text"]
            else:
                progress(message)

    def _tell(self, message: dict) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended: what it said last tells why
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()


def _check_rate(fabric: Fabric, rate: float) -> None:
    low, high = (scale * fastest_line(fabric) for scale in scales(fabric))
    if not low <= rate <= high:
        raise RFabricError(
            f"--rate {show_rate(rate)}: the fastest cable of {fabric.name} can be emulated at "
            f"{show_rate(low)} to {show_rate(high)}"
        )


@contextlib.contextmanager
def session(
    fabric: Fabric,
    rate: float,
    trace: Trace | None = None,
    policy: str = "own",
    progress: Progress = lambda _: None,
    out: str | Path = "runs",
) -> Iterator[Session]:
    """`fabric`, up with `rate` bit/s on its fastest cable, for as long as the block lasts; `trace`
    is what `phase` plays.
    """
    job = {"task": "shell", "fabric": fabric.to_json(), "rate": rate}
    job |= {"policy": emulatable(fabric, policy), "traffic": trace is not None}
    _check_rate(fabric, rate)
    with job_folder(out) as folder:
        if trace is not None:
            write_trace(trace.fit(fabric), folder / "trace.csv")
        process = _launched(job, folder, subprocess.PIPE)
        try:
            open_session = Session(process, _messages(process))
            list(open_session.heard(progress))
            yield open_session
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()  # it ends by itself, and all in it before
            sandbox.end(process, folder, PATIENCE_END)


def _record(data: dict) -> RewireRecord:
    return RewireRecord(
        data["epoch"],
        data["phase"],
        data["requested_s"],
        data["programmed_s"],
        data["dark_until_s"],
        data["usable_s"],
        data["circuits_changed"],
        data["lost_bytes"],
        data["why"],
        data["exposed_s"],
    )
