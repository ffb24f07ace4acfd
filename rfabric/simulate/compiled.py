"""The compiled core (`core.cpp`) behind the engine's interface, through ctypes: arrays in, arrays
out.
"""

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np

from .. import native
from ..errors import RFabricError
from .inputs import Batch
from .reference import EVENTS

AT_REST, AT_TIME, WATCHED, BREATHES, NO_MEMORY = 0, 1, 2, 3, -1
COUNTERS = (
    "instants", "evaluations", "changes", "fills", "visits", "takeovers", "fallbacks", "joined",
)  # fmt: skip


@cache
def library() -> ctypes.CDLL | None:
    """The loaded core; None where it was never built."""
    core = native.core()
    return None if core is None else declared(core)


def declared(core: ctypes.CDLL) -> ctypes.CDLL:
    """An engine's library, with what its functions take and give; those that it lacks left out."""
    handle, count, array = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    for name, result, arguments in (
        ("rf_new", handle, [array, count, ctypes.c_double]),
        ("rf_free", None, [handle]),
        ("rf_add", ctypes.c_int, [handle, count, *[array] * 9]),
        ("rf_watch", ctypes.c_int, [handle, count, array]),
        ("rf_run", ctypes.c_int, [handle, ctypes.c_double]),
        ("rf_event_count", count, [handle]),
        ("rf_take_events", None, [handle, array, array, array]),
        ("rf_set_capacity", ctypes.c_int, [handle, count, array, array]),
        ("rf_reroute", ctypes.c_int, [handle, count, array, array, array]),
        ("rf_active", count, [handle, array]),
        ("rf_remaining", None, [handle, count, array, array]),
        ("rf_now", ctypes.c_double, [handle]),
        ("rf_finished", count, [handle]),
        ("rf_flows", count, [handle]),
        ("rf_times", None, [handle, array, array]),
        ("rf_link_bytes", None, [handle, array]),
        ("rf_busy_time", None, [handle, array]),
        ("rf_counters", None, [handle, array]),
    ):
        if function := getattr(core, name, None):
            function.restype, function.argtypes = result, arguments
    return core


class CompiledEngine:
    """A `rfabric.simulate.flows.EngineCore` in C++.

    Threads take turns: what one has freed, or still changes, no other enters.
    """

    def __init__(self, capacity: np.ndarray, tolerance: float = 0.0):
        self._core, self._turn = library(), threading.RLock()
        self._links = len(capacity)
        self._handle = self._core.rf_new(_at(capacity), len(capacity), tolerance)
        if not self._handle:
            raise MemoryError(f"no memory for {len(capacity)} links")

    def close(self) -> None:
        """Free the memory; nothing can be called then."""
        if getattr(self, "_handle", None):
            with self._turn:
                handle, self._handle = self._handle, None
                self._core.rf_free(handle)

    __del__ = close

    def _call(self, name: str, *arguments: Any) -> Any:
        """A function of the core on this engine; RFabricError where it was closed."""
        with self._turn:
            if not self._handle:
                raise RFabricError("this engine was closed: make another")
            return getattr(self._core, name)(self._handle, *arguments)

    @property
    def now(self) -> float:
        return self._call("rf_now")

    @property
    def finished(self) -> int:
        """Flows that have ended."""
        return self._call("rf_finished")

    def add(self, batch: Batch) -> None:
        columns = (
            batch.path_offsets,
            batch.path_links,
            batch.size,
            batch.start,
            batch.after_offsets,
            batch.after,
            batch.gap,
            batch.latency,
            batch.weight,
        )
        _done(self._call("rf_add", len(batch), *map(_at, columns)))

    def watch(self, flows: np.ndarray) -> None:
        _done(self._call("rf_watch", len(flows), _at(flows)))

    def run(self, until: float, breath=None) -> np.ndarray:
        """Events, as the reference gives them; `breath()` is called now and then, and Ctrl-C is
        heard.
        """
        while _done(self._call("rf_run", until)) == BREATHES:
            if breath:
                breath()
        with self._turn:
            n = self._call("rf_event_count")
            events = np.zeros(n, EVENTS)
            if n:
                time, flow, kind = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int8)
                self._call("rf_take_events", _at(time), _at(flow), _at(kind))
                events["time"], events["flow"], events["kind"] = time, flow, kind
        return events

    def set_capacity(self, links: np.ndarray, bps: np.ndarray) -> None:
        _done(self._call("rf_set_capacity", len(links), _at(links), _at(bps)))

    def reroute(self, flows: np.ndarray, path_offsets: np.ndarray, path_links: np.ndarray) -> None:
        _done(self._call("rf_reroute", len(flows), _at(flows), _at(path_offsets), _at(path_links)))

    def active(self) -> np.ndarray:
        with self._turn:
            flows = np.empty(_done(self._call("rf_active", None)), np.int32)
            _done(self._call("rf_active", _at(flows)))
        return flows

    def remaining(self, flows: np.ndarray) -> np.ndarray:
        left = np.empty(len(flows))
        self._call("rf_remaining", len(flows), _at(flows), _at(left))
        return left

    def start_times(self) -> np.ndarray:
        with self._turn:
            times = np.empty(self._call("rf_flows"))
            self._call("rf_times", _at(times), None)
        return times

    def finish_times(self) -> np.ndarray:
        with self._turn:
            times = np.empty(self._call("rf_flows"))
            self._call("rf_times", None, _at(times))
        return times

    def link_bytes(self) -> np.ndarray:
        carried = np.empty(self._links)
        self._call("rf_link_bytes", _at(carried))
        return carried

    def busy_time(self) -> np.ndarray:
        busy = np.empty(self._links)
        self._call("rf_busy_time", _at(busy))
        return busy

    def counters(self) -> dict[str, int]:
        """How much work the run was: instants, level evaluations and changes, full solves, flow
        visits, ...
        """
        out = np.empty(len(COUNTERS), np.int64)
        self._call("rf_counters", _at(out))
        return dict(zip(COUNTERS, out.tolist(), strict=True))


def _at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def _done(code: int) -> int:
    if code == NO_MEMORY:
        raise MemoryError(
            "the flow engine ran out of memory: simulate fewer flows at once, or "
            "fold identical ones"
        )
    return code
