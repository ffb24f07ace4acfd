"""What must be sent: traces of flows, collectives lowered to flows, readers and writers of formats."""

from .collectives import Flows, all_to_all, by_server, point_to_point, ring
from .formats import read_trace, write_trace
from .model import PHASES, PhaseKey, Trace, TraceBuilder

__all__ = [
    "PHASES", "Flows", "PhaseKey", "Trace", "TraceBuilder", "all_to_all", "by_server", "point_to_point", "read_trace",
    "ring", "write_trace",
]  # fmt: skip
