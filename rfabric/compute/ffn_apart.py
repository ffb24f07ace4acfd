"""How long a step of an engine takes whose FFN stands on GPUs of its own: attention on some GPUs of
a replica, MLPs and experts on the others (MegaScale-Infer, arXiv 2504.02263; Step-3, arXiv
2507.19427).

    attention   |= half 1 =|= half 2 =|= half 1 =|= half 2 =|      layer after layer
    FFN                    |= half 1 =|= half 2 =|= half 1 =| ...

The batch goes in two halves, ping-pong, so that one is with the FFN while the other attends: a step
takes what the slower side needs for both halves, and each side reads its weights for each. That the
first half is alone in its first layer, one in 2 x layers, is left out. Attention GPUs hold norms,
attention, the router, embedding and head; what goes between the sides is a flow of the trace.

    seconds of a step = max(attention side, FFN side), either of them a roofline.DecodeStep
"""

from dataclasses import dataclass, replace

from .gpus import KERNEL_S
from .layout import ALL_REDUCES_PER_LAYER
from .models import BF16_BYTES, STORED_BYTES, Model
from .roofline import (
    HOST_STEP_S,
    LAYER_KERNELS,
    ROUTING_KERNELS,
    DecodeStep,
    Server,
    Steps,
    step_of,
)

HALVES = 2  # of a batch: MegaScale-Infer needs two where sending takes less than half a layer
FFN_KERNELS = 2  # of a layer's seven: gate-and-up with its activation, down


@dataclass(frozen=True)
class Sides(Steps):
    """Seconds of steps as `DecodeStep` has them, of two sides that work on the halves of a batch in
    turn.
    """

    attention: DecodeStep
    ffn: DecodeStep

    def seconds(self, n: int, context: float, steps: int = 1) -> float:
        """Seconds of `steps` decode steps in a row, as `DecodeStep.seconds`.

        Contexts grow and the FFN does not see them: once attention is the slower side it stays so.
        """
        low, high = 0, steps  # before the first step in which attention is the slower side
        while low < high:
            middle = (low + high) // 2
            one = n, context + n * middle
            if self.attention.seconds(*one) > self.ffn.seconds(*one):
                high = middle
            else:
                low = middle + 1
        by_ffn = self.ffn.seconds(n, context, low) if low else 0.0
        rest = steps - low
        return by_ffn + (self.attention.seconds(n, context + n * low, rest) if rest else 0.0)

    def mixed(self, n: int, context: float, tokens: float, pairs: float) -> float:
        """Seconds of one step that decodes n responses and prefills `tokens` that attend to
        `pairs`.
        """
        return max(side.mixed(n, context, tokens, pairs) for side in (self.attention, self.ffn))


def sides_of(s: Server, gpus: int) -> Sides:
    """The rooflines of attention on the GPUs of `s` and of the FFN on so many others.

    What is read and written between matmuls, and all-reduces a token, count with attention.
    """
    m, hbm = s.model, s.gpu.hbm_bytes_per_s * s.hbm
    whole, alone = step_of(replace(s, ep=1)), step_of(replace(s, dp=1, ep=1))
    chosen = m.active_parameters - m.dense_parameters
    passed = 2 * m.mlp_parameters / s.flops(s.weights) + 2 * chosen / s.flops(s.expert_weights)
    mlp_bytes = mlp_stored_bytes(m, s.weights)
    routing = m.experts.layers * ROUTING_KERNELS if m.experts else 0
    kernels = m.layers * LAYER_KERNELS + routing
    reduces = (alone.overhead_s - HOST_STEP_S - kernels * KERNEL_S) / ALL_REDUCES_PER_LAYER
    attends = m.layers * (LAYER_KERNELS - FFN_KERNELS) * KERNEL_S
    attention = replace(
        whole,
        weights_s=HALVES * (whole.weights_s - mlp_bytes / s.tp / hbm),
        matmul_s_per_response=whole.matmul_s_per_response - passed / s.ranks,
        matmul_s_per_prompt_token=whole.matmul_s_per_prompt_token - passed / s.ranks,
        overhead_s=HALVES * (attends + reduces) + HOST_STEP_S,
        overhead_s_per_token=alone.overhead_s_per_token / s.dp,
        experts_s=0.0,
        missed_share=1.0,
    )
    ffn = DecodeStep(
        weights_s=HALVES * mlp_bytes / gpus / hbm,
        kv_s_per_token=0.0,
        matmul_s_per_response=passed / gpus,
        attention_s_per_token=0.0,
        overhead_s=HALVES * (m.layers * FFN_KERNELS + routing) * KERNEL_S,
        overhead_s_per_token=0.0,
        experts_s=HALVES * STORED_BYTES[s.expert_weights] * m.expert_parameters / gpus / hbm,
        missed_share=_missed(m),
        matmul_s_per_prompt_token=passed / gpus,
    )
    return Sides(attention, ffn)


def mlp_stored_bytes(model: Model, precision: str) -> float:
    """Bytes of the MLPs that every token passes; MXFP4 is for experts only."""
    stored = BF16_BYTES if precision == "mxfp4" else STORED_BYTES[precision]
    return stored * model.mlp_parameters


def side_weight_bytes(model: Model, tp: int, gpus: int, precision: str) -> tuple[float, float]:
    """Bytes of weights on a GPU that attends, one of tp, and on one of `gpus` of the FFN."""
    experts = STORED_BYTES[precision] * model.expert_parameters
    mlps = mlp_stored_bytes(model, precision)
    others = model.weight_bytes_at(precision) - experts - mlps
    return others / tp, (mlps + experts) / gpus


def _missed(model: Model) -> float:
    """Of the experts, the share that a response leaves out, as each half of a batch sees them."""
    experts = model.experts
    return (1 - experts.per_token / experts.count) ** (1 / HALVES) if experts else 1.0
