"""How far a folded run may be from one that plays every repetition: seconds of exposed
communication, at most.

A loop that shares no cable with anybody takes as long folded as in full (`Trace.folded`). What
differs is competition: a flow that meets a turn sent once, long, would have met many short ones
with computing between. Max-min fair sharing bounds what two that compete take from each other.
While a flow f waits behind others, its bottleneck cable carries at most as much of each as of f:

    f is delayed by others of which n cross one cable with f, with B bytes in all, by at most min(n
    x bytes of f, B) / rate

Rows that start together are one batch, whose competition among itself is the same in both runs; the
blocks of a loop that fold several repetitions are one too, while a repetition that stands by itself
plays as in full. A batch is delayed by each other at the busiest cable they share, by all others in
turn. So each row's seconds in the full run lie within a delay of its seconds in the folded one, and
the longest path through the trace, with all delays and with none of what was seen, bounds the run
from both sides: what the run exposes, beside what it computes alone, and by phase. It is done
segment by segment: a row that all others come before or after shifts
what follows as a whole. Segments in which no loop meets anybody are exact. Who meets whom is read
from the run, widened by the delays themselves until nobody new is met. No phase of any run is
shorter than computing and network cards allow, which bounds the rest.

The bound is wide: it takes every meeting as if nothing of it had been seen in the folded run, where
flows meet as well and take nearly as much from each other. In 22 runs (experts, wide tensors,
sharded parameters, pipelines; fat-tree 1:1 and 2:1, rfabric; `static`) exposed communication was
1.2 % from playing all at most, but 4.5 % where wide tensors met sharded parameters. Where the bound
is no less than what is exposed, it says nothing, and the note says so.

Circuits and ways are taken as they were in the folded run; a policy that decides otherwise, as it
sees other times, is beyond it.
"""

from dataclasses import dataclass

import numpy as np

from ..fabric.cabling import cabling_of
from ..report.result import Folding, PhaseTime, Result, card_seconds, ends_without, phase_floors
from ..routing.rows import begins, in_order, mixed, numbered, spread
from ..routing.schemes import SPLIT
from ..trace import PhaseKey, Trace
from ..trace.pairs import KnownWays
from ..units import transfer_seconds

MOST_PAIRS = 1 << 23  # batches that share a cable, two by two: some 0.8 GB
Times = tuple[np.ndarray, np.ndarray]  # s at which each row is ready, and done


class _TooMany(Exception):
    """More pairs than are looked at."""


def error_bound(
    result: Result, known: KnownWays
) -> tuple[dict[PhaseKey, float] | None, float | None]:
    """s by which exposed communication of each phase may differ from playing all, and that of the
    run; phases that cannot differ are left out.

    None where more than MOST_PAIRS batches meet: the bound is not known.
    """
    try:
        return _bound(result, known)
    except _TooMany:
        return None, None


def folding_of(result: Result, known: KnownWays) -> Folding:
    """What was folded in the trace of `result`, and how far the result may be off for it."""
    looped = result.trace.origin.looped
    loops, kinds = looped.loops, looped.communication()
    names = dict.fromkeys(
        f"{phase} {label}".strip()
        for (_, phase, label), rows in kinds.items()
        if looped.loop[rows].max() >= 0
    )
    collectives = sum(len(loop.between) for loop in loops)
    repetitions = sum(loop.repeat * len(loop.between) for loop in loops)
    return Folding(collectives, repetitions, tuple(names), *error_bound(result, known))


