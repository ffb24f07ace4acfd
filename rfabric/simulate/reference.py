"""Max-min fair sharing in plain numpy: slow, and short enough to be seen to be right.

It is the oracle of the tests, and what runs (with a loud warning) where the compiled core is
missing. Rates are solved anew, for all flows, at every instant at which anything changes:

    raise all rates together until a link is full; its flows keep that rate; go on with the others.

Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2 (max-min flow control).
"""

import numpy as np

from .inputs import Batch

SAME_INSTANT = 1e-12  # events closer than this, relative to the time of day, are one event
READY, FINISHED = 0, 1
WAITING, FLYING, TAIL, DONE = range(4)
EVENTS = np.dtype([("time", "f8"), ("flow", "i8"), ("kind", "i1")])


def max_min_rates(capacity, path_offsets, path_links, weight=None) -> np.ndarray:
    """Max-min fair rate of each flow, in the unit of `capacity`; weight w is w such flows."""
    n = len(path_offsets) - 1
    weight = np.ones(n) if weight is None else weight
    owner = np.repeat(np.arange(n), np.diff(path_offsets))
    rates = np.zeros(n)
    frozen = np.zeros(n, bool)
    while not frozen.all():
        rising = ~frozen[owner]
        used = np.bincount(path_links, (weight * rates)[owner], minlength=len(capacity))
        count = np.bincount(path_links[rising], weight[owner[rising]], minlength=len(capacity))
        share = np.full(len(capacity), np.inf)
        share[count > 0] = np.maximum(capacity - used, 0.0)[count > 0] / count[count > 0]
        level = share.min()
        full = share <= level * (1 + SAME_INSTANT)
        hit = np.unique(owner[rising & full[path_links]])
        rates[hit] = level
        frozen[hit] = True
    return rates


