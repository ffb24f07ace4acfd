"""The command line: `rfabric VERB ...`. Results go to stdout, talk to stderr.

Exit codes: 0 done; 1 a run broke or could not keep pace; 2 bad input; 130 Ctrl-C; 143 told to end. This file says what
can be asked; `verbs` does it, and loads what it needs only then.
"""

import argparse
import contextlib
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..errors import PaceError, RFabricError, RunError, meant
from ..fabric.dollars import HOLDABLE, RENTED
from ..plugins import is_file
from ..study.reproduce import REPRODUCTIONS
from ..units import parse_time

BROKE, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141
DEFAULT_TRAFFIC = "grpo-64-moe"
DEFAULT_POLICY = "own"
ROUTINGS = ("placed", "ecmp", "wcmp", "valiant", "split")
REPETITIONS = ("folded", "all")


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
        return meant(word.partition("=")[0], options) if word.startswith("-") else ""

    def _check_value(self, action, value) -> None:
        if action.choices is not None and value not in action.choices:
            name = (action.metavar or action.dest).lower()
            choices = ", ".join(map(str, action.choices))
            raise RFabricError(f"no {name} {value!r}{meant(str(value), action.choices)}; there are {choices}")


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
    except KeyboardInterrupt as error:
        return _say(f"interrupted; {str(error) or 'nothing of the run is left'}", INTERRUPTED)
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
        _validate, _import, _crossover, _model, _cost, _plan, _reproduce, _schedule,
    )  # fmt: skip
    for add in every:
        add(verbs)
    return top


# --- verbs -----------------------------------------------------------------------------------------------------------


def _emulate(verbs) -> None:
    verb = _verb(
        verbs, "emulate", "replay a step with real packets (root)",
        "rfabric emulate                                        rfabric, fat-tree, one of rfabric's cost, leaf-spine",
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
        "rfabric compare --traffic grpo-64 --traffic grpo-64-moe --seeds 3      a grid: one table, one picture",
        "rfabric compare --topo rfabric --topo fat-tree --topo leaf-spine --match cost",
        "rfabric compare --resume runs/20250721-143005-9f3a                     go on where it was stopped",
        module="comparing",
    )  # fmt: skip
    _engine_option(verb)
    _step_options(verb, several=True)
    verb.add_argument("--seeds", metavar="N", type=_count, default=0, help="so many seeds, from --seed on")
    verb.add_argument("--jobs", metavar="N", type=_count, default=0, help="runs at a time (default: as many as cores)")
    verb.add_argument(
        "--match", choices=("cost", "bandwidth"), default="",
        help="thin each fabric until its cost or bandwidth is nearest to that of the first --topo",
    )  # fmt: skip
    verb.add_argument(
        "--resume", metavar="FOLDER", default="", help="finish a comparison; all else is in its grid.json"
    )
    _scale_options(verb)


def _crossover(verbs) -> None:
    verb = _verb(
        verbs, "crossover", "step time against the reconfiguration delay, and where rewiring stops to pay",
        "rfabric crossover                                      rfabric, mixnet (reinit=0s) and rotor against Fat-Trees",
        "rfabric crossover --topo rfabric --traffic grpo-64-moe --png crossover.png",
        "rfabric crossover --topo rfabric --against leaf-spine --granularity per-phase --delays 1ms,10ms,100ms",
        module="comparing",
    )  # fmt: skip
    verb.add_argument(
        "--topo", metavar="FABRIC", action="append", default=[], help="an optical fabric; may be given again"
    )
    verb.add_argument(
        "--against", metavar="FABRIC", action="append", default=[], help="a packet fabric; may be given again"
    )
    verb.add_argument(
        "--traffic", metavar="RECIPE", default=DEFAULT_TRAFFIC, help="a recipe or a trace (default %(default)s)"
    )
    _set_option(verb)
    verb.add_argument("--policy", default="demand", help="who chooses the circuits (default %(default)s)")
    verb.add_argument(
        "--granularity", metavar="WHEN", action="append", default=[],
        help="one-shot, per-phase, per-collective, intra-collective or time-slotted; may be given again (default: all)",
    )  # fmt: skip
    verb.add_argument(
        "--delays",
        metavar="T,T,...",
        default="",
        help="reconfiguration delays, such as 1ms,10ms (default 10us to 1s, two a decade)",
    )
    verb.add_argument("--jobs", metavar="N", type=_count, default=0, help="runs at a time (default: as many as cores)")
    verb.add_argument("--png", metavar="FILE", type=_file, help="draw it here as well")
    _routing_option(verb)
    _repetitions_option(verb)
    _seed_option(verb)
    _out_option(verb)


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
        "rfabric trace grpo-64 --explain --set pipeline=async --set staleness=2",
        "rfabric trace grpo-64 --set weight_sync.strategy=tree -o tree.csv",
    )  # fmt: skip
    verb.add_argument(
        "traffic",
        metavar="RECIPE",
        nargs="?",
        default=DEFAULT_TRAFFIC,
        help="a name in traffic/, FILE.yaml or a trace file",
    )
    verb.add_argument(
        "--explain",
        action="store_true",
        help="only where each phase's seconds and bytes come from, without the list of flows",
    )
    _set_option(verb)
    _seed_option(verb)
    verb.add_argument("-o", "--output", metavar="FILE", type=_file, help="write the trace as .csv or .jsonl")