def _bound(result: Result, known: KnownWays) -> tuple[dict[PhaseKey, float], float]:
    trace, segments = result.trace, _Segments.of(result.trace)
    seconds = result.row_seconds
    meets = _meetings(result, known, segments)
    delay, sides, took = np.zeros(len(trace)), [(result.ready, result.finish)] * 2, [seconds] * 2
    while ((wider := meets.delays(*sides)) > delay).any():
        delay = wider
        took = [np.maximum(seconds + sign * delay, 0.0) for sign in (-1.0, 1.0)]
        sides = [trace.times(each) for each in took]
    floors = phase_floors(result.fabric, trace)
    without, off = [ends_without(trace, each) for each in took], {}
    for phase in result.phases:
        rows = trace.rows(phase.key)
        if _meets(segments, rows, delay):
            alone = [ends[phase.key] for ends in without]
            off[phase.key] = _off(phase, segments, rows, alone, *sides, floors[phase.key])
    soonest = trace.times(card_seconds(result.fabric, trace))[1].max(initial=0.0)
    early, late = (float(finish.max(initial=0.0)) for _, finish in sides)
    whole = max(late - result.step_seconds, result.step_seconds - max(early, soonest))
    return {key: most for key, most in off.items() if most > 0}, whole * bool(delay.any())


def _begin(trace: Trace, ready: np.ndarray) -> np.ndarray:
    return np.maximum(trace.start, ready + trace.gap)


def _meets(segments: "_Segments", rows: np.ndarray, delay: np.ndarray) -> bool:
    """Whether something is delayed in the segments of `rows`, or between."""
    segment = segments.of_row[rows]
    return bool(
        delay[(segments.of_row >= segment.min()) & (segments.of_row <= segment.max())].any()
    )


def _off(
    phase: PhaseTime,
    segments: "_Segments",
    rows: np.ndarray,
    alone: list[float],
    early: Times,
    late: Times,
    floor: float,
) -> float:
    """s by which more or less may be exposed of the phase of `rows`, which are ready and done
    between `early` and `late`, and which would end between the two of `alone` without its bytes.

    floor: s that the phase takes at least in any run.
    """
    segment = segments.of_row[rows]
    first = rows[segment == segment.min()]
    begin = [segments.begin(done)[segment.min()] for _, done in (early, late)]
    since = early[0][first].min() - begin[0]
    until = [
        done[rows].max() - since for (_, done), since in zip((early, late), begin, strict=True)
    ]
    ends = [end - since for end, since in zip(alone, begin, strict=True)]
    least = max(until[0] - ends[1], floor - (ends[1] - since), 0.0)
    return float(max(until[1] - ends[0] - phase.exposed, phase.exposed - least))


@dataclass(frozen=True, eq=False)
class _Segments:
    """A trace cut at the rows that all others come before or after.

    of_row: int64[n], the segment of each row; cuts: the rows that end all segments but the last.
    Later rows wait for a cut in any run.
    """

    of_row: np.ndarray
    cuts: np.ndarray

    @classmethod
    def of(cls, trace: Trace) -> "_Segments":
        n = len(trace)
        if trace.start.any():  # what starts by the clock follows no cut
            return cls(np.zeros(n, np.int64), np.zeros(0, np.int64))
        order = np.concatenate(trace.levels) if not trace.in_order else np.arange(n)
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        # places of the last that a row waits for, the first that follows
        latest, soonest = np.full(n, -1), np.full(n, n)
        waiting, awaited = place[trace.owner], place[trace.after]
        np.maximum.at(latest, waiting, awaited)
        np.minimum.at(soonest, awaited, waiting)
        # all later rows wait for a cut, perhaps by others, as it does for all earlier ones
        after = np.append(np.minimum.accumulate(latest[::-1])[::-1][1:], n)
        before = np.append(-1, np.maximum.accumulate(soonest)[:-1])
        cut = (after >= np.arange(n)) & (before <= np.arange(n))
        cut[-1:] = False
        of_row = np.empty(n, np.int64)
        of_row[order] = np.cumsum(cut) - cut
        return cls(of_row, order[cut])

    def begin(self, finish: np.ndarray) -> np.ndarray:
        """When each segment begins, by the finish of all rows."""
        return np.append(0.0, finish[self.cuts])


