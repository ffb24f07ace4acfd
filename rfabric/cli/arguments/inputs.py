"""The verbs around what goes into a run and what came out of one: what each takes."""

import argparse
from pathlib import Path

from ...fabric.dollars import HOLDABLE, KWH_USD, RENTED, YEARS
from .options import (
    DEFAULT_TRAFFIC,
    FRAMEWORKS,
    KINDS,
    format_option,
    names,
    price_option,
    seed_option,
    set_option,
    topo_option,
)
from .parsing import Parser, count, file, money, seconds


def trace(verb: Parser) -> None:
    """Show what a recipe sends, and where its seconds come from.

    rfabric trace grpo-64
    rfabric trace grpo-64 --explain                        every second, by term and source
    rfabric trace grpo-64 --explain --set pipeline=async --set staleness=2 --json
    rfabric trace grpo-64 --set weight_sync.strategy=tree -o tree.csv
    rfabric trace grpo-64 -o grpo.et                       one Chakra file for each host
    """
    verb.takes(
        "traffic RECIPE",
        "a name in traffic/, FILE.yaml or a trace file",
        default=DEFAULT_TRAFFIC,
        nargs="?",
    )
    verb.takes(
        "--explain",
        "instead of the list of flows, say where each phase's seconds and bytes come from: every "
        "second by the term that made it, with the source of that term's numbers",
    )
    format_option(verb)
    set_option(verb)
    seed_option(verb)
    verb.takes(
        "-o --output FILE",
        "write the trace: .csv, .jsonl, .cm (htsim) or .et (Chakra: a folder with a file a host)",
        file,
    )


def topo(verb: Parser) -> None:
    """Show what a fabric is made of and costs; read and write network files.

    rfabric topo rfabric,pods=2
    rfabric topo fat-tree,k=8 --png fat-tree.png
    rfabric topo rfabric --dot | neato -Tsvg > rfabric.svg
    rfabric topo cluster.csv,uplink_rate=800Gbit/s         a network of your own
    rfabric topo fat-tree,k=8 -o lab.clab.yml              write it; see rfabric list formats
    """
    verb.takes(
        "fabric FABRIC",
        "NAME[,KEY=VALUE...], your own FILE.py[:NAME][,...], or a network FILE[,...] (`rfabric "
        "list formats`); put a backslash before `,` `:` `+` in a path",
    )
    verb.takes(
        "--format NAME",
        "the network file's format, where its content does not tell; --topo takes FILE,format=NAME",
    )
    verb.takes(
        "-o --output FILE",
        "write the network: .json, .graphml, .gml, .clab.yml, .ns3, .xml (SimGrid), .topo (htsim), "
        ".dot, .mmd",
        file,
    )
    verb.takes("--write-as NAME", "the format to write, where the suffix does not tell")
    verb.takes("--png FILE", "draw the fabric", file)
    verb.takes("--dot", "print the fabric for Graphviz")


def list_(verb: Parser) -> None:
    """List fabrics, policies, schedulers, routing, recipes, models, gpus or formats.

    rfabric list
    rfabric list policies
    rfabric list models --json
    """
    verb.takes("kind KIND", names(KINDS), default=None, nargs="?", choices=KINDS)


def cost(verb: Parser) -> None:
    """Price networks part by part, in dollars and watts, and show which price decides.

    rfabric cost --topo fat-tree --gpus 1024 --rate 400Gbit/s --json
    rfabric cost --topo fat-tree,oversubscription=2 --topo rfabric --gpus 1024 --sweep
    rfabric cost --topo rfabric --prices mine.csv --metres edge=50
    rfabric cost --topo rfabric --step-s 161 --gpu-usd-per-hour 5.28 --gpu-watts 700    $ a step
    """
    topo_option(verb)
    verb.takes(
        "--gpus N", "make room for this many, where the fabric names no size", count, default=0
    )
    verb.takes(
        "--rate RATE", "rate of NICs and cables, such as 400Gbit/s, where the fabric names none"
    )
    verb.takes("--prices FILE", "your own prices, a table like rfabric/fabric/prices.csv")
    verb.takes("--copper", "use copper below the ToR; the table of prices must have it")
    verb.takes(
        "--metres TIER=M",
        "length of the cables whose lower end is a host, edge, server, aggregation or "
        "core; may be given again",
        several=True,
    )
    verb.takes(
        "--sweep", "show how much each price must change to reverse the order of two networks"
    )
    verb.takes(
        "--step-s SECONDS", "also show what a step of this length costs", seconds, default=0.0
    )
    verb.takes("--gpu-usd-per-hour USD", "what a GPU costs an hour", money, default=0.0)
    verb.takes("--gpu-watts W", "what a GPU draws", money)
    verb.takes(
        "--price-holds WHAT",
        "what the price of a GPU already includes: power, nics (default: both, as for rented "
        "GPUs), or nothing",
        default=RENTED,
        nargs="*",
        choices=HOLDABLE,
    )
    verb.takes("--years N", "life of the network (default %(default)g)", money, default=YEARS)
    verb.takes("--usd-per-kwh USD", "electricity (default %(default)g)", money, default=KWH_USD)


