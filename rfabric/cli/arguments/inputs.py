"""The verbs around what goes into a run and what came out of one: what each takes."""

from ...fabric.dollars import HOLDABLE, RENTED
from .options import (
    DEFAULT_TRAFFIC,
    KINDS,
    add_verb,
    format_option,
    price_option,
    seed_option,
    set_option,
    topo_option,
)
from .parsing import count, file, money, seconds


def trace(verbs) -> None:
    """The words of `rfabric trace`."""
    verb = add_verb(
        verbs, "trace", "what a recipe sends, and where its seconds come from",
        "rfabric trace grpo-64",
        "rfabric trace grpo-64 --explain --set pipeline=async --set staleness=2",
        "rfabric trace grpo-64 --set weight_sync.strategy=tree -o tree.csv",
        "rfabric trace grpo-64 -o grpo.et                       one Chakra file a host",
        module="inputs",
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
    format_option(verb)
    set_option(verb)
    seed_option(verb)
    verb.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=file,
        help="write the trace: .csv, .jsonl, .cm (htsim), .et (Chakra: a folder, one file a host)",
    )


def topo(verbs) -> None:
    """The words of `rfabric topo`."""
    verb = add_verb(
        verbs, "topo", "what a fabric is made of and costs",
        "rfabric topo rfabric,pods=2",
        "rfabric topo fat-tree,k=8 --png fat-tree.png",
        "rfabric topo rfabric --dot | neato -Tsvg > rfabric.svg",
        "rfabric topo cluster.csv,uplink_rate=800Gbit/s         a network of your own",
        "rfabric topo fat-tree,k=8 -o lab.clab.yml              and out: see rfabric list formats",
        module="inputs",
    )  # fmt: skip
    verb.add_argument(
        "fabric",
        metavar="FABRIC",
        help="NAME[,KEY=VALUE...], FILE.py[:NAME][,...] or FILE[,...] of a format that `rfabric "
        "list formats` names; a backslash before `,` `:` `+` in a path",
    )
    verb.add_argument(
        "--format",
        metavar="NAME",
        default="",
        help="the topology file's, where it is not to be told; as FILE,format=NAME of --topo",
    )
    verb.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=file,
        help="write it: .json, .graphml, .gml, .clab.yml, .ns3, .xml (SimGrid), .topo (htsim), "
        ".dot, .mmd",
    )
    verb.add_argument(
        "--write-as",
        metavar="NAME",
        default="",
        help="the format of what is written, where its suffix is another's",
    )
    verb.add_argument("--png", metavar="FILE", type=file, help="draw it")
    verb.add_argument("--dot", action="store_true", help="print it for Graphviz")


def list_(verbs) -> None:
    """The words of `rfabric list`."""
    verb = add_verb(
        verbs,
        "list",
        "what there is: fabrics, policies, schedulers, routing, recipes, models, gpus, formats",
        "rfabric list",
        "rfabric list policies",
        "rfabric list models --json",
        module="inputs",
    )
    verb.add_argument("kind", metavar="KIND", nargs="?", choices=KINDS, help=", ".join(KINDS))


def cost(verbs) -> None:
    """The words of `rfabric cost`."""
    verb = add_verb(
        verbs,
        "cost",
        "what networks cost and draw, part by part, and which price decides",
        "rfabric cost --topo fat-tree --gpus 1024 --rate 400Gbit/s --json",
        "rfabric cost --topo fat-tree,oversubscription=2 --topo rfabric --gpus 1024 --sweep",
        "rfabric cost --topo rfabric --prices mine.csv --metres edge=50",
        (
            "rfabric cost --topo rfabric --step-s 161 --gpu-usd-per-hour 5.28 --gpu-watts 700    "
            "dollars a step, by part"
        ),
        module="pricing",
    )
    topo_option(verb)
    verb.add_argument(
        "--gpus",
        metavar="N",
        type=count,
        default=0,
        help=("room for so many, where the fabric names no size"),
    )
    verb.add_argument(
        "--rate",
        metavar="RATE",
        default="",
        help=("of NICs and cables, such as 400Gbit/s, where the fabric names none"),
    )
    verb.add_argument(
        "--prices", metavar="FILE", default="", help=("a table like rfabric/fabric/prices.csv")
    )
    verb.add_argument(
        "--copper", action="store_true", help=("copper below the ToR; the table must price it")
    )
    verb.add_argument(
        "--metres",
        metavar="TIER=M",
        action="append",
        default=[],
        help=(
            "length of the cables whose lower end is a host, edge, server, aggregation or "
            "core; may be given again"
        ),
    )
    verb.add_argument(
        "--sweep",
        action="store_true",
        help=("by how much each price must change to flip the order of two"),
    )
    verb.add_argument(
        "--step-s",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="say what a step of this length costs",
    )
    verb.add_argument(
        "--gpu-usd-per-hour",
        metavar="USD",
        type=money,
        default=0.0,
        help="what a GPU costs an hour",
    )
    verb.add_argument("--gpu-watts", metavar="W", type=money, default=None, help="what a GPU draws")
    verb.add_argument(
        "--price-holds",
        metavar="WHAT",
        nargs="*",
        choices=HOLDABLE,
        default=RENTED,
        help=(
            "what the price of a GPU pays for already: power, nics (default: both, as of "
            "rented ones), or nothing"
        ),
    )
    verb.add_argument(
        "--years",
        metavar="N",
        type=money,
        default=4.0,
        help="life of the network (default %(default)g)",
    )
    verb.add_argument(
        "--usd-per-kwh",
        metavar="USD",
        type=money,
        default=0.08,
        help="electricity (default %(default)g)",
    )


