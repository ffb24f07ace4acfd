"""The verb `reproduce`: what was published, run again; and what nobody has published."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..errors import RFabricError, meant
from ..report.compare import Row, Table
from ..study import reproduce as published
from ..study.days import days_rows, days_table
from ..study.joint import joint_rows, joint_table
from ..study.regret import regret_table, regrets
from .terminal import Talk, print_json, show_tables

# by experiment, '' for none: what makes the rows, and the table of them
UNPUBLISHED: dict[str, dict[str, tuple[Callable[..., Iterable[Any]], Callable[..., Table]]]] = {
    "joint": {"": (joint_rows, joint_table), "forecasts": (regrets, regret_table)},
    "days": {"": (days_rows, days_table)},
}


def reproduce(args: argparse.Namespace) -> None:
    """rfabric reproduce: published experiments again; `joint` and `days`, which nobody
    published.
    """
    if args.paper in UNPUBLISHED:
        _unpublished(args)
        return
    with Talk(args.quiet) as talk:
        rows = published.reproduce(
            args.paper,
            args.seed,
            lambda part: talk.tell(args.paper, {"stage": part}),
            args.experiment,
        )
    about = f"{args.paper} --experiment {args.experiment}" if args.experiment else args.paper
    if args.json:
        experiment = {"experiment": args.experiment} if args.experiment else {}
        said = {"paper": args.paper, "seed": args.seed, **experiment}
        print_json(said | {"rows": [row.to_json() for row in rows]})
        return
    if args.markdown:
        print("\n".join(_markdown(about, args.seed, rows)))
        return
    show_tables([_rows(about, rows), _reasons(rows)])
    print(_tally(rows))


def _unpublished(args: argparse.Namespace) -> None:
    made, name = UNPUBLISHED[args.paper], args.experiment or ""
    if name not in made:
        known = [one for one in made if one]
        there = f"{meant(name, known)}; there are {', '.join(known)}" if known else "; it has none"
        raise RFabricError(f"{args.paper} has no experiment {name!r}{there}")
    rows_of, table_of = made[name]
    with Talk(args.quiet) as talk:
        rows = list(rows_of(args.seed, lambda part: talk.tell(args.paper, {"stage": part})))
    if args.json:
        print_json({"seed": args.seed, "rows": [row.to_json() for row in rows]})
    elif args.markdown:
        words = f"{args.paper} --experiment {name}" if name else args.paper
        print("\n".join(page(words, args.seed, table_of(rows))))
    else:
        show_tables([table_of(rows)])


def page(words: str, seed: int, table: Table) -> Iterator[str]:
    """The table for a page, line by line; `words`: what was asked for."""
    yield from (f"## {words}", "", f"`rfabric reproduce {words} --seed {seed}`. {table.note}", "")
    yield f"| {' | '.join(table.columns)} |"
    yield f"|{'|'.join('---' if i in table.words else '--:' for i in range(len(table.columns)))}|"
    for row in table.rows:
        yield f"| {' | '.join((row.name, *row.cells))} |"


def _tally(rows: Sequence[published.PaperRow]) -> str:
    """How many rows could be run, and how near they come."""
    circular = sum(row.trust == published.CIRCULAR for row in rows)
    apart = [
        abs(row.ratio - 1)
        for row in rows
        if row.ratio is not None and row.trust != published.CIRCULAR
    ]
    near = [sum(distance <= limit for distance in apart) for limit in (0.1, 0.2)]
    not_run = sum(row.ours is None for row in rows)
    return (
        f"{len(apart)} rows beside a published figure, {near[0]} within 10 %, {near[1]} within "
        f"20 %; {not_run} not run" + (f"; {circular} more are circular" if circular else "")
    )


def _markdown(paper: str, seed: int, rows: Sequence[published.PaperRow]) -> Iterator[str]:
    """The table for a page, reasons in its last column."""
    yield from (
        f"## {paper}",
        "",
        f"`rfabric reproduce {paper} --seed {seed}`: {_tally(rows)}.",
        "",
    )
    yield from (
        "| metric | paper | ours | ours / paper | trust | why |",
        "|---|--:|--:|--:|---|---|",
    )
    said: set[str] = set()
    for row in rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        why = "as above" if row.why in said else row.why
        said |= {row.why} - {""}
        unit = "" if row.unit in ("x", "share") else f" {row.unit}"
        cells = (
            row.metric,
            _text(row.paper, row.unit) + unit,
            _text(row.ours, row.unit) + unit,
            ratio,
            row.trust,
            why,
        )
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _rows(paper: str, rows: Sequence[published.PaperRow]) -> Table:
    """Paper against ours, row by row; those that could not be run have a dash."""
    shown = []
    for row in rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.3g}"
        shown.append(
            Row(
                row.metric,
                (_text(row.paper, row.unit), _text(row.ours, row.unit), row.unit, ratio, row.trust),
            )
        )
    columns = "metric", "paper", "ours", "unit", "ours / paper", "trust"
    return Table(f"{paper}: published and run again", columns, tuple(shown), words=(0, 3, 5))


def _reasons(rows: Sequence[published.PaperRow]) -> Table:
    """Every reason once, with the first row that it is of."""
    firsts: dict[str, str] = {}
    for row in rows:
        if row.why:
            firsts.setdefault(row.why, row.metric)
    return Table(
        "Why",
        ("row", "assumed, or why not run"),
        tuple(Row(m, (why,)) for why, m in firsts.items()),
        words=(0, 1),
    )


def _text(value: published.Value | None, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        low, high = (_text(one, unit) for one in value)
        return low if low == high else f"{low} to {high}"
    return (
        f"{value:.1%}" if unit == "share" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    )
