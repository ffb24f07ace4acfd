"""The verbs that run something: what each takes."""

from .options import (
    DEFAULT_TRAFFIC,
    USUAL_TRAFFIC,
    add_verb,
    engine_option,
    format_option,
    grid_options,
    live_option,
    machines_options,
    out_option,
    page_option,
    pcap_option,
    price_option,
    repetitions_option,
    routing_option,
    scale_options,
    seed_option,
    set_option,
    step_options,
)
from .parsing import count, file


def emulate(verbs) -> None:
    """The words of `rfabric emulate`."""
    verb = add_verb(
        verbs,
        "emulate",
        "replay a step with real packets (root)",
        (
            "rfabric emulate                                        rfabric, fat-tree, one of "
            "rfabric's cost, leaf-spine"
        ),
        "rfabric emulate --topo rfabric,delay=25ms --policy phase --seed 7",
        "rfabric emulate --topo rfabric,pods=2 --traffic mine.csv --in-flight drain",
        "rfabric emulate --live                                 and a page that follows it",
        "rfabric emulate --topo rfabric,pods=8 --on root@gpu1,root@gpu2   larger than one machine",
        module="runs",
    )
    step_options(verb)
    page_option(verb)
    scale_options(verb)
    machines_options(verb)
    pcap_option(verb)
    live_option(verb)


def simulate(verbs) -> None:
    """The words of `rfabric simulate`."""
    verb = add_verb(
        verbs, "simulate", "the same step in the flow-level simulator",
        "rfabric simulate --topo rfabric,pods=4 --traffic grpo-64 --policy demand",
        "rfabric simulate --set training.mini_batches=8 --json",
        module="runs",
    )  # fmt: skip
    step_options(verb)
    page_option(verb)


def compare(verbs) -> None:
    """The words of `rfabric compare`."""
    verb = add_verb(
        verbs,
        "compare",
        "fabrics or policies side by side",
        "rfabric compare --topo fat-tree --topo fat-tree,oversubscription=2 --topo rfabric",
        "rfabric compare --topo rfabric --policy static --policy demand --policy phase",
        "rfabric compare --engine emulate --topo fat-tree --topo rfabric",
        (
            "rfabric compare --traffic grpo-64 --traffic grpo-64-moe --seeds 3      a grid: one "
            "table, one picture"
        ),
        "rfabric compare --topo rfabric --topo fat-tree --topo leaf-spine --match cost",
        (
            "rfabric compare --resume runs/20250721-143005-9f3a                     go on where it "
            "was stopped"
        ),
        module="comparing",
    )
    engine_option(verb)
    step_options(verb, several=True)
    page_option(verb)
    price_option(verb)
    grid_options(verb)
    verb.add_argument(
        "--resume",
        metavar="FOLDER",
        default="",
        help=("finish a comparison; all else is in its grid.json"),
    )
    scale_options(verb)


def crossover(verbs) -> None:
    """The words of `rfabric crossover`."""
    verb = add_verb(
        verbs,
        "crossover",
        ("step time against the reconfiguration delay, and where rewiring stops to pay"),
        (
            "rfabric crossover                                      rfabric, mixnet (reinit=0s) "
            "and rotor against Fat-Trees"
        ),
        "rfabric crossover --topo rfabric --traffic grpo-64-moe --png crossover.png",
        (
            "rfabric crossover --topo rfabric --against leaf-spine --granularity per-phase "
            "--delays 1ms,10ms,100ms"
        ),
        module="comparing",
    )
    verb.add_argument(
        "--topo",
        metavar="FABRIC",
        action="append",
        default=[],
        help=("an optical fabric; may be given again"),
    )
    verb.add_argument(
        "--against",
        metavar="FABRIC",
        action="append",
        default=[],
        help="a packet fabric; may be given again",
    )
    verb.add_argument(
        "--traffic",
        metavar="RECIPE",
        default=DEFAULT_TRAFFIC,
        help=("a recipe or a trace (default %(default)s)"),
    )
    set_option(verb)
    verb.add_argument(
        "--policy", default="demand", help=("who chooses the circuits (default %(default)s)")
    )
    verb.add_argument(
        "--granularity",
        metavar="WHEN",
        action="append",
        default=[],
        help=(
            "one-shot, per-phase, per-collective, intra-collective or time-slotted; may be "
            "given again (default: all)"
        ),
    )
    verb.add_argument(
        "--delays",
        metavar="T,T,...",
        default="",
        help="reconfiguration delays, such as 1ms,10ms (default 10us to 1s, two a decade)",
    )
    verb.add_argument(
        "--jobs",
        metavar="N",
        type=count,
        default=0,
        help="runs at a time (default: as many as cores)",
    )
    verb.add_argument("--png", metavar="FILE", type=file, help="draw it here as well")
    routing_option(verb)
    repetitions_option(verb)
    seed_option(verb)
    out_option(verb)


