"""A run over time as ui.perfetto.dev and chrome://tracing read it (Trace Event Format, JSON).

    computing    a thread a host and label: what it computes
    flows        a thread a sender and label: flows in flight; those that overlap are one event
    circuits     a thread an OCS: which circuits it holds, from one change to the next
    dark         rewires, from programmed to usable
    load         counters: the busiest cables, each direction for itself, as shares of their rate

Of many events some are merged, first hosts to racks and then to the whole fabric; `otherData`
says so under `merged`. A flow counts on its way with its mean rate, under the circuits that were
lit as it began: what a counter shows is a mean, not an instant.
"""

import json
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import methodcaller
from weakref import WeakKeyDictionary

import numpy as np

from ..fabric.cabling import cabling_of
from ..optics import Circuits
from ..routing.rows import begins
from ..routing.schemes import Routing
from ..trace.model import routing_of
from ..trace.pairs import Pairs, PairWays
from .result import Result

US = 1e6  # trace events count in microseconds
MOST_EVENTS = 20_000  # of computing, and of flows: some 3 MB each
AT_ONCE = 128  # links: what is added up for them fits a processor's cache
MOST_LOADED = 1 << 19  # parts of flows whose ways are followed
MOST_KEPT = 1 << 17  # links that flows cross, of a run: 2.6 MB, for the page to ask again
LINKS, BINS = 16, 200  # counters, and instants of each
ROUNDING = 1e-3
MOST_NAMED = 48  # circuits that an event names
PROCESSES = {
    name: i for i, name in enumerate(("computing", "flows", "circuits", "dark", "load"), 1)
}


Lit = Callable[[Circuits], list[str]]  # how circuits are written
_CROSSED: WeakKeyDictionary[Result, tuple] = WeakKeyDictionary()


def run_document(result: Result, lit: Lit = methodcaller("to_json")) -> dict:
    """The document of a run; `lit` for who has written its circuits already."""
    merged: list[str] = []
    events = [named("process_name", pid, 0, name) for name, pid in PROCESSES.items()]
    events += _computing(result, merged)
    events += _flows(result, merged)
    events += _circuits(result, merged, lit)
    events += _dark(result)
    events += _load(result, merged)
    name = f"{result.traffic or 'a trace'} on {result.fabric.spec or result.fabric.name}"
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"name": name, "policy": result.policy, "merged": merged},
    }


def run_text(result: Result, lit: Lit = methodcaller("to_json")) -> str:
    """The document as text, of at most some MB."""
    return json.dumps(run_document(result, lit), separators=(",", ":")) + "\n"


def named(kind: str, pid: int, tid: int, name: str) -> dict:
    """The event that gives a process or a thread its name."""
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def complete(name: str, pid: int, tid: int, start: float, seconds: float, **args) -> dict:
    """An event from `start` on, s."""
    return {
        "name": name, "ph": "X", "pid": pid, "tid": tid, "ts": round(start * US, 3),
        "dur": round(seconds * US, 3), "args": args,
    }  # fmt: skip


def _computing(result: Result, merged: list[str]) -> list[dict]:
    rows = np.flatnonzero((result.trace.gap > 0) & (result.trace.size == 0))
    start, finish = result.start[rows] - result.trace.gap[rows], result.finish[rows]
    return _bars(result, "computing", rows, start, finish, merged)


def _flows(result: Result, merged: list[str]) -> list[dict]:
    rows = np.flatnonzero(result.trace.size > 0)
    return _bars(result, "flows", rows, result.start[rows], result.finish[rows], merged)


