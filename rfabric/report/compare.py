"""Runs side by side, as tables that the terminal and the HTML page both print.

A Table is text: rows of cells, ready to be aligned. Numbers of one row share a unit, so they can be
compared by eye.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.cost import Bill, Line
from ..specs import head_of
from ..units import show_between, show_rate, show_size, show_thousands, show_time
from .choices import other_jobs
from .summary import Run, bill_of, exposed_of, labels
from .within import within_note

NEGLIGIBLE = 1e-6  # of the step: a row of the comparison that shows nothing, a lead that is none
MOST_PHASES = 40  # that a comparison names: the longest
KIND_NAMES = {"host": "GPU", "eps": "electrical packet switch", "ocs": "optical circuit switch"}
TIER_NAMES = {
    "host": "hosts",
    "edge": "ToRs",
    "aggregation": "aggregation",
    "core": "core",
    "electrical": "electrical path",
    "server": "servers",
}
PHASE_NAMES = {
    "generation": "generation",
    "training": "training",
    "weight_sync": "weight sync",
    "flows": "flows",
}
PACKETS = {"emulate": "emulated", "ns3": "ns-3 packets"}  # an engine that sends: its seconds
# a part of dollars a step (`fabric.dollars`): what it is called
DOLLARS = {
    "gpus": "GPUs' other rent",
    "gpu_power": "GPUs' electricity",
    "nics": "NICs",
    "network": "network",
    "network_power": "network's electricity",
}
# and those of jobs that have CPU servers
CPU_DOLLARS = {"cpu_servers": "CPU servers' other rent", "cpu_power": "CPU servers' electricity"}
# `training/0`, or with the label of a communication phase
_PHASE_KEY = re.compile(r"(.*?)/(\d+)(?: (.*))?")


@dataclass(frozen=True)
class Row:
    """One row; `best` is the column (from 0, the name not counted) to emphasise, -1: none."""

    name: str
    cells: tuple[str, ...]
    best: int = -1
    indent: int = 0


@dataclass(frozen=True)
class Table:
    """A titled table: `columns` names the first column and the others, `words` says which of them
    hold text.

    `note` explains what is not obvious.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    words: tuple[int, ...] = (0,)

    @classmethod
    def of(
        cls,
        title: str,
        columns: Iterable[str],
        rows: Iterable[Sequence[str]],
        note: str = "",
        words: tuple[int, ...] = (0,),
    ) -> "Table":
        """A table of plain rows, each with a cell a column."""
        named = tuple(Row(name, tuple(cells)) for name, *cells in rows)
        return cls(title, tuple(columns), named, note, words)


def comparison(summary: dict) -> Table:
    """What each fabric makes of the step: one column a run. The lowest value of a row is best."""
    runs = summary["runs"]
    steps = max(r.get("steps", 1) for r in runs)  # folders of before do not say
    took = [r["step_s"] for r in runs]
    tie = NEGLIGIBLE * max(took)
    rows = [_seconds("step time" if steps == 1 else "all steps", took, tie)]
    rows += _within_row([r.get("step_within_s") for r in runs], 1)
    every = list(dict.fromkeys(name for r in runs for name in r["phases"]))
    names = _longest(runs, every)
    for name in names:
        rows += _phase_rows(runs, [name], "seconds")
        rows += _within_row([r["phases"].get(name, {}).get("within_s") for r in runs], 2)
    exposed = [exposed_of(r) for r in runs]
    rows.append(_seconds("exposed communication", exposed, tie))
    rows += _phase_rows(runs, names, "exposed_s")
    if len(runs) > 1 and exposed[0] > 0:
        shares = [e / exposed[0] for e in exposed]
        rows.append(_row(f"against {runs[0]['label']}", shares, "{:.2f} x".format, 1, None))
    rows.append(Row("rewires", tuple(str(len(r["rewires"])) for r in runs)))
    rows.append(_seconds("dark time", [r["dark_s"] for r in runs], None))
    rows.append(Row("bytes lost", tuple(show_size(r["lost_bytes"]) for r in runs)))
    rows += _fidelity_rows(runs)
    rows += _cost_rows(runs)
    notes = (
        "Exposed: how much sooner the step would end if no bytes took any time; a phase, if its "
        "own took none."
    )
    if len(names) < len(every):
        notes += f" Of {len(every):,} phases the {len(names)} longest."
    notes += within_note(runs) + other_jobs(summary)
    title = "One step on each fabric" if steps == 1 else f"{steps} steps on each fabric"
    return Table(title, ("", *(r["label"] for r in runs)), tuple(rows), notes)


