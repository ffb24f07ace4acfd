"""The sections of a recipe with their keys, defaults and limits."""

from dataclasses import dataclass
from typing import NamedTuple

from ..compute import memory
from ..compute.context_exchange import CONTEXT_EXCHANGES
from ..compute.cpu_servers import CPU_SERVERS
from ..compute.gpus import GPUS, HBM_SHARE, PRECISIONS
from ..compute.models import BF16_BYTES, FP32_BYTES
from ..compute.serving import Batching
from ..compute.sync_time import DELTA_FACTOR
from .lengths import Lengths
from .recipe import (
    Section,
    choice,
    count,
    counts,
    flag,
    fraction,
    instance,
    key,
    number,
    rate,
    seconds,
)

_NUMBERS = {"fp8": 1, "bf16": BF16_BYTES, "fp32": FP32_BYTES}  # bytes
OPTIMIZERS = ("distributed", "replicated", "zero1", "zero2", "sharded")
PADDINGS = ("none", "micro-batch", "mini-batch", "maximum")  # padding.py says to what
# weight_sync.py says what they do
SYNC_STRATEGIES = ("flat", "tree", "scatter", "rank0", "relay", "p2p", "delta")


@dataclass(frozen=True, kw_only=True)
class Cluster(Section):
    """The GPUs: `training_gpus` train, `generation_gpus` generate, each a `gpu` of the catalog.

    nic: the rate of a GPU's NIC (default: the catalog's);
    gpus_per_server: default: the catalog's;
    gpus_per_pod: GPUs of a pod, by which weight sync groups replicas (tree, relay; default: two
    halves of the GPUs that generate).
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
    parallelism: each layer is split over them).

    lengths, prompt_lengths: lengths of responses and prompts in tokens, by a name in
    `traffic/lengths` or a file of your own, cut at max_response and max_prompt;
    ep: GPUs of a replica over which whole experts are distributed. Its ep / tp parts serve
    responses of their own and share their experts (vLLM's data-parallel attention with
    --enable-expert-parallel, SGLang's --enable-dp-attention). 1: experts are split as an MLP is;
    ffn_gpus: GPUs of a replica that hold its MLPs and experts, behind `attention_gpus` (default:
    tp) that attend and hold the KV cache (attention-FFN disaggregation: MegaScale-Infer, arXiv
    2504.02263; Step-3, arXiv 2507.19427). 0: the FFN is on the GPUs that attend;
    prefill_gpus: this many of the generation GPUs, the last ones, do prefill for the others, which
    get the KV cache of a prompt when it is complete (vLLM's and SGLang's disaggregated prefill);
    memory_utilisation: share of HBM that the engine may take (vLLM's gpu_memory_utilization);
    max_num_seqs: responses that tp GPUs decode at once (verl's rollout.max_num_seqs);
    precision: of weights and matmuls;
    kv_dtype: of the KV cache (vLLM's and SGLang's kv_cache_dtype);
    state_dtype: of the states that layers without attention keep of a sequence (vLLM's
    mamba_ssm_cache_dtype, SGLang's mamba_ssm_dtype). Default: as the model's config says;
    prompts: prompts that are rolled out a step, if more than the `batch` that is trained on. Groups
    whose rewards are all alike teach nothing and are dropped (dynamic sampling: DAPO, arXiv
    2503.14476; verl's gen_batch_size, NeMo-RL's batch_multiplier);
    concurrent: prompts whose responses may be under way at once on all replicas, spread evenly, at
    least one response each; others wait. Default: as many as the engines take (AReaL's
    max_concurrent_rollouts, NeMo-RL's max_inflight_prompts);
    turns: parts that a response comes in. Between two turns an environment takes
    `environment_latency` and answers with `observation` tokens, which the next turn reads;
    gpu: the GPU that generates, if it is not `cluster.gpu`;
    context: tokens of a sequence that the job asks of the model, if positions are stretched beyond
    its config (YaRN, other RoPE scaling).
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
    kv_dtype: str = key(choice("bf16", "fp8"), "bf16")
    state_dtype: str | None = key(choice("bf16", "fp32"), None)
    turns: int = key(count(high=10**4), 1)
    environment_latency: float = key(seconds, 0.0)
    observation: int = key(count(0), 0)
    gpu: str | None = key(choice(*GPUS), None)
    context: int | None = key(count(), None)

    @property
    def numbers(self) -> dict[str, int]:
        """Bytes of a number in KV cache and, where the recipe says it, in states, as fields of a
        Model.
        """
        state = {"state_number": _NUMBERS[self.state_dtype]} if self.state_dtype else {}
        return {"kv_number": _NUMBERS[self.kv_dtype], **state}

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
        """Whether experts are sharded over more GPUs than tp, which attend as well."""
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
        """Prompts of one step, including those whose responses are dropped."""
        return self.prompts or self.batch

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence: prompt, response and the observations between turns."""
        return self.max_prompt + self.max_response + self.heard

    @property
    def heard(self) -> int:
        """Tokens of a sequence that environments say between its turns."""
        return self.observation * (self.turns - 1)


