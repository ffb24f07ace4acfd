"""How fast a demand could be sent at best: bounds that no plan of circuits on the same hardware can
beat.

    maximise  L = 1 / T
    so that   every rack's traffic, L times the demand, flows from rack to rack over circuits and
              cables as a fluid,
              a circuit carries its rate each way, a cable its own,
              at a rack the circuits of a plane add up to one at most,
              and no network card sends or receives longer than T

Circuits are fractions: a bound on everything, also on plans that rewire without delay all the time.
With whole circuits (`whole=True`, a mixed-integer program) it is the best that one setting of the
switches can do. HiGHS solves both. Where the program would be too large (MOST_VARIABLES) the cuts
around each rack are the bound: bytes out (or in) over all that leaves it.
"""

from dataclasses import dataclass

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.kept import kept
from ..routing import routes_of
from ..units import transfer_seconds
from .circuits import Demand
from .planes import reach_table, uplinks
from .solvers import thin_rates

MOST_VARIABLES = 30_000  # HiGHS takes some seconds for them on one core


@dataclass(frozen=True)
class Bound:
    """The least seconds a demand can take, and what says so: `nic`, `cut`, `lp`, `milp` or
    `nothing` (no demand).
    """

    seconds: float
    why: str


def bound(
    fabric: Fabric, demand: Demand, *, whole: bool = False, most: int = MOST_VARIABLES
) -> Bound:
    """The least time in which this fabric's hardware can send `demand`; the best of the bounds that
    apply.
    """
    if demand.idle and not demand.floor:
        return Bound(0.0, "nothing")
    bounds = [Bound(demand.floor, "nic"), Bound(cut_seconds(fabric, demand), "cut")]
    if not demand.idle and (program := Program(fabric, demand)).size <= most:
        bounds.append(Bound(program.seconds(whole), "milp" if whole else "lp"))
    best = max(b.seconds for b in bounds)
    return next(b for b in bounds if b.seconds >= best * (1 - 1e-6))  # the simplest that says it


def cut_seconds(fabric: Fabric, demand: Demand) -> float:
    """What leaves or enters each rack over the rate of all its cables to other switches, the
    slowest rack.
    """
    able = thin_rates(fabric) + _optical_rates(fabric).sum(0)
    rows, columns, sent = demand.sent
    busier = np.maximum(*(np.bincount(ends, sent, minlength=len(able)) for ends in (rows, columns)))
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(busier > 0, transfer_seconds(busier, able), 0.0)
    return float(seconds.max(initial=0.0))


@kept
def _optical_rates(fabric: Fabric) -> np.ndarray:
    """float64[planes, racks]: bit/s of each rack's uplink in each plane, 0 where it has none."""
    table = np.zeros(reach_table(fabric).shape)
    for row, up in enumerate(uplinks(fabric).values()):
        table[row, up.racks] = cabling_of(fabric).rate[up.port[up.racks]]
    return table


