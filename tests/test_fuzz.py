"""Bytes that a fuzzer chose by what of the code they reach (atheris, libFuzzer): every reader makes
something of them or refuses them by an error of the house.
"""

import importlib.util
import json
import subprocess
import sys

import pytest

from rfabric.fabric import rfabric
from rfabric.folders import data_dir

SECONDS, RUNS = 5, 20_000  # for each reader; whichever is over first
# The fuzzer ends the process that it is in: each reader has a child of one that has imported all,
# which takes longer than the fuzzing.
HARNESS = """
import json
import os
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rfabric"]):
    from rfabric.control import schema
    from rfabric.errors import RFabricError
    from rfabric.fabric import parse_fabric
    from rfabric.rl import read_recipe
    from rfabric.trace import read_trace

FABRIC = parse_fabric("rfabric,pods=2,tors=2,gpus=2")


def filed(read, file):
    def of(data):
        Path(file).write_bytes(data)
        read(file)

    return of


READERS = {
    "trace": filed(read_trace, "trace.csv"),
    "fabric": filed(parse_fabric, "fabric.json"),
    "recipe": filed(read_recipe, "recipe.yaml"),
    "words": lambda data: parse_fabric(data.decode("utf-8", "surrogateescape")),
    "plan": lambda data: schema.plan_request(schema.parse_json(data), FABRIC),
    "pairs": lambda data: schema.pairs_request(schema.parse_json(data), FABRIC),
}


def fuzzed(reader, options):
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def one(data):
        try:
            READERS[reader](data)
        except RFabricError:
            pass

    os.chdir(reader)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1), os.dup2(said, 2)
    atheris.Setup([sys.argv[0], "corpus", *options], one)
    atheris.Fuzz()


print(json.dumps({reader: fuzzed(reader, sys.argv[1:]) for reader in READERS}))
"""
TRACE = """# rfabric-trace 1
id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
0,h1,h9,4000,0,,0,0,training,a
1,h1,h13,40000,0.1,0,0.5,0,training,b
"""
DEMAND = '{"racks": ["t1", "t3"], "bytes": [[0, 9], [9, 0]], "window_s": 1, "phase": "a/0"}'
SEEDS = {  # what each reader takes
    "trace": TRACE,
    "fabric": json.dumps(rfabric(pods=1, tors=2, gpus=1, planes=1).to_json()),
    "recipe": (data_dir("traffic") / "grpo-64.yaml").read_text(),
    "words": "rfabric,pods=2,tors=2,gpus=4,rate=400Gbit/s",
    "plan": f'{{"policy": "demand", "demand": {DEMAND}, "time_dilation": 2, "pairs": []}}',
    "pairs": '{"pairs": [["h1", "h5"]], "routing": "ecmp"}',
}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """Of each reader the exit code of its fuzzer, and what that said."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install 'rfabric[fuzz]'")
    folder = tmp_path_factory.mktemp("fuzzed")  # what they find is left there
    for reader, seed in SEEDS.items():
        (folder / reader / "corpus").mkdir(parents=True)
        (folder / reader / "corpus" / "seed").write_text(seed)
    options = [f"-max_total_time={SECONDS}", f"-runs={RUNS}", "-seed=1", "-rss_limit_mb=4096"]
    done = subprocess.run(
        [sys.executable, "-c", HARNESS, *options], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    codes = json.loads(done.stdout)
    return {reader: (code, (folder / reader / "said").read_text(errors="replace"))
            for reader, code in codes.items()}  # fmt: skip


@pytest.mark.parametrize("reader", SEEDS)
def test_what_a_fuzzer_finds_is_read_or_refused(reader, fuzzed):
    code, said = fuzzed[reader]
    assert code == 0, said[-4000:]
    assert "Done " in said  # libFuzzer's last words: so many runs in so many seconds
