"""The verbs `emulate`, `simulate` and `replay`: fabrics under policies, one trace, a run folder."""

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ..emulate.machines.remote import AGENT, RSH, Machines, parse_machines
from ..errors import RFabricError
from ..fabric import Fabric, Needs
from ..fabric.match import equal_cost_fat_tree
from ..files import read_json
from ..optics import Timing
from ..report.compare import Table, at_size
from ..report.folder import (
    NOT_KEPT,
    give_to_caller,
    new_folder,
    new_name,
    read_folder,
    sweep,
    write_long,
    write_refused,
)
from ..report.html import can_draw_page
from ..report.live import LiveView
from ..report.outcome import Comparison
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, asked_network, usual_traffic
from ..schedulers.traffic import read_traffic
from ..simulate.transport import FLUID
from ..specs import head_of
from ..study.cell_folders import run as run_grid
from ..study.grid import Cell, Grid, entries_of
from ..study.kept import Folders, folder_key, usual_folders
from ..study.negotiation import networks, one_network
from ..study.run import RunSettings, Tell, asked_policies, cases_of, one_scheduler, play, require
from ..trace import TRACE_SUFFIXES, Traffic, is_trace
from ..units import show_size
from .terminal import Talk, print_json, show_notes, show_runs, show_tables

ASKS = ",network=fabric"
ASKED = ("rfabric", "fat-tree,oversubscription=4")  # whose answers are shown beside those of cards
# what the default job stands for: beyond packets, so simulated
LARGER = ("grpo-1024-235b", "grpo-4096-235b")


def emulate(args: argparse.Namespace) -> None:
    """rfabric emulate: a step with real packets."""
    _run(args, "emulate")


def simulate(args: argparse.Namespace) -> None:
    """rfabric simulate: a step in the flow-level world."""
    _run(args, "simulate")


def replay(args: argparse.Namespace) -> None:
    """rfabric replay: a trace file of the user."""
    args.set = with_format(args)
    if not args.format and not is_trace(args.traffic):
        raise RFabricError(
            f"{args.traffic} is no trace file ({', '.join(TRACE_SUFFIXES)}); for a recipe say "
            "simulate or emulate"
        )
    _run(args, args.engine)


def with_format(args: argparse.Namespace) -> list[str]:
    """The settings, with the format that was named."""
    return [*args.set, *([f"format={args.format}"] if args.format else [])]


def _run(args: argparse.Namespace, engine: str) -> None:
    settings = settings_of(args, engine, args.seed)
    pcap = tuple(dict.fromkeys(getattr(args, "pcap", ())))
    if pcap and engine != "emulate":
        raise RFabricError("--pcap captures packets, and a simulation has none: use emulate")
    if pcap and settings.machines:
        raise RFabricError("--pcap captures packets of this machine; with --on there are none")
    require(settings)
    asked = asked_policies(args.policy)
    args.traffic = args.traffic or usual_traffic((p.scheduler for p in asked), args.usual)
    kept = usual_folders() if engine == "simulate" and not args.no_cache else None
    key = _key(args, asked) if kept else ""
    if kept and _shown_again(args, kept, key):
        return
    with (
        Talk(args.quiet) as talk,
        _uncollected(engine == "simulate"),
        _followed(args, engine) as live,
    ):
        talk.tell(args.traffic, {"stage": "trace"})
        traffic = _agreed(args, asked, settings.timing)
        talk.tell(args.traffic, {"stage": "fabric"})
        fabrics = _fabrics(args.topo, traffic)
        for fabric in fabrics:
            traffic.trace.fit(fabric)
        _check_nodes(pcap, fabrics)
        sweep(args.out)
        with _refused_set_apart(args.out), new_folder(args.out) as folder:
            cases = cases_of(fabrics, [policy.circuits for policy in asked])
            settings = replace(settings, pcap=pcap, pcap_to=folder.path / "pcap", live=live)
            if live:
                live.keep_in(folder.path)
            runs = Comparison(tuple(play(cases, traffic, settings, _both(talk, live))))
            summary, page = runs.write(folder, args.command, talk.tell, not args.no_report)
        if kept:
            kept.keep(key, folder.final)
        if live:
            live.end(folder.final / "report.html" if page else None)
        larger = _larger(args, fabrics, talk) if engine == "emulate" and _is_default(args) else []
        plans = _plans(args, one_scheduler(asked), traffic, talk)
    if args.json:
        more = {"larger": larger, "plans": plans}
        print_json(summary | {"folder": str(folder.final)} | {k: v for k, v in more.items() if v})
    else:
        show_runs(summary, args.quiet)
        show_tables([*([at_size(larger)] if larger else []), *([_planned(plans)] if plans else [])])
        print(folder.final / "report.html" if page else folder.final)


