"""The flow-level engine: when does each flow finish, if all share the network max-min fairly?

    engine = rfabric.simulate.Engine([10e9, 10e9])  # two directed links, bit/s
    # bytes on the paths 0-1 and 1
    engine.add(path_offsets=[0, 2, 3], path_links=[0, 1, 1], size=[1e9, 1e9])
    engine.run()
    engine.finish_times()  # [1.6, 1.6] s

A flow is a fluid: at every moment it runs at the max-min fair rate of its path. It starts at
``max(start, max(finish of its after) + gap)`` and its finish is the instant its last byte leaves
plus its `latency`. A row of size 0 moves nothing and finishes at its start (plus latency): a
marker, a barrier, a piece of compute. Its path may be empty. `weight` makes one row stand for so
many identical flows; `size` is that of one of them.

Units: bit/s for capacities, bytes for sizes, seconds for times. Ids count from 0 in the order of
adding. Two implementations share this interface and agree to 1e-9: the compiled core, and a numpy
reference that is a few hundred times slower and serves where the core was not built.
"""

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .. import native
from ..errors import RFabricError
from . import compiled, inputs
from .reference import SAME_INSTANT, ReferenceEngine

log = logging.getLogger(__name__)

FlowProgress = Callable[[float, int, int], None]  # now (s), flows finished, flows known
BREATH_S = 0.1  # least time between two calls of a progress function


class Deadlock(UserWarning):
    """Some flows can never finish: they wait on a dark link, or on flows that do."""


class EngineCore(Protocol):
    """What works beneath an `Engine`, which has checked what it is given: arrays of flows, bit/s of
    directed links, times in s.
    """

    @property
    def now(self) -> float:
        """The time of day."""

    def add(self, batch: inputs.Batch) -> None:
        """Add flows."""

    def watch(self, flows: np.ndarray) -> None:
        """Stop a run when one of these becomes ready or finishes."""

    def run(self, until: float) -> np.ndarray:
        """Advance to `until`, or through the first instant with an event of a watched flow."""

    def set_capacity(self, links: np.ndarray, bps: np.ndarray) -> None:
        """From now on these links carry so much."""

    def reroute(self, flows: np.ndarray, path_offsets: np.ndarray, path_links: np.ndarray) -> None:
        """From now on these flows take these paths."""

    def active(self) -> np.ndarray:
        """The flows in flight, ascending: int32."""

    def remaining(self, flows: np.ndarray) -> np.ndarray:
        """Bytes that each still has to send: float64."""

    def start_times(self) -> np.ndarray:
        """When every flow started; nan where it has not: float64."""

    def finish_times(self) -> np.ndarray:
        """When every flow ends, latency included, as far as that is known; else inf: float64."""

    def link_bytes(self) -> np.ndarray:
        """Bytes carried so far by every link: float64."""

    def busy_time(self) -> np.ndarray:
        """Seconds during which at least one flow was in flight on each link: float64."""

    def close(self) -> None:
        """Free the memory; nothing can be called then."""


