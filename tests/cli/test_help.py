"""What `rfabric VERB --help` says: examples that parse, every name of the tables behind it."""

import re

import pytest
from commands import commands

from rfabric.cli.arguments import options, parser
from rfabric.cli.arguments.parsing import ENGINES
from rfabric.emulate.drills import DRILLS
from rfabric.optics import GRANULARITIES, IN_FLIGHT, POLICIES
from rfabric.rl.imports import FRAMEWORKS
from rfabric.routing.schemes import SCHEMES, SEVERAL
from rfabric.schedulers.table import schedulers
from rfabric.simulate.transport import TRANSPORTS
from rfabric.study.selftest import PARTS
from rfabric.study.validate.experiments import EXPERIMENTS

VERBS = parser().verbs()
SHOWN_BY = {"agent": "emulate"}  # nobody types it: `emulate --on` starts it

# option -> the names that it takes, of all verbs or of one
TABLES = {
    "--routing": (*SCHEMES, *SEVERAL),
    "--in-flight": IN_FLIGHT,
    "--transport": TRANSPORTS,
    "--granularity": GRANULARITIES,
    "--engine": ENGINES,
    "--policy": ("own", *POLICIES, *schedulers(), *GRANULARITIES),
    ("crossover", "--policy"): POLICIES,
    ("shell", "--policy"): ("own", *POLICIES),
    ("timeline", "--policy"): schedulers(),
    ("import", "framework"): FRAMEWORKS,
    ("selftest", "--only"): PARTS,
    ("drill", "--only"): DRILLS,
    ("validate", "--experiment"): EXPERIMENTS,
}


def taken():
    """(what argparse knows of an option, the names it takes) of all that take a name."""
    for verb, known in VERBS.items():
        for action in known._actions:
            for option in action.option_strings or [action.dest]:
                names = TABLES.get((verb, option), TABLES.get(option))
                if names:
                    yield pytest.param(action, tuple(names), id=f"{verb} {option}")


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_helps_with_examples_that_parse(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args([name, "--help"])
    assert stopped.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    lines = [line.strip().partition("   ")[0] for line in examples.splitlines()]  # then: what for
    asked = [words for line in lines for words in commands(line)]
    assert asked
    assert {parser().parse_args(words).verb for words in asked} == {SHOWN_BY.get(name, name)}


@pytest.mark.parametrize(("action", "names"), [*taken()])
def test_help_has_every_name_that_may_be_said(action, names):
    choices = () if action.metavar else action.choices or ()  # shown instead of a metavar
    said = {*re.findall(r"[\w-]+", action.help), *choices}
    assert not set(names) - said
    assert sorted(action.choices or names) == sorted(names)


@pytest.mark.parametrize("of", TABLES, ids=str)
def test_every_table_stands_behind_an_option(of):
    verb, option = of if isinstance(of, tuple) else ("", of)
    there = {(name, word) for name, known in VERBS.items() for action in known._actions
             for word in action.option_strings or [action.dest]}  # fmt: skip
    assert any(word == option and verb in ("", name) for name, word in there)


def test_help_has_no_name_that_is_gone():
    assert tuple(POLICIES) == options.CIRCUITS and options.GRANULARITIES == GRANULARITIES
    assert (*options.SCHEDULERS, *options.SHARING) == schedulers()
