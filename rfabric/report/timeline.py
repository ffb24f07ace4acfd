"""What each GPU computes over time: a Gantt chart, how long each pool stands idle, a file for
chrome://tracing or Perfetto.

    training    |            ##### train #####  |  a row a GPU, a bar a replica or all GPUs of a
                                                   phase
    generation  | ## tp2 ## |# tp8 #|           |

Computing alone: what a network without delay would leave. A *bubble* is time in which a GPU of a
pool neither computes nor takes part in a weight sync.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..trace import Span, Trace
from .folder import write_text
from .perfetto import US, named

WEIGHT_SYNC, SWITCH = "weight_sync", "switch"
ALL = "all"  # the pool of jobs that share GPUs


@dataclass(frozen=True)
class Timeline:
    """Spans of the GPUs in `pools` over `seconds`, in which `steps` steps are done."""

    name: str
    pools: Mapping[str, tuple[int, ...]]
    spans: tuple[Span, ...]
    seconds: float
    steps: int = 1

    def idle(self, pool: str) -> float:
        """The share of a pool's time that is a bubble."""
        return 1 - self._covered(pool) / (len(self.pools[pool]) * self.seconds)

    def _covered(self, pool: str) -> float:
        """GPU-seconds in which a GPU does anything, counted once where spans overlap."""
        row = {gpu: i for i, gpu in enumerate(self.pools[pool])}
        edges = np.unique([t for s in self.spans for t in (s.start, s.start + s.seconds)])
        does = np.zeros((len(row), len(edges)), int)
        for s in self.spans:
            mine = [row[gpu] for gpu in s.gpus if gpu in row]
            does[mine, np.searchsorted(edges, s.start)] += 1
            does[mine, np.searchsorted(edges, s.start + s.seconds)] -= 1
        return float(((np.cumsum(does, axis=1)[:, :-1] > 0) * np.diff(edges)).sum())


