"""rfabric.toml and [tool.rfabric]: what they put in, what beats them, what is refused."""

import json
import os
from importlib import import_module
from pathlib import Path

import pytest

from rfabric.cli import main
from rfabric.cli.arguments import parse, parser
from rfabric.cli.arguments.defaults import options
from rfabric.errors import RFabricError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RFABRIC_DEFAULTS", raising=False)
    return tmp_path


def toml(text: str, file: str = "rfabric.toml") -> None:
    Path(file).write_text(text)


def test_a_file_says_what_the_line_leaves_out(here):
    toml('seed = 7\nout = "res"\n[simulate]\ntopo = ["ideal", "rotor"]\nin-flight = "drop"\n')
    asked = parse(["simulate"])
    assert (asked.seed, asked.out, asked.topo) == (7, "res", ["ideal", "rotor"])
    assert asked.in_flight == "drop" and asked.defaults == str(here / "rfabric.toml")
    said = "rfabric simulate --seed=7 --out=res --topo=ideal --topo=rotor --in-flight=drop"
    assert asked.command == said
    assert parse(said.split()[1:]).topo == asked.topo  # as it is written down, it is run again
    assert parse(["circuits"]).in_flight == "hold"
    assert parse(["compare"]).seed == [7]


def test_what_is_typed_beats_the_file_lists_and_short_options_too(here):
    toml('[compare]\ntopo = ["ideal"]\nseed = [1, 2]\njson = true\n[trace]\noutput = "a.csv"\n')
    asked = parse(["compare", "--topo", "rotor", "--seed=5"])
    assert (asked.topo, asked.seed, asked.json) == (["rotor"], [5], True)
    assert asked.command == "rfabric compare --json --topo rotor --seed=5"
    assert parse(["trace", "-ob.csv"]).output == "b.csv" and parse(["trace"]).output == "a.csv"


def test_every_option_of_every_verb_may_stand_in_a_file(here):
    """Whatever its kind, the file's value is what the same words typed would be."""
    for name, verb in parser().verbs().items():
        for key, action in options(verb).items():
            kind = type(action).__name__
            value = {"_StoreTrueAction": True, "_StoreConstAction": True, "_CountAction": 2}.get(
                kind, next(iter(action.choices or ()), "7")
            )
            read_by = getattr(action.type, "__name__", "")
            value = {"shard": "1/7", "share": "7%", "engines": "ns3"}.get(read_by, value)
            toml(f"[{name}]\n{key} = {json.dumps(value)}\n")
            missing = [p.choices[0] if p.choices else "7" for p in verb._actions
                       if not p.option_strings and p.nargs not in ("?", "*")]  # fmt: skip
            if name == "validate-run" and key != "traffic":
                missing += ["--traffic", "grpo-64"]
            if name == "best" and key not in ("minimise", "maximise"):
                missing += ["--minimise", "step_s"]
            if key == "soak" or action.type and action.type.__name__ == "time":
                toml(f'[{name}]\n{key} = "7s"\n')
            read = parse([name, *missing])
            said = read.command.split()[2 : len(read.command.split()) - len(missing)]
            assert said and f"--{key}" in said[0], (name, key)
            os.remove("rfabric.toml")
            typed = vars(parse([name, *said, *missing]))
            other = dict.fromkeys(("command", "defaults", "added", "typed", "run"))
            assert typed | other == vars(read) | other


def test_off_is_off_and_an_empty_list_is_none(here):
    toml("[compare]\njson = false\nverbose = 0\ntopo = []\n")
    asked = parse(["compare"])
    assert (asked.json, asked.verbose, asked.topo) == (False, 0, [])


