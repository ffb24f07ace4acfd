"""A comparison of fabrics x policies x recipes x seeds: a table, a picture, a document, a page.

A row is a fabric under a policy on a recipe; its seeds become a mean with the least and the most
beside it. A row is on the Pareto front of its recipe when no other network is both cheaper and
faster. The ideal switch is a bound and stands on no front.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..optics.policies import OWN
from ..specs import head_of
from ..units import show_between, show_rate, show_thousands, show_time
from .compare import NEGLIGIBLE, Row, Table, is_bound, on_front, unit_of
from .summary import VERSION, exposed_of, host_versions

MEASURES = ("step_s", "exposed_s", "comm_s", "dark_s")


def grid_summary(entries: Sequence[dict], grid: dict, command: str, created: str) -> dict:
    """The document of a comparison: every run (as in a run's summary), and `rows`, the seeds of
    each made one.

    Keys are never renamed, only added.
    """
    rows = [_row(group) for group in _groups(entries)]
    for row in rows:
        row["pareto"] = on_front(row, [r for r in rows if r["traffic"] == row["traffic"]])
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
    if any("network=" in entry.get("scheduler", "") for entry in entries):
        said.append("A scheduler that asks the network makes a plan, and a trace, for each fabric.")
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
    within = [entry["step_within_s"]["basis"] for entry in entries if entry.get("step_within_s")]
    if within:
        said.append(
            "80 % within: where eight in ten measured steps would be, by residuals of the "
            f"{' and '.join(sorted(set(within)))}; all fabrics share these errors."
        )
    return said


def tables(summary: dict) -> list[Table]:
    """One table a recipe: fabric by fabric, the fastest and the cheapest step marked; and of
    several seeds one that compares them pair by pair.
    """
    traffics = list(dict.fromkeys(row["traffic"] for row in summary["rows"]))
    by_recipe = [(name, [r for r in summary["rows"] if r["traffic"] == name]) for name in traffics]
    return [table for both in by_recipe for table in (_table(*both), paired(*both)) if table]


def paired(traffic: str, rows: Sequence[dict]) -> Table | None:
    """How much longer each step is than the first fabric's, seed by seed; None without two seeds.

    A seed draws the same job for all, so its differences vary less than its steps; the interval
    is Student's for their mean.
    """
    first, *others = rows
    seeds = [row.get("seeds") for row in rows]
    known = all(len(row.get("step_s_by_seed", ())) > 1 for row in rows)
    if not others or not known or seeds.count(seeds[0]) != len(seeds):
        return None
    differ = [interval(np.subtract(r["step_s_by_seed"], first["step_s_by_seed"])) for r in others]
    unit = _unit_of_differences(differ, first["step_s"])
    lines = [
        (row["label"], *_differs(*one, first, unit))
        for row, one in zip(others, differ, strict=True)
    ]
    columns = "fabric, policy", "step", "95 % interval", ""
    note = f"Mean over seeds {_listed(seeds[0])} of what a step takes more."
    return Table.of(f"{traffic}: seed by seed against {first['label']}", columns, lines, note)


def _unit_of_differences(
    differ: Sequence[tuple[float, float]], step: float
) -> tuple[float, str, int]:
    """That of the steps, or a finer one of which the largest difference has more than a digit."""
    largest = max(abs(mean) + half for mean, half in differ)
    factor, _, digits = usual = unit_of([step])
    return unit_of([largest]) if 0 < largest * factor < 10 ** (1 - digits) else usual


def _differs(
    mean: float, half: float, first: dict, unit: tuple[float, str, int]
) -> tuple[str, str, str]:
    """The mean difference, its interval, and whether that leaves a doubt."""
    low, high = mean - half, mean + half
    doubt = low <= NEGLIGIBLE * first["step_s"] and high >= -NEGLIGIBLE * first["step_s"]
    verdict = "not told apart" if doubt else "slower" if mean > 0 else "faster"
    factor, name, digits = unit
    about, least, most = (f"{value * factor:+.{digits}f}" for value in (mean, low, high))
    return f"{about} {name}", f"{least} .. {most} {name}", verdict


def interval(values: np.ndarray) -> tuple[float, float]:
    """(mean, half of its 95 % interval by Student) of two values or more."""
    from scipy.special import stdtrit

    n = len(values)
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


def at_size(runs: Sequence[dict]) -> Table:
    """Runs of several recipes: step, exposed communication, the network's price and dollars a step,
    a line a fabric.
    """
    recipes = list(dict.fromkeys(run["traffic"] for run in runs))
    by_recipe: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for run in runs:
        price, paid = (run["cost"][key] for key in ("network_usd", "usd_per_step"))
        cells = (
            f"{run['gpus']:,}",
            f"{run['step_s']:.1f} s",
            show_time(exposed_of(run)),
            f"{show_thousands(price)} k$" if price else "–",
            f"{paid:,.2f} $" if paid else "–",
        )
        by_recipe.setdefault(run["traffic"], []).append((run["fabric"], cells))
    rows = [(fabric, name, *cells) for name in recipes for fabric, cells in by_recipe[name]]
    columns = "fabric", "recipe", "GPUs", "step", "exposed", "network", "a step"
    note = "Switches of real size, one seed; circuits as each fabric was designed for."
    return Table.of("The same fabrics at size, simulated", columns, rows, note, (0, 1))


def write_page(path: Path, summary: dict) -> None:
    """report.html of a comparison."""
    from .folder import write_text
    from .html import STILL, render_moving
    from .page.pictures import front

    text = render_moving(
        "grid.html",
        STILL,
        {"pictures": {"front": [front(summary["rows"])]}},
        title=_title(summary),
        summary=summary,
        tables=tables(summary),
        bound=any(map(is_bound, summary["rows"])),
    )
    write_text(path, text)


def _title(summary: dict) -> str:
    fabrics = dict.fromkeys(head_of(row["fabric"]) for row in summary["rows"])
    traffics = dict.fromkeys(row["traffic"] for row in summary["rows"])
    return f"{' and '.join(traffics)} on {', '.join(fabrics)}"


def _groups(entries: Sequence[dict]) -> list[list[dict]]:
    """Entries that differ by their seed alone. What was asked for in two words, as `own` and what
    that is on a fabric, is one run of each seed.
    """
    groups: dict[tuple, dict[int, dict]] = {}
    for entry in entries:
        key = tuple(entry.get(name, "") for name in ("traffic", "fabric", "scheduler", "policy"))
        groups.setdefault(key, {}).setdefault(entry["seed"], entry)
    return [list(by_seed.values()) for by_seed in groups.values()]


def _row(group: list[dict]) -> dict:
    first = group[0]
    values = {name: [_measure(entry, name) for entry in group] for name in MEASURES}
    row = {key: first[key] for key in ("traffic", "fabric", "policy", "engine", "gpus")}
    row |= {"scheduler": first.get("scheduler", ""), "label": _label(first)}
    row |= {
        "seeds": [entry["seed"] for entry in group],
        "rewires": sum(len(e["rewires"]) for e in group) / len(group),
    }
    for name, by_seed in values.items():
        row |= {
            name: sum(by_seed) / len(by_seed),
            f"{name}_least": min(by_seed),
            f"{name}_most": max(by_seed),
        }
    row |= {"step_s_by_seed": values["step_s"], "step_within_s": _within(group)}
    row |= {key: first["cost"].get(key) for key in ("network_usd", "network_watts")}
    paid = [entry["cost"].get("usd_per_step") for entry in group]
    return row | {"usd_per_step": None if None in paid else sum(paid) / len(paid)}


def _within(group: list[dict]) -> dict | None:
    """The interval of the mean step: seeds draw lengths, and share what the model is off."""
    known = [entry.get("step_within_s") for entry in group]
    if None in known:
        return None
    ends = {end: sum(one[end] for one in known) / len(known) for end in ("low", "high")}
    return ends | {"basis": known[0]["basis"]}


def _measure(entry: dict, name: str) -> float:
    if name == "comm_s":
        return sum(phase[name] for phase in entry["phases"].values())
    return exposed_of(entry) if name == "exposed_s" else entry[name]


def _label(entry: dict) -> str:
    """The fabric as it was asked for, who schedules its computing, and its circuit policy where
    that is not its own.
    """
    name, policy = head_of(entry["fabric"]), entry["policy"]
    usual = policy in ("ecmp", OWN.get(name, "demand"))
    words = entry.get("scheduler", ""), "" if usual else policy
    shape = re.sub(r",oversubscription=([\d.]+)", r" \1:1", entry["fabric"])
    return " ".join([shape, "+".join(word for word in words if word)]).strip()


def _table(traffic: str, rows: Sequence[dict]) -> Table:
    alike = all(row["seeds"] == rows[0]["seeds"] for row in rows)  # or runs are missing
    several = not alike or len(rows[0]["seeds"]) > 1
    ranked = rows if alike else ()
    best = {key: _lowest(ranked, key) for key in ("step_s", "exposed_s", "usd_per_step")}
    unit = unit_of(row["step_s"] for row in rows)
    lines = [
        Row(
            r["label"] if alike else f"{r['label']} (seed {_listed(r['seeds'])})",
            tuple(_cells(r, rows[0], several, unit)),
            _best(r, best),
        )
        for r in rows
    ]
    columns = (
        "fabric, policy",
        "step",
        "80 % within",
        "exposed",
        "against first",
        "rewires",
        "network k$",
        "kW",
        "$ a step",
        "Pareto",
    )
    seeds = f"seed {rows[0]['seeds'][0]}"
    if several:
        which = f"seeds {_listed(rows[0]['seeds'])}" if alike else "the seeds that each has"
        seeds = f"mean of {which} [least .. most]"
    note = (
        "Exposed: what communication adds to computing. Pareto: no other is both cheaper and "
        "faster."
    )
    if not alike:
        note += " Runs are missing, so the means are of different seeds, and differ by that too."
    return Table(f"{traffic}: {_hosts(rows)} hosts, {seeds}", columns, tuple(lines), note)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _hosts(rows: Sequence[dict]) -> str:
    """How many the fabrics have: one number, or from the fewest to the most."""
    counts = [row["gpus"] for row in rows]
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))


def _lowest(rows: Sequence[dict], key: str) -> float | None:
    """The lowest value, where one row alone has it."""
    values = sorted(row[key] for row in rows if row[key] is not None)
    tied = len(values) > 1 and values[1] <= values[0] * (1 + NEGLIGIBLE)
    return None if tied or not values else values[0]


def _best(row: dict, best: dict) -> int:
    """The column to mark: the first in which this row is the best of all."""
    columns = {"step_s": 0, "exposed_s": 2, "usd_per_step": 7}
    return next(
        (
            column
            for key, column in columns.items()
            if row[key] is not None and row[key] == best[key]
        ),
        -1,
    )


def _cells(row: dict, first: dict, several: bool, unit: tuple[float, str, int]):
    factor, name, digits = unit
    step, least, most = (
        f"{row[key] * factor:.{digits}f}" for key in ("step_s", "step_s_least", "step_s_most")
    )
    yield f"{step} {name}" + (f" [{least} .. {most}]" if several else "")
    within = row.get("step_within_s")
    yield show_between(within["low"], within["high"]) if within else "–"
    yield show_time(row["exposed_s"])
    yield f"{row['exposed_s'] / first['exposed_s']:.2f} x" if first["exposed_s"] > 0 else "–"
    yield f"{row['rewires']:g}"
    yield "–" if row["network_usd"] is None else show_thousands(row["network_usd"])
    yield "–" if row["network_watts"] is None else f"{row['network_watts'] / 1e3:,.2f}"
    yield "–" if row["usd_per_step"] is None else f"{row['usd_per_step']:,.4g}"
    yield "bound" if is_bound(row) else "yes" if row["pareto"] else ""
