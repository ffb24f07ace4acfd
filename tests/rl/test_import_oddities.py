"""Jobs behind a condition of their cluster, settings whose names are like others', defaults that a
missing parent holds, and jobs that share GPUs in part.
"""

import pytest
import yaml

from rfabric.compute.named import find_model
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.imports import import_job
from rfabric.rl.imports.settings import read_settings
from rfabric.rl.phases import step_of
from rfabric.rl.totals import training_bytes

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \
actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=1024 \
actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=2 {more}
"""
SLIME = """python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \
--hf-checkpoint Qwen3-4B --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
--use-dynamic-batch-size --max-tokens-per-gpu 4096 {more}
"""
NEMO = {
    "policy": {"model_name": "Qwen/Qwen3-8B", "generation": {"vllm_cfg": {}}},
    "cluster": {"gpus_per_node": 8},
}
ROLL = """
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 1024
response_length: 4096
pretrain: Qwen/Qwen3-8B
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 64}
  strategy_args: {strategy_name: megatron_train, strategy_config: {context_parallel_size: 2}}
  device_mapping: list(range(0,8))
actor_infer: {device_mapping: "list(range(0,8))"}
"""
AREAL = """
cluster: {n_nodes: 2, n_gpus_per_node: 8}
rollout: {backend: "sglang:d8", max_head_offpolicyness: 2}
gconfig: {n_samples: 2, max_new_tokens: 2048}
actor: {backend: "megatron:d8", path: /models/Qwen__Qwen3-8B/}
train_dataset: {batch_size: 32, max_length: 1024}
"""


@pytest.fixture
def job(tmp_path):
    def read(framework, text, name="job.sh"):
        (path := tmp_path / name).write_text(text)
        return import_job(framework, path)

    return read


# --- a script's ways --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition", ['[ "$(hostname -i)" = "$HEAD" ]', "[ $NODE_RANK -eq 0 ]", '[[ -f "$HOSTS" ]]']
)
def test_a_job_on_the_first_node_alone_is_read(job, condition):
    waits = "while true; do\n  n=$(ray status)\n  if [ $n = 2 ]; then\n" + VERL + "break; fi\ndone"
    other = "while true; do ray start --address=$HEAD:6379 --block; done"
    made = job("verl", f"if {condition}; then\n{waits}\nelse\n{other}\nfi\n".format(more=""))
    assert made.recipe()["cluster"]["training_gpus"] == 16
    assert any("is read, though whether it is reached cannot be known" in n for n in made.notes)


def test_a_job_that_is_reached_is_read_before_one_that_may_be(job):
    longer = VERL.format(more="trainer.n_gpus_per_node=4 actor_rollout_ref.rollout.n=4")
    made = job("verl", f"if [ -n $BIG ]; then\n{longer}fi\n".replace("-n $BIG", "$(x) = 1")
               + VERL.format(more=""))  # fmt: skip
    assert made.recipe()["cluster"]["training_gpus"] == 16
    assert not any("whether it is reached" in note for note in made.notes)


def test_a_way_not_taken_leaves_nothing_behind(tmp_path):
    script = (
        "N=1\nsay() { echo one; }\nif [ $(probe) = 1 ]; then\n  N=2; A+=(x); cd /\n"
        "  say() { echo two; }\n  echo n=3 > told.txt\n  trap 'N=4' EXIT; exit 0\nfi\n"
        "python3 job.py n=$N said=$(say) $(cat told.txt) a=${A[*]:-none}\n"
    )
    (path := tmp_path / "job.sh").write_text(script)
    values = read_settings(path).values
    assert (values["n"], values["said"], values["a"]) == (1, "one", "none")


def test_words_of_what_starts_the_job_are_not_its_own(tmp_path):
    (path := tmp_path / "job.sh").write_text(
        "srun --nodes=4 --overlap ray job submit --no-wait -- python3 -u job.py a=1 --b 2\n"
    )
    assert read_settings(path).values == {"a": 1, "b": 2}
    path.write_text("uv run --isolated examples/job.py --b 2 file=x.py\n")
    assert read_settings(path).values == {"b": 2, "file": "x.py"}


def test_a_job_whose_words_are_read_from_a_list(tmp_path):
    words = "cat > list.txt <<'EOF'\n# data\na=1\nb='x y'\nEOF\ngrep -v '^#' list.txt | "
    (path := tmp_path / "job.sh").write_text(f"{words}xargs -r python3 -m job c=3 'd=4'\n")
    assert read_settings(path).values == {"c": 3, "d": 4, "a": 1, "b": "x y"}
    path.write_text("printf '%s\\n' 8 9 | xargs -I{} -P 2 python3 job.py --seed {} --b 2\n")
    assert read_settings(path).values == {"seed": 8, "b": 2}
    path.write_text("cat $LIST | xargs python3 job.py a=1\n")
    assert read_settings(path).values == {"a": 1}


@pytest.mark.parametrize(
    "way",
    [
        "ssh -p 22 root@head \"docker exec j bash -lc 'cd /x && N=$N; {job}'\"",
        "ssh -tt head <<EOF\nset -e\nN=$N\n{job}\nEOF",
        "ssh head N=$N ';' '{job}'",
    ],
)
def test_a_job_started_on_another_host(tmp_path, way):
    (path := tmp_path / "job.sh").write_text("N=4\n" + way.format(job="python3 job.py a=$N b=2"))
    assert read_settings(path).values == {"a": 4, "b": 2}


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        ("#SBATCH -N 4\nN=$(scontrol show hostnames $SLURM_JOB_NODELIST | wc -l)", 4),
        ("#SBATCH -N 4\nA=($(scontrol show hostnames)); N=${#A[@]}", 4),
        ("#SBATCH -N 4\nmapfile -t A < <(scontrol show hostname $L)\nN=${#A[@]}", 4),
        ("#SBATCH -G 16\n#SBATCH --gpus-per-task=4\nN=$((SLURM_GPUS / SLURM_GPUS_PER_TASK))", 4),
        ('N=$(python3 -c "import torch; print(torch.cuda.device_count())")', None),
        ("N=$(ls -d /dev/nvidia[0-9]* | wc -l)", None),
    ],
)
def test_what_a_cluster_or_a_machine_counts(tmp_path, lines, nodes):
    (path := tmp_path / "job.sh").write_text(f"{lines}\npython3 job.py a=1 n=$N\n")
    read = read_settings(path)
    assert read.values.get("n") == nodes
    assert any(note.startswith("n: what ") for note in read.notes) == (nodes is None)


def test_nodes_that_slurm_does_not_tell_are_asked_for(job):
    nodes = "trainer.nnodes=$(scontrol show hostnames | wc -l)"
    with pytest.raises(RFabricError, match="say --env SLURM_NNODES=VALUE"):
        job("verl", VERL.format(more=nodes))


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "RayJob", "spec": {"entrypoint": "python3 job.py a=4 b=2\n", "shutdown": True}},
        {"kind": "RayJob", "spec": {"entrypoint": "python3 job.py a=$N b=2\n",
                                    "runtimeEnvYAML": "env_vars: {N: '4'}\n"}},
        {"kind": "RayJob", "spec": {"entrypoint": "python3 job.py a=4 b=2\n",
                                    "runtimeEnvYAML": "- env_vars: {N: '5'}\n"}},
        {"envs": {"N": 4}, "setup": "pip install x", "run": "cd x\npython3 -m job a=$N b=2"},
        {"num_nodes": 4, "resources": {"accelerators": "H100:2"},
         "run": "python job.py a=$SKYPILOT_NUM_NODES b=${SKYPILOT_NUM_GPUS_PER_NODE}"},
        {"type": "task", "env": ["N=4"], "commands": ["pip install x", "python job.py a=$N b=2"]},
        {"spec": {"containers": [{"command": ["bash", "-c"], "args": ["python3 j.py a=$N b=2"],
                                  "env": [{"name": "N", "value": "4"}]}]}},
        {"services": {"j": {"command": ["python3", "-m", "job", "a=4", "b=2"]}}},
    ],
)  # fmt: skip
def test_a_job_in_the_yaml_of_its_launcher(tmp_path, values):
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    assert read_settings(path).values == {"a": 4, "b": 2}


@pytest.mark.parametrize("given", ["-e N=4", "--env N=4", "--env=N=4", "-e N=$NODES -e K='x y'"])
def test_variables_that_a_container_is_given(tmp_path, given):
    (path := tmp_path / "job.sh").write_text(
        f"NODES=4\ndocker run --rm {given} image bash -c 'python3 job.py a=$N b=2'\n"
    )
    assert read_settings(path).values == {"a": 4, "b": 2}
    path.write_text("srun -e err.txt bash -c 'python3 job.py a=1 b=2'\n")
    assert read_settings(path).values == {"a": 1, "b": 2}


@pytest.fixture
def groups(tmp_path):
    """A folder of Hydra's groups: a choice that the names of others hold, and its job."""
    files = {
        "kind/plain": "# who trains\n# @package _global_\nkind: plain\n",
        "kind/large": "# @package _global_\nkind: large\n",
        "actor/base": "a: 1\nb: 1\n",
        "actor/plain_actor": "defaults: [base, _self_]\nb: 2\n",
        "actor/large_actor": "defaults: [base, ../size@cut: wide]\nb: 3\n",
        "size/wide": "tp: 8\n",
        "base": "defaults:\n- kind: plain\n- actor@w.actor: ${kind}_actor\n- size: wide\n"
                "- _self_\nw: {actor: {c: 4}}\n",
        "job": "defaults: [base, override kind: large, _self_]\nd: 5\n",
    }  # fmt: skip
    for name, text in files.items():
        (path := tmp_path / f"{name}.yaml").parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