def long_as_csv(args: argparse.Namespace) -> None:
    """rfabric report --csv: the long tables of run folders."""
    made: list[Path] = []
    for name in args.folder:
        made += write_long(Path(name), read_folder(name)[0])
    paths = [str(path) for path in made]
    print_json({"written": paths}) if args.json else print(*paths, sep="\n")


def _key(args: argparse.Namespace, asked: Sequence[Policies]) -> str:
    """The name of the run folder that these words give, '' where words alone do not decide it; or
    where plans of several kinds are printed beside it.
    """
    if _prints_plans(args, one_scheduler(asked)):
        return ""
    fabrics, policies = args.topo or ["ideal"], args.policy or [DEFAULT_CIRCUITS]
    grid = Grid(
        tuple(fabrics), tuple(policies), (args.traffic,), (args.seed,), settings=tuple(args.set),
        in_flight=args.in_flight, routing=args.routing, repetitions=args.repetitions,
    )  # fmt: skip
    cells = [Cell(f, p, args.traffic, args.seed) for f in fabrics for p in policies]
    page = not args.no_report and can_draw_page()
    return folder_key(grid, cells, args.command, str(page))


def _shown_again(args: argparse.Namespace, kept: Folders, key: str) -> bool:
    """Whether the same command was run before: then its folder is there once more, and shown."""
    place = Path(args.out) / new_name()
    if not kept.fetch(key, place):
        return False
    give_to_caller([place, *place.rglob("*")])
    summary = read_json(place / "summary.json")
    page = place / "report.html"
    if args.json:
        print_json(summary | {"folder": str(place)})
        return True
    show_runs(summary, args.quiet)
    if not args.quiet:
        show_notes([f"as it was run at {summary['created']}; --no-cache runs it again"])
    print(page if page.is_file() else place)
    return True


@contextmanager
def _followed(args: argparse.Namespace, engine: str) -> Iterator[LiveView | None]:
    """The page that follows the run, where one was asked for; its address goes to stderr."""
    if getattr(args, "live", None) in (None, ""):
        yield None
        return
    if engine != "emulate":
        raise RFabricError("--live follows packets, and a simulation has none: use emulate")
    with LiveView(args.live, args.command) as live:
        print(f"rfabric: live, until the run ends: {live.address}", file=sys.stderr, flush=True)
        yield live


def _both(talk: Talk, live: LiveView | None) -> Tell:
    """News go to the terminal, and to the page that follows."""
    if live is None:
        return talk.tell

    def tell(name: str, news: dict) -> None:
        talk.tell(name, news)
        live.said(name, news)

    return tell


def settings_of(args: argparse.Namespace, engine: str, seed: int) -> RunSettings:
    """What the options of a run say."""
    scale = (
        getattr(args, name, None) or 0.0
        for name in ("bandwidth_scale", "time_dilation", "sample", "patience")
    )
    timing = Timing(in_flight=args.in_flight)
    return RunSettings(
        engine, seed, args.routing, timing, args.repetitions, *scale, out=args.out,
        machines=_machines(args), transport=getattr(args, "transport", FLUID),
    )  # fmt: skip


def _machines(args: argparse.Namespace) -> Machines:
    """What --on says, and how they are reached; RFabricError where only the latter is said."""
    if getattr(args, "on", None) is not None:
        return parse_machines(args.on, args.rsh, args.rfabric_path)
    for option, usual in (("rsh", RSH), ("rfabric_path", AGENT)):
        if getattr(args, option, usual) != usual:
            word = option.replace("_", "-")
            raise RFabricError(f"--{word} is for the machines of --on: name them with --on")
    return Machines()


def _check_nodes(nodes: Sequence[str], fabrics: Sequence[Fabric]) -> None:
    """RFabricError for a node that a fabric does not have."""
    for node in nodes:
        lacks = next((fabric for fabric in fabrics if node not in fabric.node), None)
        if lacks:
            some = ", ".join(list(lacks.node)[:3])
            raise RFabricError(
                f"--pcap {node}: no node of {lacks.name}; its {len(lacks.node)} nodes are {some} "
                "... (`rfabric topo` shows them)"
            )


