"""The seats of a job: how its generation servers can be cut into replicas, and the settings of the
scheduler that cuts them.
"""

from dataclasses import dataclass, replace
from math import gcd, inf

import numpy as np

from ...compute.roofline import Server, step_of
from ...compute.serving import Batching
from ...errors import RFabricError
from ...rl.timing import server_of
from ...rl.workload import Workload
from ...units import bytes_in
from ..base import AnsweringNetwork
from ..forecasts import check_forecast
from .outlook import Cut, Engines, LengthForecast, outlook


@dataclass(frozen=True)
class Tuning:
    """Settings of the scheduler, `orchestrrl,period=10s,switch=2s`.

    period: between two plans (assumed); balance: between two looks at the balance (assumed);
    hysteresis: share that a change must gain (assumed); switch: to cut a server another way, 2 to 5
    s as notes on the paper have it; moves: responses a second that the balancer may move, 1 to 2 as
    the same notes say; forecast: how lengths and phases to come are foreseen (`forecasts`).

    RFabricError for a setting below its least, or a forecast that there is not.
    """

    period_s: float = 5.0
    balance_s: float = 1.0
    hysteresis: float = 0.05
    switch_s: float = 3.5
    moves: float = 2.0
    forecast: str = "lengths"

    def __post_init__(self):
        check_forecast(self.forecast, "orchestrrl")
        for key, low in (
            ("period_s", 0.1),
            ("balance_s", 0.1),
            ("hysteresis", 0),
            ("switch_s", 0),
            ("moves", 0),
        ):
            if not low <= getattr(self, key) or (getattr(self, key) == inf and key != "period_s"):
                raise RFabricError(
                    f"orchestrrl: {key.removesuffix('_s')} "
                    f"{getattr(self, key):g} must be {low} or more"
                )

    @property
    def tick_s(self) -> float:
        """Seconds from one look at the replicas to the next."""
        return min(self.balance_s, self.period_s)

    def moves_in_look(self, part: float) -> tuple[int, float]:
        """Responses that the balancer may move in a look, whole ones, and what is left for the
        next; `part`: what the look before left.
        """
        may = part + self.moves * self.tick_s
        whole = int(may + 1e-9)
        return whole, may - whole


def engines_of(w: Workload) -> Engines:
    """The cuts of a seat that hold the model and its longest sequence; expert parallelism where
    there are experts.

    RFabricError where no cut holds them.
    """
    seat = seat_gpus(w)
    cuts = [cut for cut in _cuts(w, seat) if _holds(w, cut)]
    if not cuts:
        raise RFabricError(
            f"scheduler orchestrrl: no cut of {seat} GPUs holds {w.model.name} and "
            f"{w.generation.longest} tokens"
        )
    servers = [_server(w, cut) for cut in cuts]
    kv = tuple(server.kv_capacity_tokens for server in servers)
    return Engines(
        tuple(cuts), tuple(map(step_of, servers)), kv, tuple(seat // cut.gpus for cut in cuts)
    )


def seat_gpus(w: Workload) -> int:
    """GPUs of a seat: of a server, or what divides the pool and a server."""
    return gcd(w.cluster.generation_gpus, w.gpus_per_server)


def _cuts(w: Workload, seat: int) -> list[Cut]:
    wide = [n for n in range(1, seat + 1) if seat % n == 0]
    return [
        Cut(tp, n // tp)
        for n in wide
        for tp in wide
        if n % tp == 0 and (n == tp or w.model.experts)
    ]


def _holds(w: Workload, cut: Cut) -> bool:
    try:
        if cut.dp == 1:
            replace(w, generation=replace(w.generation, tp=cut.tp))
    except RFabricError:  # columns that it does not divide, or no room for the longest sequence
        return False
    fits = w.model.heads % cut.tp == 0 and (cut.dp == 1 or w.model.experts.count % cut.gpus == 0)
    return fits and _server(w, cut).kv_capacity_tokens >= cut.dp * w.generation.longest


def _server(w: Workload, cut: Cut) -> Server:
    return replace(server_of(w), tp=cut.tp, dp=cut.dp, ep=cut.gpus if cut.dp > 1 else 1)


def with_replicas_of(w: Workload, gpus: int) -> Workload:
    """The job with replicas of so many GPUs, where its checks allow: weight sync goes to these."""
    try:
        return replace(w, generation=replace(w.generation, tp=gpus))
    except RFabricError:
        return w


@dataclass(frozen=True, eq=False)
class Seats:
    """The generation servers of a job, the ways to cut each, how the scheduler is set, and who
    answers its proposals (None: it takes network cards for all there is).
    """

    workload: Workload
    engines: Engines
    tuning: Tuning
    network: AnsweringNetwork | None = None

    @property
    def count(self) -> int:
        """How many seats the generation pool has."""
        return self.workload.cluster.generation_gpus // seat_gpus(self.workload)

    def gpus(self, seat: int, cut: int, replica: int) -> tuple[int, ...]:
        """The GPUs of a replica of a seat."""
        size = self.engines.cuts[cut].gpus
        first = (
            self.workload.first_generation_gpu + seat * seat_gpus(self.workload) + replica * size
        )
        return tuple(range(first, first + size))

    def batching(self, cut: int) -> Batching:
        """How a replica forms its batches: each attention replica has the recipe's places."""
        return Batching(
            max_num_seqs=self.workload.generation.max_num_seqs * self.engines.cuts[cut].dp
        )

    def prefill(self, cut: int, context: np.ndarray) -> np.ndarray:
        """Seconds to compute contexts of so many tokens again (float64[n])."""
        step = self.engines.steps[cut]
        return np.array([step.mixed(0, 0, c, c * c / 2) for c in context.tolist()])

    def carry(self, cut: int, context: np.ndarray) -> np.ndarray:
        """Seconds to send the KV of such contexts through the NICs of a replica (float64[n])."""
        size = context * self.workload.served.kv_bytes_per_token
        return size / bytes_in(1.0, self.workload.nic_bps * self.engines.cuts[cut].gpus)


def start_cut(
    seats: Seats, expected: LengthForecast, prompts: np.ndarray, outputs: np.ndarray | None = None
) -> int:
    """The cut with which every step begins: the one that a seat is expected to be done soonest
    with, later cuts included; outputs: tokens of the responses, where they are known.
    """
    if seats.tuning.period_s == inf:
        return seats.engines.cuts.index(Cut(seats.workload.generation.tp))
    seen = outlook(
        seats.engines,
        expected,
        np.zeros(len(prompts), int),
        prompts,
        seats.count,
        seats.tuning.switch_s,
        outputs,
    )
    return int(seen.seconds(seats.count).argmin())