PLAIN = {"kind": "plain", "w.actor.a": 1, "w.actor.b": 2, "w.actor.c": 4, "size.tp": 8}
LARGE = PLAIN | {"kind": "large", "w.actor.b": 3, "w.actor.cut.tp": 8}


def test_the_name_of_a_parent_holds_the_choice_of_a_group(groups):
    made = read_settings(groups / "base.yaml")
    assert (made.values, made.notes) == (PLAIN, ())


def test_a_choice_that_a_job_overrides_is_so_for_its_parents(groups):
    made = read_settings(groups / "job.yaml")
    assert (made.values, made.notes) == (LARGE | {"d": 5}, ())


def test_a_choice_on_the_command_line_stands_above_all(groups):
    (path := groups / "run.sh").write_text("python3 -m job -cn job kind=plain w.actor.e=6\n")
    assert read_settings(path).values == PLAIN | {"d": 5, "w.actor.e": 6}


def test_a_choice_that_no_parent_names_is_read_where_it_stands(groups):
    (groups / "job.yaml").write_text("defaults: [gone, override size: wide]\nd: 5\n")
    made = read_settings(groups / "job.yaml")
    assert made.values == {"size.tp": 8, "d": 5}
    assert made.notes == ("defaults: gone is not beside job.yaml; left out",)


@pytest.mark.parametrize("short", [True, False])
def test_a_config_in_a_folder_that_hydra_is_told(tmp_path, short):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/job.yaml").write_text("a: 1\nb: 2\n")
    told = "-cd=conf -cn job" if short else "--config-dir conf --config-name job"
    (path := tmp_path / "job.sh").write_text(f"python3 -m job {told} b=3\n")
    values = read_settings(path).values
    assert (values["a"], values["b"]) == (1, 3)


def test_variables_that_a_yaml_file_leaves_to_its_environment_are_told(tmp_path):
    text = "n: ${oc.env:NODES,4}\nm: ['${oc.env:A,${oc.env:B,\"8\"}}']\nh: ${oc.env:HOME}\nk: 1\n"
    (path := tmp_path / "job.yaml").write_text(text)
    say = "not set in the environment, so by the file's own default: "
    assert read_settings(path).notes == (f"{say}B=8, NODES=4",)
    assert read_settings(path, {"NODES": "2", "B": "1"}).notes == ()
    path.write_text("n: 4\n")
    assert read_settings(path).notes == ()


@pytest.mark.parametrize(
    ("said", "gpu"),
    [
        ({"resources": {"accelerators": "H200:8"}}, "H200"),
        ({"resources": {"accelerators": {"H200": 8}}}, "H200"),
        ({"resources": {"accelerators": "A100:8"}}, "A100-40GB"),
        ({"resources": {"accelerators": "A100-80GB:8"}}, "A100"),
        ({"resources": {"gpu": "H200:141GB:8"}}, "H200"),
        ({"resources": {"gpu": "A100:40GB:8"}}, "A100-40GB"),
        ({"resources": {"gpu": "nvidia:H100:8"}}, "H100"),
        ({"resources": {"gpu": {"name": "A100", "memory": "40GB", "count": 8}}}, "A100-40GB"),
        ({"resources": {"gpu": {"name": ["A100"], "count": 8}}}, "A100"),
        ({"spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"}}}, "H200"),
        ({"spec": {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-b200"}}}, "B200"),
    ],
)
def test_the_gpu_that_a_launcher_asks_for(tmp_path, said, gpu):
    text = VERL.format(more="trainer.n_gpus_per_node=$SKYPILOT_NUM_GPUS_PER_NODE")
    text = text if "accelerators" in str(said) else VERL.format(more="")
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(said | {"run": text}))
    made = import_job("verl", path)
    assert made.values["cluster.gpu"] == gpu and "cluster.gpu" not in made.assumed
    assert made.values["cluster.training_gpus"] == 16
    assert import_job("verl", path, gpu="H800").values["cluster.gpu"] == "H800"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"accelerators": ["H100:8", "H200:8"]}, "the file names H100, H200"),
        ({"gpu": "A100,H100:8"}, "the file names A100, H100"),
        ({"gpu": "cuda"}, "the file does not name the GPU"),
        ({"accelerators": "T4:8"}, "T4 is not in the catalog"),
        ({"gpu": "80GB:8"}, "the file does not name the GPU"),
        ({"gpu": 8}, "the file does not name the GPU"),
    ],
)
def test_a_gpu_that_no_launcher_says_is_assumed(tmp_path, said, why):
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(said | {"run": VERL.format(more="")}))
    made = import_job("verl", path)
    assert made.origin["cluster.gpu"] == f"assumed: {why}; say --gpu"


