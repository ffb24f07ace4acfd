"""Several jobs that share GPUs: jobs and pools, groups and their round robin, policies, days of
arrivals, one trace.
"""

from .cluster import ClusterBill, Stay, run
from .groups import (
    ExecutionGroup,
    Tail,
    iteration_seconds,
    meta_iterations,
    migrated_period,
    violations,
)
from .jobs import Job, Pools, Profile, read_jobs
from .policies import POLICIES, Placement, policy_of