def _topo(verbs) -> None:
    verb = _verb(
        verbs, "topo", "what a fabric is made of and costs",
        "rfabric topo rfabric,pods=2",
        "rfabric topo fat-tree,k=8 --png fat-tree.png",
        "rfabric topo rfabric --dot | neato -Tsvg > rfabric.svg",
    )  # fmt: skip
    verb.add_argument("fabric", metavar="FABRIC", help="NAME[,KEY=VALUE...], FILE.py[:NAME], FILE.csv or a fabric.json")
    verb.add_argument("--png", metavar="FILE", type=_file, help="draw it")
    verb.add_argument("--dot", action="store_true", help="print it for Graphviz")


def _report(verbs) -> None:
    verb = _verb(
        verbs,
        "report",
        "make a run folder's page and tables again",
        "rfabric report runs/20250721-143005-9f3a",
        module="comparing",
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
        "rfabric bench --case mix --case web-k8 --patience 60s",
        "rfabric bench --patience 0 --json                      without SimGrid",
        "rfabric bench --case planning-64-all-to-all            circuit planning, beside networkx",
    )  # fmt: skip
    verb.add_argument("--case", metavar="NAME", action="append", default=[], help="only this one; may be given again")
    verb.add_argument(
        "--patience", metavar="TIME", default="20s",
        help="CPU time for each run of SimGrid, 0 for none (default %(default)s)",
    )  # fmt: skip
    verb.add_argument("--out", metavar="DIR", default="bench", help="where the tables go (default ./%(default)s)")


def _model(verbs) -> None:
    verb = _verb(
        verbs, "model", "parameters, bytes and FLOPs of a model, and what it fits on",
        "rfabric model Qwen3-30B-A3B",
        "rfabric model path/to/config.json --tp 8 --ep 8 --context 32768",
        "rfabric model deepseek-ai/DeepSeek-V3 --precision fp8 --json",
        module="modelling",
    )  # fmt: skip
    verb.add_argument(
        "model", metavar="CONFIG|NAME", help="a config.json in Hugging Face form, or a name in traffic/models"
    )
    for name, what in (("tp", "tensor"), ("pp", "pipeline")):
        verb.add_argument(f"--{name}", metavar="N", type=_count, default=1, help=f"{what}-parallel GPUs (default 1)")
    verb.add_argument("--ep", metavar="N", type=_count, help="expert-parallel GPUs (default: those of --tp)")
    verb.add_argument(
        "--context",
        metavar="TOKENS",
        type=_count,
        help="length of a sequence (default 4,096, or the model's own if less)",
    )
    verb.add_argument(
        "--precision", metavar="KIND", default="bf16", help="how weights are stored (default %(default)s)"
    )


def _import(verbs) -> None:
    verb = _verb(
        verbs, "import", "a recipe from a job of verl, ROLL, slime or NeMo-RL",
        "rfabric import verl run_grpo.sh -o mine.yaml --gpu H800",
        "rfabric import nemo-rl grpo.yaml --json                what was mapped, assumed and left out",
        "rfabric import slime run.sh -o mine.yaml               and then: rfabric simulate --traffic mine.yaml",
        module="modelling",
    )  # fmt: skip
    verb.add_argument(
        "framework", metavar="FRAMEWORK", choices=("verl", "roll", "slime", "nemo-rl"), help="whose job it is"
    )
    verb.add_argument("file", metavar="FILE", help="its YAML file or its launch script; a script is read, never run")
    verb.add_argument(
        "--model", default="", help="a name in traffic/models or a config.json, where the file's is unknown"
    )
    verb.add_argument("--gpu", default="", help="the GPU, which no such file names (default H100)")
    verb.add_argument("--lengths", default="", help="lengths of responses: a CSV or a name in traffic/lengths")
    verb.add_argument("-o", "--output", metavar="FILE", type=_file, help="write the recipe here instead of to stdout")


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


