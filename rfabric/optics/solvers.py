"""Which racks to join for a demand: solvers that return matchings, a list of rack pairs per plane.

    greedy    heaviest pair first, any plane with both uplinks free (MixNet, SIGCOMM 2025, gives
              circuits this way)
    matching  plane by plane a maximum-weight matching of what the planes before it leave worst
              served
    bvn       whole circuits per pair for the least time T: k(a, b) = ceil(bytes / (rate T)), at
              most as many at a rack as it has uplinks, less what the electrical path takes in T;
              then coloured into planes (an integer Birkhoff-von Neumann decomposition; the
              time-slotted one is `slots`)

A circuit is duplex, so a pair weighs what its busier direction sends. A pair's weight falls with
the circuits it has, as in D'Hondt's apportionment: the next circuit goes where it shortens the
longest transfer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heapify, heappop, heappush

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept
from ..routing import routes_of
from ..routing.rows import offsets_of
from ..units import bytes_in, transfer_seconds
from .circuits import Demand
from .matched import heaviest
from .planes import RackPair, region_table, uplinks
from .swapped import NOBODY, swapped
from .templates import Matchings

# heaviest pairs of a rack that are looked at, beside its uplinks: lighter ones get no circuit
PAIRS_MORE = 2
MOST_SLOTS = 32
# edges times matchings up to which these are exact: some 20 ms at most
MOST_LOOKS = 20_000
HALVINGS = 14  # of the interval of T: to 1/16,384 of it


@dataclass(frozen=True, eq=False)
class Asked:
    """A demand as edges: pair i joins racks rows[i] < columns[i] and weighs wanted[i] bytes.

    `region[j]`: the region of each rack in plane j, -1 for none. `rate`: bit/s of a circuit.
    `thin`: bit/s of each rack's cables to other packet switches.
    """

    racks: tuple[str, ...]
    region: np.ndarray
    rate: float
    thin: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    wanted: np.ndarray

    def open_in(self, plane: int) -> np.ndarray:
        """Which edges this plane can join: a mask."""
        here = self.region[plane]
        return (here[self.rows] == here[self.columns]) & (here[self.rows] >= 0)

    @cached_property
    def openings(self) -> list[np.ndarray]:
        """By plane, the edges it can join."""
        known: dict[bytes, np.ndarray] = {}
        for plane, here in enumerate(self.region):
            if here.tobytes() not in known:
                known[here.tobytes()] = np.flatnonzero(self.open_in(plane))
        return [known[here.tobytes()] for here in self.region]

    @cached_property
    def uplinks(self) -> np.ndarray:
        """How many uplinks each rack has."""
        return (self.region >= 0).sum(0)

    def named(self, edges: np.ndarray) -> list[RackPair]:
        """Edges as pairs of rack names."""
        rows, columns = self.rows[edges].tolist(), self.columns[edges].tolist()
        return [(self.racks[a], self.racks[b]) for a, b in zip(rows, columns, strict=True)]


def asked(fabric: Fabric, demand: Demand, every: bool = False) -> Asked:
    """The edges a solver looks at: what can be joined at all, each rack's heaviest or `every`
    one.
    """
    region, c = region_table(fabric), cabling_of(fabric)
    joins = _joinable(region, demand)
    rows, columns, busier = (column[joins] for column in demand.joint)
    most = len(demand.racks) if every else len(region) + PAIRS_MORE
    some = _heaviest(rows, columns, busier, len(demand.racks), most) & (rows < columns)
    rates = [c.rate[up.port[up.racks]].min() for up in uplinks(fabric).values()]
    rate = float(min(rates, default=0.0))
    return Asked(
        demand.racks, region, rate, thin_rates(fabric), rows[some], columns[some], busier[some]
    )


def _joinable(region: np.ndarray, demand: Demand) -> np.ndarray:
    """Which pairs of `demand.joint` some plane can join: a mask."""
    rows, columns, _ = demand.joint
    joinable = np.zeros(len(rows), bool)
    for here in {row.tobytes(): row for row in region}.values():
        joinable |= (here[rows] == here[columns]) & (here[rows] >= 0)
    return joinable


def _heaviest(
    rows: np.ndarray, columns: np.ndarray, busier: np.ndarray, racks: int, most: int
) -> np.ndarray:
    """Which pairs are among the `most` heaviest of one of their racks: a mask."""
    order = np.argsort(np.concatenate((rows, columns)), kind="stable")
    count = np.bincount(rows, minlength=racks) + np.bincount(columns, minlength=racks)
    heaviest = (count[rows] <= most) | (count[columns] <= most)
    first = offsets_of(count)
    for rack in np.flatnonzero(count > most).tolist():
        mine = order[first[rack] : first[rack + 1]] % len(rows)
        other, line = rows[mine] + columns[mine] - rack, np.zeros(racks)
        line[other] = busier[mine]
        taken = np.zeros(racks, bool)
        taken[np.argpartition(-line, most - 1)[:most]] = True
        heaviest[mine] |= taken[other]
    return heaviest


@kept
def thin_rates(fabric: Fabric) -> np.ndarray:
    """float64[racks]: bit/s of each rack's cables to other packet switches: what leaves it without
    a circuit.
    """
    c = cabling_of(fabric)
    packet = (c.row[c.node] >= 0) & (c.row[c.node[np.arange(len(c.node)) ^ 1]] >= 0)
    return np.bincount(c.row[c.node[packet]], c.rate[packet], len(c.row))[c.rack_row]


def greedy(demand: Demand, fabric: Fabric) -> Matchings:
    """Heaviest pair first; see the module docstring."""
    a = asked(fabric, demand)
    free, given = a.region >= 0, np.zeros(len(a.wanted), np.int64)
    by_plane: Matchings = [[] for _ in a.region]
    heap = [(-weight, i) for i, weight in enumerate(a.wanted.tolist())]
    heapify(heap)
    while heap:
        _, i = heappop(heap)
        row, column = int(a.rows[i]), int(a.columns[i])
        fits = free[:, row] & free[:, column] & (a.region[:, row] == a.region[:, column])
        if fits.any():
            plane = int(fits.argmax())
            free[plane, [row, column]] = False
            by_plane[plane].append((a.racks[row], a.racks[column]))
            given[i] += 1
            heappush(heap, (-a.wanted[i] / (given[i] + 1), i))
    return by_plane


def matching(demand: Demand, fabric: Fabric) -> Matchings:
    """Plane by plane, the maximum-weight matching for demand / (circuits so far + 1)."""
    a = asked(fabric, demand)
    return list(map(a.named, _plane_by_plane(a, np.zeros(len(a.wanted)))))


def _plane_by_plane(a: Asked, given: np.ndarray, first: float = 0.0) -> Iterator[np.ndarray]:
    """In each plane the edges of the matching of maximum weight for demand / (circuits so far + 1);
    one that has no circuit yet weighs `first` more. Counts on in `given`, the circuits of each
    edge.
    """
    for edges in a.openings:
        weight = a.wanted[edges] / (given[edges] + 1) + first * (given[edges] == 0)
        best = best_matching(a, edges, weight)
        given[best] += 1
        yield best


def decomposition(demand: Demand, fabric: Fabric) -> Matchings:
    """bvn: whole circuits per pair for the least time, coloured into planes; uplinks left over go
    where they help most.
    """
    a = asked(fabric, demand)
    left, given, matchings = _whole_circuits(a), np.zeros(len(a.wanted)), []
    for plane, edges in enumerate(a.openings):
        rest = a.uplinks.max(initial=0) - plane
        load = np.bincount(a.rows, left, len(a.racks)) + np.bincount(a.columns, left, len(a.racks))
        # a rack that is owed a circuit in every plane still to come must be in this matching
        urgent = (load >= rest).astype(float)
        owed = left[edges] * (1 + 4 * (urgent[a.rows[edges]] + urgent[a.columns[edges]]))
        extra = a.wanted[edges] / (given[edges] + np.maximum(left[edges], 0) + 1)
        weight = owed + 0.5 * extra / extra.max(initial=1e-300)
        best = best_matching(a, edges, weight)
        given[best] += 1
        left[best] = np.maximum(left[best] - 1, 0)
        matchings.append(a.named(best))
    return matchings


def slots(
    demand: Demand, fabric: Fabric, every: bool = False, most: int = MOST_SLOTS
) -> np.ndarray:
    """int64[slots, planes, racks]: the demand as configurations of all planes, to be lit one after
    another, until every edge had its share (`slots_of`). `every`: edges are all pairs that send,
    not each rack's heaviest.
    """
    a = asked(fabric, demand, every)
    return slots_of(a, fewest_rounds(a), most)


def slots_of(a: Asked, rounds: int, most: int = MOST_SLOTS) -> np.ndarray:
    """int64[slots, planes, racks]: who each rack is joined to, -1 for nobody.

    As `matching`, going on after the last plane: what a configuration carries counts for those
    after it. So many `rounds`; then edges that had none come first, until all had, `most` in all.
    Up to MOST_LOOKS the matchings are of maximum weight, beyond nearly so (`swapped`).
    """
    rounds, given = min(rounds, most), np.zeros(len(a.wanted))
    solved = partial(swapped, a.rows, a.columns, a.wanted, a.region)
    if rounds * len(a.region) * len(a.wanted) <= MOST_LOOKS:
        solved = partial(_heaviest_slots, a)
    met = solved(rounds, given, False)
    return np.concatenate((met, solved(most - rounds, given, True)))


def fewest_rounds(a: Asked) -> int:
    """As many as the busiest rack needs to meet all its partners once."""
    partners = np.bincount(np.concatenate((a.rows, a.columns)), minlength=len(a.racks))
    return int(np.ceil(partners / np.maximum(a.uplinks, 1)).max(initial=0))


def _heaviest_slots(a: Asked, rounds: int, given: np.ndarray, until_met: bool) -> np.ndarray:
    """What `swapped` says, by matchings of maximum weight."""
    first = a.wanted.max(initial=0.0) if until_met else 0.0
    made = np.full((rounds, *a.region.shape), NOBODY)
    for number, mates in enumerate(made):
        if until_met and given.all():
            return made[:number]
        for plane, best in enumerate(_plane_by_plane(a, given, first)):
            mates[plane, a.rows[best]] = a.columns[best]
            mates[plane, a.columns[best]] = a.rows[best]
    return made


def starve(fabric: Fabric, slots: np.ndarray, demand: Demand) -> bool:
    """Whether some demanded pair of racks has no way in any of these configurations
    (int64[slots, planes, racks]).
    """
    lost = _apart(fabric, slots.reshape(-1, slots.shape[-1])[:0], demand)
    for mates in slots:
        if lost.any():
            lost &= _apart(fabric, mates, demand)
    return bool(lost.any())


SOLVERS = {"greedy": greedy, "matching": matching, "bvn": decomposition}


def _whole_circuits(a: Asked) -> np.ndarray:
    """How many circuits each edge needs for the least T in which all is sent: float64[edges], whole
    numbers.
    """
    if not len(a.wanted):
        return np.zeros(0)
    total = np.bincount(a.rows, a.wanted, len(a.racks)) + np.bincount(
        a.columns, a.wanted, len(a.racks)
    )
    able = np.maximum(a.uplinks, 1) * a.rate + a.thin
    low = float(transfer_seconds(total, able).max())
    high = float(transfer_seconds(total, np.maximum(a.rate, a.thin)).max()) + low
    while (best := _circuits_within(a, high)) is None:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        need = _circuits_within(a, middle)
        low, high, best = (middle, high, best) if need is None else (low, middle, need)
    return best


def _circuits_within(a: Asked, seconds: float) -> np.ndarray | None:
    """Circuits per edge that send all within `seconds`, what is least beyond whole circuits on the
    electrical path; or None.
    """
    per = bytes_in(a.rate, seconds)  # bytes a circuit carries
    need = np.ceil(a.wanted / per - 1e-9)
    beyond = a.wanted - (need - 1) * per
    over = (
        np.bincount(a.rows, need, len(a.racks))
        + np.bincount(a.columns, need, len(a.racks))
        - a.uplinks
    )
    budget = bytes_in(a.thin, seconds)
    thin = beyond <= np.minimum(budget[a.rows], budget[a.columns])
    able = np.bincount(a.rows[thin], minlength=len(over)) + np.bincount(
        a.columns[thin], minlength=len(over)
    )
    if (over > able).any():
        return None
    left, spare = over.tolist(), budget.tolist()
    some = np.flatnonzero(thin)
    for i in some[np.argsort(beyond[some], kind="stable")].tolist():
        row, column, size = int(a.rows[i]), int(a.columns[i]), float(beyond[i])
        if (left[row] > 0 or left[column] > 0) and spare[row] >= size and spare[column] >= size:
            for end in (row, column):
                spare[end] -= size
                left[end] -= 1
            need[i] -= 1
    return need if max(left) <= 0 else None


def best_matching(a: Asked, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Those of `edges` that make a matching of maximum weight, ascending."""
    return edges[heaviest(a.rows[edges], a.columns[edges], weight)]