def timeline_of_trace(name: str, trace: Trace, server: int) -> Timeline:
    """Several jobs on one fabric, phase by phase: a phase holds the servers whose GPUs compute in
    it, or exchange weights.
    """
    ready, finish = trace.compute_only()
    spans = []
    for key in trace.phase_keys:
        rows = trace.rows(key)
        works = rows[
            (trace.gap[rows] > 0)
            | (trace.loop[rows] >= 0)
            | ((trace.size[rows] > 0) & (key.phase == WEIGHT_SYNC))
        ]
        held = np.unique(np.concatenate((trace.src[works], trace.dst[works])) // server).tolist()
        gpus = tuple(server * s + i for s in held for i in range(server))
        begin, end = float(ready[rows].min()), float(finish[rows].max())
        job = trace.labels[trace.label[rows[0]]].partition(" ")[0]
        spans.append(Span("", gpus, begin, end - begin, f"{job} {key.phase}", key.step))
    pools = {ALL: tuple(range(len(trace.hosts)))}
    steps = len({s.step for s in spans})
    return Timeline(name, pools, tuple(spans), float(finish.max(initial=0.0)), steps)


def perfetto(timeline: Timeline) -> dict:
    """The document that chrome://tracing and ui.perfetto.dev read: a process a pool, a thread a
    replica.
    """
    lanes = {pool: i for i, pool in enumerate((*timeline.pools, "weight sync"), 1)}
    events = [named("process_name", pid, 0, pool) for pool, pid in lanes.items()]
    threads = {(_lane(timeline, s), s.gpus[0]) for s in timeline.spans if s.gpus}
    events += [
        named("thread_name", lanes[lane], gpu, f"GPU {gpu}") for lane, gpu in sorted(threads)
    ]
    for s in sorted(timeline.spans, key=lambda s: (s.start, s.gpus)):
        if s.gpus:
            events.append(
                {
                    "name": s.what,
                    "cat": s.what.partition(" ")[0],
                    "ph": "X",
                    "pid": lanes[_lane(timeline, s)],
                    "tid": s.gpus[0],
                    "ts": round(s.start * US, 3),
                    "dur": round(s.seconds * US, 3),
                    "args": {"step": s.step, "gpus": len(s.gpus)},
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"name": timeline.name}}


def write_perfetto(path: Path, timeline: Timeline) -> None:
    """The document as a file."""
    write_text(path, json.dumps(perfetto(timeline)) + "\n")


def _lane(timeline: Timeline, s: Span) -> str:
    """Weight sync has a lane of its own: it may come while replicas generate, and events of a
    thread must nest.
    """
    return (
        "weight sync"
        if s.what.endswith(WEIGHT_SYNC)
        else s.pool
        if s.pool in timeline.pools
        else next(iter(timeline.pools))
    )


# --- the chart ------------------------------------------------------------------------------------

CUTS = ("#b9d0f6", "#86adf0", "#4f86e8", "#2b5cb8")  # generation, from narrow replicas to wide ones
JOBS = ("#4f86e8", "#e8912d", "#2fa678", "#8f7fd6", "#3aa9c4", "#d6568c", "#b58a3c", "#7c8a99")
PANEL = 2.2  # inches a pool


def figure(timeline: Timeline, theme=None):
    """A Gantt chart, a panel a pool."""
    from matplotlib.figure import Figure

    from . import figures

    theme = theme or figures.PRINT
    pools = list(timeline.pools)
    height = PANEL * len(pools) + 1.2
    drawn = Figure(figsize=(figures.PAGE_WIDTH, height))
    colours = _colours(timeline)
    panels = drawn.subplots(len(pools), 1, sharex=True, squeeze=False)[:, 0]
    for axes, pool in zip(panels, pools, strict=True):
        _gantt(axes, timeline, pool, colours, theme)
    panels[-1].set_xlabel("seconds", size=9, color=theme.muted)
    drawn.suptitle(
        timeline.name, x=0.08, y=1 - 0.1 / height, ha="left", va="top", size=10.5, color=theme.ink
    )
    _legend(drawn, colours, theme)
    drawn.subplots_adjust(
        left=0.08, right=0.98, top=1 - 0.62 / height, bottom=0.85 / height, hspace=0.28
    )
    return drawn


def _gantt(axes, timeline: Timeline, pool: str, colours: Mapping[str, str], theme) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    from . import figures

    row = {gpu: i for i, gpu in enumerate(timeline.pools[pool])}
    bars: dict[str, list] = {}
    for s in timeline.spans:
        for first, count in _runs(sorted(row[gpu] for gpu in s.gpus if gpu in row)):
            gap = min(0.12 * count, 0.25)
            bars.setdefault(s.what, []).append(
                Rectangle((s.start, first + gap / 2), s.seconds, count - gap)
            )
    for what in sorted(bars, key=lambda what: what.endswith(WEIGHT_SYNC)):
        alpha = 0.75 if what.endswith(WEIGHT_SYNC) else 1.0
        axes.add_collection(
            PatchCollection(bars[what], facecolor=colours[what], edgecolor="none", alpha=alpha)
        )
    axes.set_xlim(0, timeline.seconds or 1.0)
    axes.set_ylim(len(row), 0)
    axes.set_yticks([0, len(row)], [str(timeline.pools[pool][0]), str(timeline.pools[pool][-1])])
    axes.set_ylabel("GPU", size=8, color=theme.muted)
    name = "" if pool == ALL else f"{pool}: "
    title = f"{name}{len(row)} GPUs, {timeline.idle(pool):.0%} idle"
    axes.set_title(title, size=9.5, color=theme.ink, loc="left")
    figures.bare(axes, theme, "x")


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, how many) of each run of neighbouring rows."""
    start = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i] != rows[i - 1] + 1:
            yield rows[start], i - start
            start = i


def _colours(timeline: Timeline) -> dict[str, str]:
    from . import figures

    kinds = list(dict.fromkeys(s.what for s in timeline.spans))
    known = figures.PHASE_COLOURS | {SWITCH: figures.DARK_COLOUR}
    cuts = sorted((k for k in kinds if k.startswith("generation ")), key=lambda k: (len(k), k))
    shades = {
        k: CUTS[min(len(CUTS) - 1, i + (len(CUTS) - len(cuts) if len(cuts) < len(CUTS) else 0))]
        for i, k in enumerate(cuts)
    }
    rest = [k for k in kinds if k not in known and k not in shades]
    return {k: shades.get(k) or known.get(k) or JOBS[rest.index(k) % len(JOBS)] for k in kinds}


def _legend(drawn, colours: Mapping[str, str], theme) -> None:
    from matplotlib.patches import Rectangle

    names = sorted(colours, key=lambda k: (not k.startswith("generation"), len(k), k))
    handles = [Rectangle((0, 0), 1, 1, fc=colours[name]) for name in names]
    texts = [name.replace("_", " ") for name in names]
    drawn.legend(
        handles,
        texts,
        loc="lower center",
        ncol=min(len(names), 7),
        fontsize=8,
        frameon=False,
        labelcolor=theme.ink,
    )


def write_png(path: Path, timeline: Timeline) -> None:
    """The chart as a PNG file."""
    from . import figures

    figures.png(figure(timeline), path)
