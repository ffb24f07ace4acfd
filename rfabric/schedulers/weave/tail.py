"""Long-tail migration: when four of five responses are done, the rest goes to a few GPUs and the
next job begins.

    without   GPU 0..7  |=======.----...............|    held 1, stretch 1
    with      GPU 0..1  |=======.-----------------|      the last fifth, its context prefilled again
              GPU 2..7  |=======|  next job              free

Only requests move, neither KV cache nor weights (Weave, OSDI'26, footnote 4). The times come from
the decode roofline of the workload, at the responses it draws.

In a trace tails move by whole nodes (`tail_turns`): in each turn other nodes take the rest, so that
none has more than its share; the jobs whose turns come while it decodes there are dealt to their
other nodes.

    node 1   |=A=|---- tail of A ----|.......|=A=|=B=|          = until the rest moves
    node 2   |=A=|=B=|---- tail of B ----|...|=A=|=B=|          - the rest
    node 3   |=A=|=B=|.......................|=A=|--- A ...
    node 4   |=A=|=B=|.......................|=A=|=B=|--- B ...
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import RFabricError
from ...rl import flows
from ...rl.lowering import trace_of_steps
from ...rl.phases import Generated, Step, step_of
from ...rl.plan import phase_seconds, plan_of_steps
from ...rl.timing import replica_time
from ...rl.workload import Workload
from ...trace import Trace
from .groups import ExecutionGroup, Tail

DONE = 0.8  # Weave: the share of responses at which the rest is moved
ASIDE = 0.25  # of the replicas: "a few"


def tail(workload: Workload, seed: int = 0, done: float = DONE, aside: float = ASIDE) -> Tail:
    """The tail of one step's rollout when `done` of the responses leave the rest to `aside` of the
    replicas.

    RFabricError for shares that do not lie above 0 and up to 1.
    """
    _check_share("done", done)
    _check_share("aside", aside)
    step = step_of(workload, seed, 0)
    replicas = len(step.generated.outputs)
    moved = _moved(workload, step, range(max(1, round(aside * replicas))), (), done)
    whole, share = step.generated.seconds, len(moved.aside) / replicas
    return Tail((moved.freed + share * moved.after) / whole, moved.seconds / whole)


@dataclass(frozen=True)
class TailSetting:
    """What a policy for several jobs is told of tails: the share of a job's nodes that they move
    to; 0: they stay. RFabricError for no such share.
    """

    tail: float = 0.0

    def __post_init__(self):
        if self.tail:
            _check_share("share of nodes", self.tail)


@dataclass(frozen=True)
class _Moved:
    """A step's rollout whose tail moves: seconds and tokens of each replica until then, of those
    that take the rest, by number, after that.
    """

    until: tuple[float, ...]
    tokens: tuple[int, ...]
    aside: Mapping[int, tuple[float, int]]

    @property
    def freed(self) -> float:
        """When the rest moves."""
        return max(self.until)

    @property
    def after(self) -> float:
        """How long the rest takes."""
        return max(seconds for seconds, _ in self.aside.values())

    @property
    def seconds(self) -> float:
        """When the last response is done."""
        return self.freed + self.after


def _moved(
    w: Workload, step: Step, aside: Sequence[int], idle: Collection[int], done: float = DONE
) -> _Moved:
    """A rollout on all replicas but those that stand `idle`; the rest goes to those `aside`,
    longest dealt first.
    """
    made = step.generated
    prompts, outputs = np.concatenate(made.prompts), np.concatenate(made.outputs)
    cut = int(np.quantile(outputs, done))
    until, tokens = [0.0] * len(made.outputs), [0] * len(made.outputs)
    for r, rows in _dealt(w, made, idle):
        until[r] = replica_time(w, prompts[rows], np.minimum(outputs[rows], cut)).seconds
        tokens[r] = int(outputs[rows][outputs[rows] <= cut].sum())
    return _Moved(tuple(until), tuple(tokens), _rest(w, prompts, outputs, cut, aside))


def _rest(
    w: Workload, prompts: np.ndarray, outputs: np.ndarray, cut: int, aside: Sequence[int]
) -> dict[int, tuple[float, int]]:
    """Seconds and tokens of those of `outputs` that are longer than `cut`, by replica aside."""
    left = np.flatnonzero(outputs > cut)
    left = left[np.argsort(-outputs[left], kind="stable")]
    rest = {}
    for i, r in enumerate(aside):
        rows = left[i :: len(aside)]
        taken = replica_time(w, prompts[rows] + cut, outputs[rows] - cut) if len(rows) else None
        rest[r] = (taken.seconds if taken else 0.0, int(outputs[rows].sum()))
    return rest


def _dealt(w: Workload, made: Generated, idle: Collection[int]) -> Iterator[tuple[int, np.ndarray]]:
    """The responses of each replica, by number among all; anew where some replicas stand idle."""
    used = [r for r in range(len(made.outputs)) if r not in idle]
    if not idle:
        sizes = [len(outputs) for outputs in made.outputs]
    else:
        whole = w.generation.group_size if w.generation.batch >= len(used) else 1
        groups = np.array_split(np.arange(sum(map(len, made.outputs)) // whole), len(used))
        sizes = [len(some) * whole for some in groups]
    ends = np.cumsum(sizes)
    for r, size, end in zip(used, sizes, ends.tolist(), strict=True):
        yield r, np.arange(end - size, end)


@dataclass(frozen=True)
class TailTurn:
    """The rollout nodes that take the rest of a job in one of its turns, and those that stand idle
    in it; by their place among the nodes of the job.
    """

    aside: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()


def tail_turns(group: ExecutionGroup, rounds: int, aside: float) -> list[list[TailTurn]]:
    """Which nodes take the rest, job by job and round by round: the next of a job's nodes each
    time; idle are those that take that of the turns since its own last one.
    """
    turns: list[list[TailTurn]] = [[] for _ in group.jobs]
    busy: list[tuple[int, ...]] = []  # nodes that took the rest, turn by turn
    for number in range(rounds * len(group.jobs)):
        i, nodes = number % len(group.jobs), group.pins[number % len(group.jobs)]
        if not group.frees_nodes(i):
            turns[i].append(TailTurn())
            busy.append(())
            continue
        count = min(max(1, round(aside * len(nodes))), len(nodes) - 1)
        taken = {node for some in busy[max(number - len(group.jobs) + 1, 0) :] for node in some}
        free = [n for n, node in enumerate(nodes) if node not in taken] or list(range(len(nodes)))
        first = number * count
        mine = tuple(sorted({free[(first + k) % len(free)] for k in range(count)}))
        idle = tuple(n for n in range(len(nodes)) if n not in free)
        turns[i].append(TailTurn(mine, idle))
        busy.append(tuple(nodes[n] for n in mine))
    return turns


def trace_with_tails(w: Workload, seed: int, turns: Sequence[TailTurn]) -> Trace:
    """The trace of a job that moves the tail of each of its steps, as `turns` say.

    RFabricError for a job that does more while it generates than decode: its tail is not modelled.
    """
    _refuse_what_moves_none(w)
    steps = [step_of(w, seed, n) for n in range(w.steps)]
    moved = [
        _moved(w, step, _replicas_on(w, turn.aside), _replicas_on(w, turn.idle))
        for step, turn in zip(steps, turns, strict=True)
    ]

    def lasts(_, step: Step, kind: str) -> tuple[float, float]:
        seconds, comm = phase_seconds(w, step, kind)
        return (moved[step.number].seconds if kind == "generation" else seconds), comm

    def generation(out, step: Step, before: list[int]) -> int:
        return _generation(out, step, before, moved[step.number])

    plan = plan_of_steps(w, steps, lasts)
    return trace_of_steps(w, steps, plan, seed, {"generation": generation})


def _generation(out, step: Step, before: list[int], moved: _Moved) -> int:
    """Every replica until the rest moves; those that take it; experience as responses are done."""
    out.phase(step, "generation")
    w = out.workload
    firsts = [replica[0] for replica in w.decoding]
    reached = {
        r: out.compute(firsts[r], seconds, "generate", before)
        for r, seconds in enumerate(moved.until)
        if seconds or r in moved.aside
    }
    ends: list[int] = []
    for r in reached:
        gpu = firsts[r]
        ends += out.send(flows.experience(w, r, moved.tokens[r]), "experience", [reached[r]])
        freed = out.compute(gpu, 0.0, "moved", list(reached.values()))
        if r in moved.aside:
            seconds, tokens = moved.aside[r]
            freed = out.compute(gpu, seconds, "tail", [freed])
            ends += out.send(flows.experience(w, r, tokens), "experience", [freed])
        ends.append(freed)
    return out.barrier(0, ends)


def _replicas_on(w: Workload, nodes: Collection[int]) -> list[int]:
    """The replicas whose first GPU is on some of a job's rollout nodes."""
    node = [(replica[0] - w.first_generation_gpu) // w.gpus_per_server for replica in w.decoding]
    return [r for r in range(len(node)) if node[r] in nodes]


def _refuse_what_moves_none(w: Workload) -> None:
    g = w.generation
    wide = g.tp > w.gpus_per_server or g.deals_experts or g.ffn_gpus
    if w.pipeline != "sync" or g.turns > 1 or w.prefilling or wide or w.environments.servers:
        raise RFabricError(
            f"{w.name}: tails are moved of jobs with pipeline sync whose replicas decode in one "
            "server, one turn, and read their own prompts; leave tail out, or change its recipe"
        )


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise RFabricError(f"tail: {name} {share} must lie above 0 and be 1 at most")