@dataclass(frozen=True, kw_only=True)
class Environments(Section):
    """CPU servers, hosts of the fabric after the GPUs, on which environments and rewards of
    generation run; environments.py says what is sent.

    servers: how many; 0: all of it runs in the GPUs' servers and sends nothing;
    text_bytes: bytes of a token as text (about four characters of English: OpenAI's tokenizer
    page);
    observation_bytes: bytes of an observation besides its tokens, such as a screenshot;
    rewards: whether each response is sent to a CPU server for its reward;
    reward_bytes: what such a call carries besides prompt and response;
    kind: the kind of server to pay for (compute/cpu_servers.csv), at `usd_per_hour` or else at the
    table's price. No time depends on it: environments take `generation.environment_latency`, and
    rewards take none.
    """

    section = "environments."
    servers: int = key(count(0, 10**5), 0)
    text_bytes: float = key(number(0.1, 1000), 4.0)
    observation_bytes: int = key(count(0, 10**12), 0)
    rewards: bool = key(flag, False)
    reward_bytes: int = key(count(0, 10**12), 0)
    kind: str = key(choice(*CPU_SERVERS), "m7i.48xlarge")
    usd_per_hour: float | None = key(number(0.1, 1000), None)


class MicroBatch(NamedTuple):
    """What a data-parallel rank passes at once: so many sequences, or where 0, as many as so many
    tokens on each of its context-parallel ranks hold.
    """

    tokens: int
    sequences: int