@pytest.mark.parametrize(
    "lines", ["--gres=gpu:h200:8", "--gpus-per-node=h200-141gb:8", "-G h200:16"]
)
def test_the_gpu_that_slurm_is_asked_for(job, lines):
    made = job("verl", f"#!/bin/bash\n#SBATCH {lines}\n" + VERL.format(more=""))
    assert made.values["cluster.gpu"] == "H200" and "cluster.gpu" not in made.assumed


def test_gpus_of_a_kind_are_counted(job):
    text = "#!/bin/bash\n#SBATCH --gpus-per-node=a100-80gb:4\n"
    made = job("verl", text + VERL.format(more="trainer.n_gpus_per_node=$SLURM_GPUS_PER_NODE"))
    assert made.values["cluster.training_gpus"] == 8


def test_a_job_typed_into_tmux(tmp_path):
    (path := tmp_path / "job.sh").write_text("tmux new -d -s j 'python3 job.py a=1 | tee log'\n")
    assert read_settings(path).values == {"a": 1}
    path.write_text("tmux send-keys -t j:0 'python3 job.py a=2' C-m\n")
    assert read_settings(path).values == {"a": 2}


def test_of_fine_tuning_and_rl_the_rl_is_read(job):
    tuning = (
        f"python3 train_async.py --loss-type sft_loss {' '.join(f'--x{i} 1' for i in range(9))}"
    )
    made = job("slime", f"{tuning} --hf-checkpoint Qwen3-8B\n" + SLIME.format(more=""))
    assert made.recipe()["model"] == "Qwen3-4B"
    few = SLIME.format(more="--loss-type sft_loss")
    with pytest.raises(RFabricError, match="only trains"):
        job("slime", f"python3 fetch.py --model Qwen3-4B\n{few}")


def test_a_sourced_file_sees_the_name_of_the_script(tmp_path):
    """$0 is the script that was called, BASH_SOURCE the file that stands there."""
    (tmp_path / "common.env").write_text("NAME=$(basename $0 .sh)\nHERE=$(basename $BASH_SOURCE)\n")
    (path := tmp_path / "grpo-8b.sh").write_text(
        "source common.env\npython job.py name=$NAME here=$HERE\n"
    )
    values = read_settings(path).values
    assert (values["name"], values["here"]) == ("grpo-8b", "common.env")
    (path := tmp_path / "all.sh").write_text("bash grpo-8b.sh\n")
    assert read_settings(path).values["name"] == "grpo-8b"


@pytest.mark.parametrize(
    "script",
    [
        "read -r -d '' COMMAND <<X\ncd / && \\\npython job.py a=1 b=2\nX\nexport COMMAND\n",
        "export COMMAND='srun python job.py a=1 b=2'\n",
    ],
)
def test_a_command_that_is_exported_to_a_job_script(tmp_path, script):
    (path := tmp_path / "job.sh").write_text(f"{script}MOUNTS=x sbatch --nodes=2 ray.sub\n")
    assert read_settings(path).values == {"a": 1, "b": 2}


@pytest.mark.parametrize("wrap", ["--wrap={}", "--wrap {}"])
def test_a_command_that_sbatch_wraps(tmp_path, wrap):
    text = wrap.format("'srun python job.py a=1 b=$SLURM_NNODES'")
    (path := tmp_path / "job.sh").write_text(f"sbatch --nodes=2 {text}\n")
    assert read_settings(path).values == {"a": 1, "b": 2}


def test_a_config_file_that_a_script_makes_has_its_parents(tmp_path):
    (tmp_path / "base.yaml").write_text("n: 4\nm: 1\n")
    (path := tmp_path / "job.sh").write_text(
        "mkdir -p runs/x\ncat > runs/x/c.yaml <<END\ndefaults: ../../base.yaml\nm: 2\nEND\n"
        "python job.py --config runs/x/c.yaml\n"
    )
    values = read_settings(path).values
    assert (values["n"], values["m"]) == (4, 2)


@pytest.mark.parametrize(
    "before", ["ray start --head --port=1 --num-gpus 8", "hf download x --local-dir y --token z"]
)
def test_what_prepares_a_job_is_none_however_much_it_says(tmp_path, before):
    (path := tmp_path / "job.sh").write_text(f"{before}\npython job.py --name x\n")
    assert read_settings(path).values == {"name": "x"}


@pytest.mark.parametrize(
    ("text", "told", "answer"),
    [
        ("${oc.env:HOME}", {}, "$HOME"),  # of whom the job is, not of who reads it
        ("${oc.env:HOME,${oc.env:B,8}}", {}, "8"),
        ("${oc.env:A,${oc.env:B,8}}", {"B": "16"}, "16"),
        ("${oc.env:A,}", {}, ""),
        ("${oc.env:A,'8'}", {}, "8"),
        ('${mul:${oc.decode:${oc.env:A,"4"}},2}', {}, 8),
        ("${oc.env:A}", {"A": "${oc.env:A}${oc.env:A}"}, "$A"),
        ("${mul:${oc.decode:${oc.env:A,4}},2}", {}, 8),
        ("${eval:'${b} * 2 + 1'}", {}, 9),
        ("${eval:'open(1)'}", {}, "${eval:'open(1)'}"),
    ],
)
def test_what_a_config_file_asks_of_the_environment(tmp_path, text, told, answer):
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump({"a": text, "b": 4}))
    assert read_settings(path, told).values["a"] == answer


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("export N=8\n{job}", "8"),
        ("N=8 {job}", "8"),
        ("N=8\n{job}", "4"),  # of the script alone
        ("{job}", "4"),
        ("export N=16; N=8 {job}; export N=2", "8"),
    ],
)
def test_a_config_file_sees_what_its_script_exports(tmp_path, script, answer):
    (tmp_path / "conf.yaml").write_text("n: ${oc.env:N,4}\nm: 1\n")
    job = "python job.py --config_path . --config_name conf x=1 y=2"
    (path := tmp_path / "job.sh").write_text(script.format(job=job))
    assert str(read_settings(path).values["n"]) == answer


@pytest.mark.parametrize("config", ["", "--config-name=there", "--config-name=away"])
def test_words_name_the_settings_of_other_words(tmp_path, config):
    (tmp_path / "there.yaml").write_text("a: {b: 2, c: 1}\n")
    words = "a.b=8 'd=${a.b}' 'e.f=${mul:${a.b},2}' 'g=${oc.env:N,3}' 'h=${nobody.knows}'"
    (path := tmp_path / "job.sh").write_text(f"export N=5\npython job.py {config} {words}\n")
    values = read_settings(path).values
    assert [values[key] for key in ("a.b", "d", "e.f", "g")] == [8, 8, 16, "5"]
    assert values["h"] == "${nobody.knows}"


