"""What is cabled, and what is lit: pods with their cables, circuits epoch by epoch."""

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Wedge

from ...fabric import Fabric, Link
from ...fabric.cabling import cabling_of
from ...fabric.model import RACKS
from ...optics import Circuits, optical_paths
from ...routing import routes_of
from ..compare import phase_text
from ..result import Result
from .drawing import (
    DARK_COLOUR,
    EPS_COLOUR,
    MOST_RACKS,
    OCS_COLOUR,
    PAGE,
    PAGE_WIDTH,
    Theme,
    entitle,
    new_figure,
    readable,
    tooltip,
)

PLANE_COLOURS = (
    "#4f86e8",
    "#e8912d",
    "#2fa678",
    "#d6568c",
    "#8f7fd6",
    "#3aa9c4",
    "#b58a3c",
    "#7c8a99",
)
BUS = 1.36  # height at which the electrical path runs along the ToRs
DRAWN_TORS, MOST_TORS, MOST_HOSTS, MOST_EPOCHS = 24, 8, 8, 12


def topology(fabric: Fabric, theme: Theme = PAGE) -> Figure:
    """Pods with their ToRs and hosts, aggregation and core above, every cable between what is
    drawn.
    """
    at = _places(fabric)
    xs, ys = zip(*at.values(), strict=True)
    width = max(xs) - min(xs)
    figure, axes = new_figure(PAGE_WIDTH, 4.6)
    _pod_boxes(axes, fabric, at, theme)
    ends = np.array([node.name in at for node in fabric.nodes])[cabling_of(fabric).node]
    drawn = np.flatnonzero(ends.reshape(-1, 2).all(axis=1))
    _cables(axes, fabric, [fabric.links[number] for number in drawn], at, theme)
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
            axes.text(
                min(xs) - 0.7, rows[0], label, ha="right", va="center", size=9, color=theme.muted
            )
    if len(at) < len(fabric.nodes):
        words = f"{len(at):,} of {len(fabric.nodes):,} nodes drawn"
        axes.text(
            max(xs) + 0.5, max(ys) + 0.52, words, ha="right", va="center", size=9, color=theme.muted
        )
    return figure


def circuits(result: Result, theme: Theme = PAGE) -> Figure | None:
    """One circle of ToRs or of pods per epoch, joined by its light paths; None without OCS, or with
    too many pods.
    """
    if not result.fabric.ocses or not result.epochs or not readable(result.fabric):
        return None
    draw = rack_circle if len(result.fabric.racks) <= MOST_RACKS else pod_circle
    epochs = result.epochs[:MOST_EPOCHS]
    columns = min(len(epochs), 4)
    rows = math.ceil(len(epochs) / columns)
    figure = Figure(figsize=(2.75 * columns, 3.0 * rows))
    for i, (time, lit) in enumerate(epochs):
        axes = figure.add_subplot(rows, columns, i + 1)
        draw(axes, result.fabric, lit, theme)
        name = "at the start" if i == 0 else phase_text(result.rewires[i - 1].phase)
        entitle(axes, f"epoch {i}  {name}", theme, pad=12)
        moved = f", {result.rewires[i - 1].circuits_changed:,} changed" if i else ""
        words = f"from {time:.3f} s\n{len(lit):,} circuits{moved}"
        axes.text(0, -1.3, words, ha="center", va="top", size=8, color=theme.muted)
    figure.subplots_adjust(
        left=0.01, right=0.99, top=1 - 0.4 / (3 * rows), bottom=0.05, wspace=0.05, hspace=0.3
    )
    return figure


