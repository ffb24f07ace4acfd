"""How fast the flow engine is: workloads, SimGrid beside it, whole RL steps, and growth from 128 to
65,536 GPUs.

    rows = measure(peer_patience_s=60)    # every run in a process of its own, CPU seconds, one core
    write(rows, Path("bench"))            # engine.csv and engine.md

The peer is SimGrid 4 (https://simgrid.org; in /usr, or where SIMGRID_PREFIX says), driven by
`peer.cpp` in the form in which it is fastest, on exactly the same links, paths, sizes, starts and
dependencies, in its lazy and its full mode: the better one counts. Ours is the median of several
runs and includes the checks of the input and the taking of the results; the peer's is its
simulation alone. For the comparison of results its precision is raised: by default it takes events
within 1 ns as one. SimGrid 3 walks a list of all communications whenever one ends: a comparison
with it would say little.
"""

import csv
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from ..errors import RFabricError
from ..report import compare
from . import workloads as w
from .build import compiler
from .flows import Engine, completion_times

AGAINST_PEER: dict[str, Callable[[], w.Work]] = {
    "rings": w.disjoint_rings,
    "a2a-512-balanced": partial(w.all_to_all, 16, 512, spread="balanced"),
    "experts-1024": partial(w.expert_groups, 16),
    "mix": w.overloaded_mix,
    "web-k8": partial(w.web_search, 8, 20000),
    "a2a-128-jitter": partial(w.all_to_all, 8, 128, jitter=0.1),
    "web-k16": partial(w.web_search, 16, 10000),
    "web-k32-sparse": partial(w.web_search, 32, 20000, load=0.05),
    "parking-lots": partial(w.parking_lots, 32, 64),
    "a2a-256": partial(w.all_to_all, 12, 256),
    "a2a-512": partial(w.all_to_all, 16, 512),
}
ALONE: dict[str, Callable[[], w.Work]] = {
    "rings-27648": partial(w.rings_on_fat_tree, 48),
    "rings-27648-spread": partial(w.rings_on_fat_tree, 48, members=8, packed=False),
    "experts-27648": partial(w.expert_groups, 48),
} | {f"incast-{n}": partial(w.incast, n) for n in (2_000, 4_000, 8_000, 100_000)}
GPUS = {k**3 // 4: k for k in (8, 16, 24, 32, 48, 64)}
GROWTH: dict[str, Callable[[], w.Work]] = {
    f"rings-of-{gpus}-gpus": partial(w.rings_on_fat_tree, k) for gpus, k in GPUS.items()
} | {f"web-of-{gpus}-gpus": partial(w.web_search, k, 20 * gpus) for gpus, k in GPUS.items()}
STEPS = {
    f"step-{recipe}": recipe for recipe in ("grpo-1024", "grpo-65536", "grpo-65536-moe")
}  # the verb `simulate`, whole
CASES = (*AGAINST_PEER, *ALONE, *STEPS, *GROWTH)

PEER_SINCE = 4  # version of SimGrid
EXACT = ("precision/timing:1e-14", "precision/work-amount:1e-12")

CaseBegun = Callable[[str], None]


@dataclass(frozen=True)
class Measurement:
    """One workload measured.

    lazy_s, full_s  CPU seconds of the peer's modes; None where it was not run, ran out of its
                    patience, or longer
                    than the other
    ratio           the better of them over ours; a lower bound (`at_least`) where both ran out of
                    patience
    """

    case: str
    work: str
    flows: int
    cpu_s: float
    flows_per_s: float
    peak_mib: float
    bytes_per_flow: float | None = None
    # flows looked at inside the core: what time would follow if memory were free
    visits_per_flow: float | None = None
    links: int | None = None
    makespan_s: float | None = None
    peer: str = ""
    patience_s: float | None = None
    lazy_s: float | None = None
    full_s: float | None = None
    ratio: float | None = None
    at_least: bool = False
    # relative, of any finish time, to the peer at raised precision
    worst_difference: float | None = None


def measure(
    cases: Iterable[str] = CASES,
    *,
    peer_patience_s: float = 20.0,
    progress: CaseBegun = lambda text: None,
) -> list[Measurement]:
    """Measure each case; where SimGrid is there and patience is not 0, the same work with it
    (patience: CPU s a run). RFabricError for a case that there is not.
    """
    cases = list(dict.fromkeys(cases))
    for case in cases:
        if case not in CASES:
            raise RFabricError(f"no benchmark {case!r}: choose from {', '.join(CASES)}")
    Engine([], core="compiled").close()  # or say how to build it
    rows = []
    with tempfile.TemporaryDirectory(prefix="rfabric-bench-") as folder:
        scratch = Path(folder)
        peer = (
            build_peer(scratch) if peer_patience_s > 0 and set(cases) & set(AGAINST_PEER) else None
        )
        for case in cases:
            progress(case)
            row = _step(case, scratch) if case in STEPS else _own_run(case)
            if peer and case in AGAINST_PEER:
                tell = partial(_join, progress, f"{case}, {peer.name}")
                row |= _peer_run(peer, case, row["cpu_s"], peer_patience_s, scratch, tell)
            rows.append(Measurement(**row))
    return rows


def _join(progress: CaseBegun, before: str, text: str) -> None:
    progress(f"{before} {text}")


# --- tables ---------------------------------------------------------------------------------------


def write(
    rows: list[Measurement],
    folder: Path,
    command: str = "rfabric bench",
    more: Sequence[compare.Table] = (),
) -> None:
    """engine.csv and engine.md in `folder`, each written beside and renamed; `more` tables stand in
    the latter.
    """
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / "engine.part"
    with beside.open("w", newline="") as out:
        writer = csv.DictWriter(out, [f.name for f in fields(Measurement)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    beside.replace(folder / "engine.csv")
    beside.write_text(markdown([*tables(rows), *more], command))
    beside.replace(folder / "engine.md")


def tables(rows: list[Measurement]) -> list[compare.Table]:
    """Against SimGrid, alone, growth: those that have rows."""
    own = "flows", "CPU s", "flows/s", "peak MiB", "B/flow"
    peers = sorted({row.peer for row in rows} - {""})
    beside = [row for row in rows if row.case in AGAINST_PEER]
    alone = [row for row in rows if row.case in ALONE or row.case in STEPS]
    growth = [row for row in rows if row.case in GROWTH]
    lazy = f"{peers[0]} lazy" if peers else "SimGrid lazy"
    all_tables = [
        compare.Table(
            "Against SimGrid",
            ("work", *own, lazy, "full", "ratio", "difference"),
            tuple(compare.Row(row.work, (*_own(row), *_peers(row))) for row in beside),
            note="CPU seconds of one core on both sides; ratio: the better of "
            f"{' and '.join(peers)}'s modes over ours; difference: the largest relative one of "
            "a finish time, the peer at raised precision."
            if peers
            else (
                "SimGrid was not run: name the prefix of a SimGrid 4 by SIMGRID_PREFIX "
                "(its source: pip download --no-deps --no-binary :all: simgrid)."
            ),
        ),
        compare.Table(
            "Alone", ("work", *own), tuple(compare.Row(row.work, _own(row)) for row in alone)
        ),
        compare.Table(
            "Growth",
            ("work", *own, "visits/flow"),
            tuple(
                compare.Row(row.work, (*_own(row), _three(row.visits_per_flow))) for row in growth
            ),
            note=(
                "visits: how many flows the engine looks at for one flow from start to end; "
                "the rest is memory's latency."
            ),
        ),
    ]
    return [table for table in all_tables if table.rows]


def markdown(tables: list[compare.Table], command: str) -> str:
    """The tables, the command that repeats them, and where they were measured."""
    parts = [f"`{command}` on {machine()}"]
    for table in tables:
        right = ["---" if i in table.words else "--:" for i in range(len(table.columns))]
        lines = [table.columns, right, *((row.name, *row.cells) for row in table.rows)]
        parts += [f"## {table.title}", "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]
        parts += [table.note] if table.note else []
    return "\n\n".join(parts) + "\n"


def machine() -> str:
    """Processor, system and Python, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.machine()}, one core, Python {platform.python_version()}"
    )


def _own(row: Measurement) -> tuple[str, ...]:
    per_flow = "" if row.bytes_per_flow is None else f"{row.bytes_per_flow:.0f}"
    return (
        f"{row.flows:,}",
        f"{row.cpu_s:.3g}",
        _three(row.flows_per_s),
        f"{row.peak_mib:,.0f}",
        per_flow,
    )


def _peers(row: Measurement) -> tuple[str, ...]:
    if not row.peer:
        return ("",) * 4
    limit = min(row.patience_s, row.lazy_s or row.patience_s)
    lazy, full = (f"> {limit:.3g}" if s is None else f"{s:.3g}" for s in (row.lazy_s, row.full_s))
    difference = "" if row.worst_difference is None else f"{row.worst_difference:.0e}"
    return lazy, full, f"{'> ' if row.at_least else ''}{_three(row.ratio)}", difference


def _three(value: float) -> str:
    """`1234567 -> '1,230,000'`"""
    return f"{float(f'{value:.3g}'):,.{0 if value >= 100 else 1}f}"


# --- our side -------------------------------------------------------------------------------------


def _own_run(case: str) -> dict:
    """One case in a fresh process, so that memory and caches of another do not count."""
    command = [sys.executable, "-m", "rfabric.simulate.bench", case]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RFabricError(f"benchmark {case} failed:\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def work_of(case: str) -> w.Work:
    """The workload of a case of `AGAINST_PEER`, `ALONE` or `GROWTH`."""
    return (AGAINST_PEER | ALONE | GROWTH)[case]()


def _inside(case: str) -> dict:
    work = work_of(case)
    # load the core
    completion_times(
        capacity=[1.0], path_offsets=[0, 1], path_links=[0], size=[1.0], core="compiled"
    )
    before = _resident_bytes()
    times, grown = [], 0
    while sum(times) + 0.05 * len(times) < 1.0:  # small ones several times
        engine = Engine(work.capacity, core="compiled")
        begin = time.process_time()
        engine.add(**work.columns)
        engine.run()
        finish = engine.finish_times()
        times.append(time.process_time() - begin)
        visits = engine.counters()["visits"]
        grown = max(grown, _resident_bytes() - before)
        engine.close()
    if np.isinf(finish).any():
        raise RFabricError(f"{case}: {np.isinf(finish).sum()} flows never finish")
    cpu_s = median(times)
    return {
        "case": case,
        "work": work.name,
        "links": len(work.capacity),
        "flows": work.flows,
        "cpu_s": cpu_s,
        "flows_per_s": work.flows / cpu_s,
        "peak_mib": _peak_mib(),
        "bytes_per_flow": grown / work.flows,
        "visits_per_flow": visits / work.flows,
        "makespan_s": float(finish.max()),
    }


def _step(case: str, scratch: Path) -> dict:
    """A whole RL step as the user gets it: recipe, lowering, rewires, simulation, run folder."""
    words = [
        "simulate",
        "--no-cache",
        "--topo",
        "rfabric",
        "--traffic",
        STEPS[case],
        "--out",
        str(scratch / case),
        "--json",
        "-q",
    ]
    with (scratch / "step.json").open("w+") as out, (scratch / "step.err").open("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "rfabric", *words], stdout=out, stderr=err,
            env=os.environ | {"RFABRIC_DEFAULTS": "none"},
        )  # fmt: skip
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode:
            raise RFabricError(f"rfabric {' '.join(words)} failed:\n{err.read().strip()[-2000:]}")
        summary = json.load(out)
    with Path(summary["folder"], "trace.csv").open() as lines:
        flows = sum(1 for _ in lines) - 2
    cpu_s = used.ru_utime + used.ru_stime
    return {
        "case": case,
        "work": f"rfabric simulate --topo rfabric --traffic {STEPS[case]}",
        "flows": flows,
        "cpu_s": cpu_s,
        "flows_per_s": flows / cpu_s,
        "peak_mib": used.ru_maxrss / 1024,
        "makespan_s": summary["runs"][0]["step_s"],
    }


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


# --- the peer -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A program of SimGrid that plays the same flows."""

    program: Path
    name: str


def build_peer(folder: Path) -> Peer | None:
    """Compile the SimGrid driver into `folder`; None where no SimGrid 4 is installed. RFabricError
    where it does not compile.
    """
    prefix = Path(os.environ.get("SIMGRID_PREFIX", "/usr"))
    header = prefix / "include/simgrid/version.h"
    if not header.exists():
        return None
    version = header.read_text().split('SIMGRID_VERSION_STRING "SimGrid version ')[1].split('"')[0]
    if int(version.split(".")[0]) < PEER_SINCE:
        return None
    program = folder / "peer"
    command = [
        *compiler(),
        "-std=c++17",
        "-O3",
        f"-I{prefix}/include",
        str(Path(__file__).with_name("peer.cpp")),
        "-o",
        str(program),
        f"-L{prefix}/lib",
        f"-Wl,-rpath,{prefix}/lib",
        "-lsimgrid",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RFabricError(
            f"the SimGrid driver does not compile against {prefix}:\n{done.stderr[-2000:]}"
        )
    return Peer(program, f"SimGrid {version}")


def _peer_run(
    peer: Peer, case: str, own_s: float, patience_s: float, scratch: Path, progress: CaseBegun
) -> dict:
    work, file = work_of(case), scratch / "peer.work"
    work.columns["size"] = np.rint(work.columns["size"])  # SimGrid's sizes are whole bytes
    write_work(work, file)
    taken, limit = {}, patience_s
    for mode in ("Lazy", "Full"):
        progress(mode.lower())
        taken[mode] = peer_time(peer, file, work.flows, mode, limit)[0]
        limit = min(
            limit, math.ceil(taken[mode] or limit)
        )  # the better one is wanted: no mode runs longer than the other
    measured = {
        "peer": peer.name,
        "patience_s": patience_s,
        "lazy_s": taken["Lazy"],
        "full_s": taken["Full"],
    }
    ended = {mode: seconds for mode, seconds in taken.items() if seconds is not None}
    if not ended:
        return measured | {"ratio": patience_s / own_s, "at_least": True}
    better = min(ended, key=ended.__getitem__)
    measured["ratio"] = ended[better] / own_s
    progress(f"{better.lower()}, precision raised")
    _, theirs = peer_time(peer, file, work.flows, better, 2 * patience_s, EXACT)
    if theirs is not None:
        engine = Engine(work.capacity)
        engine.add(**work.columns)
        engine.run()
        ours = engine.finish_times()
        measured["worst_difference"] = float(np.max(np.abs(theirs - ours) / ours))
    return measured


def peer_time(
    peer: Peer, file: Path, flows: int, mode: str, patience_s: float, exact: tuple[str, ...] = ()
) -> tuple[float | None, np.ndarray | None]:
    """CPU seconds of the simulation and the finish times; (None, None) when patience, in CPU
    seconds, ran out. RFabricError where it fails.
    """
    out = file.with_suffix(".times")
    options = ["network/model:CM02", "network/crosstraffic:0", f"network/optim:{mode}", *exact]
    command = [
        str(peer.program),
        str(file),
        str(out),
        f"{patience_s:g}",
        *[f"--cfg={o}" for o in options],
    ]
    done = subprocess.run([*command, "--log=root.thresh:error"], capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        return None, None
    if done.returncode:
        raise RFabricError(f"{peer.name} failed on {file.name}:\n{done.stderr.strip()[-2000:]}")
    times = np.fromfile(out)
    if len(times) != flows or (times < 0).any():
        raise RFabricError(
            f"{peer.name} left {np.sum(times < 0)} of {flows} flows unfinished on {file.name}"
        )
    return float(done.stdout), times


def write_work(work: w.Work, file: Path) -> None:
    """The workload as a file for native programs; its layout stands in peer.cpp."""
    c, n = work.columns, work.flows
    after = c.get("after", np.zeros(0))
    columns = (
        (np.int64, [len(work.capacity), n, len(after)]),
        (np.float64, work.capacity / 8),
        (np.int64, c["path_offsets"]),
        (np.int32, c["path_links"]),
        (np.float64, c["size"]),
        (np.float64, c.get("start", np.zeros(n))),
        (np.int64, c.get("after_offsets", np.zeros(n + 1))),
        (np.int32, after),
    )
    with file.open("wb") as out:
        for dtype, values in columns:
            out.write(np.ascontiguousarray(values, dtype).tobytes())


if __name__ == "__main__":  # one case, alone in its process
    print(json.dumps(_inside(sys.argv[1])))
