"""Shipped jobs as real packets: those whose cables carry little."""

import json

import pytest

from rfabric.cli import main
from rfabric.study.selftest import PHASE_BOUND

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    "job",
    [
        ["--topo", "rfabric", "--traffic", "grpo-64-moe", "--set", "training.mini_batches=1"],
        ["--topo", "fat-tree", "--traffic", "weave-2jobs"],
    ],
    ids=["grpo-64-moe", "weave-2jobs"],
)
def test_a_job_whose_paths_are_thin_gets_a_scale_by_itself_and_keeps_pace(job, tmp_path, capsys):
    """Expert groups that all turn at once, and two jobs that share 64 GPUs."""
    words = ["emulate", *job, "--patience", "10s", "--no-report"]
    assert main([*words, "--out", str(tmp_path), "--json", "--quiet"]) == 0, capsys.readouterr().err
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["pace"]["ok"] and run["lost_bytes"] == 0
    # a shared machine, and less patience than usual: an idle one is measured in docs/packets.md
    assert run["fidelity"]["worst_error"] < 3 * PHASE_BOUND
