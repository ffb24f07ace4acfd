"""Replicas from one decision to the next, and what they are in a plan, in a trace and in a drawing.

    before    segments whose GPUs it takes over         start -> end: it computes
    arrivals  KV of responses that come from elsewhere  start - switch -> start: its servers are cut
                                                        another way

Each round of a plan is a phase of its own: its KV is a demand with a window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...rl import flows
from ...rl.phases import Generated, Step
from ...rl.plan import Phase, Plan, phase_seconds, plan_beside
from ...rl.workload import Workload
from ...trace import Flows, Span, point_to_point
from ..base import GENERATION, Scheduled, spans_of


@dataclass(frozen=True)
class Move:
    """KV that comes from the replica of another segment."""

    segment: int
    size: float


def merged(moves: Sequence[Move]) -> tuple[Move, ...]:
    """One move a source."""
    sums: dict[int, float] = {}
    for move in moves:
        sums[move.segment] = sums.get(move.segment, 0.0) + move.size
    return tuple(Move(*item) for item in sums.items())


@dataclass(frozen=True)
class Segment:
    """A replica from one decision to the next (s from the begin of the phase): `before` are the
    segments whose GPUs it takes over.

    arrivals: responses that came from elsewhere, of 0 bytes where they are computed again; round:
    the phase they come in;
    switch: seconds it waits to be cut; tokens: of responses that end in it.
    """

    gpus: tuple[int, ...]
    cut: str
    start: float
    end: float
    before: tuple[int, ...] = ()
    arrivals: tuple[Move, ...] = ()
    round: str = ""
    switch: float = 0.0
    tokens: int = 0
    responses: int = 0
    peak_kv_tokens: int = 0


@dataclass(frozen=True, eq=False)
class Orchestrated(Generated):
    """A step's responses, generated in segments."""

    segments: tuple[Segment, ...] = ()

    @property
    def seconds(self) -> float:
        """When the last segment ends."""
        return max(s.end for s in self.segments)

    @property
    def rounds(self) -> list[str]:
        """The phases in which responses moved or servers were cut, in order."""
        return list(dict.fromkeys(s.round for s in self.segments if s.round))


def plan_of(w: Workload, steps: Sequence[Step]) -> Plan:
    """The pipeline's phases, and those in which responses move."""
    return plan_beside(w, steps, lasts, _migrations)


def lasts(w: Workload, step: Step, kind: str) -> tuple[float, float]:
    """Seconds of computing of a phase, and what its bytes add; generation ends with its last
    segment.
    """
    if kind != GENERATION:
        return phase_seconds(w, step, kind)
    made = step.generated
    moved = sum(flows.wire_seconds(w, _kv(w, made, name)) for name in made.rounds)
    ends = [s.end + flows.wire_seconds(w, _experience(w, s)) for s in made.segments]
    return made.seconds, moved + max(ends) - made.seconds


def _migrations(w: Workload, step: Step, start: float) -> Iterator[Phase]:
    """A phase a round, from the first segment that ends for it; the balancer's lasts as long as it
    moves anything.
    """
    made = step.generated
    for name in made.rounds:
        mine = [s for s in made.segments if s.round == name]
        begins = [s.start - s.switch for s in mine]
        seconds = max(s.start for s in mine) - min(begins)
        gpus = tuple(sorted({gpu for s in mine for gpu in s.gpus}))
        cards = flows.wire_seconds(w, _kv(w, made, name))
        yield Phase(name, step.number, gpus, start + min(begins), seconds, cards)


def rounds(made: Scheduled, number: int) -> list[tuple[Phase, Flows]]:
    """The phases of a step in which KV moves, and what they send."""
    step = made.steps[number]
    names = step.generated.rounds
    mine = [p for p in made.plan.phases if p.step == number and p.kind in names]
    return [(p, _kv(made.workload, step.generated, p.kind)) for p in mine]


def _kv(w: Workload, made: Orchestrated, name: str) -> Flows:
    """All the KV that moves in a round."""
    mine = [s for s in made.segments if s.round == name]
    return flows.join(
        _sent(w, made.segments[m.segment], s, m.size) for s in mine for m in s.arrivals
    )


def _sent(w: Workload, source: Segment, target: Segment, size: float) -> Flows:
    """KV from the GPUs of one replica to those of another, each an even part; none within a
    server.
    """
    n = max(len(source.gpus), len(target.gpus))
    pairs = [
        (source.gpus[i * len(source.gpus) // n], target.gpus[i * len(target.gpus) // n])
        for i in range(n)
    ]
    return point_to_point(pairs, size / n, w.gpus_per_server) if size else flows.NONE


def _experience(w: Workload, s: Segment) -> Flows:
    """What a segment's responses send to a training server; replicas take turns at them."""
    turn = (s.gpus[0] - w.first_generation_gpu) // len(s.gpus)
    return point_to_point(
        [(s.gpus[0], w.response_sink(turn))],
        float(s.tokens) * flows.EXPERIENCE_BYTES_PER_TOKEN,
        w.gpus_per_server,
    )


def lowered(out, step: Step, before: list[int]) -> int:
    """Segments as rows of computing, KV between them, experience after each."""
    segments = step.generated.segments
    place, arrived = [-1] * len(segments), list[int]()
    for i in sorted(range(len(segments)), key=lambda i: (segments[i].start, i)):
        place[i] = _segment(out, step, segments[i], place, before)
        arrived += out.send(_experience(out.workload, segments[i]), "experience", [place[i]])
    return out.barrier(0, [*place, *arrived])


def _segment(out, step: Step, s: Segment, place: list[int], before: list[int]) -> int:
    """What a segment waits for, in the phase of its round, then its computing; `place`: the rows of
    segments so far.
    """
    waits, sent = (
        [place[i] for i in (*s.before, *(m.segment for m in s.arrivals))] or list(before),
        list[int](),
    )
    out.phase(step, s.round or GENERATION)
    for m in s.arrivals:
        sent += out.send(
            _sent(out.workload, step.generated.segments[m.segment], s, m.size),
            "kv",
            [place[m.segment]],
        )
    if s.switch:
        waits = [out.compute(s.gpus[0], s.switch, "switch", waits)]
    out.phase(step, GENERATION)
    return out.compute(s.gpus[0], s.end - s.start, "generate", [*dict.fromkeys(waits + sent)])


def segment_spans(w: Workload, steps: Sequence[Step], plan: Plan) -> tuple[Span, ...]:
    """Each replica while it is cut and while it generates; training and weight sync as in any
    pipeline.
    """
    others = [p for p in plan.phases if p.kind in ("training", "weight_sync")]
    spans = list(spans_of(w, steps, Plan(tuple(others))))
    for p in plan.phases:
        if p.kind == GENERATION:
            pool = "training" if w.colocated else GENERATION
            for s in steps[p.step].generated.segments:
                if s.switch:
                    spans.append(
                        Span(pool, s.gpus, p.start + s.start - s.switch, s.switch, "switch", p.step)
                    )
                spans.append(
                    Span(
                        pool,
                        s.gpus,
                        p.start + s.start,
                        s.end - s.start,
                        f"{GENERATION} {s.cut}",
                        p.step,
                    )
                )
    return tuple(spans)