# --- settings by their names ------------------------------------------------------------------


def test_verls_training_is_not_taken_for_its_engine(job):
    fp8 = "+actor_rollout_ref.actor.megatron.override_transformer_config.fp8=e4m3"
    training = job("verl", VERL.format(more=fp8)).recipe()["training"]
    assert training["precision"] == "fp8"
    shards = "model_engine=veomni actor_rollout_ref.actor.veomni.expert_parallel_size=4 "
    moe = VERL.replace("Qwen3-8B", "Qwen3-30B-A3B").format(more=shards)
    made = job("verl", moe).recipe()
    assert made["training"]["ep"] == 4
    assert "ep" not in made["generation"]


@pytest.mark.parametrize(
    ("framework", "text", "more"),
    [
        ("verl", VERL, "actor_rollout_ref.actor.fsdp_config.offload_policy=True"),
        ("slime", SLIME, "--train-backend fsdp --fsdp-cpu-offload"),
        ("slime", SLIME, "--optimizer-cpu-offload --optimizer-offload-fraction 0.5"),
    ],
)
def test_adam_on_the_host(job, framework, text, more):
    made = job(framework, text.format(more=more))
    assert made.recipe()["training"]["host_optimizer"]
    assert any("0.5: the other states" in note for note in made.notes) == ("0.5" in more)
    whole = any("sharded parameters are in the hosts" in note for note in made.notes)
    assert whole == ("optimizer" not in more)  # FSDP's moves all of them


def test_what_no_adam_is_offloaded_of_stays(job):
    more = "--optimizer-cpu-offload --optimizer-offload-fraction 0"
    assert "host_optimizer" not in job("slime", SLIME.format(more=more)).recipe()["training"]


def test_only_whole_words_make_a_setting_harmless(job):
    more = "--moe-token-dispatcher-type flex --use-precision-aware-optimizer"
    made = job("slime", SLIME.format(more=f"{more} --save-interval 20 --critic-lr 1e-5"))
    said = {key.partition(" = ")[0] for key in made.unmapped}
    assert {word[2:] for word in more.split() if word[:2] == "--"} <= said
    assert {"save-interval", "critic-lr"} <= set(made.ignored)


def test_what_changes_time_is_not_harmless_beside_words_that_are(job):
    costly = (
        "--moe-permute-fusion --moe-expert-capacity-factor 1 --overlap-cpu-optimizer-d2h-h2d "
        "--decoder-last-pipeline-num-layers 5 --recompute-num-layers 1 --log-probs-chunk-size 64 "
        "--attention-backend flash --rm-url http://x"
    )
    made = job("slime", SLIME.format(more=f"{costly} --moe-router-topk 8 --log-interval 1"))
    said = {key.partition(" = ")[0] for key in made.unmapped}
    assert {word[2:] for word in costly.split() if word[:2] == "--"} <= said
    assert {"moe-router-topk", "log-interval"} <= set(made.ignored)
    ways = "critic.model.path=x trainer.balance_batch=True reward_model.overlong_buffer.len=512"
    made = job("verl", VERL.format(more=ways))
    said = {key.partition(" = ")[0] for key in made.unmapped}
    assert {"critic.model.path", "trainer.balance_batch"} <= said
    assert "reward_model.overlong_buffer.len" in made.ignored


@pytest.mark.parametrize(
    ("ways", "etp", "noted"),
    [
        ((2, 4, ""), 2, False),  # Megatron's default: as tp
        ((2, 4, 1), None, False),
        ((4, 2, 2), 2, False),
        ((4, 8, ""), None, True),  # the default does not fit: whole, and said
    ],
)
def test_experts_are_cut_as_megatron_cuts_them(job, ways, etp, noted):
    names = "tensor_model", "expert_model", "expert_tensor"
    more = " ".join(
        f"actor_rollout_ref.actor.megatron.{name}_parallel_size={n}"
        for name, n in zip(names, ways, strict=True)
        if n
    )
    made = job("verl", VERL.replace("Qwen3-8B", "Qwen3-30B-A3B").format(more=more))
    assert made.recipe()["training"].get("etp") == etp
    assert any(note.startswith("expert_tensor_parallel_size") for note in made.notes) == noted


@pytest.mark.parametrize(
    ("more", "each", "updates", "said"),
    [
        # 16 ranks have 32 sequences each, of a mini-batch 12: 12, 12 and 8
        ("batch_size=48 rollout.n=4", 192, 3, "the last mini-batch is smaller"),
        ("batch_size=32 rollout.n=4", None, 4, ""),
        # of 20 sequences each rank has one: 8 times 16, as verl did before 0.8
        ("batch_size=20 rollout.n=1", None, 8, "20 sequences an update over 16 ranks are 1 a rank"),
        # 8 ranks have 64 each, of a mini-batch 24: filled up by verl 0.9
        ("batch_size=48 rollout.n=4 tp=2", 192, 3, "and Megatron before it"),
        # engines' GPUs are others, and the trainer of such jobs fills up nothing
        ("batch_size=48 rollout.n=4 nnodes=2", 192, 3, "the last mini-batch is smaller"),
        # 8 divides the batch of 128, and 56 its 896 sequences, of which 16 ranks take 48
        ("batch_size=8 rollout.n=7", 48, 19, "of 48 do not divide the 896 sequences of a step"),
    ],
)
def test_a_mini_batch_that_does_not_divide_the_batch(job, more, each, updates, said):
    made = job("verl", uneven(more))
    training = made.recipe()["training"]
    assert training.get("mini_batch_responses") == each
    if each is None:
        assert training["mini_batches"] == updates
    else:
        responses = 128 * made.recipe()["generation"]["group_size"]
        assert -(-responses // each) == updates
    assert said in " ".join(made.notes)


def uneven(more):
    names = {
        "batch_size": "actor_rollout_ref.actor.ppo_mini_batch_size",
        "rollout.n": "actor_rollout_ref.rollout.n",
        "tp": "actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
        "nnodes": "rollout.nnodes",
    }
    said = [f"{names[k]}={v}" for k, v in (one.split("=") for one in more.split())]
    return VERL.replace("train_batch_size=64", "train_batch_size=128").format(more=" ".join(said))


def test_megatron_refuses_uneven_mini_batches_where_nothing_fills_them_up(job):
    with pytest.raises(RFabricError, match="of 192 do not divide the 512 seq.* Megatron"):
        job("verl", uneven("batch_size=48 rollout.n=4 tp=2 nnodes=2"))


@pytest.mark.parametrize(("more", "pads"), [("", True), (" trainer.use_v1=False", False)])
def test_a_batch_that_does_not_divide_among_ranks_is_said_to_be_refused(job, more, pads):
    text = VERL.replace("train_batch_size=64", "train_batch_size=65").format(more=more)
    said = next(note for note in job("verl", text).notes if "do not divide among 16 ranks" in note)
    assert said.endswith("verl refuses them" + ", but for 0.9, which fills up" * pads)


def test_a_dense_model_has_no_experts_to_cut(job):
    cut = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"
    made = job("verl", VERL.format(more=cut))
    assert "etp" not in made.recipe()["training"] and made.recipe()["training"]["tp"] == 2


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ("ppo_micro_batch_size=64 algorithm.kl_ctrl.kl_coef=0.001", 2),
        ("ppo_micro_batch_size=64 actor_rollout_ref.ref.log_prob_micro_batch_size=64", 2),
        ("ppo_micro_batch_size=64 algorithm.kl_ctrl.kl_coef=0.0", 1),
        ("ppo_micro_batch_size_per_gpu=8 algorithm.kl_ctrl.kl_coef=0.001", 1),
        ("ppo_micro_batch_size=64 algorithm.kl_ctrl.kl_coef=1 algorithm.use_kl_in_reward=False", 1),
    ],
)
def test_rewards_of_older_verl_hold_kl(job, more, passes):
    made = job("verl", VERL.format(more=f"actor_rollout_ref.actor.{more}"))
    assert made.recipe()["training"]["log_prob_passes"] == passes
    assert any("before algorithm.use_kl_in_reward" in n for n in made.notes) == (passes == 2)


