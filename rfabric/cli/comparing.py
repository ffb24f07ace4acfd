"""The verbs `compare`, `crossover` and `report`: grids of runs, resumable, and what they come
to.

RFabricError for options that do not go together.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import RFabricError, RunError
from ..files import read_json
from ..optics.policies import GRANULARITIES
from ..report import crossover as crossover_report
from ..report import grid as grid_report
from ..report import worlds
from ..report.choices import other_jobs
from ..report.folder import new_folder, read_folder, write_long, write_text
from ..report.html import drawing, write_report
from ..report.money import check_prices
from ..report.page.logged import LoggedRun, beside
from ..report.page.logged import table as logged_table
from ..report.result import Scale
from ..report.several import read_folders, run_folders, summary_of_all, write_cells, write_several
from ..report.store import ABOUT
from ..report.summary import Run, host_versions
from ..study.cell_folders import Hands, run
from ..study.comparison import begun, finish, finish_again, resumed, scaled
from ..study.crossover import DELAYS, Sweep, sweep
from ..study.grid import Grid, remove_cells
from ..study.kept import usual_folders
from ..study.run import require
from ..study.step_log import read_step_log
from ..units import parse_time
from .arguments.parsing import refuse_typed
from .asked import grid_of, say_idle, settings_of
from .entry import Ended
from .terminal import Talk, print_json, show_notes, show_runs, show_tables

# options that go with --resume: how cells are run, not what
BESIDE_RESUME = {
    "--resume", "--jobs", "--workers", "--no-cache", "--no-report", "--json", "--quiet",
    "--verbose",
}  # fmt: skip


def compare(args: argparse.Namespace) -> None:
    """rfabric compare: fabrics or policies side by side, in one world or in several."""
    if args.resume:
        why = (
            "says nothing beside --resume, which takes it from the folder's grid.json: leave it "
            "out, or begin another comparison"
        )
        refuse_typed(args, set(args.typed) - BESIDE_RESUME, why)
    else:
        say_idle(args, args.engine)
    if args.resume or len(args.engine) == 1:
        show(_compared(args, args.engine[0]), args)
        return
    for engine in args.engine:
        require(settings_of(args, engine, 0))
    folders = [_compared(args, engine) for engine in args.engine]
    summaries = [read_json(folder / "summary.json") for folder in folders]
    entries = [entry for summary in summaries for entry in summary["runs"]]
    if args.json:
        told = [s | {"folder": str(f)} for s, f in zip(summaries, folders, strict=True)]
        print_json({"comparisons": told, "worlds": worlds.side_by_side(entries)})
        return
    for folder in folders:
        show(folder, args)
    side_by_side = worlds.table(entries)
    show_tables([side_by_side])
    show_notes([] if args.quiet else [side_by_side.note])


def _compared(args: argparse.Namespace, engine: str) -> Path:
    """The folder of a comparison in one world, made or finished."""
    with Talk(args.quiet) as talk:
        folder = Path(args.resume or begun(_asked(args, engine, talk), args.out))
        grid = resumed(folder)
        try:
            places = run(grid, folder, _hands(args), talk.of("compare"))
        except (KeyboardInterrupt, Ended) as error:
            error.add_note(_go_on(folder))
            raise
        except RunError:
            print(f"rfabric: {_go_on(folder)}", file=sys.stderr)
            raise
        talk.tell("report", {"stage": "write" if args.no_report else "draw"})
        finish(grid, folder, places, page=not args.no_report)
    return folder


def _hands(args: argparse.Namespace) -> Hands:
    return Hands(args.jobs, args.workers, None if args.no_cache else usual_folders())


def crossover(args: argparse.Namespace) -> None:
    """Sweep the reconfiguration delay; the cells go when the picture is there."""
    asked = Sweep(
        tuple(args.topo) or ("rfabric", "mixnet,reinit=0s", "rotor"),
        tuple(args.against) or ("fat-tree", "fat-tree,oversubscription=2"),
        tuple(args.granularity) or GRANULARITIES,
        _delays(args.delays),
        args.traffic,
        args.policy,
        args.routing,
        tuple(args.set),
        args.seed,
        args.repetitions,
    )
    figures = drawing()
    with Talk(args.quiet) as talk, new_folder(args.out) as folder:
        swept = sweep(
            asked, folder.path / "cells", args.jobs, lambda news: talk.tell("crossover", news)
        )
        remove_cells(folder.path)
        document = swept.to_json() | {
            "command": args.command,
            "created": folder.created,
            "versions": host_versions(),
        }
        write_text(folder.path / "crossover.json", json.dumps(document, indent=2) + "\n")
        figures.png(crossover_report.figure(swept, figures.PRINT), folder.path / "crossover.png")
        if args.png:
            figures.png(crossover_report.figure(swept, figures.PRINT), Path(args.png))
    if args.json:
        print_json(document | {"folder": str(folder.final)})
    else:
        show_tables(crossover_report.tables(swept))
        print(folder.final / "crossover.png")


def _delays(text: str) -> tuple[float, ...]:
    if not text:
        return DELAYS
    return tuple(sorted({parse_time(part, "--delays") for part in text.split(",")}))


def show(folder: Path, args: argparse.Namespace) -> None:
    """What a finished comparison came to."""
    summary = read_json(folder / "summary.json")
    if args.json:
        print_json(summary | {"folder": str(folder)})
        return
    if "rows" in summary:
        show_tables(grid_report.tables(summary))
        show_notes([] if args.quiet else summary["fairness"])
    else:
        show_runs(summary, args.quiet)
    page = folder / "report.html"
    print(page if page.is_file() else folder)


def _go_on(folder: Path) -> str:
    return f"finished runs are kept; go on with: rfabric compare --resume {folder}"


def _asked(args: argparse.Namespace, engine: str, talk: Talk) -> Grid:
    settings = settings_of(args, engine, 0)
    require(settings)
    grid = grid_of(args, engine, talk)
    if len(args.engine) == 1 and len(grid.fabrics) == 1 and len(grid.policies) < 2:
        raise RFabricError(
            "compare needs two fabrics, policies or engines: give --topo or --policy twice, or "
            "--engine simulate,ns3"
        )
    grid = replace(grid, prices=prices_of(args.ocs_port_price))
    if grid.prices and not grid.one_trace:
        raise RFabricError(
            "--ocs-port-price: a comparison of several traces has a page without a clock; leave it "
            "out here and say: rfabric report FOLDER -o all.html --ocs-port-price ..."
        )
    if engine == "emulate":
        return scaled(grid, settings, talk.tell)
    if settings.bandwidth:  # of packets that are simulated
        return replace(grid, scale=Scale(bandwidth=settings.bandwidth).to_json())
    return grid


def report(args: argparse.Namespace) -> None:
    """rfabric report: a run folder's page and tables again."""
    if args.step is not None and not args.yours:
        raise RFabricError("--step is a step of a log: name the log with --yours")
    if args.csv:
        _write_csv(args)
        return
    several = len(args.folder) > 1 or bool(args.output)
    folder = Path(args.folder[0])
    prices = _prices_of_page(args)
    if not several and (folder / "grid.json").is_file():
        if args.yours:
            raise RFabricError(
                f"{folder} holds many runs: name the file for a page of all of them with -o"
            )
        finish_again(folder)
        show(folder, args)
        return
    if any((Path(name) / ABOUT).is_file() for name in args.folder):
        _report_store(args)
        return
    logged = _logged(args.yours, args.step) if args.yours else None
    if several:
        _report_several(args, logged, prices)
        return
    runs, summary = read_folder(folder)
    if logged or prices:
        summary |= {"command": f"{summary['command']} && {args.command}".removeprefix(" && ")}
    page = folder / "report.html"
    write_report(page, runs, summary, logged, prices)
    _show_beside(args, runs, summary, logged, {"folder": str(folder)}, page)


