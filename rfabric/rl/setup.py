"""What a job asks for, section by section as its recipe has them, and where its GPUs stand.

Where things stand:

    GPU 0 .. training_gpus - 1 train, the next generation_gpus generate; GPU i is host h(i+1).
    Training ranks follow Megatron's order: tensor fastest, then context, data, pipeline; experts of
    a stage: expert fastest, then data.
    Generation replicas are runs of tp consecutive GPUs, or of ep where experts are dealt to more.
    Where generation is colocated, they stand on the training GPUs.

How steps follow one another:

    sync               a step generates with the weights of the step before
    one-step-off       generation is one step ahead of training; replicas stop while weights come
    bounded-staleness  up to `staleness` steps ahead; weights come while replicas generate
    async              as that, and responses go on over weight updates (partial rollouts): no
                       replica waits for the longest
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..compute import memory
from ..compute.context_exchange import CONTEXT_EXCHANGES
from ..compute.gpus import GPUS, HBM_SHARE, PRECISIONS, Gpu
from ..compute.layout import Layout
from ..compute.models import BF16_BYTES, FP32_BYTES, Model
from ..compute.serving import Batching
from ..compute.sync_time import DELTA_FACTOR
from ..fabric import Needs
from .lengths import Lengths
from .recipe import Section, choice, count, flag, fraction, instance, key, number, rate, seconds

# weight_sync.py says what they do
SYNC_STRATEGIES = ("flat", "tree", "scatter", "rank0", "relay", "p2p", "delta")


@dataclass(frozen=True, kw_only=True)
class Cluster(Section):
    """The GPUs.

    `nic` (bit/s a GPU) and `gpus_per_server` default to the GPU's own, a pod to half of the
    generation.
    """

    section = "cluster."
    gpu: str = key(choice(*GPUS))
    training_gpus: int = key(count(high=10**6))
    generation_gpus: int = key(count(high=10**6))
    gpus_per_server: int | None = key(count(), None)
    gpus_per_pod: int | None = key(count(), None)
    nic: float | None = key(rate, None)


@dataclass(frozen=True, kw_only=True)
class Generation(Section):
    """`batch` prompts x `group_size` responses a step, on replicas of `tp` GPUs; lengths in tokens,
    cut at maxima.

    ep: GPUs that the experts of a layer are dealt to whole, so many to a replica: ep / tp of them
    serve responses of their own and share their experts (vLLM's data-parallel attention with
    --enable-expert-parallel, SGLang's --enable-dp-attention); 1: experts are cut as an MLP is;
    memory_utilisation: share of HBM the engine may take (vLLM's gpu_memory_utilization);
    max_num_seqs: responses that tp GPUs decode at once (verl's rollout.max_num_seqs); precision: of
    weights and matmuls;
    turns: parts that a response comes in; between two, an environment takes `environment_latency`
    and says `observation` tokens, which the next turn reads;
    gpu: what generates, where that is not `cluster.gpu`;
    context: tokens of a sequence that the job asks of the model, where positions are stretched
    beyond what its config says (YaRN, other RoPE scaling).
    """

    section = "generation."
    tp: int = key(count())
    ep: int = key(count(), 1)
    batch: int = key(count())
    group_size: int = key(count())
    max_prompt: int = key(count())
    max_response: int = key(count())
    lengths: Lengths = key(instance(Lengths))
    prompt_lengths: Lengths = key(instance(Lengths))
    memory_utilisation: float = key(fraction, memory.UTILISATION)
    max_num_seqs: int = key(count(), Batching.max_num_seqs)
    precision: str = key(choice("bf16", "fp8", "int4", "mxfp4"), "bf16")
    turns: int = key(count(high=10**4), 1)
    environment_latency: float = key(seconds, 0.0)
    observation: int = key(count(0), 0)
    gpu: str | None = key(choice(*GPUS), None)
    context: int | None = key(count(), None)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return max(self.tp, self.ep)

    @property
    def attention_replicas(self) -> int:
        """Parts of a replica that serve responses of their own."""
        return self.gpus // self.tp

    @property
    def slots(self) -> int:
        """Responses that a replica decodes at once."""
        return self.max_num_seqs * self.attention_replicas

    @property
    def responses(self) -> int:
        """Responses of one step."""
        return self.batch * self.group_size

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence: prompt, response and what environments say between
        turns.
        """
        return self.max_prompt + self.max_response + self.observation * (self.turns - 1)


@dataclass(frozen=True, kw_only=True)
class Training(Section):
    """Parallelism and schedule of the update; data parallelism is what the GPUs leave.

    ep: GPUs that the experts of a layer are dealt to; experts are not cut by tp, and ep divides tp
    x cp x data ranks;
    context_exchange: what the cp GPUs of a group send one another in each layer: keys and values
    round a `ring` (Megatron-LM) or tokens for heads all to all, `ulysses` (verl with FSDP);
    micro_batch_tokens: tokens of a micro-batch on each context-parallel rank (verl's
    ppo_max_token_len_per_gpu);
    mini_batches: optimizer updates a step;
    optimizer: `distributed` reduce-scatters gradients, shards states and all-gathers bf16
    parameters, `replicated` all-reduces gradients, `sharded` shards parameters and gradients as
    well (FSDP, ZeRO-3): every layer is gathered, and its gradients scattered, in every micro-batch;
    buckets: in how many pieces the gradients leave, where they are not sharded;
    log_prob_passes: forward passes over the batch before the first update (old policy, reference
    policy);
    host_optimizer: Adam's states are in the hosts' memory and its step on their CPUs (Megatron's
    --optimizer-cpu-offload);
    critic: a critic of the policy's shape is trained on the same GPUs, after it; epochs: how often
    a step trains on its responses;
    vp: chunks of layers a pipeline stage holds (Megatron's interleaved schedule); precision: of the
    matmuls;
    overlap_batches: tokens travel to experts and back beside the computing of the other half of a
    micro-batch (DeepSeek's two-batch overlap);
    skew: exponent of Zipf's law by which experts are chosen, 0: all as often; drift: share of the
    experts whose rank in it changes from one step to the next; skew_layers: layers of a stage whose
    ranks are told apart.
    """

    section = "training."
    tp: int = key(count())
    pp: int = key(count(), 1)
    cp: int = key(count(), 1)
    context_exchange: str = key(choice(*CONTEXT_EXCHANGES), "ring")
    vp: int = key(count(high=1000), 1)
    ep: int = key(count(), 1)
    micro_batch_tokens: int = key(count())
    mini_batches: int = key(count(), 1)
    optimizer: str = key(choice("distributed", "replicated", "sharded"), "distributed")
    grad_dtype: str = key(choice("fp32", "bf16"), "fp32")
    buckets: int = key(count(high=1000), 1)
    recompute: str = key(choice("selective", "full"), "selective")
    log_prob_passes: int = key(count(0), 2)
    host_optimizer: bool = key(flag, False)
    critic: bool = key(flag, False)
    epochs: int = key(count(high=1000), 1)
    precision: str = key(choice(*PRECISIONS), "bf16")
    overlap_batches: bool = key(flag, False)
    skew: float = key(number(0, 10), 0.0)
    drift: float = key(number(0, 1), 0.0)
    skew_layers: int = key(count(high=1000), 2)

    @property
    def grad_bytes(self) -> int:
        """Bytes of one gradient."""
        return {"fp32": FP32_BYTES, "bf16": BF16_BYTES}[self.grad_dtype]


@dataclass(frozen=True, kw_only=True)
class WeightSync(Section):
    """How the new weights reach the generation replicas: weight_sync.py has strategies and senders.

    precision: in which the weights are sent (fp8: with a scale for 128 x 128 of them);
    gather: how training gathers them, `tensor` by tensor (verl) or a `bucket` at once (slime);
    senders, nics: GPUs of a stage that pack and send, each over so many NICs of its server;
    delta_factor: share of the bytes that `delta` sends;
    efficiency: share of the NICs' rate that a sync reaches in all, such as 0.13 for RollArt's over
    400 Gbit/s or 0.84 for Weave's over 20; left out: set-up, packing and unpacking as calibrated in
    sync_time.py.
    """

    section = "weight_sync."
    strategy: str = key(choice(*SYNC_STRATEGIES), "flat")
    precision: str = key(choice("bf16", "fp8"), "bf16")
    gather: str = key(choice("tensor", "bucket"), "tensor")
    senders: int | None = key(count(high=10**6), None)
    nics: int = key(count(high=64), 1)
    delta_factor: float = key(fraction, DELTA_FACTOR)
    efficiency: float | None = key(fraction, None)


@dataclass(frozen=True, kw_only=True)
class Efficiency(Section):
    """Shares of the data sheet's peaks that are reached.

    hbm: of its rate.
    matmul: best bf16 matmul measured on H100, 794.5 of 989 TFLOPS, github.com/stas00/ml-engineering
    (MAMF); an engine reaches roofline.MATMUL_SHARE of that in turn.
    training: left out, the model of `training` says how long passes take; given, they take their
    FLOPs at that share.
    """

    section = "efficiency."
    hbm: float = key(fraction, HBM_SHARE)
    matmul: float = key(fraction, 0.80)
    training: float | None = key(fraction, None)


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
    steps: int = 1
    pipeline: str = "sync"
    staleness: int | None = None
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

    def _of_all(self, training: float | None, generation: float | None) -> float | None:
        """The sum over all GPUs of a figure of those that train and of those that only generate."""
        if training is None or generation is None:
            return None
        return training * self.first_generation_gpu + generation * self.cluster.generation_gpus

    @property
    def gpus(self) -> int:
        return self.first_generation_gpu + self.cluster.generation_gpus

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
        """Weight updates that generation may lack: 0 is on-policy."""
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
        return Needs(self.gpus, self.gpus_per_server, self.nic_bps)

    @property
    def dp(self) -> int:
        """Data-parallel ranks in training."""
        return self.cluster.training_gpus // (
            self.training.tp * self.training.pp * self.training.cp
        )

    @property
    def layout(self) -> Layout:
        """How the training GPUs share the model."""
        t = self.training
        return Layout(t.tp, t.pp, t.vp, t.cp, t.ep, self.dp, t.optimizer == "sharded")

    @property
    def training_bytes(self) -> dict[str, float]:
        """Bytes on one training GPU, by what takes them."""
        t = self.training
        return memory.training_bytes(
            self.model,
            self.layout,
            t.micro_batch_tokens,
            t.grad_bytes,
            t.recompute,
            t.optimizer == "replicated",
            t.host_optimizer,
            t.critic,
        )

    @cached_property
    def replicas(self) -> list[list[int]]:
        """The GPUs of each generation replica."""
        first, size = self.first_generation_gpu, self.generation.gpus
        return [list(range(g, g + size)) for g in range(first, self.gpus, size)]

    @cached_property
    def pods(self) -> list[list[list[int]]]:
        """The replicas of each generation pod: of a pod of the cluster, or of either half when pods
        are not given.
        """
        size, origin = self.cluster.gpus_per_pod, 0
        if size is None:
            size, origin = (
                -(-len(self.replicas) // 2) * self.generation.gpus,
                self.first_generation_gpu,
            )
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

    def model_ranks(self, pp: int, dp: int) -> list[int]:
        """The GPUs of stage `pp` that hold one replica of the model together."""
        first = self.rank(pp, dp)
        return list(range(first, first + self.training.cp * self.training.tp))

    def data_groups(self, pp: int) -> list[list[int]]:
        """The GPUs of stage `pp` that hold the same parameters: one group for each tensor rank."""
        t = self.training
        return [
            [self.rank(pp, d, c, tp) for d in range(self.dp) for c in range(t.cp)]
            for tp in range(t.tp)
        ]

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return self.training.tp * self.training.cp * self.dp

    def expert_groups(self, pp: int) -> list[list[int]]:
        """The GPUs of stage `pp` that hold the same experts: one group for each expert rank."""
        first = self.rank(pp, 0)
        return [
            list(range(first + e, first + self.stage_gpus, self.training.ep))
            for e in range(self.training.ep)
        ]

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens of KV cache a generation replica holds."""
        g = self.generation
        each = memory.kv_capacity_tokens(
            self.model,
            self.generation_gpu,
            g.tp,
            g.memory_utilisation,
            ep=g.gpus,
            precision=g.precision,
        )
        return each * g.attention_replicas
