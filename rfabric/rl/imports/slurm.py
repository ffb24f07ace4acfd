"""What Slurm tells a job of its size: variables that follow from the options of sbatch, on its
command line or on `#SBATCH` lines (names as in sbatch(1), "Output environment variables").
"""

import re
from collections.abc import Mapping
from typing import Any

from ...compute.gpus import find_gpu
from .shell_text import unset_piece

_GRES = r"--gres[=\s]\s*(?:[^\s,]+,)*gpu:"  # resources by their names, of which one are the GPUs
_OPTIONS = {
    r"(?:--nodes|-N)": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    r"(?:--ntasks|-n)": ("SLURM_NTASKS", "SLURM_NPROCS"),
    r"--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    rf"(?:--gpus-per-node|{_GRES})": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    r"(?:--gpus|-G)": ("SLURM_GPUS",),
    r"--gpus-per-task": ("SLURM_GPUS_PER_TASK",),
}
# What tells a script that it is run by Slurm, and that it is the first to be.
_IN_A_JOB = dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), "1")
_IN_A_JOB |= dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"), "0")
_END = r"(?![^\s,(])"  # of one resource: others stand behind it, or its sockets (S:0-1)


def host_names(words: list[str], values: Mapping[str, Any]) -> str | None:
    """What `scontrol show hostnames` prints: a name for each node that Slurm has told of, which
    leave their count to the environment where it has not. None of another command.

    >>> host_names(["scontrol", "show", "hostnames"], {"SLURM_NNODES": "2"})
    'node1\\nnode2\\n'
    """
    if words[:2] != ["scontrol", "show"] or words[2:3] not in (["hostname"], ["hostnames"]):
        return None
    count = str(values.get("SLURM_NNODES", values.get("SLURM_JOB_NUM_NODES", "")))
    if not re.fullmatch(r"\d{1,5}", count):
        return unset_piece("SLURM_NNODES") + "\n"
    return "".join(f"node{number + 1}\n" for number in range(int(count)))


def batch_lines(text: str) -> str:
    """The options on the `#SBATCH` lines of a script, as one text."""
    return " ".join(re.findall(r"^#SBATCH\s+([^#\n]*)", text, re.MULTILINE))


def batch_variables(options: str) -> dict[str, str]:
    """The variables of a job that was asked for with `options`, as its first task has them; those
    that say no number stay unsaid.
    """
    told = dict(_IN_A_JOB) if options.strip() else {}
    for option, names in _OPTIONS.items():
        said = re.search(
            rf"(?<!\S){option}[=\s]?\s*(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+){_END}", options
        )
        if said:
            told |= dict.fromkeys(names, said[1])
    return told


def batch_gpu(options: str) -> str:
    """The kind of GPU that a job was asked for with `options`, or that its nodes are to have by the
    one word of a constraint that names a GPU; empty where they name none.

    >>> batch_gpu("--nodes=2 --gres=gpu:h100:8"), batch_gpu("--gres=gpu:8 -C h200&ib")
    ('h100', 'h200')
    """
    asked = rf"(?:{_GRES}|(?:--gpus(?:-per-\w+)?|-G)[=\s]?\s*(?:gpu:)?)"
    said = re.search(rf"(?<!\S){asked}(?!gpu:)([A-Za-z][\w.-]*):\d+{_END}", options)
    if said:
        return said[1]
    nodes = re.search(r"(?<!\S)(?:--constraint|-C)[=\s]?\s*(\S+)", options)
    named = [word for word in re.split(r"[^\w.-]+", nodes[1] if nodes else "") if find_gpu(word)]
    return named[0] if len(named) == 1 else ""
