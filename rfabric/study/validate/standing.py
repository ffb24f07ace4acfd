"""What a comparison is worth: which rows the constants were fitted on, which rest on a measured
input of their own, which files are not compared at all, and what the constants were.

    fitted    constants were chosen on rows of this file; its errors say how well a formula fits
    circular  a measured input of the very row is used; its errors say what the rest is off
    held out  neither
"""

import hashlib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

FITTED, CIRCULAR, HELD_OUT = "fitted", "circular", "held out"
# file, group: basis; the first that matches counts
_BASES = (
    ("rl_measured/verl_*", "*", CIRCULAR),
    ("measured/serving_ttft_tpot.csv", "*", FITTED),
    ("measured/serving_ttft_tpot*", "serving TTFT*", FITTED),
    ("measured/nccl_h100_sxm.csv", "*", FITTED),
    ("measured/nccl_multinode_*.csv", "*", FITTED),
    ("measured/allreduce_busbw_single_node.csv", "*", FITTED),
    ("measured/deepep_*_h100_*nodes.csv", "*", FITTED),
    ("measured/training_mfu_llm_foundry_h100.csv", "*", FITTED),
    ("measured/training_megatron_bridge_by_model.csv", "*, MoE", FITTED),
    ("measured/vidur_h100_dgx_send_recv.csv", "*", FITTED),
    ("measured/vidur_h100_*_mlp.csv", "*", FITTED),
    ("weight_sync/measured.csv", "*", FITTED),
    ("rl_measured/nemo_rl_step_times.csv", "*", FITTED),
)
TEXTS = (".txt", ".log", ".out")  # of which those are read that nccl-tests wrote
# Files that hold no time to compare with, and why.
_REASONS = (
    ("*README.md", "text"),
    ("*MANIFEST.csv", "a list of files"),
    ("configs/*", "jobs: `rfabric import` reads them, no time was measured"),
    ("formats/*", "samples of formats: readers of traces, logs and topologies are tested on them"),
    ("workloads/*", "traffic of training jobs: inputs of `rfabric simulate`, no time was measured"),
    ("traces/*", "lengths of prompts and responses: inputs of recipes"),
    ("flows/*", "sizes of flows: inputs of traces"),
    ("topologies/*", "latency and rate of servers of V100, which is no GPU of the catalog"),
    ("hardware/*", "peaks and rates: inputs of the catalog of GPUs and networks"),
    ("costs/*", "prices and watts: inputs of `rfabric cost`"),
    ("models/*", "facts beside the configs of models, of which parameters are compared"),
    *(
        (f"measured/*{kind}", "holds no `# nThread ... nGpus ...`, with which nccl-tests begin")
        for kind in TEXTS
    ),
    ("rl_measured/nemo_rl_*recipes*.csv", "recipes: inputs of the NeMo RL steps beside them"),
)


def basis(file: str, group: str) -> str:
    """What the rows of a group are worth: FITTED, CIRCULAR or HELD_OUT."""
    return next((b for f, g, b in _BASES if fnmatch(file, f) and fnmatch(group, g)), HELD_OUT)


def not_compared(root: Path, compared: Iterable[Path]) -> dict[str, str]:
    """Every file under `root` that no check reads, by its path from there, with the reason."""
    read = set(compared)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path not in read)
    return {name: _reason(name) for name in (str(path.relative_to(root)) for path in files)}


def _reason(name: str) -> str:
    return next((why for f, why in _REASONS if fnmatch(name, f)), "no check reads such a file")


def model_hash() -> str:
    """Twelve hex digits of SHA-256 over all that a prediction rests on: formulas, constants and
    catalogs of compute/ and rl/ (readers of other frameworks' jobs aside), and how rows become
    jobs.
    """
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for room in ("compute", "rl", "study/validate"):
        for path in sorted((package / room).rglob("*")):
            if path.suffix in (".py", ".csv") and "imports" not in path.parts:
                digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]
