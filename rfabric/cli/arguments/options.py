"""A verb and the options that several have."""

import argparse
from collections.abc import Callable
from importlib import import_module

from ...emulate.machines.remote import AGENT, RSH
from ...plugins import is_file
from .parsing import Parser, Verbs, count, port, positive, seed, seeds, time

DEFAULT_TRAFFIC = "grpo-64-moe"
USUAL_TRAFFIC = (
    f"{DEFAULT_TRAFFIC}; orchestrrl-64 under orchestrrl, weave-2jobs under policies for several "
    "jobs"
)
DEFAULT_POLICY = "own"
ROUTINGS = ("placed", "ecmp", "wcmp", "valiant", "split")
REPETITIONS = ("folded", "all")
KINDS = ("fabrics", "policies", "schedulers", "routing", "recipes", "models", "gpus", "formats")


def add_verb(
    verbs: Verbs, name: str, what: str, *examples: str, module: str, once: str = ""
) -> Parser:
    """A verb with its examples and the options that all have; `module` of the folder above does it.

    once: what it was called until version 0.1, a name that still works, with a note.
    """
    lines = "\n".join(f"  {e}" for e in examples)
    verb = verbs.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}.", epilog=f"examples:\n{lines}",
        aliases=[once] if once else [],
    )  # fmt: skip
    verb.set_defaults(run=_lazily(module, name), verb_name=name)
    verb.add_argument("--json", action="store_true", help="one JSON document on stdout")
    verb.add_argument("-q", "--quiet", action="store_true", help="no progress, no notes")
    verb.add_argument("-v", "--verbose", action="count", default=0, help="say more; twice for all")
    return verb


def _lazily(module: str, name: str) -> Callable[[argparse.Namespace], int | None]:
    def run(args: argparse.Namespace) -> int | None:
        verbs = import_module(f"..{module}", __package__)
        plain = {"import": "import_", "list": "list_"}.get(name, name.replace("-", "_"))
        return getattr(verbs, plain)(args)

    return run


def repeatable(verb: Parser, name: str, metavar: str, help: str) -> None:
    """An option that may be given again; its value is the list of all."""
    verb.add_argument(name, metavar=metavar, action="append", default=[], help=help)


def jobs_option(verb: Parser) -> None:
    """--jobs: how many runs at a time."""
    verb.add_argument(
        "--jobs", metavar="N", type=count, default=0,
        help="runs at a time (default: as many as cores)",
    )  # fmt: skip


def page_option(verb: Parser) -> None:
    """A page on demand."""
    verb.add_argument(
        "--no-report", action="store_true",
        help="draw no report.html; `rfabric report FOLDER` draws it later",
    )  # fmt: skip


def step_options(
    verb: Parser, traffic: bool = True, several: bool = False, out: bool = True
) -> None:
    """The options of a run; `several` recipes and seeds where a verb takes more than one."""
    verb.set_defaults(usual=DEFAULT_TRAFFIC)
    topo_option(verb)
    if traffic:
        again = "; may be given again" if several else ""
        verb.add_argument(
            "--traffic",
            metavar="RECIPE",
            **({"action": "append", "default": []} if several else {"default": ""}),
            help=f"a recipe or a trace file{again} (default {USUAL_TRAFFIC})",
        )
        set_option(verb)
    repeatable(
        verb,
        "--policy",
        "POLICY",
        help="who chooses the circuits, NAME[,granularity=WHEN][,slot=TIME]: own, static, "
        "demand, phase, greedy, matching, bvn, mesh, isolated-pod, bipartite, tree, rotor; "
        "who schedules the computing: sync, colocated, one-step-off, async, orchestrrl, "
        "rollpacker, rollart (of several jobs: each), who shares which nodes: weave, solo, "
        "random, most-idle, gavel; or "
        "both, as orchestrrl+phase (orchestrrl,network=fabric asks the fabric first); "
        "FILE.py[:NAME], a backslash before `,` `:` `+` in its path; "
        f"may be given again (default {DEFAULT_POLICY}: what the "
        "fabric was designed for, demand for most)",
    )
    routing_option(verb)
    repetitions_option(verb)
    verb.add_argument(
        "--in-flight", metavar="WAY", choices=("hold", "drain", "drop"), default="hold",
        help="traffic under way on circuits that change: hold (default), drain or drop",
    )  # fmt: skip
    if several:
        verb.add_argument(
            "--seed",
            metavar="N",
            type=seed,
            action="append",
            default=[],
            help="of everything random; may be given again (default 0)",
        )
    else:
        seed_option(verb)
    if out:
        out_option(verb)


def grid_options(verb: Parser) -> None:
    """What several runs have beside the options of one."""
    verb.add_argument(
        "--seeds", metavar="N", type=seeds, default=0, help="so many seeds, from --seed on"
    )
    jobs_option(verb)
    verb.add_argument(
        "--match", choices=("cost", "bandwidth"), default="",
        help="thin each fabric until its cost or bandwidth is nearest to that of the first --topo",
    )  # fmt: skip


