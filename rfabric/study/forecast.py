"""When the rows of a trace would be sent under given rewires, worked out wave by wave, before
anything is run.

    wave   rows of one stage and label that begin to send at one instant, taken as a whole: they are
           done together
    link   serves the waves that are on it at once, each in proportion to its flows there, whatever
           holds them up elsewhere
    end    a wave ends when the last of its links has served it; beside others, q of whose flows
           have v seconds each on link l:

                 max over l of  sum over waves j there  q[j, l] x min(v[j, l], own v[l])

           which is its busiest link's where it is alone

    then   rows that waited for it go on: computing takes what the trace says, sending makes the
           next wave

Nothing here asks the flow-level world: no row has a rate of its own, and no instant comes from a
run. What is taken as known is which stage has which circuits lit. A rewire is asked for as its
stage begins, after the one under way and not while it would cut off somebody who sends; rows on
circuits that change stand still until it is usable (`hold`), until those in flight are done and it
is usable (`drain`), or from when it goes dark (`drop`).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..optics import Circuits, Timing
from ..optics.outlook import NEVER
from ..optics.planner import cable_mask
from ..optics.rewiring import NONE
from ..routing.rows import offsets_of, spread
from ..routing.schemes import Routing
from ..simulate.reference import SAME_INSTANT
from ..trace import Stage, Trace
from ..trace.pairs import Pairs, PairWays
from ..units import transfer_seconds


@dataclass(frozen=True, eq=False)
class StageRewire:
    """A rewire: the stage (its number) it is for, and what is lit after it."""

    stage: int
    circuits: Circuits


@dataclass(frozen=True, eq=False)
class Forecast:
    """float64[rows] s at which each row is predicted to start and to finish, inf: never;
    (requested, usable) of each turn, s.
    """

    start: np.ndarray
    finish: np.ndarray
    turns: tuple[tuple[float, float], ...]


def forecast(
    fabric: Fabric,
    trace: Trace,
    routing: Routing,
    stages: Sequence[Stage],
    lit: Circuits,
    turns: Sequence[StageRewire] = (),
    timing: Timing = Timing(),
) -> Forecast:
    """What becomes of a trace without loops, cut into `stages` (of every row that sends, the first
    it is in), from `lit` on.
    """
    return _Walk(fabric, trace, routing, stages, lit, turns, timing).run()


@dataclass(eq=False)
class _RowsTogether:
    """Rows that began together. left: bytes of each; goes: those that do not stand still.

    Of each directed link they go by: seconds that it has still to serve, as it was `asked` at last,
    and how many flows are there.
    """

    rows: np.ndarray
    left: np.ndarray
    goes: np.ndarray = field(init=False)
    links: np.ndarray = field(init=False)
    seconds: np.ndarray = field(init=False)
    asked: np.ndarray = field(init=False)
    flows: np.ndarray = field(init=False)

    @property
    def stands(self) -> bool:
        return bool((self.left[~self.goes] > 0).any())


@dataclass(eq=False)
class _TurnUnderWay:
    """A turn between request and usable; rows whose way crosses `cables`, now or `after`, stand
    from `dark` on.

    Waves that `drain` go on; it is not known when it will be usable while there are any.
    """

    number: int
    circuits: Circuits
    after: PairWays
    cables: np.ndarray
    dark: float
    usable: float
    drain: list[_RowsTogether]


class _Links:
    """All waves on all links at one instant: who is served when, and what is left a while later."""

    def __init__(self, waves: Sequence[_RowsTogether]):
        self.wave = np.repeat(np.arange(len(waves)), [len(w.links) for w in waves])
        links, self.seconds, self.flows = (
            np.concatenate([NONE, *(getattr(w, name) for w in waves)])
            for name in ("links", "seconds", "flows")
        )
        self.link = np.unique(links, return_inverse=True)[1]
        self.ends = self._ends()
        self.wave_ends = np.zeros(len(waves))
        np.maximum.at(self.wave_ends, self.wave, self.ends)

    def _ends(self) -> np.ndarray:
        """Seconds until each wave has been served by each of its links, shares by flows: who asks
        less a flow is done before.
        """
        each = self.seconds / self.flows
        order = np.lexsort((each, self.link))
        link, flows = self.link[order], self.flows[order]
        first = np.concatenate((NONE, np.flatnonzero(np.diff(link, prepend=-1))))
        before = _running(self.seconds[order], first, link)
        after = (
            np.bincount(link, flows)[link] - _running(flows, first, link) if len(link) else flows
        )
        ends = np.empty(len(link))
        ends[order] = before + each[order] * after
        return ends

    def after(self, passed: float) -> np.ndarray:
        """Seconds that each link has still to serve each wave, so many seconds later."""
        gone = self.ends <= passed
        count = int(self.link.max(initial=-1)) + 1
        rest = np.bincount(self.link[~gone], self.flows[~gone], count)
        spent = np.bincount(self.link[gone], self.seconds[gone], count)
        level = np.divide(passed - spent, rest, out=np.zeros(count), where=rest > 0)
        return np.where(gone, 0.0, np.maximum(self.seconds - self.flows * level[self.link], 0.0))


def _running(values: np.ndarray, first: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Running sums of values, from the `first` of each link on."""
    sums = np.cumsum(values)
    return sums - (sums[first] - values[first])[link] if len(sums) else sums