@contextmanager
def _refused_set_apart(out: str) -> Iterator[None]:
    """Where all tries of a run were refused, what they measured gets a folder of its own."""
    try:
        yield
    except RFabricError as error:
        if not error.refused:
            raise
        with new_folder(out) as folder:
            write_refused(folder.path, error.refused)
        place = folder.final / NOT_KEPT
        raise type(error)(
            f"{error}; its figures are not to be used, they are kept in {place}"
        ) from error


@contextmanager
def _uncollected(wanted: bool) -> Iterator[None]:
    """No search for cycles among what is made inside: of a large fabric's millions of objects all
    stay. They leave as old ones, which a full search alone looks at.
    """
    before = gc.isenabled()
    if wanted:
        gc.disable()
    try:
        yield
    finally:
        if before:
            gc.freeze()
            gc.unfreeze()  # to the oldest generation; else the next allocation searches them all
            gc.enable()


def _agreed(args: argparse.Namespace, asked: Sequence[Policies], timing: Timing) -> Traffic:
    """What the job sends; agreed with the fabric where its scheduler asks it."""
    scheduler = one_scheduler(asked)
    fabrics = [partial(Needs.fabric, spec=spec) for spec in dict.fromkeys(args.topo)]
    network = one_network(scheduler, fabrics, [policy.circuits for policy in asked], timing)
    return read_traffic(args.traffic, args.set, args.seed, scheduler, network)


def _fabrics(specs: Sequence[str], traffic: Traffic) -> list[Fabric]:
    """The fabrics that were asked for, or the default ones."""
    return [
        traffic.needs.fabric(spec)
        for spec in dict.fromkeys(specs) or default_fabrics(traffic.needs)
    ]


def default_fabrics(needs: Needs) -> tuple[str, ...]:
    """Fat-Tree, a Fat-Tree of about rfabric's cost, leaf-spine, and rfabric."""
    return "fat-tree", equal_cost_fat_tree(needs.fabric("rfabric"))[0].spec, "leaf-spine", "rfabric"


def _plans(args: argparse.Namespace, scheduler: str, traffic: Traffic, talk: Talk) -> list[dict]:
    """What orchestrrl decided, and what it would have where a fabric answers it; of runs on the
    default fabrics, all of which play the plan that no fabric was asked for.
    """
    facts = traffic.trace.provenance.get("scheduler_facts")  # of one job; several have none
    if facts is None or not _prints_plans(args, scheduler):
        return []
    plans = [{"network": "network cards"} | facts]
    for spec in ASKED:
        talk.tell(f"plan agreed with {spec}", {"stage": "schedule"})
        network = networks(scheduler + ASKS, partial(Needs.fabric, spec=spec), DEFAULT_CIRCUITS)
        made = read_traffic(args.traffic, args.set, args.seed, scheduler + ASKS, network)
        plans.append(made.trace.provenance["scheduler_facts"])
    return plans


def _prints_plans(args: argparse.Namespace, scheduler: str) -> bool:
    return head_of(scheduler) == "orchestrrl" and not (args.topo or asked_network(scheduler))


def _planned(plans: Sequence[dict]) -> Table:
    rows = [
        (
            plan["network"],
            plan["first_cut"],
            " ".join(f"{n} {cut}" for cut, n in plan["last_cuts"][-1].items()),
            f"{plan['servers_cut']:,}",
            f"{plan['moved']:,}",
            f"{plan['recomputed']:,}",
            f"{plan['balanced']:,}",
            show_size(plan["kv_bytes"]),
            plan.get("weight_sync", "–"),
        )
        for plan in plans
    ]
    columns = (
        "who was asked", "begins", "ends", "servers cut", "moved", "again", "balanced", "KV",
        "weight sync",
    )  # fmt: skip
    note = (
        "The runs above played the first; --policy orchestrrl,network=fabric --topo FABRIC plays "
        "another."
    )
    return Table.of("Plans by who answers the scheduler", columns, rows, note, (0, 1, 2, 8))


def _is_default(args: argparse.Namespace) -> bool:
    """Whether a run is the default job on the default fabrics."""
    return args.traffic == args.usual and not (args.topo or args.policy or args.set)


def _larger(args: argparse.Namespace, fabrics: Sequence[Fabric], talk: Talk) -> list[dict]:
    """The same fabrics at the sizes of LARGER, simulated: an entry a recipe and fabric, with its
    cost.
    """
    grid = Grid(tuple(f.spec or f.name for f in fabrics), (DEFAULT_CIRCUITS,), LARGER, (args.seed,))
    with TemporaryDirectory() as folder:
        return entries_of(
            run_grid(grid, Path(folder), progress=lambda news: talk.tell("at size", news))
        )
