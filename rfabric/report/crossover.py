"""Step time against the reconfiguration delay: what a sweep found, as a table, a picture and a
document.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..units import show_time
from .compare import Row, Table, unit_of

NARROW = 1.8  # points: a line of the picture


@dataclass(frozen=True)
class DelayCurve:
    """One fabric under one policy: `step_s` and `rewires` at each of `delays` (s)."""

    fabric: str
    policy: str
    delays: tuple[float, ...]
    step_s: tuple[float, ...]
    rewires: tuple[int, ...]

    @property
    def label(self) -> str:
        """How a legend names it."""
        return f"{self.fabric} {self.policy.partition('granularity=')[2] or self.policy}"


@dataclass(frozen=True)
class BreakEven:
    """Where a line meets a packet fabric: `delay_s`, or None and what is so at every delay."""

    line: str
    against: str
    delay_s: float | None
    what: str


@dataclass(frozen=True)
class Crossover:
    """A sweep: lines, (fabric, step_s) of the packet fabrics, where they meet."""

    traffic: str
    seed: int
    lines: tuple[DelayCurve, ...]
    levels: tuple[tuple[str, float], ...]
    break_evens: tuple[BreakEven, ...]

    def to_json(self) -> dict[str, Any]:
        """Stable keys with units."""
        lines = [
            asdict(line) | {"label": line.label, "delays_s": line.delays} for line in self.lines
        ]
        for line in lines:
            del line["delays"]
        return {
            "traffic": self.traffic,
            "seed": self.seed,
            "lines": lines,
            "flat": [{"fabric": name, "step_s": step} for name, step in self.levels],
            "break_evens": [asdict(b) for b in self.break_evens],
        }


def tables(crossover: Crossover) -> list[Table]:
    """Step time by delay, one row a line; break-even points."""
    least = [min(steps) for steps in zip(*(line.step_s for line in crossover.lines), strict=True)]
    factor, unit, _ = unit_of(step for line in crossover.lines for step in line.step_s)
    rows = [
        Row(line.label, tuple(f"{s * factor:.2f}" for s in line.step_s), _first_best(line, least))
        for line in crossover.lines
    ]
    rows += [Row(name, (f"{s * factor:.2f}",) * len(least)) for name, s in crossover.levels]
    columns = (
        "fabric, granularity",
        *(show_time(delay).replace(" ", "") for delay in crossover.lines[0].delays),
    )
    meets = [
        (b.line, b.against, show_time(b.delay_s) if b.delay_s else "–", b.what)
        for b in crossover.break_evens
    ]
    return [
        Table(
            f"{crossover.traffic}: step time ({unit}) by reconfiguration delay",
            columns,
            tuple(rows),
        ),
        Table.of("Break-even", ("line", "against", "delay", ""), meets, words=(0, 1, 3)),
    ]


def _first_best(line: DelayCurve, least: Sequence[float]) -> int:
    """The longest delay at which no line is faster than this one; -1 for none."""
    return max((i for i, step in enumerate(line.step_s) if step <= least[i]), default=-1)


def figure(crossover: Crossover, theme=None):
    """A panel a fabric: step time over the delay, one line a granularity; packet fabrics dashed;
    dots where they meet.
    """
    from matplotlib.figure import Figure

    from . import figures

    theme = theme or figures.PAGE
    fabrics = list(dict.fromkeys(line.fabric for line in crossover.lines))
    drawn = Figure(figsize=(figures.PAGE_WIDTH, 4.4))
    panels = drawn.subplots(1, len(fabrics), sharey=True, squeeze=False)[0]
    for axes, fabric in zip(panels, fabrics, strict=True):
        _panel(axes, [line for line in crossover.lines if line.fabric == fabric], crossover, theme)
    panels[0].set_ylabel("step time (s)", size=9, color=theme.muted)
    lines = {
        line.get_label(): line for axes in panels for line in axes.get_legend_handles_labels()[0]
    }
    place = {"loc": "lower center", "ncols": len(lines), "columnspacing": 1.6, "handlelength": 1.6}
    legend = drawn.legend(
        lines.values(), lines.keys(), frameon=False, fontsize=8.5, labelcolor=theme.ink, **place
    )
    for shown in legend.get_lines():
        shown.set_linewidth(NARROW)
    drawn.subplots_adjust(left=0.08, right=0.985, top=0.93, bottom=0.2, wspace=0.06)
    return drawn


def _name(line: DelayCurve) -> str:
    return line.label.removeprefix(line.fabric).strip()


def _names(crossover: Crossover) -> list[str]:
    return list(dict.fromkeys(map(_name, crossover.lines)))


def _meet(a: DelayCurve, b: DelayCurve, crossover: Crossover) -> bool:
    """Whether two curves are drawn as one: nowhere further apart than a line is wide."""
    every = [
        *(s for line in crossover.lines for s in line.step_s),
        *dict(crossover.levels).values(),
    ]
    near = (max(every) - min(every)) / 150
    return all(abs(s - t) <= near for s, t in zip(a.step_s, b.step_s, strict=True))


def _panel(axes, lines: Sequence[DelayCurve], crossover: Crossover, theme) -> None:
    from matplotlib.patheffects import withStroke

    from .figures import PLANE_COLOURS, bare

    axes.set_xscale("log")
    colours = {
        line.label: PLANE_COLOURS[_names(crossover).index(_name(line)) % len(PLANE_COLOURS)]
        for line in lines
    }
    for i, line in enumerate(lines):
        # wider, and so seen, below those that lie upon it
        width = NARROW + 1.6 * sum(_meet(line, above, crossover) for above in lines[i + 1 :])
        axes.plot(
            line.delays, line.step_s, "-", color=colours[line.label], lw=width, label=_name(line)
        )
    for name, level in crossover.levels:
        axes.axhline(level, color=theme.muted, lw=0.9, ls=(0, (4, 3)))
        axes.annotate(
            name,
            (lines[0].delays[0], level),
            (0, -3),
            textcoords="offset points",
            size=7.5,
            color=theme.muted,
            va="top",
            zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground=theme.paper)],
        )
    for b in crossover.break_evens:
        if b.line in colours and b.delay_s:
            level = dict(crossover.levels)[b.against]
            axes.plot(b.delay_s, level, "o", color=colours[b.line], ms=6, zorder=3)
            axes.annotate(
                show_time(b.delay_s),
                (b.delay_s, level),
                (4, -11),
                textcoords="offset points",
                size=7.5,
                color=theme.ink,
            )
    axes.set_title(lines[0].fabric, size=10, color=theme.ink, loc="left")
    axes.set_xlabel("reconfiguration delay", size=9, color=theme.muted)
    axes.xaxis.set_major_formatter(lambda value, _: show_time(value))
    bare(axes, theme, "y")
    axes.tick_params(which="minor", length=0)