def _longest(runs: Sequence[dict], names: Sequence[str]) -> list[str]:
    """The MOST_PHASES of these phases that take longest in some run, in their order."""
    most = {
        name: max(r["phases"][name]["seconds"] for r in runs if name in r["phases"])
        for name in names
    }
    kept = set(sorted(names, key=lambda name: -most[name])[:MOST_PHASES])
    return [name for name in names if name in kept]


def on_front(row: dict, rows: Sequence[dict], key: str = "network_usd") -> bool:
    """Whether no other row is at least as cheap and as fast, and better in one; faster or cheaper
    by next to nothing is as fast, or as cheap.
    """
    if row.get(key) is None or is_bound(row):
        return False
    mine = row[key], row["step_s"]
    others = [
        (r[key], r["step_s"])
        for r in rows
        if r is not row and r.get(key) is not None and not is_bound(r)
    ]
    return not any(
        all(its <= own * (1 + NEGLIGIBLE) for its, own in zip(other, mine, strict=True))
        and any(its * (1 + NEGLIGIBLE) < own for its, own in zip(other, mine, strict=True))
        for other in others
    )


def is_bound(row: dict) -> bool:
    """Whether the row is the one non-blocking switch that nobody can buy at size."""
    return head_of(row.get("fabric", "")) == "ideal"


def rewires(summary: dict) -> Table:
    """Every rewire with its four timestamps; the last three as delays after the request."""
    rows = []
    for run in summary["runs"]:
        for r in run["rewires"]:
            delays = [
                r[key] - r["requested_s"] for key in ("programmed_s", "dark_until_s", "usable_s")
            ]
            times = (f"{r['requested_s']:.4f} s", *(f"+{1e3 * delay:.2f} ms" for delay in delays))
            phase = phase_text(r["phase"]) if r["phase"] else "–"
            cells = (str(r["epoch"]), phase, *times, str(r["circuits_changed"]))
            exposed = f"{1e3 * r['exposed_s']:.2f} ms" if "exposed_s" in r else "–"
            rows.append(Row(run["label"], (*cells, exposed, show_size(r["lost_bytes"]))))
    columns = (
        "fabric",
        "#",
        "phase",
        "requested",
        "programmed",
        "dark until",
        "usable",
        "changed",
        "exposed",
        "lost",
    )
    note = (
        "#: epoch. Delays count from the request. Changed: circuits down and up. "
        "Exposed: waited for by some flow."
    )
    return Table("Rewires", columns, tuple(rows), note, words=(0, 2))


def fidelity(summary: dict) -> Table:
    """Seconds of each communication phase with packets, real or ns-3's, against simulated ones."""
    runs = [r for r in summary["runs"] if r["fidelity"]]
    engines = {r["engine"] for r in runs}
    world = PACKETS[engines.pop()] if len(engines) == 1 else "packets"
    rows, short = [], set()
    for run in runs:
        short |= {
            f"{name} (below {show_time(run['fidelity']['resolution_s'])})"
            for name in run["fidelity"]["unresolved"]
        }
        for name, phase in run["fidelity"]["phases"].items():
            times = (f"{phase[key] * 1e3:.2f} ms" for key in ("emulated_s", "simulated_s"))
            rows.append(Row(run["label"], (name, *times, f"{phase['error']:+.1%}")))
    columns = "fabric", "communication phase", world, "simulated", "error"
    note = "Time with a flow of the phase in flight."
    if short:
        note += f" Too short to be resolved at this scale: {', '.join(sorted(short))}."
    title = f"{world.removeprefix('ns-3 ').capitalize()} against simulated"
    return Table(title, columns, tuple(rows), note, (0, 1))


