"""New weights on their way to the other cluster: pushed to a store bucket by bucket, pulled from
it, loaded by engines.
"""

from dataclasses import dataclass, replace

from ...compute.sync_time import UNPACK

# Mooncake moved the 65.5 GB of Qwen3-32B in 29.649 s over TCP, from one cluster to the other, and
# in 9.442 s over RDMA inside one.
PUSH, PULL = 65.5e9 / 29.649, 65.5e9 / 9.442
BUCKET = 1e9


@dataclass(frozen=True)
class Transfer:
    """Seconds of new weights on their way: pushed over the slow link, pulled from the store, loaded
    by engines.
    """

    push: float
    pull: float
    load: float

    @property
    def naive(self) -> float:
        """One after the other, engines suspended."""
        return self.push + self.pull + self.load

    @property
    def exposed(self) -> float:
        """What engines stand still for when all but loading goes on beside rollouts."""
        return self.load

    @property
    def hidden(self) -> float:
        """From the end of training until the last bucket is pulled: the pull of all others hides
        behind the push.
        """
        return max(self.push, self.pull)


def transfer(size: float) -> Transfer:
    """A copy of `size` bytes from one cluster to the other, in buckets."""
    copy = Transfer(size / PUSH, size / PULL, size / UNPACK)
    last = min(1.0, BUCKET / size)
    return replace(copy, push=copy.push + last * copy.pull)