def _places(fabric: Fabric) -> dict[str, tuple[float, float]]:
    """x, y of the nodes to draw: hosts spread below, switches above the middle of what they
    serve.
    """
    racks = max(sum(n.tier in RACKS and n.pod == 0 for n in fabric.nodes), 1)
    shown = range(min(max(fabric.pods, 1), max(DRAWN_TORS // min(racks, MOST_TORS), 1)))
    at: dict[str, tuple[float, float]] = {}
    left = 0.0
    served: dict[str, list[str]] = {}
    for host, rack in fabric.rack_of.items():
        served.setdefault(rack, []).append(host)
    for pod in shown:
        drawn = [n.name for n in fabric.nodes if n.tier in RACKS and n.pod == pod][:MOST_TORS]
        start = left
        for rack in drawn:
            hosts = served.get(rack, [])[:MOST_HOSTS]
            for i, host in enumerate(hosts):
                at[host] = (left + 0.22 * i, 0.0)
            at[rack] = (left + 0.11 * max(len(hosts) - 1, 0), 0.95)
            left += 0.22 * max(len(hosts), 2) + 0.25
        end = left - 0.25
        middle = [n.name for n in fabric.nodes if n.tier == "aggregation" and n.pod == pod][
            :MOST_TORS
        ]
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
            axes.add_patch(
                FancyBboxPatch(
                    corner, width, height, boxstyle=shape, fc="none", ec=theme.grid, lw=1
                )
            )
            axes.text(
                (min(xs) + max(xs)) / 2,
                -0.5,
                f"pod {pod + 1}",
                ha="center",
                size=9,
                color=theme.muted,
            )


def _cables(axes, fabric: Fabric, links: Sequence[Link], at: dict, theme: Theme) -> None:
    lines, colours = [], []
    for link in links:
        nodes = [fabric.node[end.node] for end in (link.a, link.b)]
        (x, y), (to_x, to_y) = (at[n.name] for n in nodes)
        # drawn as a bus: up from the ToR, along, to the switch
        electrical = "electrical" in (n.tier for n in nodes)
        if electrical:
            lines.append([(x, y), (x, to_y), (to_x, to_y)])
        else:
            lines.append(_over((x, y), (to_x, to_y), at.values()))
        optical = any(n.kind == "ocs" for n in nodes)
        colours.append(DARK_COLOUR if electrical else OCS_COLOUR if optical else theme.muted)
    axes.add_collection(LineCollection(lines, colors=colours, lw=0.8, alpha=0.5, zorder=1))


def _over(
    a: tuple[float, float], b: tuple[float, float], spots: Collection[tuple[float, float]]
) -> list[tuple[float, float]]:
    """A straight cable; one along a row goes over what stands between its ends, which it would
    else seem to join.
    """
    (left, y), (right, to_y) = sorted((a, b))
    if y != to_y or not any(spot[1] == y and left < spot[0] < right for spot in spots):
        return [a, b]
    high = 0.15 + 0.3 * (right - left) / (max(x for x, _ in spots) - min(x for x, _ in spots))
    along = np.linspace(0, 1, 24)
    return [*zip(left + along * (right - left), y + 4 * high * along * (1 - along), strict=True)]


def _symbol(axes, node, x: float, y: float, theme: Theme) -> None:
    edge = {"ocs": OCS_COLOUR, "eps": EPS_COLOUR, "host": theme.muted}[node.kind]
    edge = DARK_COLOUR if node.tier == "electrical" else edge
    marker, size, face = (
        ("o", 4, edge)
        if node.kind == "host"
        else ("D" if node.kind == "ocs" else "s", 10, theme.paper)
    )
    mark = axes.add_artist(
        Line2D([x], [y], marker=marker, ms=size, mfc=face, mec=edge, mew=1.4, ls="", zorder=3)
    )
    kind = {"ocs": "optical circuit switch", "eps": "electrical packet switch", "host": "GPU"}[
        node.kind
    ]
    tooltip(mark, f"{node.name}: {kind}, {node.tier}")
    if node.kind != "host" and node.tier not in RACKS:
        axes.text(x + 0.14, y + 0.16, node.name, ha="left", va="center", size=7, color=theme.muted)


def rack_circle(axes, fabric: Fabric, lit: Circuits, theme: Theme) -> None:
    """Racks in a circle, and the circuits that are lit between them."""
    racks = fabric.racks
    angle = {r: math.pi / 2 - 2 * math.pi * (i + 0.5) / len(racks) for i, r in enumerate(racks)}
    spot = {r: (math.cos(a), math.sin(a)) for r, a in angle.items()}
    _pod_arcs(axes, fabric, angle, theme)
    paths = [path for path in optical_paths(fabric, lit) if path.out < path.into]
    for path in paths:
        plane = fabric.node[fabric.peer[path.out][1].node].plane
        chord = _chord(
            axes, spot[path.out.node], spot[path.into.node], plane, min(1.5, 100 / len(paths))
        )
        if len(racks) <= MOST_RACKS:
            tooltip(chord, f"{path.out.node} – {path.into.node}: plane {plane}")
    for rack, (x, y) in spot.items():
        axes.add_patch(
            Circle(
                (x, y), min(0.055, 2.2 / len(racks)), fc=theme.ink, ec=theme.paper, lw=0.6, zorder=3
            )
        )
        if len(racks) <= 32:
            axes.text(1.16 * x, 1.16 * y, rack, ha="center", va="center", size=7, color=theme.ink)
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.set_axis_off()


def pod_circle(axes, fabric: Fabric, lit: Circuits, theme: Theme) -> None:
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
        tooltip(chord, f"pod {i + 1} – pod {j + 1}: {joined[i, j]:,} light paths")
    for i, (x, y) in enumerate(spot):
        # as an artist: add_patch works out limits, which are set below
        mark = axes.add_artist(
            Circle((x, y), min(0.055, 2.2 / pods), fc=theme.ink, ec=theme.paper, lw=0.6, zorder=3)
        )
        tooltip(mark, f"pod {i + 1}: {joined[i, i]:,} light paths inside")
        axes.text(1.16 * x, 1.16 * y, f"{i + 1}", ha="center", va="center", size=7, color=theme.ink)
    axes.text(0, 1.26, "pods", ha="center", size=7, color=theme.muted)
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _pod_arcs(axes, fabric: Fabric, angle: dict[str, float], theme: Theme) -> None:
    half = math.pi / len(angle)
    for pod in range(fabric.pods):
        angles = [a for r, a in angle.items() if fabric.node[r].pod == pod]
        if angles:
            ends = math.degrees(min(angles) - 0.85 * half), math.degrees(max(angles) + 0.85 * half)
            axes.add_patch(Wedge((0, 0), 1.31, *ends, width=0.035, fc=theme.grid, ec="none"))


def _chord(axes, a: tuple[float, float], b: tuple[float, float], plane: int, width: float):
    """A curve bent towards the centre, each plane a little differently, so that parallel light
    paths stay apart.
    """
    line = Line2D(
        *_curve(a, b, plane).T, color=PLANE_COLOURS[plane % len(PLANE_COLOURS)], lw=width, alpha=0.9
    )
    return axes.add_artist(line)  # limits, which a plot works out, are set by who calls


@lru_cache(1 << 13)  # epochs join the same spots
def _curve(a: tuple[float, float], b: tuple[float, float], plane: int) -> np.ndarray:
    """float64[24, 2]: its points."""
    t = np.linspace(0, 1, 24)[:, None]
    middle, along = (np.array(a) + np.array(b)) / 2, np.array(b) - np.array(a)
    bend = 0.35 * middle + 0.14 * (plane % 4 - 1.5) * np.array((-along[1], along[0])) / max(
        np.hypot(*along), 1.0
    )
    return (1 - t) ** 2 * np.array(a) + 2 * t * (1 - t) * bend + t**2 * np.array(b)
