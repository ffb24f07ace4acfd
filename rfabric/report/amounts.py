"""How much, for pictures and tables alike: the seconds and dollars of runs side by side, bytes from
rack to rack, how full links are. Whoever draws works nothing out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of, host_numbers
from ..fabric.model import TIERS
from ..optics import Demand
from ..routing.rows import Entries, begins
from ..trace import PhaseKey, Trace
from ..units import show_thousands
from .compare import NEGLIGIBLE, unit_of
from .result import Result
from .summary import Run, bill_of, phase_sums
from .within import phases_within, step_within

MOST_RACKS = 64  # that one can tell apart
MOST_PHASES = 4  # whose demands stand side by side
MOST_PARTS = 12  # of a bar that one can tell apart
PART_COLOURS = {
    "nic": "#7c8a99", "transceiver": "#3aa9c4", "electrical-port": "#d6568c", "ocs-port": "#8f7fd6",
    "patch-panel-port": "#b9a6e8", "copper-cable": "#c98a4b", "fibre-metre": "#d8c36a",
}  # fmt: skip
TIER_NAMES = (
    "GPU to ToR",
    "ToR to GPU",
    "ToR to aggregation",
    "aggregation to ToR",
    "aggregation to core",
    "core to aggregation",
    "ToR to core",
    "core to ToR",
    "core to core",
    "server to aggregation",
    "aggregation to server",
    "ToR to electrical",
    "electrical to ToR",
)
_SHORT = {"host": "GPU", "edge": "ToR"}
Interval = tuple[float, float] | None  # low and high, in the unit of the panel


@dataclass(frozen=True)
class Panel:
    """Bars of one unit, which `title` names, one a run.

    stacks: of each bar its parts by name; texts: what stands behind it; ranges: where eight in ten
    measured bars would end, parts: and each part of it by name.
    """

    title: str
    stacks: tuple[dict[str, float], ...]
    texts: tuple[str, ...]
    ranges: tuple[Interval, ...]
    parts: tuple[dict[str, Interval], ...]


def panels(runs: Sequence[Run], ocs_port_usd: float | None = None) -> tuple[Panel, Panel, Panel]:
    """The seconds of the runs' phases, exposed communication by phase, and the networks' cost by
    part, an OCS port as listed or at this price (USD).
    """
    sums = [phase_sums(run.result) for run in runs]
    return (
        _seconds(runs, sums, "seconds", _step_title(runs, sums)),
        _seconds(runs, sums, "exposed_s", _exposed_title(runs, sums)),
        _dollars(runs, ocs_port_usd),
    )


def _seconds(runs: Sequence[Run], sums: Sequence[dict], key: str, title: str) -> Panel:
    stacks = _told_apart(
        [{name: max(s[key], 0.0) for name, s in phases.items()} for phases in sums]
    )
    factor, unit, _ = unit_of(sum(s.values()) for s in stacks)
    foretold = [run.result if key == "seconds" else None for run in runs]
    return Panel(
        f"{title} ({unit})",
        tuple({name: value * factor for name, value in s.items()} for s in stacks),
        tuple(f"{sum(s.values()) * factor:,.2f}" for s in stacks),
        tuple(_ends(result and step_within(result), factor) for result in foretold),
        tuple(
            {n: _ends(one, factor) for n, one in phases_within(result).items() if n in stack}
            if result
            else {}
            for result, stack in zip(foretold, stacks, strict=True)
        ),
    )


def _told_apart(stacks: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """These parts, or beyond MOST_PARTS the largest, and the others as one."""
    largest = {name: max(s.get(name, 0.0) for s in stacks) for stack in stacks for name in stack}
    if len(largest) <= MOST_PARTS:
        return list(stacks)
    kept = set(sorted(largest, key=lambda name: -largest[name])[: MOST_PARTS - 1])
    rest = f"{len(largest) - len(kept):,} other phases"
    return [
        {name: value for name, value in stack.items() if name in kept}
        | {rest: sum(value for name, value in stack.items() if name not in kept)}
        for stack in stacks
    ]


def _dollars(runs: Sequence[Run], ocs_port_usd: float | None) -> Panel:
    stacks = tuple(_parts(run.result.fabric, ocs_port_usd) for run in runs)
    texts = tuple(show_thousands(1e3 * sum(s.values())) if s else "no price" for s in stacks)
    none = (None,) * len(runs), ({},) * len(runs)
    return Panel("network cost (k$)", stacks, texts, *none)


def _parts(fabric: Fabric, ocs_port_usd: float | None) -> dict[str, float]:
    """Thousands of dollars of each kind of part; none where there is no price."""
    parts: dict[str, float] = {}
    try:
        for line in bill_of(fabric, ocs_port_usd).lines:
            parts[line.item] = parts.get(line.item, 0.0) + line.usd / 1e3
    except RFabricError:
        return {}
    return parts


def _ends(within: dict | None, factor: float) -> Interval:
    return (within["low"] * factor, within["high"] * factor) if within else None


def _exposed_title(runs: Sequence[Run], sums: Sequence[dict]) -> str:
    """Those of phases that overlap add up to another figure than the run's."""
    added = [sum(phase["exposed_s"] for phase in phases.values()) for phases in sums]
    near = (
        abs(a - run.result.exposed_seconds) <= NEGLIGIBLE * run.result.step_seconds
        for a, run in zip(added, runs, strict=True)
    )
    return "exposed communication" if all(near) else "exposed by phase, one after another"


