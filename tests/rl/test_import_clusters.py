"""What a job asks of its cluster's launcher: how many GPUs, and of which kind."""

import pytest

from rfabric.rl.imports.slurm import batch_gpu, batch_variables


@pytest.mark.parametrize(
    ("options", "count", "kind"),
    [
        ("--gres=lscratch:100 --gpus-per-node=a100:8", "8", "a100"),
        ("--gres=lscratch:100", None, ""),
        ("--gres=lscratch:100,gpu:a100:8", "8", "a100"),
        ("--gres gpu:4,shard:1", "4", ""),
        ("--gres=gpu:h100:8(S:0-1)", "8", "h100"),
        ("--gpus-per-node=8", "8", ""),
        ("-N 2 --gres=gpu:8", "8", ""),
    ],
)
def test_of_all_that_slurm_is_asked_for_gpus_are_called_so(options, count, kind):
    told = batch_variables(options)
    assert (told.get("SLURM_GPUS_ON_NODE"), batch_gpu(options)) == (count, kind)
