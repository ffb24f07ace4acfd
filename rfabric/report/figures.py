"""The pictures of a report, drawn with matplotlib: SVG that follows the page's light or dark colours, PNG for files.

    topology    the cables: pods, ToRs, aggregation, core
    circuits    per epoch: ToRs (pods, where there are too many ToRs to tell apart) on a circle, light paths between them
    timeline    GPUs at work and flows in flight, the whole step
    close_ups   flows in flight of each communication phase, run by run
    comparison  time, exposed communication, cost
    demand      rack to rack (or pod to pod) bytes by phase
    load        utilisation of every directed link by tier: dots, or how often each occurs

Every function returns a matplotlib Figure; `svg` makes it text for a page, `png` a file.
"""

import io
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle, Wedge

from ..errors import RFabricError
from ..fabric import Fabric, Link
from ..fabric.cabling import cabling_of
from ..fabric.model import RACKS, TIERS
from ..optics import Circuits, Demand, optical_paths
from ..routing import routes_of
from ..routing.ways import Entries
from ..trace import Trace
from ..units import show_size, show_time
from .compare import PHASE_NAMES, phase_text
from .folder import replacing, writing
from .result import Result, union_seconds
from .summary import Run, labels, phase_sums

PHASE_COLOURS = {"generation": "#4f86e8", "training": "#e8912d", "weight_sync": "#2fa678"}
OTHER_COLOUR = "#8f7fd6"
PLANE_COLOURS = ("#4f86e8", "#e8912d", "#2fa678", "#d6568c", "#8f7fd6", "#3aa9c4", "#b58a3c", "#7c8a99")
PART_COLOURS = {
    "nic": "#7c8a99", "transceiver": "#3aa9c4", "electrical-port": "#d6568c", "ocs-port": "#8f7fd6",
    "patch-panel-port": "#b9a6e8", "copper-cable": "#c98a4b", "fibre-metre": "#d8c36a",
}  # fmt: skip
OCS_COLOUR, EPS_COLOUR, DARK_COLOUR = "#8f7fd6", "#4f86e8", "#d6568c"
BUS = 1.36  # height at which the electrical path runs along the ToRs
PAGE_WIDTH = 11.0  # inches: a figure of this width fills the page
DRAWN_TORS, MOST_TORS, MOST_HOSTS, MOST_EPOCHS, MOST_RACKS, MOST_DOTS = 24, 8, 8, 12, 64, 500


@dataclass(frozen=True)
class Theme:
    """Colours of ink and paper. The default ones are stand-ins that `svg` replaces by the page's CSS variables."""

    ink: str = "#010203"
    muted: str = "#040506"
    grid: str = "#070809"
    paper: str = "#0a0b0c"


PAGE = Theme()
PRINT = Theme("#1d2430", "#68727f", "#d5dae1", "#ffffff")


def svg(figure: Figure) -> str:
    """The figure as an <svg> element: text stays text, colours follow the page, titles of parts become tooltips."""
    text = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "rfabric"}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    for name in ("ink", "muted", "grid", "paper"):
        body = body.replace(getattr(PAGE, name), f"var(--{name})")
    body = re.sub(r'<g id="tip:([^"]*)">', lambda m: f"<g><title>{m[1]}</title>", body)
    body = re.sub(
        r'<svg (.*?)width="[^"]*"',
        rf'<svg \1style="width: {100 * figure.get_figwidth() / PAGE_WIDTH:.1f}%"',
        body,
        count=1,
        flags=re.S,
    )
    body = re.sub(r' height="[\d.]+pt"', "", body, count=1)
    return _unique_ids(body, f"{zlib.crc32(body.encode()):08x}")


def png(figure: Figure, path: str | Path) -> None:
    """Write the figure as a PNG file, beside its name first."""
    with writing(path), replacing(Path(path)) as beside:
        figure.savefig(beside, format="png", dpi=160, facecolor=PRINT.paper)


