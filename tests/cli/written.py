"""Commands in a folder of their own, beside small inputs, and what they leave there."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FLOWS = """# rfabric-trace 1
id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
0,h1,h1,0,0,,2.5,0,training,backward
1,h1,h9,4000000000,0,0,0,0,training,reduce-scatter
2,h9,h1,4000000000,0,0,0,0,training,reduce-scatter
3,h1,h13,2000000000,0,1 2,0,0,weight_sync,weights
"""
JOBS = "name,roll_s,train_s,iterations,arrival_s\na,100,60,10,0\nb,90,50,10,30\nc,300,40,5,60\n"
ROLL = """num_gpus_per_node: 8
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 2048
response_length: 8192
pretrain: Qwen/Qwen2.5-7B
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 2}}
  device_mapping: list(range(0,8))
actor_infer:
  device_mapping: list(range(8,16))
"""
LOG = "".join(
    f"step:{n} - timing_s/gen:{10 + n} - timing_s/update_actor:5 - timing_s/update_weights:1 - "
    f"timing_s/step:{18 + n} - perf/throughput:9.5\n"
    for n in (1, 2, 3)
)
ALLREDUCE = """payload_MiB,h100_8node_busbw_GBps,a100_16node_busbw_GBps,h100_2gpu_algbw_Gbps
64,300,150,900
512,350,170,1100
"""
TOTALS = "model,total_b,active_b,source\nDeepSeek-V3,671,37,card\nAtlantis-9B,9,,card\n"
PLUGINS = ("controller/ring_policy.py", "traffic/longest_first.py")
INPUTS = {
    "flows.csv": FLOWS,
    "jobs.csv": JOBS,
    "roll.yaml": ROLL,
    "train.log": LOG,
    "data/measured/allreduce_busbw_nodes.csv": ALLREDUCE,
    "data/models/published_totals.csv": TOTALS,
} | {Path(name).name: (REPOSITORY / name).read_text() for name in PLUGINS}
OPTICAL = "--topo rfabric,pods=2,tors=2,planes=1"
SMALL = f"--topo fat-tree,pods=2,tors=2 {OPTICAL}"
# names of run folders, and when they were made
VARIES = re.compile(
    rb"\d{8}-\d{6}-[0-9a-f]{4}|\d{4}-\d\d-\d\d[T "
    rb"]\d\d:\d\d(?::\d\d)?(?:[+-]\d\d:\d\d)?"
)
# progress is told only where it is slow: here never
SILENT = """
import sys
from rfabric.cli import main, terminal
terminal.PATIENCE = 1e6
sys.exit(main(sys.argv[1:]))
"""


def filled(folder: Path) -> Path:
    """The folder, new, with the inputs."""
    for name, text in INPUTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def begun(words: Sequence[str], folder: Path, seed: int | str = "random") -> subprocess.Popen:
    """The command, running in `folder`, with such a seed of hashes."""
    settings = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-c", SILENT, *words],
        cwd=folder,
        env=settings | {"RFABRIC_CACHE": "none", "PYTHONWARNINGS": "ignore"},  # such as no core
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def said(process: subprocess.Popen) -> dict[str, bytes]:
    """What it said, and its exit code, by name."""
    out, err = process.communicate()
    told = {"exit code": str(process.returncode).encode(), "stdout": out, "stderr": err}
    return {name: VARIES.sub(b"-", data) for name, data in told.items()}


def left(folder: Path) -> dict[str, bytes]:
    """Every file there by name; names of run folders and dates aside."""
    return {
        VARIES.sub(b"-", str(path.relative_to(folder)).encode()).decode(): VARIES.sub(
            b"-", path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
