"""Jobs in the YAML of a launcher, and behind the shells that launchers start."""

import pytest
import yaml

from rfabric.errors import RFabricError
from rfabric.rl.imports import import_job
from rfabric.rl.imports.settings import read_settings

JOB = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"entrypoint": "python3 j.py a=4 b=2"}}
CLUSTER = {
    "kind": "RayCluster",
    "spec": {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "containers": [{"image": "verl", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
    },
}


@pytest.fixture
def read(tmp_path):
    """The settings of a launcher's file, which may hold several documents."""

    def values(*documents, begin=""):
        text = begin + "---\n".join(map(yaml.safe_dump, documents))
        (path := tmp_path / "job.yaml").write_text(text)
        return read_settings(path)

    return values


@pytest.mark.parametrize("begin", ["", "---\n", "# jobs\n---  # the first\n"])
def test_a_job_among_the_documents_of_a_file(read, begin):
    service = {"kind": "Service", "spec": {"ports": [8265]}}
    for documents in ((service, JOB), (JOB, service), (JOB,)):
        assert read(*documents, begin=begin).values == {"a": 4, "b": 2}
    assert read(CLUSTER, JOB).gpus == ("NVIDIA-H200",)


def test_documents_that_start_nothing_are_refused(read):
    with pytest.raises(RFabricError, match="holds 2 documents, none of which starts a python"):
        read(CLUSTER, {"kind": "Service"})


def test_a_job_of_one_document_behind_its_line_is_read_as_ever(tmp_path):
    (path := tmp_path / "job.yaml").write_text("---\na: {b: 1}\n")
    assert read_settings(path).values == {"a.b": 1}


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["/bin/bash", "-c"], ["python3 j.py a=$N b=2"]),
        (["/bin/bash", "-c", "python3 j.py a=$N b=2"], None),
        (["/bin/sh"], ["-c", "cd x; python3 j.py a=$N b=2"]),
        (["bash"], ["-euo", "pipefail", "-c", "cd x\npython3 j.py a=$N b=2"]),
        (["bash", "-euxo", "pipefail", "-c", "python3 j.py a=${N} b=2"], None),
        (["python3"], ["j.py", "a=$(N)", "b=2"]),
        (["python3", "j.py", "a=$(N)", "b=2"], None),
        (["sh", "-c", "python3 j.py a=$(N) b=2"], None),
    ],
)
def test_a_containers_command_and_its_arguments(read, command, args):
    said = {"command": command, "env": [{"name": "N", "value": "4"}]}
    said |= {"args": args} if args else {}
    assert read({"spec": {"containers": [said]}}).values == {"a": 4, "b": 2}


def test_a_dollar_of_docker_compose(read):
    command = 'bash -c "python3 j.py a=$$N b=$${M:-2}"'
    assert read({"services": {"j": {"command": command, "environment": {"N": 4}}}}).values == {
        "a": 4,
        "b": 2,
    }


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [
        ({"num_nodes": 4, "resources": {"accelerators": "H100:8"}}, 4),
        ({"resources": {"accelerators": {"H100": 8}}}, 1),
        ({"resources": {"accelerators": "H100:8"}}, 1),
    ],
)
def test_what_skypilot_tells_of_its_nodes(read, launcher, nodes):
    run = (
        'N=$(echo "$SKYPILOT_NODE_IPS" | wc -l)\n'
        'if [ "$SKYPILOT_NODE_RANK" == "0" ]; then\n'
        "  python3 j.py a=$N b=$SKYPILOT_NUM_GPUS_PER_NODE c=$SKYPILOT_NUM_NODES\n"
        "fi"
    )
    made = read(launcher | {"run": run})
    assert made.values == {"a": nodes, "b": 8, "c": nodes} and not made.notes


@pytest.mark.parametrize(
    ("gpu", "each"),
    [("H100:8", 8), ("nvidia:H100:80GB:4", 4), ({"name": "H100", "count": 8}, 8), ("H100", 1)],
)
def test_what_dstack_tells_of_its_nodes(read, gpu, each):
    words = "a=$DSTACK_NODES_NUM b=$DSTACK_GPUS_PER_NODE c=$DSTACK_GPUS_NUM"
    made = read({"nodes": 2, "commands": [f"python3 j.py {words}"], "resources": {"gpu": gpu}})
    assert made.values == {"a": 2, "b": each, "c": 2 * each}


def test_a_size_that_the_file_does_not_tell_is_asked_for(read):
    made = read({"run": "python3 j.py a=$SKYPILOT_NUM_GPUS_PER_NODE b=1"})
    assert made.values == {"a": "$SKYPILOT_NUM_GPUS_PER_NODE", "b": 1}


