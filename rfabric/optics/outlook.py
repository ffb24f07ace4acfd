"""What stages that send at once may expect of a set of circuits: how long each takes, and what a rewire would change.

    seconds[i, l]    what stage i asks of directed link l: its bytes there over the link's rate
    alone            its busiest link, or `least`, whichever is longer
    ends             beside the others: on each of its links what all of them ask, of each at most as much as stage i itself
                     (equal shares: who asks less has gone before), the busiest of its links

An outlook is made of rack demands, split evenly over equal ways (what a controller knows), or of the ways that routing chose for
every flow (what a world knows).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..fabric import Fabric
from ..units import transfer_seconds
from .circuits import Circuits, Demand

NEVER = float("inf")


@dataclass(frozen=True, eq=False)
class Load:
    """What a stage still sends, flow by flow: CSR ways (`offsets`, directed `links`), bytes, and the `kind` of each flow.

    Kinds (labels of collectives) follow one another, so that their times add up. A flow on a link beyond the fabric's has no way;
    one of several ways stands here once a way.
    """

    offsets: np.ndarray
    links: np.ndarray
    size: np.ndarray
    kind: np.ndarray


@dataclass(frozen=True, eq=False)
class Outlook:
    """float64 `seconds[stages, directed links]` and `least[stages]`, s: inf for a stage that has no way."""

    seconds: np.ndarray
    least: np.ndarray

    @classmethod
    def of_racks(cls, fabric: Fabric, circuits: Circuits, demands: Sequence[Demand]) -> "Outlook":
        """From rack to rack, every pair split evenly over its cheapest ways."""
        routes, rate = fabric.routes(circuits), fabric.cabling.rate
        lit = routes.lights
        seconds, least = np.zeros((len(demands), len(rate))), np.zeros(len(demands))
        for i, demand in enumerate(demands):
            load = routes.ways.loads(demand.sent)
            if np.isinf(load).any():
                least[i] = NEVER
                continue
            on_links = np.bincount(lit.links, np.repeat(load, np.diff(lit.offsets)), minlength=len(rate))
            seconds[i], least[i] = transfer_seconds(on_links, rate), demand.floor
        return cls(seconds, least)

    @classmethod
    def of_flows(cls, fabric: Fabric, loads: Sequence[Load]) -> "Outlook":
        """On the ways of each flow; what follows one another in a stage adds up."""
        rate = fabric.cabling.rate
        seconds, least = np.zeros((len(loads), len(rate))), np.zeros(len(loads))
        for i, load in enumerate(loads):
            counts = np.diff(load.offsets)
            if (load.links >= len(rate)).any():
                least[i] = NEVER
                continue
            sizes, kinds = np.repeat(load.size, counts), np.repeat(load.kind, counts)
            for kind in np.unique(load.kind):
                some = kinds == kind
                asked = transfer_seconds(np.bincount(load.links[some], sizes[some], minlength=len(rate)), rate)
                seconds[i] += asked
                least[i] += asked.max(initial=0.0)
        return cls(seconds, least)

    @property
    def alone(self) -> np.ndarray:
        """Seconds of each stage without the others."""
        return np.maximum(self.seconds.max(axis=1, initial=0.0), self.least)

    @property
    def ends(self) -> np.ndarray:
        """Seconds of each stage when all send at once."""
        found = self.least.copy()
        for i, own in enumerate(self.seconds):
            used = own > 0
            shared = np.minimum(self.seconds[:, used], own[used]).sum(axis=0)
            found[i] = max(found[i], shared.max(initial=0.0))
        return found


def ends_after(before: Outlook, after: Outlook, leads: np.ndarray, cables: np.ndarray, dark: float) -> np.ndarray:
    """Seconds from now until each stage ends, when cables of the mask are dark for `dark` s, then `after` holds: float64[stages].

    `leads`: when each begins to send. Stages whose flows cross a cable that goes dark stand still meanwhile, others go on.
    """
    waits = dark * (_crosses(before, cables) | _crosses(after, cables))
    return np.maximum(leads, waits) + after.ends


def gained(now: np.ndarray, then: np.ndarray) -> float:
    """Seconds that stages sending at once end sooner in all, where they end after `then` instead of `now` seconds.

    Where the last of them ends later, nothing is gained: its delay counts (negative). -inf where one has no way then, inf where
    one has none now.
    """
    if np.isinf(then).any():
        return -NEVER
    if np.isinf(now).any():
        return NEVER
    total, last = float((now - then).sum()), float(now.max(initial=0.0) - then.max(initial=0.0))
    return total if last >= 0 else min(total, last)


def gain(before: Outlook, after: Outlook, leads: np.ndarray, cables: np.ndarray, dark: float) -> float:
    """What is `gained` by going dark for `dark` s on the cables of the mask, and having `after` from then on."""
    return gained(leads + before.ends, ends_after(before, after, leads, cables, dark))


def gain_later(before: Outlook, after: Outlook, leads: np.ndarray, dark: float) -> float:
    """Seconds that stages to come, one after another, gain by having `after` as they begin.

    A rewire of their own would give each what suits it at the price of what of the dark time is not hidden: no more is at stake.
    """
    stake = np.maximum(dark - leads, 0.0)
    with np.errstate(invalid="ignore"):  # inf - inf: no way under either
        better = np.nan_to_num(before.alone - after.alone, nan=0.0)
    return float(np.clip(better, -stake, stake).sum())


def _crosses(outlook: Outlook, cables: np.ndarray) -> np.ndarray:
    """Which stages send over a cable of the mask, either way: bool[stages]."""
    return (outlook.seconds.reshape(len(outlook.seconds), len(cables), 2).any(axis=2) & cables).any(axis=1)
