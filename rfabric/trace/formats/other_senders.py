"""Kernels by which other libraries than NCCL send; profilers do not say whom to, nor how much."""

import re
from collections import Counter

# by words of a kernel's name: DeepEP and HybridEP, NVSHMEM, the all-reduces of vLLM, SGLang,
# FlashInfer and TensorRT-LLM, PyTorch's on symmetric memory, MSCCL++, Transformer Engine's overlap
NAMED = {
    "DeepEP": r"deep_ep|hybrid_ep", "NVSHMEM": "nvshmem", "PPLX": "pplx|all_to_all::a2a_",
    "an all-reduce of its own": r"cross_device_reduce|custom_?all_?reduce|(?:one|two)_?shot_?all_?"
    r"reduce|(?:lamport|quick|fused)_?all_?reduce|all_?reduce_?fusion",
    "symmetric memory": "multimem|symm_mem", "MSCCL++": "mscclpp", "userbuffers": "userbuffers",
}  # fmt: skip
SENDER = re.compile("|".join(f"({pattern})" for pattern in NAMED.values()), re.I)


def sender_of(name: str) -> str:
    """The library by which a kernel of this name sends; '' for one that computes."""
    found = SENDER.search(name)
    return "" if found is None or not found.lastindex else list(NAMED)[found.lastindex - 1]


def told(senders: Counter[str]) -> list[str]:
    """What is said of such kernels, of which so many were seen."""
    which = ", ".join(sorted(senders))
    text = (
        f"kernels that send without NCCL ({which}) count as computing: what they send is not known"
    )
    return [f"{senders.total()} {text}"] if senders else []
