"""Jobs that share nodes, turn by turn: their traces merged into one.

    rollout nodes shared  generation of A, round 0 --> generation of B, round 0 --> A, round 1
    training nodes        training and sync of A   --> training and sync of B   --> ...

A job's own trace comes from its compute scheduler, as if alone; only the waiting for shared nodes
is added, with the warm switch of a phase. What moves while a step generates belongs to its turn of
generation. Where a phase waits for one of a later step (pipelines that run ahead), its turn comes
as soon as that one has had its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import RFabricError
from ...trace import Flows, PhaseKey, Trace, TraceBuilder
from .groups import ExecutionGroup
from .jobs import Job

# whose nodes a phase holds
NODES_OF = {"generation": "roll", "training": "train", "weight_sync": "train"}


@dataclass(frozen=True, eq=False)
class SharedJob:
    """A job of a group on the fabric, with its own trace: `hosts` are those of its GPUs, `turn` its
    number among all `jobs` jobs, `done` says which row of all a row of its trace became.

    by_node: whether its turns of generation begin and end node by node, as where tails are moved;
    a node is `size` hosts, rollout node 0 the server number `first_roll`.
    """

    job: Job
    trace: Trace
    hosts: np.ndarray
    group: ExecutionGroup
    place: int
    turn: int
    jobs: int
    by_node: bool = False
    size: int = 8
    first_roll: int = 0
    done: dict[int, int] = field(default_factory=dict)

    def nodes(self, pool: str) -> list[tuple[str, int]]:
        """Those of a pool that it takes its turns on."""
        pins = self.group.pins[self.place]
        return [(pool, n) for n in (pins if pool == "roll" else range(self.group.train_nodes))]

    def switch(self, pool: str) -> float:
        """Seconds until a phase is back on nodes that others use as well."""
        nodes, profile = self.group.pins[self.place], self.job.profile
        if pool == "roll":
            return profile.roll_switch if any(self.group.residents[n] > 1 for n in nodes) else 0.0
        return profile.train_switch if len(self.group.jobs) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Foreseen:
    """What jobs foresee of their phases, as a trace has it: `windows` (s) and `paces`."""

    windows: dict[PhaseKey, float] = field(default_factory=dict)
    paces: dict[PhaseKey, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class NodeTurn:
    """A phase of a job, and what moves meanwhile: its `rows` (int64[n]), and those `awaited` of the
    job's other turns.
    """

    seat: SharedJob
    phase: PhaseKey
    rows: np.ndarray
    awaited: np.ndarray

    @property
    def ready(self) -> bool:
        """Whether all that it waits for has had its turn."""
        return all(row in self.seat.done for row in self.awaited.tolist())


def _turns(seat: SharedJob) -> Iterator[NodeTurn]:
    trace, parts = seat.trace, dict[PhaseKey, list[np.ndarray]]()
    for key in trace.phase_keys:
        mine = key if key.phase in NODES_OF else PhaseKey(key.step, "generation")
        parts.setdefault(mine, []).append(trace.rows(key))
    for key, some in parts.items():
        rows = np.sort(np.concatenate(some))
        inside = np.zeros(len(trace), bool)
        inside[rows] = True
        awaited = np.unique(trace.after[inside[trace.owner]])
        yield NodeTurn(seat, key, rows, awaited[~inside[awaited]])


def merge(out: TraceBuilder, seats: Sequence[SharedJob], foreseen: Foreseen) -> None:
    """The turns of one group, in the order of its round robin; a turn waits for who had its nodes
    before. What their jobs foresee of them is added to `foreseen`. RFabricError where they wait for
    one another in a circle.
    """
    held: dict[tuple[str, int], tuple[int, SharedJob]] = {}
    every = [turn for seat in seats for turn in _turns(seat)]
    waiting = sorted(every, key=lambda turn: (turn.phase.step, turn.seat.turn))
    while waiting:
        turn = next((one for one in waiting if one.ready), None)
        if turn is None:
            names = ", ".join(dict.fromkeys(one.seat.job.name for one in waiting))
            raise RFabricError(
                f"{names}: phases that wait for one another both ways take no turns on nodes that "
                "jobs share; run each alone"
            )
        waiting.remove(turn)
        _take(out, turn, held)
        _foresee(turn, foreseen)


def _foresee(turn: NodeTurn, foreseen: Foreseen) -> None:
    """Windows and paces of a turn's phases, by its number among all turns."""
    seat, generates = turn.seat, turn.phase.phase == "generation"
    for known, those in (
        (seat.trace.windows, foreseen.windows),
        (seat.trace.paces, foreseen.paces),
    ):
        for key, value in known.items():
            moves = generates and key.step == turn.phase.step and key.phase not in NODES_OF
            if key == turn.phase or moves:
                those[PhaseKey(_number(turn), key.phase)] = value


def _number(turn: NodeTurn) -> int:
    return turn.phase.step * turn.seat.jobs + turn.seat.turn


