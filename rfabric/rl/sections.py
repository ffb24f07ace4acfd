"""The sections of a recipe with their keys, defaults and limits."""

from dataclasses import dataclass

from ..compute import memory
from ..compute.context_exchange import CONTEXT_EXCHANGES
from ..compute.cpu_servers import CPU_SERVERS
from ..compute.gpus import GPUS, HBM_SHARE, PRECISIONS
from ..compute.models import BF16_BYTES, FP32_BYTES
from ..compute.serving import Batching
from ..compute.sync_time import DELTA_FACTOR
from .lengths import Lengths
from .recipe import Section, choice, count, flag, fraction, instance, key, number, rate, seconds

# weight_sync.py says what they do
SYNC_STRATEGIES = ("flat", "tree", "scatter", "rank0", "relay", "p2p", "delta")


@dataclass(frozen=True, kw_only=True)
class Cluster(Section):
    """The GPUs: `training_gpus` train, `generation_gpus` generate, each a `gpu` of the catalog.

    nic: rate of a GPU's network card, and gpus_per_server: both left out as the catalog has them;
    gpus_per_pod: GPUs of a pod, by which weight sync groups replicas (tree, relay); left out, two
    halves of those that generate.
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
    """`batch` prompts x `group_size` responses a step, on replicas of `tp` GPUs (tensor
    parallelism: a layer is cut over them).

    lengths, prompt_lengths: of responses and prompts in tokens, by a name of `traffic/lengths` or a
    file of your own, cut at max_response and max_prompt;
    ep: GPUs that the experts of a layer are dealt to whole, so many to a replica: ep / tp of them
    serve responses of their own and share their experts (vLLM's data-parallel attention with
    --enable-expert-parallel, SGLang's --enable-dp-attention); 1: experts are cut as an MLP is;
    ffn_gpus: GPUs of a replica that hold its MLPs and experts, behind `attention_gpus` (tp where
    not said) that attend and hold the KV cache (attention-FFN disaggregation: MegaScale-Infer,
    arXiv 2504.02263; Step-3, arXiv 2507.19427); 0: FFN stands beside attention;
    prefill_gpus: of the generation GPUs, the last so many read prompts for the others, which get
    the KV cache of a prompt when it is whole (vLLM's and SGLang's disaggregated prefill);
    memory_utilisation: share of HBM the engine may take (vLLM's gpu_memory_utilization);
    max_num_seqs: responses that tp GPUs decode at once (verl's rollout.max_num_seqs); precision: of
    weights and matmuls;
    prompts: prompts that are rolled out a step, where they are more than the `batch` that is
    trained on: groups whose rewards are all alike teach nothing and are dropped (dynamic sampling:
    DAPO, arXiv 2503.14476; verl's gen_batch_size, NeMo-RL's batch_multiplier);
    concurrent: prompts whose responses may be under way at once on all replicas, dealt evenly, one
    response to each at least; others wait. Left out: as many as engines take (AReaL's
    max_concurrent_rollouts, NeMo-RL's max_inflight_prompts);
    turns: parts that a response comes in; between two, an environment takes `environment_latency`
    and says `observation` tokens, which the next turn reads;
    gpu: what generates, where that is not `cluster.gpu`;
    context: tokens of a sequence that the job asks of the model, where positions are stretched
    beyond what its config says (YaRN, other RoPE scaling).
    """

    section = "generation."
    tp: int = key(count())
    ep: int = key(count(), 1)
    ffn_gpus: int = key(count(0), 0)
    attention_gpus: int | None = key(count(), None)
    prefill_gpus: int = key(count(0), 0)
    batch: int = key(count())
    prompts: int | None = key(count(), None)
    group_size: int = key(count())
    concurrent: int | None = key(count(), None)
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
        return self.attending + self.ffn_gpus

    @property
    def attending(self) -> int:
        """GPUs of one replica that attend: all but those of the FFN."""
        return self.attention_gpus or max(self.tp, self.ep)

    @property
    def attention_replicas(self) -> int:
        """Parts of a replica that serve responses of their own."""
        return self.attending // self.tp

    @property
    def deals_experts(self) -> bool:
        """Whether experts are dealt to more GPUs than tp, which attend as well."""
        return self.attending > self.tp and not self.ffn_gpus

    @property
    def slots(self) -> int:
        """Responses that a replica decodes at once."""
        return self.max_num_seqs * self.attention_replicas

    @property
    def responses(self) -> int:
        """Responses that one step is trained on."""
        return self.batch * self.group_size

    @property
    def rolled_out(self) -> int:
        """Prompts of one step, those included whose responses are dropped."""
        return self.prompts or self.batch

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence: prompt, response and what environments say between
        turns.
        """
        return self.max_prompt + self.max_response + self.observation * (self.turns - 1)


@dataclass(frozen=True, kw_only=True)
class Environments(Section):
    """CPU servers beside the GPUs, hosts of the fabric behind them, that environments and rewards
    of generation run on; environments.py says what is sent.

    servers: how many; 0: all stays in the GPUs' servers and sends nothing;
    text_bytes: of a token as text (about four characters of English: OpenAI's tokenizer page);
    observation_bytes: of an observation beside its tokens, such as a screenshot;
    rewards: whether each response is sent to a CPU server for its reward, and reward_bytes: what a
    call carries beside prompt and response;
    kind: of server that is paid for (compute/cpu_servers.csv), at `usd_per_hour` where that is
    said and at the table's price where not. No time depends on it.
    Time of the environments is `generation.environment_latency`; rewards take none.
    """

    section = "environments."
    servers: int = key(count(0, 10**5), 0)
    text_bytes: float = key(number(0.1, 1000), 4.0)
    observation_bytes: int = key(count(0, 10**12), 0)
    rewards: bool = key(flag, False)
    reward_bytes: int = key(count(0, 10**12), 0)
    kind: str = key(choice(*CPU_SERVERS), "m7i.48xlarge")
    usd_per_hour: float | None = key(number(0.1, 1000), None)


@dataclass(frozen=True, kw_only=True)
class Training(Section):
    """Parallelism and schedule of the update; data parallelism is what the GPUs leave.

    tp: GPUs that a layer is cut over; pp: stages of the pipeline; cp: GPUs that a sequence is cut
    over (tensor, pipeline and context parallelism);
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
    grad_dtype: of the gradients that are sent; buckets: in how many pieces they leave, where they
    are not sharded;
    recompute: in the backward pass, what flash attention leaves out (`selective`) or all
    activations (`full`);
    log_prob_passes: forward passes over the batch before the first update (old policy, reference
    policy);
    host_optimizer: Adam's states are in the hosts' memory and its step on their CPUs (Megatron's
    --optimizer-cpu-offload);
    critic: a critic of the policy's shape is trained on the same GPUs, after it; epochs: how often
    a step trains on its responses;
    lora_rank: of the adapters that learn in place of the parameters (LoRA; compute/adapters.py), 0:
    there are none;
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
    lora_rank: int = key(count(0, 10_000), 0)
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
    """How the new weights reach the generation replicas, by which `strategy`.

    precision: in which the weights are sent (fp8: with a scale for 128 x 128 of them);
    gather: how training gathers them, `tensor` by tensor (verl) or a `bucket` at once (slime);
    senders, nics: GPUs of a stage that pack and send, each over so many NICs of its server;
    adapters: of a training with lora_rank, `alone` sends the adapters and nothing else, `merged`
    all weights with the adapters added to them;
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
    adapters: str = key(choice("alone", "merged"), "alone")
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
