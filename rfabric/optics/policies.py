"""Policies: which circuits to have next.

    decide(demand, circuits, now, upcoming) -> Circuits

`demand` is what the stage that begins will send, `circuits` what is lit, `now` the time in s, and
`upcoming` the Demands of the stages to come. A policy is pure: no clock, no I/O. The same object
decides in the simulator and in Ryu. Whether its answer is worth a rewire is decided by the planner
(`planner.intend`), not by the policy.

`ABOUT` says what each shipped policy does; `CircuitPolicy` is the base of your own.

`NAME,granularity=WHEN` sets when a policy is asked:

    one-shot           before the job, for the sum of all it sends
    per-phase          when a phase begins
    per-collective     when a communication phase begins
    intra-collective   likewise, and circuits may change in `rounds` inside it
    time-slotted       every `slot=100ms`: the phase's demand, decomposed, one part after the other

By default `demand` is asked per collective, `rotor` by the slot and all others per phase.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Protocol, TypeVar

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept, kept_last
from ..routing import routes_of
from ..specs import escaped, head_of, read_spec
from ..units import parse_time, transfer_seconds
from . import templates
from .circuits import Circuits, Demand
from .planes import (
    check_pairs,
    join,
    join_each,
    joinable,
    lights_alone,
    numbers,
    planes,
    region_table,
)
from .solvers import (
    MOST_SLOTS,
    SOLVERS,
    asked,
    bridged,
    fewest_rounds,
    joined_parts,
    slots_of,
    starve,
)
from .solvers import slots as decomposed
from .templates import Matchings

GRANULARITIES = ("one-shot", "per-phase", "per-collective", "intra-collective", "time-slotted")
# reconfiguration delays that a slot lasts, so that circuits are lit for nine tenths of the time
SLOT_DELAYS = 10
DEFAULT_SLOT = 0.1  # s, at least: ten times the delay of a 3D-MEMS switch
# `demand` asks both solvers up to this many racks, beyond it the matching only
MOST_RACKS_COMPARED = 256
ALIKE = 0.01  # amounts that are no further apart than this share of the largest are alike
SAME = 1e-6  # two times that differ by a smaller share are the same
MOST_PARTNERS = 2  # and up to this many partners an uplink
KEPT = 8  # answers that are kept, because the stages of a job repeat
T = TypeVar("T")


class Policy(Protocol):
    """What every policy offers. `name` is its name in `--policy`; `granularity` and `slot` (s) say
    when it is asked.
    """

    name: str
    granularity: str
    slot: float

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        """The circuits wanted at `now` (s) for `demand`."""

    def options(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        """Sets of circuits worth weighing against each other."""

    def cycle(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        """Sets of circuits to go through again and again; empty: no cycle."""

    def rounds(self, demand: Demand, circuits: Circuits) -> list[list[Circuits]]:
        """Alternatives for sending it round by round, each a list of sets of circuits."""


@dataclass(frozen=True)
class CircuitPolicy:
    """The base of your own policy: write `decide`, and name the class in `policies` of a FILE.py.

        @dataclass(frozen=True)
        class Ring(CircuitPolicy):
            skip: int = 0                    # --policy FILE.py:ring,skip=2
            def decide(self, demand, circuits, now, upcoming=()): ...

        policies = {"ring": Ring}            # --policy FILE.py:ring

    `decide` gets what the stage that begins will send (`demand.racks`, `demand.bytes`,
    `demand.phase`), the `circuits` that are lit, `now` in s, and the Demands of the stages to come,
    in this order, whatever it calls them. It returns Circuits; to change nothing, it returns those
    it got. It is pure: no clock, no I/O, no memory. `light` turns pairs of racks into Circuits. A
    policy only proposes: whether a rewire is worth it is weighed afterwards.

    A field of your class is a setting, read by its type and the end of its name
    (`specs.by_fields`): `pause_s` is a time, set by `pause=3ms`. `granularity` says when the policy
    is asked; for another default, set it in the class: `granularity = "per-collective"`. `options`,
    `cycle` and `rounds` are asked where one answer is not enough; those of this class follow from
    `decide` and the demand.
    """

    fabric: Fabric
    name: str
    granularity: str = "per-phase"
    slot: float = field(default=DEFAULT_SLOT, metadata={"parse": parse_time})

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        """The circuits to have for `demand`."""
        raise NotImplementedError

    def light(self, joined: Matchings, demand: Demand, circuits: Circuits) -> Circuits:
        """Circuits that join these pairs of racks: a list for each of `planes(fabric)`.

        No rack may be in a list twice. As many of `circuits` as possible stay. Where pairs that
        send would have no path at all, the last planes join them instead.
        """
        return _moved(self.fabric, self._ways(joined, demand), circuits)

    def options(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        """What the policy chooses among, for callers that weigh it by the path of every flow."""
        return [self.decide(demand, circuits, 0.0)]

    def cycle(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        """The circuits of one slot after the other, then from the first again: the decomposition of
        the demand.
        """
        if demand.idle:
            return []
        slots = self._even_slots(demand)
        if not len(slots):
            slots = decomposed(demand, self.fabric)
        if len(demand.racks) <= MOST_RACKS_COMPARED and starve(self.fabric, slots, demand):
            slots = decomposed(demand, self.fabric, every=True, most=2 * len(demand.racks))
        slots = [bridged(self.fabric, slot, demand) for slot in joinable(self.fabric, slots)]
        had = _partners(self.fabric, circuits)
        return join_each(self.fabric, _in_turn(self.fabric, slots, had))

    def _even_slots(self, demand: Demand) -> np.ndarray:
        """The rounds of a tournament in each group of racks that talk, where all of a group want
        alike of each other: all equally often, if MOST_SLOTS suffice. No slots elsewhere.
        """
        region, groups, wanted = region_table(self.fabric), _groups(demand), demand.joint[2]
        pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
        alike = len(wanted) == pairs and np.ptp(wanted) <= ALIKE * wanted.max()
        if not (alike and region.size and region[0, 0] >= 0 and (region == region[0, 0]).all()):
            return np.zeros((0, *region.shape), np.int64)
        every, count = templates.tournaments(groups, len(demand.racks)), len(region)
        slots = _even_turns(len(every), count)
        if slots > MOST_SLOTS:  # through once, and a little further
            slots = -(-len(every) // count)
        return _in_planes(every, np.arange(slots * count), count)

    def rounds(self, demand: Demand, circuits: Circuits) -> list[list[Circuits]]:
        """Decompositions of a demand to choose from: sets of circuits, lit one after another until
        every pair that can be joined was. By the rounds of a tournament in each group of racks that
        talk, and by weight (`slots_of`).

        No rack relays in a round, so circuits need not connect all racks, as those of `cycle` must.
        """
        partners, count = demand.partners, len(planes(self.fabric))
        most = int(partners.max(initial=0))
        if most < 2 or not count:
            return []
        every = templates.tournaments(_groups(demand), len(demand.racks))
        turns = [np.arange(len(every)), np.arange(_even_turns(len(every), count) * count)]
        decompositions = [_in_planes(every, turn, count) for turn in turns]
        if len(demand.racks) <= MOST_RACKS_COMPARED:
            edges = asked(self.fabric, demand, every=True)
            few = fewest_rounds(edges)
            wanted = {min(turns, MOST_SLOTS) for turns in (few, max(few, _even_turns(most, count)))}
            decompositions += [slots_of(edges, turns) for turns in sorted(wanted)]
        return [
            self._each_once(slots, circuits)
            for i, slots in enumerate(decompositions)
            if 1 < len(slots) <= MOST_SLOTS
            and not any(np.array_equal(slots, others) for others in decompositions[:i])
        ]

    def _each_once(self, slots: np.ndarray, circuits: Circuits) -> list[Circuits]:
        """The slots (int64[slots, planes, racks]: who a rack is joined to, -1 for nobody), lit in
        turn, beginning with the one nearest to what is lit now; none twice.
        """
        fabric, had = self.fabric, _partners(self.fabric, circuits)
        mates = joinable(fabric, slots)
        stay = _staying(mates, had)
        kept = [int(some[range(len(had)), _dealt(fabric, some)].sum()) for some in stay]
        first = int(np.argmin(np.count_nonzero(mates >= 0, axis=(1, 2)) - kept))
        every = _in_turn(fabric, np.roll(mates, -first, axis=0), had)
        return join_each(fabric, np.array([*{slot.tobytes(): slot for slot in every}.values()]))

    def _ways(self, matchings: Matchings, demand: Demand) -> np.ndarray:
        """Who each rack is joined to, so that all who send have some way (`bridged`)."""
        return bridged(self.fabric, _numbered(self.fabric, matchings), demand)


class Static(CircuitPolicy):
    """One topology for the whole run: a mesh of all racks, lit at the start."""

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        if len(circuits):
            return circuits
        return join(self.fabric, _numbered(self.fabric, templates.mesh_of_all(self.fabric)))

    def cycle(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        return [self.decide(demand, circuits, 0.0)]

    def rounds(self, demand: Demand, circuits: Circuits) -> list[list[Circuits]]:
        return []


class BySolver(CircuitPolicy):
    """Circuits for the demand, by a solver.

    The present ones stay where NICs take as long anyhow, or where others would be no better.
    """

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        if demand.idle:
            return circuits
        before = completion(self.fabric, circuits, demand)
        if before <= demand.floor * (1 + SAME):
            return circuits
        options = self.options(demand, circuits)
        seconds = [completion(self.fabric, lit, demand) for lit in options]
        least = min(seconds)
        return options[seconds.index(least)] if least < before * (1 - SAME) else circuits

    def options(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        return [self._solved(solver, demand, circuits) for solver in self._solvers(demand)]

    def _solvers(self, demand: Demand) -> tuple[str, ...]:
        """The solvers to try. Whole circuits per pair (bvn) help only where racks have few more
        partners than uplinks.
        """
        if self.name in SOLVERS:
            return (self.name,)
        few = (
            demand.partners.max() <= MOST_PARTNERS * len(planes(self.fabric))
            and len(demand.racks) <= MOST_RACKS_COMPARED
        )
        return ("matching", "bvn") if few else ("matching",)

    def _solved(self, solver: str, demand: Demand, circuits: Circuits) -> Circuits:
        asked = solver, *(column.tobytes() for column in demand.sent)
        mates = _kept(
            self.fabric, asked, lambda: self._ways(SOLVERS[solver](demand, self.fabric), demand)
        )
        return _moved(self.fabric, mates, circuits)


class ByTemplate(CircuitPolicy):
    """One template among the racks that send or receive, whatever they send."""

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        matchings = self._template(self.name, demand)
        return circuits if matchings is None else self.light(matchings, demand, circuits)

    def _template(self, name: str, demand: Demand) -> Matchings | None:
        count, racks = len(planes(self.fabric)), np.array(demand.racks, dtype=object)
        sends, receives, sinks = demand.sends, demand.receives, demand.sinks
        if name == "isolated-pod":
            return templates.isolated_pods(self.fabric, count)
        if not sends.any():
            return None
        if name == "tree" and sinks.any():
            return templates.tree(*self._levels(racks, sends, receives), count)
        if name == "bipartite" and (groups := _answering(demand)):
            parts = [templates.bipartite(*sides, count) for sides in groups]
            return [[pair for part in parts for pair in part[j]] for j in range(count)]
        if name == "bipartite" and sinks.any():
            return templates.bipartite(list(racks[sends]), list(racks[sinks]), count)
        if name == "mesh":
            return templates.mesh(list(racks[sends | receives]), count)
        return _best_rounds(demand, list(racks[sends | receives]), count)

    def _levels(
        self, racks: np.ndarray, sends: np.ndarray, receives: np.ndarray
    ) -> tuple[list[str], ...]:
        """Sources, relays and leaves of a tree. Relays pass on what they get; if no rack does,
        those of the first pod become relays.
        """
        sources, relays, leaves = (
            list(racks[some]) for some in (sends & ~receives, sends & receives, receives & ~sends)
        )
        if not relays:
            pod = self.fabric.node[leaves[0]].pod
            relays = [rack for rack in leaves if self.fabric.node[rack].pod == pod]
            leaves = [rack for rack in leaves if rack not in relays]
        return sources, relays, leaves


class ByPhase(ByTemplate):
    """The template of each phase, or the solver's circuits where they send it sooner.

    Training's rings match the mesh of tournament rounds only where both number the racks alike.
    Other phases, such as those of an imported trace, get the rounds that carry most.
    """

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        if demand.phase == "generation":
            names = ("isolated-pod", "bipartite") if _answering(demand) else ("isolated-pod",)
            return self._soonest([self._template(name, demand) for name in names], demand, circuits)
        if demand.idle:
            return circuits
        shape = "tree" if demand.phase == "weight_sync" else "rounds"
        # without racks that only receive, either template is the rounds that carry most
        names = (shape, "bipartite") if demand.sinks.any() else ("rounds",)
        every = [self._template(name, demand) for name in names]
        every.append(SOLVERS["bvn"](demand, self.fabric))
        return self._soonest(every, demand, circuits)

    def _soonest(self, every: list[Matchings], demand: Demand, circuits: Circuits) -> Circuits:
        """Of circuits for each of these matchings those that send the demand soonest."""
        lit = [self.light(matchings, demand, circuits) for matchings in every]
        return min(lit, key=lambda c: completion(self.fabric, c, demand))


class Rotor(CircuitPolicy):
    """The rounds of a tournament of all racks, slot after slot, as many at a time as there are
    planes.
    """

    def decide(
        self, demand: Demand, circuits: Circuits, now: float, upcoming: Sequence[Demand] = ()
    ) -> Circuits:
        every = self.cycle(demand, circuits)
        return every[int(now / self.slot) % len(every)] if every else circuits

    def cycle(self, demand: Demand, circuits: Circuits) -> list[Circuits]:
        racks, count = len(self.fabric.racks), len(planes(self.fabric))
        every = templates.tournaments([np.arange(racks)], racks)
        if not (count and len(every)):
            return []
        slots = _in_planes(every, np.arange(-(-len(every) // count) * count), count)
        return join_each(self.fabric, joinable(self.fabric, slots))


POLICIES: dict[str, type[CircuitPolicy]] = {
    "static": Static,
    "demand": BySolver,
    "phase": ByPhase,
    "greedy": BySolver,
    "matching": BySolver,
    "bvn": BySolver,
    "mesh": ByTemplate,
    "isolated-pod": ByTemplate,
    "bipartite": ByTemplate,
    "tree": ByTemplate,
    "rotor": Rotor,
}
ABOUT = {  # what `--policy NAME` does
    "own": "what the fabric was designed for: `rotor` for rotor, one set of circuits for the whole "
    "job for topoopt, one a phase for opus, `demand` for the others",
    "static": "a mesh of all racks, lit at the start",
    "demand": "the solver whose circuits send the demand soonest",
    "phase": "the template of the phase: isolated pods for generation (or bipartite, where racks "
    "answer one another), a mesh of the rings for training, a tree for weight sync",
    "greedy": "a solver for any demand: the heaviest pair of racks first",
    "matching": "a solver for any demand: plane by plane the matching of maximum weight",
    "bvn": "a solver for any demand: whole circuits per pair for the least time, then coloured",
    "mesh": "a mesh among the racks that talk",
    "isolated-pod": "a mesh inside each pod, nothing between pods",
    "bipartite": "every rack that sends with as many that receive as there are planes",
    "tree": "racks that send feed relays, those feed all others",
    "rotor": "every slot the next rounds of a tournament of all racks, whatever is sent (RotorNet)",
}
USUAL = {
    "demand": "per-collective",
    "rotor": "time-slotted",
}  # when a policy is asked where nothing is said; others: per phase


SETTINGS = ("granularity", "slot")  # that every policy has
# Opus rewires where phases begin (arXiv 2602.12521): without packet switches, the rings of all
# collectives must hold together.
OWN = {
    "topoopt": "demand,granularity=one-shot",
    "opus": "demand,granularity=per-phase",
    "rotor": "rotor",
}


def spelled(spec: str | Policy, fabric: Fabric) -> str | Policy:
    """`spec` with what `own` is on `fabric` instead; settings that it is given replace those."""
    if not isinstance(spec, str) or head_of(spec) != "own":
        return spec
    own = read_spec(OWN.get(fabric.name, "demand"))
    settings = {**own.settings, **read_spec(spec, "policy", SETTINGS).settings}
    return ",".join([own.head, *(f"{key}={escaped(value)}" for key, value in settings.items())])


def completion(fabric: Fabric, circuits: Circuits, demand: Demand) -> float:
    """The least seconds that `demand` takes under `circuits`: those of the busiest light path or of
    the busiest NIC.
    """
    return max(drain_seconds(fabric, circuits, demand), demand.floor)


def drain_seconds(fabric: Fabric, circuits: Circuits, demand: Demand) -> float:
    """Seconds until the busiest light path has carried `demand`, split evenly over equal paths; inf
    where a pair has none.
    """
    routes = routes_of(fabric, circuits)
    load = routes.ways.loads(demand.sent)
    return float(transfer_seconds(load, routes.lights.rate).max(initial=0.0))


def _answering(demand: Demand) -> list[tuple[list[str], list[str]]] | None:
    """The racks of a generation that answer one another, each group in two sides (attention and
    FFN, or replicas and CPU servers); None if there are none.
    """
    if demand.phase != "generation":
        return None
    name, (rows, columns, _) = demand.racks, demand.sent
    sent = set(zip(rows.tolist(), columns.tolist(), strict=True))
    both = sorted((a, b) for a, b in sent if a < b and (b, a) in sent)
    return templates.answering((name[a], name[b]) for a, b in both) or None


def _best_rounds(demand: Demand, racks: list[str], count: int) -> Matchings:
    """The `count` tournament rounds of `racks` that carry most of the demand, all different while
    there are enough.
    """
    every, place = templates.turns(len(racks)), {rack: i for i, rack in enumerate(racks)}
    if not every:
        return [[] for _ in range(count)]
    number = np.array([place.get(rack, -1) for rack in demand.racks])
    rows, columns = number[demand.sent.rows], number[demand.sent.columns]
    meet = (rows != columns) & (rows >= 0) & (columns >= 0)
    turn, pair = templates.meeting(len(racks), rows[meet], columns[meet])
    pairs = (len(racks) + 1) // 2  # of a round
    carried = np.bincount(pair * every + turn, demand.sent.bytes[meet], pairs * every)
    best = np.argsort(-carried.reshape(pairs, every).sum(0), kind="stable").tolist()
    return [templates.round_of(racks, best[j % every]) for j in range(count)]


def _even_turns(matchings: int, count: int) -> int:
    """The fewest rounds of `count` planes that light all `matchings` equally often."""
    return matchings // gcd(matchings, count)


def _groups(demand: Demand) -> list[np.ndarray]:
    """The racks (numbers) of each group that has no pair with another."""
    rows, columns, _ = demand.joint
    part, alone = joined_parts(len(demand.racks), rows, columns), demand.partners == 0
    return [np.flatnonzero(part == one) for one in np.unique(part[~alone])]


def _in_planes(every: np.ndarray, turns: np.ndarray, count: int) -> np.ndarray:
    """int64[slots, planes, racks]: who each rack is joined to where `count` planes light these
    turns of a tournament (int64[turns, racks]), one after another.
    """
    slots = np.full((-(-len(turns) // count), count, every.shape[1]), -1)
    slots.reshape(-1, every.shape[1])[: len(turns)] = every[turns % len(every)]
    return slots


def _moved(fabric: Fabric, mates: np.ndarray, circuits: Circuits) -> Circuits:
    """Circuits that join racks to these (int64[planes, racks], -1 for nobody), the nearest to
    `circuits`.
    """
    mates = _least_moved(fabric, mates, _partners(fabric, circuits))
    return _kept(fabric, mates.tobytes(), lambda: join(fabric, mates))


def _kept(fabric: Fabric, question: Hashable, answer: Callable[[], T]) -> T:
    return kept_last(fabric.memo.setdefault("policies", {}), question, answer, KEPT)


def _numbered(fabric: Fabric, matchings: Matchings) -> np.ndarray:
    """int64[planes, racks]: who each rack is joined to, -1 for nobody. Where a fabric has regions,
    pairs of a template that the plane cannot join are left out.
    """
    mates = np.full((len(matchings), len(fabric.racks)), -1)
    every = zip(mates, region_table(fabric), planes(fabric), matchings, strict=True)
    for row, here, plane, pairs in every:
        racks = numbers(fabric, plane, pairs)
        racks = racks[:, (here[racks[0]] == here[racks[1]]) & (here[racks[0]] >= 0)]
        check_pairs(fabric, plane, racks)
        row[racks] = racks[::-1]
    return mates


def _least_moved(fabric: Fabric, mates: np.ndarray, had: np.ndarray) -> np.ndarray:
    """The same matchings (int64[planes, racks]), assigned to planes such that as many racks as
    possible stay joined as they were; free racks keep who they `had`.
    """
    stay = _staying(mates[None], had)[0]
    mates = mates[_dealt(fabric, stay)]
    free = (mates < 0) & (had >= 0)
    free &= free[np.arange(len(had))[:, None], had]
    return np.where(free, had, mates)


def _in_turn(fabric: Fabric, slots: Iterable[np.ndarray], had: np.ndarray) -> np.ndarray:
    """int64[slots, planes, racks]: the matchings of each slot in the planes in which most racks
    stay joined as they were before it; as they `had` been, before the first.
    """
    every = []
    for slot in slots:
        every.append(_least_moved(fabric, slot, had))
        had = lights_alone(fabric, every[-1])
    return np.array(every, np.int64).reshape(-1, *had.shape)


def _staying(slots: np.ndarray, had: np.ndarray) -> np.ndarray:
    """int64[slots, planes, planes]: how many racks are joined in a plane as they `had` been, if
    that lights each of a slot's matchings.
    """
    had = np.where(had < 0, -2, had)
    return np.array([(had[:, None] == slot).sum(axis=2) for slot in slots])


def _dealt(fabric: Fabric, stay: np.ndarray) -> list[int]:
    """For each plane in turn the matching (of `_staying`) with which most racks stay. Only planes
    that join the same racks may swap their matchings.
    """
    alike, rest, dealt = _planes_alike(fabric), list(range(len(stay))), []
    for row, staying in enumerate(stay.tolist()):
        some = [i for i in rest if alike[i] == alike[row]] if any(alike) else rest
        dealt.append(max(some, key=staying.__getitem__))
        rest.remove(dealt[-1])
    return dealt


@kept
def _planes_alike(fabric: Fabric) -> list[int]:
    """By plane, the first one that joins the same racks."""
    table = region_table(fabric)
    return [int((table == row).all(1).argmax()) for row in table]


def _partners(fabric: Fabric, circuits: Circuits) -> np.ndarray:
    """int64[planes, racks]: the rack that `circuits` join each rack to in each plane, -1: none."""
    c, lit, every = cabling_of(fabric), routes_of(fabric, circuits).lights, planes(fabric)
    partners = np.full((len(every), len(fabric.racks)), -1)
    some = np.flatnonzero(np.diff(lit.offsets) > 1)
    a, b = (c.rack[c.node[ports[some]]] for ports in (lit.out, lit.into))
    plane = np.array([node.plane for node in fabric.nodes])[c.node[lit.out[some] ^ 1]]
    racks = (a >= 0) & (b >= 0)
    partners[np.searchsorted(every, plane[racks]), a[racks]] = b[racks]
    return partners
