"""How much: runs side by side as bars, bytes from rack to rack, how full the links are."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...errors import RFabricError
from ...fabric import Fabric
from ...fabric.cabling import cabling_of
from ...fabric.model import TIERS
from ...optics import Demand
from ...routing.rows import Entries, begins
from ...trace import PhaseKey, Trace
from ...units import show_size
from ..compare import NEGLIGIBLE, PHASE_NAMES, phase_text
from ..result import Result
from ..summary import Run, bill_of, labels, phase_sums
from ..within import phases_within, step_within
from .drawing import (
    EPS_COLOUR,
    MOST_RACKS,
    OTHER_COLOUR,
    PAGE,
    PAGE_WIDTH,
    PHASE_COLOURS,
    Theme,
    bare,
    entitle,
    readable,
    tooltip,
)

PART_COLOURS = {
    "nic": "#7c8a99", "transceiver": "#3aa9c4", "electrical-port": "#d6568c", "ocs-port": "#8f7fd6",
    "patch-panel-port": "#b9a6e8", "copper-cable": "#c98a4b", "fibre-metre": "#d8c36a",
}  # fmt: skip
MOST_DOTS = 500
MOST_PHASES = 4  # side by side
Interval = tuple[float, float] | None  # low and high, in the unit of the axis


def comparison(
    runs: Sequence[Run], theme: Theme = PAGE, ocs_port_usd: float | None = None
) -> Figure:
    """Three bars a run: the seconds of its phases, with a line where eight in ten measured steps
    would be and below it thin ones where each phase would end, exposed communication by phase, the
    network's cost by part, an OCS port as listed or at this price.
    """
    figure = Figure(figsize=(PAGE_WIDTH, 1.2 + 0.42 * len(runs)))
    panels = figure.subplots(1, 3)
    sums = [phase_sums(r.result) for r in runs]
    for axes, key, title in (
        (panels[0], "seconds", _step_title(runs, sums)),
        (panels[1], "exposed_s", _exposed_title(runs, sums)),
    ):
        stacks = [{name: max(s[key], 0.0) for name, s in phases.items()} for phases in sums]
        top = max((sum(s.values()) for s in stacks), default=0.0)
        factor, unit = (1e3, "ms") if top < 1 else (1.0, "s")
        colours = {name: PHASE_COLOURS.get(name, OTHER_COLOUR) for s in stacks for name in s}
        texts = [f"{sum(s.values()) * factor:,.{1 if factor > 1 else 2}f}" for s in stacks]
        known = [run.result if key == "seconds" else None for run in runs]
        of_step = [step_within(result) if result else None for result in known]
        of_phases = [phases_within(result) if result else {} for result in known]
        _stacked(
            axes,
            [{k: v * factor for k, v in s.items()} for s in stacks],
            colours,
            texts,
            f"{title} ({unit})",
            theme,
            [_ends(one, factor) for one in of_step],
            [{name: _ends(one, factor) for name, one in each.items()} for each in of_phases],
        )
    stacks = []
    for run in runs:
        try:
            parts: dict[str, float] = {}
            for line in bill_of(run.result.fabric, ocs_port_usd).lines:
                parts[line.item] = parts.get(line.item, 0.0) + line.usd / 1e3
        except RFabricError:
            parts = {}
        stacks.append(parts)
    texts = [f"{sum(s.values()):,.0f}" if s else "no price" for s in stacks]
    _stacked(panels[2], stacks, PART_COLOURS, texts, "network cost (k$)", theme)
    panels[0].set_yticks(range(len(runs)), labels(runs), size=9, color=theme.ink)
    for axes in panels[1:]:
        axes.set_yticks([])
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.12, right=0.985, top=1 - 0.35 / height, bottom=0.72 / height, wspace=0.12
    )
    return figure


def _ends(within: dict | None, factor: float) -> tuple[float, float] | None:
    return within and (within["low"] * factor, within["high"] * factor)


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


def demand(
    unit: str, by_phase: Sequence[tuple[PhaseKey, Demand]], theme: Theme = PAGE
) -> Figure | None:
    """Rack to rack bytes, a picture per phase, or pod to pod, as `demands` tells them; None of
    none.
    """
    if not by_phase:
        return None
    figure = Figure(figsize=(2.75 * max(len(by_phase), 1), 3.1))
    for i, (key, d) in enumerate(by_phase):
        axes = figure.add_subplot(1, len(by_phase), i + 1)
        _heatmap(axes, d, PHASE_COLOURS.get(key.phase, OTHER_COLOUR), theme)
        entitle(axes, phase_text(str(key)), theme)
        axes.set_xlabel(
            f"to {unit}; darkest {show_size(d.sent.bytes.max())}", size=8, color=theme.muted
        )
        if i == 0:
            axes.set_ylabel(f"from {unit}", size=8, color=theme.muted)
    figure.subplots_adjust(left=0.08, right=0.98, top=0.9, bottom=0.14, wspace=0.16)
    return figure


def demands(trace: Trace, fabric: Fabric) -> tuple[str, list[tuple[PhaseKey, Demand]]]:
    """`rack` or `pod`, by pod where there are many racks, and the bytes between these of the first
    four phases that send any; none with more pods than one can read.
    """
    every = ((key, trace.demand(fabric, key)) for key in trace.phase_keys)
    by_phase = list(islice(((key, d) for key, d in every if not d.idle), MOST_PHASES))
    if len(fabric.racks) <= MOST_RACKS:
        return "rack", by_phase
    return "pod", [(key, _by_pod(fabric, d)) for key, d in by_phase] if readable(fabric) else []


def load(runs: Sequence[Run], theme: Theme = PAGE) -> Figure:
    """Every directed link as a dot at its utilisation while flows are in flight; a bar at each
    tier's mean.

    Where a tier has more than MOST_DOTS links, an area as high as links are frequent at each
    utilisation.
    """
    tiers_of = [by_tier(run.result) for run in runs]
    tiers = [t for t in _TIER_NAMES if any(t in groups for groups in tiers_of)]
    figure = Figure(figsize=(PAGE_WIDTH, 0.8 + 0.4 * len(tiers)))
    panels = figure.subplots(1, len(runs), squeeze=False, sharey=True)[0]
    for axes, groups, label in zip(panels, tiers_of, labels(runs), strict=True):
        for y, tier in enumerate(tiers):
            used = groups.get(tier)
            if used is None:
                continue
            _loads(axes, used * 100, y)
            bar = axes.plot([used.mean() * 100] * 2, [y - 0.36, y + 0.36], color=theme.ink, lw=2)[0]
            tooltip(
                bar,
                f"{tier}: mean {used.mean():.1%}, highest {used.max():.1%}, "
                f"{len(used)} directed links",
            )
            axes.text(102, y, f"{used.max():.0%}", size=8, va="center", color=theme.muted)
        entitle(axes, label, theme)
        axes.set_xlim(-2, 116)
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        axes.set_ylim(len(tiers) - 0.5, -0.5)
        axes.set_yticks(range(len(tiers)), tiers, size=8.5, color=theme.ink)
        bare(axes, theme, grid="x")
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.15, right=0.985, top=1 - 0.32 / height, bottom=0.3 / height, wspace=0.08
    )
    return figure


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


def _stacked(
    axes,
    stacks: list[dict],
    colours: dict,
    texts: list[str],
    title: str,
    theme: Theme,
    ranges: Sequence[Interval] = (),
    parts: Sequence[dict[str, Interval]] = (),
) -> None:
    panel = 0.13 + 0.42 * len(stacks)  # inches high
    ends = [high for _, high in filter(None, ranges)]
    ends += [sum(high for _, high in filter(None, each.values())) for each in parts]
    top = max([*ends, *(sum(s.values()) for s in stacks)], default=0.0) or 1.0
    ranges, parts = ranges or [None] * len(stacks), parts or [{}] * len(stacks)
    for y, (stack, text, some) in enumerate(zip(stacks, texts, ranges, strict=True)):
        left = 0.0
        for i, (name, value) in enumerate(stack.items()):
            colour, what = colours.get(name, OTHER_COLOUR), PHASE_NAMES.get(name, name)
            bar = axes.barh(y, value, left=left, height=0.62, color=colour)
            tooltip(bar[0], f"{what}: {value:,.3g}")
            if one := parts[y].get(name):
                _between(
                    axes,
                    (left + one[0], left + one[1]),
                    y + 0.36 + 0.045 * (i % 3),
                    colour,
                    what,
                    one,
                )
            left += value
        if some:
            _between(axes, some, y, theme.ink, "step", some)
            left = max(left, some[1])
        axes.text(left + 0.015 * top, y, text, va="center", size=8.5, color=theme.ink)
    axes.set_title(title, size=9.5, color=theme.ink)
    axes.set_xlim(0, 1.2 * top)
    axes.set_ylim(len(stacks) - 0.5, -0.5)
    bare(axes, theme, grid="x")
    names = [n for n in colours if any(s.get(n, 0) > 0 for s in stacks)]
    handles = [Rectangle((0, 0), 1, 1, fc=colours[n]) for n in names]
    axes.legend(
        handles,
        [PHASE_NAMES.get(n, n) for n in names],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2 / panel),
        frameon=False,
        ncols=3,
        fontsize=8,
        labelcolor=theme.muted,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.1,
        handletextpad=0.4,
    )


def _between(
    axes, ends: tuple[float, float], y: float, colour: str, what: str, said: tuple[float, float]
) -> None:
    """A line from end to end; its tooltip says the seconds themselves."""
    line = axes.plot(ends, [y, y], color=colour, lw=1, marker="|", ms=6 if what == "step" else 4)[0]
    tooltip(line, f"{what}, 80 % within {said[0]:,.2g} to {said[1]:,.2g}")


def _heatmap(axes, d, colour: str, theme: Theme) -> None:
    n, top = len(d.racks), d.sent.bytes.max()
    for i, j, sent in zip(*d.sent, strict=True):
        alpha = 0.12 + 0.88 * sent / top
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, fc=colour, alpha=alpha, ec="none")
        axes.add_artist(cell)  # add_patch works out limits, which are set below
        tooltip(cell, f"{d.racks[i]} to {d.racks[j]}: {show_size(sent)}")
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    axes.set_aspect("equal")
    every = max(1, n // 8)
    axes.set_xticks(range(0, n, every), d.racks[::every])
    axes.set_yticks(range(0, n, every), d.racks[::every])
    bare(axes, theme)
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.grid)


_TIER_NAMES = (
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


def _loads(axes, percent: np.ndarray, y: float) -> None:
    """Links of one tier at height `y`."""
    if len(percent) <= MOST_DOTS:
        spread = (np.arange(len(percent)) * 0.6180339887 % 1 - 0.5) * 0.55
        axes.scatter(percent, y + spread, s=9, color=EPS_COLOUR, alpha=0.55, lw=0)
        return
    count, edges = np.histogram(percent, bins=100, range=(0, max(100.0, percent.max())))
    half = 0.36 * np.sqrt(count / count.max())  # the root, so that the few are seen beside the many
    half = np.append(half, half[-1])
    axes.fill_between(edges, y - half, y + half, step="post", color=EPS_COLOUR, alpha=0.55, lw=0)
