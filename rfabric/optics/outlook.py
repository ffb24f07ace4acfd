"""The outlook of stages that send at once under a set of circuits: how long each one takes, and
what a rewire would change.

    seconds[i, l]  what stage i needs of directed link l: its bytes there over the link's rate
    alone          the time of its busiest link, or `least`, whichever is longer
    ends           the same beside the other stages. On each link their needs add up, each counted
                   at most as high as stage i's own: links are shared equally, so a stage that
                   needs less is done before

Stages to come count as well (`Prospect`), with the time at which they begin (`Begins`). A stage
that wants to send over a dark circuit waits for it. By circuits that are lit in advance it gains
only what a rewire of its own would have cost it.

An outlook is made either of rack demands, split evenly over equal paths (what a controller knows),
or of the paths that routing chose for every flow (what a world knows).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept_last
from ..routing import routes_of
from ..routing.inner import asked, loops
from ..routing.rows import in_order, spread
from ..units import transfer_seconds
from .circuits import Circuits, Demand

NEVER = float("inf")
ROUNDING = 1e-6  # s: more than the error of any sum of seconds
SLIGHT = 0.01  # of the total gain: if the last stage ends later by less than this, it still counts
KEPT_DEMANDS = 8  # of which is kept, for each set of circuits, what is foreseen


@dataclass(frozen=True, eq=False)
class Load:
    """What a stage still sends, flow by flow: its path (`count` of the directed `links`, from
    `first` on), its bytes and its `kind`.

    Flows that share a path share its links. Kinds (labels of collectives, wave by wave) follow one
    another, so their times add up. A flow with a link number beyond the fabric's has no path. A
    flow of several paths has one entry for each.
    """

    first: np.ndarray
    count: np.ndarray
    links: np.ndarray
    size: np.ndarray
    kind: np.ndarray


@dataclass(frozen=True, eq=False)
class Outlook:
    """float64 `seconds[stages, directed links]` and `least[stages]`, in s; inf for a stage without
    a path.
    """

    seconds: np.ndarray
    least: np.ndarray

    @classmethod
    def of_racks(cls, fabric: Fabric, circuits: Circuits, demands: Sequence[Demand]) -> "Outlook":
        """From rack to rack, every pair split evenly over its cheapest paths."""
        routes, rate = routes_of(fabric, circuits), cabling_of(fabric).rate
        seconds, least = np.zeros((len(demands), len(rate))), np.zeros(len(demands))
        for i, demand in enumerate(demands):
            load = routes.ways.loads(demand.sent)
            if np.isinf(load[:1]).any():  # as all are then
                least[i] = NEVER
                continue
            seconds[i] = transfer_seconds(np.append(load, 0.0)[routes.lights.path_of], rate)
            least[i] = demand.floor
        return cls(seconds, least)

    @classmethod
    def of_flows(cls, fabric: Fabric, loads: Sequence[Load]) -> "Outlook":
        """On the path of each flow; kinds that follow one another in a stage add up."""
        rate = cabling_of(fabric).rate
        seconds, least = np.zeros((len(loads), len(rate))), np.zeros(len(loads))
        for i, load in enumerate(loads):
            least[i] = _ask(load, rate, seconds[i])
        return cls(seconds, least)

    @cached_property
    def cables(self) -> np.ndarray:
        """bool[stages, cables]: which cables each stage sends over, in either direction."""
        sends = self.seconds > 0
        return sends[:, ::2] | sends[:, 1::2]

    @property
    def alone(self) -> np.ndarray:
        """Seconds of each stage without the others."""
        return np.maximum(self.seconds.max(axis=1, initial=0.0), self.least)

    @property
    def ends(self) -> np.ndarray:
        """Seconds of each stage when all send at once."""
        if len(self.least) == 1:
            return self.alone
        return self._beside(np.ones((len(self.least), len(self.least))))

    def ends_from(self, begins: np.ndarray) -> np.ndarray:
        """Seconds from now until each stage ends, if it begins after `begins` s: float64[stages].

        Stages share links while both send. A stage that begins later meets only what is left of an
        earlier one by then, where each sends evenly until its end.
        """
        ends = begins + self.ends
        if (begins == begins[:1]).all():
            return ends
        for _ in begins:
            before, ends = ends, begins + self._beside(_left(begins, ends))
            if np.array_equal(before, ends):
                break
        return ends

    def _beside(self, left: np.ndarray) -> np.ndarray:
        """Seconds of each stage beside the others. `left[i, j]`: the share that i still has to send
        when j begins.
        """
        seconds = self.least.copy()
        for i, own in enumerate(self.seconds):
            used = own > 0
            others, mine = self.seconds[:, used] * left[:, i, None], own[used] * left[i, :, None]
            seconds[i] = max(seconds[i], np.minimum(others, mine).sum(axis=0).max(initial=0.0))
        return seconds


def _ask(load: Load, rate: np.ndarray, seconds: np.ndarray) -> float:
    """Add to `seconds` what a load needs of each link. Returns the seconds of its kinds one after
    another; inf if a flow has no path.
    """
    order = in_order(load.kind)
    if loops():
        columns = load.first, load.count, load.size, load.kind
        return asked(*(column[order] for column in columns), load.links, rate, seconds)
    if (load.links[spread(load.first, load.count)] >= len(rate)).any():
        return NEVER
    least = 0.0
    for some in np.split(order, np.flatnonzero(np.diff(load.kind[order])) + 1):
        links = load.links[spread(load.first[some], load.count[some])]
        sent = np.bincount(links, np.repeat(load.size[some], load.count[some]), len(rate))
        needs = transfer_seconds(sent, rate)
        seconds += needs
        least += needs.max(initial=0.0)
    return least


@dataclass(frozen=True, eq=False)
class Begins:
    """When stages send their first byte. Stages stand in one line: first those that send or ask,
    then those to come.

    now: float64, s from now, of those that send or ask. Of each stage to come, follows: the places
    in line of the stages it waits for; ahead: s from the end of all of these (from now, if there
    are none) until it begins; lead: s from then until its first byte.
    """

    now: np.ndarray
    ahead: np.ndarray
    lead: np.ndarray
    follows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, demands: Sequence[Demand], coming: Sequence[Demand]) -> "Begins":
        """The line of `demands`, then of what is `coming`."""
        places = range(len(demands), len(demands) + len(coming))
        follows = tuple(
            tuple(i - k for k in d.follows if k <= i) for i, d in zip(places, coming, strict=True)
        )
        ahead, lead = ([getattr(d, name) for d in coming] for name in ("ahead", "lead"))
        return cls(np.array([d.lead for d in demands]), np.array(ahead), np.array(lead), follows)

    def ends(
        self, now: np.ndarray, seconds: np.ndarray, waits: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """When each stage to come has sent everything: float64[coming], s from now.

        now: when those in flight end; seconds: how long each stage to come sends; waits: before
        this it cannot send. All in s.
        """
        line, waits = now.tolist(), np.broadcast_to(waits, seconds.shape)
        for ahead, lead, before, takes, wait in zip(
            *map(list, (self.ahead, self.lead, self.follows, seconds, waits)), strict=True
        ):
            begin = ahead + max((line[i] for i in before), default=0.0)
            line.append(max(begin + lead, wait) + takes)
        return np.array(line[len(now) :])

    def waited(self, line: np.ndarray) -> np.ndarray:
        """When everything that each stage to come waits for has ended: float64[coming]. `line`: s
        until each stage in line ends.
        """
        return np.array([max((line[i] for i in before), default=0.0) for before in self.follows])


@dataclass(frozen=True, eq=False)
class Foresight:
    """Of outlooks what counts while their stages are still to come, so little that it may be kept:
    float64 `alone[stages]` and bool `cables[stages, cables]`.
    """

    alone: np.ndarray
    cables: np.ndarray

    @classmethod
    def of_racks(cls, fabric: Fabric, circuits: Circuits, demand: Demand) -> "Foresight":
        """Of one demand what `Outlook.of_racks` would say, without seconds of each link: a path is
        busy for as long as its slowest link.
        """
        routes = routes_of(fabric, circuits)
        load = routes.ways.loads(demand.sent)
        if np.isinf(load[:1]).any():  # as all are then
            return cls(np.array([NEVER]), np.zeros((1, len(fabric.links)), bool))
        busiest = transfer_seconds(load, routes.lights.rate).max(initial=0.0)
        sends = np.append(load > 0, False)[routes.lights.path_of]
        return cls(np.array([max(busiest, demand.floor)]), (sends[::2] | sends[1::2])[None])

    @classmethod
    def of(cls, some: Sequence["Outlook | Foresight"]) -> "Foresight":
        """All their stages in line."""
        alone = np.concatenate([np.zeros(0), *(one.alone for one in some)])
        return cls(alone, np.array([row for one in some for row in one.cables], bool))


def _foreseen(fabric: Fabric, circuits: Circuits, demand: Demand) -> Foresight:
    """Of one demand to come; the last few are kept, as the same stages come nearer and nearer."""
    known = routes_of(fabric, circuits).kept
    question = demand.floor, *(column.tobytes() for column in demand.sent)
    answer = partial(Foresight.of_racks, fabric, circuits, demand)
    return kept_last(known, question, answer, KEPT_DEMANDS)


@dataclass(frozen=True, eq=False)
class Prospect:
    """Under one set of circuits, the outlook of what sends or begins `now` and what is foreseen of
    what comes `later`. `foretell` works out the latter on demand, because often nobody needs it.
    """

    now: Outlook
    foretell: Callable[[], Foresight]

    @cached_property
    def later(self) -> Foresight:
        """What is foreseen of what comes."""
        return self.foretell()

    @classmethod
    def of_racks(
        cls, fabric: Fabric, circuits: Circuits, demands: Sequence[Demand], coming: Sequence[Demand]
    ) -> "Prospect":
        """Of what racks send now, and of what they are going to send (`Outlook.of_racks`)."""
        now = Outlook.of_racks(fabric, circuits, demands)
        return cls(now, lambda: Foresight.of([_foreseen(fabric, circuits, d) for d in coming]))

    @classmethod
    def of_flows(
        cls, fabric: Fabric, loads: Sequence[Load], coming: Callable[[], Sequence[Load]]
    ) -> "Prospect":
        """Of the loads of flows now, and of those to come (`Outlook.of_flows`)."""
        now = Outlook.of_flows(fabric, loads)
        return cls(now, lambda: Foresight.of([Outlook.of_flows(fabric, coming())]))


@dataclass(frozen=True)
class Gain:
    """How many seconds sooner everything in flight and to come ends, summed over stages; `later`:
    the part of stages to come.
    """

    seconds: float
    later: float = 0.0


def ends_after(
    before: Outlook, after: Outlook, leads: np.ndarray, cables: np.ndarray, dark: float
) -> np.ndarray:
    """Seconds from now until each stage ends, if the cables of the mask are dark for `dark` s and
    `after` holds from then on: float64[stages].

    `leads`: when each begins to send. Stages whose flows cross a cable that goes dark stand still
    meanwhile; others go on.
    """
    waits = dark * (_crosses(before, cables) | _crosses(after, cables))
    return after.ends_from(np.maximum(leads, waits))


def gained(now: np.ndarray, then: np.ndarray) -> float:
    """How many seconds sooner stages that send at once end, summed, if they end after `then`
    instead of `now` seconds.

    If the last of them ends more than slightly later, nothing is gained, and its delay is returned
    (negative). -inf if a stage has no path then, inf if one has none now.
    """
    if np.isinf(then).any():
        return -NEVER
    if np.isinf(now).any():
        return NEVER
    return _unless_last(
        float((now - then).sum()), float(now.max(initial=0.0) - then.max(initial=0.0))
    )


def _unless_last(total: float, last: float) -> float:
    """The gain of all, `total` s, unless the last of them loses: its gain is `last` s, and a delay
    of the last delays all.
    """
    return total if last >= -SLIGHT * total else min(total, last)


def gain(
    before: Prospect,
    after: Prospect,
    begins: Begins,
    cables: np.ndarray,
    dark: float,
    least: float = -NEVER,
) -> Gain:
    """What is `gained` if the cables of the mask go dark for `dark` s and `after` holds from then
    on.

    A stage to come counts with the time it adds after the stages it follows, and gains no more than
    is at stake for it. If the sum cannot reach `least` s, it is not worked out: -inf.
    """
    now, then = (
        before.now.ends_from(begins.now),
        ends_after(before.now, after.now, begins.now, cables, dark),
    )
    soon = gained(now, then)
    if np.isinf(soon) or not len(begins.lead):
        return Gain(soon)
    stake = np.maximum(dark - begins.lead, 0.0)
    if float((now - then).sum() + stake.sum()) + ROUNDING < least:
        return Gain(-NEVER)
    waits = dark * (_crosses(before.later, cables) | _crosses(after.later, cables))
    seconds = _suited(before.later.alone, after.later.alone, stake)
    lines = [
        np.concatenate((ends, begins.ends(ends, takes, wait)))
        for ends, takes, wait in zip((now, then), seconds, (0.0, waits), strict=True)
    ]
    added = [line[len(now) :] - begins.waited(line) for line in lines]
    later = float((added[0] - added[1]).sum())
    total, last = float((now - then).sum()) + later, float(lines[0].max() - lines[1].max())
    return Gain(_unless_last(total, last), later)


def gain_later(before: Outlook, after: Outlook, leads: np.ndarray, dark: float) -> float:
    """Seconds that stages to come, one after another, gain by having `after` as they begin."""
    now, then = _suited(before.alone, after.alone, np.maximum(dark - leads, 0.0))
    return float((now - then).sum())


def _suited(now: np.ndarray, then: np.ndarray, stake: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of stages to come under either set of circuits, where each stage may have the set
    that suits it at the price of `stake` s.

    A rewire of its own costs a stage the part of the dark time that is not hidden, so no more than
    that is at stake. 0 where neither set gives it a path.
    """
    none = np.isinf(now) & np.isinf(then)
    return np.where(none, 0.0, np.minimum(now, then + stake)), np.where(
        none, 0.0, np.minimum(then, now + stake)
    )


def _left(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """float64[i, j]: the share that stage i has left when j begins, if it sends evenly from begin
    to end; all of it if it never ends.
    """
    lasts = np.where((ends > begins) & np.isfinite(ends), ends - begins, np.inf)[:, None]
    passed = np.where(np.isinf(lasts), 0.0, begins[None, :] - begins[:, None])
    return np.clip(1.0 - passed / lasts, 0.0, 1.0)


def _crosses(outlook: Outlook | Foresight, cables: np.ndarray) -> np.ndarray:
    """Which stages send over a cable of the mask: bool[stages]."""
    return (outlook.cables & cables).any(axis=1)
