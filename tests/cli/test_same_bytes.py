"""Same inputs, same bytes: every verb that writes, twice, in processes and folders of their own and
with other hash seeds.

Only the name of a run folder and the moment it was made may differ. What a set or a dictionary of
objects is walked through decides nothing, nor does the place where it runs.
"""

import pytest
from written import OPTICAL, SMALL, begun, filled, left, said

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


@pytest.mark.parametrize("words", WRITES)
def test_the_same_words_leave_the_same_bytes(words, tmp_path):
    folders = [filled(tmp_path / "here"), filled(tmp_path / "some-other-place")]
    processes = [
        begun([*words.split(), "--quiet"], folder, seed)
        for folder, seed in zip(folders, (1, 2), strict=True)
    ]
    one, two = (
        said(process) | left(folder) for process, folder in zip(processes, folders, strict=True)
    )
    assert one["exit code"] == (b"2" if "demnd" in words else b"0"), one["stderr"].decode()
    assert list(one) == list(two)
    assert [name for name in one if one[name] != two[name]] == []