@pytest.mark.parametrize("agents", ["actor_rollout_ref.rollout.n_agent", "env.rollout.n"])
def test_agents_of_a_prompt_are_its_group(job, agents):
    made = job("verl", VERL.format(more=f"+{agents}=5 env.max_steps=50 rllm.agent.max_steps=9"))
    assert made.recipe()["generation"]["group_size"] == 5
    assert "generation.group_size" not in made.assumed
    for turns in ("env.max_steps = 50", "rllm.agent.max_steps = 9"):
        assert any(note.startswith(f"{turns}: turns") for note in made.notes)


@pytest.mark.parametrize(("said", "response"), [("400", 400), ("${data.max_response_length}", 512)])
def test_a_response_bounded_for_the_engine_alone(job, said, response):
    rollout = {"response_length": said if "$" in said else int(said)}
    model = {"path": "Qwen/Qwen3-8B"}
    values = {"algorithm": {"adv_estimator": "grpo"}, "agent_proxy": {"max_turn": 5},
              "actor_rollout_ref": {"model": model, "rollout": rollout}}  # fmt: skip
    made = job("verl", yaml.safe_dump(values), "job.yaml")
    assert made.recipe()["generation"]["max_response"] == response
    assert any(note.startswith("agent_proxy.max_turn = 5: turns") for note in made.notes)


def test_another_optimizer_is_noted(job):
    for name, noted in (("muon", True), ("adam", False), ("AdamW", False)):
        made = job("slime", SLIME.format(more=f"--optimizer {name}"))
        assert any(note.startswith("optimizer = muon: computed as") for note in made.notes) == noted


def test_prompts_that_prime_rolls_out_beyond_its_batch(job):
    generation = job("verl", VERL.format(more="data.oversample_factor=4")).recipe()["generation"]
    assert (generation["batch"], generation["prompts"]) == (64, 256)


def test_positions_that_a_job_stretches(job):
    asked = "+actor_rollout_ref.model.override_config.max_position_embeddings=65536"
    made = job("verl", VERL.format(more=asked))
    assert made.recipe()["generation"]["context"] == 65536
    assert "generation.context" not in made.assumed


def test_on_policy_distillation_has_no_critic(job):
    text = VERL.replace("verl.trainer.main_ppo algorithm.adv_estimator=grpo", "recipe.gkd.main_gkd")
    made = job("verl", text.format(more="actor_rollout_ref.actor.micro_batch_size=2"))
    assert "critic" not in made.recipe()["training"]
    assert made.recipe()["training"]["micro_batch_tokens"] == 2 * (512 + 1024)
    assert any("teacher" in note for note in made.notes)


def test_spin_needs_its_reference_policy(job):
    entry = "verl.trainer.main_ppo algorithm.adv_estimator=grpo"
    text = VERL.replace(entry, "recipe.spin.main_spin trainer.device=npu")
    made = job("verl", text.format(more=""))
    assert made.recipe()["training"]["log_prob_passes"] == 2
    assert any(note.startswith("trainer.device = npu: computed as") for note in made.notes)


@pytest.mark.parametrize(
    ("more", "dtype"),
    [("", "fp32"), ("--accumulate-allreduce-grads-in-fp32", "fp32"),
     ("--grad-reduce-in-bf16", "bf16"), ("--main-grads-dtype bf16", "bf16")],
)  # fmt: skip
def test_megatrons_gradients_are_fp32_unless_it_is_told(job, more, dtype):
    training = job("slime", SLIME.format(more=more)).recipe()["training"]
    assert training["grad_dtype"] == dtype


@pytest.mark.parametrize(
    ("more", "chunks"),
    [("--num-layers-per-virtual-pipeline-stage 6", 3),
     ("--num-virtual-stages-per-pipeline-rank 2", 2),
     ("--num-layers-per-virtual-pipeline-stage 18", None)],
)  # fmt: skip
def test_chunks_by_the_layers_of_each(job, more, chunks):
    made = job("slime", SLIME.format(more=f"--pipeline-model-parallel-size 2 {more}"))
    assert made.recipe()["training"].get("vp") == chunks
    assert not any(key.endswith("-stage") for key in made.ignored)


@pytest.mark.parametrize(
    ("more", "exchange"),
    [("--cp-comm-type a2a", "ulysses"), ("--cp-comm-type p2p", None), ("", None)],
)
def test_how_a_context_is_exchanged(job, more, exchange):
    made = job("slime", SLIME.format(more=f"--context-parallel-size 2 {more}"))
    assert made.recipe()["training"].get("context_exchange") == exchange
    alone = job("slime", SLIME.format(more=more)).recipe()["training"]
    assert "context_exchange" not in alone


@pytest.mark.parametrize(
    ("context", "more", "lengths"),
    [
        (12288, "", (4096, 8192)),
        (8000, "", (2048, 5952)),
        (1000, "", (500, 500)),
        (8192, "--rollout-max-prompt-len 1024", (1024, 7168)),
        (16384, "--rollout-max-prompt-len 1024", (1024, 8192)),
    ],
)
def test_a_context_bounds_the_response_too(job, context, more, lengths):
    asked = f"--rollout-max-response-len 8192 --rollout-max-context-len {context} {more}"
    generation = job("slime", SLIME.format(more=asked)).recipe()["generation"]
    assert (generation["max_prompt"], generation["max_response"]) == lengths


@pytest.mark.parametrize(
    ("name", "precision"),
    [("DeepSeek-R1", "fp8"), ("Kimi-K2-Instruct", "fp8"), ("DeepSeek-R1-bf16", None),
     ("Kimi-K2-Instruct-int4", "int4"), ("Kimi-K2-Thinking", "int4"),
     ("Qwen3-4B", None), ("Qwen3-4B-FP8", "fp8")],
)  # fmt: skip
def test_slimes_engines_serve_the_checkpoint_as_it_is_stored(job, name, precision):
    made = job("slime", SLIME.replace("Qwen3-4B", f"/models/{name}/").format(more="")).recipe()
    assert made["generation"].get("precision") == precision
    assert made["weight_sync"].get("precision") == ("fp8" if precision == "fp8" else None)


