"""When it happens: the whole step."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from ...units import show_time
from ..compare import PHASE_NAMES
from ..intervals import busy
from ..result import Result, union_seconds
from .drawing import (
    DARK_COLOUR,
    OTHER_COLOUR,
    PAGE,
    PAGE_WIDTH,
    PHASE_COLOURS,
    Theme,
    bare,
    new_figure,
    tooltip,
)


def timeline(result: Result, theme: Theme = PAGE) -> Figure:
    """The whole step: a row per activity, as high as its share of busy rows; rewires as dashed
    lines.
    """
    activities = _activities(result)
    figure, axes = new_figure(PAGE_WIDTH, 0.55 + 0.3 * len(activities))
    span = result.step_seconds or 1.0
    for y, (key, begin, end, sends) in enumerate(activities):
        x, count = busy(begin, end)
        colour = PHASE_COLOURS.get(key.phase, OTHER_COLOUR)
        tip = (
            f"{key.name}: {show_time(x[0])} to {show_time(x[-1])}, {len(begin)} "
            f"{'flows' if sends else 'compute rows'}"
        )
        level = 0.8 * count / count.max()
        area = axes.fill_between(
            x,
            y + 0.4,
            y + 0.4 - level,
            step="post",
            color=colour,
            alpha=0.9 if sends else 0.45,
            lw=0,
        )
        tooltip(area, tip)
        mark = axes.plot([x[0], x[-1]], [y + 0.4] * 2, color=colour, lw=2.2, solid_capstyle="butt")[
            0
        ]
        tooltip(mark, tip)
        x_text, side = _beside(float(x[0]), float(x[-1]), span)
        axes.text(
            x_text,
            y,
            show_time(union_seconds(begin, end)),
            ha=side,
            va="center",
            size=8,
            color=theme.muted,
        )
    for r in result.rewires:
        line = axes.axvline(r.requested, color=DARK_COLOUR, lw=1.1, ls=(0, (3, 2)), zorder=0)
        tooltip(
            line, f"rewire {r.epoch} for {r.phase} at {r.requested:.4f} s: dark {show_time(r.dark)}"
        )
    axes.set_yticks(
        range(len(activities)), [a[0].name for a in activities], size=8.5, color=theme.ink
    )
    axes.set_ylim(len(activities) - 0.4, -0.6)
    axes.set_xlim(-0.005 * span, 1.005 * span)
    axes.set_xlabel("s", size=8.5, color=theme.muted)
    bare(axes, theme, grid="x")
    figure.subplots_adjust(left=0.19, right=0.985, top=0.99, bottom=0.42 / figure.get_figheight())
    return figure


@dataclass(frozen=True)
class _Activity:
    step: int
    phase: str
    label: str

    @property
    def name(self) -> str:
        text = (
            f"{PHASE_NAMES.get(self.phase, self.phase)}: {self.label}"
            if self.label
            else self.phase or "flows"
        )
        return f"{text} ({self.step})" if self.step else text


def _beside(begin: float, end: float, span: float) -> tuple[float, str]:
    """Where a bar's text goes, x and alignment: after it, else before it, else inside."""
    gap = 0.006 * span
    if end < 0.9 * span:
        return end + gap, "left"
    return (begin - gap, "right") if begin > 0.1 * span else ((begin + end) / 2, "center")


def _activities(
    result: Result, most: int = 24
) -> list[tuple[_Activity, np.ndarray, np.ndarray, bool]]:
    """(what, begin, end, whether it sends) of each (step, phase, label), compute and flows apart,
    by time.
    """
    trace = result.trace
    begin = np.where(trace.size > 0, result.start, result.finish - trace.gap)
    code = (
        (trace.step.astype(np.int64) << 32)
        | (trace.phase.astype(np.int64) << 17)
        | (trace.label << 1)
    )
    code |= trace.size > 0
    worth = (trace.size > 0) | (trace.gap > 0)
    activities = []
    for value in np.unique(code[worth]):
        rows = np.flatnonzero((code == value) & worth)
        row = rows[0]
        key = _Activity(
            int(trace.step[row]), trace.phases[trace.phase[row]], trace.labels[trace.label[row]]
        )
        activities.append((key, begin[rows], result.finish[rows], bool(trace.size[row])))
    longest = sorted(activities, key=lambda a: a[1].min() - a[2].max())[:most]
    return sorted(
        (a for a in activities if any(a is b for b in longest)),
        key=lambda a: (a[1].min(), a[2].max()),
    )
