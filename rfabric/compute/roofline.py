"""How long a step of an inference engine takes: rooflines of decode and prefill.

Pure functions of model, GPU and token counts.

    one step of n responses with C tokens of context in all, and of p prompt tokens that make a
    pairs of tokens to attend:

        max( weights + experts touched + C kv     over HBM,
             2 N (n + p) + attention (C + a)      over FLOP/s )
        + kernels + all-reduces + what is read and written between matmuls + the host's work

    weights, N, attention and kv are cut by tp; a server of several attention replicas (dp) cuts its
    responses by dp and its experts by tp x dp; stages (pp) pass batches of n / pp after one
    another.

With experts, N is what a token passes and the weights are those that n + p tokens touch: each of E
experts a layer is left out with probability (1 - k/E)^(n+p), as tokens choose evenly and
independently.

While n is constant C grows by n a step, so the steps between two events are one closed sum
(`serving` plays the events).

Constants: HBM and kernel latency are aiconfigurator's; matmul is the best measured one (catalog)
times what an engine reaches of it; the host's two are fitted.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .communication import collective_seconds, network
from .gpus import HBM_SHARE, KERNEL_S, Gpu
from .layout import ALL_REDUCES_PER_LAYER
from .memory import UTILISATION, engine_weight_bytes, kv_bytes_per_gpu, kv_shards, room_for_kv
from .models import BF16_BYTES, STORED_BYTES, Model

# A layer has about seven kernels, counted: two norms, QKV, attention, output, gate-and-up with its
# activation, down. Routing adds four: router, choice, permutation and its inverse.
LAYER_KERNELS, ROUTING_KERNELS = 7, 4
# Of the best matmul a GPU was measured to do, what the matmuls of an engine reach together:
# assumed, no figure of it alone is published.
MATMUL_SHARE = 0.80
# What the host adds to a step that the GPU waits for: scheduling, inputs, sampling, and more for
# each response. Fitted on aiconfigurator's silicon_sample.csv, by hand, to two figures.
HOST_STEP_S, HOST_RESPONSE_S = 1.5e-3, 30e-6
# An engine's step of prefill: tokens of its slope of all-reduces, vLLM's and SGLang's default chunk
# on GPUs of 80 GB.
CHUNK_TOKENS = 8192


@dataclass(frozen=True)
class Server:
    """GPUs that generate together: dp attention replicas of tp GPUs, pp stages of such; experts
    dealt to ep, else cut over all.

    weights, expert_weights: how they are stored, of models.STORED_BYTES; kv_bytes: of a number in
    the KV cache; utilisation: share of HBM the engine may take; domain: GPUs that share NVLink (the
    GPU's own when None); hbm, matmul: shares of the peaks reached; local: count only what
    collectives move inside a domain, as for a trace whose flows are the rest; length: tokens of a
    sequence it holds, by which layers with a window and without attention take room (None: as if
    all cached all).
    """

    model: Model
    gpu: Gpu
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    weights: str = "bf16"
    expert_weights: str = "bf16"
    kv_bytes: float = 2.0
    utilisation: float = UTILISATION
    domain: int | None = None
    hbm: float = HBM_SHARE
    matmul: float | None = None
    local: bool = False
    length: float | None = None

    @property
    def gpus(self) -> int:
        """GPUs that serve together."""
        return self.tp * self.pp * self.dp

    @property
    def ranks(self) -> int:
        """GPUs of a stage, among which the experts are cut."""
        return self.tp * self.dp

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights on one GPU."""
        stored = self.weights, self.expert_weights
        return engine_weight_bytes(self.model, self.tp, self.pp, self.ranks, *stored)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV cache of a token on each GPU that holds it, in all stages."""
        return (
            self.model.kv_bytes_per_token
            * self.kv_bytes
            / BF16_BYTES
            / kv_shards(self.model, self.tp)
        )

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens of KV cache beside the weights, in all attention replicas."""
        free = room_for_kv(self.gpu, self.utilisation, self.weight_bytes)
        each = kv_bytes_per_gpu(self.model, self.tp, 1, self.length) * self.kv_bytes / BF16_BYTES
        return int(free * self.pp * self.dp // each)

    def flops(self, stored: str) -> float:
        """FLOP/s of a GPU's matmuls with weights `stored` so."""
        precision = self.multiplied(stored)
        return self.gpu.peak(precision) * (
            self.matmul or MATMUL_SHARE * self.gpu.matmul_share(precision)
        )

    def multiplied(self, stored: str) -> str:
        """The precision of matmuls with weights `stored` so: bf16 where tensor cores lack the
        other, or activations stay bf16.

        Where tensor cores have fp4, MXFP4 weights meet fp8 activations.
        """
        wanted = {"fp8": "fp8", "fp8_block": "fp8", "int8": "fp8", "nvfp4": "fp4"}.get(
            stored, "bf16"
        )
        if stored == "mxfp4" and self.gpu.fp4_flops:
            wanted = "fp8"
        return wanted if getattr(self.gpu, f"{wanted}_flops") else "bf16"


class Steps:
    """What the seconds of an engine's decode steps tell, however it makes them."""

    def seconds(self, n: int, context: float, steps: int = 1) -> float:
        """Seconds of `steps` decode steps in a row of n responses; `context`: their tokens at the
        first.
        """
        raise NotImplementedError

    def steps_in(self, seconds: float, n: int, context: float, most: int) -> int:
        """The fewest decode steps, `most` at most, that take so many seconds."""
        return 1 + bisect_left(
            range(1, most), seconds, key=lambda steps: self.seconds(n, context, steps)
        )


@dataclass(frozen=True)
class DecodeStep(Steps):
    """Seconds of a step of n responses with C tokens of context, p prompt tokens and a pairs to
    attend: the sum of

    memory or computing, whichever takes longer
        memory      weights + experts (1 - missed^(n+p)) + kv C + window_kv W
        computing   matmul n + attention C + matmul_prompt p + attention_pair a + window_attention A
    overhead        overhead + overhead_per_token (n + p) + own n

    where layers that see no further back than `window` tokens see W = min(C, n window) and A =
    min(a, p window).
    `missed_share`: of the experts, those that one token leaves out.
    """

    weights_s: float
    kv_s_per_token: float
    matmul_s_per_response: float
    attention_s_per_token: float
    overhead_s: float
    overhead_s_per_token: float
    experts_s: float = 0.0
    missed_share: float = 1.0
    matmul_s_per_prompt_token: float = 0.0
    attention_s_per_pair: float = 0.0
    own_s_per_response: float = 0.0
    window_kv_s_per_token: float = 0.0
    window_attention_s_per_pair: float = 0.0
    window: int = 0

    def seconds(self, n: int, context: float, steps: int = 1) -> float:
        """Seconds of `steps` decode steps in a row; `context` is C at the first, and grows by n a
        step.

        >>> step = DecodeStep(1.0, 0.5, 0.0, 0.0, overhead_s=0.25, overhead_s_per_token=0.0)
        >>> step.seconds(2, context=4, steps=2)  # C is 4, then 6
        7.5
        """
        if self.window_kv_s_per_token and context < n * self.window:  # windows fill on the way
            filling = min(steps, -int((context - n * self.window) // n))
            rest = (
                self._steps(n, context + n * filling, steps - filling, False)
                if steps > filling
                else 0.0
            )
            return self._steps(n, context, filling, True) + rest
        return self._steps(n, context, steps, False)

    def _steps(self, n: int, context: float, steps: int, filling: bool) -> float:
        """The same with windows that all grow, or are all full."""
        memory = self._weights(n) + self.kv_s_per_token * context
        memory += self.window_kv_s_per_token * (context if filling else n * self.window)
        grown = (self.kv_s_per_token + self.window_kv_s_per_token * filling) * n
        attended = self.attention_s_per_token * n
        busy = _sum_of_max(memory, grown, self._decoding(n, context), attended, steps)
        return busy + steps * self._decode_overhead(n)

    def mixed(self, n: int, context: float, tokens: float, pairs: float) -> float:
        """Seconds of one step that decodes n responses and prefills `tokens` that attend to
        `pairs`.
        """
        memory = self._weights(n + tokens) + self.kv_s_per_token * context
        memory += self.window_kv_s_per_token * min(context, n * self.window)
        compute = self._decoding(n, context) + self.matmul_s_per_prompt_token * tokens
        windowed = self.window_attention_s_per_pair * min(pairs, tokens * self.window)
        compute += self.attention_s_per_pair * pairs + windowed
        busy = max(memory, compute) + self.overhead_s + self.overhead_s_per_token * (n + tokens)
        return busy + self.own_s_per_response * n

    def decode(self, n: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds of one decode step, as `seconds`, for arrays of n and of context of one shape."""
        memory = self._weights(n) + self.kv_s_per_token * context
        memory = memory + self.window_kv_s_per_token * np.minimum(context, n * self.window)
        busy = np.maximum(memory, self._decoding(n, context))
        return busy + self.overhead_s + (self.overhead_s_per_token + self.own_s_per_response) * n

    def shared(self, n: np.ndarray) -> np.ndarray:
        """Seconds of a decode step that do not grow with its responses, but for the experts that n
        of them touch.
        """
        return self._weights(n) + self.overhead_s

    def _weights(self, tokens):
        """Reading the weights that so many tokens touch."""
        return self.weights_s + self.experts_s * (1 - self.missed_share**tokens)

    def _decoding(self, n, context):
        return self.matmul_s_per_response * n + self.attention_s_per_token * context

    def _decode_overhead(self, n: int) -> float:
        return self.overhead_s + (self.overhead_s_per_token + self.own_s_per_response) * n


def _sum_of_max(a: float, up: float, b: float, other_up: float, steps: int) -> float:
    """Sum over steps 0 .. steps - 1 of the larger of a + up i and b + other_up i."""
    if a < b or (a == b and up < other_up):
        a, up, b, other_up = b, other_up, a, up  # a is the larger at first
    if other_up <= up:
        return _sum(a, up, 0, steps)
    turn = min(steps, int(min(steps, (a - b) / (other_up - up))) + 1)
    return _sum(a, up, 0, turn) + _sum(b, other_up, turn, steps)


def _sum(start: float, up: float, first: int, last: int) -> float:
    """Sum of start + up i over steps first .. last - 1."""
    return (last - first) * (start + up * (first + last - 1) / 2)


@lru_cache(maxsize=1024)
def step_of(s: Server) -> DecodeStep:
    """The roofline of one step of a server."""
    m, hbm = s.model, s.gpu.hbm_bytes_per_s * s.hbm
    chosen = m.active_parameters - m.dense_parameters
    # prefill needs the head for its last token alone
    dense, head = m.matmul_parameters - chosen, m.vocab * m.hidden
    parts = overheads(s).values()
    experts = 2 * chosen / s.flops(s.expert_weights)
    share = s.ranks * s.pp  # responses are cut by dp and pp, their matmuls by tp
    far = 1 - m.windowed / m.kv_layers  # of the layers with attention, those that see all
    attention, kv = s.flops("bf16") * share, s.kv_bytes_per_token / (s.dp * s.pp) / hbm
    return DecodeStep(
        weights_s=(_stored_bytes(s) * (dense - head) + BF16_BYTES * head) / s.tp / hbm,
        kv_s_per_token=kv * far,
        matmul_s_per_response=(2 * dense / s.flops(s.weights) + experts) / share,
        attention_s_per_token=m.attention_flops_per_context_token * far / attention,
        overhead_s=sum(once for once, _ in parts),
        overhead_s_per_token=sum(each for _, each in parts) / (s.dp * s.pp),
        experts_s=STORED_BYTES[s.expert_weights] * m.expert_parameters / s.ranks / hbm,
        missed_share=(1 - m.experts.per_token / m.experts.count) ** (1 / s.pp)
        if m.experts
        else 1.0,
        matmul_s_per_prompt_token=(2 * (dense - head) / s.flops(s.weights) + experts) / share,
        attention_s_per_pair=m.attention_flops_per_pair * far / attention,
        own_s_per_response=sum(of_response(s).values()) / (s.dp * s.pp),
        window_kv_s_per_token=kv * (1 - far),
        window_attention_s_per_pair=m.attention_flops_per_pair * (1 - far) / attention,
        window=m.window if m.windowed else 0,
    )


def overheads(s: Server) -> dict[str, tuple[float, float]]:
    """What a step takes beside reading and matmuls, by what takes it: seconds a step, and seconds a
    token of one attention replica.
    """
    m = s.model
    kernels = m.layers * LAYER_KERNELS + (m.experts.layers * ROUTING_KERNELS if m.experts else 0)
    return {
        "kernels": (kernels * KERNEL_S, 0.0),
        "collectives": _communication(s),
        "activations": (0.0, _between_matmuls(s) / (s.gpu.hbm_bytes_per_s * s.hbm)),
        "host": (HOST_STEP_S, 0.0),
    }


def of_response(s: Server) -> dict[str, float]:
    """What a response that decodes adds to a step beside matmuls and attention, by what takes it:
    seconds of one attention replica. Layers without attention read and write its state (their
    recurrences: Mamba, arXiv 2312.00752; gated delta nets, 2412.06464), a part on each of tp GPUs.
    """
    states = 2 * s.model.state_bytes / s.tp / (s.gpu.hbm_bytes_per_s * s.hbm)
    return {"host": HOST_RESPONSE_S, "states": states}


def _stored_bytes(s: Server) -> float:
    """Bytes of a weight of what all tokens pass; MXFP4 is for experts only."""
    return BF16_BYTES if s.weights == "mxfp4" else STORED_BYTES[s.weights]


def _between_matmuls(s: Server) -> float:
    """Bytes a GPU reads and writes for one token outside matmuls and attention: norms with
    residuals, rotation, activation.

    A norm reads and writes its input and the residual; fp8 and fp4 matmuls have their inputs read
    and written smaller.
    """
    m = s.model
    queries, keys = m.heads * m.head_dim / s.tp, 2 * m.kv_heads * m.head_dim / kv_shards(m, s.tp)
    columns = m.mlp_columns / s.tp
    each = BF16_BYTES * (2 * 4 * m.hidden + 2 * (queries + keys) + 3 * columns)
    if s.multiplied(s.weights) != "bf16":
        each += (BF16_BYTES + STORED_BYTES[s.weights]) * (2 * m.hidden + queries + columns)
    return m.layers * each


def _communication(s: Server) -> tuple[float, float]:
    """(seconds a step, seconds a token of one attention replica): all-reduces of tp, and experts'
    all-to-all where dp > 1.

    With one replica all its GPUs hold all tokens, so its experts need the same all-reduce that a
    cut MLP does. With more, a token goes to the GPUs of its experts and back; a stage of a pipeline
    sends its tokens on.
    """
    m, moved = s.model, s.model.hidden * BF16_BYTES
    once, per_token = _line("all-reduce", moved, s.tp, s)
    reduces = ALL_REDUCES_PER_LAYER * m.layers
    start, token = reduces * once, reduces * per_token
    if s.dp > 1 and m.experts:
        # To each GPU that has a part of a chosen expert; the tp GPUs of a replica send a part of
        # its tokens each.
        copies = min(m.experts.per_token, s.ep) * s.ranks / s.ep / s.tp
        once_all, per_copy = _line("all-to-all", moved * copies, s.ranks, s)
        start += m.experts.layers * (2 * once_all - once)
        token += m.experts.layers * (2 * per_copy - per_token)
    if s.pp > 1:
        once, per_token = _line("send-recv", moved, 2, s)
        start, token = start + (s.pp - 1) * once, token + (s.pp - 1) * per_token
    return start, token


def _line(kind: str, size: float, ranks: int, s: Server) -> tuple[float, float]:
    """(seconds at no size, seconds a token) of a collective of `size` bytes a token: through one
    token and a chunk of them.
    """
    net = network(s.gpu, domain=s.domain or s.gpu.nvlink_gpus)
    start = collective_seconds(kind, size, ranks, net)
    inside = min(ranks, net.domain) if s.local else ranks
    if kind == "all-to-all":
        size *= inside / ranks  # a GPU sends as much to each other
    once, chunk = (
        collective_seconds(kind, size * tokens, inside, net) for tokens in (1, CHUNK_TOKENS)
    )
    return start, (chunk - once) / (CHUNK_TOKENS - 1)
