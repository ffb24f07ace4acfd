"""What must be sent: traces of flows, collectives lowered to flows, readers and writers of formats."""

from .builder import TraceBuilder
from .collectives import (
    Flows,
    all_to_all,
    broadcast,
    by_server,
    halving_doubling,
    hierarchical_all_to_all,
    point_to_point,
    ring,
    scatter,
    tree_all_reduce,
)
from .formats import TRACE_SUFFIXES, read_trace, write_trace
from .loops import Loop
from .model import PHASES, Origin, PhaseKey, Trace, routing_of
from .scene import Demands, Scene
from .spans import Span
from .stages import PLAN_AHEAD, Stage, begins, stage_demand, stages, waves
from .traffic import Traffic

__all__ = [
    "PHASES", "PLAN_AHEAD", "TRACE_SUFFIXES", "Demands", "Flows", "Loop", "Origin", "PhaseKey", "Scene", "Span", "Stage",
    "Trace", "TraceBuilder", "Traffic", "all_to_all", "begins",
    "broadcast", "by_server", "halving_doubling", "hierarchical_all_to_all", "point_to_point", "read_trace", "ring",
    "routing_of", "scatter", "stage_demand", "stages", "tree_all_reduce", "waves", "write_trace",
]  # fmt: skip