def _bars(
    result: Result, what: str, rows: np.ndarray, start: np.ndarray, finish: np.ndarray,
    merged: list[str],
) -> list[dict]:  # fmt: skip
    """Events of `rows`, those of one thread that overlap as one; fewer threads where there are
    too many.
    """
    if not len(rows):
        return []
    trace, level, lanes = result.trace, "", ()
    for level, lane_of, lanes in _levels(result):  # noqa: B007  the last one tried is drawn
        lane = lane_of[trace.src[rows]]
        thread = lane * len(trace.labels) + trace.label[rows]
        if np.count_nonzero(np.bincount(thread)) > MOST_EVENTS:
            continue  # one event a thread is too many
        groups = _joined(lane, rows, start, finish, trace, 0.0)
        if len(groups[0]) <= MOST_EVENTS:
            break
    else:
        pause = float(finish.max() - start.min()) / BINS
        groups = _joined(lane, rows, start, finish, trace, pause)
        merged.append(f"{what}: events less than {pause:g} s apart are one")
    if level != "host":
        merged.append(f"{what}: a thread a {level} and label, as hosts have too many events")
    if len(groups[0]) < len(rows):
        merged.append(f"{what}: {len(rows)} rows are {len(groups[0])} events; overlapping are one")
    return list(_drawn(result, PROCESSES[what], rows, groups, lane, lanes))


def _levels(result: Result) -> Iterator[tuple[str, np.ndarray, Sequence[str]]]:
    """(what a thread is for, which one each host has, their names), from fine to coarse."""
    hosts, rack = result.trace.hosts, result.fabric.rack_of
    yield "host", np.arange(len(hosts)), hosts
    racks = {name: i for i, name in enumerate(dict.fromkeys(map(rack.__getitem__, hosts)))}
    yield "rack", np.array([racks[rack[host]] for host in hosts], np.int64), tuple(racks)
    yield "fabric", np.zeros(len(hosts), np.int64), ("all hosts",)


