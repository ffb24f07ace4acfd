"""The command line: `rfabric VERB ...`. Results go to stdout, talk to stderr.

Exit codes: 0 done; 1 a run broke or could not keep pace; 2 bad input; 130 Ctrl-C; 143 told to end. This file says what
can be asked; `verbs` does it, and loads what it needs only then.
"""

import argparse
import contextlib
import difflib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from .. import __version__
from ..errors import PaceError, RFabricError, RunError

BROKE, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141
DEFAULT_TRAFFIC = "grpo-64"
DEFAULT_POLICY = "demand"


class Ended(Exception):
    """A signal told the process to end."""


class Parser(argparse.ArgumentParser):
    """argparse, with one-line errors that say what may have been meant."""

    def __init__(self, **settings):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        raise RFabricError(f"{message}; see `{self.prog} --help`")

    def parse_args(self, args=None, namespace=None):
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.verb_parser(found).error(f"unknown argument {rest[0]}{self.verb_parser(found).hint(rest[0])}")
        return found

    def verb_parser(self, found: argparse.Namespace) -> "Parser":
        verbs = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return verbs.choices.get(getattr(found, "verb", None), self)

    def hint(self, word: str) -> str:
        options = [o for a in self._actions for o in a.option_strings]
        return _hint(word.partition("=")[0], options) if word.startswith("-") else ""

    def _check_value(self, action, value) -> None:
        if action.choices is not None and value not in action.choices:
            name = action.metavar or action.dest
            choices = ", ".join(map(str, action.choices))
            raise RFabricError(f"no {name} {value!r}{_hint(str(value), action.choices)}; there are {choices}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        with _signals():
            args = parser().parse_args(arguments)
            args.command = shlex.join(["rfabric", *(sys.argv[1:] if arguments is None else arguments)])
            _log(args)
            code = args.run(args) or 0
            sys.stdout.flush()
            return code
    except BrokenPipeError:  # who read our stdout has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return _say("interrupted; nothing of the run is left", INTERRUPTED)
    except Ended as signal_name:
        return _say(f"ended by {signal_name}; nothing of the run is left", 128 + signal.Signals[str(signal_name)])
    except (PaceError, RunError) as error:
        return _say(f"error: {error}", BROKE)
    except RFabricError as error:
        return _say(f"error: {error}", BAD_INPUT)


def parser() -> Parser:
    """Every verb and option."""
    top = Parser(
        prog="rfabric",
        description="What a network fabric does to the time and cost of one RL post-training step.",
        epilog="rfabric VERB --help tells more. Start with: sudo rfabric emulate, or without root: rfabric simulate",
    )
    top.add_argument("--version", action="version", version=f"rfabric {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    every = (
        _emulate, _simulate, _compare, _replay, _trace, _topo, _report, _check, _doctor, _control, _clean, _bench,
        _validate,
    )  # fmt: skip
    for add in every:
        add(verbs)
    return top


# --- verbs -----------------------------------------------------------------------------------------------------------


def _emulate(verbs) -> None:
    verb = _verb(
        verbs, "emulate", "replay a step with real packets (root)",
        "rfabric emulate                                        fat-tree, rfabric and a Fat-Tree of about its cost",
        "rfabric emulate --topo rfabric,delay=25ms --policy phase --seed 7",
        "rfabric emulate --topo rfabric,pods=2 --traffic mine.csv --in-flight drain",
    )  # fmt: skip
    _step_options(verb)
    _scale_options(verb)


def _simulate(verbs) -> None:
    verb = _verb(
        verbs, "simulate", "the same step in the flow-level simulator",
        "rfabric simulate --topo rfabric,pods=4 --traffic grpo-64 --policy demand",
        "rfabric simulate --set training.mini_batches=8 --json",
    )  # fmt: skip
    _step_options(verb)


def _compare(verbs) -> None:
    verb = _verb(
        verbs, "compare", "fabrics or policies side by side",
        "rfabric compare --topo fat-tree --topo fat-tree,oversubscription=2 --topo rfabric",
        "rfabric compare --topo rfabric --policy static --policy demand --policy phase",
        "rfabric compare --engine emulate --topo fat-tree --topo rfabric",
    )  # fmt: skip
    _engine_option(verb)
    _step_options(verb)
    _scale_options(verb)


def _replay(verbs) -> None:
    verb = _verb(
        verbs, "replay", "run a trace file of your own",
        "rfabric replay mine.csv --topo rfabric",
        "rfabric replay flows.htsim --engine emulate",
    )  # fmt: skip
    verb.add_argument(
        "traffic", metavar="TRACE", help="a .csv or .jsonl of rfabric, or `src dst bytes start_ns` (.txt, .htsim)"
    )
    _engine_option(verb)
    _step_options(verb, traffic=False)
    _scale_options(verb)


def _trace(verbs) -> None:
    verb = _verb(
        verbs, "trace", "what a recipe sends, and where its seconds come from",
        "rfabric trace grpo-64",
        "rfabric trace grpo-64 --set weight_sync.strategy=tree -o tree.csv",
    )  # fmt: skip
    verb.add_argument(
        "traffic",
        metavar="RECIPE",
        nargs="?",
        default=DEFAULT_TRAFFIC,
        help="a name in traffic/, FILE.yaml or a trace file",
    )
    _set_option(verb)
    _seed_option(verb)
    verb.add_argument("-o", "--output", metavar="FILE", help="write the trace as .csv or .jsonl")


def _topo(verbs) -> None:
    verb = _verb(
        verbs, "topo", "what a fabric is made of and costs",
        "rfabric topo rfabric,pods=2",
        "rfabric topo fat-tree,k=8 --png fat-tree.png",
        "rfabric topo rfabric --dot | neato -Tsvg > rfabric.svg",
    )  # fmt: skip
    verb.add_argument("fabric", metavar="FABRIC", help="NAME[,KEY=VALUE...], FILE.py[:NAME], or a fabric.json")
    verb.add_argument("--png", metavar="FILE", help="draw it")
    verb.add_argument("--dot", action="store_true", help="print it for Graphviz")


def _report(verbs) -> None:
    verb = _verb(
        verbs, "report", "make a run folder's page and tables again", "rfabric report runs/20250721-143005-9f3a"
    )
    verb.add_argument("folder", metavar="FOLDER")


def _check(verbs) -> None:
    verb = _verb(
        verbs, "check", "say whether files are sound: recipes, traces, fabrics, topologies, summaries",
        "rfabric check traffic/grpo-64.yaml mine.csv topologies/rfabric.py runs/*/summary.json",
    )  # fmt: skip
    verb.add_argument("files", metavar="FILE", nargs="+")


def _doctor(verbs) -> None:
    verb = _verb(verbs, "doctor", "what this host can emulate", "sudo rfabric doctor", "rfabric doctor --json")
    _out_option(verb)


def _control(verbs) -> None:
    verb = _verb(
        verbs, "control", "run the controller of a fabric under Ryu or os-ken",
        "rfabric control                                        the fabric is read from the switches that connect",
        "rfabric control --topo rfabric,pods=2,delay=25ms --port 8081",
        "rfabric control mine.py --topo fat-tree,k=4 --sdn os-ken",
    )  # fmt: skip
    verb.add_argument(
        "app",
        metavar="APP",
        nargs="?",
        default="",
        help="a file like controller/ocs.py (default: what the fabric needs)",
    )
    verb.add_argument("--topo", metavar="FABRIC", default="", help="the fabric; default: read from the switches")
    verb.add_argument("--host", default="", help="REST address (default 127.0.0.1)")
    verb.add_argument("--port", type=_port, default=0, help="REST port (default 8080)")
    verb.add_argument("--sdn", choices=("ryu", "os-ken"), default="", help="default: Ryu where it is installed")
    verb.add_argument("--ofp-port", type=_port, default=6653, help="OpenFlow port, on loopback (default %(default)s)")


def _clean(verbs) -> None:
    verb = _verb(
        verbs, "clean", "remove what broken runs left, or end one by its id",
        "rfabric clean",
        "rfabric clean emulation-4711-9f3a",
    )  # fmt: skip
    verb.add_argument("run_id", metavar="RUN", nargs="?", help="the id of a run to end, even if it is alive")
    _out_option(verb)


def _bench(verbs) -> None:
    verb = _verb(
        verbs, "bench", "how fast the simulator is on this machine, beside SimGrid where that is installed",
        "rfabric bench                                          a few minutes",
        "rfabric bench --case mix --case web-k8 --patience 60",
        "rfabric bench --patience 0 --json                      without SimGrid",
    )  # fmt: skip
    verb.add_argument("--case", metavar="NAME", action="append", default=[], help="only this one; may be given again")
    verb.add_argument(
        "--patience", metavar="SECONDS", type=_seconds, default=20.0,
        help="CPU time for each run of SimGrid, 0 for none (default %(default)g)",
    )  # fmt: skip
    verb.add_argument("--out", metavar="DIR", default="bench", help="where the tables go (default ./%(default)s)")


def _validate(verbs) -> None:
    verb = _verb(
        verbs, "validate", "the phase model against measurements in a folder",
        "rfabric validate ../data",
        "rfabric validate ../data --rows                        every row: measurement, model, error",
        "rfabric validate ../data --json",
        module="modelling",
    )  # fmt: skip
    verb.add_argument("folder", metavar="DIR", help="holds models/, measured/, weight_sync/, rl_measured/ or rl_logs/")
    verb.add_argument("--rows", action="store_true", help="one line a measured point")


# --- options ---------------------------------------------------------------------------------------------------------


def _verb(verbs, name: str, what: str, *examples: str, module: str = "verbs") -> Parser:
    """A verb with its examples and the options that all have; `module` of this folder does it."""
    lines = "\n".join(f"  {e}" for e in examples)
    verb = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.", epilog=f"examples:\n{lines}")
    verb.set_defaults(run=_lazily(module, name))
    verb.add_argument("--json", action="store_true", help="one JSON document on stdout")
    verb.add_argument("-q", "--quiet", action="store_true", help="no progress, no notes")
    verb.add_argument("-v", "--verbose", action="count", default=0, help="say more; twice for all")
    return verb


def _lazily(module: str, name: str) -> Callable[[argparse.Namespace], int | None]:
    def run(args: argparse.Namespace) -> int | None:
        found = import_module(f".{module}", __package__)
        return getattr(found, name.replace("import", "import_"))(args)

    return run


def _step_options(verb: Parser, traffic: bool = True) -> None:
    verb.add_argument(
        "--topo",
        metavar="FABRIC",
        action="append",
        default=[],
        help="NAME[,KEY=VALUE...], FILE.py or fabric.json; may be given again",
    )
    if traffic:
        verb.add_argument(
            "--traffic",
            metavar="RECIPE",
            default=DEFAULT_TRAFFIC,
            help="a recipe or a trace file (default %(default)s)",
        )
        _set_option(verb)
    verb.add_argument(
        "--policy", metavar="POLICY", action="append", default=[],
        help=f"who chooses the circuits: static, demand, phase; may be given again (default {DEFAULT_POLICY})",
    )  # fmt: skip
    verb.add_argument(
        "--in-flight", metavar="WAY", choices=("hold", "drain", "drop"), default="hold",
        help="traffic under way on circuits that change: hold (default), drain or drop",
    )  # fmt: skip
    _seed_option(verb)
    _out_option(verb)


def _scale_options(verb: Parser) -> None:
    for name, what in (
        ("--bandwidth-scale", "bytes and rates shrink to this share"),
        ("--time-dilation", "a second takes so many"),
    ):
        verb.add_argument(
            name, metavar="X", type=_positive, help=f"{what} (default: chosen from what the host can carry)"
        )


def _engine_option(verb: Parser) -> None:
    verb.add_argument(
        "--engine",
        choices=("simulate", "emulate"),
        default="simulate",
        help="the flow-level model or real packets (default simulate)",
    )


def _set_option(verb: Parser) -> None:
    verb.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="put over the recipe, such as training.tp=2"
    )


def _seed_option(verb: Parser) -> None:
    verb.add_argument("--seed", type=_whole, default=0, help="of everything random (default %(default)s)")


def _out_option(verb: Parser) -> None:
    verb.add_argument("--out", metavar="DIR", default="runs", help="where run folders go (default ./%(default)s)")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)


def _port(text: str) -> int:
    number = _whole(text)
    if not 0 < number < 65536:
        raise argparse.ArgumentTypeError(f"port {text} must lie between 1 and 65535")
    return number


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds, 0 or more")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"scale {text!r} must be a number above 0")
    return value


# --- manners ---------------------------------------------------------------------------------------------------------


def _hint(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, [str(k) for k in known], 1, 0.6)
    return f", did you mean {close[0]}?" if close else ""


def _log(args: argparse.Namespace) -> None:
    level = logging.ERROR if args.quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(args.verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="rfabric: %(message)s")


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"rfabric: {message}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _signals():
    """SIGTERM and SIGHUP unwind like Ctrl-C does, so that runs are cleaned up."""

    def end(number: int, _) -> NoReturn:
        raise Ended(signal.Signals(number).name)

    try:
        old = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread: whoever runs us there has the signals
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