def bills(runs: Sequence[Run], ocs_port_usd: float | None = None) -> list[Table]:
    """The bill of each distinct fabric, an OCS port as listed or at this price; fabrics without a
    price are left out.
    """
    return [bill_table(label, priced) for label, priced in _priced(runs, ocs_port_usd)]


def bill_table(title: str, priced: Bill) -> Table:
    """The lines of one bill and their sum."""
    rows = [
        Row(str(line.part), (f"{line.count:,.0f}", f"{line.usd:,.0f}", _watts(line)))
        for line in priced.lines
    ]
    rows.append(
        Row(
            "sum",
            ("", f"{priced.usd:,.0f}", "–" if priced.watts is None else f"{priced.watts:,.0f}"),
        )
    )
    return Table(title, ("part", "count", "USD", "W"), tuple(rows))


def fabric_table(fabric: Fabric) -> Table:
    """What one fabric is made of: nodes of each tier, their ports, cables of each rate."""
    cabling, ports = cabling_of(fabric), {}
    for node, cables in zip(fabric.nodes, cabling.degree.tolist(), strict=True):
        ports.setdefault((node.tier, node.kind), []).append(cables)
    rows = [
        Row(TIER_NAMES[tier], (KIND_NAMES[kind], f"{len(each):,}", f"{max(each)}"))
        for (tier, kind), each in ports.items()
    ]
    for rate, ends in zip(*np.unique(-cabling.rate, return_counts=True), strict=True):
        rows.append(Row("cables", (show_rate(-rate), f"{ends // 2:,}", "")))
    delay = f"; a circuit is dark for {show_time(fabric.reconfig_delay)}" if fabric.ocses else ""
    title = (
        f"{fabric.spec or fabric.name}: {len(fabric.hosts):,} GPUs in {fabric.pods} "
        f"pod{'s' * (fabric.pods > 1)}{delay}"
    )
    return Table(title, ("", "", "count", "ports each"), tuple(rows), words=(0, 1))


def cost_sources(runs: Sequence[Run]) -> list[str]:
    """Where the prices and watts of the bills come from, each source once."""
    return list(dict.fromkeys(source for _, priced in _priced(runs) for source in priced.sources))


def _priced(runs: Sequence[Run], ocs_port_usd: float | None = None) -> list[tuple[str, Bill]]:
    bills: dict[str, tuple[str, Bill]] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        fabric = run.result.fabric
        try:
            bills.setdefault(fabric.spec or fabric.name, (label, bill_of(fabric, ocs_port_usd)))
        except RFabricError:
            continue
    return list(bills.values())


def phase_text(key: str) -> str:
    """`weight_sync/0` -> `weight sync`, `training/1 all-gather` -> `training all-gather, step 1`;
    the first step is not named.
    """
    match = _PHASE_KEY.fullmatch(key)
    phase, step, label = match.groups() if match else (key, 0, "")
    return phase_name(phase, int(step), label)


def phase_name(phase: str, step: int, label: str | None = "") -> str:
    """What `phase_text` says of these: names may have a `/`, too."""
    name = " ".join(filter(None, (PHASE_NAMES.get(phase, phase) or "flows", label)))
    return name if step == 0 else f"{name}, step {step}"


def _watts(line: Line) -> str:
    return f"{line.watts:,.0f}" if line.power else "–"


def _within_row(intervals: Sequence[dict | None], indent: int) -> list[Row]:
    """A row of intervals; none where all are of nothing."""
    some = [one if one and one["high"] > 0 else None for one in intervals]
    cells = tuple(show_between(one["low"], one["high"]) if one else "–" for one in some)
    bases = " and ".join(dict.fromkeys(one["basis"] for one in some if one))
    return [Row(f"80 % within ({bases})", cells, indent=indent)] if any(some) else []


