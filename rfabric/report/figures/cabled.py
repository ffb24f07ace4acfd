"""What is cabled, and what is lit: pods with their cables, circuits on a circle."""

import math
from functools import lru_cache

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Wedge

from ...fabric import Fabric
from ...fabric.cabling import cabling_of
from ...fabric.model import RACKS
from ...optics import Circuits, optical_paths
from ...routing import routes_of
from ..amounts import MOST_RACKS
from ..page.outline import XY, Outline, outline
from .drawing import (
    DARK_COLOUR,
    EPS_COLOUR,
    OCS_COLOUR,
    PAGE,
    PAGE_WIDTH,
    Theme,
    new_figure,
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


def topology(fabric: Fabric, theme: Theme = PAGE) -> Figure:
    """Pods with their ToRs and hosts, aggregation and core above, every cable between what is
    drawn.
    """
    drawn = outline(fabric)
    at = drawn.at
    xs, ys = zip(*at.values(), strict=True)
    width = max(xs) - min(xs)
    figure, axes = new_figure(PAGE_WIDTH, 4.6)
    _pod_boxes(axes, fabric, at, theme)
    _cables(axes, fabric, drawn, theme)
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


def _cables(axes, fabric: Fabric, drawn: Outline, theme: Theme) -> None:
    lines, colours = [], []
    for number, over in zip(drawn.cables, drawn.over, strict=True):
        link = fabric.links[number]
        nodes = [fabric.node[end.node] for end in (link.a, link.b)]
        (x, y), (to_x, to_y) = (drawn.at[n.name] for n in nodes)
        # drawn as a bus: up from the ToR, along, to the switch
        electrical = "electrical" in (n.tier for n in nodes)
        if electrical:
            lines.append([(x, y), (x, to_y), (to_x, to_y)])
        else:
            lines.append(_cable((x, y), (to_x, to_y), over))
        optical = any(n.kind == "ocs" for n in nodes)
        colours.append(DARK_COLOUR if electrical else OCS_COLOUR if optical else theme.muted)
    axes.add_collection(LineCollection(lines, colors=colours, lw=0.8, alpha=0.5, zorder=1))


def _cable(a: XY, b: XY, over: float) -> list[XY]:
    if not over:
        return [a, b]
    along = np.linspace(0, 1, 24)
    x, y = a[0] + along * (b[0] - a[0]), a[1] + 4 * over * along * (1 - along)
    return [*zip(x, y, strict=True)]


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