class Program:
    """The linear program as sparse matrices.

    Columns: L; flow of each source on each arc; circuits of each class and pair.

    Planes that join the same racks at the same rates are a class. Rates are in units of the
    fastest, bytes of the largest.
    """

    def __init__(self, fabric: Fabric, demand: Demand):
        self.fabric = fabric
        ways = routes_of(fabric, frozenset()).ways
        self.nodes, rack_row = ways.switches, ways.cabling.rack_row
        self.scale, self.unit = demand.sent.bytes.max(initial=1.0), float(ways.cabling.rate.max())
        self.sources, which = np.unique(demand.sent.rows, return_inverse=True)
        self.wanted = np.zeros((len(self.sources), self.nodes))
        self.wanted[which, rack_row[demand.sent.columns]] = demand.sent.bytes / self.scale
        self.start = rack_row[self.sources]
        self._arcs(ways, rack_row)
        self.size = 1 + len(self.sources) * len(self.tail) + len(self.pair_class)

    def _arcs(self, ways, rack_row: np.ndarray) -> None:
        codes, which = np.unique(ways.leaves * self.nodes + ways.leads, return_inverse=True)
        fixed = np.bincount(which, ways.lights.rate[ways.path], minlength=len(codes)) / self.unit
        region, rates = reach_table(self.fabric), _optical_rates(self.fabric)
        classes, self.planes_of = np.unique(np.hstack((region, rates)), axis=0, return_counts=True)
        racks = region.shape[1]
        ends, self.pair_class, self.pair_rate = [], [], []
        for number, row in enumerate(classes):
            here, rate = row[:racks], row[racks:]
            a, b = np.nonzero(np.triu((here[:, None] == here) & (here >= 0)[:, None], 1))
            ends += zip(a.tolist(), b.tolist(), strict=True)
            self.pair_class += [number] * len(a)
            self.pair_rate += (np.minimum(rate[a], rate[b]) / self.unit).tolist()
        self.pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
        both = np.concatenate((self.pairs, self.pairs[:, ::-1]))
        pair_codes = rack_row[both[:, 0]] * self.nodes + rack_row[both[:, 1]]
        every = np.unique(np.concatenate((codes, pair_codes)))
        self.tail, self.head = every // self.nodes, every % self.nodes
        self.cable = np.zeros(len(every))
        self.cable[np.searchsorted(every, codes)] = fixed
        # the arcs of each pair, one in each direction
        self.arc_of = np.searchsorted(every, pair_codes).reshape(2, len(self.pairs))
        self.racks = racks

    def seconds(self, whole: bool = False) -> float:
        """Solve it; `whole`: with whole circuits. inf where no way leads."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        flows, cut = self._conservation(), self._capacity()
        constraints = [LinearConstraint(flows, 0, 0), LinearConstraint(cut[0], -np.inf, cut[1])]
        degree, most = self._degrees()
        if len(most):
            constraints.append(LinearConstraint(degree, -np.inf, most))
        cost = np.zeros(self.size)
        cost[0] = -1
        integral = np.zeros(self.size)
        integral[self.size - len(self.pairs) :] = whole
        done = milp(cost, constraints=constraints, bounds=Bounds(0, np.inf), integrality=integral)
        if done.x is None or done.x[0] <= 1e-12:
            return float("inf")
        return float(transfer_seconds(self.scale, self.unit * done.x[0]))

    def _conservation(self):
        """For each source and each node but itself: what comes in less what goes out is L times
        what the node wants.
        """
        from scipy.sparse import coo_array

        arcs, sources = len(self.tail), len(self.sources)
        s, arc = (x.ravel() for x in np.indices((sources, arcs)))
        column = 1 + s * arcs + arc
        rows = np.concatenate((s * self.nodes + self.head[arc], s * self.nodes + self.tail[arc]))
        values = np.concatenate((np.ones(len(s)), -np.ones(len(s))))
        columns = np.tile(column, 2)
        wants = np.flatnonzero(self.wanted.ravel())
        rows, columns = (
            np.concatenate((rows, wants)),
            np.concatenate((columns, np.zeros(len(wants), np.int64))),
        )
        values = np.concatenate((values, -self.wanted.ravel()[wants]))
        keep = rows % self.nodes != self.start[rows // self.nodes]
        return coo_array(
            (values[keep], (rows[keep], columns[keep])), shape=(sources * self.nodes, self.size)
        ).tocsr()

    def _capacity(self):
        """Each arc carries at most its cables and its circuits."""
        from scipy.sparse import coo_array

        arcs, sources, pairs = len(self.tail), len(self.sources), len(self.pairs)
        s, arc = (x.ravel() for x in np.indices((sources, arcs)))
        rows = np.concatenate((arc, *self.arc_of))
        first = 1 + sources * arcs
        columns = np.concatenate((1 + s * arcs + arc, *[first + np.arange(pairs)] * 2))
        values = np.concatenate((np.ones(len(s)), *[-np.array(self.pair_rate)] * 2))
        return coo_array((values, (rows, columns)), shape=(arcs, self.size)).tocsr(), self.cable

    def _degrees(self):
        """At a rack, the circuits of a class are at most its planes."""
        from scipy.sparse import coo_array

        classes, pairs = np.array(self.pair_class, dtype=np.int64), len(self.pairs)
        rows = np.concatenate([classes * self.racks + self.pairs[:, end] for end in (0, 1)])
        columns = np.tile(self.size - pairs + np.arange(pairs), 2)
        shape = len(self.planes_of) * self.racks, self.size
        return coo_array((np.ones(2 * pairs), (rows, columns)), shape=shape).tocsr(), np.repeat(
            self.planes_of, self.racks
        )
