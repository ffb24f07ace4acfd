"""Who computes what and when: schedulers of one job, and of several that share GPUs."""

DEFAULT_CIRCUITS = "own"  # the circuit policy that the fabric was designed for