def model(verbs) -> None:
    """The words of `rfabric model`."""
    verb = add_verb(
        verbs, "model", "parameters, bytes and FLOPs of a model, and what it fits on",
        "rfabric model Qwen3-30B-A3B",
        "rfabric model path/to/config.json --tp 8 --ep 8 --context 32768",
        "rfabric model deepseek-ai/DeepSeek-V3 --precision fp8 --json",
        module="modelling",
    )  # fmt: skip
    verb.add_argument(
        "model",
        metavar="CONFIG|NAME",
        help=("a config.json in Hugging Face form, or a name in traffic/models"),
    )
    for name, what in (("tp", "tensor"), ("pp", "pipeline")):
        verb.add_argument(
            f"--{name}",
            metavar="N",
            type=count,
            default=1,
            help=f"{what}-parallel GPUs (default 1)",
        )
    verb.add_argument(
        "--ep", metavar="N", type=count, help=("expert-parallel GPUs (default: those of --tp)")
    )
    verb.add_argument(
        "--context",
        metavar="TOKENS",
        type=count,
        help="length of a sequence (default 4,096, or the model's own if less)",
    )
    verb.add_argument(
        "--precision",
        metavar="KIND",
        default="bf16",
        help=("how weights are stored (default %(default)s)"),
    )


def import_(verbs) -> None:
    """The words of `rfabric import`."""
    verb = add_verb(
        verbs,
        "import",
        "a recipe from a job of verl, ROLL, slime, NeMo-RL or AReaL",
        "rfabric import verl run_grpo.sh -o mine.yaml --gpu H800",
        (
            "rfabric import nemo-rl grpo.yaml --json                what was mapped, assumed and "
            "left out"
        ),
        (
            "rfabric import slime run.sh -o mine.yaml               and then: rfabric simulate "
            "--traffic mine.yaml"
        ),
        module="modelling",
    )
    verb.add_argument(
        "framework",
        metavar="FRAMEWORK",
        choices=("verl", "roll", "slime", "nemo-rl", "areal"),
        help="whose job it is",
    )
    verb.add_argument(
        "file",
        metavar="FILE",
        help=("its YAML file or its launch script; a script is read, never run"),
    )
    verb.add_argument(
        "--model",
        "--model-config",
        default="",
        help=("a name in traffic/models or a config.json, where the file's is unknown"),
    )
    verb.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable the script finds set where it runs; all others are unset (repeatable)",
    )
    verb.add_argument("--gpu", default="", help="the GPU, which no such file names (default H100)")
    verb.add_argument(
        "--lengths", default="", help=("lengths of responses: a CSV or a name in traffic/lengths")
    )
    verb.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=file,
        help="write the recipe here instead of to stdout",
    )


def check(verbs) -> None:
    """The words of `rfabric check`."""
    verb = add_verb(
        verbs,
        "check",
        ("say whether files are sound: recipes, traces, fabrics, topologies, summaries"),
        "rfabric check traffic/grpo-64.yaml mine.csv topologies/rfabric.py runs/*/summary.json",
        module="inputs",
    )
    verb.add_argument("files", metavar="FILE", nargs="+")


def report(verbs) -> None:
    """The words of `rfabric report`."""
    verb = add_verb(
        verbs,
        "report",
        "make a run folder's page and tables again",
        "rfabric report runs/20250721-143005-9f3a",
        "rfabric report runs/20250721-143005-9f3a --yours train.log    your run beside it",
        "rfabric report runs/* -o all.html                          controls choose among them",
        module="comparing",
    )
    verb.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="+",
        help="a run folder; of several one page, whose controls choose among their runs",
    )
    verb.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="",
        help="where the page of several goes (default report.html); of one it stands in its folder",
    )
    verb.add_argument(
        "--yours",
        metavar="LOG",
        default="",
        help="what your job logged, as `validate-run` reads it: a lane of its own on the page, "
        "with the error of each phase",
    )
    verb.add_argument(
        "--step", type=int, metavar="N", help="this step of the log (default: the mean of all)"
    )
    price_option(verb)