def topo_option(verb: Parser) -> None:
    """--topo: which fabrics."""
    repeatable(
        verb, "--topo", "FABRIC",
        help="NAME[,KEY=VALUE...], FILE.py[:NAME][,...] or FILE[,...] of a network (`rfabric list "
        "formats`); a backslash before `,` `:` `+` in a path; may be given again",
    )  # fmt: skip


def scale_options(verb: Parser) -> None:
    """How an emulation is smaller and slower."""
    for name, what in (
        ("--bandwidth-scale", "bytes and rates shrink to this share"),
        ("--time-dilation", "a second takes so many"),
    ):
        verb.add_argument(
            name,
            metavar="X",
            type=positive,
            help=f"{what} (default: chosen from what the host can carry)",
        )
    verb.add_argument(
        "--sample",
        metavar="TIME",
        type=time,
        help=(
            "of a repeated collective send so many repetitions as take so long, 1h for all "
            "(default: what patience allows)"
        ),
    )
    verb.add_argument(
        "--patience",
        metavar="TIME",
        type=time,
        help=(
            "wall clock that the packets of one run may take, as 5min; longer runs are truer "
            "ones (default 40s)"
        ),
    )


def machines_options(verb: Parser) -> None:
    """--on: which machines carry an emulation, and how they are reached."""
    verb.add_argument(
        "--on",
        metavar="HOST[=ADDRESS],...",
        help=(
            "cut the fabric between ToRs and what is above them, and have each of these machines "
            "carry a part; ADDRESS: where the others reach it (default: what its name stands for)"
        ),
    )
    verb.add_argument(
        "--rsh",
        metavar="COMMAND",
        default=RSH,
        help='how a machine is reached, as rsync has it: "ssh -p 2222", "ip netns exec" '
        "(default: ssh, in batch mode)",
    )
    verb.add_argument(
        "--rfabric-path",
        metavar="COMMAND",
        default=AGENT,
        help='the agent there, as "sudo /opt/rfabric/bin/rfabric agent" (default %(default)s)',
    )


def pcap_option(verb: Parser) -> None:
    """--pcap: where packets of an emulation are captured."""
    repeatable(
        verb,
        "--pcap",
        "NODE",
        help="capture the packets at a host or switch of an emulation, to pcap/ in the run folder, "
        "for Wireshark; may be given again",
    )


def live_option(verb: Parser) -> None:
    """--live: a page that follows an emulation."""
    verb.add_argument(
        "--live",
        metavar="PORT",
        nargs="?",
        type=port,
        const=0,
        help=(
            "serve a page on loopback that follows the packets, and becomes the report; its address"
            " goes to stderr (default: a free port)"
        ),
    )


def engine_option(verb: Parser) -> None:
    """--engine: which world."""
    verb.add_argument(
        "--engine",
        choices=("simulate", "ns3", "emulate"),
        default="simulate",
        help="the flow-level model, ns-3's packets or real ones (default simulate)",
    )


class _Routings(tuple):
    """The schemes by name; a FILE.py[:NAME], which is opened when it is needed, is one too."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or is_file(str(word))


def routing_option(verb: Parser) -> None:
    """--routing: how pairs find their way."""
    verb.add_argument(
        "--routing",
        metavar="SCHEME",
        choices=_Routings(ROUTINGS),
        default=ROUTINGS[0],
        help="the way of each pair of hosts: placed on the least loaded (default), ecmp, wcmp, "
        "valiant; or split over all equal ways at once, as packet spraying and multi-path RDMA "
        "do (simulated only); or FILE.py[:NAME]",
    )


def repetitions_option(verb: Parser) -> None:
    """--repetitions: how loops are played."""
    verb.add_argument(
        "--repetitions",
        metavar="WAY",
        choices=REPETITIONS,
        default=REPETITIONS[0],
        help=(
            "what is sent again and again, simulated: folded into one, with an error bound "
            "(default), or all"
        ),
    )


def set_option(verb: Parser) -> None:
    """--set: settings of the recipe."""
    repeatable(
        verb,
        "--set",
        "KEY=VALUE",
        help="put over the recipe, such as training.tp=2; of a trace file, a setting of its "
        "format, such as ranks_per_host=8",
    )


def format_option(verb: Parser) -> None:
    """--format: of a trace file."""
    verb.add_argument(
        "--format",
        metavar="NAME",
        default="",
        help="the trace file's (`rfabric list formats`), where it is not to be told from the file",
    )


def seed_option(verb: Parser) -> None:
    """--seed."""
    verb.add_argument(
        "--seed",
        metavar="N",
        type=seed,
        default=0,
        help="of everything random (default %(default)s)",
    )


def out_option(verb: Parser) -> None:
    """--out: where run folders go."""
    verb.add_argument(
        "--out", metavar="DIR", default="runs", help="where run folders go (default ./%(default)s)"
    )
