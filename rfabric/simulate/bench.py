"""How fast the flow engine is: workloads, SimGrid beside it, and the growth from 128 to 65,536 GPUs.

    rows = measure(peer_patience_s=60)      # every run in a process of its own, CPU seconds, one core
    write_csv(rows, Path("bench/engine.csv"))
    print(table(rows))

The peer is SimGrid (https://simgrid.org; Debian's libsimgrid-dev, or a prefix named by SIMGRID_PREFIX), driven by
`peer.cpp` on exactly the same links, paths, sizes, starts and dependencies, in its lazy and its full mode: the better
one counts. For the comparison of results its precision is raised: by default it takes events within 1 ns as one.
Read the version beside the ratio: SimGrid 3 walks a list of all communications whenever one ends, SimGrid 4 does not.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np

from rfabric.errors import RFabricError
from rfabric.simulate import workloads as w
from rfabric.simulate.build import compiler
from rfabric.simulate.flows import Engine

AGAINST_PEER: dict[str, Callable[[], w.Work]] = {
    "rings": w.disjoint_rings,
    "experts-1024": partial(w.expert_groups, 16),
    "a2a-512-balanced": partial(w.all_to_all, 16, 512, spread="balanced"),
    "mix": w.overloaded_mix,
    "web-k8": partial(w.web_search, 8, 20000),
    "a2a-128-jitter": partial(w.all_to_all, 8, 128, jitter=0.1),
    "web-k16": partial(w.web_search, 16, 10000),
    "a2a-256": partial(w.all_to_all, 12, 256),
    "a2a-512": partial(w.all_to_all, 16, 512),
}
ALONE: dict[str, Callable[[], w.Work]] = {
    "rings-27648": partial(w.rings_on_fat_tree, 48),
    "rings-27648-spread": partial(w.rings_on_fat_tree, 48, members=8, packed=False),
    "experts-27648": partial(w.expert_groups, 48),
}
GROWTH: dict[str, Callable[[], w.Work]] = {
    f"growth-{k**3 // 4}": partial(w.rings_on_fat_tree, k) for k in (8, 16, 24, 32, 48, 64)
}
CASES = AGAINST_PEER | ALONE | GROWTH

EXACT = ("precision/timing:1e-14", "precision/work-amount:1e-12")  # SimGrid 4; before it, other names
EXACT_BEFORE_4 = ("surf/precision:1e-14", "maxmin/precision:1e-12")


@dataclass(frozen=True)
class Row:
    """One workload measured. A peer that ran out of patience has an infinite time, and the ratio is a lower bound."""

    case: str
    work: str
    links: int
    flows: int
    cpu_s: float
    flows_per_s: float
    peak_mib: float
    bytes_per_flow: float
    makespan_s: float
    peer: str = ""
    lazy_s: float | None = None
    full_s: float | None = None
    ratio: float | None = None
    at_least: bool = False
    worst_difference: float | None = None  # relative, of any finish time, to the peer at raised precision


def measure(
    cases: Iterable[str] = tuple(CASES),
    *,
    peer_patience_s: float = 120.0,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure each case; where SimGrid is there, the same work with it."""
    cases = list(cases)
    for case in cases:
        if case not in CASES:
            raise RFabricError(f"no benchmark {case!r}: choose from {', '.join(CASES)}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="rfabric-bench-") as scratch:
        peer = build_peer(Path(scratch)) if set(cases) & set(AGAINST_PEER) and peer_patience_s > 0 else None
        for case in cases:
            progress(case)
            row = Row(**_own_run(case))
            if peer and case in AGAINST_PEER:
                progress(f"{case}, SimGrid")
                row = Row(**(asdict(row) | _peer_run(peer, case, row.cpu_s, peer_patience_s, Path(scratch))))
            rows.append(row)
    return rows


def write_csv(rows: list[Row], file: Path) -> None:
    """The rows as CSV, written beside and renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".part")
    with beside.open("w", newline="") as out:
        writer = csv.DictWriter(out, [f.name for f in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    beside.replace(file)


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| work | flows | CPU s | M flows/s | peak MiB | B/flow | SimGrid lazy s | full s | ratio | worst difference |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in rows:
        bound = "> " if r.at_least else ""
        lines.append(
            f"| {r.work} | {r.flows:,} | {r.cpu_s:.4f} | {r.flows_per_s / 1e6:.2f} | {r.peak_mib:.0f} "
            f"| {r.bytes_per_flow:.0f} | {_seconds(r.lazy_s)} | {_seconds(r.full_s)} "
            f"| {'' if r.ratio is None else f'{bound}{r.ratio:,.0f}'} "
            f"| {'' if r.worst_difference is None else f'{r.worst_difference:.0e}'} |"
        )
    peers = sorted({r.peer for r in rows} - {""})
    return "\n".join(
        [*lines, *([f"\nPeer: {', '.join(peers)}; CPU seconds of one core on both sides."] if peers else [])]
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else "out of patience" if np.isinf(value) else f"{value:.2f}"


# --- our side -------------------------------------------------------------------------------------------------------


def _own_run(case: str) -> dict:
    """One case in a fresh process, so that memory and caches of another do not count."""
    command = [sys.executable, "-m", "rfabric.simulate.bench", "--inside", case]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RFabricError(f"benchmark {case} failed:\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def _inside(case: str) -> dict:
    work = CASES[case]()
    before = _resident_bytes()
    cpu_s, spent, grown = np.inf, 0.0, 0
    while spent < 1.0:  # small ones several times; the best counts
        engine = Engine(work.capacity)
        begin = time.thread_time()
        engine.add(**work.columns)
        engine.run()
        finish = engine.finish_times()
        took = time.thread_time() - begin
        grown = max(grown, _resident_bytes() - before)
        engine.close()
        spent, cpu_s = spent + took + 0.05, min(cpu_s, took)
    if np.isinf(finish).any():
        raise RFabricError(f"{case}: {np.isinf(finish).sum()} flows never finish")
    return {
        "case": case, "work": work.name, "links": len(work.capacity), "flows": work.flows, "cpu_s": cpu_s,
        "flows_per_s": work.flows / cpu_s, "peak_mib": _peak_mib(), "bytes_per_flow": grown / work.flows,
        "makespan_s": float(finish.max()),
    }  # fmt: skip


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


# --- the peer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    program: Path
    name: str
    exact: tuple[str, ...]


def build_peer(folder: Path) -> Peer | None:
    """Compile the SimGrid driver into `folder`; None where SimGrid is not installed."""
    prefix = Path(os.environ.get("SIMGRID_PREFIX", "/usr"))
    header = prefix / "include/simgrid/version.h"
    if not header.exists():
        return None
    version = header.read_text().split('SIMGRID_VERSION_STRING "SimGrid version ')[1].split('"')[0]
    program = folder / "peer"
    command = [
        *compiler(), "-std=c++17", "-O3", f"-I{prefix}/include", str(Path(__file__).with_name("peer.cpp")),
        "-o", str(program), f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-lsimgrid",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RFabricError(f"the SimGrid driver does not compile against {prefix}:\n{done.stderr[-2000:]}")
    return Peer(program, f"SimGrid {version}", EXACT if int(version.split(".")[0]) >= 4 else EXACT_BEFORE_4)


def _peer_run(peer: Peer, case: str, own_s: float, patience_s: float, scratch: Path) -> dict:
    work, file = CASES[case](), scratch / f"{case}.work"
    work.columns["size"] = np.rint(work.columns["size"])  # SimGrid's sizes are whole bytes
    _write_work(work, file)
    lazy, _ = _peer_time(peer, file, work.flows, "Lazy", (), patience_s)
    full, _ = _peer_time(peer, file, work.flows, "Full", (), patience_s)
    best = min(lazy, full)
    found: dict = {"peer": peer.name, "lazy_s": lazy, "full_s": full}
    if np.isinf(best):
        return found | {"ratio": patience_s / own_s, "at_least": True}
    mode = "Lazy" if lazy <= full else "Full"
    _, theirs = _peer_time(peer, file, work.flows, mode, peer.exact, 2 * patience_s)
    found["ratio"] = best / own_s
    if theirs is not None:
        engine = Engine(work.capacity)
        engine.add(**work.columns)
        engine.run()
        ours = engine.finish_times()
        found["worst_difference"] = float(np.max(np.abs(theirs - ours) / ours))
    return found


def _peer_time(
    peer: Peer, file: Path, flows: int, mode: str, exact: tuple[str, ...], patience_s: float
) -> tuple[float, np.ndarray | None]:
    """CPU seconds of the simulation and the finish times; (inf, None) when patience ran out."""
    out = file.with_suffix(".times")
    options = ["network/model:CM02", "network/crosstraffic:0", f"network/optim:{mode}", *exact]
    command = [str(peer.program), str(file), str(out), *[f"--cfg={o}" for o in options], "--log=root.thresh:error"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s)
    except subprocess.TimeoutExpired:
        return np.inf, None
    if done.returncode:
        raise RFabricError(f"{peer.name} failed on {file.name}:\n{done.stderr.strip()[-2000:]}")
    times = np.fromfile(out)
    if len(times) != flows or (times < 0).any():
        raise RFabricError(f"{peer.name} left {np.sum(times < 0)} of {flows} flows unfinished on {file.name}")
    return float(done.stdout), times


def _write_work(work: w.Work, file: Path) -> None:
    """The layout that peer.cpp reads."""
    c, n = work.columns, work.flows
    star = bool(len(work.capacity) == 2 * work.hosts)
    after = c.get("after", np.zeros(0))
    columns = (
        (np.int64, [work.hosts, len(work.capacity), n, len(after), star]),
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


def main(argv: list[str] | None = None) -> int:
    """`python -m rfabric.simulate.bench`: measure, print the table, write bench/engine.csv."""
    parser = argparse.ArgumentParser(prog="python -m rfabric.simulate.bench", description=main.__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for each run of SimGrid; 0: without it")
    parser.add_argument("--output", type=Path, default=Path("bench/engine.csv"))
    parser.add_argument("--inside", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.inside:
        print(json.dumps(_inside(options.inside)))
        return 0
    try:
        rows = measure(
            options.cases or CASES,
            peer_patience_s=options.patience,
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except RFabricError as error:
        print(error, file=sys.stderr)
        return 2
    write_csv(rows, options.output)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
