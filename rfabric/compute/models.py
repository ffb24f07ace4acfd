"""Language models as shapes: parameters, bytes of weights and KV cache, FLOPs.

`configs` reads them from a config.json, `named` finds them by name.

    layer = attention (grouped-query, or latent: MLA) + MLP (gated or not), or a mixture of such
    MLPs (experts)

FLOPs count a multiply-add as two. Attention is causal: s tokens see s^2 / 2 pairs of tokens. Layers
that predict further tokens (MTP) stand apart: published totals leave them out, and engines run them
only when they speculate.
"""

from dataclasses import dataclass

from ..errors import RFabricError

BF16_BYTES, FP32_BYTES = 2, 4
# Bytes a weight of the layers' matrices takes as it is stored, with its scales: blockwise fp8 with
# a float32 for 128 x 128 weights (DeepSeek-V3, arXiv 2412.19437), MXFP4 a byte for 32 (OCP
# Microscaling 1.0), NVFP4 a byte for 16, int4 an fp16 for 128 (GPTQ).
STORED_BYTES = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1 + 4 / 128**2, "int8": 1.0,
    "mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16, "int4": 0.5 + 2 / 128,
}  # fmt: skip


@dataclass(frozen=True)
class Experts:
    """The mixtures of a model: `layers` of its layers choose `per_token` of `count` MLPs of
    `intermediate` columns.

    `shared`: columns of the MLPs beside them that every token passes, with a gate of its own where
    `shared_gate`; 0: none.
    `biased`: router and experts have biases. `router_bias`: the router alone has one, to balance
    loads.
    """

    count: int
    per_token: int
    intermediate: int
    layers: int
    shared: int = 0
    shared_gate: bool = False
    biased: bool = False
    router_bias: bool = False


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434): a token is cached as
    `kv_rank` + `rope` numbers a layer.

    A head's query and key have `nope` + `rope` columns, its value `value`. `query_rank` 0: queries
    are not compressed.
    """

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class Model:
    """Shape of a decoder; `context`: its longest sequence in tokens.

    intermediate: columns of the MLP of the layers without experts; `gated`: it has a gate beside up
    and down.
    window, windowed: so many layers see no further back than `window` tokens.
    attention_layers, mlp_layers: how many layers have attention, and an MLP of their own; None:
    all, and all without experts.
    others: parameters beside these matrices that a token is multiplied with (state-space layers,
    gates of attention), in all layers; states, of `state_number` bytes, and convolved, in bf16:
    numbers that those layers hold of a sequence however long; kv_number: bytes of one in the KV
    cache.
    vectors: parameters of norms and biases in all layers; once: those outside of layers; positions:
    rows of a learned table.
    next_layers: layers that predict further tokens (MTP), not counted in `layers` nor in any total
    but `mtp_parameters`.
    stored: how its published weights are stored; notes: what of its config was read with a grain of
    salt; published_b: the parameters that its maker states, in billions, where the config carries
    that.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool = False
    gated: bool = True
    experts: Experts | None = None
    latent: Latent | None = None
    window: int = 0
    windowed: int = 0
    attention_layers: int | None = None
    mlp_layers: int | None = None
    others: int = 0
    states: int = 0
    convolved: int = 0
    state_number: int = BF16_BYTES
    kv_number: int = BF16_BYTES
    vectors: int = 0
    once: int = 0
    positions: int = 0
    next_layers: int = 0
    stored: str = "bf16"
    notes: tuple[str, ...] = ()
    published_b: float | None = None
    published_active_b: float | None = None

    def __post_init__(self):
        for key in (
            "layers",
            "hidden",
            "intermediate",
            "heads",
            "kv_heads",
            "head_dim",
            "vocab",
            "context",
        ):
            self._check_count(key, getattr(self, key))
        for key in ("count", "per_token", "intermediate", "layers") if self.experts else ():
            self._check_count(f"experts.{key}", getattr(self.experts, key))
        for key in ("kv_rank", "nope", "rope", "value") if self.latent else ():
            self._check_count(f"latent.{key}", getattr(self.latent, key))
        if self.experts and self.experts.per_token > self.experts.count:
            raise RFabricError(
                f"model {self.name}: a token cannot take {self.experts.per_token} of "
                f"{self.experts.count} experts"
            )
        if self.heads % self.kv_heads:
            raise RFabricError(
                f"model {self.name}: {self.kv_heads} KV heads do not divide {self.heads} heads"
            )

    def _check_count(self, key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")

    # --- parameters -------------------------------------------------------------------------------

    @property
    def parameters(self) -> int:
        """All parameters, as published totals count them: without the layers that predict further
        tokens.
        """
        return self._in_layers + self.expert_parameters + self._outside

    @property
    def expert_parameters(self) -> int:
        """Those of the experts a token may choose, all of them."""
        return self.experts.layers * self.experts.count * self._one_expert if self.experts else 0

    @property
    def dense_parameters(self) -> int:
        """All others: what every token passes."""
        return self.parameters - self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token passes: with experts, only the chosen ones."""
        chosen = (
            self.experts.layers * self.experts.per_token * self._one_expert if self.experts else 0
        )
        return self.dense_parameters + chosen

    @property
    def matmul_parameters(self) -> int:
        """Active parameters that a token is multiplied with: all but the embedding that is only
        looked up.
        """
        return self.active_parameters - self.looked_up_parameters

    @property
    def looked_up_parameters(self) -> int:
        """Those of tables of which a token takes one row."""
        return (0 if self.tied else self._embedding) + self.positions * self.hidden

    @property
    def logits_parameters(self) -> int:
        """Those of the matrix that makes logits, which is the embedding where they are tied."""
        return self._embedding

    @property
    def parameters_before_layers(self) -> int:
        """Those of the embedding, and of learned positions."""
        return self._embedding + self.positions * self.hidden

    @property
    def parameters_behind_layers(self) -> int:
        """Those of the matrix of the logits, where it is one of its own, and of the last norm."""
        return self._outside - self.parameters_before_layers

    @property
    def mtp_parameters(self) -> int:
        """Those of the layers that predict further tokens: each a layer like the last, and a matrix
        that joins two vectors.
        """
        return self.next_layers * (
            self.layer_parameters(bool(self.experts)) + 2 * self.hidden**2 + 3 * self.hidden
        )

    def layer_parameters(self, sparse: bool = False) -> int:
        """Parameters of one layer with attention: with all its experts where `sparse`, else with an
        MLP of its own.
        """
        mlp = (
            self._beside_experts + self.experts.count * self._one_expert
            if sparse
            else self._mlp(self.intermediate)
        )
        return self._attention + mlp + (self.vectors + self.others) // self.layers

    @property
    def mlp_columns(self) -> float:
        """Columns of the MLPs that a token passes in a layer, the mean over layers."""
        e = self.experts
        sparse = e.layers * (e.per_token * e.intermediate + e.shared) if e else 0
        return (sparse + self.own_mlps * self.intermediate) / self.layers

    @property
    def mlp_layers_passed(self) -> int:
        """Layers in which every token passes an MLP: one of their own, or a shared one."""
        return self.own_mlps + (self.experts.layers if self.experts and self.experts.shared else 0)

    @property
    def mlp_parameters(self) -> int:
        """Those of the MLPs that every token passes, without routers and gates."""
        shared = self.experts.layers * self._mlp(self.experts.shared) if self.experts else 0
        return self.own_mlps * self._mlp(self.intermediate) + shared

    @property
    def layer_mean(self) -> float:
        """Parameters of a layer, the mean over kinds of layers."""
        return (self.parameters - self._outside) / self.layers

    # --- bytes ------------------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        """Bytes of one bf16 copy."""
        return BF16_BYTES * self.parameters

    @property
    def stored_bytes(self) -> float:
        """Bytes of one copy as it was published."""
        return self.weight_bytes_at(self.stored)

    def weight_bytes_at(self, precision: str) -> float:
        """Bytes of one copy whose layers' matrices are stored at `precision`, the rest in bf16;
        MXFP4 is for experts only. RFabricError for a precision that is not known.
        """
        if precision not in STORED_BYTES:
            raise RFabricError(
                f"weights stored as {precision!r} are not known; use one of "
                f"{', '.join(STORED_BYTES)}"
            )
        quantised = (
            self.expert_parameters
            if precision == "mxfp4"
            else self.parameters - self._outside - self.vectors
        )
        return BF16_BYTES * (self.parameters - quantised) + STORED_BYTES[precision] * quantised

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers; of latent attention what it caches in their
        place.
        """
        return self.kv_layers * self.kv_layer_bytes

    @property
    def kv_layer_bytes(self) -> int:
        """Keys and values of one token in one layer."""
        if self.latent:
            return (self.latent.kv_rank + self.latent.rope) * self.kv_number
        return 2 * self.kv_heads * self.head_dim * self.kv_number

    @property
    def kv_layers(self) -> int:
        """Layers with attention, which alone cache keys and values."""
        return self.layers if self.attention_layers is None else self.attention_layers

    @property
    def state_bytes(self) -> int:
        """What layers without attention hold of a sequence."""
        return self.states * self.state_number + self.convolved * BF16_BYTES

    def kv_bytes(self, tokens: float) -> float:
        """What a sequence of so many tokens holds: layers with a window keep only that, others of
        no attention a fixed state.
        """
        kept = self.windowed * min(tokens, self.window) + (self.kv_layers - self.windowed) * tokens
        return kept * self.kv_layer_bytes + self.state_bytes

    # --- FLOPs ------------------------------------------------------------------------------------

    @property
    def attention_flops_per_context_token(self) -> int:
        """FLOPs of one new token attending to one token of context in decode: scores and values, in
        all layers.

        Latent attention decodes in the compressed space: a head's query and its sum have kv_rank
        columns.
        """
        if self.latent:
            return self.kv_layers * self.heads * 2 * (2 * self.latent.kv_rank + self.latent.rope)
        return 4 * self.kv_layers * self.heads * self.head_dim

    @property
    def attention_flops_per_pair(self) -> int:
        """FLOPs of one token attending to one before it in prefill and training: latents are
        expanded to keys and values.
        """
        if self.latent:
            return (
                self.kv_layers
                * self.heads
                * 2
                * (self.latent.nope + self.latent.rope + self.latent.value)
            )
        return self.attention_flops_per_context_token

    def forward_flops(self, tokens: float, squares: float) -> float:
        """FLOPs of a forward pass over sequences of `tokens` in all; `squares` adds up the squares
        of their lengths.
        """
        return 2 * self.matmul_parameters * tokens + self.attention_flops_per_pair * squares / 2

    def decode_flops(self, context: float) -> float:
        """FLOPs of one new token after `context` tokens."""
        beyond = 1 - min(1, self.window / context) if self.windowed and context else 0
        seen = 1 - self.windowed / self.kv_layers * beyond
        return 2 * self.matmul_parameters + self.attention_flops_per_context_token * context * seen

    def training_flops(self, tokens: float, squares: float) -> float:
        """FLOPs of forward and backward, which takes twice as many, without recomputation."""
        return 3 * self.forward_flops(tokens, squares)

    # --- parts ------------------------------------------------------------------------------------

    @property
    def _in_layers(self) -> int:
        """Of all layers, without the experts that tokens choose."""
        around = self.experts.layers * self._beside_experts if self.experts else 0
        mlps = self.own_mlps * self._mlp(self.intermediate)
        return self.kv_layers * self._attention + mlps + around + self.others + self.vectors

    @property
    def _outside(self) -> int:
        return self._embedding * (1 if self.tied else 2) + self.positions * self.hidden + self.once

    @property
    def _embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def own_mlps(self) -> int:
        """Layers with an MLP of their own."""
        sparse = self.experts.layers if self.experts else 0
        return self.layers - sparse if self.mlp_layers is None else self.mlp_layers

    def _mlp(self, columns: int) -> int:
        return (3 if self.gated else 2) * self.hidden * columns

    @property
    def _one_expert(self) -> int:
        e = self.experts
        return self._mlp(e.intermediate) + (
            (1 + self.gated) * e.intermediate + self.hidden if e.biased else 0
        )

    @property
    def _beside_experts(self) -> int:
        """Of one layer: the router, and the shared MLP with its gate."""
        e = self.experts
        bias = e.count if e.biased or e.router_bias else 0
        return self.hidden * (e.count + e.shared_gate) + self._mlp(e.shared) + bias

    @property
    def _attention(self) -> int:
        """The matrices of attention in one layer."""
        if self.latent is None:
            return self.hidden * 2 * (self.heads + self.kv_heads) * self.head_dim
        m = self.latent
        queries = self.heads * (m.nope + m.rope)
        compressed = (
            self.hidden * m.query_rank + m.query_rank * queries
            if m.query_rank
            else self.hidden * queries
        )
        cached = self.hidden * (m.kv_rank + m.rope) + m.kv_rank * self.heads * (m.nope + m.value)
        return compressed + cached + self.heads * m.value * self.hidden
