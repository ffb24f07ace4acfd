"""What a job asks for, by the sections of its recipe, and where its GPUs stand.

Where things stand:

    GPU 0 .. training_gpus - 1 train, the next generation_gpus generate; GPU i is host h(i+1).
    Training ranks follow Megatron's order: tensor fastest, then context, data, pipeline; experts of
    a stage: expert fastest, then data.
    Generation replicas are runs of tp consecutive GPUs, or of ep where experts are dealt to more;
    where the FFN stands apart, of attention's GPUs and then the FFN's.
    Where generation is colocated, they stand on the training GPUs.
    CPU servers of environments are the hosts behind the last GPU server, a host each.

How steps follow one another:

    sync               a step generates with the weights of the step before
    one-step-off       generation is one step ahead of training; replicas stop while weights come
    bounded-staleness  up to `staleness` steps ahead, parts of one included (in_flight.py); weights
                       come while replicas generate
    async              as that, and responses go on over weight updates (partial rollouts): no
                       replica waits for the longest
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..compute import memory, pipeline_stages
from ..compute.adapters import share_that_learns
from ..compute.cpu_servers import CPU_SERVERS
from ..compute.ffn_apart import side_weight_bytes
from ..compute.gpus import GPUS, Gpu
from ..compute.layout import Layout
from ..compute.models import Model
from ..compute.pipeline_stages import StageParameters
from ..fabric import Needs
from .sections import Cluster, Efficiency, Environments, Generation, Training, WeightSync

PIPELINES = ("sync", "one-step-off", "bounded-staleness", "async")


@dataclass(frozen=True, eq=False)
class Setup:
    """A job as it was asked for: model, cluster and recipe, and where everything stands; a Workload
    is one that fits.

    `recipe` is the mapping it was read from, `files` where it stands and what it names.
    """

    name: str
    model: Model
    cluster: Cluster
    generation: Generation
    training: Training
    weight_sync: WeightSync = WeightSync()
    efficiency: Efficiency = Efficiency()
    environments: Environments = Environments()
    steps: int = 1
    pipeline: str = "sync"
    staleness: float | None = None
    placement: str = "disaggregated"
    recipe: dict = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name}: {self.model.name} on {self.gpus} "
            f"{self.cluster.gpu}, {self.pipeline}>"
        )

    @property
    def gpu(self) -> Gpu:
        """The kind of GPU."""
        return GPUS[self.cluster.gpu]

    @cached_property
    def served(self) -> Model:
        """The model as its engines hold it: KV cache and states in the recipe's formats."""
        return replace(self.model, **self.generation.numbers)

    @property
    def generation_gpu(self) -> Gpu:
        """What generates."""
        return GPUS[self.generation.gpu or self.cluster.gpu]

    @property
    def usd_per_hour(self) -> float | None:
        """What all its GPUs cost an hour; None where a price is not published."""
        return self._of_all(self.gpu.usd_per_hour, self.generation_gpu.usd_per_hour)

    @property
    def gpu_watts(self) -> float | None:
        """What all its GPUs may draw; None where a figure is not published."""
        return self._of_all(self.gpu.power_w, self.generation_gpu.power_w)

    @property
    def cpu_usd_per_hour(self) -> float:
        """What all its CPU servers cost an hour."""
        e = self.environments
        each = e.usd_per_hour or CPU_SERVERS[e.kind].usd_per_hour
        return e.servers * each

    @property
    def cpu_watts(self) -> float:
        """What all its CPU servers may draw."""
        return self.environments.servers * CPU_SERVERS[self.environments.kind].power_w

    def _of_all(self, training: float | None, generation: float | None) -> float | None:
        """The sum over all GPUs of a figure of those that train and of those that only generate."""
        if training is None or generation is None:
            return None
        return training * self.first_generation_gpu + generation * self.cluster.generation_gpus

    @property
    def gpus(self) -> int:
        """All GPUs of the job, those that train and those that only generate."""
        return self.first_generation_gpu + self.cluster.generation_gpus

    @property
    def cpu_servers(self) -> range:
        """The hosts that environments and rewards run on: none shares a server with GPUs."""
        first = -(-self.gpus // self.gpus_per_server) * self.gpus_per_server
        return range(first, first + self.environments.servers)

    @property
    def hosts(self) -> int:
        """Hosts of the fabric that it needs: GPUs, and CPU servers behind them."""
        return self.cpu_servers.stop if self.environments.servers else self.gpus

    @property
    def colocated(self) -> bool:
        """Whether the same GPUs train and generate in turn."""
        return self.placement == "colocated"

    def response_sink(self, turn: int) -> int:
        """The training GPU that takes the responses of replica number `turn`: training servers take
        turns, and so do their GPUs.
        """
        size, training = self.gpus_per_server, self.cluster.training_gpus
        servers = -(-training // size)
        server = turn % servers
        return server * size + turn // servers % min(size, training - server * size)

    @property
    def first_generation_gpu(self) -> int:
        """Number of the first GPU that generates."""
        return 0 if self.colocated else self.cluster.training_gpus

    @property
    def steps_ahead(self) -> int:
        """Weight updates that some responses may lack: 0 is on-policy."""
        return math.ceil(self.ahead)

    @property
    def ahead(self) -> float:
        """Batches that may be begun beyond the one of the newest weights, parts of one included."""
        return {"sync": 0, "one-step-off": 1}.get(self.pipeline, self.staleness or 1)

    @property
    def gpus_per_server(self) -> int:
        """As the cluster says, else as its GPU comes."""
        return self.cluster.gpus_per_server or self.gpu.gpus_per_server

    @property
    def nic_bps(self) -> float:
        """bit/s of a GPU's network card: the cluster's, else the GPU's usual one."""
        return self.cluster.nic or self.gpu.nic_bps

    @property
    def needs(self) -> Needs:
        """What it asks of a fabric."""
        return Needs(self.hosts, self.gpus_per_server, self.nic_bps)

    @property
    def dp(self) -> int:
        """Data-parallel ranks in training."""
        return self.cluster.training_gpus // (
            self.training.tp * self.training.pp * self.training.cp
        )

    @property
    def layout(self) -> Layout:
        """How the training GPUs share the model."""
        t, stages = self.training, self.training.stage_layers or ()
        sharded = t.optimizer == "sharded"
        return Layout(t.tp, t.pp, t.vp, t.cp, t.ep, self.dp, sharded, t.etp, self.copies, stages)

    @property
    def copies(self) -> int:
        """Copies of the sharded parameters: 1, unless `training.fsdp_size` says how many ranks have
        one.
        """
        t = self.training
        return self.dp * t.cp // t.fsdp_size if t.fsdp_size else 1

    @cached_property
    def stage_times(self) -> list[float]:
        """How many times the mean of all stages' layers each stage holds."""
        layout = self.layout
        return [layout.times(stage) for stage in range(layout.pp)]

    @cached_property
    def stages_held(self) -> list[StageParameters]:
        """What each stage trains of the model."""
        return pipeline_stages.held(self.model, self.layout)

    @cached_property
    def stages_again(self) -> list[StageParameters]:
        """What of each stage a backward pass gathers again, where parameters are sharded: all but
        FSDP's root.
        """
        apart = self.training.ends == "apart"
        return self.stages_held if apart else pipeline_stages.in_layers(self.model, self.layout)

    @cached_property
    def stages_learning(self) -> list[StageParameters]:
        """What of each stage the share `learns` learns of."""
        return pipeline_stages.learning(self.model, self.layout, self.learns)

    @cached_property
    def stages_sent(self) -> list[StageParameters]:
        """What of each stage a weight sync sends the share `synced` of."""
        return pipeline_stages.sent(self.model, self.layout, self.synced)

    @property
    def most_micro_batches(self) -> int:
        """Micro-batches of an update at most, none cut: all of its responses are as long as may
        be.
        """
        t, each = self.training, -(-max(self.updates) // self.dp)  # of a data-parallel rank
        if t.micro_batch_sequences:
            return -(-each // t.micro_batch_sequences)
        return -(-each * self.generation.longest // (t.micro_batch_tokens * t.cp))

    @property
    def stage_bytes(self) -> list[dict[str, float]]:
        """Bytes on one training GPU of each stage, by what takes them."""
        t, layout = self.training, self.layout
        return [
            memory.training_bytes(
                self.model,
                layout,
                t.held(self.generation),
                t.grad_bytes,
                t.recompute,
                t.optimizer == "replicated",
                t.host_optimizer,
                t.critic,
                self.learns,
                stage,
                self.most_micro_batches,
                t.optimizer == "zero2",
                t.ends == "apart",
                t.no_sync,
            )
            for stage in range(t.pp)
        ]

    @property
    def training_bytes(self) -> dict[str, float]:
        """Bytes on one training GPU of the stage that holds the most, by what takes them."""
        return max(self.stage_bytes, key=lambda held: sum(held.values()))

    @cached_property
    def learns(self) -> float:
        """Share of the parameters that learn: all, or those of adapters."""
        return share_that_learns(self.model, self.training.lora_rank)

    @property
    def synced(self) -> float:
        """Share of the parameters that a weight sync sends, but for what its strategy leaves
        out.
        """
        return 1.0 if self.weight_sync.adapters == "merged" else self.learns

    @cached_property
    def replicas(self) -> list[list[int]]:
        """The GPUs of each generation replica."""
        first, size = self.first_generation_gpu, self.generation.gpus
        return [list(range(g, g + size)) for g in range(first, self.gpus, size)]

    @cached_property
    def decoding(self) -> list[list[int]]:
        """The replicas that decode, the first ones: all, unless others read their prompts."""
        return self.replicas[: len(self.replicas) - len(self.prefilling)]

    @cached_property
    def prefilling(self) -> list[list[int]]:
        """The replicas that read prompts for those that decode, which they take in turn."""
        g = self.generation
        return self.replicas[len(self.replicas) - g.prefill_gpus // g.gpus :]

    @cached_property
    def pods(self) -> list[list[list[int]]]:
        """The replicas of each generation pod: of a pod of the cluster, or of either half when pods
        are not given.
        """
        size, origin = self.cluster.gpus_per_pod, 0
        if size is None:
            size = -(-len(self.replicas) // 2) * self.generation.gpus
            origin = self.first_generation_gpu
        pods: dict[int, list[list[int]]] = {}
        for replica in self.replicas:
            pods.setdefault((replica[0] - origin) // size, []).append(replica)
        return list(pods.values())

    def rank(self, pp: int, dp: int, cp: int = 0, tp: int = 0) -> int:
        """The GPU at these coordinates of training."""
        t = self.training
        return ((pp * self.dp + dp) * t.cp + cp) * t.tp + tp

    def tensor_group(self, pp: int, dp: int, cp: int) -> list[int]:
        """The GPUs that share the tensors of one stage."""
        first = self.rank(pp, dp, cp)
        return list(range(first, first + self.training.tp))

    def context_group(self, pp: int, dp: int, tp: int) -> list[int]:
        """The GPUs that share the sequences of one tensor rank."""
        return [self.rank(pp, dp, c, tp) for c in range(self.training.cp)]

    def data_groups(self, pp: int) -> list[list[int]]:
        """The GPUs of stage `pp` that hold the same parameters: one group for each tensor rank."""
        t = self.training
        return [
            [self.rank(pp, d, c, tp) for d in range(self.dp) for c in range(t.cp)]
            for tp in range(t.tp)
        ]

    def of_copies(self, group: list[int]) -> list[list[int]]:
        """GPUs that hold the same parameters, copy by copy of what they shard."""
        size = len(group) // self.copies
        return [group[first : first + size] for first in range(0, len(group), size)]

    @property
    def updates(self) -> list[int]:
        """Responses of each optimizer update of an epoch; the last may have fewer."""
        responses, t = self.generation.responses, self.training
        each = t.mini_batch_responses or responses // t.mini_batches
        return [min(each, responses - first) for first in range(0, responses, each)]

    def in_updates(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Lengths of the responses that a step trains on, all or what a scheduler keeps of them,
        update by update.
        """
        if each := self.training.mini_batch_responses:
            return np.split(lengths, range(each, len(lengths), each))
        return np.split(lengths, self.training.mini_batches)

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return self.training.tp * self.training.cp * self.dp

    def expert_groups(self, pp: int) -> list[list[int]]:
        """The GPUs of stage `pp` that hold the same experts, or parts of them: one group for each
        that has others.
        """
        first, wide = self.rank(pp, 0), self.training.expert_gpus
        return [list(range(first + e, first + self.stage_gpus, wide)) for e in range(wide)]

    @property
    def slots(self) -> int:
        """Responses that a replica decodes at once: what its engine takes, and its part of those
        that may be under way.
        """
        g = self.generation
        most = g.concurrent * g.group_size if g.concurrent else g.slots * len(self.decoding)
        return min(g.slots, max(1, most // len(self.decoding)))

    @cached_property
    def usual_context(self) -> float:
        """Tokens of a sequence that decodes, its prompt and what has come since: the mean over all
        tokens of responses.
        """
        g = self.generation
        own = g.prompt_lengths.mean(g.max_prompt) + g.lengths.before(g.max_response)
        return own + g.heard / 2

    @cached_property
    def kv_capacity_tokens(self) -> int:
        """Tokens of KV cache a generation replica holds, of sequences as long as usual."""
        g, gpu = self.generation, self.generation_gpu
        room = memory.room_for_kv(gpu, g.memory_utilisation, self.attending_bytes)
        each = int(room // memory.kv_bytes_per_gpu(self.served, g.tp, length=self.usual_context))
        return each * g.attention_replicas

    @property
    def attending_bytes(self) -> float:
        """Weights on a generation GPU that attends."""
        g = self.generation
        if g.ffn_gpus:
            return side_weight_bytes(self.model, g.tp, g.ffn_gpus, g.precision)[0]
        return memory.engine_weight_bytes(self.model, g.tp, ep=g.gpus, precision=g.precision)
