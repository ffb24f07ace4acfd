"""What Slurm tells a job of its size: variables that follow from the options of sbatch, on its
command line or on `#SBATCH` lines (names as in sbatch(1), "Output environment variables").
"""

import re

_OPTIONS = {
    r"(?:--nodes|-N)": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    r"(?:--ntasks|-n)": ("SLURM_NTASKS", "SLURM_NPROCS"),
    r"--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    r"--(?:gpus-per-node|gres)": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
}


def batch_lines(text: str) -> str:
    """The options on the `#SBATCH` lines of a script, as one text."""
    return " ".join(re.findall(r"^#SBATCH\s+([^#\n]*)", text, re.MULTILINE))


def batch_variables(options: str) -> dict[str, str]:
    """The variables of a job that was asked for with `options`; those that say no number stay
    unsaid.
    """
    told: dict[str, str] = {}
    for option, names in _OPTIONS.items():
        said = re.search(rf"(?<!\S){option}[=\s]?\s*(?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)(?!\S)", options)
        if said:
            told |= dict.fromkeys(names, said[1])
    return told
