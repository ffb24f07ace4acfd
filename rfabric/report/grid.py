"""A comparison of fabrics x policies x recipes x seeds: a table, a picture, a document, a page.

A row is a fabric under a policy on a recipe; its seeds become a mean with the least and the most
beside it. A row is on the Pareto front of its recipe when no other is both cheaper and faster. The
ideal switch is a bound and stands on no front.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ..optics.policies import OWN
from ..specs import head_of
from ..units import show_rate, show_time
from .compare import NEGLIGIBLE, Row, Table
from .summary import VERSION, host_versions

MEASURES = ("step_s", "exposed_s", "comm_s", "dark_s")


def grid_summary(entries: Sequence[dict], grid: dict, command: str, created: str) -> dict:
    """The document of a comparison: every run (as in a run's summary), and `rows`, the seeds of
    each made one.

    Keys are never renamed, only added.
    """
    rows = [_row(group) for group in _groups(entries)]
    for row in rows:
        row["pareto"] = _on_front(row, [r for r in rows if r["traffic"] == row["traffic"]])
    versions = host_versions()
    for entry in entries:
        versions |= entry.get("versions", {})
    return {
        "version": VERSION,
        "created": created,
        "command": command,
        "versions": versions,
        "grid": grid,
        "fairness": fairness(entries, grid),
        "rows": rows,
        "runs": [entry | {"label": _label(entry)} for entry in entries],
    }


def fairness(entries: Sequence[dict], grid: dict) -> list[str]:
    """What is equal among the runs that are compared, and what is not, in words."""
    several = len({entry.get("scheduler", "") for entry in entries}) > 1
    same = "recipe, seed and compute scheduler" if several else "recipe and seed"
    said = [
        (
            f"Runs of one {same} replay the same trace; hashes and placements are drawn from "
            "the same seed."
        )
    ]
    rates = {rate for entry in entries for rate in entry["nic_bps"]}
    if len(rates) == 1:
        said.append(f"Every fabric has NICs of {show_rate(rates.pop())}.")
    elif rates:
        said.append(f"NICs differ: {', '.join(map(show_rate, sorted(rates)))}.")
    if grid.get("match"):
        said.append(
            f"Fabrics were fitted to the same {grid['match']} as {grid['fabrics'][0]}, as near "
            "as whole ports allow."
        )
    else:
        said.append("Fabrics are not of the same cost: compare by $ per step, or say --match cost.")
    return said


def tables(summary: dict) -> list[Table]:
    """One table a recipe: fabric by fabric, the fastest and the cheapest step marked."""
    traffics = list(dict.fromkeys(row["traffic"] for row in summary["rows"]))
    return [
        _table(traffic, [r for r in summary["rows"] if r["traffic"] == traffic])
        for traffic in traffics
    ]


def figure(summary: dict, theme=None):
    """Step time against network cost, a panel a recipe; the Pareto front is the line."""
    from matplotlib.figure import Figure

    from . import figures

    theme = theme or figures.PAGE
    traffics = list(dict.fromkeys(row["traffic"] for row in summary["rows"]))
    columns = min(len(traffics), 3)
    lines = -(-len(traffics) // columns)
    drawn = Figure(figsize=(figures.PAGE_WIDTH, 4.2 * lines))
    for i, traffic in enumerate(traffics):
        rows = [
            r
            for r in summary["rows"]
            if r["traffic"] == traffic and (r["network_usd"] or _is_bound(r))
        ]
        axes = drawn.add_subplot(lines, columns, i + 1)
        _scatter(axes, rows, traffic, theme)
    drawn.subplots_adjust(
        left=0.08,
        right=0.98,
        top=1 - 0.4 / (4.2 * lines),
        bottom=0.6 / (4.2 * lines),
        wspace=0.2,
        hspace=0.35,
    )
    return drawn


def write_page(path: Path, summary: dict) -> None:
    """report.html of a comparison."""
    from . import figures
    from .folder import write_text
    from .html import render

    text = render(
        "grid.html",
        title=_title(summary),
        summary=summary,
        tables=tables(summary),
        picture=figures.svg(figure(summary)),
    )
    write_text(path, text)


def _title(summary: dict) -> str:
    fabrics = dict.fromkeys(head_of(row["fabric"]) for row in summary["rows"])
    traffics = dict.fromkeys(row["traffic"] for row in summary["rows"])
    return f"{' and '.join(traffics)} on {', '.join(fabrics)}"


def _groups(entries: Sequence[dict]) -> list[list[dict]]:
    """Entries that differ by their seed alone."""
    found: dict[tuple, list[dict]] = {}
    for entry in entries:
        found.setdefault(
            tuple(entry.get(key, "") for key in ("traffic", "fabric", "scheduler", "policy")), []
        ).append(entry)
    return list(found.values())


def _row(group: list[dict]) -> dict:
    first = group[0]
    values = {name: [_measure(entry, name) for entry in group] for name in MEASURES}
    row = {key: first[key] for key in ("traffic", "fabric", "policy", "engine", "gpus")}
    row |= {"scheduler": first.get("scheduler", ""), "label": _label(first)}
    row |= {
        "seeds": [entry["seed"] for entry in group],
        "rewires": sum(len(e["rewires"]) for e in group) / len(group),
    }
    for name, found in values.items():
        row |= {
            name: sum(found) / len(found),
            f"{name}_least": min(found),
            f"{name}_most": max(found),
        }
    row |= {key: first["cost"].get(key) for key in ("network_usd", "network_watts")}
    paid = [entry["cost"].get("usd_per_step") for entry in group]
    return row | {"usd_per_step": None if None in paid else sum(paid) / len(paid)}


def _measure(entry: dict, name: str) -> float:
    if name in ("exposed_s", "comm_s"):
        return sum(phase[name] for phase in entry["phases"].values())
    return entry[name]


def _label(entry: dict) -> str:
    """The fabric as it was asked for, who schedules its computing, and its circuit policy where
    that is not its own.
    """
    name, policy = head_of(entry["fabric"]), entry["policy"]
    usual = policy in ("ecmp", OWN.get(name, "demand"))
    words = entry.get("scheduler", ""), "" if usual else policy
    shape = re.sub(r",oversubscription=([\d.]+)", r" \1:1", entry["fabric"])
    return " ".join([shape, "+".join(word for word in words if word)]).strip()


def _on_front(row: dict, rows: Sequence[dict]) -> bool:
    """Whether no other row is at least as cheap and as fast, and better in one; faster by next to
    nothing is as fast.
    """
    if row["network_usd"] is None or _is_bound(row):
        return False
    mine = row["network_usd"], row["step_s"]
    others = [
        (r["network_usd"], r["step_s"])
        for r in rows
        if r is not row and r["network_usd"] is not None and not _is_bound(r)
    ]
    enough = mine[1] * (1 + NEGLIGIBLE)
    return not any(
        (o[0] < mine[0] and o[1] <= enough) or (o[0] <= mine[0] and o[1] < mine[1]) for o in others
    )


def _is_bound(row: dict) -> bool:
    """Whether the row is the one non-blocking switch that nobody can buy at size."""
    return head_of(row.get("fabric", "")) == "ideal"


def _table(traffic: str, rows: Sequence[dict]) -> Table:
    several = len(rows[0]["seeds"]) > 1
    best = {
        key: min((r[key] for r in rows if r[key] is not None), default=None)
        for key in ("step_s", "exposed_s", "usd_per_step")
    }
    found = [Row(r["label"], tuple(_cells(r, rows[0], several)), _best(r, best)) for r in rows]
    columns = (
        "fabric, policy",
        "step",
        "exposed",
        "against first",
        "rewires",
        "network k$",
        "kW",
        "$ a step",
        "Pareto",
    )
    seeds = (
        f", mean of seeds {', '.join(map(str, rows[0]['seeds']))} [least .. most]"
        if several
        else f", seed {rows[0]['seeds'][0]}"
    )
    note = "Exposed: what communication adds to computing. Pareto: none is both cheaper and faster."
    return Table(f"{traffic}: {rows[0]['gpus']:,} hosts{seeds}", columns, tuple(found), note)


def _best(row: dict, best: dict) -> int:
    """The column to mark: the first in which this row is the best of all."""
    columns = {"step_s": 0, "exposed_s": 1, "usd_per_step": 6}
    return next(
        (
            column
            for key, column in columns.items()
            if row[key] is not None and row[key] == best[key]
        ),
        -1,
    )


def _cells(row: dict, first: dict, several: bool):
    span = f" [{row['step_s_least']:.3f} .. {row['step_s_most']:.3f}]" if several else ""
    yield f"{row['step_s']:.3f} s{span}"
    yield show_time(row["exposed_s"])
    yield f"{row['exposed_s'] / first['exposed_s']:.2f} x" if first["exposed_s"] > 0 else "–"
    yield f"{row['rewires']:g}"
    yield "–" if row["network_usd"] is None else f"{row['network_usd'] / 1e3:,.0f}"
    yield "–" if row["network_watts"] is None else f"{row['network_watts'] / 1e3:,.2f}"
    yield "–" if row["usd_per_step"] is None else f"{row['usd_per_step']:,.4g}"
    yield "bound" if _is_bound(row) else "yes" if row["pareto"] else ""


def _scatter(axes, rows: Sequence[dict], traffic: str, theme) -> None:
    from .figures import EPS_COLOUR, OCS_COLOUR, bare

    axes.set_title(traffic, size=10, color=theme.ink, loc="left")
    axes.set_xlabel("network cost (k$)", size=9, color=theme.muted)
    axes.set_ylabel("step time (s)", size=9, color=theme.muted)
    front = sorted((r["network_usd"] / 1e3, r["step_s"]) for r in rows if r["pareto"])
    if front:
        axes.step(*zip(*front, strict=True), where="post", color=theme.grid, lw=2.0, zorder=1)
    for row in filter(_is_bound, rows):
        axes.axhline(row["step_s"], color=theme.muted, lw=0.8, ls=(0, (4, 3)), zorder=1)
        axes.text(
            0.01,
            row["step_s"],
            "ideal switch",
            size=8,
            color=theme.muted,
            va="top",
            transform=axes.get_yaxis_transform(),
        )
    rows = [row for row in rows if not _is_bound(row)]
    for row in rows:
        x, y = row["network_usd"] / 1e3, row["step_s"]
        colour = EPS_COLOUR if row["policy"] == "ecmp" else OCS_COLOUR
        if len(row["seeds"]) > 1:
            axes.plot([x, x], [row["step_s_least"], row["step_s_most"]], color=colour, lw=1.0)
        axes.plot(
            x,
            y,
            "o",
            color=colour,
            ms=8 if row["pareto"] else 6,
            mfc=colour if row["pareto"] else "none",
            zorder=3,
        )
    axes.margins(x=0.22, y=0.16)
    _name_points(axes, rows, theme)
    bare(axes, theme, "y")


def _name_points(axes, rows: Sequence[dict], theme) -> None:
    """Names beside their points, where neither a point nor another name is: right, left, then
    higher and lower.
    """
    axes.autoscale_view()
    spot = [
        tuple(axes.transData.transform((row["network_usd"] / 1e3, row["step_s"]))) for row in rows
    ]
    left = axes.bbox.x0
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in spot]
    for row, (x, y) in sorted(zip(rows, spot, strict=True), key=lambda pair: pair[1]):
        width = LETTER * len(row["label"])
        places = [
            (side, lift) for lift in (0, 12, -12, 24, -24, 36, -36, 48) for side in (9, -9 - width)
        ]
        boxes = {
            (side, lift): (x + side, y + lift - 5, x + side + width, y + lift + 5)
            for side, lift in places
        }
        side, lift = next(
            (
                p
                for p, box in boxes.items()
                if box[0] > left and not any(_meet(box, b) for b in taken)
            ),
            places[0],
        )
        taken.append(boxes[side, lift])
        at = axes.transData.inverted().transform((x + side, y + lift))
        axes.text(*at, row["label"], size=8, color=theme.ink, va="center", ha="left")


LETTER = 5.0  # pixels of a letter of size 8 at 100 dots an inch: enough to tell whether names meet


def _meet(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