def replay(verbs) -> None:
    """The words of `rfabric replay`."""
    verb = add_verb(
        verbs, "replay", "run a trace file of your own",
        "rfabric replay mine.csv --topo rfabric",
        "rfabric replay flows.htsim --engine emulate",
        "rfabric replay mine.csv --topo fat-tree --engine ns3   packets, simulated: rfabric[ns3]",
        "rfabric replay chakra/ --topo rfabric --set ranks_per_host=8",
        module="runs",
    )  # fmt: skip
    verb.add_argument(
        "traffic",
        metavar="TRACE",
        help="a file, or a folder of one file a rank, in any of `rfabric list formats`",
    )
    format_option(verb)
    set_option(verb)
    engine_option(verb)
    step_options(verb, traffic=False)
    page_option(verb)
    scale_options(verb)
    pcap_option(verb)
    live_option(verb)


def circuits(verbs) -> None:
    """The words of `rfabric plan`."""
    verb = add_verb(
        verbs,
        "circuits",
        ("which circuits each stage gets, and how near they come to what the hardware could do"),
        "rfabric circuits --topo rfabric --traffic grpo-64 --png circuits.png",
        "rfabric circuits --traffic grpo-64-moe --policy demand,granularity=per-collective",
        "rfabric circuits --topo rfabric,delay=1ms --traffic mine.csv --policy bvn --json",
        module="circuits",
        once="plan",
    )
    step_options(verb)
    verb.add_argument(
        "--png", metavar="FILE", type=file, help=("draw the demand and the circuits of every stage")
    )


def timeline(verbs) -> None:
    """The words of `rfabric schedule`."""
    verb = add_verb(
        verbs,
        "timeline",
        (
            "what each GPU computes over time under a compute scheduler, and "
            "how long GPUs stand idle"
        ),
        "rfabric timeline --policy orchestrrl --png gantt.png",
        (
            "rfabric timeline --policy one-step-off --set steps=4 --perfetto trace.json     for "
            "ui.perfetto.dev"
        ),
        "rfabric timeline --policy orchestrrl,network=fabric --topo fat-tree,oversubscription=4",
        "rfabric timeline --policy weave --traffic weave-2jobs",
        (
            "rfabric timeline --policy weave --jobs jobs.csv --json     days of arriving jobs: "
            "dollars, SLOs, idle nodes"
        ),
        module="scheduling",
        once="schedule",
    )
    verb.set_defaults(usual=DEFAULT_TRAFFIC)
    verb.add_argument(
        "--policy",
        metavar="SCHEDULER",
        default="",
        help="NAME[,KEY=VALUE...], as for simulate (default: the recipe as it is)",
    )
    verb.add_argument(
        "--traffic", metavar="RECIPE", default="", help=f"a recipe (default {USUAL_TRAFFIC})"
    )
    verb.add_argument(
        "--topo", metavar="FABRIC", default="",
        help="the fabric that a scheduler asks before it decides: network=fabric",
    )  # fmt: skip
    set_option(verb)
    seed_option(verb)
    verb.add_argument(
        "--jobs", metavar="FILE", default="", help=("a CSV of arriving jobs instead of a recipe")
    )
    verb.add_argument("--png", metavar="FILE", type=file, help="draw it")
    verb.add_argument(
        "--perfetto",
        metavar="FILE",
        type=file,
        help=("write it for chrome://tracing and ui.perfetto.dev"),
    )
