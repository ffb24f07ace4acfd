"""How a config says its weights are stored, in the words of the tools that quantise.

fp8 mxfp4          transformers, as DeepSeek-V3 and gpt-oss are published
fbgemm_fp8 quark   modelopt compressed-tensors torchao bitsandbytes gptq awq hqq auto-round
"""

import json
import re

from .config_fields import Fields

# What is said beside weights: of activations, caches, what stays as it is, types to compute in.
_BESIDE = re.compile(r"input|output|activation_|cache|ignore|modules|exclude|bnb_4bit|compute|bias")
_BITS = re.compile(
    r'"(?:num_bits|[nw]?bits|w_bit)": (\d+)|"w(\d)a(?:\d|fp)|u?int(\d)(?:_?weight|")'
)


def stored_as(fields: Fields) -> tuple[str, tuple[str, ...]]:
    """A key of STORED_BYTES, and a note where the config does not tell it in words known here."""
    plain = {"float32": "fp32", "float16": "fp16"}.get(str(fields.get("dtype", "")), "bf16")
    quantised = fields.raw("quantization_config")
    if not isinstance(quantised, dict) or not quantised:
        return plain, ()
    stored, bits = _quantisation(quantised)
    method = str(quantised.get("quant_method", ""))[:40]
    if not stored:
        return plain, (
            f"quantization_config {method!r} does not tell how weights are stored: {plain} taken",
        )
    odd = bits not in (None, 4, 8)
    return stored, (f"weights of {bits} bits are taken as {stored}",) if odd else ()


def _quantisation(q: dict) -> tuple[str, int | None]:
    """How weights are stored ('': it does not tell), and in how many bits where it says so."""
    method = str(q.get("quant_method", "")).lower()
    if method == "fp8":
        return ("fp8_block" if q.get("weight_block_size") else "fp8"), None
    if method == "mxfp4":
        return method, None
    said = json.dumps(_of_weights(q)).lower()
    if four := next((name for name in ("nvfp4", "mxfp4") if name in said), ""):
        return four, None
    bits = _bits(q, said)
    floats = '"float"' in said and '"int8"' not in said
    if bits != 4 and "fp8" in said or bits is None and "float8" in said or bits == 8 and floats:
        return "fp8", None
    if '"fp4' in said:
        return ("nvfp4" if method.startswith("modelopt") else "mxfp4"), None
    if bits is None and method not in ("awq", "gptq", "marlin", "gptq_marlin"):
        return "", None
    return ("int8" if (bits or 4) > 4 else "int4"), bits


def _bits(q: dict, said: str) -> int | None:
    """Bits of a weight, where they are said."""
    for bits in (8, 4):
        if q.get(f"load_in_{bits}bit") is True:
            return bits
    found = _BITS.search(said)
    return int(next(filter(None, found.groups()))) if found else None


def _of_weights(value: object) -> object:
    """What is said of weights alone."""
    if isinstance(value, dict):
        return {k: _of_weights(v) for k, v in value.items() if not _BESIDE.search(str(k).lower())}
    return [_of_weights(one) for one in value] if isinstance(value, list) else value