def _cost(verbs) -> None:
    verb = _verb(
        verbs, "cost", "what networks cost and draw, part by part, and which price decides",
        "rfabric cost --topo fat-tree --gpus 1024 --rate 400Gbit/s --json",
        "rfabric cost --topo fat-tree,oversubscription=2 --topo rfabric --gpus 1024 --sweep",
        "rfabric cost --topo rfabric --prices mine.csv --metres edge=50",
        "rfabric cost --topo rfabric --step-s 161 --gpu-usd-per-hour 5.28 --gpu-watts 700    dollars a step, by part",
        module="planning",
    )  # fmt: skip
    _topo_option(verb)
    verb.add_argument(
        "--gpus", metavar="N", type=_count, default=0, help="room for so many, where the fabric names no size"
    )
    verb.add_argument(
        "--rate", metavar="RATE", default="", help="of NICs and cables, such as 400Gbit/s, where the fabric names none"
    )
    verb.add_argument("--prices", metavar="FILE", default="", help="a table like rfabric/fabric/prices.csv")
    verb.add_argument("--copper", action="store_true", help="copper below the ToR; the table must price it")
    verb.add_argument(
        "--metres", metavar="TIER=M", action="append", default=[],
        help="length of the cables whose lower end is a host, edge, server, aggregation or core; may be given again",
    )  # fmt: skip
    verb.add_argument(
        "--sweep", action="store_true", help="by how much each price must change to flip the order of two"
    )
    verb.add_argument(
        "--step-s", metavar="SECONDS", type=_seconds, default=0.0, help="say what a step of this length costs"
    )
    verb.add_argument("--gpu-usd-per-hour", metavar="USD", type=_money, default=0.0, help="what a GPU costs an hour")
    verb.add_argument("--gpu-watts", metavar="W", type=_money, default=None, help="what a GPU draws")
    verb.add_argument(
        "--price-holds", metavar="WHAT", nargs="*", choices=HOLDABLE, default=RENTED,
        help="what the price of a GPU pays for already: power, nics (default: both, as of rented ones), or nothing",
    )  # fmt: skip
    verb.add_argument(
        "--years", metavar="N", type=_money, default=4.0, help="life of the network (default %(default)g)"
    )
    verb.add_argument(
        "--usd-per-kwh", metavar="USD", type=_money, default=0.08, help="electricity (default %(default)g)"
    )


def _plan(verbs) -> None:
    verb = _verb(
        verbs, "plan", "which circuits each stage gets, and how near they come to what the hardware could do",
        "rfabric plan --topo rfabric --traffic grpo-64 --png plan.png",
        "rfabric plan --traffic grpo-64-moe --policy demand,granularity=per-collective",
        "rfabric plan --topo rfabric,delay=1ms --traffic mine.csv --policy bvn --json",
        module="circuits",
    )  # fmt: skip
    _step_options(verb)
    verb.add_argument("--png", metavar="FILE", type=_file, help="draw the demand and the circuits of every stage")


def _reproduce(verbs) -> None:
    verb = _verb(
        verbs, "reproduce", "published experiments run again: paper, ours, ratio, and why they differ",
        "rfabric reproduce weave                                a few minutes",
        "rfabric reproduce weave --seed 3 --json",
        module="scheduling",
    )  # fmt: skip
    verb.add_argument("paper", metavar="PAPER", choices=tuple(REPRODUCTIONS), help=", ".join(REPRODUCTIONS))
    verb.add_argument("--markdown", action="store_true", help="print the table for a page")
    _seed_option(verb)


def _schedule(verbs) -> None:
    verb = _verb(
        verbs, "schedule", "what each GPU computes over time under a compute scheduler, and how long GPUs stand idle",
        "rfabric schedule --policy orchestrrl --traffic grpo-64 --png gantt.png",
        "rfabric schedule --policy one-step-off --set steps=4 --perfetto trace.json     for ui.perfetto.dev",
        "rfabric schedule --policy weave --traffic weave-2jobs",
        "rfabric schedule --policy weave --jobs jobs.csv --json     days of arriving jobs: dollars, SLOs, idle nodes",
        module="scheduling",
    )  # fmt: skip
    verb.add_argument(
        "--policy",
        metavar="SCHEDULER",
        default="",
        help="NAME[,KEY=VALUE...], as for simulate (default: the recipe as it is)",
    )
    verb.add_argument("--traffic", metavar="RECIPE", default=DEFAULT_TRAFFIC, help="a recipe (default %(default)s)")
    _set_option(verb)
    _seed_option(verb)
    verb.add_argument("--jobs", metavar="FILE", default="", help="a CSV of arriving jobs instead of a recipe")
    verb.add_argument("--png", metavar="FILE", type=_file, help="draw it")
    verb.add_argument(
        "--perfetto", metavar="FILE", type=_file, help="write it for chrome://tracing and ui.perfetto.dev"
    )


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


