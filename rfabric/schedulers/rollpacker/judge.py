"""A judge beside the actor: a reward model that reads every response on the GPUs that generate it.

    SMs    actor |== decode ====================================|   1 - share of them (MPS)
           judge        |read 1|read 2|..|   |read 1|read 2|..|     share of them
    PCIe         |load 1|load 2|load 3|..   |load 1|load 2|..       its layers, from the host

A judge stands on the GPUs of a replica and is cut like it. Its weights stay in the host's memory; a
batch passes through them layer by layer, while the next layer is loaded, so that two of them are
all that it takes of the HBM:

    a batch of L layers = L max(load, read) + min(load, read)

Responses are dealt to judges in turn as they end, whoever made them, so that long ones do not pile
up: prompt and response go to the judge as text. A judge that is free takes what waits, CHUNK_TOKENS
at most. MPS cuts the SMs once and for all: the actor decodes and prefills with what is left of the
FLOP/s even while nothing is judged, and both read the HBM at its whole rate. RollPacker, arXiv
2509.21009; a score is one pass here, a judge that writes takes longer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...compute.memory import engine_weight_bytes
from ...compute.models import Model
from ...compute.roofline import CHUNK_TOKENS
from ...compute.training import PCIE_BYTES_PER_S
from ...errors import RFabricError
from ...rl.timing import server_of
from ...rl.workload import Workload

SHARE = 0.2  # of the SMs: assumed, RollPacker states none
LAYERS_HELD = 2  # one that is read, one that is loaded


@dataclass(frozen=True)
class Judge:
    """A reward model on `share` of the SMs of `count` replicas, spread evenly; 0: of all.

    layered: the next layer is loaded while one is read; else all are loaded before.

    RFabricError for a share of nothing or of more than all, or a count that is none.
    """

    model: Model
    share: float = SHARE
    count: float = 0
    layered: bool = True

    def __post_init__(self):
        if not 0 < self.share <= 1:
            raise self._no_share()
        if self.count != int(self.count) or self.count < 0:
            raise RFabricError(
                f"judges: {self.count:g} must be a whole number; 0 puts one beside each replica"
            )

    def stand_on(self, w: Workload) -> list[list[int]]:
        """The GPUs of each judge: never more judges than replicas, however wide these are now."""
        every = w.replicas
        count = min(int(self.count) or len(every), len(every))
        return [every[i * len(every) // count] for i in range(count)]

    def actor(self, w: Workload) -> Workload:
        """The job as the actor runs it: with the SMs and the HBM that are left.

        RFabricError where the judge has all SMs, or two layers leave its KV cache no room.
        """
        if self.share == 1:
            raise self._no_share()
        held = LAYERS_HELD * self._layer_bytes(w) / w.generation_gpu.hbm_bytes
        left = w.generation.memory_utilisation - held
        matmul = w.efficiency.matmul * (1 - self.share)
        if left <= 0:
            raise RFabricError(
                f"judge {self.model.name}: two of its layers take {held:.0%} of the HBM, and "
                f"generation.memory_utilisation is {w.generation.memory_utilisation:g}; use a "
                "smaller judge or a wider generation.tp"
            )
        try:
            return replace(
                w,
                generation=replace(w.generation, memory_utilisation=left),
                efficiency=replace(w.efficiency, matmul=matmul),
            )
        except RFabricError as error:
            raise RFabricError(
                f"judge {self.model.name}: beside two of its layers, {held:.1%} of the HBM: {error}"
            ) from error

    def batch_seconds(self, w: Workload, tokens: float, squares: float) -> float:
        """Seconds of a batch of responses with so many tokens, prompts included, and the sum of the
        squares of their lengths.
        """
        layers, server = self.model.layers, server_of(w)
        load = self._layer_bytes(w) / PCIE_BYTES_PER_S
        flops = server.tp * server.flops("bf16") * self.share
        read = self.model.forward_flops(tokens, squares) / layers / flops
        if not self.layered:
            return layers * (load + read)
        return layers * max(load, read) + min(load, read)

    def _no_share(self) -> RFabricError:
        return RFabricError(
            f"judge share: {self.share:g} of the SMs must lie between 0 and 1; the actor has the "
            "others"
        )

    def _layer_bytes(self, w: Workload) -> float:
        return engine_weight_bytes(self.model, w.generation.tp) / self.model.layers


@dataclass(frozen=True, eq=False)
class Verdicts:
    """When responses are judged (float64, s), and by which judge (int64), both of their shape;
    None: by none of these.
    """

    ends: np.ndarray
    judge: np.ndarray | None = None


def verdicts(judge: Judge, w: Workload, ready: np.ndarray, tokens: np.ndarray) -> Verdicts:
    """Of responses that end at `ready` (s) with so many `tokens`, prompts included."""
    order = np.argsort(ready, axis=None, kind="stable")
    count = len(judge.stand_on(w))
    ends, who = np.zeros(ready.size), np.zeros(ready.size, np.int64)
    who[order] = np.arange(ready.size) % count

    def seconds(lengths: np.ndarray) -> float:
        return judge.batch_seconds(w, float(lengths.sum()), float((lengths**2).sum()))

    lengths = tokens.ravel().astype(float)
    for one in range(count):
        mine = order[who[order] == one]
        ends[mine] = in_batches(ready.ravel()[mine], lengths[mine], seconds)
    return Verdicts(ends.reshape(ready.shape), who.reshape(ready.shape))


def in_batches(
    ready: np.ndarray, tokens: np.ndarray, seconds: Callable[[np.ndarray], float]
) -> np.ndarray:
    """When one judge is done with responses that come at `ready` (ascending): whenever it is free
    it takes what waits, CHUNK_TOKENS at most but one at least; `seconds` of the tokens of a batch.
    """
    ends, now, first = np.zeros(len(ready)), 0.0, 0
    while first < len(ready):
        now = max(now, float(ready[first]))
        waiting = int(np.searchsorted(ready, now, side="right"))
        fits = int(np.searchsorted(np.cumsum(tokens[first:waiting]), CHUNK_TOKENS, side="right"))
        last = first + max(fits, 1)
        now += seconds(tokens[first:last])
        ends[first:last], first = now, last
    return ends