def _step_title(runs: Sequence[Run], sums: Sequence[dict]) -> str:
    """Phases that overlap, as those of several jobs do, add up to more than the step."""
    added = [sum(phase["seconds"] for phase in phases.values()) for phases in sums]
    steps = [run.result.step_seconds for run in runs]
    alone = all(a <= step * (1 + NEGLIGIBLE) for a, step in zip(added, steps, strict=True))
    return "step time" if alone else "phases, one after another"


def readable(fabric: Fabric) -> bool:
    """Whether one can tell the racks apart, or at least the pods."""
    few = len(fabric.racks) <= MOST_RACKS
    return few or (
        fabric.pods <= MOST_RACKS and all(fabric.node[rack].pod >= 0 for rack in fabric.racks)
    )


def demands(trace: Trace, fabric: Fabric) -> tuple[str, list[tuple[PhaseKey, Demand]], int]:
    """`rack` or `pod`, by pod where there are many racks; the bytes between these of the first
    four phases that send any from rack to rack; and how many do. None with more pods than one can
    read.
    """
    if not readable(fabric):
        return "pod", [], 0
    of = _sending(trace, fabric)
    every = ((key, trace.demand(fabric, key)) for key in trace.phase_keys)
    by_phase = list(islice(((key, d) for key, d in every if not d.idle), MOST_PHASES))
    if len(fabric.racks) <= MOST_RACKS:
        return "rack", by_phase, of
    return "pod", [(key, _by_pod(fabric, d)) for key, d in by_phase], of


def _sending(trace: Trace, fabric: Fabric) -> int:
    """How many phases send from rack to rack."""
    rack = cabling_of(fabric).host_rack[host_numbers(fabric, trace.hosts)]
    away = (rack[trace.src] != rack[trace.dst]) & (trace.total > 0)
    codes = trace.step.astype(np.int64) * len(trace.phases) + trace.phase
    return len(np.unique(codes[away]))


def _by_pod(fabric: Fabric, demand: Demand) -> Demand:
    """The same bytes from pod to pod; those inside a pod stand on the diagonal."""
    pod = np.array([fabric.node[rack].pod for rack in demand.racks])
    rows, columns, sent = demand.sent
    names = tuple(f"p{i + 1}" for i in range(fabric.pods))
    return Demand(
        names,
        Entries.summed(pod[rows], pod[columns], sent, fabric.pods),
        demand.window,
        demand.phase,
    )


def by_tier(result: Result) -> dict[str, np.ndarray]:
    """Utilisation of the directed links of each tier."""
    fabric, used = result.fabric, result.utilisation
    tier = np.array([TIERS.index(node.tier) for node in fabric.nodes])[
        cabling_of(fabric).node
    ]  # of the port a link leaves
    codes = tier * len(TIERS) + tier[np.arange(len(tier)) ^ 1]
    names = {
        c: [_SHORT.get(t, t) for t in (TIERS[c // len(TIERS)], TIERS[c % len(TIERS)])]
        for c in set(codes[begins(codes)].tolist())
    }
    return {" to ".join(pair): used[codes == code] for code, pair in names.items()}
