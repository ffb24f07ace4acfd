"""Settings that no recipe key says and whose effect is known, each with what stands for it here."""

from collections.abc import Callable
from typing import Any


def is_on(value: Any) -> bool:
    """Whether a value says yes."""
    return str(value).lower() in ("true", "1", "yes", "on")


def above(least: float) -> Callable[[Any], bool]:
    """Whether a value is a number above `least`."""
    return lambda value: type(value) in (int, float) and value > least


MORE_TURNS = (
    "turns with an environment are not read: each response comes in one; say generation.turns, "
    "environment_latency and observation"
)
_ONE_BY_ONE = (
    "decoding ahead of the model is not modelled: each token takes a pass, so that generation "
    "takes longer here"
)
_TURNS = ("max_rollout_turns", "max_turns", "max_turn", "max_assistant_turns", "max_user_turns")
APPROXIMATIONS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (
        ("sglang_speculative_algorithm", "speculative_algorithm", "enable_rollout"),
        lambda value: value not in (False, "", "false"),
        _ONE_BY_ONE,
    ),
    (("num_speculative_tokens",), above(0), _ONE_BY_ONE),
    (
        ("optimizer",),
        lambda value: isinstance(value, str) and "adam" not in value.lower(),
        "computed as Adam, with its states and its time",
    ),
    (
        ("model_dtype", "optimizer_dtype"),
        lambda value: str(value).lower() in ("bf16", "bfloat16", "torch.bfloat16"),
        "parameters, gradients and Adam's states are held in BF16; here in FP32, which takes "
        "twice the room",
    ),
    (
        ("dtype", "param_dtype", "precision"),
        lambda value: str(value).lower() in ("fp32", "float32", "torch.float32", "float", "32"),
        "weights are held, computed with and sent in FP32; here in BF16, in half of the bytes and "
        "less of the time",
    ),
    (("enable_train", "enable_mtp_training"), is_on, "the layers that predict further tokens (MTP) "
     "are not trained here"),
    (
        ("over_sampling_batch_size", "over_sample_rate"),
        above(0),
        "prompts begun beyond those that a step keeps, and cut off when it has enough, are not "
        "modelled: here a step begins what it keeps and waits for the longest",
    ),
    (
        ("is_use_additional_prompts",),
        is_on,
        "prompts begun beyond those that a step keeps, and cut off when it has enough, are not "
        "modelled: here a step begins what it keeps and waits for the longest",
    ),
    (
        ("recompute_method",),
        lambda value: value == "block",
        "so many layers of each stage as recompute_num_layers says are computed again; here all "
        "are where recompute_granularity is full, which takes longer and leaves more room",
    ),
    (
        ("reshard_after_forward",),
        lambda value: value is False,
        "layers stay gathered from the forward to the backward pass; here they are gathered again, "
        "which takes more traffic and less room",
    ),
    (
        ("weight_update_mode",),
        lambda value: value == "disk",
        "weights go to engines through files of a shared disk; here straight from GPU to GPU",
    ),
    (_TURNS, above(1), MORE_TURNS),
    (("custom_generate_function_path",), bool, MORE_TURNS),
    (
        (
            "update_weight_buffer_size",
            "update_weights_bucket_megabytes",
            "update_weights_bucket_bytes",
            "weight_update_mode",
        ),
        lambda value: value and value != "disk",
        "a weight sync is one transfer, with set-up and packing as calibrated, not its buckets",
    ),
    (
        ("enable_rollout_routing_replay", "use_rollout_routing_replay"),
        is_on,
        "the experts that generation chose go to the training with each token; that is not counted",
    ),
)  # fmt: skip
