"""Kineto before PyTorch 2.3: kernels of NCCL say nothing of what they send; the host's ranges do.

    {"cat": "user_annotation", "name": "nccl:all_to_all", "ts": 1.0,
     "args": {"Input Dims": [[419430400]], "Input type": ["unsigned char"]}}
    {"cat": "kernel", "name": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(...)", "ts": 2.0}

A range goes with the first later kernel of its kind, in the group of the whole job; AMD's kernels
are `Generic`, of whatever kind.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import prod

EARLY = "nccl:"  # how the host's ranges begin
# ncclKernel_, ncclDevKernel_, and those on symmetric memory: ncclSymDevKernel_, ncclSymkDevKernel_
NCCL = re.compile(r"nccl(?:Symk?)?(?:Dev)?Kernel_?([A-Za-z]+)")


def matched(
    kernels: Sequence[dict],
    ranges: Sequence[dict],
    kind_of: Callable[[dict, str], str],
    counts: Counter,
) -> list[dict]:
    """Kernels (ascending in time) with what the range of each says, in the words of later ones."""
    waiting: dict[str, list[dict]] = defaultdict(list)
    for kernel in kernels:
        waiting[_kernel_kind(kernel["name"])].append(kernel)
    told = []
    for call in sorted(ranges, key=lambda e: e["ts"]):
        name = call["name"].removeprefix(EARLY)
        kind = kind_of(call, name)
        line = waiting["sendrecv" if kind == "all-to-all" else kind.replace("-", "")]
        line = line or waiting["generic"]
        after = next((i for i, k in enumerate(line) if k["ts"] >= call["ts"]), None)
        args = _words(call.get("args", {}), name)
        if after is None or args is None:
            counts["calls on the host without a kernel or a size dropped"] += 1
            continue
        told.append(line[after] | {"args": args})
        del line[: after + 1]
    return sorted(told, key=lambda e: e["ts"])


def _kernel_kind(name: str) -> str:
    """What a kernel of NCCL is named after: `allreduce`, `sendrecv`."""
    return NCCL.match(name)[1].partition("_")[0].lower()  # type: ignore[index]


def _words(args: dict, name: str) -> dict | None:
    dims, types = args.get("Input Dims") or [[]], args.get("Input type") or [""]
    if not dims[0] or not types[0] or len(set(filter(None, types))) > 1:
        return None
    return {"Collective name": name, "In msg nelems": _elements(dims), "dtype": types[0]}


def _elements(dims: Sequence) -> int:
    """Elements of a tensor of this shape, or of all in a list of shapes."""
    if not dims or not isinstance(dims[0], list):
        return prod(dims) if dims else 0
    return sum(map(_elements, dims))