def topology(fabric: Fabric, theme: Theme = PAGE) -> Figure:
    """Pods with their ToRs and hosts, aggregation and core above, every cable between what is drawn."""
    at = _places(fabric)
    xs, ys = zip(*at.values(), strict=True)
    width = max(xs) - min(xs)
    figure, axes = _figure(PAGE_WIDTH, 4.6, theme)
    _pod_boxes(axes, fabric, at, theme)
    _cables(axes, fabric, [link for link in fabric.links if link.a.node in at and link.b.node in at], at, theme)
    for name, (x, y) in at.items():
        _symbol(axes, fabric.node[name], x, y, theme)
    axes.set_xlim(min(xs) - 0.05 * width - 0.6, max(xs) + 0.05 * width + 0.6)
    axes.set_ylim(min(ys) - 0.55, max(ys) + 0.6)
    axes.set_axis_off()
    for label, tier in (
        ("core", "core"),
        ("aggregation", "aggregation"),
        ("ToR", "edge"),
        ("server", "server"),
        ("GPU", "host"),
    ):
        rows = [at[n.name][1] for n in fabric.nodes if n.tier == tier and n.name in at]
        if rows:
            axes.text(min(xs) - 0.7, rows[0], label, ha="right", va="center", size=9, color=theme.muted)
    if len(at) < len(fabric.nodes):
        words = f"{len(at):,} of {len(fabric.nodes):,} nodes drawn"
        axes.text(max(xs) + 0.5, min(ys) - 0.45, words, ha="right", va="center", size=9, color=theme.muted)
    return figure


def circuits(result: Result, theme: Theme = PAGE) -> Figure | None:
    """One circle of ToRs or of pods per epoch, joined by its light paths; None without OCS, or with too many pods."""
    if not result.fabric.ocses or not result.epochs or not _readable(result.fabric):
        return None
    draw = _circle if len(result.fabric.racks) <= MOST_RACKS else _pod_circle
    epochs = result.epochs[:MOST_EPOCHS]
    columns = min(len(epochs), 4)
    rows = math.ceil(len(epochs) / columns)
    figure = Figure(figsize=(2.75 * columns, 3.0 * rows))
    for i, (time, lit) in enumerate(epochs):
        axes = figure.add_subplot(rows, columns, i + 1)
        draw(axes, result.fabric, lit, theme)
        name = "at the start" if i == 0 else phase_text(result.rewires[i - 1].phase)
        axes.set_title(f"epoch {i}  {name}", size=9.5, color=theme.ink, pad=12)
        moved = f", {result.rewires[i - 1].circuits_changed:,} changed" if i else ""
        words = f"from {time:.3f} s\n{len(lit):,} circuits{moved}"
        axes.text(0, -1.3, words, ha="center", va="top", size=8, color=theme.muted)
    figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.4 / (3 * rows), bottom=0.05, wspace=0.05, hspace=0.3)
    return figure


def timeline(result: Result, theme: Theme = PAGE) -> Figure:
    """The whole step: a row per activity, as high as its share of busy rows; rewires as dashed lines."""
    found = _activities(result)
    figure, axes = _figure(PAGE_WIDTH, 0.55 + 0.3 * len(found), theme)
    span = result.step_seconds or 1.0
    for y, (key, begin, end, sends) in enumerate(found):
        x, busy = _busy(begin, end)
        colour = PHASE_COLOURS.get(key.phase, OTHER_COLOUR)
        tip = (
            f"{key.name}: {show_time(x[0])} to {show_time(x[-1])}, {len(begin)} {'flows' if sends else 'compute rows'}"
        )
        level = 0.8 * busy / busy.max()
        area = axes.fill_between(
            x, y + 0.4, y + 0.4 - level, step="post", color=colour, alpha=0.9 if sends else 0.45, lw=0
        )
        _tip(area, tip)
        mark = axes.plot([x[0], x[-1]], [y + 0.4] * 2, color=colour, lw=2.2, solid_capstyle="butt")[0]
        _tip(mark, tip)
        x_text, side = _beside(float(x[0]), float(x[-1]), span)
        axes.text(x_text, y, show_time(union_seconds(begin, end)), ha=side, va="center", size=8, color=theme.muted)
    for r in result.rewires:
        line = axes.axvline(r.requested, color=DARK_COLOUR, lw=1.1, ls=(0, (3, 2)), zorder=0)
        _tip(line, f"rewire {r.epoch} for {r.phase} at {r.requested:.4f} s: dark {show_time(r.dark)}")
    axes.set_yticks(range(len(found)), [a[0].name for a in found], size=8.5, color=theme.ink)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(-0.005 * span, 1.005 * span)
    axes.set_xlabel("s", size=8.5, color=theme.muted)
    _bare(axes, theme, grid="x")
    figure.subplots_adjust(left=0.19, right=0.985, top=0.99, bottom=0.42 / figure.get_figheight())
    return figure


