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
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ..errors import PaceError, RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, RewireRecord, Timing, parse_policy
from ..optics.policies import spelled
from ..report.result import Pace, Result, Scale
from ..routing.schemes import DEFAULT_SCHEME, one_way
from ..trace import Trace, write_trace
from ..units import show_time
from . import sandbox

Progress = Callable[[dict], None]
ERRORS = {kind.__name__: kind for kind in (RFabricError, RunError)}
JOB_FOLDER = re.compile(r"emulation-\d+-[0-9a-f]{4}")
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
) -> Result:
    """Replay `trace` on `fabric` with real packets.

    captures: files, by node, that get the packets there, as pcapng. `policy` is what
    `optics.parse_policy` reads, `routing` one of
    `fabric.schemes.SCHEMES`: one way a pair; `scale` comes from `choose_scale`.

    Of `timing` nothing settles here: a circuit is usable with its light. RFabricError for what
    cannot be emulated, PaceError when the host could not keep pace, RunError when the run broke.
    Nothing of the run is left on the host in any of these cases.
    """
    one_way(routing)
    policy, played = emulatable(fabric, policy), trace.whole()
    if timing.settle:
        raise RFabricError(
            f"settling, {show_time(timing.settle)}, is not emulated; add it to the OCS delay "
            "of the fabric"
        )
    job = {
        "task": "replay",
        "fabric": fabric.to_json(),
        "policy": policy,
        "routing": routing,
        "scale": asdict(scale),
        "timing": asdict(timing),
        "pcap": list(captures),
    }
    with _job_folder(out) as folder:
        write_trace(trace.fit(fabric), folder / "trace.csv")
        done = _in_world(job, folder, progress or (lambda _: None))
        for node, file in captures.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / f"{node}.pcapng", file)
        with np.load(folder / "measured.npz", allow_pickle=False) as columns:
            measured = {
                name: columns[name]
                for name in ("start", "finish", "sent", "received", "link_bytes")
            }
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
    found = parse_policy(policy, fabric)
    if fabric.ocses and found.granularity == "time-slotted":
        raise RFabricError(
            f"fabric {fabric.name}, policy {policy}: its circuits turn every "
            f"{show_time(found.slot)} whatever is under way, an emulation changes them where a "
            "phase or collective begins; `rfabric simulate` follows the slots, or emulate the "
            f"same cables with --policy demand,granularity=per-phase or --policy static"
        )
    if fabric.ocses and found.granularity == "intra-collective":
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
    with _job_folder(out) as folder:
        return float(
            _in_world({"task": "calibrate"}, folder, progress or (lambda _: None))["packet_hops"]
        )


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
def _job_folder(out: str | Path) -> Iterator[Path]:
    """A folder of its own for one world, gone afterwards; what broken runs left there goes
    first.
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


def _in_world(job: dict, folder: Path, progress: Progress) -> dict:
    """Run one job in a private world and return its last word; Ctrl-C ends the world too."""
    (folder / "job.json").write_text(json.dumps(job))
    process = sandbox.launch(
        [sys.executable, "-m", "rfabric.emulate.worker", str(folder)], folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    talk: list[str] = []
    listener = threading.Thread(target=lambda: talk.extend(process.stderr), daemon=True)
    listener.start()
    patience = 0.0
    try:
        for line in process.stdout:
            message = json.loads(line)
            if "error" in message:
                raise ERRORS[message["kind"]](message["error"])
            if "done" in message:
                patience = PATIENCE_END
                return message["done"]
            progress(message)
        code = process.wait()
        listener.join(1.0)
        raise RunError(
            f"the emulation ended without a result (exit code {code}): "
            f"{''.join(talk[-5:]).strip() or 'no message'}"
        )
    finally:
        sandbox.end(process, folder, patience)


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