def _phase_rows(runs: list[dict], names: list[str], key: str) -> list[Row]:
    rows, tie = [], NEGLIGIBLE * max(r["step_s"] for r in runs)
    for name in names:
        values = [r["phases"].get(name, {}).get(key) for r in runs]
        if key == "exposed_s" and max(v or 0.0 for v in values) <= tie:
            continue
        rows.append(_seconds(PHASE_NAMES.get(name, name), values, tie, indent=1))
    return rows


def _fidelity_rows(runs: list[dict]) -> list[Row]:
    checked = [r["fidelity"] or {} for r in runs]
    if not any(checked):
        return []
    kinds = ("error against simulation, median", "median_error"), ("worst", "worst_error")
    return [
        _row(name, [f.get(key) for f in checked], "{:.1%}".format, indent, None)
        for indent, (name, key) in enumerate(kinds)
    ]


def _cost_rows(runs: list[dict]) -> list[Row]:
    usd, watts, joules = (
        [r["cost"].get(k) for r in runs] for k in ("network_usd", "network_watts", "step_joules")
    )
    if not any(usd):
        return []
    return [
        _row("network cost", usd, lambda v: f"{show_thousands(v)} k$"),
        _row("network power", watts, lambda v: f"{v / 1e3:,.2f} kW"),
        _joules("network energy a step", joules),
        *_dollar_rows(runs),
    ]


def _dollar_rows(runs: list[dict]) -> list[Row]:
    """Dollars a step and their parts, where the price of the GPUs is known."""
    paid = [r["cost"].get("usd_per_step") for r in runs]
    if not any(paid):
        return []
    parts = [r["cost"].get("usd_per_step_parts") or {} for r in runs]
    rows = [_row("dollars a step", paid, lambda v: f"{v:,.4f} $")]
    return (
        rows
        + [
            _row(name, [p.get(key) for p in parts], lambda v: f"{v:,.4f} $", indent=1, tie=None)
            for key, name in (DOLLARS | CPU_DOLLARS).items()
            if any(p.get(key) for p in parts)
        ]
        + _job_rows(runs)
    )


def _job_rows(runs: list[dict]) -> list[Row]:
    """Dollars a step of each job, where several share the GPUs."""
    by_job = [r["cost"].get("usd_per_step_jobs") or {} for r in runs]
    names = dict.fromkeys(name for jobs in by_job for name in jobs)
    return [
        _row(
            f"a step of {name}, by GPU time",
            [jobs.get(name) for jobs in by_job],
            lambda v: f"{v:,.4f} $",
            indent=1,
        )
        for name in names
    ]


def _joules(name: str, values: Sequence[float | None]) -> Row:
    """Kilojoules, or joules where the largest of the row is small."""
    largest = max((v for v in values if v is not None), default=0.0)
    factor, unit, digits = (
        (1.0, "J", 1) if largest < 1e3 else (1e-3, "kJ", 2 if largest < 1e5 else 0)
    )
    return _row(name, values, lambda v: f"{v * factor:,.{digits}f} {unit}")


def _seconds(name: str, values: Sequence[float | None], tie: float | None, indent: int = 0) -> Row:
    """In one unit; a lead of `tie` s is none, and None marks no best."""
    factor, unit, digits = unit_of(v for v in values if v is not None)
    return _row(name, values, lambda v: f"{v * factor:,.{digits}f} {unit}", indent, tie)


def unit_of(values: Iterable[float]) -> tuple[float, str, int]:
    """Seconds, ms or us, whichever the largest of these seconds asks for: what to multiply by, the
    unit, and how many decimals to show.
    """
    largest = max(map(abs, values), default=0.0)
    if 0 < largest < 1e-4:  # two decimals of a ms would say little of it
        return 1e6, "us", 2
    return (1e3, "ms", 2) if 0 < largest < 1 else (1.0, "s", 3)


def _row(name: str, values: Sequence, show, indent: int = 0, tie: float | None = 0.0) -> Row:
    cells = tuple("–" if v is None else show(v) for v in values)
    known = sorted(v for v in values if v is not None)
    leads = tie is not None and len(known) > 1 and known[1] - known[0] > tie
    best = values.index(known[0]) if leads else -1
    return Row(name, cells, best if cells.count(cells[best]) == 1 else -1, indent)