def model(verb: Parser) -> None:
    """Show a model's parameters, bytes and FLOPs, and what it fits on.

    rfabric model Qwen3-30B-A3B
    rfabric model path/to/config.json --tp 8 --ep 8 --context 32768
    rfabric model deepseek-ai/DeepSeek-V3 --precision fp8 --json
    """
    verb.takes(
        "model CONFIG|NAME", "a config.json in Hugging Face form, or a name in traffic/models"
    )
    verb.takes("--tp N", "tensor-parallel GPUs (default %(default)s)", count, default=1)
    verb.takes("--pp N", "pipeline-parallel GPUs (default %(default)s)", count, default=1)
    verb.takes(
        "--ep N", "expert-parallel GPUs, where more than --tp share experts", count, default=1
    )
    verb.takes(
        "--context TOKENS",
        "length of a sequence (default 4,096, or the model's own if less)",
        count,
    )
    verb.takes("--precision KIND", "how weights are stored (default %(default)s)", default="bf16")


def import_(verb: Parser) -> None:
    """Make a recipe from a job of verl, ROLL, slime, NeMo-RL, AReaL or OpenRLHF.

    rfabric import verl run_grpo.sh -o mine.yaml --gpu H800
    rfabric import nemo-rl grpo.yaml --json                what was mapped, assumed and left out
    rfabric import slime run.sh -o mine.yaml          and then: rfabric simulate --traffic mine.yaml
    """
    verb.takes(
        "framework FRAMEWORK",
        f"the framework that the job is written for: {names(FRAMEWORKS)}",
        _framework,
        choices=FRAMEWORKS,
    )
    verb.takes("file FILE", "its YAML file or its launch script; a script is read, never run")
    verb.takes(
        "--model --model-config MODEL",
        "a name in traffic/models or a config.json, where the job's model is unknown",
    )
    verb.takes(
        "--env NAME=VALUE",
        "a variable in the script's environment, which is otherwise empty; may be given again",
        several=True,
    )
    verb.takes("--gpu GPU", "the GPU, which few job files name (default H100)")
    verb.takes("--lengths LENGTHS", "lengths of responses: a CSV or a name in traffic/lengths")
    verb.takes("-o --output FILE", "write the recipe here instead of to stdout", file)


def _framework(word: str) -> str:
    """The word as it is, unless it is the file that comes after it."""
    if Path(word).is_file():
        raise argparse.ArgumentTypeError(
            f"{word} is a file; say whose job it is before it, such as import verl {word}"
        )
    return word


def check(verb: Parser) -> None:
    """Check files: recipes, traces, fabrics, topologies, summaries.

    rfabric check traffic/grpo-64.yaml mine.csv topologies/rfabric.py runs/*/summary.json
    """
    verb.takes("files FILE", "a file of any of these kinds", nargs="+")


def report(verb: Parser) -> None:
    """Draw the page and tables of run folders again.

    rfabric report runs/20250721-143005-9f3a
    rfabric report runs/20250721-143005-9f3a --yours train.log    your job's log beside it
    rfabric report runs/* -o all.html                          controls choose among them
    rfabric report runs/20250721-143005-9f3a --csv             long tables as CSV, and no page
    """
    verb.takes(
        "folder FOLDER",
        "a run folder; several make one page, whose controls choose among their runs",
        nargs="+",
    )
    verb.takes(
        "-o --output FILE",
        "where the page of several folders goes (default report.html); that of one goes into it",
    )
    verb.takes(
        "--yours LOG",
        "what your job logged, any file that `validate-run` reads: a lane of its own on the page, "
        "with the error of each phase",
    )
    verb.takes("--step N", "which step of the log (default: the mean of all)", int)
    verb.takes(
        "--csv", "write flows and links as CSV where they are long and stand there as Parquet alone"
    )
    price_option(verb)