def _joined(
    lane: np.ndarray, rows: np.ndarray, start: np.ndarray, finish: np.ndarray, trace, pause: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(first of the order, rows in order, begin, end) of each event: rows of a lane, step and
    label that overlap, or come within `pause`.
    """
    order = np.lexsort((start, trace.label[rows], lane))
    new = begins(lane[order], trace.label[rows][order], trace.step[rows][order])
    begin, end = start[order], finish[order]
    # the latest end so far of each lane and label: times differ by less than `apart`
    apart = float(finish.max(initial=0.0)) - float(start.min(initial=0.0)) + pause + 1.0
    block = np.cumsum(new) * apart
    reach = np.maximum.accumulate(end + block) - block
    first = np.flatnonzero(new | np.append(True, begin[1:] > reach[:-1] + pause))
    last = np.append(first[1:], len(order)) - 1
    return first, order, begin[first], reach[last]


def _drawn(
    result: Result, pid: int, rows: np.ndarray, groups: tuple, lane: np.ndarray,
    lanes: Sequence[str],
) -> Iterator[dict]:  # fmt: skip
    trace, (first, order, begin, end) = result.trace, groups
    own = rows[order[first]]  # a row that stands for each event
    ends = np.append(first[1:], len(order))
    sums = np.concatenate(([0], np.cumsum(trace.size[rows][order])))
    columns = (
        lane[order[first]], trace.label[own], trace.phase[own], trace.step[own], trace.dst[own],
        ends - first, sums[ends] - sums[first], begin, end - begin,
    )  # fmt: skip
    threads: dict[tuple[int, int], int] = {}
    for where, tag, phase, step, dst, flows, sent, start, seconds in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        label = trace.labels[tag] or trace.phases[phase]
        if (where, tag) not in threads:
            threads[where, tag] = len(threads) + 1
            thread = f"{lanes[where]} {label}".strip()
            yield named("thread_name", pid, threads[where, tag], thread)
        told = {"step": step, "phase": trace.phases[phase]}
        if sent:
            told |= {"flows": flows, "size_bytes": sent}
            if flows == 1:
                told["to"] = trace.hosts[dst]
        yield complete(label or "row", pid, threads[where, tag], start, seconds, **told)


def _circuits(result: Result, merged: list[str], lit: Lit) -> Iterator[dict]:
    pid, left = PROCESSES["circuits"], MOST_EVENTS
    held, last = _held(result, lit), result.step_seconds
    for tid, ocs in enumerate(held, 1):
        yield named("thread_name", pid, tid, ocs)
        ends = [time for time, _ in held[ocs][1:]] + [last]
        for (start, here), end in zip(held[ocs][: max(left, 0)], ends, strict=False):
            told = {"circuits": len(here), "pairs": " ".join(here[:MOST_NAMED])}
            yield complete(f"{len(here)} circuits", pid, tid, start, max(end - start, 0.0), **told)
        left -= len(held[ocs])
    if left < 0:
        merged.append(f"circuits: {-left} changes of later OCSes are left out")


def _held(result: Result, lit: Lit) -> dict[str, list[tuple[float, list[str]]]]:
    """Of each OCS what it holds from when on, where that changes."""
    held: dict[str, list] = {node.name: [] for node in result.fabric.ocses if result.epochs}
    # many epochs hold what others held
    by_ocs = cache(lambda circuits: _by_ocs(held, lit(circuits)))
    for time, circuits in result.epochs:
        for ocs, now in by_ocs(circuits).items():
            if not held[ocs] or held[ocs][-1][1] != now:
                held[ocs].append((time, now))
    return held


def _by_ocs(names: Iterable[str], circuits: list[str]) -> dict[str, list[str]]:
    """Circuits, of which those of one OCS stand together, as they do in order of their ports."""
    by_ocs: dict[str, list[str]] = {ocs: [] for ocs in names}
    first = 0
    while first < len(circuits):
        ocs = circuits[first][: circuits[first].index(":") + 1]
        last = bisect(circuits, False, first, key=lambda circuit: not circuit.startswith(ocs))
        by_ocs[ocs[:-1]] = circuits[first:last]
        first = last
    return by_ocs


def _dark(result: Result) -> Iterator[dict]:
    for rewire in result.rewires[:MOST_EVENTS]:
        yield complete(
            f"dark: {rewire.circuits_changed} circuits", PROCESSES["dark"], 1, rewire.programmed,
            rewire.dark, epoch=rewire.epoch, phase=rewire.phase, why=rewire.why,
            requested_s=rewire.requested, usable_s=rewire.usable, exposed_s=rewire.exposed,
            lost_bytes=rewire.lost_bytes,
        )  # fmt: skip


def _load(result: Result, merged: list[str]) -> list[dict]:
    rows = np.flatnonzero((result.trace.size > 0) & (result.finish > result.start))
    busiest = np.argsort(-result.utilisation, kind="stable")[:LINKS]
    busiest = busiest[result.link_bytes[busiest] > 0]
    if not len(rows) or not len(busiest):
        return []
    if len(busiest) < np.count_nonzero(result.link_bytes):
        merged.append(f"load: the {len(busiest)} busiest of all directions of cables that carry")
    edges = np.linspace(0.0, result.step_seconds, BINS + 1)
    carried = carried_share(result, busiest, edges)
    if carried is None:
        merged.append(f"load: left out, as flows have more parts than {MOST_LOADED}")
        return []
    if (carried > 1 + ROUNDING).any():
        merged.append(
            "load: mean rates of flows add up to more than a cable for a while; shown as 1"
        )
    return [
        {
            "name": _link_name(result, link), "ph": "C", "pid": PROCESSES["load"], "tid": 0,
            "ts": round(float(t) * US, 3), "args": {"share": round(min(float(share), 1.0), 4)},
        }
        for link, shares in zip(busiest.tolist(), carried, strict=True)
        for t, share in _changes(edges, shares)
    ]  # fmt: skip


def _changes(edges: np.ndarray, shares: np.ndarray) -> Iterator[tuple[float, float]]:
    """Instants at which a counter changes, its last back to 0."""
    kept = np.flatnonzero(np.append(True, np.diff(shares.round(4)) != 0))
    yield from zip(edges[kept].tolist(), shares[kept].tolist(), strict=True)
    yield float(edges[-1]), 0.0


def carried_share(result: Result, links: np.ndarray, edges: np.ndarray) -> np.ndarray | None:
    """The mean share of its rate that each of these directed links carries between two edges:
    float64[links, edges - 1]; None where more than MOST_LOADED ways of flows would be followed.
    """
    blocks = carried(result, links, edges)
    if blocks is None:
        return None
    share = np.zeros((len(links), len(edges) - 1))
    for some, shares in blocks:
        share[some] = shares
    return share


def carried(
    result: Result, links: np.ndarray, edges: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]] | None:
    """The same, some links at once: which of `links` they are, and their shares; those that carry
    nothing are left out.
    """
    if (crossings := _crossings_of(result)) is None:
        return None
    row, on, part = crossings
    place = np.full(2 * len(result.fabric.links) + 1, -1)
    place[links] = np.arange(len(links))
    link = place[on]
    hit = link >= 0
    row, link, part = row[hit], link[hit], part[hit]
    start, finish = result.start[row], result.finish[row]
    speed = 8.0 * result.trace.size[row] * part / (finish - start)
    times, speeds = np.concatenate((start, finish)), np.concatenate((speed, -speed))
    rate = cabling_of(result.fabric).rate[links]
    return (
        (some, (np.diff(sent, axis=1) / (np.diff(edges) * rate[some][:, None])).clip(0))
        for some, sent in _since(times, speeds, np.tile(link, 2), edges)
    )


def _crossings_of(result: Result) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Those of a run, which are kept for whoever asks again; None where they are too many."""
    if result not in _CROSSED:
        rows = np.flatnonzero((result.trace.size > 0) & (result.finish > result.start))
        if len(rows) > MOST_LOADED:  # each has a part or more
            return None
        routing = routing_of(result.routing, result.fabric, result.trace)
        pairs = Pairs(result.fabric, result.trace, routing)
        if int(pairs.counts[rows].sum()) > MOST_LOADED:
            return None
        crossings = _crossings(result, rows, pairs, routing)
        if len(crossings[0]) > MOST_KEPT:
            return crossings
        _CROSSED[result] = crossings
    return _CROSSED[result]


def _crossings(
    result: Result, rows: np.ndarray, pairs: Pairs, routing: Routing
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which row crosses which directed link, with which share of its bytes."""
    crossings = [(rows[:0], np.zeros(0, np.int32), np.zeros(0))]
    for some, circuits in _by_epoch(result, rows):
        offsets, on = PairWays(result.fabric, pairs, circuits, routing).of(some)
        counts, parts = pairs.parts(some)
        part = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        crossings.append((np.repeat(some, counts)[part], on, pairs.share[parts][part]))
    row, on, share = map(np.concatenate, zip(*crossings, strict=True))
    return row, on, share


def _since(
    times: np.ndarray, speed: np.ndarray, link: np.ndarray, edges: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Bits until each edge, links x edges, where from each of `times` on `speed` is sent: some
    links at once, and which they are.
    """
    times, edges = times - edges[0], edges - edges[0]  # of a day in seconds little is left to see
    bins, order = len(edges), np.argsort(link, kind="stable")
    times, speed, link = times[order], speed[order], link[order]
    at = np.searchsorted(edges, times).clip(0, bins - 1)
    first = begins(link)
    every, nth = link[first], np.cumsum(first) - 1
    for begin in range(0, len(every), AT_ONCE):
        some = every[begin : begin + AT_ONCE]
        mine = slice(*np.searchsorted(nth, (begin, begin + len(some))))
        cell = (nth[mine] - begin) * bins + at[mine]
        rate, moment = (
            np.bincount(cell, weights, len(some) * bins).reshape(-1, bins).cumsum(axis=1)
            for weights in (speed[mine], speed[mine] * times[mine])
        )
        yield some, rate * edges - moment


def _by_epoch(result: Result, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Circuits]]:
    """Rows by the circuits that were lit as they began."""
    epochs = result.epochs or ((0.0, Circuits()),)
    which = np.searchsorted([time for time, _ in epochs], result.start[rows], "right") - 1
    for i in np.unique(which.clip(0)):
        yield rows[which.clip(0) == i], epochs[i][1]


def _link_name(result: Result, directed: int) -> str:
    link = result.fabric.links[directed // 2]
    ends = (link.a, link.b) if directed % 2 == 0 else (link.b, link.a)
    return f"{ends[0]} > {ends[1]}"
