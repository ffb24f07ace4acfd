"""Pictures for files and notebooks, drawn with matplotlib; those of pages are drawn in the page.

    topology    the cables: pods, ToRs, aggregation, core
    timeline    GPUs at work and flows in flight, the whole step
    comparison  time, exposed communication, cost
    rack_circle, pod_circle     circuits: ToRs on a circle, or pods where ToRs are too many, light
                                paths between them

The first three return a matplotlib Figure; `svg` makes it text, `png` a file.
"""

from ..amounts import MOST_RACKS
from .amounts import comparison
from .cabled import PLANE_COLOURS, pod_circle, rack_circle, topology
from .drawing import (
    DARK_COLOUR,
    OTHER_COLOUR,
    PAGE,
    PAGE_WIDTH,
    PHASE_COLOURS,
    PRINT,
    Theme,
    bare,
    png,
    svg,
)
from .times import timeline

__all__ = [
    "DARK_COLOUR",
    "MOST_RACKS",
    "OTHER_COLOUR",
    "PAGE",
    "PAGE_WIDTH",
    "PHASE_COLOURS",
    "PLANE_COLOURS",
    "PRINT",
    "Theme",
    "bare",
    "comparison",
    "pod_circle",
    "rack_circle",
    "png",
    "svg",
    "timeline",
    "topology",
]
