"""`rfabric completion` in real shells, `rfabric man` by a real man."""

import json
import shutil
import subprocess
import sys

import pytest

from rfabric.cli import main
from rfabric.cli.arguments import parser

ASK_BASH = r"""
source "$1"; shift
f=$(complete -p rfabric | sed 's/.*-F \([^ ]*\).*/\1/')
COMP_WORDS=(rfabric "$@"); COMP_CWORD=$#
$f rfabric "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"""
CASES = [
    (["simu"], ["simulate"], ["compare"]),
    (["simulate", "--in-f"], ["--in-flight"], ["--topo"]),
    (["simulate", "--in-flight", "d"], ["drain", "drop"], ["hold"]),
    (["simulate", "--topo", "fat"], ["fat-tree"], ["rfabric"]),
    (["compare", "--topo", "rfabric", "--topo", "lea"], ["leaf-spine"], []),
    (["simulate", "--traffic", "grpo-64-"], ["grpo-64-moe", "grpo-64-h20"], ["grpo-1024"]),
    (["timeline", "--policy", "orch"], ["orchestrrl"], []),
    (["topo", "two"], ["two-clusters"], []),
    (["list", "pol"], ["policies"], []),
    (["completion", "f"], ["fish"], []),
    (["compare", "--engine", "n"], ["ns3"], ["simulate"]),
    (["replay", "mi"], ["mine.csv"], []),
]


def script_of(shell, tmp_path, capsys):
    pytest.importorskip("shtab", reason="no shtab: make setup installs it")
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here: apt-get install {shell}")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "mine.csv").touch()
    return script


def answers(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert not done.stderr
    return {line.split("\t")[0].strip() for line in done.stdout.splitlines()}


@pytest.mark.parametrize(("words", "there", "not_there"), CASES, ids=lambda c: " ".join(c))
def test_bash_completes(tmp_path, capsys, words, there, not_there):
    script = script_of("bash", tmp_path, capsys)
    offered = answers(["bash", "-c", ASK_BASH, "ask", script, *words], tmp_path)
    assert offered.issuperset(there) and offered.isdisjoint(not_there)


def test_fish_completes(tmp_path, capsys):
    script = script_of("fish", tmp_path, capsys)
    for words, there, not_there in CASES:
        asked = f"source {script}; complete -C 'rfabric {' '.join(words)}'"
        offered = answers(["fish", "--no-config", "-c", asked], tmp_path)
        assert offered.issuperset(there) and offered.isdisjoint(not_there), words


def test_zsh_takes_the_script_from_its_folders(tmp_path, capsys):
    script = script_of("zsh", tmp_path, capsys)
    script.rename(tmp_path / "_rfabric")
    load = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u"
    said = answers(["zsh", "-fc", f"{load}; print $_comps[rfabric]; zsh -n _rfabric"], tmp_path)
    assert said == {"_rfabric"}


def test_each_verb_is_completed_and_on_the_manual_page(capsys):
    pytest.importorskip("shtab", reason="no shtab: make setup installs it")
    pytest.importorskip("argparse_manpage", reason="no argparse-manpage: make setup installs it")
    assert main(["completion", "bash", "--json"]) == 0
    script = json.loads(capsys.readouterr().out)["script"]
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    for name, verb in parser().verbs().items():
        assert name in script and f"'rfabric {name}'".replace("-", r"\-") in page
        assert all(word in script for a in verb._actions for word in a.option_strings)


def test_man_reads_the_page(tmp_path, capsys):
    pytest.importorskip("argparse_manpage", reason="no argparse-manpage: make setup installs it")
    file = tmp_path / "rfabric.1"
    assert main(["man", "-o", str(file)]) == 0 and capsys.readouterr().out == f"{file}\n"
    if not shutil.which("man"):
        pytest.skip("no man here: apt-get install man-db")
    done = subprocess.run(
        ["man", "--warnings", "-l", str(file)], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "200", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert "warning" not in done.stderr
    for said in ("NAME", "real packets", "--in-flight MODE", "rfabric ocs"):
        assert said in done.stdout


@pytest.mark.parametrize(
    ("words", "library"), [(["completion", "bash"], "shtab"), (["man"], "argparse-manpage")]
)
def test_without_its_library_a_verb_says_what_to_install(capsys, monkeypatch, words, library):
    for name in ("shtab", "argparse_manpage.manpage"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(words) == 2
    assert f"needs {library}; pip install {library}" in capsys.readouterr().err