class _Walk:
    def __init__(
        self,
        fabric: Fabric,
        trace: Trace,
        routing: Routing,
        stages: Sequence[Stage],
        lit: Circuits,
        turns: Sequence[StageRewire],
        timing: Timing,
    ):
        self.fabric, self.trace, self.routing, self.timing = fabric, trace, routing, timing
        self.pairs, self.rate = Pairs(fabric, trace, routing), cabling_of(fabric).rate
        self.lit, self.ways = lit, PairWays(fabric, self.pairs, lit, routing)
        self.kind, self.latency = self._kinds(stages), self._latency()
        self.waiting, self.times = dict(enumerate(turns)), [(NEVER, NEVER)] * len(turns)
        self.under_way: _TurnUnderWay | None = None
        self.begun: dict[int, float] = {}  # when stages that have a turn begin
        self.opens: dict[int, list[int]] = {}  # the stages that may begin as a row is ready
        for number in {turn.stage for turn in turns}:
            for row in stages[number].entries.tolist():
                self.opens.setdefault(row, []).append(number)
        self.unmet, self.ready = np.diff(trace.after_offsets), trace.start.copy()
        self.followers = trace.followers  # sorted anew whenever one asks for it
        self.start, self.finish = (np.full(len(trace), NEVER) for _ in range(2))
        # heap: s, a number that no other has, rows that start then
        self.due: list[tuple[float, int, np.ndarray]] = []
        self.pushed = 0
        self.waves: list[_RowsTogether] = []
        self.ends = np.zeros(0)  # s at which each wave ends if nothing changes
        self.links: _Links | None = None  # as they were at `since`; None: something has changed
        self.now = self.since = 0.0

    def _kinds(self, stages: Sequence[Stage]) -> np.ndarray:
        """What rows of a wave share: stage and label."""
        stage = np.full(len(self.trace), len(stages))
        for number in reversed(range(len(stages))):
            stage[stages[number].rows] = number
        return stage * len(self.trace.labels) + self.trace.label

    def _latency(self) -> np.ndarray:
        """Seconds that the last byte of each row is on its way, in all repetitions of it."""
        seconds, sends = np.zeros(len(self.trace)), np.flatnonzero(self.trace.size > 0)
        if not len(sends):
            return seconds
        delay = np.append(np.repeat([link.delay for link in self.fabric.links], 2), 0.0)
        offsets, links = self.ways.of(sends)
        parts = np.diff(np.concatenate(([0.0], np.cumsum(delay[links])))[offsets])
        seconds[sends] = np.maximum.reduceat(parts, offsets_of(self.pairs.parts(sends)[0])[:-1])
        return seconds * self.trace.origin.times if self.trace.origin else seconds

    def run(self) -> Forecast:
        self._met(np.flatnonzero(self.unmet == 0))
        self._look()
        while (instant := self._next()) < NEVER:
            self.now = instant
            self._end()
            self._turned()
            self._begin()
            self._ask()
            if self.links is None:
                self._look()
        return Forecast(self.start, self.finish, tuple(self.times))

    # --- time -------------------------------------------------------------------------------------

    def _next(self) -> float:
        going = self.under_way
        return min(
            [
                going.usable if going else NEVER,
                *(one[0] for one in self.due[:1]),
                *self.ends.tolist(),
            ]
        )

    def _is_due(self, time: float) -> bool:
        return time <= self.now * (1 + SAME_INSTANT)

    def _wake(self, time: float, rows: np.ndarray = NONE) -> None:
        heapq.heappush(self.due, (time, self.pushed, rows))
        self.pushed += 1

    def _look(self) -> None:
        """All links anew, as waves or their ways have changed."""
        self.links, self.since = _Links(self.waves), self.now
        self.ends = np.where([w.stands for w in self.waves], NEVER, self.now + self.links.wave_ends)

    def _serve(self) -> None:
        """What is left at this instant, before anything changes."""
        if self.links is None:
            return
        left = self.links.after(self.now - self.since)
        for wave, seconds in zip(
            self.waves, np.split(left, np.cumsum([len(w.links) for w in self.waves])), strict=False
        ):
            wave.seconds = seconds
        self.links = None

    # --- rows -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Rows that are due: computing is done at once (its gap is over), sending makes waves."""
        while self.due and self._is_due(self.due[0][0]):
            some = []
            while self.due and self._is_due(self.due[0][0]):
                some.append(heapq.heappop(self.due)[2])
            rows = np.concatenate(some)
            self.start[rows] = self.now
            sends = self.trace.size[rows] > 0
            self._send(np.sort(rows[sends]))
            self._done(rows[~sends], np.full((~sends).sum(), self.now))

    def _send(self, rows: np.ndarray) -> None:
        for kind in np.unique(self.kind[rows]):
            self._serve()
            mine = rows[self.kind[rows] == kind]
            self.waves.append(_RowsTogether(mine, self.trace.size[mine].astype(float)))
            self._load(self.waves[-1])

    def _end(self) -> None:
        ended = [wave for wave, end in zip(self.waves, self.ends, strict=True) if self._is_due(end)]
        if not ended:
            return
        self._serve()
        self.waves = [wave for wave in self.waves if wave not in ended]
        for wave in ended:
            self._done(wave.rows, self.now + self.latency[wave.rows])
        going = self.under_way
        if going and going.drain:
            going.drain = [wave for wave in going.drain if wave not in ended]
            if not going.drain:
                self._will_be_usable(going)

    def _done(self, rows: np.ndarray, times: np.ndarray) -> None:
        self.finish[rows] = times
        offsets, followers = self.followers
        counts = offsets[rows + 1] - offsets[rows]
        met = followers[spread(offsets[rows], counts)]
        np.maximum.at(self.ready, met, np.repeat(times, counts))
        np.subtract.at(self.unmet, met, 1)
        met = np.unique(met)
        self._met(met[self.unmet[met] == 0])

    def _met(self, rows: np.ndarray) -> None:
        """All that these rows wait for is known."""
        ready = self.ready[rows]
        begin, which = np.unique(
            np.maximum(self.trace.start[rows], ready + self.trace.gap[rows]), return_inverse=True
        )
        order = np.argsort(which, kind="stable")
        for time, some in zip(
            begin.tolist(), np.split(rows[order], np.cumsum(np.bincount(which))), strict=False
        ):
            self._wake(time, some)
        for row, time in zip(rows.tolist(), ready.tolist(), strict=True) if self.opens else ():
            for number in self.opens.get(row, ()):
                self.begun.setdefault(number, time)
                self.begun[number] = min(self.begun[number], time)
                self._wake(time)

    # --- ways -------------------------------------------------------------------------------------

    def _load(self, wave: _RowsTogether) -> None:
        """Lay what is left of a wave on its links."""
        wave.goes = ~self._stand(wave)
        rows, left = wave.rows[wave.goes], wave.left[wave.goes]
        load = self.ways.load(rows, left)
        # a part counts as so much of a flow
        share = self.pairs.share[self.pairs.parts(rows)[1]] * (load.size > 0)
        sizes, flows = (np.repeat(some, load.count) for some in (load.size, share))
        links = load.links[spread(load.first, load.count)]
        asked = transfer_seconds(np.bincount(links, sizes, minlength=len(self.rate)), self.rate)
        wave.links = np.flatnonzero(asked)
        wave.seconds = wave.asked = asked[wave.links]
        wave.flows = np.bincount(links, flows, minlength=len(self.rate))[wave.links]

    def _stand(self, wave: _RowsTogether) -> np.ndarray:
        """Which rows of a wave stand still, as a mask: for the rewire, or without a way."""
        going, stand = self.under_way, self.ways.lost(wave.rows)
        if going and going.dark <= self.now and wave not in going.drain:
            return stand | self._concerned(going, wave)
        return stand

    def _concerned(self, going: _TurnUnderWay, wave: _RowsTogether) -> np.ndarray:
        return self.ways.crossing(wave.rows, going.cables) | going.after.crossing(
            wave.rows, going.cables
        )

    def _unload(self, wave: _RowsTogether) -> None:
        """Take what is left off the links again: of each row as much as where it is served last."""
        rows = wave.rows[wave.goes]
        if not len(rows):
            return
        share = np.zeros(len(self.rate))
        share[wave.links] = wave.seconds / wave.asked
        offsets, links = self.ways.of(rows)
        parts = np.maximum.reduceat(share[links], offsets[:-1])
        wave.left[wave.goes] *= np.maximum.reduceat(
            parts, offsets_of(self.pairs.parts(rows)[0])[:-1]
        )

    # --- rewires ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        """The first of the turns whose stage has begun is asked for, unless it cuts off somebody
        who sends.
        """
        if self.under_way:
            return
        for number, turn in self.waiting.items():
            if self._is_due(self.begun.get(turn.stage, NEVER)):
                after = PairWays(self.fabric, self.pairs, turn.circuits, self.routing)
                if not self._cut_off(after):
                    self._request(number, turn.circuits, after)
                    return

    def _cut_off(self, after: PairWays) -> bool:
        """Whether somebody who sends has a way now and none by `after`."""
        return any(
            (after.lost(w.rows) & ~self.ways.lost(w.rows) & (w.left > 0)).any() for w in self.waves
        )

    def _request(self, number: int, circuits: Circuits, after: PairWays) -> None:
        del self.waiting[number]
        drops = self.timing.in_flight == "drop"
        cables = cable_mask(self.fabric, self.lit, circuits)
        going = _TurnUnderWay(
            number, circuits, after, cables, self.now + drops * self.timing.control, NEVER, []
        )
        if self.timing.in_flight == "drain":  # what begins at this instant has not left yet
            flying = (w for w in self.waves if self.start[w.rows[0]] < self.now)
            going.drain = [
                w
                for w in flying
                if (self.ways.crossing(w.rows, cables) & ~self.ways.lost(w.rows)).any()
            ]
        self.times[number] = self.now, NEVER
        if not going.drain:
            self._will_be_usable(going)
        self._take(self.ways, going)
        if drops:
            self._wake(going.dark)

    def _will_be_usable(self, going: _TurnUnderWay) -> None:
        going.usable = self.now + self.timing.takes(self.fabric)
        self.times[going.number] = self.times[going.number][0], going.usable

    def _turned(self) -> None:
        """The rewire under way goes dark, or is usable."""
        going = self.under_way
        if going and self._is_due(going.usable):
            self.lit = going.circuits
            self._take(going.after, None)
        elif going and going.dark == self.now:
            self._take(self.ways, going)

    def _take(self, ways: PairWays, going: _TurnUnderWay | None) -> None:
        """From now on all go by these ways, under this rewire."""
        self._serve()
        for wave in self.waves:
            self._unload(wave)
        self.ways, self.under_way = ways, going
        for wave in self.waves:
            self._load(wave)
