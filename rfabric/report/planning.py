"""Circuits stage by stage, as a table, as JSON and as a picture: for each stage its demand as a
heat map, its circuits on a circle below.

training reduce-scatter  weight sync weights
+---------+              +---------+            from rack (rows) to rack (columns), darkest: the
                                                largest
| demand  |              | demand  |
+---------+              +---------+
  circuits                 circuits             ToRs on a circle, a chord per light path, coloured
                                                by plane
  0.78 s, bound 0.78 s     0.30 s, bound 0.30 s
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..fabric import Fabric
from ..optics import Circuits, Demand, RewireRecord, joined
from ..optics.bound import Bound
from ..units import show_size, show_time
from .compare import Row, Table, phase_text

MOST_STAGES = 12  # in one picture


@dataclass(frozen=True, eq=False)
class StageCircuits:
    """One stage of a run: what it sends between racks, its circuits, the seconds it is predicted
    to take on them beside others (`completion`), those it took in the simulator, the least there
    could be, its rewires.
    """

    stage: str
    demand: Demand
    circuits: Circuits
    completion: float
    simulated: float
    bound: Bound
    rewires: tuple[RewireRecord, ...] = ()

    @property
    def gap(self) -> float:
        """By what share it is predicted to take longer than the bound."""
        return self.completion / self.bound.seconds - 1 if self.bound.seconds else 0.0

    @property
    def changed(self) -> int:
        """Circuits torn down and set up for it."""
        return sum(record.circuits_changed for record in self.rewires)

    @property
    def hidden(self) -> float:
        """Seconds of its rewires that no flow waited for."""
        return sum(record.hidden for record in self.rewires)

    @property
    def exposed(self) -> float:
        """Seconds of its rewires in which some flow stood still."""
        return sum(record.exposed for record in self.rewires)

    def to_json(self, fabric: Fabric) -> dict:
        sent, racks = self.demand.sent, self.demand.racks
        return {
            "stage": self.stage,
            "bytes": float(sent.bytes.sum()),
            "rack_pairs": len(sent.bytes),
            "demand": [
                {"from": racks[i], "to": racks[j], "bytes": float(size)}
                for i, j, size in zip(*sent, strict=True)
            ],
            "circuits": self.circuits.to_json(),
            "light_paths": sum(joined(fabric, self.circuits).values()) if fabric.ocses else 0,
            "completion_s": self.completion,
            "simulated_s": self.simulated,
            "bound_s": self.bound.seconds,
            "bound_by": self.bound.why,
            "gap": self.gap,
            "rewires": len(self.rewires),
            "circuits_changed": self.changed,
            "delay_hidden_s": self.hidden,
            "delay_exposed_s": self.exposed,
        }


def totals(stages: Sequence[StageCircuits]) -> dict:
    """Sums over the stages, and the gap of the whole."""
    completion, least = sum(p.completion for p in stages), sum(p.bound.seconds for p in stages)
    off = sorted(abs(p.completion / p.simulated - 1) for p in stages if p.simulated)
    return {
        "completion_s": completion,
        "simulated_s": sum(p.simulated for p in stages),
        "median_error": median(off) if off else 0.0,
        "worst_error": max(off, default=0.0),
        "bound_s": least,
        "gap": completion / least - 1 if least else 0.0,
        "rewires": sum(len(p.rewires) for p in stages),
        "delay_hidden_s": sum(p.hidden for p in stages),
        "delay_exposed_s": sum(p.exposed for p in stages),
    }


def circuits_table(stages: Sequence[StageCircuits], fabric: Fabric) -> Table:
    """One line a stage, and the sum."""
    rows = [Row(phase_text(p.stage), _cells(p, fabric)) for p in stages]
    whole = totals(stages)
    seconds = (show_time(whole[key]) for key in ("completion_s", "simulated_s", "bound_s"))
    times = (*seconds, "", f"{whole['gap']:+.1%}")
    delays = (show_time(whole["delay_hidden_s"]), show_time(whole["delay_exposed_s"]))
    rows.append(Row("sum", ("", "", "", *times, f"{whole['rewires']} rewires", *delays)))
    columns = (
        "stage",
        "bytes",
        "rack pairs",
        "light paths",
        "completion",
        "simulated",
        "bound",
        "by",
        "gap",
        "changed",
        "hidden",
        "exposed",
    )
    note = (
        "Completion: predicted seconds with everything else in flight, from compute, circuits and "
        f"paths; off the simulated ones by {whole['median_error']:.1%} in the median, "
        f"{whole['worst_error']:.1%} at worst. Bound: the least time on this hardware, by its "
        "NICs, the cut around a rack, or a linear program. Hidden and exposed: how much of the "
        "rewire's delay lies behind compute, and how much is waited for."
    )
    return Table(f"Circuits of {fabric.spec or fabric.name}", columns, tuple(rows), note, (0, 7))


def _cells(p: StageCircuits, fabric: Fabric) -> tuple[str, ...]:
    light = sum(joined(fabric, p.circuits).values()) if fabric.ocses else 0
    head = (
        show_size(p.demand.sent.bytes.sum()),
        f"{len(p.demand.sent.bytes):,}",
        f"{light:,}" if light else "–",
    )
    times = (
        *map(show_time, (p.completion, p.simulated, p.bound.seconds)),
        p.bound.why,
        f"{p.gap:+.1%}",
    )
    delays = (show_time(p.hidden), show_time(p.exposed)) if p.rewires else ("", "")
    return (*head, *times, str(p.changed), *delays)


def picture(stages: Sequence[StageCircuits], fabric: Fabric):
    """A matplotlib Figure: the first MOST_STAGES stages, each its demand above its circuits."""
    from matplotlib.figure import Figure

    from .figures import MOST_RACKS, OTHER_COLOUR, PHASE_COLOURS, PRINT

    shown = stages[:MOST_STAGES]
    columns = min(len(shown), 4)
    lines = -(-len(shown) // columns)
    optical = bool(fabric.ocses)
    figure = Figure(figsize=(max(3.0 * columns, 4.5), (5.9 if optical else 3.3) * lines + 0.5))
    parts = figure.add_gridspec(lines * (2 if optical else 1), columns, hspace=0.28, wspace=0.22)
    for i, p in enumerate(shown):
        line, column = divmod(i, columns)
        colour = PHASE_COLOURS.get(p.demand.phase, OTHER_COLOUR)
        _demand(figure.add_subplot(parts[line * (2 if optical else 1), column]), p, colour, PRINT)
        if optical:
            axes = figure.add_subplot(parts[2 * line + 1, column])
            _circuits(axes, p, fabric, PRINT, len(fabric.racks) <= MOST_RACKS)
    left_out = f"; {len(stages) - len(shown)} more stages" if len(stages) > len(shown) else ""
    figure.suptitle(
        f"{fabric.spec or fabric.name}: demand from rack to rack, circuits below{left_out}",
        size=11,
        color=PRINT.ink,
    )
    figure.subplots_adjust(
        left=0.05,
        right=0.98,
        top=1 - 0.75 / figure.get_figheight(),
        bottom=0.45 / figure.get_figheight(),
    )
    return figure


def _demand(axes, p: StageCircuits, colour: str, theme) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("demand", [theme.paper, colour])
    sent = p.demand.bytes
    axes.imshow(sent / (sent.max() or 1.0), cmap=shades, vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(theme.grid)
    axes.set_title(phase_text(p.stage), size=9, color=theme.ink)
    axes.set_xlabel(f"to rack; darkest {show_size(sent.max())}", size=8, color=theme.muted)
    axes.set_ylabel("from rack", size=8, color=theme.muted)


def _circuits(axes, p: StageCircuits, fabric: Fabric, theme, few: bool) -> None:
    from .figures import pod_circle, rack_circle

    (rack_circle if few or fabric.pods < 2 else pod_circle)(axes, fabric, p.circuits, theme)
    changed = f"{p.changed} changed" if p.rewires else "unchanged"
    text = (
        f"{show_time(p.completion)}, bound {show_time(p.bound.seconds)} ({p.gap:+.1%}); {changed}"
    )
    axes.text(
        0.5, -0.02, text, transform=axes.transAxes, ha="center", va="top", size=8, color=theme.muted
    )
