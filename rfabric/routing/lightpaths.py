"""Light paths as arrays, for fabrics of 100,000 cables and more; `paths.LightPath` is one of them.

A port is named here by the directed link that leaves it: 2i at end a of cable i, 2i + 1 at end b.
The port at the other end of its cable is then p ^ 1, and p ^ 1 is the link that comes back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from ..fabric.cabling import Cabling, cabling_of
from ..fabric.model import Fabric, Port
from .inner import at, loops
from .rows import offsets_of


@dataclass(frozen=True, eq=False)
class Lights:
    """Light paths, ordered by the port they leave from.

    out, into: int32[n] ports; offsets: int64[n+1], links: int32, CSR of the directed links in
    order; rate: float64[n], bit/s of the slowest. cross: int32[2m], the port that a circuit joins
    to each port, -1 where none does.
    """

    out: np.ndarray
    into: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    rate: np.ndarray
    cross: np.ndarray

    def __len__(self) -> int:
        return len(self.out)

    @cached_property
    def path_of(self) -> np.ndarray:
        """int32[2m]: the light path that each directed link is on, one at most, as circuits join
        ports one to one; len(self) where none is.
        """
        path = np.full(len(self.cross), len(self), np.int32)
        path[self.links] = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))
        return path


def lights(fabric: Fabric, circuits: Iterable[tuple[Port, Port]] = ()) -> Lights:
    """Every light path that `circuits` complete, both directions."""
    c, cross = cabling_of(fabric), crossed(fabric, circuits)
    if loops():
        return _followed(c, cross)
    path, port = np.arange(len(c.packet_ports)), c.packet_ports
    into, counts = np.full(len(path), -1, np.int32), np.ones(len(path), np.int64)
    rate, hops = c.rate[port], [(path, port)]
    # longer than any path; a ring of circuits would go on for ever
    for _ in range(len(fabric.links)):
        optical = c.reaches_ocs[port]
        into[path[~optical]] = port[~optical] ^ 1
        path, port = path[optical], cross[port[optical] ^ 1]
        path, port = path[port >= 0], port[port >= 0]
        if not len(path):
            break
        hops.append((path, port))
        counts[path] += 1
        rate[path] = np.minimum(rate[path], c.rate[port])
    arrived = into >= 0
    counts[~arrived] = 0
    offsets = offsets_of(counts)
    links = np.empty(offsets[-1], np.int32)
    for hop, (path, port) in enumerate(hops):
        there = arrived[path]
        links[offsets[path[there]] + hop] = port[there]
    offsets = np.append(offsets[:-1][arrived], offsets[-1])
    out = c.packet_ports[arrived].astype(np.int32)
    return Lights(out, into[arrived], offsets, links, rate[arrived], cross)


def _followed(c: Cabling, cross: np.ndarray) -> Lights:
    """`lights` by the compiled core."""
    ports = c.packet_ports
    out, into = np.empty((2, len(ports)), np.int32)
    rate, offsets = np.empty(len(ports)), np.empty(len(ports) + 1, np.int64)
    links = np.empty(len(cross), np.int32)
    asked = at(ports), at(c.reaches_ocs), at(cross), at(c.rate), len(links)
    told = map(at, (out, into, rate, offsets, links))
    lit = loops().rf_lights(len(ports), *asked, *told)
    ends = offsets[: lit + 1]
    columns = out[:lit], into[:lit], ends, links[: ends[-1]], rate[:lit]
    return Lights(*(column.copy() for column in columns), cross)  # slices would keep whole arrays


def ends_of(fabric: Fabric, circuits: Iterable[tuple[Port, Port]]) -> np.ndarray | None:
    """The ports that circuits join, by number, int32[2, n], where the circuits know them
    (`optics.numbered`): looking up 100,000 ports takes longer than all else.
    """
    known = getattr(circuits, "ends_in", None)
    return known(fabric) if known else None


def crossed(fabric: Fabric, circuits: Iterable[tuple[Port, Port]]) -> np.ndarray:
    """`cross` of Lights."""
    ends, cross = ends_of(fabric, circuits), np.full(2 * len(fabric.links), -1, np.int32)
    a, b = _looked_up(fabric, list(circuits)) if ends is None else ends
    cross[a], cross[b] = b, a
    return cross


def _looked_up(fabric: Fabric, circuits: Sequence[tuple[Port, Port]]) -> np.ndarray:
    """What `ends_of` says, for circuits that do not know; those at other fabrics' ports are left
    out.
    """
    known = fabric.peer.get if circuits else {}.get
    ends = [(x[0], y[0]) for a, b in circuits if (x := known(a)) and (y := known(b))]
    return np.fromiter(chain.from_iterable(ends), np.int32, 2 * len(ends)).reshape(-1, 2).T
