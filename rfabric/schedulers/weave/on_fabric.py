"""What a job takes on the servers of a fabric: the one place where the profile of a job that shares
nodes is made of what its fabric answers.

    generation   as planned, and what the fabric is later than network cards with what it sends
    training     likewise
    weight sync  its software, and the answers for its levels, of the strategy that was agreed
    switches     as measured: what warms a phase comes from the server's own memory

The answers are those of a negotiation (`schedulers.networks`): circuits that the fabric's policy
would light, from circuits that suit all racks alike, and the delay of that rewire. They are those
of a job whose phase has the fabric to itself: what other groups send meanwhile is not among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from ...errors import RFabricError
from ...fabric import Fabric
from ...rl.lengths import Lengths
from ...rl.lowering import trace_of
from ...rl.workload import Workload
from ...trace import Flows, PhaseKey
from .. import DEFAULT_CIRCUITS
from ..networks import Cards, FabricNetwork, agreed_sync, foreseen
from .jobs import Profile
from .traffic import profile_of

SENDING = ("generation", "training")  # phases whose plan holds what network cards add


@dataclass(frozen=True, eq=False)
class FabricProfiles:
    """The profiles of jobs on a fabric under a circuit policy, each worked out once for the servers
    that it has.
    """

    fabric: Fabric
    circuits: str = DEFAULT_CIRCUITS
    known: dict[tuple, Profile] = field(default_factory=dict)

    @cached_property
    def network(self) -> FabricNetwork:
        """Whom they ask."""
        return foreseen(self.fabric, self.circuits)

    def of(self, w: Workload, train: Sequence[int], roll: Sequence[int]) -> Profile:
        """The profile of a job that trains and generates on these servers, by number.

        RFabricError where the fabric refuses to carry what it sends.
        """
        key = w, tuple(train), tuple(roll)
        if key not in self.known:
            self.known[key] = _profile(w, self.seated(w, train, roll))
        return self.known[key]

    def seated(self, w: Workload, train: Sequence[int], roll: Sequence[int]) -> FabricNetwork:
        """Whom a job on these servers asks."""
        return replace(self.network, seats=seats(w, train, roll))


def seats(w: Workload, train: Sequence[int], roll: Sequence[int]) -> tuple[int, ...]:
    """The number of the host of each GPU: training GPUs in turn on their servers, generation GPUs
    on theirs.
    """
    size, cluster = w.gpus_per_server, w.cluster
    pools = (train, cluster.training_gpus), (roll, cluster.generation_gpus)
    return tuple(
        server * size + i
        for servers, gpus in pools
        for server, i in [(s, i) for s in servers for i in range(size)][:gpus]
    )


@lru_cache(256)
def at_its_longest(w: Workload) -> Workload:
    """The job with every response as long as it may be, as Weave plans: worst case."""
    most = float(w.generation.max_response)
    longest = Lengths("longest", np.array([0.0, 1.0]), np.array([most, most]))
    return replace(w, generation=replace(w.generation, lengths=longest))


def _profile(w: Workload, network: FabricNetwork) -> Profile:
    planned, sent = planned_profile(w)
    agreed, facts = agreed_sync(w, network)
    later = {kind: _later(w, kind, flows, network) for kind, flows in sent.items()}
    return replace(
        planned,
        roll=planned.roll + later["generation"],
        train=planned.train + later["training"],
        sync=facts["weight_sync_s"][agreed.weight_sync.strategy],
    )


@lru_cache(256)
def planned_profile(w: Workload) -> tuple[Profile, Mapping[str, Flows]]:
    """The profile of a job by network cards, and what its phases send between servers."""
    one_step = replace(w, steps=1)
    trace = trace_of(one_step)
    rows = {kind: trace.rows(PhaseKey(0, kind)) for kind in SENDING}
    rows = {kind: some[trace.size[some] > 0] for kind, some in rows.items()}
    sent = {
        kind: Flows(trace.src[some], trace.dst[some], trace.total[some])
        for kind, some in rows.items()
    }
    return profile_of(one_step), sent


def _later(w: Workload, kind: str, sent: Flows, network: FabricNetwork) -> float:
    """Seconds by which a fabric is later than network cards with what a phase sends."""
    answer = network.answer(sent)
    if answer.refused:
        raise RFabricError(f"{network.name} refuses the {kind} of {w.name}: {answer.why}")
    return max(answer.seconds - Cards(w).answer(sent).seconds, 0.0)