class ReferenceEngine:
    """A `rfabric.simulate.flows.EngineCore` in numpy."""

    def __init__(self, capacity: np.ndarray, tolerance: float = 0.0):
        self.capacity = capacity.copy()  # bit/s
        self.now = 0.0
        self.paths: list[np.ndarray] = []
        self.after: list[np.ndarray] = []
        self.watched: set[tuple[int, int]] = set()
        self.stale = True  # rates must be solved before time may pass
        empty = np.zeros(0)
        self.size, self.earliest, self.gap, self.latency, self.weight = (
            empty.copy() for _ in range(5)
        )
        self.left, self.rate = empty.copy(), empty.copy()  # bytes, bit/s
        self.start, self.finish, self.ready = empty.copy(), empty.copy(), empty.copy()
        self.state = np.zeros(0, np.int8)
        self.carried = np.zeros(len(capacity))  # bytes
        self.busy = np.zeros(len(capacity))  # s

    def add(self, batch: Batch) -> None:
        n = len(batch)
        zero = np.zeros(n)
        self.paths += np.split(batch.path_links, batch.path_offsets[1:-1]) if n else []
        none = [np.zeros(0, np.int32)] * n
        self.after += (
            none
            if batch.after is None or not n
            else np.split(batch.after, batch.after_offsets[1:-1])
        )
        for name, values in (
            ("size", batch.size), ("left", batch.size), ("earliest", batch.start),
            ("gap", batch.gap), ("latency", batch.latency),
            ("weight", zero + 1 if batch.weight is None else batch.weight),
            ("rate", zero), ("start", zero + np.nan), ("finish", zero + np.inf),
            ("ready", zero + np.inf), ("state", np.zeros(n, np.int8)),
        ):  # fmt: skip
            setattr(
                self,
                name,
                np.concatenate([getattr(self, name), zero if values is None else values]),
            )

    def watch(self, flows: np.ndarray) -> None:
        for flow in flows.tolist():
            self.watched |= {(flow, FINISHED)} if self.state[flow] < DONE else set()
            self.watched |= {(flow, READY)} if self.state[flow] == WAITING else set()

    def run(self, until: float) -> np.ndarray:
        while True:
            events = self._settle()
            if events:
                return np.array(sorted(events, key=lambda e: (e[1], e[2])), EVENTS)
            time = self._next_event()
            if time > until or time == np.inf:
                self._advance(until if until < np.inf else self.now)
                return np.zeros(0, EVENTS)
            self._advance(time)

    def set_capacity(self, links: np.ndarray, bps: np.ndarray) -> None:
        self.capacity[links] = bps
        self.stale = True

    def reroute(self, flows: np.ndarray, path_offsets: np.ndarray, path_links: np.ndarray) -> None:
        for i, flow in enumerate(flows.tolist()):
            if self.state[flow] < TAIL:
                self.paths[flow] = path_links[path_offsets[i] : path_offsets[i + 1]].copy()
        self.stale = True

    def active(self) -> np.ndarray:
        return np.flatnonzero(self.state == FLYING).astype(np.int32)

    def remaining(self, flows: np.ndarray) -> np.ndarray:
        return np.maximum(self.left[flows], 0.0)

    def start_times(self) -> np.ndarray:
        return self.start.copy()

    def finish_times(self) -> np.ndarray:
        return self.finish.copy()

    def link_bytes(self) -> np.ndarray:
        return self.carried.copy()

    def busy_time(self) -> np.ndarray:
        return self.busy.copy()

    def close(self) -> None:
        pass

    def _settle(self) -> list[tuple[float, int, int]]:
        """Let everything happen that is due now, to the last zero-size flow; return what was
        watched.
        """
        due = self.now * (1 + SAME_INSTANT)
        changed = True
        while changed:
            changed = False
            for flow in np.flatnonzero((self.state == TAIL) & (self.finish <= due)).tolist():
                self.state[flow], changed = DONE, True
            for flow in np.flatnonzero((self.state == WAITING) & (self.ready == np.inf)).tolist():
                before = self.after[flow]
                if (self.state[before] == DONE).all():
                    self.ready[flow], changed = self.now, True
                    if len(before):
                        wait = self.finish[before].max() + self.gap[flow]
                        self.earliest[flow] = max(self.earliest[flow], wait)
            for flow in np.flatnonzero(
                (self.state == WAITING) & (self.ready < np.inf) & (self.earliest <= due)
            ).tolist():
                self.start[flow], self.state[flow], changed = self.now, FLYING, True
                self.stale = True
                if self.size[flow] == 0:
                    self._land(flow)
        return self._seen()

    def _land(self, flow: int) -> None:
        """The last byte has left: the flow is over, but for its latency."""
        self.left[flow] = 0.0
        self.rate[flow] = 0.0
        self.finish[flow] = self.now + self.latency[flow]
        self.state[flow] = TAIL if self.latency[flow] else DONE
        self.stale = True

    def _seen(self) -> list[tuple[float, int, int]]:
        seen = []
        for flow, kind in sorted(self.watched):
            time = self.ready[flow] if kind == READY else self.finish[flow]
            if time < np.inf and (kind == READY or self.state[flow] == DONE):
                seen.append((self.now, flow, kind))
                self.watched.remove((flow, kind))
        return seen

    def _next_event(self) -> float:
        flying = self.active()
        if self.stale:
            self.rate[flying] = max_min_rates(
                self.capacity, *self._csr(flying), self.weight[flying]
            )
            self.stale = False
        moving = flying[self.rate[flying] > 0]
        soonest = [self.now + self.left[moving] * 8 / self.rate[moving]]
        soonest.append(self.finish[self.state == TAIL])
        soonest.append(self.earliest[(self.state == WAITING) & (self.ready < np.inf)])
        return np.concatenate(soonest).min(initial=np.inf)

    def _advance(self, time: float) -> None:
        """Move the clock; flows that end at this instant land."""
        flying, passed = self.active(), time - self.now
        offsets, links = self._csr(flying)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(
                self.rate[flying] > 0, self.now + self.left[flying] * 8 / self.rate[flying], np.inf
            )
        landing = ends <= time * (1 + SAME_INSTANT)
        moved = np.where(landing, self.left[flying], self.rate[flying] / 8 * passed)
        self.left[flying] -= moved
        owner = np.repeat(np.arange(len(flying)), np.diff(offsets))
        self.carried += np.bincount(
            links, (moved * self.weight[flying])[owner], minlength=len(self.carried)
        )
        self.busy[np.unique(links)] += passed
        self.now = time
        for flow in flying[landing].tolist():
            self._land(flow)

    def _csr(self, flows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = [self.paths[f] for f in flows.tolist()]
        lengths = [len(path) for path in chosen]
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), np.concatenate(
            [np.zeros(0, np.int32), *chosen]
        )
