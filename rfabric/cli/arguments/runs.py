"""The verbs that run something: what each takes."""

from .options import (
    CIRCUITS,
    DEFAULT_TRAFFIC,
    GRANULARITIES,
    SCHEDULERS,
    SHARING,
    USUAL_TRAFFIC,
    cache_option,
    engine_option,
    engines_option,
    format_option,
    grid_options,
    live_option,
    machines_options,
    names,
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
    transport_option,
    workers_option,
)
from .parsing import Parser, count, file


def emulate(verb: Parser) -> None:
    """Replay a step with real packets (root).

    rfabric emulate                      rfabric beside fat-tree, a 2:1 fat-tree and leaf-spine
    rfabric emulate --topo rfabric,delay=25ms --policy phase --seed 7
    rfabric emulate --topo rfabric,pods=2 --traffic mine.csv --in-flight drain
    rfabric emulate --live                                 and a page that follows it
    rfabric emulate --topo rfabric,pods=8 --on root@gpu1,root@gpu2   larger than one machine
    """
    step_options(verb)
    page_option(verb)
    scale_options(verb)
    machines_options(verb)
    pcap_option(verb)
    live_option(verb)


def simulate(verb: Parser) -> None:
    """Run a step in the flow-level simulator.

    rfabric simulate --topo rfabric,pods=4 --traffic grpo-64 --policy demand
    rfabric simulate --set training.mini_batches=8 --json
    rfabric simulate --traffic grpo-64-moe --transport rdma           packets go cable by cable
    """
    step_options(verb)
    transport_option(verb)
    page_option(verb)
    cache_option(verb)


def compare(verb: Parser) -> None:
    """Compare fabrics or policies side by side.

    rfabric compare --topo fat-tree --topo fat-tree,oversubscription=2 --topo rfabric
    rfabric compare --topo rfabric --policy static --policy demand --policy phase
    rfabric compare --engine emulate --topo fat-tree --topo rfabric
    rfabric compare --engine simulate,ns3 --topo fat-tree --topo rfabric   in two worlds
    rfabric compare --engine simulate,ns3 --traffic mine.csv --topo fat-tree --transport tcp
    rfabric compare --traffic grpo-64 --traffic grpo-64-moe --seeds 3    one table, one picture
    rfabric compare --topo rfabric --topo fat-tree --topo leaf-spine --match cost
    rfabric compare --topo rfabric --topo fat-tree --seeds 20 --workers tcp://head:8786
    rfabric compare --resume runs/20250721-143005-9f3a                    go on where it stopped
    """
    engines_option(verb)
    step_options(verb, several=True)
    transport_option(verb)
    page_option(verb)
    price_option(verb)
    grid_options(verb)
    workers_option(verb)
    cache_option(verb)
    verb.takes("--resume FOLDER", "finish this comparison; its grid.json has all other options")
    scale_options(verb)


def crossover(verb: Parser) -> None:
    """Vary the reconfiguration delay, to see where rewiring stops to pay.

    rfabric crossover                        rfabric, mixnet (reinit=0s) and rotor against Fat-Trees
    rfabric crossover --topo rfabric --traffic grpo-64-moe --png crossover.png
    rfabric crossover --topo rfabric --against leaf-spine --granularity per-phase --delays 1ms,10ms
    """
    verb.takes("--topo FABRIC", "an optical fabric; may be given again", several=True)
    verb.takes("--against FABRIC", "a packet fabric; may be given again", several=True)
    verb.takes(
        "--traffic RECIPE", "a recipe or a trace (default %(default)s)", default=DEFAULT_TRAFFIC
    )
    set_option(verb)
    verb.takes(
        "--policy POLICY",
        f"who chooses the circuits: {names(CIRCUITS)} (default %(default)s)",
        default="demand",
    )
    verb.takes(
        "--granularity WHEN",
        f"{names(GRANULARITIES)}; may be given again (default: all)",
        several=True,
    )
    verb.takes(
        "--delays T,T,...",
        "reconfiguration delays, such as 1ms,10ms (default: 10us to 1s, two a decade)",
    )
    verb.takes("--jobs N", "runs at a time (default: one a core)", count, default=0)
    verb.takes("--png FILE", "also draw it here", file)
    routing_option(verb)
    repetitions_option(verb)
    seed_option(verb)
    out_option(verb)


def replay(verb: Parser) -> None:
    """Replay a trace file of your own.

    rfabric replay mine.csv --topo rfabric
    rfabric replay flows.htsim --engine emulate
    rfabric replay mine.csv --topo fat-tree --engine ns3   packets, simulated: rfabric[ns3]
    rfabric replay chakra/ --topo rfabric --set ranks_per_host=8
    """
    verb.takes(
        "traffic TRACE",
        "a file, or a folder with one file a rank, of any format in `rfabric list formats`",
    )
    format_option(verb)
    set_option(verb)
    engine_option(verb)
    step_options(verb, traffic=False)
    transport_option(verb)
    page_option(verb)
    cache_option(verb)
    scale_options(verb)
    pcap_option(verb)
    live_option(verb)


def circuits(verb: Parser) -> None:
    """Show which circuits each stage gets, and how close they come to the hardware's bound.

    rfabric circuits --topo rfabric --traffic grpo-64 --png circuits.png
    rfabric circuits --traffic grpo-64-moe --policy demand,granularity=per-collective
    rfabric circuits --topo rfabric,delay=1ms --traffic mine.csv --policy bvn --json
    """
    step_options(verb)
    verb.takes("--png FILE", "draw the demand and the circuits of every stage", file)


def timeline(verb: Parser) -> None:
    """Show what each GPU computes when, and how long GPUs stand idle.

    rfabric timeline --policy orchestrrl --png gantt.png
    rfabric timeline --policy one-step-off --set steps=4 --perfetto trace.json   for ui.perfetto.dev
    rfabric timeline --policy orchestrrl,network=fabric --topo fat-tree,oversubscription=4
    rfabric timeline --policy weave --traffic weave-2jobs
    rfabric timeline --policy weave --jobs jobs.csv --json   days of jobs: dollars, SLOs, idle nodes
    rfabric timeline --jobs recipes.csv --topo fat-tree      the same, with seconds from the fabric
    """
    verb.set_defaults(usual=DEFAULT_TRAFFIC)
    verb.takes(
        "--policy SCHEDULER",
        f"NAME[,KEY=VALUE...], as for simulate: {names((*SCHEDULERS, *SHARING))} (default: the "
        "recipe as it is)",
    )
    verb.takes("--traffic RECIPE", f"a recipe (default {USUAL_TRAFFIC})")
    verb.takes(
        "--topo FABRIC",
        "the fabric that a scheduler with network=fabric asks before it decides, or on whose "
        "servers --jobs run",
    )
    set_option(verb)
    seed_option(verb)
    verb.takes(
        "--jobs FILE",
        "a CSV of arriving jobs instead of a recipe; with --topo each row names its own recipe "
        "(columns name, recipe, slo, arrival_s, iterations)",
    )
    verb.takes("--png FILE", "draw it", file)
    verb.takes("--perfetto FILE", "write it for ui.perfetto.dev and chrome://tracing", file)
