"""Who computes what and when: schedulers of one job, and of several that share GPUs."""