def close_ups(runs: Sequence[Run], theme: Theme = PAGE, most: int = 6) -> Figure | None:
    """Flows in flight in each communication phase, a row per run: one axis of the seconds in which any is in flight."""
    first = runs[0].result
    keys = sorted(first.communication, key=lambda k: -max(r.result.communication[k] for r in runs))[:most]
    keys = [k for k in first.communication if k in keys]
    if not keys:
        return None
    figure = Figure(figsize=(PAGE_WIDTH, 0.75 + 1.15 * len(runs)))
    grid = figure.subplots(len(runs), len(keys), squeeze=False, sharex="col")
    for column, key in enumerate(keys):
        span = max(run.result.communication[key] for run in runs) * 1.03
        for row, (run, label) in enumerate(zip(runs, labels(runs), strict=True)):
            axes = grid[row][column]
            _close_up(axes, run.result, key, span, theme)
            if row == 0:
                axes.set_title(phase_text(f"{key[1]}/{key[0]}") + f"\n{key[2]}", size=9, color=theme.ink)
            if column == 0:
                axes.set_ylabel(label, size=8.5, color=theme.ink, rotation=0, ha="right", va="center", labelpad=8)
            if row == len(runs) - 1:
                axes.set_xlabel("ms" if span < 1 else "s", size=8.5, color=theme.muted)
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.12, right=0.985, top=1 - 0.45 / height, bottom=0.42 / height, wspace=0.12, hspace=0.22
    )
    return figure


def comparison(runs: Sequence[Run], theme: Theme = PAGE) -> Figure:
    """Three bars a run: the step by phase, exposed communication by phase, the network's cost by part."""
    from ..fabric.cost import bill

    figure = Figure(figsize=(PAGE_WIDTH, 1.2 + 0.42 * len(runs)))
    panels = figure.subplots(1, 3)
    sums = [phase_sums(r.result) for r in runs]
    for axes, key, title in ((panels[0], "seconds", "step time"), (panels[1], "exposed_s", "exposed communication")):
        stacks = [{name: max(s[key], 0.0) for name, s in found.items()} for found in sums]
        top = max((sum(s.values()) for s in stacks), default=0.0)
        factor, unit = (1e3, "ms") if top < 1 else (1.0, "s")
        colours = {name: PHASE_COLOURS.get(name, OTHER_COLOUR) for s in stacks for name in s}
        texts = [f"{sum(s.values()) * factor:,.{1 if factor > 1 else 2}f}" for s in stacks]
        _stacked(
            axes, [{k: v * factor for k, v in s.items()} for s in stacks], colours, texts, f"{title} ({unit})", theme
        )
    stacks = []
    for run in runs:
        try:
            parts: dict[str, float] = {}
            for line in bill(run.result.fabric).lines:
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
    figure.subplots_adjust(left=0.12, right=0.985, top=1 - 0.35 / height, bottom=0.72 / height, wspace=0.12)
    return figure


