"""What is paid for a step's speed: step time against dollars, of the network and of the whole bill.

    s |    o dear, slow              a point is a fabric under a policy; grey: another is as cheap
      | *-----.                      and as fast, and better in one; the line is the front
      |       *----------* fast
      +------------------- $

Front and grey are of each panel's own dollars. A bound (`ideal`) is a dashed line and stands on no
front.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, product

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..compare import is_bound, on_front
from .drawing import EPS_COLOUR, OCS_COLOUR, PAGE, PAGE_WIDTH, Theme, bare

# key of a row: the axis, and by how much a row's value is divided
DOLLARS = {
    "network_usd": ("the network's price (k$)", 1e3),
    "usd_per_step": ("whole bill, dollars a step", 1.0),
}
HIGH = 4.2  # inches of a recipe
POINT = 6.0  # pixels from the middle of a point to its edge
GAP, FAR = 8.0, 40.0  # pixels between a point and its name; where there is no room so near
RINGS = range(0, 15)  # how many lines a name may stand from its point
CLOSE = 12.0  # pixels: a name farther off gets a leader
DOTS = 12  # of a leader that no name may cover


def pareto(rows: Sequence[dict], theme: Theme = PAGE) -> Figure:
    """Two panels a recipe.

    rows: `label`, `fabric`, `policy`, `traffic`, `step_s`, and of DOLLARS what is known; where
    there are several seeds, `step_s_least` and `step_s_most` as well.
    """
    traffics = list(dict.fromkeys(row["traffic"] for row in rows))
    drawn = Figure(figsize=(PAGE_WIDTH, HIGH * len(traffics)))
    FigureCanvasAgg(drawn)  # which measures names
    drawn.subplots_adjust(
        left=0.07,
        right=0.98,
        top=1 - 0.4 / drawn.get_figheight(),
        bottom=0.6 / drawn.get_figheight(),
        wspace=0.14,
        hspace=0.35,
    )
    for i, (traffic, key) in enumerate(product(traffics, DOLLARS)):
        axes = drawn.add_subplot(len(traffics), len(DOLLARS), i + 1)
        mine = [row for row in rows if row["traffic"] == traffic]
        title = traffic if not i % len(DOLLARS) else ""
        axes.set_title(title, size=10, loc="left", color=theme.ink)
        _panel(axes, mine, key, theme)
    return drawn


def _panel(axes, rows: Sequence[dict], key: str, theme: Theme) -> None:
    words, unit = DOLLARS[key]
    axes.set_xlabel(words, size=9, color=theme.muted)
    axes.set_ylabel("step time (s)", size=9, color=theme.muted)
    bare(axes, theme, "y")
    priced = [row for row in rows if row.get(key) is not None and not is_bound(row)]
    if not priced:
        axes.text(0.5, 0.5, "no price", transform=axes.transAxes, ha="center", color=theme.muted)
        return
    spots = [(row[key] / unit, row["step_s"]) for row in priced]
    best = [on_front(row, priced, key) for row in priced]
    front = sorted(spot for spot, fronts in zip(spots, best, strict=True) if fronts)
    corners = _stairs(front)
    axes.plot(*zip(*corners, strict=True), color=theme.muted, lw=1.6, zorder=2)
    for row, (x, y), fronts in zip(priced, spots, best, strict=True):
        own = EPS_COLOUR if row["policy"] == "ecmp" else OCS_COLOUR
        colour = own if fronts else theme.grid
        if row.get("step_s_most", y) > row.get("step_s_least", y):
            axes.plot([x, x], [row["step_s_least"], row["step_s_most"]], color=colour, lw=1.0)
        axes.plot(x, y, "o", color=colour, ms=8 if fronts else 6, zorder=3)
    bounds = {row["step_s"] for row in rows if is_bound(row)}
    for y in bounds:
        axes.axhline(y, color=theme.muted, lw=0.8, ls=(0, (4, 3)), zorder=1)
    axes.margins(x=0.14, y=0.16)
    axes.autoscale_view()
    axes.autoscale(False)  # names are placed on the axes as they are
    left, right = axes.get_xlim()
    lines = [*pairwise(corners), *(((left, y), (right, y)) for y in bounds)]
    _name(axes, [row["label"] for row in priced], spots, best, lines, theme)


def _stairs(front: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of a line that goes right, then down, from point to point."""
    return [front[0], *(corner for a, b in pairwise(front) for corner in ((b[0], a[1]), b))]


