"""Language models from their own Hugging Face `config.json`: parameters, KV bytes, FLOPs. Dense decoders (Llama, Qwen).

    Model.read("traffic/models/Qwen2.5-14B.json").parameters -> 14_770_033_664

FLOPs count a multiply-add as two. Attention is causal: s tokens cost 2 s^2 a head dimension, half of the square.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError

BF16_BYTES = 2
# The model types read here, and whether their QKV projections have a bias (source: their classes in transformers).
QKV_BIAS = {"qwen2": True, "qwen3": False, "llama": False, "mistral": False}
_SPARSE = ("num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank")


@dataclass(frozen=True)
class Model:
    """Shape of a dense decoder with grouped-query attention and a gated MLP; `context`: its longest sequence."""

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

    def __post_init__(self):
        for key in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "context"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RFabricError(f"model {self.name}: {key} {value!r} must be a whole number above 0")
        if self.heads % self.kv_heads:
            raise RFabricError(f"model {self.name}: {self.kv_heads} KV heads do not divide {self.heads} heads")

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
        kind, sparse = config.get("model_type"), [key for key in _SPARSE if config.get(key)]
        if kind not in QKV_BIAS or sparse:
            what = f"model_type {kind!r}" + (f" with {', '.join(sparse)}" if sparse else "")
            raise RFabricError(f"model {name}: {what} is not modelled; dense models of {', '.join(QKV_BIAS)} are")
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
                qk_norm=kind == "qwen3",
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
        per_layer = self._attention_parameters + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * per_layer + self.hidden + self._embedding * (1 if self.tied else 2)

    @property
    def matmul_parameters(self) -> int:
        """Parameters that every token is multiplied with: all but the embedding that is only looked up."""
        return self.parameters - (0 if self.tied else self._embedding)

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
    def _attention_parameters(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        norms = 2 * self.head_dim if self.qk_norm else 0
        return self.hidden * (2 * queries + 2 * keys) + (queries + 2 * keys if self.qkv_bias else 0) + norms
