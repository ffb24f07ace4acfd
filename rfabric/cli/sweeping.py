"""The verbs `sweep`, `best`, `query` and `merge`: many cells, the store they fill, and what it
says.

RFabricError for options that do not go together.
"""

import argparse
import csv
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import RFabricError, RunError
from ..report import ranking
from ..report.compare import Row, Table
from ..report.store import TABLE, asked_in_sql, merge_stores
from ..study.adaptive import sweep_until
from ..study.grid import default_jobs
from ..study.kept import cache_home
from ..study.sweeping import Place, Tally, sweep_cells
from .arguments.sweeps import MEASURE
from .asked import grid_of
from .entry import Ended
from .terminal import Talk, print_json, show_notes, show_tables


def sweep(args: argparse.Namespace) -> None:
    """rfabric sweep: the cells of a grid into a store."""
    if args.by and not args.until:
        raise RFabricError(
            f"--by {args.by} is what --until looks at, and there is no --until; add --until 1%, or "
            "leave --by out"
        )
    measure = args.by or MEASURE
    with Talk(args.quiet) as talk:
        grid = grid_of(args, args.engine, talk)
        place = Place(
            Path(args.store),
            Path(args.cache) if args.cache else cache_home(),
            args.jobs or default_jobs(grid),
            args.workers,
            args.shard,
        )
        try:
            if args.until:
                tally = sweep_until(grid, place, args.until, measure, talk.of("sweep"))
            else:
                tally = sweep_cells(grid, place, talk.of("sweep"))
        except (KeyboardInterrupt, Ended) as error:
            error.add_note(_go_on(args))
            raise
        except RunError:
            print(f"rfabric: {_go_on(args)}", file=sys.stderr)
            raise
    if args.json:
        print_json(tally.to_json() | {"store": args.store})
    else:
        print(_said(tally, args.store, measure))


def _cells(count: int, kind: str = "") -> str:
    return f"{count} {kind}cell{'s' * (count != 1)}"


def _go_on(args: argparse.Namespace) -> str:
    return f"finished cells are kept; go on with: {args.command}"


def _said(tally: Tally, store: str, measure: str) -> str:
    before = tally.stored + tally.cached
    known = f", {before} known before" if before else ""
    return (
        f"{_cells(tally.cells)} in {store}: {tally.run} run{known}\n"
        f"rfabric best --store {shlex.quote(store)} --minimise {measure}"
    )


def best(args: argparse.Namespace) -> None:
    """rfabric best: which network is best, job by job."""
    measure, sign = (args.minimise, 1) if args.minimise else (args.maximise, -1)
    names, rows = asked_in_sql(args.store, f"select * from {TABLE} where ({args.where})")
    cells = [dict(zip(names, row, strict=True)) for row in rows]
    if args.json:
        print_json({"jobs": ranking.documents(cells, measure, sign)})
        return
    tables = ranking.tables(cells, measure, sign, args.most)
    show_tables(tables)
    if not args.quiet:
        show_notes(table.note for table in tables)


def query(args: argparse.Namespace) -> None:
    """rfabric query: a store asked in SQL."""
    if args.json and args.csv:
        raise RFabricError("--json and --csv are two forms of one answer: give one")
    names, rows = asked_in_sql(args.store, args.sql)
    if args.json:
        _check_each_once(names)
        print_json({"rows": [dict(zip(names, map(_plain, row), strict=True)) for row in rows]})
    elif args.csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *rows])
    elif rows:
        show_tables([_table(names, rows)])
    else:
        print("no rows")


def _check_each_once(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RFabricError(
            f"query: two columns are called {twice!r}, and a row in JSON has room for one: name "
            f"them apart with `as`, or take --csv"
        )


def _plain(value: object) -> object:
    """As JSON can say it; what has no form there (a date, an infinite number) is text."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (int, str, type(None))) else str(value)


def _table(names: list[str], rows: list[tuple]) -> Table:
    words = tuple(i for i in range(len(names)) if any(isinstance(row[i], str) for row in rows))
    shown = [[_text(value) for value in row] for row in rows]
    return Table("", tuple(names), tuple(Row(r[0], tuple(r[1:])) for r in shown), words=words)


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def merge(args: argparse.Namespace) -> None:
    """rfabric merge: the cells of several stores into one."""
    new = merge_stores([Path(store) for store in args.stores], Path(args.store))
    if args.json:
        print_json({"store": args.store, "new": new})
    else:
        print(f"{_cells(new, 'new ')} in {args.store}")
