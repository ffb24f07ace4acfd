"""The flow engine for rows that send in parts, each on a way of its own: what packet spraying looks
like to it.

    row r  ready -- gap --> gate (nothing) --> part 1, part 2, ... --> row r (nothing): done when
           its last part is

A row of one part is a flow, as in `flows`; one of several becomes a gate, its parts, and a marker
that has the row's number, so that who waits for the row waits for all of it. A part weighs its
share, so that a row gets no larger share of a network card for having more ways.
Who calls speaks of rows alone; paths and latencies come in by part.
"""

import numpy as np

from ..routing.rows import offsets_of, spread
from .flows import Engine
from .reference import FINISHED, READY


class PartedEngine:
    """`flows.Engine` with rows for flows: row r has counts[r] >= 1 parts, `share` (float64, row by
    row) of its bytes in each.
    """

    def __init__(self, engine: Engine, counts: np.ndarray, share: np.ndarray):
        self._engine, self._counts, self._share = engine, counts, share
        self._first, row = offsets_of(counts), np.repeat(np.arange(len(counts)), counts)
        several = np.flatnonzero(counts > 1)
        among = np.flatnonzero(counts[row] > 1)  # parts
        # of every flow: rows, gates, parts
        self._row = np.concatenate((np.arange(len(counts)), several, row[among]))
        # of each row, of each part; of a row of one part the row
        self._gate, self._flow = np.arange(len(counts)), row
        self._gate[several] = len(counts) + np.arange(len(several))
        self._flow[among] = len(counts) + len(several) + np.arange(len(among))

    @property
    def now(self) -> float:
        """The time of day, s."""
        return self._engine.now

    def add(
        self, *, path_offsets, path_links, size, start, after_offsets, after, gap, latency
    ) -> None:
        """All rows at once; columns are those of `Engine.add`, but paths and `latency` go by
        part.
        """
        row, part = self._row, np.full(len(self._row), -1)
        part[self._flow] = np.arange(len(self._flow))
        sends, opens = part >= 0, self._gate[row] == np.arange(len(row))
        hops = np.where(sends, np.diff(path_offsets)[part], 0)
        # who opens a row waits as it does, its parts for the gate, the row itself for its parts
        waits = np.select([opens, sends], [np.diff(after_offsets)[row], 1], self._counts[row])
        first = np.select(
            [opens, sends],
            [after_offsets[row], len(after) + row],
            len(after) + len(self._gate) + self._first[row],
        )
        self._engine.add(
            path_offsets=offsets_of(hops),
            path_links=path_links[spread(path_offsets[part], hops)],
            size=np.where(sends, size[row], 0.0),
            start=np.where(opens, start[row], 0.0),
            after_offsets=offsets_of(waits),
            after=np.concatenate((after, self._gate, self._flow))[spread(first, waits)],
            gap=np.where(opens, gap[row], 0.0),
            latency=np.where(sends, latency[part], 0.0),
            part=np.where(sends, self._share[part], 1.0),
        )

    def watch(self, rows: np.ndarray) -> None:
        """Let run() stop when one of these rows becomes ready or finishes."""
        self._engine.watch(np.union1d(rows, self._gate[rows]))

    def run(self, until: float = np.inf) -> np.ndarray:
        """`Engine.run`; events are of rows."""
        while len(events := self._engine.run(until)):
            flow, row = events["flow"], self._row[events["flow"]]
            begins = (self._gate[row] == flow) & (events["kind"] == READY)
            told = begins | ((flow == row) & (events["kind"] == FINISHED))
            if told.any():
                events["flow"] = row
                return np.sort(events[told], order="flow")
        return events

    def reroute(self, rows: np.ndarray, path_offsets: np.ndarray, path_links: np.ndarray) -> None:
        """From now on the parts of these rows take these paths."""
        self._engine.reroute(self._flows_of(rows), path_offsets, path_links)

    def active(self) -> np.ndarray:
        """Rows of which a part is in flight, ascending."""
        return np.unique(self._row[self._engine.active()])

    def remaining(self, rows: np.ndarray) -> np.ndarray:
        """Bytes that each of these rows still has to send."""
        if not len(rows):
            return np.zeros(0)
        counts = self._counts[rows]
        left = (
            self._engine.remaining(self._flows_of(rows))
            * self._share[spread(self._first[rows], counts)]
        )
        return np.add.reduceat(left, offsets_of(counts)[:-1])

    def start_times(self) -> np.ndarray:
        """Start of every row, s; nan where it has not started."""
        return self._engine.start_times()[self._gate]

    def finish_times(self) -> np.ndarray:
        """Finish of every row, s, latency included; inf where it has not finished."""
        return self._engine.finish_times()[: len(self._counts)]

    def link_bytes(self) -> np.ndarray:
        """Bytes carried so far by every link."""
        return self._engine.link_bytes()

    def _flows_of(self, rows: np.ndarray) -> np.ndarray:
        return self._flow[spread(self._first[rows], self._counts[rows])]
