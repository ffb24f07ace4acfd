"""What the moving page shows, as one JSON document made of the records of runs.

    {version, title, command, yours, jobs, flows: {...}, runs: [{label, engine, lanes, phases,
     rewires, circuits: {times, sets, names, paths}, nodes, links, load: {edges, share}}]}

Of several run folders `traces` holds jobs and flows of each, and a run says which is its `trace`.

Times are s on the run's clock. What is too large for a page is left out, and `left_out` says what
and where it is to be found. Loads are means: a flow counts with its mean rate on the way that it
took as it began, as in timeline.json.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from ...errors import RFabricError
from ...fabric import Fabric
from ...fabric.cabling import cabling_of
from ...optics import Circuits
from ..intervals import busy, merged
from ..perfetto import ROUNDING, carried
from ..result import Result
from ..summary import Run, cost, run_summary
from .lights import light_paths
from .logged import LoggedRun, beside
from .places import places

VERSION = 1
MOST_NODES = 6_000  # of a fabric that is drawn node by node, pod by pod
MOST_FLOWS = 4_000
MOST_PATHS = 120_000  # of light paths, over all distinct sets of circuits
MOST_LOADS = 1 << 22  # directions of cables x instants
LEAST_EDGES, MOST_EDGES = 40, 1_000  # instants at which loads change
MOST_STEPS = 1_500  # points of a lane
MOST_PHASES = 300
MOST_LANES = 60  # of a run that are drawn; the others count all the same
LEVELS = 200  # a load is a byte: 200 is the cable's rate
NOTHING = 0.01  # of a level: sums of large numbers that are 0 are not quite
ROUNDED = 64  # of the last digit of a time: sums of times differ by that
NEAR = 1e-8  # of the seconds in which anything is sent: instants nearer to each other are one


def document(
    runs: Sequence[Run],
    summary: dict,
    title: str,
    logged: LoggedRun | None = None,
    prices: Sequence[float] = (),
) -> dict:
    """The document of these runs and of their summary, and of the logged run beside them; behind
    runs of packets the simulations they are measured against. What each costs is told at these
    `prices` of an OCS port (USD), too.
    """
    expected = list(_simulated(runs, summary["runs"]))
    runs = [*runs, *(run for run, _ in expected)]
    entries = [*summary["runs"], *(entry for _, entry in expected)]
    return {
        "version": VERSION,
        "title": title,
        "command": summary["command"],
        "yours": beside(logged, runs) if logged else None,
        "prices": list(prices),
        "jobs": _jobs(runs),
        "flows": _flows(runs, MOST_FLOWS),
        "runs": [
            _run(run, entry) | {"costs": _costs(run, prices)}
            for run, entry in zip(runs, entries, strict=True)
        ],
    }


def _costs(run: Run, prices: Sequence[float]) -> list[dict]:
    return [cost(run.result, usd) for usd in prices]


def _simulated(runs: Sequence[Run], entries: Sequence[dict]) -> Iterator[tuple[Run, dict]]:
    """What the simulator made of each run of packets, and its entry."""
    for run, entry in zip(runs, entries, strict=True):
        if run.simulated:
            expected = Run(run.simulated)
            label = f"{entry['label']}, simulated"
            yield expected, run_summary(expected) | {"label": label}


def document_of_several(
    folders: Sequence[Sequence[Run]],
    summary: dict,
    title: str,
    logged: LoggedRun | None = None,
    prices: Sequence[float] = (),
) -> dict:
    """The document of the runs of several traces: `traces` holds flows and jobs of each, and a run
    says of which `trace` it is, and the `column` of its own in that. `prices` as in `document`.
    """
    entries, traces, described = iter(summary["runs"]), [], []
    for trace, runs in enumerate(folders):
        traces.append({"jobs": _jobs(runs), "flows": _flows(runs, MOST_FLOWS // len(folders))})
        for column, run in enumerate(runs):
            place = {"trace": trace, "column": column, "costs": _costs(run, prices)}
            described.append(_run(run, next(entries)) | place)
    return {
        "version": VERSION,
        "title": title,
        "command": summary["command"],
        "yours": beside(logged, [run for runs in folders for run in runs]) if logged else None,
        "prices": list(prices),
        "traces": traces,
        "runs": described,
    }


def _jobs(runs: Sequence[Run]) -> list[str]:
    return list(runs[0].result.trace.provenance.get("held", {}))


def text(document: dict) -> str:
    """The document as JSON that no HTML can be read out of; RFabricError for nan and infinity."""
    try:
        plain = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise RFabricError(
            "a time or a load of this run is no number, so no page can show it; see flows.csv "
            "and links.csv, and run it again"
        ) from error
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _packed(values: np.ndarray) -> str:
    """Bytes, deflated, in base64: browsers read that without a library."""
    return base64.b64encode(zlib.compress(values.astype(np.uint8).tobytes(), 6)).decode()


def _run(run: Run, entry: dict) -> dict:
    result, left_out = run.result, []
    kept = ("label", "engine", "fabric", "policy", "scheduler", "routing", "seed", "gpus", "step_s",
            "dark_s", "lost_bytes", "rewires", "cost", "fidelity", "scale")  # fmt: skip
    described = {key: entry.get(key) for key in kept}
    described |= {
        "steps": entry.get("steps", 1),
        "optical": bool(result.fabric.ocses),
        "lanes": _longest_drawn(lanes(result), left_out),
        "phases": _phases(result, left_out),
        "circuits": _circuits(result, left_out),
        "nodes": [],
        "links": [],
        "load": None,
    }
    if drawn(result.fabric, left_out):
        described |= cabled(result.fabric) | {"load": _load(result, left_out)}
    return described | {"left_out": left_out}


def drawn(fabric: Fabric, left_out: list[str]) -> bool:
    """Whether a page can hold all nodes of the fabric."""
    count = len(fabric.nodes)
    if count > MOST_NODES:
        left_out.append(f"{count:,} nodes are more than the {MOST_NODES:,} drawn; see fabric.json")
    return count <= MOST_NODES


# --- lanes ------------------------------------------------------------------------------------


def lanes(result: Result) -> list[dict]:
    """Of each phase name and job: how many rows compute, and how many flows are in flight, from
    each of `time` on.
    """
    trace = result.trace
    jobs = max(len(trace.provenance.get("held", ())), 1)
    begin = np.where(trace.size > 0, result.start, result.finish - trace.gap)
    sends, busy = trace.size > 0, []
    for phase, name in enumerate(trace.phases):
        for job in range(jobs):
            mine = (trace.phase == phase) & (trace.step % jobs == job)
            both = {"computes": mine & ~sends & (trace.gap > 0), "sends": mine & sends}
            drawn = {
                key: _steps(begin[rows], result.finish[rows])
                for key, rows in both.items()
                if rows.any()
            }
            if drawn:
                busy.append({"phase": name or "flows", "job": job} | drawn)
    return sorted(busy, key=lambda lane: min(lane[k]["time"][0] for k in _AREAS if k in lane))


_AREAS = ("computes", "sends")


def _longest_drawn(every: list[dict], left_out: list[str]) -> list[dict]:
    """These lanes, of which all but the longest are marked as not drawn."""
    if len(every) > MOST_LANES:
        short = len(every) - MOST_LANES
        left_out.append(f"{short:,} of {len(every):,} lanes, the shortest; their flows are counted")
        spans = [sum(lane[key]["seconds"] for key in _AREAS if key in lane) for lane in every]
        for i in np.argsort(spans, kind="stable")[:short].tolist():
            every[i]["drawn"] = False
    return every


def _steps(begin: np.ndarray, end: np.ndarray) -> dict:
    """Intervals open from each time on, the most of them where times are thinned; and the seconds
    in which any is.
    """
    spans = merged(begin, end)
    time, count = busy(begin, end, 2 * len(begin))
    thinned = len(time) > MOST_STEPS
    if thinned:
        kept = _kept(time, spans)
        time, count = time[kept], np.maximum.reduceat(count, kept)
    return {
        "time": time.tolist(),
        "count": np.rint(count).astype(int).tolist(),
        "seconds": float((spans[:, 1] - spans[:, 0]).sum()),
        "rows": len(begin),
        "thinned": thinned,
    }


def _kept(time: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Which of many times to draw: some evenly, and both ends of the longest pauses, in which
    nothing must seem to go on.
    """
    ends = _without_pauses(spans, MOST_STEPS // 4).ravel()
    even = np.linspace(0, len(time) - 1, MOST_STEPS // 2).astype(int)
    return np.unique(np.append(even, np.searchsorted(time, ends)))


def _phases(result: Result, left_out: list[str]) -> list[dict]:
    """Each phase from begin to end; the longest, where they are too many."""
    phases = result.phases
    if len(phases) > MOST_PHASES:
        left_out.append(f"{len(phases) - MOST_PHASES:,} of {len(phases):,} phases, the shortest")
        longest = sorted(phases, key=lambda p: -p.seconds)[:MOST_PHASES]
        phases = tuple(p for p in phases if any(p is one for one in longest))
    return [
        {
            "name": str(p.key), "phase": p.key.phase or "flows", "step": p.key.step,
            "begin_s": p.begin, "end_s": p.end, "comm_s": p.comm, "exposed_s": p.exposed,
            "bytes": p.bytes,
        }
        for p in phases
    ]  # fmt: skip


# --- the fabric and its circuits ----------------------------------------------------------------


def cabled(fabric: Fabric) -> dict:
    """Nodes as [name, kind, tier, pod, plane, x, y], cables as [node, node, ports, bit/s]."""
    at = places(fabric)
    ends = cabling_of(fabric)
    both = ends.node.reshape(-1, 2).tolist()
    said = ends.spelled(np.arange(len(ends.node)))
    nodes = [
        [n.name, n.kind, n.tier, n.pod, n.plane, *(round(v, 5) for v in at.get(n.name, (0, 0)))]
        for n in fabric.nodes
    ]
    links = [
        [*nodes_of, f"{a} – {b}", link.rate]
        for nodes_of, a, b, link in zip(both, said[::2], said[1::2], fabric.links, strict=True)
    ]
    return {"nodes": nodes, "links": links}


def _circuits(result: Result, left_out: list[str]) -> dict | None:
    """When which set of circuits came into force: `times`, `sets` (which of `held`), and of each
    one held its circuits (numbers of `names`) and its light paths (numbers of `paths`).
    """
    if not result.fabric.ocses or not result.epochs or len(result.fabric.nodes) > MOST_NODES:
        return None
    names: dict[str, int] = {}
    paths: dict[tuple, int] = {}
    known: dict[Circuits, int] = {}
    held, times, sets, total = [], [], [], 0
    for time, circuits in result.epochs:
        if circuits not in known:
            if total > MOST_PATHS:
                later = len(result.epochs) - len(times)
                left_out.append(f"circuits of the last {later:,} epochs; see circuits.json")
                break
            lit = light_paths(result.fabric, circuits)
            total += len(lit)
            known[circuits] = len(held)
            held.append(
                {
                    "circuits": [names.setdefault(c, len(names)) for c in circuits.to_json()],
                    "paths": [paths.setdefault(path, len(paths)) for path in lit],
                }
            )
        times.append(time)
        sets.append(known[circuits])
    return {
        "times": times, "sets": sets, "held": held, "names": list(names), "paths": list(paths),
        "racks": list(result.fabric.racks),
    }  # fmt: skip


def _load(result: Result, left_out: list[str]) -> dict | None:
    """The share of its rate that each direction of each cable carries from each edge to the next:
    bytes, directions x instants, of LEVELS.
    """
    most = min(MOST_LOADS // (2 * len(result.fabric.links)), MOST_EDGES)
    if most < LEAST_EDGES:
        left_out.append("load of cables at each instant: too many cables; see links.csv")
        return None
    edges = _edges(result, most)
    if len(edges) < 2:
        return None
    links = np.arange(2 * len(result.fabric.links))
    blocks = carried(result, links, edges)
    if blocks is None:
        left_out.append("load of cables at each instant: too many flows; see links.csv")
        return None
    levels, most = np.zeros((len(links), len(edges) - 1), np.uint8), 0.0
    for some, shares in blocks:
        most = max(most, float(shares.max()))
        levels[some] = np.ceil(np.minimum(shares, 1) * LEVELS - NOTHING).clip(0)
    if most > 1 + ROUNDING:
        left_out.append(
            "loads above a cable's rate: mean rates of flows add up to more; shown as full"
        )
    return {"edges": edges.tolist(), "levels": LEVELS, "share": _packed(levels)}


def _edges(result: Result, most: int) -> np.ndarray:
    """At most about `most` instants between which loads are told: where anything is sent, at each
    rewire, and at the ends of the longest pauses, so that no load stands where nothing is sent.
    """
    sends = result.trace.size > 0
    if not sends.any():
        return np.zeros(0)
    spans = _without_pauses(merged(result.start[sends], result.finish[sends]), most // 4)
    passed = np.concatenate(([0.0], np.cumsum(spans[:, 1] - spans[:, 0])))
    even = np.linspace(0, passed[-1], max(most // 4, 2))
    which = np.searchsorted(passed, even, "right").clip(1, len(spans)) - 1
    inside = spans[which, 0] + even - passed[which]
    switched = [t for r in result.rewires[: most // 8] for t in (r.programmed, r.usable)]
    edges = np.unique(np.concatenate((inside, spans.ravel(), switched)))
    near = max(NEAR * passed[-1], ROUNDED * np.spacing(edges[-1]))
    return edges[np.append(True, np.diff(edges) > near)]


def _without_pauses(spans: np.ndarray, most: int) -> np.ndarray:
    """The spans with all pauses but the `most` longest counted in."""
    pauses = spans[1:, 0] - spans[:-1, 1]
    cut = np.sort(np.argsort(-pauses, kind="stable")[:most])
    first, last = np.append(0, cut + 1), np.append(cut, len(spans) - 1)
    return np.column_stack((spans[first, 0], spans[last, 1]))


# --- flows ----------------------------------------------------------------------------------------


def _flows(runs: Sequence[Run], most: int) -> dict:
    """Rows that send, the largest where they are too many: columns of the trace, and of each run
    when they started and finished.
    """
    trace = runs[0].result.trace
    rows = np.flatnonzero(trace.size > 0)
    count = len(rows)
    if count > most:
        rows = np.sort(rows[np.argsort(-trace.size[rows], kind="stable")[:most]])
    return {
        "of": count,
        "id": rows.tolist(),
        "src": trace.src[rows].tolist(),
        "dst": trace.dst[rows].tolist(),
        "bytes": trace.size[rows].tolist(),
        "label": trace.label[rows].tolist(),
        "phase": trace.phase[rows].tolist(),
        "labels": list(trace.labels),
        "phases": list(trace.phases),
        "hosts": _names(trace.hosts, trace.src[rows], trace.dst[rows]),
        "start_s": [run.result.start[rows].tolist() for run in runs],
        "finish_s": [run.result.finish[rows].tolist() for run in runs],
    }


def _names(hosts: Sequence[str], *ends: np.ndarray) -> dict[int, str]:
    """The hosts that are named."""
    return {int(i): hosts[i] for i in np.unique(np.concatenate(ends))}
