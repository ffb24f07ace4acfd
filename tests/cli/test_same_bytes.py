"""Same inputs, same bytes: every verb that writes, twice, in processes and folders of their own and
with other hash seeds.

Only the name of a run folder and the moment it was made may differ. What a set or a dictionary of
objects is walked through decides nothing, nor does the place where it runs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
INPUTS = {"flows.csv": FLOWS, "jobs.csv": JOBS, "roll.yaml": ROLL}
OPTICAL = "--topo rfabric,pods=2,tors=2,planes=1"
SMALL = f"--topo fat-tree,pods=2,tors=2 {OPTICAL}"
WRITES = [
    f"replay flows.csv {SMALL}",
    (
        "simulate --topo rfabric --topo mixnet --traffic grpo-64 --policy "
        "demand,granularity=per-collective"
    ),
    "simulate --topo opus --topo topoopt --traffic grpo-64 --routing split --json",
    "simulate --topo rotor --traffic grpo-64 --seed 5 --json",
    "simulate --topo leaf-spine --traffic weave-2jobs --policy random --json",
    f"compare {SMALL} --traffic flows.csv --seeds 2 --jobs 2 --policy bvn --policy matching --json",
    (
        "crossover --topo rfabric --against fat-tree --traffic grpo-64 --granularity per-phase "
        "--delays 1ms,10ms --jobs 2 --png c.png"
    ),
    f"circuits {OPTICAL} --traffic flows.csv --policy greedy --png p.png",
    "timeline --policy orchestrrl --traffic grpo-64 --png g.png --perfetto g.json",
    "timeline --policy rollpacker --traffic grpo-64 --json",
    "timeline --policy weave --jobs jobs.csv --json",
    "trace grpo-64-moe --set pipeline=async --set staleness=2 -o t.csv",
    "trace grpo-64 --json -o t.jsonl",
    "topo rfabric --png r.png --json",
    "topo mixnet --dot",
    "cost --topo fat-tree --topo mixnet --gpus 1024 --sweep --json",
    "model Qwen3-30B-A3B --tp 4 --ep 4 --json",
    "import roll roll.yaml -o mine.yaml --json",
    "reproduce opus --json",
    "simulate --policy demnd",
]
VARIES = re.compile(
    rb"\d{8}-\d{6}-[0-9a-f]{4}|\d{4}-\d\d-\d\d[T "
    rb"]\d\d:\d\d(?::\d\d)?(?:[+-]\d\d:\d\d)?"
)


def begun(words: str, folder: Path, seed: int) -> subprocess.Popen:
    """The command, running in `folder` beside its inputs."""
    folder.mkdir()
    for name, text in INPUTS.items():
        (folder / name).write_text(text)
    settings = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(REPOSITORY)}
    # progress is told only where it is slow
    command = [sys.executable, "-m", "rfabric", *words.split(), "--quiet"]
    return subprocess.Popen(
        command, cwd=folder, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def left(process: subprocess.Popen, folder: Path) -> dict[str, bytes]:
    """What it said, and every file it left by name; names of run folders and dates aside."""
    out, err = process.communicate()
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    said = {"exit code": str(process.returncode).encode(), "stdout": out, "stderr": err}
    return {
        VARIES.sub(b"-", name.encode()).decode(): VARIES.sub(b"-", data)
        for name, data in (said | files).items()
    }


@pytest.mark.parametrize("words", WRITES)
def test_the_same_words_leave_the_same_bytes(words, tmp_path):
    folders = [tmp_path / "here", tmp_path / "some-other-place"]
    processes = [begun(words, folder, seed) for folder, seed in zip(folders, (1, 2), strict=True)]
    one, two = (left(process, folder) for process, folder in zip(processes, folders, strict=True))
    assert one["exit code"] == (b"2" if "demnd" in words else b"0"), one["stderr"].decode()
    assert list(one) == list(two)
    assert [name for name in one if one[name] != two[name]] == []