def test_the_nearest_file_counts_and_pyproject_where_it_speaks_of_rfabric(here, monkeypatch):
    toml("seed = 1\n")
    inner = here / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    toml('[project]\ndependencies = ["rfabric"]\n', "pyproject.toml")
    assert parse(["simulate"]).seed == 1
    toml("[tool.rfabric]\nseed = 2\n", "../pyproject.toml")
    assert parse(["simulate"]).seed == 2
    toml("seed = 3\n")
    assert parse(["simulate"]).seed == 3
    monkeypatch.setenv("RFABRIC_DEFAULTS", "none")
    assert parse(["simulate"]).seed == 0 and parse(["simulate"]).defaults == ""
    monkeypatch.setenv("RFABRIC_DEFAULTS", "mine.toml")
    with pytest.raises(RFabricError, match="RFABRIC_DEFAULTS: 'mine.toml' must be none"):
        parse(["simulate"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sed = 3", "unknown key sed, did you mean seed?"),
        ("[simulat]\nseed = 1", "unknown table [simulat], did you mean simulate?"),
        ("[simulate]\ntoppo = 1", "unknown key toppo in [simulate], did you mean topo?"),
        ("jobs = 3", "jobs is not the same in all verbs; say it of one, as [compare]"),
        ("[simulate]\nseed = 'x'", "--seed: 'x' must be a whole number"),
        ("[simulate]\nseed = [1, 2]", "seed: [1, 2]: this verb takes one"),
        ("[simulate]\nseed = true", "seed: True must be text or a number"),
        ("[simulate]\njson = 'yes'", "json: 'yes' is neither true nor false"),
        ("[simulate]\nverbose = 9", "verbose: 9 must be 0, 1 or 2"),
        ("[simulate]\nin-flight = 'drian'", "no mode 'drian', did you mean drain?"),
        ("simulate = 3", "simulate is a verb: its options stand below [simulate]"),
        (
            '[best]\nminimise = "a"\nmaximise = "b"',
            "minimise and maximise exclude each other in best",
        ),
        (
            'minimise = "a"\n[best]\nmaximise = "b"',
            "minimise and maximise exclude each other in best",
        ),
        ("seed = ", "cannot be read: Invalid value (at "),
        ("seed = 1\nseed = 2", "cannot be read: Cannot overwrite a value"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_key(here, capsys, text, said):
    toml(text)
    assert main(["simulate"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and not list(here.glob("runs"))
    assert err.startswith(f"rfabric: error: {here / 'rfabric.toml'}: ") and said in err


def test_help_and_version_need_no_good_file(here, capsys):
    toml("sed = 3")
    for words in (["--version"], ["--help"], ["simulate", "--help"]):
        with pytest.raises(SystemExit, match="0"):
            main(words)


def test_a_file_of_another_user_is_not_read_and_that_is_said(here, monkeypatch, caplog):
    toml("seed = 7")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr("pathlib.Path.stat", stat_of(4712))
    assert parse(["simulate"]).seed == 0
    assert "rfabric.toml is not read: it belongs to another user" in caplog.text


def test_what_cannot_be_looked_at_is_no_error(here, monkeypatch):
    """A folder that has gone; a broken file of somebody else, or one without [tool.rfabric]."""
    toml("tool = 3\n# rfabric", "pyproject.toml")
    assert parse(["simulate"]).defaults == ""
    toml("broken = rfabric", "pyproject.toml")
    gone = here / "gone"
    gone.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "geteuid", lambda: 4711)
        elsewhere.setattr("pathlib.Path.stat", stat_of(4712))
        elsewhere.setenv("SUDO_UID", "nobody")
        assert parse(["simulate"]).defaults == ""
    with pytest.raises(RFabricError, match="pyproject.toml: cannot be read"):
        parse(["simulate"])
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert parse(["simulate"]).defaults == ""


def stat_of(owner: int):
    """`Path.stat` in a world where every file has this owner."""
    real = Path.stat

    def stat(self, **settings):
        values = list(real(self, **settings))
        values[4] = owner
        return os.stat_result(values)

    return stat


def test_verbose_says_which_file_was_read(here, caplog):
    toml("seed = 7\n")
    with caplog.at_level("INFO"):
        assert main(["list", "gpus", "-v"]) == 0 and main(["trace", "grpo-64", "-v"]) == 0
    said = f"defaults of {here / 'rfabric.toml'}: "
    assert f"{said}none that count here" in caplog.text and f"{said}--seed=7" in caplog.text


def test_doctor_says_which_file_was_read(here, capsys, monkeypatch):
    world = import_module("rfabric.emulate.world")
    monkeypatch.setattr(world, "calibrate", lambda **_: 1.0)
    toml("seed = 7\n")
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["defaults_of"] == str(here / "rfabric.toml")


def test_a_verb_with_an_option_of_any_name_is_called_by_its_own(here, capsys):
    """`control --name` was once taken for the verb's name, and its real one called old."""
    before = dict(os.environ)
    assert main(["control", "--topo", "bogus"]) == 2 and dict(os.environ) == before
    assert "is called" not in capsys.readouterr().err


def test_of_options_that_exclude_each_other_the_typed_one_counts(here):
    toml('[best]\nminimise = "step_s"\n')
    asked = parse(["best"])
    assert (asked.minimise, asked.maximise) == ("step_s", "")
    asked = parse(["best", "--maximise", "tokens_per_s"])
    assert (asked.minimise, asked.maximise) == ("", "tokens_per_s")
    assert asked.command == "rfabric best --maximise tokens_per_s"
