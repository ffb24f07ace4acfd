"""What must be sent: traces of flows, collectives lowered to flows, readers and writers of
formats.
"""

from .builder import TraceBuilder
from .collectives import Flows, all_to_all, point_to_point, ring, scatter
from .formats import TRACE_SUFFIXES, files_of_trace, is_trace, read_trace, write_trace
from .loops import Loop
from .model import PHASES, PhaseKey, Trace, rack_demand, routing_of
from .scene import Demands, Scene
from .spans import Span
from .stages import PLAN_AHEAD, Stage, begins, stage_demand, stages, waves
from .traffic import Traffic, needs_of
