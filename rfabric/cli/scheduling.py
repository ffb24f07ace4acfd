"""The verbs around schedulers: `reproduce`."""

import argparse
import json
from collections.abc import Sequence

from ..report.compare import Row, Table
from ..study import reproduce as published
from .terminal import Talk, show_tables


def reproduce(args: argparse.Namespace) -> None:
    with Talk(args.quiet) as talk:
        rows = published.reproduce(args.paper, args.seed, lambda part: talk.tell(args.paper, {"stage": part}))
    if args.json:
        print(json.dumps({"paper": args.paper, "seed": args.seed, "rows": [row.to_json() for row in rows]}, indent=1))
        return
    show_tables([_rows(args.paper, rows), _reasons(rows)])


def _rows(paper: str, rows: Sequence[published.Row]) -> Table:
    """Paper against ours, row by row; those that could not be run have a dash."""
    shown = []
    for row in rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.3g}"
        shown.append(Row(row.metric, (_text(row.paper, row.unit), _text(row.ours, row.unit), row.unit, ratio, row.trust)))
    columns = "metric", "paper", "ours", "unit", "ours / paper", "trust"
    return Table(f"{paper}: published and run again", columns, tuple(shown), words=(0, 3, 5))


def _reasons(rows: Sequence[published.Row]) -> Table:
    """Every reason once, with the first row that it is of."""
    firsts: dict[str, str] = {}
    for row in rows:
        if row.why:
            firsts.setdefault(row.why, row.metric)
    return Table("Why", ("row", "assumed, or why not run"), tuple(Row(m, (why,)) for why, m in firsts.items()), words=(0, 1))


def _text(value: published.Value | None, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        low, high = (_text(one, unit) for one in value)
        return low if low == high else f"{low} to {high}"
    return f"{value:.1%}" if unit == "share" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
