"""Config files that Hydra composes of groups: which file of a group is taken, under which key, and
what stays of it.
"""

import pytest

from rfabric.rl.imports.settings import read_settings


@pytest.fixture
def read(tmp_path):
    """Reads `job.yaml`, or the job that a script's words start, of a folder of files by name."""

    def values(files, words="", environment=None):
        for name, text in files.items():
            (path := tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if not words:
            return read_settings(tmp_path / "job.yaml", environment)
        (tmp_path / "run.sh").write_text(f"python3 -m job {words}\n")
        return read_settings(tmp_path / "run.sh")

    return values


GROUPS = {
    "optim/fsdp": "kind: fsdp\n",
    "optim/megatron": "kind: megatron\n",
    "actor/megatron_actor": "defaults:\n- ../optim@optim: megatron\n- _self_\nn: 1\n",
    "critic/dp_critic": "defaults:\n- ../optim@optim: fsdp\n- _self_\nn: 2\n",
    "engine/megatron": "# @package _global_\nengine: megatron\n",
    "job": "defaults:\n- engine: megatron\n- actor@a.actor: ${engine}_actor\n"
    "- critic@critic: dp_critic\n- _self_\n",
}


def test_what_one_file_takes_of_a_group_is_its_own(read):
    made = read(GROUPS)
    values = {"engine": "megatron", "a.actor.optim.kind": "megatron", "a.actor.n": 1}
    assert made.values == values | {"critic.optim.kind": "fsdp", "critic.n": 2}


@pytest.mark.parametrize(
    ("group", "begun", "key"),
    [
        ("actor", "# @package _group_\n", "actor.w"),
        ("actor", "# @package run._group_\n", "run.actor.w"),
        ("actor", "# @package run._name_\n", "run.b.w"),
        ("actor", "# @package _global_.run\n", "run.w"),
        ("actor@_global_", "", "w"),
        ("actor@_here_", "", "w"),
        ("actor@run", "# @package _group_\n", "run.w"),
    ],
)
def test_a_package_by_hydras_words_for_it(read, group, begun, key):
    made = read({"actor/b": f"{begun}w: 3\n", "job": f"defaults: [{{{group}: b}}]\n"})
    assert made.values == {key: 3}


@pytest.mark.parametrize(
    ("folder", "answer"), [("cfg", 1), ("away", 2)], ids=["beside another", "alone"]
)
def test_a_folder_that_hydra_also_looks_in_is_the_second(read, folder, answer):
    files = {"cfg/job": "n: 1\n", "extra/job": "n: 2\n"}
    words = f"--config-path={folder} --config-name=job --config-dir=extra m=3"
    assert read(files, words).values == {"n": answer, "m": 3}


ELSEWHERE = {
    "extra/common": "n: 4\n",
    "extra/size/big": "# @package trainer\ndefaults: [each]\nnodes: 6\n",
    "extra/size/each": "gpus: 8\n",
}
PARENTS = "defaults: [common, {size: big}, _self_]\nm: 1\n"


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ("hydra: {searchpath: ['file://extra', 'pkg://verl.trainer.config']}\n", ""),
        ("hydra: {searchpath: ['file:///opt/job/extra']}\n", ""),
        ("hydra: {searchpath: ['pkg://extra']}\n", "--config-path=cfg --config-name=job"),
        ("", "-cp cfg -cn job 'hydra.searchpath=[file://extra]'"),
        ("", "--config-path=cfg --config-dir=extra --config-name=job"),
    ],
)
def test_parents_in_the_folders_of_hydras_search_path(read, begun, words):
    at = "cfg/job" if words else "job"
    values = read(ELSEWHERE | {at: begun + PARENTS}, words).values
    told = {"n": 4, "trainer.nodes": 6, "trainer.gpus": 8, "m": 1}
    assert {key: value for key, value in values.items() if "hydra" not in key} == told


SEARCH = "hydra: {searchpath: ['file://verl/trainer/config']}\ndefaults: [common, _self_]\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"../config/common": "n: 4\n", "job": SEARCH}, ""),
        ({"config/common": "n: 4\n", "rl/jobs/job": SEARCH}, "-cp rl/jobs -cn job"),
        ({"../cfg/common": "n: 4\n", "cfg/job": PARENTS}, "-cp /opt/app/cfg -cn job"),
    ],
    ids=["above", "above a config", "the config's own folder"],
)
def test_a_folder_of_the_same_last_word_is_not_that_of_a_search_path(read, files, words):
    made = read(files, words)
    assert "n" not in made.values
    assert any("common is not beside job.yaml; left out" in note for note in made.notes)


def test_what_the_search_path_finds_is_said(read, tmp_path):
    files = {"verl/trainer/config/common": "n: 4\n", "recipe/x/job": SEARCH}
    made = read(files, "-cp recipe/x -cn job")
    file = (tmp_path / "verl/trainer/config/common.yaml").resolve()
    assert made.values["n"] == 4 and f"defaults: common is read from {file}" in made.notes


def test_parents_beside_a_config_that_hydra_finds_second(read):
    files = {"cfg/common": "n: 4\n", "extra/job": "defaults: [common, _self_]\nm: 1\n"}
    made = read(files, "-cp cfg -cd extra -cn job")
    assert made.values == {"n": 4, "m": 1}


def test_a_choice_on_the_command_line_keeps_what_its_file_sets(read):
    files = {"algo/ppo": "kind: ppo\nn: 1\n", "algo/grpo": "kind: grpo\nn: 2\n"}
    files |= {"job": "defaults: [{algo: ppo}, _self_]\nm: 1\n"}
    made = read(files, "-cn job algo=grpo algo.n=8")
    assert made.values == {"algo.kind": "grpo", "algo.n": 8, "m": 1}


@pytest.mark.parametrize(
    ("told", "note"),
    [({"A": "4"}, "C=2"), ({}, "B=8, C=2"), ({"B": "1"}, "C=2"), ({"A": "4", "C": "1"}, "")],
)
def test_a_default_that_nothing_falls_back_to_is_not_said(read, told, note):
    made = read({"job": "x: ${oc.env:A,${oc.env:B,8}}${oc.env:C,2}\n"}, environment=told)
    say = "not set in the environment, so by the file's own default: "
    assert made.notes == ((say + note,) if note else ())
