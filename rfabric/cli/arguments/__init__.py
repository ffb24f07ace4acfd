"""What can be asked, verb by verb; the modules beside this folder do it and load what they need."""

import argparse
import shlex
from collections.abc import Sequence

from ... import __version__
from . import defaults, host, inputs, runs, sweeps
from .options import DEFAULT_TRAFFIC, REPETITIONS, ROUTINGS, add_verb
from .parsing import Parser

__all__ = ["DEFAULT_TRAFFIC", "REPETITIONS", "ROUTINGS", "Parser", "parse", "parser"]
HELP = {"-h", "--help"}
# What asks for its options, and the module that does it, in the order of `rfabric --help`.
VERBS = (
    (runs.emulate, "runs"),
    (runs.simulate, "runs"),
    (runs.compare, "comparing"),
    (runs.replay, "runs"),
    (inputs.trace, "inputs"),
    (inputs.topo, "inputs"),
    (inputs.report, "comparing"),
    (inputs.check, "inputs"),
    (inputs.list_, "inputs"),
    (host.doctor, "host"),
    (host.selftest, "host"),
    (host.drill, "host"),
    (host.shell, "host"),
    (host.agent, "host"),
    (host.control, "host"),
    (host.ocs, "host"),
    (host.clean, "host"),
    (host.bench, "host"),
    (host.validate, "modelling"),
    (host.validate_run, "modelling"),
    (inputs.import_, "modelling"),
    (runs.crossover, "comparing"),
    (inputs.model, "modelling"),
    (inputs.cost, "pricing"),
    (runs.circuits, "circuits"),
    (host.reproduce, "reproducing"),
    (runs.timeline, "scheduling"),
    (host.completion, "shells"),
    (host.man, "shells"),
    (sweeps.sweep, "sweeping"),
    (sweeps.best, "sweeping"),
    (sweeps.query, "sweeping"),
    (sweeps.merge, "sweeping"),
)


def parser() -> Parser:
    """Every verb and option."""
    top = Parser(
        prog="rfabric",
        description="What a network fabric does to the time and cost of one RL post-training step.",
        epilog=(
            "`rfabric VERB --help` has the options and examples of a verb. Start with `sudo "
            "rfabric emulate`, or without root with `rfabric simulate`."
        ),
    )
    top.add_argument("--version", action="version", version=f"rfabric {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for asks, module in VERBS:
        add_verb(verbs, asks, module)
    return top


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What is asked: these words, and what a rfabric.toml says of what they leave out.

    `command` is the whole of it as one would type it, `defaults` the file or an empty text, `typed`
    the long options among the words.
    """
    top = parser()
    if words and words[0].startswith("-") and words[0] not in (*HELP, "--version"):
        verb = next((word for word in words if word in top.by_word()), "VERB")
        top.error(f"{words[0]} comes after the verb, as in `rfabric {verb} {words[0]}`")
    verb = top.by_word().get(words[0]) if words else None
    given, added = defaults.FileDefaults(), []
    if verb is None or HELP & set(words):
        asked = top.parse_args(words)
    else:
        given = defaults.read(".", top.verbs())
        asked, added = defaults.parse(words, verb, top, given)
    asked.command = shlex.join(["rfabric", *words[:1], *added, *words[1:]])
    asked.typed = tuple(word.partition("=")[0] for word in words if word.startswith("--"))
    asked.defaults, asked.added = str(given.file or ""), shlex.join(added)
    return asked
