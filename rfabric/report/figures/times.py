"""When it happens: the whole step, and a close-up of each communication phase."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...units import show_time
from ..compare import PHASE_NAMES, phase_text
from ..intervals import busy, merged, squeezed
from ..result import Result, union_seconds
from ..summary import Run, labels
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


def close_ups(runs: Sequence[Run], theme: Theme = PAGE, most: int = 6) -> Figure | None:
    """Flows in flight in each communication phase, a row per run: one axis of the seconds in which
    any is in flight.
    """
    first = runs[0].result
    keys = sorted(first.communication, key=lambda k: -max(r.result.communication[k] for r in runs))[
        :most
    ]
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
                axes.set_title(
                    phase_text(f"{key[1]}/{key[0]}") + f"\n{key[2]}", size=9, color=theme.ink
                )
            if column == 0:
                axes.set_ylabel(
                    label,
                    size=8.5,
                    color=theme.ink,
                    rotation=0,
                    ha="right",
                    va="center",
                    labelpad=8,
                )
            if row == len(runs) - 1:
                axes.set_xlabel("ms" if span < 1 else "s", size=8.5, color=theme.muted)
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=0.12,
        right=0.985,
        top=1 - 0.45 / height,
        bottom=0.42 / height,
        wspace=0.12,
        hspace=0.22,
    )
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


def _close_up(axes, result: Result, key: tuple[int, str, str], span: float, theme: Theme) -> None:
    """Flows in flight over the time in which any is: idle time between bursts is left out, a thin
    line stands there.
    """
    rows = result.trace.communication()[key]
    begin, end = result.start[rows], result.finish[rows]
    bursts = merged(begin, end)
    x, count = busy(begin, end)
    factor = 1e3 if span < 1 else 1.0
    colour = PHASE_COLOURS.get(key[1], OTHER_COLOUR)
    axes.fill_between(
        squeezed(x, bursts) * factor, 0, count, step="post", color=colour, alpha=0.85, lw=0
    )
    top = 1.25 * len(rows) if len(bursts) == 1 else 1.4 * float(count.max())
    for cut in squeezed(bursts[1:, 0], bursts) if len(bursts) <= 16 else ():
        axes.axvline(cut * factor, color=theme.paper, lw=1)
    for r in result.rewires:
        asked, programmed, usable = (
            squeezed(np.array([r.requested, r.programmed, r.usable]), bursts) * factor
        )
        if usable > asked:
            axes.axvspan(asked, usable, color=theme.paper, alpha=0.55, lw=0)  # who waits, pales
            for left, right, alpha in ((asked, programmed, 0.4), (programmed, usable, 1.0)):
                band = Rectangle(
                    (left, 0.91 * top), right - left, 0.09 * top, fc=DARK_COLOUR, alpha=alpha
                )
                axes.add_patch(band)
                tooltip(
                    band,
                    f"rewire {r.epoch}: dark {show_time(r.dark)}, "
                    f"{r.circuits_changed} circuits change",
                )
    seconds = show_time(result.communication[key])
    axes.text(
        0.985,
        0.99,
        seconds,
        transform=axes.transAxes,
        ha="right",
        va="top",
        size=8.5,
        color=theme.ink,
    )
    axes.set_ylim(0, top)
    axes.set_xlim(0, factor * span)
    axes.set_yticks([])
    bare(axes, theme, grid="x")
