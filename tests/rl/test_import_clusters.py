"""What a job asks of its cluster's launcher: how many GPUs, and of which kind."""

import pytest
import yaml

from rfabric.rl.imports import import_job
from rfabric.rl.imports.slurm import batch_gpu, batch_variables

JOB = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \
actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=1024 \
actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=2
"""


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
        ("-N 2 --gres=gpu:8 --constraint=h200", "8", "h200"),
        ('-C "h200&ib" --gres=gpu:8', "8", "h200"),
        ("-C h200 --gres=gpu:a100:8", "8", "a100"),
        ("-C h100|h200 --gres=gpu:8", "8", ""),
        ("-C gpu&hbm80g --gpus-per-node=4", "4", ""),
    ],
)
def test_of_all_that_slurm_is_asked_for_gpus_are_called_so(options, count, kind):
    told = batch_variables(options)
    assert (told.get("SLURM_GPUS_ON_NODE"), batch_gpu(options)) == (count, kind)


TRAIN = JOB.replace("trainer.nnodes=2", "trainer.nnodes=$N trainer.n_gpus_per_node=8")


@pytest.mark.parametrize(
    ("script", "nodes"),
    [
        ("#SBATCH -N 16\nif [[ -z $SLURM_JOB_ID ]]; then N=1; else N=$SLURM_NNODES; fi\n", 16),
        ("if [[ -z $SLURM_JOB_ID ]]; then N=1; else N=$SLURM_NNODES; fi\n", 1),
        ("#SBATCH -N 16\n[ $SLURM_PROCID -eq 0 ] && N=$SLURM_NNODES || exit\n", 16),
        ("#SBATCH -N 16\nif [ -z $SLURM_JOB_ID ]; then sbatch $0; exit; fi\nN=$SLURM_NNODES\n", 16),
        ('if [ "$SLURM_JOB_ID" ]; then N=$SLURM_NNODES; else sbatch -N 4 $0; exit; fi\n', 4),
    ],
)
def test_a_script_knows_whether_slurm_runs_it(tmp_path, script, nodes):
    """Also one that hands itself to sbatch and asks which of the two it is."""
    (path := tmp_path / "job.sh").write_text(script + TRAIN)
    assert import_job("verl", path).values["cluster.training_gpus"] == 8 * nodes


def test_what_nvlink_joins_beyond_a_node_is_said(tmp_path):
    """Of GPUs that come so, unless a server of the job is the whole rack."""
    (path := tmp_path / "job.sh").write_text(TRAIN.replace("$N", "2").replace("=8", "=4"))
    said = [note for note in import_job("verl", path, gpu="GB200").notes if "NVLink" in note]
    assert len(said) == 1 and said[0].startswith(
        "cluster.gpu GB200: NVLink joins the 72 GPUs of a rack; here the 4 of a node, and what goes"
    )
    assert said[0].endswith("say cluster.gpus_per_server=72 for whole racks")
    assert not [n for n in import_job("verl", path, gpu="H100").notes if "NVLink joins" in n]
    path.write_text(TRAIN.replace("$N", "2").replace("=8", "=72"))
    assert not [n for n in import_job("verl", path, gpu="GB200").notes if "NVLink joins" in n]


def pods(*groups):
    """A RayJob of worker groups, each so many GPUs a pod on nodes of a kind."""
    workers = [
        {
            "groupName": f"group{number}",
            "template": {
                "spec": {
                    "nodeSelector": {"nvidia.com/gpu.product": kind} if kind else {"pool": "big"},
                    "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}],
                }
            },
        }
        for number, (gpus, kind) in enumerate(groups)
    ]
    head = {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": 8}}}]}}}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": workers}
    return {"kind": "RayJob", "spec": {"entrypoint": JOB, "rayClusterSpec": cluster}}


@pytest.mark.parametrize(
    ("groups", "gpu", "why"),
    [
        ([(8, ""), (1, "NVIDIA-L40S")], "H100", "assumed: the file does not name the GPU"),
        ([(8, "NVIDIA-H200"), (1, "NVIDIA-L40S")], "H200", "the launcher asks for NVIDIA-H200"),
        ([(8, "NVIDIA-H200"), (8, "NVIDIA-H200")], "H200", "the launcher asks for NVIDIA-H200"),
        ([(8, "NVIDIA-H200"), (8, "")], "H100", "assumed: the file does not name the GPU"),
        (
            [(8, "NVIDIA-H200"), (8, "NVIDIA-B200")],
            "H100",
            "assumed: the file names NVIDIA-H200, NVIDIA-B200",
        ),
    ],
)
def test_pods_of_most_gpus_say_which_train(tmp_path, groups, gpu, why):
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(pods(*groups)))
    made = import_job("verl", path)
    assert made.values["cluster.gpu"] == gpu
    assert made.origin["cluster.gpu"].startswith(why)
