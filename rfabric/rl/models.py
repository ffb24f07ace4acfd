"""Language models from their own Hugging Face `config.json`: parameters, KV bytes, FLOPs. Decoders, dense (Llama, Qwen) or
with mixtures of experts (Qwen MoE).

    Model.read("traffic/models/Qwen2.5-14B.json").parameters -> 14_770_033_664
    Model.read("traffic/models/Qwen3-30B-A3B.json").active_parameters -> 3_353_032_704

FLOPs count a multiply-add as two. Attention is causal: s tokens cost 2 s^2 a head dimension, half of the square.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError

BF16_BYTES = 2
# The model types read here, and whether their QKV projections have a bias (source: their classes in transformers).
QKV_BIAS = {"qwen2": True, "qwen3": False, "llama": False, "mistral": False, "qwen2_moe": True, "qwen3_moe": False}
QK_NORM = ("qwen3", "qwen3_moe")
MIXTURES = ("qwen2_moe", "qwen3_moe")
_NOT_READ = ("num_local_experts", "n_routed_experts", "kv_lora_rank")


@dataclass(frozen=True)
class Experts:
    """The mixtures of a model: `layers` of its layers choose `per_token` of `count` gated MLPs of `intermediate` columns.

    `shared`: columns of the MLP beside them that every token passes, with a gate of its own; 0 where there is none.
    """

    count: int
    per_token: int
    intermediate: int
    layers: int
    shared: int = 0


@dataclass(frozen=True)
class Model:
    """Shape of a decoder with grouped-query attention and a gated MLP; `context`: its longest sequence.

    `intermediate`: columns of the MLP of the layers without experts.
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
    qkv_bias: bool = False
    qk_norm: bool = False
    experts: Experts | None = None

    def __post_init__(self):
        for key in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "context"):
            self._check_count(key, getattr(self, key))
        for key in ("count", "per_token", "intermediate", "layers") if self.experts else ():
            self._check_count(f"experts.{key}", getattr(self.experts, key))
        if self.experts and self.experts.per_token > self.experts.count:
            raise RFabricError(
                f"model {self.name}: a token cannot take {self.experts.per_token} of {self.experts.count} experts"
            )
        if self.heads % self.kv_heads:
            raise RFabricError(f"model {self.name}: {self.kv_heads} KV heads do not divide {self.heads} heads")

    def _check_count(self, key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")

    @classmethod
    def read(cls, path: str | Path) -> "Model":
        """The model that a Hugging Face config file describes."""
        try:
            config = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise RFabricError(f"model config {path}: {error}") from error
        if not isinstance(config, dict):
            raise RFabricError(f"model config {path}: holds no object; give a Hugging Face config.json")
        return cls.from_config(config, Path(path).stem)

    @classmethod
    def from_config(cls, config: dict, name: str) -> "Model":
        """The model of a config.json's keys; unknown architectures are refused, never guessed."""
        kind, strange = config.get("model_type"), [key for key in _NOT_READ if config.get(key)]
        strange += ["num_experts"] if config.get("num_experts") and kind not in MIXTURES else []
        if kind not in QKV_BIAS or strange:
            what = f"model_type {kind!r}" + (f" with {', '.join(strange)}" if strange else "")
            raise RFabricError(f"model {name}: {what} is not modelled; models of {', '.join(QKV_BIAS)} are")
        try:
            heads, hidden = config["num_attention_heads"], config["hidden_size"]
            return cls(
                name=name,
                layers=config["num_hidden_layers"],
                hidden=hidden,
                intermediate=config["intermediate_size"],
                heads=heads,
                kv_heads=config.get("num_key_value_heads") or heads,
                head_dim=config.get("head_dim") or hidden // heads,
                vocab=config["vocab_size"],
                context=config["max_position_embeddings"],
                tied=bool(config.get("tie_word_embeddings", False)),
                qkv_bias=bool(config.get("attention_bias", QKV_BIAS[kind])),
                qk_norm=kind in QK_NORM,
                experts=_experts(config, name) if kind in MIXTURES else None,
            )
        except KeyError as error:
            lacks = f"its config lacks {error.args[0]}; give the published config.json"
            raise RFabricError(f"model {name}: {lacks}") from error
        except (TypeError, ZeroDivisionError) as error:
            wrong = "hidden_size and num_attention_heads must be whole numbers above 0"
            raise RFabricError(f"model {name}: {wrong}") from error

    @property
    def parameters(self) -> int:
        """All parameters."""
        each = self._attention_parameters + 2 * self.hidden
        dense = (self.layers - self._sparse_layers) * 3 * self.hidden * self.intermediate
        around = self.experts.layers * self._beside_experts if self.experts else 0
        once = self.hidden + self._embedding * (1 if self.tied else 2)
        return self.layers * each + dense + around + self.expert_parameters + once

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
        chosen = self.experts.layers * self.experts.per_token * self._one_expert if self.experts else 0
        return self.dense_parameters + chosen

    @property
    def matmul_parameters(self) -> int:
        """Active parameters that a token is multiplied with: all but the embedding that is only looked up."""
        return self.active_parameters - (0 if self.tied else self._embedding)

    @property
    def weight_bytes(self) -> int:
        """Bytes of one bf16 copy."""
        return BF16_BYTES * self.parameters

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, bf16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BF16_BYTES

    @property
    def attention_flops_per_context_token(self) -> int:
        """FLOPs of one new token attending to one token of context: scores and values, in all layers."""
        return 4 * self.layers * self.heads * self.head_dim

    def forward_flops(self, tokens: float, squares: float) -> float:
        """FLOPs of a forward pass over sequences of `tokens` in all; `squares` adds up the squares of their lengths."""
        return 2 * self.matmul_parameters * tokens + self.attention_flops_per_context_token * squares / 2

    @property
    def _embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def _sparse_layers(self) -> int:
        return self.experts.layers if self.experts else 0

    @property
    def _one_expert(self) -> int:
        return 3 * self.hidden * self.experts.intermediate

    @property
    def _beside_experts(self) -> int:
        """Of one layer: the router, and the shared MLP with its gate."""
        shared = 3 * self.hidden * self.experts.shared + self.hidden if self.experts.shared else 0
        return self.hidden * self.experts.count + shared

    @property
    def _attention_parameters(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        norms = 2 * self.head_dim if self.qk_norm else 0
        return self.hidden * (2 * queries + 2 * keys) + (queries + 2 * keys if self.qkv_bias else 0) + norms


def _experts(config: dict, name: str) -> Experts:
    """The mixtures of a Qwen MoE config; which layers have one: transformers, Qwen3MoeDecoderLayer."""
    step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if isinstance(step, bool) or not isinstance(step, int) or step < 1 or not isinstance(dense, list):
        raise RFabricError(
            f"model {name}: decoder_sparse_step {step!r} must be a whole number above 0, mlp_only_layers {dense!r} a list"
        )
    sparse = [i for i in range(config["num_hidden_layers"]) if (i + 1) % step == 0 and i not in dense]
    return Experts(
        count=config["num_experts"],
        per_token=config["num_experts_per_tok"],
        intermediate=config["moe_intermediate_size"],
        layers=len(sparse),
        shared=config.get("shared_expert_intermediate_size") or 0,
    )
