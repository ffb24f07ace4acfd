"""What can be asked, verb by verb; the modules beside this folder do it and load what they need."""

import argparse
import shlex
from collections.abc import Sequence

from ... import __version__
from . import defaults, host, inputs, runs, sweeps
from .options import DEFAULT_TRAFFIC, REPETITIONS, ROUTINGS
from .parsing import Parser

__all__ = ["DEFAULT_TRAFFIC", "REPETITIONS", "ROUTINGS", "Parser", "parse", "parser"]
HELP = {"-h", "--help"}


def parser() -> Parser:
    """Every verb and option."""
    top = Parser(
        prog="rfabric",
        description="What a network fabric does to the time and cost of one RL post-training step.",
        epilog=(
            "rfabric VERB --help tells more. Start with: sudo rfabric emulate, or without "
            "root: rfabric simulate"
        ),
    )
    top.add_argument("--version", action="version", version=f"rfabric {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    every = (
        runs.emulate,
        runs.simulate,
        runs.compare,
        runs.replay,
        inputs.trace,
        inputs.topo,
        inputs.report,
        inputs.check,
        inputs.list_,
        host.doctor,
        host.selftest,
        host.drill,
        host.shell,
        host.agent,
        host.control,
        host.ocs,
        host.clean,
        host.bench,
        host.validate,
        host.validate_run,
        inputs.import_,
        runs.crossover,
        inputs.model,
        inputs.cost,
        runs.circuits,
        host.reproduce,
        runs.timeline,
        host.completion,
        host.man,
        sweeps.sweep,
        sweeps.best,
        sweeps.query,
        sweeps.merge,
    )
    for add in every:
        add(verbs)
    return top


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What is asked: these words, and what a rfabric.toml says of what they leave out.

    `command` is the whole of it as one would type it, `defaults` the file or an empty text.
    """
    top = parser()
    verb = top.by_word().get(words[0]) if words else None
    given, added = defaults.FileDefaults(), []
    if verb is None or HELP & set(words):
        asked = top.parse_args(words)
    else:
        given = defaults.read(".", top.verbs())
        asked, added = defaults.parse(words, verb, top, given)
    asked.command = shlex.join(["rfabric", *words[:1], *added, *words[1:]])
    asked.defaults, asked.added = str(given.file or ""), shlex.join(added)
    return asked