def _name(
    axes,
    names: Sequence[str],
    spots: Sequence[tuple],
    best: Sequence[bool],
    lines: Sequence[tuple],
    theme: Theme,
) -> None:
    """Each name beside its point, where neither a point nor a line nor another name is: as near as
    there is room in the panel. The front's come first.
    """
    renderer, on_paper = axes.figure.canvas.get_renderer(), axes.transData.transform
    at = [tuple(on_paper(spot)) for spot in spots]
    taken = [_around((spot, spot), POINT) for spot in at]
    taken += [_around([on_paper(end) for end in line], 1.0) for line in lines]
    frame, written = axes.bbox.extents, []
    for fronts, spot, name in sorted(zip(best, at, names, strict=True), key=_front_first):
        text = axes.text(0, 0, name, size=8, color=theme.ink if fronts else theme.muted)
        text.set(va="center", ha="left")
        size = text.get_window_extent(renderer)
        boxes = sorted(_boxes(spot, size.width, size.height), key=partial(_off, spot))
        free = (
            box
            for box in boxes
            if _inside(box, frame)
            and not _any_meet([box], taken)
            and not _any_meet(_dots(_leader(spot, box)), written)
        )
        box = next(free, boxes[0])
        written.append(box)
        taken += [box, *_dots(_leader(spot, box))]
        across = axes.transData.inverted().transform
        text.set_position(across((box[0], (box[1] + box[3]) / 2)))
        for leader in _leader(spot, box):
            axes.plot(*across(leader).T, color=theme.muted, lw=0.5, zorder=1)


def _front_first(named: tuple) -> tuple:
    return (not named[0], *named[1:])


def _boxes(spot: tuple, wide: float, high: float) -> Iterator[tuple]:
    """Where a name may stand (pixels)."""
    sides = GAP, -GAP - wide, -wide / 2, FAR, -FAR - wide, 2 * FAR, -2 * FAR - wide
    for ring in RINGS:
        for lift in dict.fromkeys((ring, -ring)):
            for side in sides if ring else sides[:2]:
                x, y = spot[0] + side, spot[1] + lift * high
                yield x, y - high / 2, x + wide, y + high / 2


def _leader(spot: tuple, box: tuple) -> list[tuple]:
    """The line from a point to a name that stands far off, if it does."""
    nearest = min(max(spot[0], box[0]), box[2]), min(max(spot[1], box[1]), box[3])
    return [(spot, nearest)] if _off(spot, box) > CLOSE else []


def _off(spot: tuple, box: tuple) -> float:
    """How far a name stands from its point (pixels)."""
    return max(box[0] - spot[0], spot[0] - box[2], 0) + max(box[1] - spot[1], spot[1] - box[3], 0)


def _dots(lines: Sequence[tuple]) -> list[tuple]:
    """Small boxes along lines, its ends left out."""
    shares = [i / DOTS for i in range(1, DOTS)]
    dots = [
        tuple(a + share * (b - a) for a, b in zip(*line, strict=True))
        for line in lines
        for share in shares
    ]
    return [_around((dot, dot), 1.0) for dot in dots]


def _around(ends: Sequence, margin: float) -> tuple:
    (a, b), (c, d) = ends
    return min(a, c) - margin, min(b, d) - margin, max(a, c) + margin, max(b, d) + margin


def _inside(box: tuple, frame: tuple) -> bool:
    return box[0] >= frame[0] and box[2] <= frame[2] and box[1] >= frame[1] and box[3] <= frame[3]


def _any_meet(some: Sequence[tuple], others: Sequence[tuple]) -> bool:
    return any(
        a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
        for a, b in product(some, others)
    )
