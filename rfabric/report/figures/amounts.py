"""How much: runs side by side as bars."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..amounts import PART_COLOURS, Panel, panels
from ..compare import PHASE_NAMES
from ..summary import Run, labels
from .drawing import OTHER_COLOUR, PAGE, PAGE_WIDTH, PHASE_COLOURS, Theme, bare, tooltip

BAR_COLOURS = PHASE_COLOURS | PART_COLOURS


def comparison(runs: Sequence[Run], theme: Theme = PAGE) -> Figure:
    """Three bars a run: the seconds of its phases, with a line where eight in ten measured steps
    would be and below it thin ones where each phase would end, exposed communication by phase, the
    network's cost by part.
    """
    figure = Figure(figsize=(PAGE_WIDTH, 1.2 + 0.42 * len(runs)))
    every = figure.subplots(1, 3)
    for axes, panel in zip(every, panels(runs), strict=True):
        _stacked(axes, panel, theme)
    every[0].set_yticks(range(len(runs)), labels(runs), size=9, color=theme.ink)
    for axes in every[1:]:
        axes.set_yticks([])
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.12, right=0.985, top=1 - 0.35 / height, bottom=0.72 / height, wspace=0.12
    )
    return figure


def _stacked(axes, panel: Panel, theme: Theme) -> None:
    high = 0.13 + 0.42 * len(panel.stacks)  # inches
    ends = [high for _, high in filter(None, panel.ranges)]
    ends += [sum(high for _, high in filter(None, each.values())) for each in panel.parts]
    top = max([*ends, *(sum(s.values()) for s in panel.stacks)], default=0.0) or 1.0
    every = zip(panel.stacks, panel.texts, panel.ranges, panel.parts, strict=True)
    for y, (stack, text, some, parts) in enumerate(every):
        left = 0.0
        for i, (name, value) in enumerate(stack.items()):
            colour, what = BAR_COLOURS.get(name, OTHER_COLOUR), PHASE_NAMES.get(name, name)
            bar = axes.barh(y, value, left=left, height=0.62, color=colour)
            tooltip(bar[0], f"{what}: {value:,.3g}")
            if one := parts.get(name):
                span = left + one[0], left + one[1]
                _between(axes, span, y + 0.36 + 0.045 * (i % 3), colour, what, one)
            left += value
        if some:
            _between(axes, some, y, theme.ink, "step", some)
            left = max(left, some[1])
        axes.text(left + 0.015 * top, y, text, va="center", size=8.5, color=theme.ink)
    axes.set_title(panel.title, size=9.5, color=theme.ink)
    axes.set_xlim(0, 1.2 * top)
    axes.set_ylim(len(panel.stacks) - 0.5, -0.5)
    bare(axes, theme, grid="x")
    names = dict.fromkeys(n for stack in panel.stacks for n, value in stack.items() if value > 0)
    handles = [Rectangle((0, 0), 1, 1, fc=BAR_COLOURS.get(n, OTHER_COLOUR)) for n in names]
    axes.legend(
        handles,
        [PHASE_NAMES.get(n, n) for n in names],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2 / high),
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
