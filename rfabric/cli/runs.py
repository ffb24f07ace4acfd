"""The verbs `emulate`, `simulate` and `replay`: fabrics under policies, one trace, a run folder."""

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import PaceError, RFabricError
from ..fabric import Fabric, Needs
from ..fabric.match import equal_cost_fat_tree
from ..optics import Timing
from ..report.compare import at_size
from ..report.folder import NOT_KEPT, new_folder, sweep, write_refused
from ..report.outcome import Comparison
from ..schedulers.table import DEFAULT_CIRCUITS, Policies
from ..schedulers.traffic import read_traffic
from ..study.grid import Grid, entries_of
from ..study.grid import run as run_grid
from ..study.negotiation import one_network
from ..study.run import RunSettings, asked_policies, cases_of, one_scheduler, play, require
from ..trace import TRACE_SUFFIXES, Traffic, is_trace
from .terminal import Talk, print_json, show_runs, show_tables

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
        raise RFabricError("--pcap captures packets, which a simulation has none of: emulate")
    require(settings)
    with Talk(args.quiet) as talk, _uncollected(engine == "simulate"):
        talk.tell(args.traffic, {"stage": "trace"})
        asked = asked_policies(args.policy)
        traffic = _agreed(args, asked, settings.timing)
        talk.tell(args.traffic, {"stage": "fabric"})
        fabrics = _fabrics(args.topo, traffic)
        for fabric in fabrics:
            traffic.trace.fit(fabric)
        _check_nodes(pcap, fabrics)
        sweep(args.out)
        with _refused_set_apart(args.out), new_folder(args.out) as folder:
            cases = cases_of(fabrics, [policy.circuits for policy in asked])
            settings = replace(settings, pcap=pcap, pcap_to=folder.path / "pcap")
            runs = Comparison(tuple(play(cases, traffic, settings, talk.tell)))
            summary, page = runs.write(folder, args.command, talk.tell, not args.no_report)
        larger = _larger(args, fabrics, talk) if engine == "emulate" and _is_default(args) else []
    if args.json:
        print_json(summary | {"folder": str(folder.final)} | ({"larger": larger} if larger else {}))
    else:
        show_runs(runs, summary, args.quiet)
        if larger:
            show_tables([at_size(larger)])
        print(folder.final / "report.html" if page else folder.final)


def settings_of(args: argparse.Namespace, engine: str, seed: int) -> RunSettings:
    """What the options of a run say."""
    scale = (
        getattr(args, name, None) or 0.0
        for name in ("bandwidth_scale", "time_dilation", "sample", "patience")
    )
    timing = Timing(in_flight=args.in_flight)
    return RunSettings(engine, seed, args.routing, timing, args.repetitions, *scale, out=args.out)


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
    except PaceError as error:
        if not error.refused:
            raise
        with new_folder(out) as folder:
            write_refused(folder.path, error.refused)
        place = folder.final / NOT_KEPT
        raise PaceError(f"{error}; what was measured is no figure to use: {place}") from error


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