# --- what a plan must not break -------------------------------------------------------------------


def bridged(fabric: Fabric, mates: np.ndarray, demand: Demand) -> np.ndarray:
    """`mates` of racks (int64[planes, racks], -1 for nobody), changed in the last planes where
    demanded pairs would have no way: a tree of circuits over the parts they lie in.

    A pair without a circuit of its own needs some way, over other racks or the electrical path.
    Where there is none, the last plane's circuits give way to ones that join the parts, then those
    before it; what of them still fits stays.
    """
    if not _apart(fabric, mates, demand).any():
        return mates
    for spared in reversed(range(len(mates))):
        made = mates[:spared]
        for plane in range(spared, len(mates)):
            made = np.vstack((made, _joining(fabric, made, plane, demand, mates[plane])))
        if not _apart(fabric, made, demand).any():
            return made
    return mates


def _joining(
    fabric: Fabric, kept: np.ndarray, plane: int, demand: Demand, were: np.ndarray
) -> np.ndarray:
    """The mates of a plane that joins as many parts as its uplinks reach, largest first, then what
    fits of `were`.
    """
    part, region = _parts(fabric, kept), region_table(fabric)[plane]
    lost, (rows, columns, _) = _apart(fabric, kept, demand), demand.sent
    wanted = np.zeros(len(part), bool)  # parts
    wanted[part[rows[lost]]] = wanted[part[columns[lost]]] = True
    members: dict[int, list[int]] = {}
    for rack in np.flatnonzero((region >= 0) & wanted[part]).tolist():
        members.setdefault(int(part[rack]), []).append(rack)
    groups = sorted(members.values(), key=lambda racks: (-len(racks), racks))
    free, mates = list(groups[0]) if groups else [], np.full(len(region), NOBODY)
    for group in groups[1:]:
        pair = next(((a, b) for a in free for b in group if region[a] == region[b]), None)
        if pair:
            mates[[*pair]] = pair[::-1]
            free = [rack for rack in (*free, *group) if rack not in pair]
    stay = (were >= 0) & (mates < 0)
    return np.where(stay & stay[were], were, mates)