def _step_options(verb: Parser, traffic: bool = True, several: bool = False) -> None:
    """The options of a run; `several` recipes and seeds where a verb takes more than one."""
    verb.set_defaults(usual=DEFAULT_TRAFFIC)
    _topo_option(verb)
    if traffic:
        again = "; may be given again" if several else ""
        verb.add_argument(
            "--traffic", metavar="RECIPE", **({"action": "append", "default": []} if several else {"default": DEFAULT_TRAFFIC}),
            help=f"a recipe or a trace file{again} (default {DEFAULT_TRAFFIC})",
        )  # fmt: skip
        _set_option(verb)
    verb.add_argument(
        "--policy", metavar="POLICY", action="append", default=[],
        help=f"who chooses the circuits, NAME[,granularity=WHEN][,slot=TIME]: own, static, demand, phase, greedy, matching, bvn, "
        f"mesh, isolated-pod, bipartite, tree, rotor; who schedules the computing: sync, colocated, one-step-off, async, "
        f"orchestrrl, rollpacker, rollart, for several jobs weave, solo, random, most-idle, gavel; or both, as orchestrrl+phase; "
        f"may be given again (default {DEFAULT_POLICY}: what the fabric was designed for, demand for most)",
    )  # fmt: skip
    _routing_option(verb)
    _repetitions_option(verb)
    verb.add_argument(
        "--in-flight", metavar="WAY", choices=("hold", "drain", "drop"), default="hold",
        help="traffic under way on circuits that change: hold (default), drain or drop",
    )  # fmt: skip
    if several:
        verb.add_argument(
            "--seed",
            metavar="N",
            type=_whole,
            action="append",
            default=[],
            help="of everything random; may be given again (default 0)",
        )
    else:
        _seed_option(verb)
    _out_option(verb)


def _topo_option(verb: Parser) -> None:
    verb.add_argument(
        "--topo", metavar="FABRIC", action="append", default=[],
        help="NAME[,KEY=VALUE...], FILE.py, FILE.csv or fabric.json; may be given again",
    )  # fmt: skip


def _scale_options(verb: Parser) -> None:
    for name, what in (
        ("--bandwidth-scale", "bytes and rates shrink to this share"),
        ("--time-dilation", "a second takes so many"),
    ):
        verb.add_argument(
            name, metavar="X", type=_positive, help=f"{what} (default: chosen from what the host can carry)"
        )
    verb.add_argument(
        "--sample", metavar="TIME", type=_time,
        help="of a repeated collective send so many repetitions as take so long, 1h for all (default: what patience allows)",
    )  # fmt: skip


def _engine_option(verb: Parser) -> None:
    verb.add_argument(
        "--engine",
        choices=("simulate", "emulate"),
        default="simulate",
        help="the flow-level model or real packets (default simulate)",
    )


class _Routings(tuple):
    """The schemes by name; a FILE.py[:NAME], which is opened when it is needed, is one too."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or is_file(str(word))


def _routing_option(verb: Parser) -> None:
    verb.add_argument(
        "--routing", metavar="SCHEME", choices=_Routings(ROUTINGS), default=ROUTINGS[0],
        help="the way of each pair of hosts: placed on the least loaded (default), ecmp, wcmp, valiant; or split over all "
        "equal ways at once, as packet spraying and multi-path RDMA do (simulated only); or "
        "FILE.py[:NAME]",
    )  # fmt: skip


def _repetitions_option(verb: Parser) -> None:
    verb.add_argument(
        "--repetitions", metavar="WAY", choices=REPETITIONS, default=REPETITIONS[0],
        help="what is sent again and again, simulated: folded into one, with an error bound (default), or all",
    )  # fmt: skip


def _set_option(verb: Parser) -> None:
    verb.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="put over the recipe, such as training.tp=2"
    )


def _seed_option(verb: Parser) -> None:
    verb.add_argument("--seed", metavar="N", type=_whole, default=0, help="of everything random (default %(default)s)")


def _out_option(verb: Parser) -> None:
    verb.add_argument("--out", metavar="DIR", default="runs", help="where run folders go (default ./%(default)s)")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)


def _count(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return number


def _file(text: str) -> str:
    """A file that can be written, known before the work begins and not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: there is no folder {path.parent}; make it first")
    return text


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
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def _money(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, 0 or more")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"scale {text!r} must be a number above 0")
    return value


def _time(text: str) -> float:
    try:
        value = parse_time(text, "--sample")
    except RFabricError as error:  # argparse names the option as well
        raise argparse.ArgumentTypeError(re.sub(r"^--sample(: |=)", "", str(error))) from None
    if not value:
        raise argparse.ArgumentTypeError("0 sends nothing; write for example 200ms")
    return value


# --- manners ---------------------------------------------------------------------------------------------------------


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
