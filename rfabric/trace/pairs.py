"""The ways of a trace's host pairs under one set of circuits, found once a pair: both worlds read them."""

from copy import copy

import numpy as np

from ..fabric import Fabric
from ..fabric.schemes import Routing
from ..fabric.ways import offsets_of, spread
from ..optics import Circuits
from ..optics.outlook import Load
from .model import Trace


class Pairs:
    """The host pairs that send in a trace: numbers of both ends in the fabric, and which pair each row is (-1: no bytes)."""

    def __init__(self, fabric: Fabric, trace: Trace):
        host = np.array([fabric.host_index[name] for name in trace.hosts], dtype=np.int64)
        sends = np.flatnonzero(trace.size > 0)
        codes, which = np.unique(host[trace.src[sends]] << 32 | host[trace.dst[sends]], return_inverse=True)
        self.src, self.dst = codes >> 32, codes & 0xFFFFFFFF
        self.label = trace.label
        self.of = np.full(len(trace), -1, dtype=np.int64)
        self.of[sends] = which

    @property
    def back(self) -> "Pairs":
        """The same rows the other way: where acknowledgements go."""
        found = copy(self)
        found.src, found.dst = self.dst, self.src
        return found


class PairWays:
    """The directed links of host pairs under one set of circuits, link `nowhere` where nothing connects one."""

    def __init__(self, fabric: Fabric, pairs: Pairs, circuits: Circuits, routing: Routing):
        self.routes, self.pairs = fabric.routes(circuits, routing), pairs
        self.nowhere = 2 * len(fabric.links)
        self.first = np.full(len(pairs.src), -1, dtype=np.int64)
        self.count = np.zeros(len(pairs.src), np.int64)
        self.links = np.zeros(0, np.int32)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """CSR (offsets, links) of the ways of `rows`, which send."""
        pairs = self.pairs.of[rows]
        new = pairs[self.first[pairs] < 0]
        if len(new):
            self._find(np.unique(new))
        counts = self.count[pairs]
        return offsets_of(counts), self.links[spread(self.first[pairs], counts)]

    def _find(self, pairs: np.ndarray) -> None:
        self._add(pairs, *self.routes.links_of(self.pairs.src[pairs], self.pairs.dst[pairs]))

    def _add(self, pairs: np.ndarray, offsets: np.ndarray, links: np.ndarray) -> None:
        """Keep the ways of `pairs`, given as CSR."""
        dark = offsets[1:] == offsets[:-1]
        links = np.insert(links, offsets[:-1][dark], self.nowhere)
        self.count[pairs] = np.diff(offsets) + dark
        self.first[pairs] = len(self.links) + offsets_of(self.count[pairs])[:-1]
        self.links = np.concatenate((self.links, links))

    def crossing(self, rows: np.ndarray, cables: np.ndarray) -> np.ndarray:
        """Which of `rows` cross one of `cables` (a mask), or have no way, as a mask."""
        offsets, links = self.of(rows)
        hit = np.append(cables, True)[links // 2]
        return np.diff(np.concatenate(([0], np.cumsum(hit)))[offsets]) > 0

    def lost(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` have no way, as a mask."""
        offsets, links = self.of(rows)
        return links[offsets[:-1]] == self.nowhere

    def load(self, rows: np.ndarray, left: np.ndarray) -> Load:
        """What `rows` still send (`left`, bytes) on their ways."""
        offsets, links = self.of(rows)
        return Load(offsets, links, left, self.pairs.label[rows])