def _apart(fabric: Fabric, mates: np.ndarray, demand: Demand) -> np.ndarray:
    """Which entries of a demand lie between racks that these planes and the cables leave without a
    way: a mask.
    """
    part, (rows, columns, _) = _parts(fabric, mates), demand.sent
    if not part.any():  # as where cables join all racks
        return np.zeros(len(rows), bool)
    return part[rows] != part[columns]


def _parts(fabric: Fabric, mates: np.ndarray) -> np.ndarray:
    """The number of the connected part each rack lies in, under these planes."""
    calm = _calm_parts(fabric)
    if not calm.any():
        return calm
    plane, low = np.nonzero(mates > np.arange(len(calm)))
    rows, columns = np.arange(len(calm)), calm
    return joined_parts(len(calm), np.append(rows, low), np.append(columns, mates[plane, low]))


def joined_parts(racks: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """For each rack the first rack of the part it lies in, where rows[i] and columns[i] are
    joined.
    """
    part = np.arange(racks)
    while ((low := part[rows]) != (high := part[columns])).any():
        np.minimum.at(part, np.maximum(low, high), np.minimum(low, high))
        while (part != (further := part[part])).any():
            part = further
    return part


def cables_join_all(fabric: Fabric) -> bool:
    """Whether every two racks have a way over cables alone."""
    return not _calm_parts(fabric).any()


@kept
def _calm_parts(fabric: Fabric) -> np.ndarray:
    """For each rack the first rack that cables alone join it to."""
    ways = routes_of(fabric, frozenset()).ways
    return np.zeros(len(fabric.racks), int) if ways.joins_all else ways.reach.argmax(1)
