"""The verbs `emulate`, `simulate` and `replay`: fabrics under policies, one trace, a run folder.

RFabricError for what cannot be run.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric
from ..files import read_json
from ..report.compare import Table
from ..report.folder import NOT_KEPT, give_to_caller, new_folder, new_name, sweep, write_refused
from ..report.grid import at_size
from ..report.html import can_draw_page
from ..report.live import LiveView
from ..report.outcome import Comparison
from ..schedulers import DEFAULT_CIRCUITS
from ..study.asked import AskedRun, one_scheduler, policies_of, prepared
from ..study.beside import at_sizes, has_plans, plans
from ..study.grid import Cell, Grid
from ..study.kept import Folders, folder_key, usual_folders
from ..study.run import Tell, play, require
from ..trace import TRACE_SUFFIXES, is_trace
from ..units import show_size
from .asked import asked_of, say_idle, settings_of
from .collecting import uncollected
from .terminal import Talk, print_json, show_notes, show_runs, show_tables


def emulate(args: argparse.Namespace) -> None:
    """rfabric emulate: a step with real packets."""
    _run(args, "emulate")


def simulate(args: argparse.Namespace) -> None:
    """rfabric simulate: a step in the flow-level world."""
    _run(args, "simulate")


def replay(args: argparse.Namespace) -> None:
    """rfabric replay: a trace file of the user."""
    say_idle(args, [args.engine])
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
    asked = asked_of(args)
    kept = usual_folders() if engine == "simulate" and not args.no_cache else None
    key = _key(args, asked) if kept else ""
    if kept and _shown_again(args, kept, key):
        return
    with (
        Talk(args.quiet) as talk,
        uncollected(engine == "simulate"),
        _followed(args, engine) as live,
    ):
        ready = prepared(asked, settings, talk.tell)
        _check_nodes(pcap, ready.fabrics)
        sweep(args.out)
        with _refused_set_apart(args.out), new_folder(args.out) as folder:
            settings = replace(settings, pcap=pcap, pcap_to=folder.path / "pcap", live=live)
            if live:
                live.keep_in(folder.path)
            tell = _both(talk, live)
            runs = Comparison(tuple(play(ready.cases, ready.traffic, settings, tell)))
            summary, page = runs.write(folder, args.command, talk.tell, not args.no_report)
        if kept:
            kept.keep(key, folder.final)
        if live:
            live.end(folder.final / "report.html" if page else None)
        default = engine == "emulate" and _is_default(args, asked)
        larger = at_sizes(ready, args.seed, talk.tell) if default else []
        told = plans(asked, ready, args.seed, talk.tell)
    if args.json:
        more = {"larger": larger, "plans": told}
        print_json(summary | {"folder": str(folder.final)} | {k: v for k, v in more.items() if v})
    else:
        show_runs(summary, args.quiet)
        show_tables([*([at_size(larger)] if larger else []), *([_planned(told)] if told else [])])
        print(folder.final / "report.html" if page else folder.final)


def _key(args: argparse.Namespace, asked: AskedRun) -> str:
    """The name of the run folder that these words give, '' where words alone do not decide it; or
    where plans of several kinds are printed beside it.
    """
    if has_plans(asked, one_scheduler(policies_of(asked.policies))):
        return ""
    grid = Grid(
        asked.fabrics or ("ideal",), asked.policies or (DEFAULT_CIRCUITS,), (asked.traffic,),
        (args.seed,), settings=asked.settings, in_flight=args.in_flight, routing=args.routing,
        repetitions=args.repetitions, transport=args.transport,
    )  # fmt: skip
    page = not args.no_report and can_draw_page()
    cells = [Cell(f, p, asked.traffic, args.seed) for f in grid.fabrics for p in grid.policies]
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


def _is_default(args: argparse.Namespace, asked: AskedRun) -> bool:
    """Whether a run is the default job on the default fabrics."""
    return asked.traffic == args.usual and not (asked.fabrics or asked.policies or asked.settings)
