"""A verb and the options that several have."""

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import getdoc

from ...emulate.machines.remote import AGENT, RSH
from ...plugins import is_file
from ...schedulers import DEFAULT_CIRCUITS
from ..collecting import uncollected
from .parsing import ENGINES, EachKeyOnce, Parser, count, engines, port, positive, seed, seeds, time

DEFAULT_TRAFFIC = "grpo-64-moe"
USUAL_TRAFFIC = (
    f"{DEFAULT_TRAFFIC}; orchestrrl-64 under orchestrrl, weave-2jobs under policies for several "
    "jobs"
)
# What help names. The tables themselves load numpy; tests/cli/test_help.py holds these to them.
ROUTINGS = ("placed", "ecmp", "wcmp", "valiant", "split")
TRANSPORTS = ("fluid", "rdma", "tcp")
IN_FLIGHT = ("hold", "drain", "drop")
CIRCUITS = (
    "static", "demand", "phase", "greedy", "matching", "bvn", "mesh", "isolated-pod", "bipartite",
    "tree", "rotor",
)  # fmt: skip
GRANULARITIES = ("one-shot", "per-phase", "per-collective", "intra-collective", "time-slotted")
SCHEDULERS = (
    "sync", "colocated", "one-step-off", "async", "orchestrrl", "rollpacker", "rollart",
)  # fmt: skip
SHARING = ("weave", "solo", "random", "most-idle", "gavel")
FRAMEWORKS = ("verl", "roll", "slime", "nemo-rl", "areal", "openrlhf")

REPETITIONS = ("folded", "all")
BEFORE = {"circuits": "plan", "timeline": "schedule"}  # until version 0.1; still good, with a note
KINDS = ("fabrics", "policies", "schedulers", "routing", "recipes", "models", "gpus", "formats")


def names(some: Iterable[str]) -> str:
    """Names of a table, as help lists them."""
    return ", ".join(some)


def add_verb(verbs, asks: Callable[[Parser], None], module: str) -> None:
    """Add the verb that is called as `asks` is: its docstring says what the verb does and gives
    examples, it adds options to those that all verbs have, and `module` of the folder above runs
    the verb.
    """
    name = asks.__name__.rstrip("_").replace("_", "-")
    what, _, examples = getdoc(asks).partition("\n\n")
    what = " ".join(what.split())
    lines = "\n".join(f"  {line}" for line in examples.splitlines())
    verb = verbs.add_parser(
        name,
        help=f"{what[0].lower()}{what[1:-1]}",
        description=what,
        epilog=f"examples:\n{lines}",
        aliases=[BEFORE[name]] if name in BEFORE else [],
    )
    verb.set_defaults(run=_lazily(module, asks.__name__), verb_name=name)
    verb.takes("--json", "one JSON document on stdout")
    verb.takes("-q --quiet", "no progress, no notes")
    verb.takes("-v --verbose", "say more; twice for all", action="count", default=0)
    asks(verb)


def _lazily(module: str, name: str) -> Callable[[argparse.Namespace], int | None]:
    def run(args: argparse.Namespace) -> int | None:
        with uncollected():
            verbs = import_module(f"..{module}", __package__)
        return getattr(verbs, name)(args)

    return run


def page_option(verb: Parser) -> None:
    """A page on demand."""
    verb.takes("--no-report", "draw no report.html; `rfabric report FOLDER` draws it later")


def cache_option(verb: Parser) -> None:
    """What was run before."""
    verb.takes("--no-cache", "run everything again, and keep nothing in ~/.cache/rfabric")


def workers_option(verb: Parser) -> None:
    """Who runs cells elsewhere."""
    verb.takes(
        "--workers ADDRESS",
        "run the cells elsewhere: tcp://HOST:8786 (Dask), ray://HOST:10001 (Ray)",
    )


def price_option(verb: Parser) -> None:
    """Prices of an OCS port, chosen on the page."""
    verb.takes(
        "--ocs-port-price USD,...",
        "prices of an OCS port to choose from on the page; bills, dollars a step and the Pareto "
        "picture follow",
    )


def step_options(
    verb: Parser, traffic: bool = True, several: bool = False, out: bool = True
) -> None:
    """The options of a run; `several` recipes and seeds where a verb takes more than one."""
    verb.set_defaults(usual=DEFAULT_TRAFFIC)
    topo_option(verb)
    if traffic:
        again = "; may be given again" if several else ""
        what = f"a recipe or a trace file{again} (default {USUAL_TRAFFIC})"
        verb.takes("--traffic RECIPE", what, several=several)
        set_option(verb)
    verb.takes(
        "--policy POLICY",
        "who chooses the circuits, NAME[,granularity=WHEN][,slot=TIME]: own, "
        f"{names(CIRCUITS)}; WHEN: {names(GRANULARITIES)}. "
        f"Or who schedules the compute: {names(SCHEDULERS)} (the last three also each of several "
        "jobs); with network=fabric it asks the fabric first. Or which jobs share which nodes: "
        f"{names(SHARING)}. Or both, as orchestrrl+phase. Or your own FILE.py[:NAME], with a "
        "backslash before `,` `:` `+` in its path. May be given again (default "
        f"{DEFAULT_CIRCUITS}: what the fabric was designed for, demand for most)",
        several=True,
    )
    routing_option(verb)
    repetitions_option(verb)
    verb.takes(
        "--in-flight MODE",
        "what a rewire does with traffic on circuits that change: hold it (default), drain it "
        "first, or drop it",
        default=IN_FLIGHT[0],
        choices=IN_FLIGHT,
    )
    if several:
        verb.takes(
            "--seed N",
            "the seed of everything random; may be given again (default 0)",
            seed,
            several=True,
        )
    else:
        seed_option(verb)
    if out:
        out_option(verb)