class Engine:
    """Flows on directed links, event by event; between two runs the network and the flows may
    change.

    `capacity` in bit/s, one value a directed link; 0 is a dark link. `tolerance`: relative rate
    changes below it are ignored (0: exact). `core`: "compiled", "reference", or "auto" for the
    first that is there. `progress(now, finished, known)` is called about ten times a second while a
    run lasts. `engine`: an EngineCore that is there already, of packets for example.
    """

    def __init__(
        self,
        capacity,
        *,
        tolerance: float = 0.0,
        core: str = "auto",
        progress: FlowProgress | None = None,
        engine: EngineCore | None = None,
    ):
        checked = inputs.capacities(capacity)
        self.links = len(checked)
        self.flows = 0
        self.core = "given" if engine else _choose(core)
        make = ReferenceEngine if self.core == "reference" else compiled.CompiledEngine
        self._engine: Any = engine or make(checked, inputs.tolerance(tolerance))
        self._capacity = checked.copy()
        self._progress = progress
        self._called = time.monotonic()

    @property
    def now(self) -> float:
        """The time of day, s: where the last run stopped."""
        return float(self._engine.now)

    def add(self, **columns) -> None:
        """Add flows; `inputs.batch` says what the columns are and checks them."""
        batch = inputs.batch(self.flows, self.links, **columns)
        self._engine.add(batch)
        self.flows += len(batch)

    def watch(self, flows) -> None:
        """Let run() stop when one of these becomes ready (all of its `after` finished, its gap not
        begun) or finishes.

        A flow that is ready already, but not started, is reported by the next run. Each kind is
        reported once.
        """
        self._engine.watch(inputs.ids("flows", flows, self.flows, "flows"))

    def run(self, until: float = np.inf) -> np.ndarray:
        """Advance to `until` (s), or to the end of the first instant with an event of a watched
        flow.

        Returns the events of that instant as records (time, flow, kind: READY or FINISHED), by
        flow; none if `until` was reached (`now` is then `until`) or if nothing more can happen
        (then `now` is the last instant at which something did, or `until` where that is finite).
        Where nothing is watched and nothing was played before, a large run to the end uses all
        cores that this process may use (docs/scale.md).
        RFabricError where `until` is over.
        """
        if not until >= self.now:
            raise RFabricError(
                f"run(until={until:g}): the time is {self.now:g} s already; time does not go back"
            )
        if self.core == "reference":
            return self._engine.run(float(until))
        return self._engine.run(float(until), self._breathe if self._progress else None)

    def set_capacity(self, links, bps) -> None:
        """From now on these links carry so much, bit/s; 0 makes one dark.

        Give all links of one rewire in one call.
        """
        links = inputs.ids("links", links, self.links, "links")
        self._capacity[links] = bps = inputs.capacities(bps, len(links))
        self._engine.set_capacity(links, bps)

    def reroute(self, flows, path_offsets, path_links) -> None:
        """From now on these flows take these paths; what is left to send is kept.

        Finished ones are left alone. RFabricError for an empty path of one that has bytes left.
        """
        flows = inputs.ids("flows", flows, self.flows, "flows")
        offsets, links = inputs.paths(path_offsets, path_links, self.links, len(flows))
        bare = flows[np.diff(offsets) == 0]
        bare = bare[self._engine.remaining(bare) > 0]
        if len(bare):
            raise RFabricError(
                f"flow {bare[0]} has bytes to send: it cannot be given an empty path"
            )
        self._engine.reroute(flows, offsets, links)

    def active(self) -> np.ndarray:
        """Ids of the flows in flight, ascending (int32)."""
        return self._engine.active()

    def remaining(self, flows) -> np.ndarray:
        """Bytes that each of these flows still has to send."""
        return self._engine.remaining(inputs.ids("flows", flows, self.flows, "flows"))

    def start_times(self) -> np.ndarray:
        """Start of every flow, s; nan where it has not started."""
        return self._engine.start_times()

    def finish_times(self) -> np.ndarray:
        """Finish of every flow, s, latency included; inf where it has not finished."""
        finish = self._engine.finish_times()
        finish[finish > self.now * (1 + SAME_INSTANT)] = np.inf
        return finish

    def link_bytes(self) -> np.ndarray:
        """Bytes carried so far by every link."""
        return self._engine.link_bytes()

    def utilisation(self, edges) -> np.ndarray:
        """Run on through the times `edges` (s, ascending); how full was each link between one and
        the next?

        Array (len(edges) - 1, links): the mean share of its capacity that a link carried; 0 for a
        dark one. Watched flows do not stop this run, and what happens to them is not told. A bin
        costs one look at every flow in flight and every link: nothing beside the many events of a
        bin, but as much as a tenth of a collective that moves in lockstep.
        """
        edges = inputs.edges(edges, self.now)
        carried = np.empty((len(edges), self.links))
        for at, edge in enumerate(edges):
            while len(self.run(edge)):
                pass
            carried[at] = self.link_bytes()
        most = np.diff(edges)[:, None] * self._capacity / 8
        return np.divide(np.diff(carried, axis=0), most, out=np.zeros_like(most), where=most > 0)

    def busy_time(self) -> np.ndarray:
        """Seconds during which at least one flow was in flight on each link, stalled or not."""
        return self._engine.busy_time()

    def counters(self) -> dict[str, int]:
        """Work done inside the compiled core so far (level evaluations, full solves, ...); empty
        for the reference.
        """
        return self._engine.counters() if self.core == "compiled" else {}

    def close(self) -> None:
        """Free the memory now rather than when the object goes; whatever else is called then is an
        RFabricError.
        """
        self._engine.close()
        self._engine = _Closed()

    def _breathe(self) -> None:
        if time.monotonic() - self._called >= BREATH_S:
            self._called = time.monotonic()
            self._progress(self.now, self._engine.finished, self.flows)


class _Closed:
    """In the place of an engine that was closed."""

    def close(self) -> None:
        pass

    def __getattr__(self, name: str):
        raise RFabricError("this engine was closed: make another")


def completion_times(
    *,
    capacity,
    tolerance: float = 0.0,
    core: str = "auto",
    progress: FlowProgress | None = None,
    **columns,
) -> np.ndarray:
    """Finish time of every flow, s; inf, with a Deadlock warning that names them, for flows that
    can never finish.

    `capacity` is bit/s per directed link; `columns` are the flows, as `inputs.batch` takes them;
    the options are those of `Engine`.
    """
    run = Engine(capacity, tolerance=tolerance, core=core, progress=progress)
    run.add(**columns)
    run.run()
    finish = run.finish_times()
    stuck = deadlock(run)
    if stuck:
        warnings.warn(stuck, Deadlock, stacklevel=2)
    run.close()
    return finish


def deadlock(engine: Engine) -> str | None:
    """What to tell the user when a run came to rest with flows unfinished; None if all finished."""
    unfinished = np.flatnonzero(np.isinf(engine.finish_times()))
    if not len(unfinished):
        return None
    stalled = engine.active()
    waiting = np.setdiff1d(unfinished, stalled)
    parts = [f"{len(stalled)} are stalled on dark links: {_some(stalled)}"] if len(stalled) else []
    parts += [f"{len(waiting)} wait for them: {_some(waiting)}"] if len(waiting) else []
    return f"{len(unfinished)} of {engine.flows} flows never finish; " + "; ".join(parts)


def _some(flows: np.ndarray, shown: int = 8) -> str:
    text = ", ".join(str(flow) for flow in flows[:shown].tolist())
    return text if len(flows) <= shown else f"{text}, ..."


def _choose(core: str) -> str:
    if core not in ("auto", "compiled", "reference"):
        raise RFabricError(f'core is {core!r}: choose "auto", "compiled" or "reference"')
    if core == "reference" or compiled.library():
        return "reference" if core == "reference" else "compiled"
    missing = f"the compiled core {native.LIBRARY} is missing: run python -m rfabric.simulate.build"
    if core == "compiled":
        raise RFabricError(missing)
    warnings.warn(
        f"{missing}; the numpy reference runs instead, hundreds of times slower", stacklevel=4
    )
    return "reference"