@pytest.mark.parametrize(
    ("flag", "why"),
    [("--debug-train-only", "only trains"), ("--debug-rollout-only", "only generates")],
)
def test_half_a_step_is_refused(job, flag, why):
    with pytest.raises(RFabricError, match=f"{flag}: the job {why}"):
        job("slime", SLIME.format(more=flag))


@pytest.mark.parametrize(
    "flag",
    ["--partial-rollout", "--no-offload-rollout", "--use-opd",
     "--advantage-estimator on_policy_distillation"],
)  # fmt: skip
def test_what_slime_does_beside_a_step_is_noted(job, flag):
    made = job("slime", SLIME.format(more=flag))
    assert any(note.startswith(flag) for note in made.notes)
    assert not any(key.startswith(flag[2:].split()[0]) for key in made.unmapped)


def test_of_what_stands_in_a_jobs_way_that_counts_which_nobody_may_assume(job):
    """Positions are stretched as far as its sequences go, so that memory is what it lacks."""
    words = SLIME.replace("4B", "14B").replace("4096", "62048")
    told = "--rollout-max-response-len 60000 --recompute-granularity selective"
    made = job("slime", words.format(more=told))
    assert made.misfit.startswith("training: Qwen3-14B needs")
    assert made.recipe()["generation"]["context"] == 62048
    assert "exceeds the context" in made.origin["generation.context"]
    assert "it would run with" in made.way_out


def test_each_assumption_has_the_reason_that_it_answers(job):
    ways = "--tensor-model-parallel-size 2 --context-parallel-size 4"
    words = SLIME.replace("4B", "8B").replace("4096", "20000")
    made = job("slime", words.format(more=f"--rollout-max-response-len 78000 {ways}"))
    assert not made.misfit and {"cluster.gpu", "generation.context"} <= set(made.assumed)
    assert "exceeds the context" in made.origin["generation.context"]
    assert "a H100 has 86 GB" in made.origin["cluster.gpu"]


# --- models -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/models/Qwen__Qwen3-8B/", "/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c", "a/Qwen3-8B//"],
)
def test_a_model_by_the_folder_it_is_kept_in(path):
    assert find_model(path).name == "Qwen3-8B"


def test_a_model_that_only_the_runs_name_tells(job):
    text = VERL.replace("Qwen/Qwen3-8B", "/YOUR/PATH")
    made = job("verl", text.format(more="trainer.project_name=Qwen2.5-32B"))
    assert made.recipe()["model"] == "Qwen2.5-32B"
    assert "model" in made.assumed
    assert "trainer.project_name" in made.origin["model"]


@pytest.mark.parametrize("stated", ["microsoft/Phi-4-mini-instruct", "inclusionAI/Ring-1T"])
def test_a_name_that_says_too_little_is_no_other_models(job, stated):
    """Phi-4 is four times as large, and what has a trillion parameters has experts."""
    with pytest.raises(RFabricError, match=f"model '{stated}' has no config here"):
        job("verl", VERL.replace("Qwen/Qwen3-8B", stated).format(more=""))
    said = VERL.replace("Qwen/Qwen3-8B", "/ckpt").format(more="trainer.experiment_name=q3-{name}")
    made = job("verl", said.replace("q3-{name}", "Qwen3-4B-mini-batch"))
    assert made.recipe()["model"] == "Qwen3-4B"


# --- the other frameworks ---------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["slime", "nemo-rl", "roll", "areal"])
def test_another_frameworks_job_is_refused_as_such(job, framework):
    text = "python3 -m other.train --policy_nodes 1 --reward_nodes 1 --share_all\n"
    with pytest.raises(RFabricError, match=f"none of which is known of {framework}"):
        job(framework, text)


def test_nemos_parent_that_is_not_there_still_tells_its_defaults(job):
    for parent, sharded in (("grpo_math_1B.yaml", True), ("grpo_math_1B_megatron.yaml", False)):
        made = job("nemo-rl", yaml.safe_dump({"defaults": f"../{parent}"} | NEMO), "job.yaml")
        generation, training = (made.recipe()[part] for part in ("generation", "training"))
        assert (generation["batch"], generation["group_size"]) == (32, 16)
        assert training["micro_batch_tokens"] == 4 * 512
        assert (training.get("optimizer") == "sharded") == sharded
        assert any("grpo.num_prompts_per_step = 32" in note for note in made.notes)
    with pytest.raises(RFabricError, match="num_prompts_per_step is not set"):
        job("nemo-rl", yaml.safe_dump({"defaults": "../mine.yaml"} | NEMO), "job.yaml")


def nemo(**said):
    """A NeMo-RL job of 4 nodes on its own, with more settings by dotted key."""
    values = {
        "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
        "policy": NEMO["policy"] | {"max_total_sequence_length": 4096},
        "cluster": {"gpus_per_node": 8, "num_nodes": 4},
    }
    for key, value in said.items():
        part, _, rest = key.partition("__")
        values[part] = values.get(part, {}) | ({rest: value} if rest else value)
    return yaml.safe_dump(values)


@pytest.mark.parametrize(
    ("nodes", "more", "gpus"),
    [
        (4, {}, 24),  # a whole node
        (1, {}, 6),
        (4, {"enabled": False}, 32),
        (4, {"resources": None}, 32),
    ],
)
def test_nemos_reward_model_has_gpus_of_the_cluster(job, nodes, more, gpus):
    judge = {"resources": {"gpus_per_node": 2, "num_nodes": 1}} | more
    text = nemo(env__reward_model=judge, cluster__num_nodes=nodes)
    made = job("nemo-rl", text, "job.yaml")
    assert made.recipe()["cluster"]["training_gpus"] == gpus
    assert any("a reward model has" in note for note in made.notes) == (gpus in (24, 6))


def test_nemos_models_of_environments_are_said(job):
    text = nemo(env__nemo_gym={"num_gpu_nodes": 4})
    assert any("num_gpu_nodes = 4" in note for note in job("nemo-rl", text, "job.yaml").notes)


def test_nemos_section_in_place_of_its_parents(job, tmp_path):
    engine = {"vllm_cfg": {"tensor_parallel_size": 4}, "max_new_tokens": 512}
    (tmp_path / "base.yaml").write_text(nemo(policy__generation=engine))
    for said, length in (({"_override_": True}, 2048), ({}, 512)):
        generation = {"backend": "sglang", "sglang_cfg": {"tp_size": 2}} | said
        child = {"defaults": "base.yaml", "policy": {"generation": generation}}
        made = job("nemo-rl", yaml.safe_dump(child), "job.yaml")
        generation = made.recipe()["generation"]
        assert (generation["tp"], generation["max_response"]) == (2, length)
        assert not any("_override_" in key for key in made.unmapped)