def demand(trace: Trace, fabric: Fabric, theme: Theme = PAGE) -> Figure | None:
    """Rack to rack bytes, a picture per phase that sends any; by pod where there are many racks.

    None when nothing is sent, or with more pods than one can read.
    """
    found = [(key, trace.demand(fabric, key)) for key in trace.phase_keys]
    found = [(key, d) for key, d in found if not d.idle][:4]
    if not found or not _readable(fabric):
        return None
    unit = "rack" if len(fabric.racks) <= MOST_RACKS else "pod"
    if unit == "pod":
        found = [(key, _by_pod(fabric, d)) for key, d in found]
    figure = Figure(figsize=(2.75 * max(len(found), 1), 3.1))
    for i, (key, d) in enumerate(found):
        axes = figure.add_subplot(1, len(found), i + 1)
        _heatmap(axes, d, PHASE_COLOURS.get(key.phase, OTHER_COLOUR), theme)
        axes.set_title(phase_text(str(key)), size=9.5, color=theme.ink)
        axes.set_xlabel(f"to {unit}; darkest {show_size(d.sent.bytes.max())}", size=8, color=theme.muted)
        if i == 0:
            axes.set_ylabel(f"from {unit}", size=8, color=theme.muted)
    figure.subplots_adjust(left=0.08, right=0.98, top=0.9, bottom=0.14, wspace=0.16)
    return figure


def load(runs: Sequence[Run], theme: Theme = PAGE) -> Figure:
    """Every directed link as a dot at its utilisation while flows are in flight; a bar at each tier's mean.

    Where a tier has more than MOST_DOTS links, an area as high as links are frequent at each utilisation.
    """
    tiers_of = [_by_tier(run.result) for run in runs]
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
            _tip(bar, f"{tier}: mean {used.mean():.1%}, highest {used.max():.1%}, {len(used)} directed links")
            axes.text(102, y, f"{used.max():.0%}", size=8, va="center", color=theme.muted)
        axes.set_title(label, size=9.5, color=theme.ink)
        axes.set_xlim(-2, 116)
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        axes.set_ylim(len(tiers) - 0.5, -0.5)
        axes.set_yticks(range(len(tiers)), tiers, size=8.5, color=theme.ink)
        _bare(axes, theme, grid="x")
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.15, right=0.985, top=1 - 0.32 / height, bottom=0.3 / height, wspace=0.08)
    return figure


# --- topology ------------------------------------------------------------------------------------------------------


