"""What must be sent: traces of flows, collectives lowered to flows, readers and writers of
formats.
"""

from .builder import TraceBuilder
from .collectives import Flows, all_to_all, by_server, point_to_point, ring, scatter
from .formats import TRACE_SUFFIXES, files_of_trace, is_drawn, is_trace, read_trace, write_trace
from .loops import Loop
from .model import PHASES, Origin, PhaseKey, Trace, rack_demand, routing_of
from .scene import Demands, Scene
from .spans import Span
from .stages import PLAN_AHEAD, Stage, begins, stage_demand, stages, waves
from .traffic import Traffic, needs_of

__all__ = [
    "PHASES", "PLAN_AHEAD", "TRACE_SUFFIXES", "Demands", "Flows", "Loop", "Origin", "PhaseKey",
    "Scene", "Span", "Stage", "Trace", "TraceBuilder", "Traffic", "all_to_all", "begins",
    "by_server", "files_of_trace", "is_drawn", "is_trace", "needs_of", "point_to_point",
    "rack_demand", "read_trace", "ring", "routing_of", "scatter", "stage_demand", "stages", "waves",
    "write_trace",
]  # fmt: skip
