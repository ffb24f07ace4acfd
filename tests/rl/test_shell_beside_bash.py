"""Scripts as strangers write them: what is read here is what bash itself would run, or is said."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rfabric.rl.imports.settings import read_settings
from rfabric.rl.imports.shell import read_script
from rfabric.rl.imports.shell_text import readable

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")

SCRIPTS = Path(__file__).parent / "scripts"
CASES = (SCRIPTS / "cases.sh").read_text().partition("\n\n")[2].split("\n#----\n")
PROGRAMS = (
    "python",
    "python3",
    "torchrun",
    "ray",
    "uv",
    "srun",
    "docker",
    "nvidia-smi",
    "scontrol",
)
# Keeps its words, and runs what a launcher would: `srun bash -c ...`.
STAND_IN = r"""#!/bin/bash
printf '%s\0' "${0##*/}" "$@" $'\n' >> "$LOG"  # at once: others write, too
while [ $# -gt 0 ]; do if [ "$1" = bash ]; then exec "$@"; fi; shift; done
"""
ENVIRONMENT = {
    "slurm": {"SLURM_NNODES": "16", "SLURM_JOB_NUM_NODES": "16"},
    "mapping": {"NODES": "4"},
    "declared": {"1": "NODES=2", "2": "FOO=3"},
}
# What is not read: the setting, and what a note or its own value says of it.
UNREAD = {
    "heredocs": {"n-samples-per-prompt": "$(python3)"},
    "piped": {"pipeline-model-parallel-size": "$(sed)"},
    "sums": {"trainer.experiment_name": "run_$(date)"},
}


def ran_by_bash(script: Path, folder: Path, environment: dict[str, str]) -> list[list[str]]:
    """The words of each program that bash starts."""
    (programs := folder / "bin").mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    (programs / "sleep").symlink_to("/bin/true")  # nothing comes up here that is waited for
    (log := folder / "log").touch()
    arguments = [text for name, text in environment.items() if name.isdigit()]
    told = {name: text for name, text in environment.items() if not name.isdigit()}
    subprocess.run(
        ["bash", str(script), *arguments], cwd=folder, capture_output=True, timeout=60,
        env={"PATH": f"{programs}:{os.defpath}", "LOG": str(log), **told},
    )  # fmt: skip
    runs = [run.split("\0")[:-1] for run in log.read_text().split("\n\0")[:-1]]
    return [words for words in runs if words and "bash" not in words]


def settings_of(words: list[str], folder: Path) -> dict:
    """What a command sets, read as one without any variable."""
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    (file := folder / "one.sh").write_text(quoted + "\n")
    return read_settings(file).values


@pytest.mark.parametrize("name", sorted(p.stem for p in SCRIPTS.glob("*.sh") if p.stem != "cases"))
def test_a_job_sets_what_bash_would_set(name, tmp_path):
    script, environment = SCRIPTS / f"{name}.sh", ENVIRONMENT.get(name, {})
    runs = ran_by_bash(script, tmp_path, environment)
    read = read_settings(script, environment)
    expected = max((settings_of(run, tmp_path) for run in runs), key=len)
    unread = UNREAD.get(name, {})
    assert {k: v for k, v in read.values.items() if k not in unread} == {
        k: v for k, v in expected.items() if k not in unread
    }
    for key, said in unread.items():
        assert any(said in text for text in (*read.notes, str(read.values[key])))


@pytest.mark.parametrize("text", CASES)
def test_what_bash_makes_of_a_case(text, tmp_path):
    show = "go() { printf '%s\\n' \"$@\"; echo; }; export -f go"
    ran = subprocess.run(
        ["bash", "-c", f"{show}\n{text}"], capture_output=True, text=True, timeout=60,
        env={"PATH": os.defpath}, cwd=tmp_path,
    )  # fmt: skip
    commands = read_script(Path("/nowhere/run.sh"), text).commands
    told = [list(map(readable, command.words)) for command in commands if "go" in command.words]
    assert "".join("\n".join([*w[w.index("go") + 1 :], "", ""]) for w in told) == ran.stdout != ""