def _places(fabric: Fabric) -> dict[str, tuple[float, float]]:
    """x, y of the nodes to draw: hosts spread below, switches above the middle of what they serve."""
    racks = max(sum(n.tier in RACKS and n.pod == 0 for n in fabric.nodes), 1)
    shown = range(min(max(fabric.pods, 1), max(DRAWN_TORS // min(racks, MOST_TORS), 1)))
    at: dict[str, tuple[float, float]] = {}
    left = 0.0
    for pod in shown:
        racks = [n.name for n in fabric.nodes if n.tier in RACKS and n.pod == pod][:MOST_TORS]
        start = left
        for rack in racks:
            hosts = [h for h in fabric.hosts if fabric.rack_of[h] == rack][:MOST_HOSTS]
            for i, host in enumerate(hosts):
                at[host] = (left + 0.22 * i, 0.0)
            at[rack] = (left + 0.11 * max(len(hosts) - 1, 0), 0.95)
            left += 0.22 * max(len(hosts), 2) + 0.25
        end = left - 0.25
        middle = [n.name for n in fabric.nodes if n.tier == "aggregation" and n.pod == pod][:MOST_TORS]
        for i, name in enumerate(middle):
            at[name] = (start + (end - start) * (i + 0.5) / len(middle) - 0.1, 2.2)
        left += 0.5
    cores = [n.name for n in fabric.nodes if n.tier == "core"][: 2 * MOST_TORS]
    width = left - 0.75
    for i, name in enumerate(cores):
        at[name] = (width * (i + 1) / (len(cores) + 1), 3.5)
    thin = [n for n in fabric.nodes if n.tier == "electrical"][:MOST_TORS]
    for i, node in enumerate(thin):
        at[node.name] = (width + 0.45 + 0.6 * i, BUS)
    return at


def _pod_boxes(axes, fabric: Fabric, at: dict, theme: Theme) -> None:
    for pod in range(fabric.pods):
        spots = [spot for name, spot in at.items() if fabric.node[name].pod == pod]
        if spots:
            xs, ys = zip(*spots, strict=True)
            corner, width = (min(xs) - 0.22, -0.3), max(xs) - min(xs) + 0.44
            height = max(ys) + 0.7
            shape = "round,pad=0.02,rounding_size=0.12"
            axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=shape, fc="none", ec=theme.grid, lw=1))
            axes.text((min(xs) + max(xs)) / 2, -0.5, f"pod {pod + 1}", ha="center", size=9, color=theme.muted)


def _cables(axes, fabric: Fabric, links: Sequence[Link], at: dict, theme: Theme) -> None:
    lines, colours = [], []
    for link in links:
        nodes = [fabric.node[end.node] for end in (link.a, link.b)]
        (x, y), (to_x, to_y) = (at[n.name] for n in nodes)
        electrical = "electrical" in (n.tier for n in nodes)  # drawn as a bus: up from the ToR, along, to the switch
        lines.append([(x, y), (x, to_y), (to_x, to_y)] if electrical else [(x, y), (to_x, to_y)])
        optical = any(n.kind == "ocs" for n in nodes)
        colours.append(DARK_COLOUR if electrical else OCS_COLOUR if optical else theme.muted)
    axes.add_collection(LineCollection(lines, colors=colours, lw=0.8, alpha=0.5, zorder=1))


def _symbol(axes, node, x: float, y: float, theme: Theme) -> None:
    edge = {"ocs": OCS_COLOUR, "eps": EPS_COLOUR, "host": theme.muted}[node.kind]
    edge = DARK_COLOUR if node.tier == "electrical" else edge
    marker, size, face = (
        ("o", 4, edge) if node.kind == "host" else ("D" if node.kind == "ocs" else "s", 10, theme.paper)
    )
    mark = axes.plot(x, y, marker=marker, ms=size, mfc=face, mec=edge, mew=1.4, ls="", zorder=3)[0]
    kind = {"ocs": "optical circuit switch", "eps": "electrical packet switch", "host": "GPU"}[node.kind]
    _tip(mark, f"{node.name}: {kind}, {node.tier}")
    if node.kind != "host" and node.tier not in RACKS:
        axes.text(x + 0.14, y + 0.16, node.name, ha="left", va="center", size=7, color=theme.muted)


# --- circuits ------------------------------------------------------------------------------------------------------


def _circle(axes, fabric: Fabric, lit: Circuits, theme: Theme) -> None:
    racks = fabric.racks
    angle = {r: math.pi / 2 - 2 * math.pi * (i + 0.5) / len(racks) for i, r in enumerate(racks)}
    spot = {r: (math.cos(a), math.sin(a)) for r, a in angle.items()}
    _pod_arcs(axes, fabric, angle, theme)
    paths = [path for path in optical_paths(fabric, lit) if path.out < path.into]
    for path in paths:
        plane = fabric.node[fabric.peer[path.out][1].node].plane
        chord = _chord(axes, spot[path.out.node], spot[path.into.node], plane, min(1.5, 100 / len(paths)))
        if len(racks) <= MOST_RACKS:
            _tip(chord, f"{path.out.node} – {path.into.node}: plane {plane}")
    for rack, (x, y) in spot.items():
        axes.add_patch(Circle((x, y), min(0.055, 2.2 / len(racks)), fc=theme.ink, ec=theme.paper, lw=0.6, zorder=3))
        if len(racks) <= 32:
            axes.text(1.16 * x, 1.16 * y, rack, ha="center", va="center", size=7, color=theme.ink)
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _pod_circle(axes, fabric: Fabric, lit: Circuits, theme: Theme) -> None:
    """Pods on a circle, each chord as wide as light paths join the two."""
    cabling, lights, pods = cabling_of(fabric), routes_of(fabric, lit).lights, fabric.pods
    pod = np.array([node.pod for node in fabric.nodes])[cabling.node]
    optical = (np.diff(lights.offsets) > 1) & (lights.out < lights.into)
    ends = np.sort(np.stack([pod[lights.out[optical]], pod[lights.into[optical]]]), axis=0)
    joined = np.bincount(ends[0] * pods + ends[1], minlength=pods * pods).reshape(pods, pods)
    angle = [math.pi / 2 - 2 * math.pi * (i + 0.5) / pods for i in range(pods)]
    spot = [(math.cos(a), math.sin(a)) for a in angle]
    widest = max(int(np.triu(joined, 1).max(initial=0)), 1)
    for i, j in zip(*np.nonzero(np.triu(joined, 1)), strict=True):
        chord = _chord(axes, spot[i], spot[j], 0, 0.15 + 2.5 * joined[i, j] / widest)
        _tip(chord, f"pod {i + 1} – pod {j + 1}: {joined[i, j]:,} light paths")
    for i, (x, y) in enumerate(spot):
        mark = axes.add_patch(Circle((x, y), min(0.055, 2.2 / pods), fc=theme.ink, ec=theme.paper, lw=0.6, zorder=3))
        _tip(mark, f"pod {i + 1}: {joined[i, i]:,} light paths inside")
        axes.text(1.16 * x, 1.16 * y, f"{i + 1}", ha="center", va="center", size=7, color=theme.ink)
    axes.text(0, 1.26, "pods", ha="center", size=7, color=theme.muted)
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _readable(fabric: Fabric) -> bool:
    """Whether one can tell the racks apart, or at least the pods."""
    in_pods = all(fabric.node[rack].pod >= 0 for rack in fabric.racks)
    return len(fabric.racks) <= MOST_RACKS or (in_pods and fabric.pods <= MOST_RACKS)


def _by_pod(fabric: Fabric, demand: Demand) -> Demand:
    """The same bytes from pod to pod; those inside a pod stand on the diagonal."""
    pod, (rows, columns, sent) = np.array([fabric.node[rack].pod for rack in demand.racks]), demand.sent
    names = tuple(f"p{i + 1}" for i in range(fabric.pods))
    return Demand(names, Entries.summed(pod[rows], pod[columns], sent, fabric.pods), demand.window, demand.phase)


def _pod_arcs(axes, fabric: Fabric, angle: dict[str, float], theme: Theme) -> None:
    half = math.pi / len(angle)
    for pod in range(fabric.pods):
        angles = [a for r, a in angle.items() if fabric.node[r].pod == pod]
        if angles:
            ends = math.degrees(min(angles) - 0.85 * half), math.degrees(max(angles) + 0.85 * half)
            axes.add_patch(Wedge((0, 0), 1.31, *ends, width=0.035, fc=theme.grid, ec="none"))


def _chord(axes, a: tuple[float, float], b: tuple[float, float], plane: int, width: float):
    """A curve bent towards the centre, each plane a little differently, so that parallel light paths stay apart."""
    t = np.linspace(0, 1, 24)[:, None]
    middle, along = (np.array(a) + np.array(b)) / 2, np.array(b) - np.array(a)
    bend = 0.35 * middle + 0.14 * (plane % 4 - 1.5) * np.array((-along[1], along[0])) / max(np.hypot(*along), 1.0)
    points = (1 - t) ** 2 * np.array(a) + 2 * t * (1 - t) * bend + t**2 * np.array(b)
    return axes.plot(*points.T, color=PLANE_COLOURS[plane % len(PLANE_COLOURS)], lw=width, alpha=0.9)[0]


# --- time ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Activity:
    step: int
    phase: str
    label: str

    @property
    def name(self) -> str:
        text = f"{PHASE_NAMES.get(self.phase, self.phase)}: {self.label}" if self.label else self.phase or "flows"
        return f"{text} ({self.step})" if self.step else text


def _beside(begin: float, end: float, span: float) -> tuple[float, str]:
    """Where a bar's text goes, x and alignment: after it, else before it, else inside."""
    gap = 0.006 * span
    if end < 0.9 * span:
        return end + gap, "left"
    return (begin - gap, "right") if begin > 0.1 * span else ((begin + end) / 2, "center")


def _activities(result: Result, most: int = 24) -> list[tuple[_Activity, np.ndarray, np.ndarray, bool]]:
    """(what, begin, end, whether it sends) of each (step, phase, label), compute and flows apart, by time."""
    trace = result.trace
    begin = np.where(trace.size > 0, result.start, result.finish - trace.gap)
    code = (trace.step.astype(np.int64) << 32) | (trace.phase.astype(np.int64) << 17) | (trace.label << 1)
    code |= trace.size > 0
    worth = (trace.size > 0) | (trace.gap > 0)
    found = []
    for value in np.unique(code[worth]):
        rows = np.flatnonzero((code == value) & worth)
        row = rows[0]
        key = _Activity(int(trace.step[row]), trace.phases[trace.phase[row]], trace.labels[trace.label[row]])
        found.append((key, begin[rows], result.finish[rows], bool(trace.size[row])))
    longest = sorted(found, key=lambda a: a[1].min() - a[2].max())[:most]
    return sorted((a for a in found if any(a is b for b in longest)), key=lambda a: (a[1].min(), a[2].max()))


def _busy(begin: np.ndarray, end: np.ndarray, most: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """(times, intervals open from each time on); thinned to `most` points, each the highest of its bin."""
    times = np.unique(np.concatenate((begin, end)))
    count = np.searchsorted(np.sort(begin), times, side="right") - np.searchsorted(np.sort(end), times, side="right")
    if len(times) > most:
        bins = np.linspace(0, len(times) - 1, most).astype(int)
        return times[bins], np.maximum.reduceat(count, bins)
    return times, np.maximum(count, 1e-9)


def _close_up(axes, result: Result, key: tuple[int, str, str], span: float, theme: Theme) -> None:
    """Flows in flight over the time in which any is: idle time between bursts is left out, a thin line stands there."""
    rows = result.trace.communication()[key]
    begin, end = result.start[rows], result.finish[rows]
    bursts = merged(begin, end)
    x, busy = _busy(begin, end)
    factor = 1e3 if span < 1 else 1.0
    colour = PHASE_COLOURS.get(key[1], OTHER_COLOUR)
    axes.fill_between(squeezed(x, bursts) * factor, 0, busy, step="post", color=colour, alpha=0.85, lw=0)
    top = 1.25 * len(rows) if len(bursts) == 1 else 1.4 * float(busy.max())
    for cut in squeezed(bursts[1:, 0], bursts) if len(bursts) <= 16 else ():
        axes.axvline(cut * factor, color=theme.paper, lw=1)
    for r in result.rewires:
        asked, programmed, usable = squeezed(np.array([r.requested, r.programmed, r.usable]), bursts) * factor
        if usable > asked:
            axes.axvspan(asked, usable, color=theme.paper, alpha=0.55, lw=0)  # who waits, pales
            for left, right, alpha in ((asked, programmed, 0.4), (programmed, usable, 1.0)):
                band = Rectangle((left, 0.91 * top), right - left, 0.09 * top, fc=DARK_COLOUR, alpha=alpha)
                axes.add_patch(band)
                _tip(band, f"rewire {r.epoch}: dark {show_time(r.dark)}, {r.circuits_changed} circuits change")
    seconds = show_time(result.communication[key])
    axes.text(0.985, 0.99, seconds, transform=axes.transAxes, ha="right", va="top", size=8.5, color=theme.ink)
    axes.set_ylim(0, top)
    axes.set_xlim(0, factor * span)
    axes.set_yticks([])
    _bare(axes, theme, grid="x")


def merged(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The union of intervals as disjoint ones, ascending: float64[n, 2]."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((begin[first], reach[last]))


def squeezed(times: np.ndarray, bursts: np.ndarray) -> np.ndarray:
    """Seconds of `bursts` that have passed at each of `times`: a clock that stands still in between."""
    passed = np.concatenate(([0.0], np.cumsum(bursts[:, 1] - bursts[:, 0])))
    index = np.searchsorted(bursts[:, 0], times, side="right") - 1
    inside = np.minimum(times - bursts[np.maximum(index, 0), 0], (bursts[:, 1] - bursts[:, 0])[np.maximum(index, 0)])
    return np.where(index < 0, 0.0, passed[np.maximum(index, 0)] + inside)


# --- bars, dots, squares ---------------------------------------------------------------------------------------------


def _stacked(axes, stacks: list[dict], colours: dict, texts: list[str], title: str, theme: Theme) -> None:
    panel = 0.13 + 0.42 * len(stacks)  # inches high
    top = max((sum(s.values()) for s in stacks), default=0.0) or 1.0
    for y, (stack, text) in enumerate(zip(stacks, texts, strict=True)):
        left = 0.0
        for name, value in stack.items():
            bar = axes.barh(y, value, left=left, height=0.62, color=colours.get(name, OTHER_COLOUR))
            _tip(bar[0], f"{PHASE_NAMES.get(name, name)}: {value:,.3g}")
            left += value
        axes.text(left + 0.015 * top, y, text, va="center", size=8.5, color=theme.ink)
    axes.set_title(title, size=9.5, color=theme.ink)
    axes.set_xlim(0, 1.2 * top)
    axes.set_ylim(len(stacks) - 0.5, -0.5)
    _bare(axes, theme, grid="x")
    names = [n for n in colours if any(s.get(n, 0) > 0 for s in stacks)]
    handles = [Rectangle((0, 0), 1, 1, fc=colours[n]) for n in names]
    axes.legend(
        handles, [PHASE_NAMES.get(n, n) for n in names], loc="upper center", bbox_to_anchor=(0.5, -0.2 / panel),
        frameon=False, ncols=3, fontsize=8, labelcolor=theme.muted, handlelength=0.9, handleheight=0.9,
        columnspacing=1.1, handletextpad=0.4,
    )  # fmt: skip


def _heatmap(axes, d, colour: str, theme: Theme) -> None:
    n, top = len(d.racks), d.sent.bytes.max()
    for i, j, sent in zip(*d.sent, strict=True):
        alpha = 0.12 + 0.88 * sent / top
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, fc=colour, alpha=alpha, ec="none")
        axes.add_patch(cell)
        _tip(cell, f"{d.racks[i]} to {d.racks[j]}: {show_size(sent)}")
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    axes.set_aspect("equal")
    every = max(1, n // 8)
    axes.set_xticks(range(0, n, every), d.racks[::every])
    axes.set_yticks(range(0, n, every), d.racks[::every])
    _bare(axes, theme)
    for spine in axes.spines.values():
        spine.set(visible=True, color=theme.grid)


_TIER_NAMES = ("GPU to ToR", "ToR to GPU", "ToR to aggregation", "aggregation to ToR", "aggregation to core",
               "core to aggregation", "ToR to core", "core to ToR", "core to core", "server to aggregation",
               "aggregation to server", "ToR to electrical", "electrical to ToR")  # fmt: skip
_SHORT = {"host": "GPU", "edge": "ToR"}


def _by_tier(result: Result) -> dict[str, np.ndarray]:
    """Utilisation of the directed links of each tier."""
    fabric, used = result.fabric, result.utilisation
    tier = np.array([TIERS.index(node.tier) for node in fabric.nodes])[
        cabling_of(fabric).node
    ]  # of the port a link leaves
    codes = tier * len(TIERS) + tier[np.arange(len(tier)) ^ 1]
    names = {
        c: [_SHORT.get(t, t) for t in (TIERS[c // len(TIERS)], TIERS[c % len(TIERS)])] for c in set(codes.tolist())
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


# --- shared ----------------------------------------------------------------------------------------------------------


def _figure(width: float, height: float, theme: Theme):
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    figure.subplots_adjust(left=0.06, right=0.99, top=0.99, bottom=0.02)
    return figure, axes


def _bare(axes, theme: Theme, grid: str = "") -> None:
    """No frame, muted ticks, a light grid."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=8, colors=theme.muted)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=theme.grid, lw=0.8)
    for label in axes.get_yticklabels():
        label.set_color(theme.ink)


def _tip(artist, text: str) -> None:
    """A tooltip in the SVG."""
    artist.set_gid("tip:" + text)


def _unique_ids(body: str, salt: str) -> str:
    """Ids with `salt`, so that figures of one page do not clash."""
    body = re.sub(r'\bid="([^"]+)"', rf'id="\1-{salt}"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#\1-{salt})", body)
    return re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#\1-{salt}"', body)