@dataclass(frozen=True, kw_only=True)
class Training(Section):
    """Parallelism and schedule of the update. Data parallelism follows from the number of GPUs.

    tp: GPUs over which a layer is split (tensor parallelism);
    pp: stages of the pipeline;
    stage_layers: layers of each stage, such as 3,4,4,3 (Megatron's pipeline_model_parallel_layout
    or num_layers_in_first_pipeline_stage). The slowest decides how long a step takes, the stage
    with the most bytes whether it fits. The first holds the embedding beside its layers, the last
    makes the logits. Default: all alike;
    cp: GPUs over which a sequence is split (context parallelism);
    ep: GPUs over which whole experts of a layer are distributed. Experts are not split by tp;
    etp: GPUs of a server over which each expert is split (Megatron's expert_tensor_parallel_size,
    whose default is tp). ep x etp divides tp x cp x data ranks;
    context_exchange: what the cp GPUs of a group send one another in each layer: keys and values
    round a `ring` (Megatron-LM), or tokens for heads, all to all, `ulysses` (verl with FSDP);
    micro_batch_tokens: tokens of a micro-batch on each context-parallel rank (verl's
    ppo_max_token_len_per_gpu);
    micro_batch_sequences: sequences of a micro-batch, however short they are (verl's
    ppo_micro_batch_size_per_gpu), whose activations are those of micro_batch_tokens; 0: as many as
    these hold;
    log_prob_micro_batch_tokens, log_prob_micro_batch_sequences: the same of the passes for
    log-probabilities, if they take others (verl's log_prob_max_token_len_per_gpu and
    log_prob_micro_batch_size_per_gpu); 0: the same;
    padding: what sequences are filled up to, and computed and sent as: to the longest of their
    `micro-batch` (OpenRLHF without --ds.packing_samples), of their `mini-batch`, over all data
    ranks (NeMo-RL without packing), or to the `maximum`, max_prompt + max_response and what
    environments say (verl before 0.8 without use_remove_padding). Default: sequences are packed;
    padded_attention: whether attention computes padding as well; Hugging Face's FlashAttention
    leaves it out where the rest of a layer has it;
    mini_batches: optimizer updates a step, of equally many responses;
    mini_batch_responses: in place of mini_batches: responses of an update, the last of which has
    those that are left; 0: as mini_batches says;
    optimizer: `distributed` reduce-scatters gradients, shards states and all-gathers bf16
    parameters (Megatron-LM's distributed optimizer); `replicated` all-reduces gradients; `zero1`
    all-reduces gradients, of which each rank uses its part, shards states and all-gathers
    parameters (DeepSpeed's stage 1); `zero2` all-reduces gradients in every micro-batch and keeps
    its part of them (stage 2); `sharded` shards parameters and gradients as well (FSDP, ZeRO-3): in
    every micro-batch each layer is gathered and its gradients scattered, also gathered in the
    passes for log-probabilities;
    fsdp_size: sharded in copies, each on so many neighbouring data- and context-parallel ranks,
    which all-reduce their gradients in every micro-batch (hybrid sharding, HSDP; verl's fsdp_size);
    0: one copy on all;
    ends: embedding and logits of sharded parameters: in FSDP's `root`, which is gathered once a
    micro-batch, or `apart`, each gathered forward and backward as layers are (verl's FSDP2, where
    they are not tied; DeepSpeed's ZeRO-3);
    no_sync: with sharded parameters, whether gradients are sent once an update, and until then
    added up whole on each GPU (FSDP's no_sync; verl's use_no_sync_for_gradient_accumulation);
    grad_dtype: of the gradients that are sent;
    buckets: the number of pieces in which gradients are sent, if parameters are not sharded;
    recompute: in the backward pass, only what flash attention leaves out (`selective`) or all
    activations (`full`);
    log_prob_passes: forward passes over the batch before the first update (old policy, reference
    policy);
    host_optimizer: Adam's states are in the hosts' memory and its step runs on their CPUs
    (Megatron's --optimizer-cpu-offload);
    critic: a critic of the policy's shape is trained on the same GPUs, after the policy;
    epochs: how often a step trains on its responses;
    lora_rank: rank of the adapters that are trained in place of the parameters (LoRA;
    compute/adapters.py); 0: none;
    vp: chunks of layers that a pipeline stage holds (Megatron's interleaved schedule);
    precision: of the matmuls;
    overlap_batches: tokens travel to experts and back beside the compute of the other half of a
    micro-batch (DeepSeek's two-batch overlap);
    skew: exponent of Zipf's law by which experts are chosen; 0: all equally often;
    drift: share of the experts whose rank in it changes from one step to the next;
    skew_layers: layers of a stage that have ranks of their own.
    """

    section = "training."
    tp: int = key(count())
    pp: int = key(count(), 1)
    cp: int = key(count(), 1)
    context_exchange: str = key(choice(*CONTEXT_EXCHANGES), "ring")
    vp: int = key(count(high=1000), 1)
    stage_layers: tuple[int, ...] | None = key(counts, None)
    ep: int = key(count(), 1)
    etp: int = key(count(), 1)
    micro_batch_tokens: int = key(count())
    micro_batch_sequences: int = key(count(0), 0)
    log_prob_micro_batch_tokens: int = key(count(0), 0)
    log_prob_micro_batch_sequences: int = key(count(0), 0)
    padding: str = key(choice(*PADDINGS), "none")
    padded_attention: bool = key(flag, True)
    mini_batches: int = key(count(), 1)
    mini_batch_responses: int = key(count(0), 0)
    optimizer: str = key(choice(*OPTIMIZERS, zero3="sharded"), "distributed")
    fsdp_size: int = key(count(0), 0)
    ends: str = key(choice("root", "apart"), "root")
    no_sync: bool = key(flag, False)
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
    def micro_batch(self) -> MicroBatch:
        """Of an update."""
        return MicroBatch(self.micro_batch_tokens, self.micro_batch_sequences)

    @property
    def log_prob_micro_batch(self) -> MicroBatch:
        """Of the passes for log-probabilities."""
        own = MicroBatch(self.log_prob_micro_batch_tokens, self.log_prob_micro_batch_sequences)
        return own if any(own) else self.micro_batch

    def held(self, g: Generation) -> int:
        """Tokens of a micro-batch that a context-parallel rank has room for: where they are counted
        before they are padded, so many sequences as they usually are, each as long as may be.
        """
        if self.padding == "none" or self.micro_batch_sequences:
            return self.micro_batch_tokens
        usual = g.prompt_lengths.mean(g.max_prompt) + g.lengths.mean(g.max_response) + g.heard
        sequences = int(self.micro_batch_tokens * self.cp / usual)
        return max(self.micro_batch_tokens, -(-sequences * g.longest // self.cp))

    @property
    def expert_gpus(self) -> int:
        """GPUs of a stage that hold one copy of its experts."""
        return self.ep * self.etp

    @property
    def sums_each_micro_batch(self) -> bool:
        """Whether every micro-batch sums its gradients, of which a rank keeps its part."""
        return self.optimizer in ("zero2", "sharded") and not self.no_sync

    @property
    def gradient_collective(self) -> str:
        """What sums gradients, by the name of its flows. DeepSpeed all-reduces a bucket in which
        several ranks have a part (use_multi_rank_bucket_allreduce, which is on by default:
        average_tensor in deepspeed/runtime/zero/stage_1_and_2.py).
        """
        return "reduce-scatter" if self.optimizer in ("distributed", "sharded") else "all-reduce"

    @property
    def gathers_updated(self) -> bool:
        """Whether each rank updates a part of the parameters that all hold."""
        return self.optimizer in ("distributed", "zero1", "zero2")

    @property
    def grad_bytes(self) -> int:
        """Bytes of one gradient."""
        return {"fp32": FP32_BYTES, "bf16": BF16_BYTES}[self.grad_dtype]


@dataclass(frozen=True, kw_only=True)
class WeightSync(Section):
    """How the new weights reach the generation replicas: by which `strategy`. Where placement is
    colocated GPUs take over bf16 weights, whatever strategy and precision say.

    precision: of the weights that are sent (fp8: with one scale for 128 x 128 of them), but for
    adapters alone, which go in bf16;
    gather: how training gathers them, `tensor` by tensor (verl) or a `bucket` at once (slime);
    senders: GPUs of a stage that pack and send;
    nics: NICs of its server over which each of them sends;
    adapters: with lora_rank, `alone` sends only the adapters, `merged` all weights with the
    adapters added to them;
    delta_factor: share of the bytes that `delta` sends;
    efficiency: share of the NICs' rate that a whole sync reaches, such as 0.13 for RollArt's over
    400 Gbit/s or 0.84 for Weave's over 20. Default: set-up, packing and unpacking as calibrated in
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

    hbm: of the rate of HBM.
    matmul: the best bf16 matmul measured on H100, 794.5 of 989 TFLOPS,
    github.com/stas00/ml-engineering (MAMF). An engine reaches roofline.MATMUL_SHARE of that in
    turn.
    training: if given, passes take their FLOPs at this share. Default: the model of `training`
    says how long they take.
    """

    section = "efficiency."
    hbm: float = key(fraction, HBM_SHARE)
    matmul: float = key(fraction, 0.80)
    training: float | None = key(fraction, None)
