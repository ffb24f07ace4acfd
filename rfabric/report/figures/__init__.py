"""The pictures of a report, drawn with matplotlib.

SVG follows the page's light or dark colours, PNG is for files.

    topology    the cables: pods, ToRs, aggregation, core
    circuits    per epoch: ToRs on a circle, or pods where ToRs are too many, light paths between
                them
    timeline    GPUs at work and flows in flight, the whole step
    close_ups   flows in flight of each communication phase, run by run
    comparison  time, exposed communication, cost
    pareto      step time against dollars: the network's, and the whole bill
    demand      rack to rack (or pod to pod) bytes by phase
    load        utilisation of every directed link by tier: dots, or how often each occurs

Every function returns a matplotlib Figure; `svg` makes it text for a page, `png` a file.
"""

from .amounts import by_tier, comparison, demand, demands, load
from .cabled import PLANE_COLOURS, circuits, pod_circle, rack_circle, topology
from .drawing import (
    DARK_COLOUR,
    EPS_COLOUR,
    MOST_RACKS,
    OCS_COLOUR,
    OTHER_COLOUR,
    PAGE,
    PAGE_WIDTH,
    PHASE_COLOURS,
    PRINT,
    Theme,
    bare,
    framed,
    png,
    svg,
)
from .pareto import pareto
from .times import close_ups, timeline

__all__ = [
    "DARK_COLOUR",
    "EPS_COLOUR",
    "MOST_RACKS",
    "OCS_COLOUR",
    "OTHER_COLOUR",
    "PAGE",
    "PAGE_WIDTH",
    "PHASE_COLOURS",
    "PLANE_COLOURS",
    "PRINT",
    "Theme",
    "bare",
    "by_tier",
    "circuits",
    "close_ups",
    "comparison",
    "demand",
    "demands",
    "load",
    "pareto",
    "png",
    "pod_circle",
    "rack_circle",
    "framed",
    "svg",
    "timeline",
    "topology",
]
