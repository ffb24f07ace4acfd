"""The verbs around the phase model: `validate`, `model`, `import`."""

import argparse
import json
from collections.abc import Sequence

from ..report.compare import Row, Table
from ..study.validate import Group
from ..study.validate import validate as validated
from .terminal import Talk, show_tables


def validate(args: argparse.Namespace) -> None:
    with Talk(args.quiet) as talk:
        groups = validated(args.folder, lambda file: talk.tell("validate", {"stage": file}))
    if args.json:
        print(json.dumps({"groups": _by_name(groups)}, indent=1))
        return
    if args.rows:
        show_tables([_points(group) for group in groups])
    show_tables([_overview(groups), _left_out(groups)])


def _by_name(groups: Sequence[Group]) -> dict[str, dict]:
    return {group.name: group.to_json() for group in groups}


def _overview(groups: Sequence[Group]) -> Table:
    rows = []
    for g in groups:
        errors = ("–" if e is None else f"{e:.1%}" for e in (g.median_error, g.p90_error))
        more = ", ".join(f"{name} {value:.2f}" for name, value in g.extra)
        rows.append(Row(g.name, (f"{len(g.points):,}", f"{len(g.unmodelled):,}", *errors, more, g.file)))
    columns = "group", "modelled", "left out", "median error", "p90 error", "", "file"
    return Table("Model against measurement", columns, tuple(rows), words=(0, 5, 6))


def _points(group: Group) -> Table:
    rows = [Row(p.name, (f"{p.measured:,.4g}", f"{p.modelled:,.4g}", p.unit, f"{p.error:+.1%}")) for p in group.points]
    columns = "row", "measured", "model", "unit", "error"
    return Table(f"{group.name} ({group.file})", columns, tuple(rows), group.note, (0, 3))


def _left_out(groups: Sequence[Group]) -> Table:
    rows = [Row(group.name, (text,)) for group in groups for text in group.unmodelled]
    return Table("Rows left out", ("group", "row and reason"), tuple(rows), words=(0, 1))
