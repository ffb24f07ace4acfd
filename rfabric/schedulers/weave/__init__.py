"""Several jobs that share GPUs: jobs and pools, groups and their round robin, policies, days of
arrivals, one trace.
"""

from .cluster import ClusterBill, Stay, run
from .groups import (
    ExecutionGroup,
    JobTurn,
    Tail,
    iteration_seconds,
    meta_iterations,
    migrated_period,
    violations,
)
from .jobs import Job, Pools, Profile, read_jobs
from .policies import POLICIES, Placement, policy_of

__all__ = [
    "POLICIES", "ClusterBill", "ExecutionGroup", "Job", "JobTurn", "Placement",
    "Pools", "Profile", "Stay", "Tail", "iteration_seconds",
    "meta_iterations", "migrated_period",
    "policy_of", "read_jobs", "run", "violations",
]  # fmt: skip