def _take(out: TraceBuilder, turn: NodeTurn, held: dict) -> None:
    """One turn: what it waits for, its rows, and the barrier at its end that the next in line waits
    for; node by node where its nodes are not all free at once.
    """
    seat, trace, done = turn.seat, turn.seat.trace, turn.seat.done
    pool = NODES_OF[turn.phase.phase]
    kind = {"step": _number(turn), "phase": turn.phase.phase}
    entries = _entries(trace, turn.rows)
    # a permit is for who is ready
    ready = {done[int(wait)] for row in entries for wait in trace.waits_for(row)}
    parts = _parts(turn, pool)
    gates = [_gate(out, turn, part, held, ready, kind) for part in parts]
    gate_of = {row: gate for part, gate in zip(parts, gates, strict=True) for row in part.rows}
    for row in turn.rows.tolist():
        if row in done:  # with the loop it belongs to
            continue
        after = [done[int(wait)] for wait in trace.waits_for(row)] + (
            gate_of.get(row, gates[0]) if row in entries else []
        )
        own = {"after": after, "gap": float(trace.gap[row]), "start": float(trace.start[row])}
        _copy(out, seat, row, kind | {"phase": trace.phases[trace.phase[row]]} | own)
    for part in parts:
        ends = [done[row] for row in _exits(trace, np.array(part.rows))]
        end = out.compute(part.host, 0.0, after=ends, label=f"{seat.job.name} barrier", **kind)
        held.update(dict.fromkeys(part.nodes, (end, seat)))


@dataclass(frozen=True)
class _NodeGroup:
    """Nodes that a turn takes and gives back together: its rows there, and a host to wait on."""

    nodes: list[tuple[str, int]]
    rows: list[int]
    host: int


def _parts(turn: NodeTurn, pool: str) -> list[_NodeGroup]:
    """All nodes together or, where tails are moved, each by itself."""
    seat, nodes = turn.seat, turn.seat.nodes(pool)
    hosts = seat.hosts[seat.trace.src[turn.rows]]
    if not seat.by_node or pool != "roll":
        return [_NodeGroup(nodes, turn.rows.tolist(), int(hosts[0]))]
    places = hosts // seat.size - seat.first_roll
    own = [(node, turn.rows[places == node[1]].tolist()) for node in nodes]
    return [
        _NodeGroup([node], rows, (seat.first_roll + node[1]) * seat.size)
        for node, rows in own
        if rows
    ]


def _gate(
    out: TraceBuilder, turn: NodeTurn, part: _NodeGroup, held: dict, ready: set[int], kind: dict
) -> list[int]:
    """The row that those wait for who begin on some nodes: who had them before, and the switch."""
    seat, last = turn.seat, [held[node] for node in part.nodes if node in held]
    # of training, on the same nodes
    follows = turn.phase.phase == "weight_sync" and all(who is seat for _, who in last)
    seconds = 0.0 if follows else seat.switch(NODES_OF[turn.phase.phase])
    before = sorted({row for row, _ in last} | ready)
    return [out.compute(part.host, seconds, after=before, label=f"{seat.job.name} switch", **kind)]


def _entries(trace: Trace, rows: np.ndarray) -> set[int]:
    """The rows that wait for no other of them."""
    inside = np.zeros(len(trace), bool)
    inside[rows] = True
    follow = trace.owner[inside[trace.after]]
    return set(rows.tolist()) - set(follow.tolist())


def _copy(out: TraceBuilder, seat: SharedJob, row: int, kind: dict) -> None:
    """A row on the hosts of a seat, with all others of its loop if it belongs to one."""
    trace, done = seat.trace, seat.done
    if trace.loop[row] < 0:
        done[row] = out.flows(*_seated(seat, [row]), label=_label(seat, row), **kind)[0]
        return
    loop, number = trace.loops[trace.loop[row]], trace.loop[row]
    turns = [
        np.flatnonzero((trace.loop == number) & (trace.turn == turn))
        for turn in range(len(loop.between))
    ]
    labels = [_label(seat, int(turn[0])) for turn in turns]
    flows = [_seated(seat, turn) for turn in turns]
    rows = out.loop(flows, loop.repeat, loop.between, loop.beside, label=labels, **kind)
    done.update(zip(np.concatenate(turns).tolist(), rows, strict=True))


def _seated(seat: SharedJob, rows: Sequence[int]) -> Flows:
    ends = (seat.hosts[ends[rows]].tolist() for ends in (seat.trace.src, seat.trace.dst))
    return Flows(*ends, seat.trace.size[rows].tolist())


def _label(seat: SharedJob, row: int) -> str:
    return f"{seat.job.name} {seat.trace.labels[seat.trace.label[row]]}"


def _exits(trace: Trace, rows: np.ndarray) -> list[int]:
    """The rows that no other of `rows` waits for."""
    inside = np.isin(trace.owner, rows)
    awaited = set(trace.after[inside].tolist())
    return [row for row in rows.tolist() if row not in awaited]
