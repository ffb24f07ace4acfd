"""In which format engines keep what they know of a sequence: KV cache, and states of layers without
attention.
"""

from ...compute.models import FP32_BYTES, Model
from .endings import take_ending
from .settings import JobSettings
from .sourced_values import SourcedValues


def read_caches(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """Put the formats that are said, or SGLang's of states; what is said of states that a model
    does not have goes by.
    """
    cache = take_ending(s, "kv_cache_dtype", "sglang_kv_cache_dtype")
    if cache and "fp8" in str(cache[1]):
        recipe.put("generation.kv_dtype", "fp8", cache[0])
    elif cache and str(cache[1]).removeprefix("torch.") not in _WHOLE:
        s.notes += (f"{cache[0]} = {cache[1]}: numbers of the KV cache are counted as bf16",)
    states = take_ending(s, *_STATES)
    if not model.states:
        return
    if states and (dtype := _DTYPES.get(str(states[1]).removeprefix("torch."))):
        recipe.put("generation.state_dtype", dtype, states[0])
    elif "sglang" in recipe.engine and model.state_number != FP32_BYTES:
        # mamba2_state_dtype in SGLang's configs/mamba_utils.py
        recipe.assume("generation.state_dtype", "fp32", "SGLang's default where no config says it")


_WHOLE = ("auto", "bf16", "bfloat16", "fp16", "float16", "half", "None")  # of two bytes
_STATES = (
    "mamba_ssm_cache_dtype",  # vLLM's, TensorRT-LLM's
    "mamba_ssm_dtype",  # SGLang's
    "sglang_mamba_ssm_dtype",
    "mamba_inference_ssm_states_dtype",  # Megatron's
)
_DTYPES = {"float32": "fp32", "fp32": "fp32", "bfloat16": "bf16", "float16": "bf16"}
