"""What the OCSes connect now, and who decides what they connect next."""

from .circuits import Circuit, Circuits, Demand, Rewire, check_ports, clashes, joined, optical_paths
from .guarded import check_policy, parse_policy
from .planes import light, planes, regions
from .planner import (
    IN_FLIGHT,
    Decision,
    RewireRecord,
    Timing,
    arrival,
    changed_cables,
    intend,
    refuse_disconnection,
)
from .policies import DEFAULT_SLOT, GRANULARITIES, POLICIES, CircuitPolicy, Policy, completion

__all__ = [
    "DEFAULT_SLOT", "GRANULARITIES", "IN_FLIGHT", "POLICIES", "Circuit", "CircuitPolicy",
    "Circuits", "Decision", "Demand", "Policy", "Rewire", "RewireRecord", "Timing", "arrival",
    "changed_cables", "check_policy", "check_ports", "clashes", "completion", "intend", "joined",
    "light", "optical_paths", "parse_policy", "planes", "refuse_disconnection", "regions",
]  # fmt: skip