@dataclass(frozen=True, eq=False)
class _Meetings:
    """Pairs of batches that share a cable: batch `one` is delayed by `other` for `seconds`, where
    they meet.

    segment: of each batch; batch: of each row, -1 where it sends nothing; spans: as in
    `trace.Origin`, of the first batches.
    """

    trace: Trace
    segments: _Segments
    batch: np.ndarray
    segment: np.ndarray
    spans: np.ndarray
    one: np.ndarray
    other: np.ndarray
    seconds: np.ndarray

    def delays(self, early: Times, late: Times) -> np.ndarray:
        """s that each row may be off, where rows are ready and done between these times; a loop as
        a whole, at its end.
        """
        first, last = self._first(*early), self._last(late[1])
        meet = (first[self.one] < last[self.other]) & (first[self.other] < last[self.one])
        one, other, seconds = self.one[meet], self.other[meet], self.seconds[meet]
        folded = np.zeros(len(self.segments.cuts) + 1, bool)
        folded[self.segment[one[(one < len(self.spans)) | (other < len(self.spans))]]] = True
        delay = np.bincount(one, seconds, minlength=len(self.segment) + 1) * np.append(
            folded[self.segment], False
        )
        row_delay = np.where(self.batch >= len(self.spans), delay[self.batch], 0.0)
        row_delay[self.spans[:, 1]] = delay[: len(self.spans)]
        return row_delay

    def _first(self, ready: np.ndarray, finish: np.ndarray) -> np.ndarray:
        """When the first of each batch may begin, s after its segment."""
        begin, rows = _begin(self.trace, ready), np.flatnonzero(self.batch >= 0)
        first = np.full(len(self.segment), np.inf)
        np.minimum.at(first, self.batch[rows], begin[rows])
        first[: len(self.spans)] = finish[self.spans[:, 0]]
        return first - self.segments.begin(finish)[self.segment]

    def _last(self, finish: np.ndarray) -> np.ndarray:
        rows = np.flatnonzero(self.batch >= 0)
        last = np.zeros(len(self.segment))
        np.maximum.at(last, self.batch[rows], finish[rows])
        last[: len(self.spans)] = finish[self.spans[:, 1]]
        return last - self.segments.begin(finish)[self.segment]


def _meetings(result: Result, known: KnownWays, segments: _Segments) -> _Meetings:
    """Who could take something from whom, in segments with a loop and somebody else."""
    trace, spans = result.trace, result.trace.origin.spans
    batch = _batches(trace)
    segment = np.zeros(int(batch.max(initial=-1)) + 1, np.int64)
    segment[batch[batch >= 0]] = segments.of_row[batch >= 0]
    each, with_loops = (
        np.bincount(some, minlength=len(segments.cuts) + 1)
        for some in (segment, segment[: len(spans)])
    )
    rows = np.flatnonzero((batch >= 0) & ((each > 1) & (with_loops > 0))[segments.of_row])
    rates = cabling_of(result.fabric).rate
    shared = _shared(result, known, rows, batch, segment, len(spans))
    one, other, seconds = _taken(shared, len(segment), rates)
    return _Meetings(trace, segments, batch, segment, spans, one, other, seconds)


def _batches(trace: Trace) -> np.ndarray:
    """The batch of each row that sends, -1 of others: the folded part of its loop, or rows that
    wait for the same.
    """
    batch = np.where(trace.size > 0, trace.origin.folded, -1)
    alone = np.flatnonzero((trace.size > 0) & (batch < 0))
    sums = np.concatenate(
        ([np.uint64(0)], np.cumsum(mixed(trace.after.astype(np.uint64)), dtype=np.uint64))
    )
    waits = sums[trace.after_offsets[1:]] - sums[trace.after_offsets[:-1]]
    alike = mixed(
        waits[alone]
        ^ mixed(trace.start[alone].view(np.uint64) ^ mixed(trace.gap[alone].view(np.uint64)))
    )
    batch[alone] = len(trace.origin.spans) + numbered(alike)[1]
    return batch


