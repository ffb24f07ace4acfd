"""Shipped jobs as real packets: the ones whose cables carry little, and one on a host whose
processors others keep busy.
"""

import json
import os
import subprocess
import sys

import pytest

from rfabric.cli import main
from rfabric.emulate import world
from rfabric.errors import PaceError
from rfabric.fabric import fat_tree
from rfabric.report.result import Scale
from rfabric.study.selftest import PHASE_BOUND
from rfabric.trace import TraceBuilder, ring

pytestmark = pytest.mark.root

BUSY = "while True: pass"


@pytest.mark.parametrize(
    "job",
    [
        ["--topo", "rfabric", "--traffic", "grpo-64-moe", "--set", "training.mini_batches=1"],
        ["--topo", "fat-tree", "--traffic", "weave-2jobs"],
    ],
)
def test_a_job_whose_paths_are_thin_gets_a_scale_by_itself_and_keeps_pace(job, tmp_path, capsys):
    """Expert groups that all turn at once, and two jobs that share 64 GPUs."""
    words = ["emulate", *job, "--patience", "10s", "--no-report"]
    assert main([*words, "--out", str(tmp_path), "--json", "--quiet"]) == 0, capsys.readouterr().err
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["pace"]["ok"] and run["lost_bytes"] == 0
    # a shared machine, and less patience than usual: an idle one is measured in docs/packets.md
    assert run["fidelity"]["worst_error"] < 3 * PHASE_BOUND


def test_where_others_keep_every_processor_busy_a_run_fails_and_says_so(tmp_path):
    """Some 6 s of packets of 8 hosts, which alone would be no burden."""
    fabric = fat_tree(pods=2, tors=2, gpus=2)
    b = TraceBuilder(fabric.hosts)
    b.flows(*ring("all-reduce", range(8), 8e10, 1), phase="training", label="all-reduce")
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in os.sched_getaffinity(0)]
    try:
        with pytest.raises(PaceError, match="others on this host took .*% of the processors"):
            world.emulate(fabric, b.build(), scale=Scale(1e-4, 2.0), out=tmp_path)
    finally:
        for one in others:
            one.kill()
            one.wait()