def _write_csv(args: argparse.Namespace) -> None:
    """rfabric report --csv: the long tables of run folders."""
    if args.yours or args.output or args.ocs_port_price:
        raise RFabricError("--csv writes tables and draws no page: leave out what is for a page")
    folders = [folder for name in args.folder for folder in run_folders(Path(name))]
    made = [path for folder in folders for path in write_long(folder, read_folder(folder)[0])]
    paths = [str(path) for path in made]
    if args.json:
        print_json({"written": paths})
    else:
        print("\n".join(paths) or "nothing to write: every table stands there as CSV")


def _prices_of_page(args: argparse.Namespace) -> tuple[float, ...]:
    """The prices among which the page of `report` chooses; it must have a clock."""
    prices = prices_of(args.ocs_port_price)
    folder = Path(args.folder[0])
    if prices and (folder / ABOUT).is_file():
        raise RFabricError("--ocs-port-price: the cells of a store have no bills; name run folders")
    if prices and (folder / "grid.json").is_file() and len(args.folder) == 1 and not args.output:
        raise RFabricError(
            f"--ocs-port-price: {folder} holds many runs; name the file for a page of all of them "
            "with -o"
        )
    return prices


def prices_of(words: str) -> tuple[float, ...]:
    """What an OCS port may cost (USD): `100,300,500`."""
    prices = tuple(dict.fromkeys(map(_usd, words.split(",")))) if words else ()
    check_prices(prices)
    return prices