def _crossed(
    result: Result, known: KnownWays, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(row, directed link, share of its bytes there) of the ways of `rows`, by the circuits in
    force as each began; no shares where each row takes one way: there may be millions.
    """
    pairs, split = known.pairs, known.routing.scheme == SPLIT
    epoch = np.searchsorted(
        [time for time, _ in result.epochs[1:]], result.start[rows], side="right"
    )
    crossings = [(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))]
    for number in np.unique(epoch).tolist():
        mine = rows[epoch == number]
        counts, sent = pairs.parts(mine)
        offsets, links = known.under(result.epochs[number][1]).of(mine)
        hops = np.diff(offsets)
        # else no way as it began: it meets nobody until circuits lead on
        lit = links < 2 * len(result.fabric.links)
        row = np.repeat(np.repeat(mine.astype(np.int32), counts), hops)[lit]
        share = np.repeat(pairs.share[sent], hops)[lit] if split else np.zeros(0)
        crossings.append((row, links[lit], share))
    row, link, share = map(np.concatenate, zip(*crossings, strict=True))
    return _together(row, link, share) if split else (row, link, None)


def _together(
    row: np.ndarray, link: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parts of one row on one link as one, their shares added up."""
    order = in_order(row, link)
    first = np.flatnonzero(begins(row[order], link[order]))
    return (
        row[order][first],
        link[order][first],
        np.add.reduceat(share[order], first) if len(first) else share,
    )


@dataclass(frozen=True, eq=False)
class _Shared:
    """What each batch (`own`) sends on a directed link of its segment (`place`: segment x links +
    link, ascending): int64[n].

    count: its flows there, a part of one for so much; load: bytes; most: bytes of its largest flow,
    of a loop all that waits in it: float64[n].
    """

    place: np.ndarray
    own: np.ndarray
    count: np.ndarray
    load: np.ndarray
    most: np.ndarray


def _shared(
    result: Result, known: KnownWays, rows: np.ndarray, batch: np.ndarray, segment: np.ndarray,
    loops: int,
) -> _Shared:  # fmt: skip
    """What the batches of `rows` send on each link."""
    row, link, share = _crossed(result, known, rows)
    batches, mine = len(segment), batch[row]
    place = segment[mine] * (2 * len(result.fabric.links)) + link  # links of one segment
    codes = place * batches + mine
    del place, link, mine  # large, as are those below
    keys, which = numbered(codes)
    del codes
    sizes = result.trace.size[row]
    del row
    every = np.bincount(which, sizes)
    load = every if share is None else np.bincount(which, share * sizes)
    count = np.bincount(which, share)
    # what waits in a loop is all of it, turn by turn
    most, looped = every.copy(), keys % batches < loops
    most[~looped] = 0.0
    alone = np.flatnonzero(~looped[which])
    np.maximum.at(most, which[alone], sizes[alone])
    return _Shared(keys // batches, keys % batches, count, load, most)


def _taken(
    shared: _Shared, batches: int, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(one, other, seconds): what batch `other` takes from batch `one` at the busiest link of both.

    A row of which a share is on a link counts there as so much of a flow: what shares a cable does
    so by weight.
    """
    first = np.flatnonzero(begins(shared.place))
    many = np.diff(first, append=len(shared.place))
    if (many**2).sum() > MOST_PAIRS:
        raise _TooMany
    partners = np.repeat(many, many)
    a, b = np.repeat(np.arange(len(shared.own)), partners), spread(np.repeat(first, many), partners)
    others = shared.own[a] != shared.own[b]
    a, b = a[others], b[others]
    taken = np.minimum(shared.count[b] * shared.most[a], shared.load[b])
    seconds = transfer_seconds(taken, rates[shared.place[a] % len(rates)])
    code = shared.own[a] * batches + shared.own[b]
    del a, b, others, taken
    order = in_order(code)
    code = code[order]
    first = np.flatnonzero(begins(code))
    worst = np.maximum.reduceat(seconds[order], first) if len(first) else np.zeros(0)
    return code[first] // batches, code[first] % batches, worst