def grid_options(verb: Parser) -> None:
    """What several runs have beside the options of one."""
    verb.takes("--seeds N", "run with this many seeds, from --seed on", seeds, default=0)
    verb.takes("--jobs N", "runs at a time (default: one a core)", count, default=0)
    verb.takes(
        "--match",
        "thin out each fabric until its cost or bandwidth is nearest to that of the first --topo",
        choices=("cost", "bandwidth"),
    )


def topo_option(verb: Parser) -> None:
    """--topo: which fabrics."""
    verb.takes(
        "--topo FABRIC",
        "a fabric: NAME[,KEY=VALUE...] (`rfabric list fabrics`), your own FILE.py[:NAME][,...], or "
        "a network FILE[,...] (`rfabric list formats`); put a backslash before `,` `:` `+` in a "
        "path; may be given again",
        several=True,
    )


def scale_options(verb: Parser) -> None:
    """How an emulation is smaller and slower."""
    chosen = "(default: chosen from what the host can carry)"
    verb.takes("--bandwidth-scale X", f"shrink bytes and rates to this share {chosen}", positive)
    verb.takes("--time-dilation X", f"stretch a second to this many {chosen}", positive)
    verb.takes(
        "--sample TIME",
        "of a repeated collective send only as many repetitions as take this long; 1h sends all "
        "(default: what --patience allows)",
        time,
    )
    verb.takes(
        "--patience TIME",
        "how long the packets of one run may take on the wall clock, such as 5min; longer runs are "
        "more accurate (default 40s)",
        time,
    )


def machines_options(verb: Parser) -> None:
    """--on: which machines carry an emulation, and how they are reached."""
    verb.takes(
        "--on HOST[=ADDRESS],...",
        "cut the fabric between ToRs and what is above them, and give each of these machines a "
        "part; ADDRESS is where the others reach it (default: what HOST resolves to)",
        default=None,
    )
    verb.takes(
        "--rsh COMMAND",
        'how to reach a machine, as with rsync: "ssh -p 2222", "ip netns exec" '
        "(default: ssh, in batch mode)",
        default=RSH,
    )
    verb.takes(
        "--rfabric-path COMMAND",
        'what to run there, such as "sudo /opt/rfabric/bin/rfabric agent" (default %(default)s)',
        default=AGENT,
    )


def pcap_option(verb: Parser) -> None:
    """--pcap: where packets of an emulation are captured."""
    verb.takes(
        "--pcap NODE",
        "capture the packets at a host or switch of an emulation, for Wireshark, in pcap/ of the "
        "run folder; may be given again",
        several=True,
    )


def live_option(verb: Parser, what: str = "the packets and becomes the report") -> None:
    """--live: a page that follows an emulation, or a controller."""
    verb.takes(
        "--live PORT",
        f"serve a local page that follows {what}; its address goes to stderr (default: a free "
        "port)",
        port,
        nargs="?",
        const=0,
    )


def engine_option(verb: Parser) -> None:
    """--engine: which world."""
    verb.takes(
        "--engine",
        "the flow-level simulator (default), ns-3's packets, or real packets",
        default="simulate",
        choices=ENGINES,
    )


def engines_option(verb: Parser) -> None:
    """--engine: which worlds."""
    verb.takes(
        "--engine ENGINE[,ENGINE]",
        "simulate: the flow-level simulator (default); ns3: ns-3's packets; emulate: real packets. "
        "Several get a run folder each, and a table of all side by side",
        engines,
        default=("simulate",),
    )


class _Routings(tuple):
    """The schemes by name; a FILE.py[:NAME], which is opened when it is needed, is one too."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or is_file(str(word))


def routing_option(verb: Parser) -> None:
    """--routing: how pairs find their way."""
    verb.takes(
        "--routing SCHEME",
        "the path of each pair of hosts: placed, on the least loaded one (default); ecmp; wcmp; "
        "valiant; split, over all equal paths at once, as packet spraying and multi-path RDMA do "
        "(simulated only); or FILE.py[:NAME]",
        default=ROUTINGS[0],
        choices=_Routings(ROUTINGS),
    )


def repetitions_option(verb: Parser) -> None:
    """--repetitions: how loops are played."""
    verb.takes(
        "--repetitions MODE",
        "how to simulate what is sent again and again: folded, as one, with an error bound "
        "(default); or all",
        default=REPETITIONS[0],
        choices=REPETITIONS,
    )


def transport_option(verb: Parser) -> None:
    """--transport: what messages take beyond their bytes."""
    verb.takes(
        "--transport TRANSPORT",
        "what small messages take beyond their bytes and the cables' delay. fluid: nothing "
        "(default); rdma: packets that go cable by cable; tcp: also a handshake and slow start for "
        "each flow (simulated only)",
        default=TRANSPORTS[0],
        choices=TRANSPORTS,
    )


def set_option(verb: Parser) -> None:
    """--set: settings of the recipe."""
    verb.takes(
        "--set KEY=VALUE",
        "override a key of the recipe, such as training.tp=2; with a trace file, a setting of its "
        "format, such as ranks_per_host=8; may be given again",
        several=True,
        action=EachKeyOnce,
    )


def format_option(verb: Parser) -> None:
    """--format: of a trace file."""
    verb.takes(
        "--format NAME",
        "the trace file's format (`rfabric list formats`), where its content does not tell",
    )


def seed_option(verb: Parser) -> None:
    """--seed."""
    verb.takes("--seed N", "the seed of everything random (default %(default)s)", seed, default=0)


def out_option(verb: Parser) -> None:
    """--out: where run folders go."""
    verb.takes("--out DIR", "where run folders go (default ./%(default)s)", default="runs")