def _usd(word: str) -> float:
    try:
        usd = float(word)
    except ValueError:
        usd = -1.0
    if not 0 < usd < 1e9:
        raise RFabricError(
            f"--ocs-port-price {word!r}: write USD above 0 and below a billion, as 100,300,500"
        )
    return usd


def _report_store(args: argparse.Namespace) -> None:
    """The cells of a store, with controls that choose among them."""
    folder = Path(args.folder[0])
    if len(args.folder) > 1 or args.yours:
        raise RFabricError(
            f"{folder} is a store, whose cells have no clock: give it alone, without --yours; "
            "several become one with `rfabric merge`"
        )
    page = Path(args.output) if args.output else folder / "report.html"
    cells = write_cells(page, folder, args.command)
    if args.json:
        print_json({"store": str(folder), "page": str(page), "cells": len(cells)})
    else:
        print(page)


def _report_several(
    args: argparse.Namespace, logged: LoggedRun | None, prices: Sequence[float]
) -> None:
    """One page of several folders, with controls that choose among their runs."""
    folders = read_folders([Path(name) for name in args.folder])
    summary, page = summary_of_all(folders, args.command), Path(args.output or "report.html")
    write_several(page, folders, summary, logged, prices)
    runs = [run for some, _ in folders for run in some]
    _show_beside(args, runs, summary, logged, {"page": str(page)}, page)


def _show_beside(
    args: argparse.Namespace, runs: Sequence[Run], summary: dict, logged: LoggedRun | None,
    where: dict, page: Path,
) -> None:  # fmt: skip
    yours = beside(logged, runs) if logged else None
    if args.json:
        print_json(summary | where | ({"yours": yours} if yours else {}))
        return
    show_runs(summary, args.quiet)
    show_notes([] if args.quiet else filter(None, [other_jobs(summary).strip()]))
    if yours:
        show_tables([logged_table(yours, [entry["label"] for entry in summary["runs"]])])
    print(page)


def _logged(log: str, step: int | None) -> LoggedRun:
    """What a log tells: the means of its steps, or one of them."""
    logged = read_step_log(log)
    count = len(logged.steps)
    which = f"step {step}" if step is not None else f"mean of {count} step{'s' * (count > 1)}"
    try:
        return LoggedRun(Path(log).name, which, logged.seconds_of(step))
    except RFabricError as error:
        raise RFabricError(f"--step of {log}: {error}") from error