def test_nemos_two_engines_cannot_both_train(job):
    on = {"policy__megatron_cfg": {"enabled": True}, "policy__dtensor_cfg": {"enabled": True}}
    made = job("nemo-rl", nemo(**on), "job.yaml")
    assert any("both are enabled, which NeMo-RL refuses" in note for note in made.notes)
    assert "optimizer" not in made.recipe()["training"]


@pytest.mark.parametrize("said", [True, False])
def test_nemos_older_name_of_recomputation(job, said):
    made = job("nemo-rl", nemo(policy__activation_checkpointing_enabled=said), "job.yaml")
    assert made.recipe()["training"]["recompute"] == ("full" if said else "selective")


@pytest.mark.parametrize("way", ["", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("on", [True, False])
def test_nemos_padding_is_read(job, way, on):
    more = {f"policy__{way}": {"enabled": on, "train_mb_tokens": 8192}} if way else {}
    made = job("nemo-rl", nemo(**more), "job.yaml")
    padding = made.recipe()["training"].get("padding")
    assert padding == (None if way and on else "mini-batch")
    assert any("padding is computed" in note for note in made.notes) == bool(padding)


def roll(**said):
    values = yaml.safe_load(ROLL)
    for key, value in said.items():
        outer, _, last = key.rpartition("__")
        (values[outer] if outer else values)[last] = value
    return yaml.safe_dump(values)


def test_rolls_generation_beside_the_training_has_what_is_left(job):
    wide = roll(async_generation_ratio=1, actor_infer__device_mapping="list(range(0,24))")
    made = job("roll", wide, "job.yaml")
    assert made.recipe()["cluster"]["training_gpus"] == 8
    assert made.recipe()["cluster"]["generation_gpus"] == 16
    assert made.recipe()["pipeline"] == "one-step-off"
    assert any("8 GPUs of actor_train generate too" in note for note in made.notes)
    assert not made.misfit


def test_rolls_generation_on_the_same_gpus_takes_turns(job):
    made = job("roll", roll(async_generation_ratio=1), "job.yaml")
    assert "pipeline" not in made.recipe()
    assert any("take turns" in note for note in made.notes)
    assert not made.misfit


@pytest.mark.parametrize(
    ("said", "padding"),
    [
        ({}, "maximum"),
        ({"use_remove_padding": True}, "micro-batch"),
        ({"use_remove_padding": False}, "maximum"),
        ({"use_sequence_packing": True}, None),
        ({"use_sequence_packing": False}, "maximum"),
        (
            {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 16384},
            None,
        ),
    ],
)
def test_rolls_padding_is_read_and_said_once(job, said, padding):
    made = job("roll", roll(**{f"actor_train__{k}": v for k, v in said.items()}), "job.yaml")
    assert made.recipe()["training"].get("padding") == padding
    assert sum("padding is computed" in note for note in made.notes) == bool(padding)


def test_roll_may_fill_up_beyond_what_its_sequences_have(job):
    made = job("roll", roll(sequence_length=8192), "job.yaml")
    said = "up to sequence_length = 8192; here to 5120, the longest that may be"
    assert any(said in note for note in made.notes)


def test_rolls_micro_batches_by_their_tokens(job):
    tokens = {"actor_train__max_tokens_per_microbatch_in_train": 16384}
    on = {"actor_train__use_dynamic_batching_in_train": True}
    for said, expected in ((tokens | on, 8192), (tokens, 2560)):
        training = job("roll", roll(**said), "job.yaml").recipe()["training"]
        assert training["micro_batch_tokens"] == expected  # on each of two context-parallel ranks


@pytest.mark.parametrize(
    ("accumulated", "more", "updates"),
    [(16, {}, 2), (16, {"batch_adjust_mode": "delete"}, 1), (8, {}, 4), (512, {}, 1)],
)
def test_roll_evens_out_the_batches_of_agents(job, accumulated, more, updates):
    """100 trajectories on 4 ranks."""
    args = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": accumulated}
    said = {"actor_train__training_args": args, "rollout_batch_size": 100} | more
    values = yaml.safe_load(roll(**said)) | {"train_env_manager": {"group_size": 4}}
    made = job("roll", yaml.safe_dump(values), "job.yaml")
    assert made.recipe()["training"]["mini_batches"] == updates
    assert any("batch_adjust_mode" in note for note in made.notes)
    assert not made.misfit


@pytest.mark.parametrize(
    ("algorithm", "tokens"), [("load_balance", 8192), ("none", 2560), (None, 2560)]
)
def test_roll_balances_packs_of_so_many_tokens(job, algorithm, tokens):
    args = {"algorithm": algorithm, "max_packed_sequence_length_train": 16384}
    said = {"actor_train__use_sequence_packing": True, "actor_train__sequence_packing_args": args}
    training = job("roll", roll(**said), "job.yaml").recipe()["training"]
    assert training["micro_batch_tokens"] == tokens


def test_roll_actions_are_as_long_as_the_engine_lets_them(job):
    values = yaml.safe_load(roll(sequence_length=8192, response_length=4096))
    values |= {"train_env_manager": {"group_size": 8}, "max_actions_per_traj": 5}
    values["actor_infer"]["generating_args"] = {"max_new_tokens": 256}
    generation = job("roll", yaml.safe_dump(values), "job.yaml").recipe()["generation"]
    assert (generation["turns"], generation["max_response"]) == (5, 5 * 256)


@pytest.mark.parametrize(("accumulated", "passes"), [(128, 0), (64, 1)])
def test_roll_takes_a_lone_updates_own_log_probs(job, accumulated, passes):
    args = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": accumulated}
    said = roll(actor_train__training_args=args, enable_old_logprobs_recompute=False)
    training = job("roll", said, "job.yaml").recipe()["training"]
    assert training["mini_batches"] == 128 // accumulated
    assert training["log_prob_passes"] == passes


@pytest.mark.parametrize(("each", "response"), [(512, 6144), (64, 1920)])
def test_actions_that_would_fill_a_trajectory_leave_room_for_its_prompt(job, each, response):
    values = yaml.safe_load(roll(sequence_length=8192, response_length=each))
    del values["prompt_length"]
    values |= {"train_env_manager": {"group_size": 8}, "max_actions_per_traj": 30}
    generation = job("roll", yaml.safe_dump(values), "job.yaml").recipe()["generation"]
    assert generation["max_response"] == response
    assert generation["max_prompt"] == 8192 - response


def test_areals_agents(job):
    agent = "n_trajs: 4\nmax_tokens_per_trajectory: 16384\neconfig: {max_steps: 100}\n"
    made = job("areal", AREAL + agent, "job.yaml")
    assert made.recipe()["model"] == "Qwen3-8B"
    assert made.recipe()["generation"]["group_size"] == 8
    assert made.recipe()["generation"]["max_response"] == 16384 - 1024
    assert any(note.startswith("econfig.max_steps = 100: turns") for note in made.notes)


@pytest.mark.parametrize(("said", "recompute"), [("full", "full"), ("selective", "selective")])
def test_areal_recomputes_as_much_as_megatrons_section_says(job, said, recompute):
    more = f"megatron: {{recompute_granularity: {said}}}, gradient_checkpointing: true"
    text = AREAL.replace('backend: "megatron:d8"', f'backend: "megatron:d8", {more}')
    assert job("areal", text, "job.yaml").recipe()["training"]["recompute"] == recompute


def areal(backends, **actor):
    """An AReaL job of these backends, or of one allocation mode."""
    values = yaml.safe_load(AREAL)
    if len(backends) == 1:
        values["allocation_mode"] = backends[0]
    else:
        values["rollout"]["backend"], values["actor"]["backend"] = backends
    values["actor"] |= actor
    return yaml.safe_dump(values)


@pytest.mark.parametrize(
    ("backend", "exchange"),
    [("fsdp:d2c4", "ulysses"), ("archon:d2c4", "ulysses"), ("megatron:d2c4", None)],
)
def test_areal_cuts_micro_batches_over_context_ranks(job, backend, exchange):
    text = areal(("sglang:d8", backend), mb_spec={"max_tokens_per_mb": 16384})
    training = job("areal", text, "job.yaml").recipe()["training"]
    assert (training["cp"], training["micro_batch_tokens"]) == (4, 4096)
    assert training.get("context_exchange") == exchange


@pytest.mark.parametrize(
    ("mode", "optimizer"),
    [
        ("sglang:d8+d8", "sharded"),
        ("sglang:d8+d2p2t2", None),
        ("sglang:d8+(attn:d4t2|ffn:d2e4)", None),
        ("sglang.d8p1m1+d8p1m1", None),  # of AReaL 0.3, which had Megatron's engine alone
    ],
)
def test_areal_trains_with_the_engine_that_can(job, mode, optimizer):
    training = job("areal", areal((mode,)), "job.yaml").recipe()["training"]
    assert training.get("optimizer") == optimizer


@pytest.mark.parametrize(
    ("mode", "shared"),
    [
        ("sglang[rollout]:d8+fsdp[actor]:d4t2|fsdp[critic]:d8", False),
        ("sglang[rollout]:d8+fsdp[critic]:d8|fsdp[actor]:d4t2", False),
        ("sglang:d8|fsdp:d4t2|fsdp[ref]:d8", True),
    ],
)
def test_areal_roles_on_the_actors_gpus_are_no_third_pool(job, mode, shared):
    made = job("areal", areal((mode,)), "job.yaml").recipe()
    assert (made["cluster"]["training_gpus"], made["cluster"]["generation_gpus"]) == (8, 8)
    assert made["training"]["tp"] == 2
    assert ("placement" in made) == shared


@pytest.mark.parametrize(("ffn", "cut"), [("d1t4e2", True), ("d4e2", False)])
def test_areal_experts_are_cut_as_its_mode_says(job, ffn, cut):
    mode = f"sglang:d8+megatron:(attn:d2t2c2|ffn:{ffn})"
    made = job("areal", areal((mode,)).replace("Qwen3-8B", "Qwen3-30B-A3B"), "job.yaml")
    assert made.recipe()["training"]["ep"] == 2
    assert made.recipe()["training"].get("etp") == (4 if cut else None)


def test_areal_without_a_mode_has_its_backends(job):
    text = areal(("vllm:d8", "fsdp:d8")) + "allocation_mode: ''\n"
    assert job("areal", text, "job.yaml").recipe()["cluster"]["training_gpus"] == 8


def test_areal_settings_by_their_older_names(job):
    words = (
        "n_nodes=4 n_gpus_per_node=8 allocation_mode=sglang.d24p1m1+d8p1m1 group_size=16 "
        "actor.path=Qwen/Qwen3-8B dataset.train_bs_n_seqs=128 dataset.max_prompt_len=2048 "
        "ppo.gen.max_new_tokens=4096 ppo.ppo_n_minibatches=2 ppo.use_decoupled_loss=True "
        "actor_train.mb_spec.max_tokens_per_mb=16384 max_head_offpolicyness=4 "
        "max_concurrent_rollouts=64"
    )
    made = job("areal", f"python3 training/main_async_ppo.py {words}\n")
    recipe, generation, training = (
        made.recipe(),
        made.recipe()["generation"],
        made.recipe()["training"],
    )
    assert (recipe["pipeline"], recipe["staleness"]) == ("async", 4)
    assert (generation["batch"], generation["group_size"]) == (128, 16)
    assert (generation["max_prompt"], generation["max_response"]) == (2048, 4096)
    assert generation["concurrent"] == 64
    assert (training["micro_batch_tokens"], training["mini_batches"]) == (16384, 2)
    assert (training["log_prob_passes"], training["recompute"]) == (2, "full")
    assert any("names of AReaL 0.3" in note for note in made.notes)
    assert not made.unmapped


@pytest.mark.parametrize(
    ("said", "micro"), [("micro_batch_size_per_gpu=4", 4), ("use_dynamic_bsz=True", 2)]
)
def test_a_micro_batch_of_so_many_sequences_is_no_fuller_for_short_ones(job, said, micro, tmp_path):
    """16 ranks have 16 of the 256 sequences of an update each: four micro-batches of four, though
    all of its tokens fit into two. Each gathers layers twice, and what is outside of them once; two
    passes ahead of the update have as many sequences again for each update: 8 micro-batches of
    four, one gather each, of what is outside of layers in the first alone.
    """
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    name = "ppo_" * said.startswith("micro") + said
    more = (
        f"{actor}.ppo_mini_batch_size=32 {rollout}.n=8 {actor}.use_kl_loss=True {actor}.{name} "
        f"{actor}.ppo_max_token_len_per_gpu=20480 data.max_prompt_length=1024"
    )
    once = VERL.replace("ppo_mini_batch_size=64 ", "x=1 ").replace("length=1024", "length=4096")
    path = tmp_path / "job.yaml"
    path.write_text(job("verl", once.format(more=more)).yaml(), encoding="utf-8")
    w = read_recipe(path)
    step = step_of(w, 0, 0)
    assert [one.micro_batches for one in step.trained.mini_batches] == [micro] * 2
    if micro == 4:
        assert step.trained.log_prob_micro_batches == 8
        outside = w.model.parameters_before_layers + w.model.parameters_behind_layers
        inside = w.model.parameters - outside
        gathered = (2 * 4 * 2 + 2 * 8) * inside + (4 * 2 + 2) * outside
        ring = 2 * 15 / 16 * 2 * gathered  # over the edges of two servers
        assert training_bytes(w, step)["all-gather"] == pytest.approx(ring)


def test_a_micro_batch_holds_its_longest_sequences():
    more = ["training.micro_batch_sequences=3", "training.micro_batch_tokens=40000"]
    with pytest.raises(RFabricError, match="40000 x cp 1 cannot hold 3 sequences of 18432 tokens"):
        read_recipe("grpo-64", more)
