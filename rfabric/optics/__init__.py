"""What the OCSes connect now, and who decides what they connect next."""

from .circuits import Circuit, Circuits, Demand, Rewire, clashes, joined, optical_paths
from .planes import light, planes
from .planner import IN_FLIGHT, Decision, RewireRecord, Timing, changed_cables, intend, refuse_disconnection
from .policies import POLICIES, Policy, parse_policy

__all__ = [
    "IN_FLIGHT", "POLICIES", "Circuit", "Circuits", "Decision", "Demand", "Policy", "Rewire", "RewireRecord", "Timing",
    "changed_cables", "clashes", "intend", "joined", "light", "optical_paths", "parse_policy", "planes", "refuse_disconnection",
]  # fmt: skip
