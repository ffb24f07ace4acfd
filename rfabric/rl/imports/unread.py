"""Settings that no recipe key says, by what they could change: a few lines, not hundreds."""

import re
from collections.abc import Iterable

FEW = 4  # names that a group's line shows
# Words of a key that tell what it could change; the first group that fits takes it. What no word
# tells may change anything.
GROUPS = (
    ("memory", r"offload|dtype|precision|cache|gradient|recompute|checkpointing|mem_|memory|quant|"
               r"context_length|max_model_len|page|block_size|lora|buffer"),
    ("traffic", r"parallel|dispatch|bucket|sharding|fsdp|nccl|reduce|gather|update.weight|transfer|"
                r"nnodes|num_nodes|gpus|load_format|deepep|dispatcher|backend|overlap|[dept]p_size"),
    ("time", r"batch|chunk|graph|eager|kernel|fus|compil|packing|padding|token|turn|specul|mtp|"
             r"draft|schedul|sampl|epoch|critic|estimator|concurren|seqs|requests|async|warmup|"
             r"attention|attn|steps|len|rollout|engine|worker|tool|agent|distill|reward|balanc|"
             r"layers|generation|gemm|rm_url|(^|\.)ref\."),
)  # fmt: skip
UNKNOWN = "nothing known"


def grouped(unmapped: Iterable[str]) -> dict[str, list[str]]:
    """`key = value` texts by what they could change; groups without any are left out.

    >>> grouped(["actor.param_offload = True", "note = x"])
    {'memory': ['actor.param_offload = True'], 'nothing known': ['note = x']}
    """
    groups: dict[str, list[str]] = {name: [] for name, _ in GROUPS} | {UNKNOWN: []}
    for said in unmapped:
        groups[_group(said.partition(" = ")[0])].append(said)
    return {name: keys for name, keys in groups.items() if keys}


def told(name: str, keys: list[str]) -> str:
    """A group as one line: how many keys, and the first few."""
    names = [key.partition(" = ")[0] for key in keys[:FEW]]
    first = ", ".join(names) + (", ..." if len(keys) > FEW else "")
    what = "effect not known" if name == UNKNOWN else f"may change {name}"
    return f"not mapped, {what}: {len(keys)} ({first})"


def _group(key: str) -> str:
    plain = re.sub("-", "_", key.lower())
    return next((name for name, words in GROUPS if re.search(words, plain)), UNKNOWN)
