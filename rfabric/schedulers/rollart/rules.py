"""What is told of rollouts, and what comes of them: rules of making steps of trajectories, steps
made, outcome.
"""

from dataclasses import dataclass

from ...errors import RFabricError
from .engines import Trajectory


@dataclass(frozen=True)
class RolloutRules:
    """How a system makes steps of trajectories.

    parallel: training runs beside the rollouts of the next step; continuous: a group of
    environments begins anew when it is complete, for up to `ahead` (None: `staleness`) steps after
    the next (else a step's begin together); batched: all trajectories take their turns in step.
    batch: trajectories a step, in groups of `group` with the same prompt, which train together;
    redundancy: how many more of a group are begun, of which the first `group` to end are kept.
    staleness: weight updates that a buffered or running trajectory may lack; older ones are
    aborted.
    suspended: seconds engines stand still for an update; transfer: seconds before, from the end of
    training, in which they go on. reward_slots: rewards at a time on dedicated GPUs, after the
    rollouts where batched; None: serverless, at once.

    RFabricError for rules that contradict each other or are out of bounds.
    """

    batch: int
    group: int = 1
    parallel: bool = False
    continuous: bool = False
    batched: bool = False
    redundancy: float = 1.0
    staleness: int = 1
    ahead: int | None = None
    suspended: float = 0.0
    transfer: float = 0.0
    reward_slots: int | None = None

    def __post_init__(self):
        if self.batch < 1:
            raise RFabricError(
                f"rollouts: a batch of {self.batch} trajectories; it needs 1 or more"
            )
        if self.group < 1 or self.batch % self.group:
            raise RFabricError(
                f"rollouts: a batch of {self.batch} trajectories does not divide into groups "
                f"of {self.group}"
            )
        if not self.redundancy >= 1:
            raise RFabricError(
                f"rollouts: redundancy {self.redundancy:g} must be 1 (none) or more, such as 1.25"
            )
        if self.staleness < 0 or (self.continuous and self.staleness < 1):
            raise RFabricError(
                f"rollouts: staleness {self.staleness} must be 1 or more where trajectories go "
                "on over weight updates"
            )
        if self.reward_slots is not None and self.reward_slots < 1:
            raise RFabricError(
                f"rollouts: {self.reward_slots} reward slots; a dedicated reward needs 1 or more"
            )
        if self.batched and (self.continuous or self.redundancy > 1):
            raise RFabricError(
                "rollouts: batched turns wait for every trajectory, all started together; "
                "neither continuous nor redundant"
            )

    @property
    def members(self) -> int:
        """Trajectories of a group that are begun."""
        return round(self.group * self.redundancy)

    @property
    def steps_ahead(self) -> int:
        """Steps after the next for which trajectories may begin."""
        return self.staleness if self.ahead is None else self.ahead

    @property
    def slots(self) -> int:
        """Groups of environments: a step takes as many groups of trajectories."""
        return self.batch // self.group

    @property
    def environments(self) -> int:
        """Trajectories under way at most."""
        return self.slots * self.members


@dataclass(frozen=True, eq=False)
class Iteration:
    """One step: when rollouts for it began, when its batch was there, when its training began and
    ended (s).

    resumed: when engines went on with new weights; stale: updates that each trajectory of the batch
    lacked when taken.
    """

    number: int
    began: float
    ready: float
    resumed: float
    training: tuple[float, float]
    batch: tuple[Trajectory, ...]
    stale: tuple[int, ...]
    # seconds of prefill and decode of each engine since the last batch
    busy: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, eq=False)
class RolloutOutcome:
    """What came of it; of all trajectories begun: trained, or why not; `events`: (time, what,
    number) of starts and ends.
    """

    iterations: tuple[Iteration, ...]
    counts: dict[str, int]
    events: tuple[tuple[float, str, int], ...]
    peak_tokens: tuple[int, ...]
    reward_busy: float = 0.0

    def step_seconds(self, skip: int = 1) -> float:
        """Seconds from one step's end of training to the next's: the mean, without the first
        `skip`.
        """
        ends = [it.training[1] for it in self.iterations]
        return (ends[-1] - ends[skip - 1]) / (len(ends) - skip) if skip else ends[-1] / len(ends)