@pytest.mark.parametrize(
    "start",
    [
        "/bin/bash -c 'python3 j.py a=4 b=2'",
        "srun --nodes=4 /usr/bin/bash -lc 'python3 j.py a=4 b=2'",
        "bash -euo pipefail -c 'python3 j.py a=4 b=2'",
        "bash -o pipefail -x -c 'python3 j.py a=$1 b=2' name 4",
        "docker exec c bash --login -c 'python3 j.py a=4 b=2'",
        "/bin/bash -x inner.sh",
        "bash -euo pipefail inner.sh",
        "/bin/bash <<EOF\npython3 j.py a=4 b=2\nEOF",
        "cat inner.sh | /bin/sh",
        "env A=1 bash -s <<'EOF'\npython3 j.py a=4 b=2\nEOF",
    ],
)
def test_a_job_behind_a_shell_by_its_path_or_with_more_options(tmp_path, start):
    (tmp_path / "inner.sh").write_text("python3 j.py a=4 b=2\n")
    (path := tmp_path / "run.sh").write_text(start + "\n")
    assert read_settings(path).values == {"a": 4, "b": 2}


def test_a_traceback_is_none_of_a_file_of_no_mapping(tmp_path):
    for text in ("- 1\n- 2\n", "--- a\n--- b\n", "a: [\n", "---\n---\n"):
        (path := tmp_path / "job.yaml").write_text(text)
        with pytest.raises(RFabricError):
            import_job("verl", path)


# --- files of a script, and what it asks ----------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A script in a folder with files that it asks for."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "env.sh").write_text("export NN=4\n")
    (tmp_path / "sub" / "inner.sh").write_text('python3 -m job a=1 "$@"\n')
    (tmp_path / "sub" / "more.txt").write_text("c=3\n")
    (tmp_path / "run.sh").write_text(
        "[ -f env.sh ] && source env.sh\n"
        "if [ -d ./sub ]; then M=2; fi\n"
        '[ -e "$LONG" ] && M=3\n'
        'cd "$(dirname "$0")/sub"\n'
        "./inner.sh n=$NN m=$M $(cat more.txt)\n"
    )
    return tmp_path


@pytest.mark.parametrize("name", ["run.sh", "./run.sh", "../{}/run.sh", None])
def test_a_scripts_files_are_found_however_it_is_called(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    path = folder / "run.sh" if name is None else name.format(folder.name)
    read = read_settings(path, {"LONG": "x" * 300})
    assert read.values == {"a": 1, "n": 4, "m": 2, "c": 3}
    assert not any("env.sh" in note or "sub" in note for note in read.notes)


@pytest.mark.parametrize(
    "lines",
    [
        '[ "$NODE_RANK" = 0 ] && python3 j.py a=4 b=2',
        "[[ $RANK != $NODE_RANK ]] && python3 j.py a=4 b=2",
        '[ -z "$NODE_RANK" ] || python3 j.py a=4 b=2',
        'test "$NODE_RANK" = 0 && { cd x; python3 j.py a=4 b=2; }',
    ],
)
def test_a_job_behind_a_test_on_the_first_node_is_read(tmp_path, lines):
    (path := tmp_path / "run.sh").write_text(f"ray start\n{lines}\n")
    read = read_settings(path)
    assert read.values == {"a": 4, "b": 2}
    assert any("whether it is reached cannot be known" in note for note in read.notes)


def test_what_a_test_holds_back_leaves_nothing_behind(tmp_path):
    (path := tmp_path / "run.sh").write_text(
        '[ "$NODE_RANK" = 0 ] && N=9 && python3 other.py x=1 y=2 z=3\npython3 j.py a=${N:-4} b=2\n'
    )
    assert read_settings(path).values == {"a": 4, "b": 2}


def test_mappings_that_are_merged_into_others(tmp_path):
    text = (
        "base: &base {n: 8, tensor: 1}\nmore: &more {top: 5}\n"
        "one: {<<: *base, tensor: 2}\nboth: {<<: [*base, *more], n: 3}\nsame: *base\n"
    )
    (path := tmp_path / "job.yaml").write_text(text)
    values = read_settings(path).values
    assert (values["one.n"], values["one.tensor"], values["both.n"]) == (8, 2, 3)
    assert (values["both.tensor"], values["both.top"], values["same.n"]) == (1, 5, 8)
    path.write_text(text.replace("tensor: 2", "tensor: 2, tensor: 3"))
    with pytest.raises(RFabricError, match="stands twice"):
        read_settings(path)


@pytest.mark.parametrize("text", ["P=${P:{${P-}#\n0\n", "A=${B:{${C-}#x B=2\npython3 j.py a=4\n"])
def test_a_torn_assignment_ends(tmp_path, text):
    (path := tmp_path / "run.sh").write_text(text)
    with pytest.raises(RFabricError):
        import_job("verl", path)
