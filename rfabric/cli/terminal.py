"""Results on a terminal: aligned tables on stdout, progress on stderr."""

import contextlib
import json
import math
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from ..report import compare, worlds
from ..report.compare import Row, Table
from ..report.result import Pace
from ..units import show_size, show_time

PATIENCE = 2.0  # s before progress is worth showing
# lines about the phases of a run, which may be thousands, before the next has to wait, s
MOST_LINES, BREATH = 100, 0.2
# keys of what is done, and of how much there is
PROGRESS = (("done_bytes", "total_bytes"), ("done_cells", "cells"), ("done", "of"))
PIPE_WIDTH = 200  # columns where stdout is no terminal: nothing is wrapped or cut
# columns: of a terminal with room for wide gaps; of a word that may be broken
SPACIOUS, LONG_WORD = 88, 24
# rows of a table with a row for each phase or stage, of which a trace may have thousands; of them
# the last, where sums stand
MOST_ROWS, LAST_ROWS = 300, 30


def print_json(document: dict) -> None:
    """An answer for machines, to stdout. What is no number, or without end, is null there: JSON has
    no word for it.
    """
    try:
        text = json.dumps(document, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), indent=2)
    print(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_tables(tables: Iterable[Table], most: int | None = None) -> None:
    """Print tables to stdout; one without rows is left out, of one with more than `most` those in
    the middle, which nobody would read there.
    """
    room = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).width
    for table in tables:
        if table.rows:
            _show(_shortened(table, most), room)


def _shortened(table: Table, most: int | None) -> Table:
    over = len(table.rows) - (most or len(table.rows))
    if over <= 0:
        return table
    blank = ("",) * (len(table.columns) - 1)
    begin, end = len(table.rows) - over - LAST_ROWS, len(table.rows) - LAST_ROWS
    left_out = Row(f"... {end - begin:,} more rows, see --json", blank)
    return replace(table, rows=(*table.rows[:begin], left_out, *table.rows[end:]))


def show_notes(notes: Iterable[str]) -> None:
    """Print each note once, marked as one, broken at blanks where a terminal is narrower."""
    for note in dict.fromkeys(f"note: {text}" for text in notes):
        print(textwrap.fill(note, Console().width) if sys.stdout.isatty() else note)


def _show(table: Table, room: int) -> None:
    """In so many columns, with narrow gaps and broken headers if need be; it is wider rather than
    cut a figure.
    """
    heads, gap = table.columns, 2 if room > SPACIOUS else 1
    cells = _widths(table, broken=False)
    if (
        sum(max(width, cell_len(head)) + gap for head, width in zip(heads, cells, strict=True))
        > room
    ):
        heads = tuple(_broken(head, width) for head, width in zip(heads, cells, strict=True))
        gap = 1
    least = [
        max(w, *map(cell_len, h.split("\n")))
        for h, w in zip(heads, _widths(table, broken=True), strict=True)
    ]
    console = Console(highlight=False, width=max(room, sum(least) + gap * len(heads)))
    shown = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=any(heads))
    for i, head in enumerate(heads):
        words = i in table.words
        kind = {"justify": "left" if words else "right", "no_wrap": not (words and i)}
        shown.add_column(head, header_style="dim", overflow="fold", min_width=least[i], **kind)
    for row in table.rows:
        cells = [
            f"[bold]{c}[/]" if i == row.best else c for i, c in enumerate(map(_plain, row.cells))
        ]
        shown.add_row("  " * row.indent + _plain(row.name), *cells)
    with console.capture() as written:
        if table.title:  # not as the table's own: that would be broken at the table's width
            console.print(f"[bold]{_plain(table.title)}[/]")
        console.print(shown)
        console.print()
    print(written.get(), end="")  # rich itself would end the process where stdout is closed


def _broken(head: str, width: int) -> str:
    """A header broken at blanks to be hardly wider than what stands below it."""
    return "\n".join(textwrap.wrap(head, max(width, *map(len, head.split()))) if head else [""])


def _widths(table: Table, broken: bool) -> list[int]:
    """What the cells of each column need; `broken`: with text broken into words, except in the
    first column.
    """
    columns = (_column(table, i, broken) for i in range(len(table.columns)))
    return [max(map(cell_len, cells), default=0) for cells in columns]


def _column(table: Table, i: int, broken: bool) -> list[str]:
    cells = [
        row.cells[i - 1] if i else "  " * row.indent + row.name
        for row in table.rows
        if i <= len(row.cells)
    ]
    if broken and i and i in table.words:
        return [word[:LONG_WORD] for cell in cells for word in cell.split()]
    return cells


def show_runs(summary: dict, quiet: bool = False) -> None:
    """What a run verb prints: comparison, rewires, emulated against simulated, how it was
    scaled.
    """
    tables = compare.comparison(summary), compare.rewires(summary), compare.fidelity(summary)
    show_tables(tables, MOST_ROWS)
    if len({entry["engine"] for entry in summary["runs"]}) > 1:
        show_tables([worlds.table(summary["runs"])])
    emulated = [entry for entry in summary["runs"] if entry["engine"] == "emulate"]
    for text in dict.fromkeys(scale_text(entry["scale"]) for entry in emulated):
        print(f"emulated at {text}")
    for entry in summary["runs"]:
        if entry["engine"] == "ns3":
            print(f"{entry['label']}: ns-3's packets at {scale_text(entry['scale'])}")
    for entry in emulated:
        pace = Pace.from_json(entry["pace"])
        control = f", control {show_time(pace.control)} a rewire" if pace.control else ""
        print(
            f"{entry['label']}: CPU {pace.cpu:.0%}, of it others {pace.foreign:.0%}, time "
            f"without a full cable at most {max(pace.idle, 0.0):.1%}, waiting for a processor at "
            f"most {pace.waited:.1%}, latest start {show_time(pace.worst_lateness)}{control}"
        )
    if not quiet:
        show_notes(note for entry in summary["runs"] for note in entry["notes"])


def scale_text(scale: dict) -> str:
    """`bandwidth x 0.00021, time x 16`"""
    sampled = (
        f", {show_time(scale['sample_s'])} of each repeated collective sent"
        if scale["sample_s"]
        else ""
    )
    return (
        f"bandwidth x {scale['bandwidth_scale']:.3g}, time x {scale['time_dilation']:.3g}{sampled}"
    )


class Talk:
    """Progress of a long verb on stderr: bars on a terminal, lines elsewhere, nothing when quiet or
    quickly done.

    `talk.of("rfabric")` is a progress function for one run; its dictionaries have keys stage,
    phase, done_bytes, total_bytes, done_cells, cells, done, of, circuits, clock_s.
    """

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.began = time.monotonic()
        self.bars: Progress | None = None
        self.said, self.said_at, self.lines = "", 0.0, 0
        self.tasks: dict[str, int] = {}
        self.latest: tuple[str, dict] | None = None
        self.late = threading.Timer(PATIENCE, self._when_late)
        self.late.daemon = True
        self.one_at_a_time = threading.RLock()

    def __enter__(self) -> "Talk":
        if not self.quiet:
            self.late.start()
        return self

    def __exit__(self, *_) -> None:
        self.late.cancel()
        with self.one_at_a_time:
            self.quiet = True
        if self.bars:
            self.bars.stop()

    def of(self, name: str) -> Callable[[dict], None]:
        """The progress function of the run called `name`."""
        return lambda news: self.tell(name, news)

    def tell(self, name: str, news: dict) -> None:
        """Show one piece of news, if it is time to."""
        with self.one_at_a_time:
            self.latest = name, news
            if self.quiet or time.monotonic() - self.began < PATIENCE:
                return
            if sys.stderr.isatty():
                self._bar(name, news)
            else:
                self._line(name, news)

    def _when_late(self) -> None:
        """Patience is over: say what goes on, also when nothing new is told for long."""
        with self.one_at_a_time:
            if self.latest:
                self.tell(*self.latest)

    def _line(self, name: str, news: dict) -> None:
        text = f"{name}: {_what(news)}"
        runs, now = news.get("stage") == "run", time.monotonic()
        too_soon = self.lines > MOST_LINES and now - self.said_at < BREATH
        between = runs and (not news.get("phase") or too_soon)
        if text != self.said and not between:
            self.said, self.said_at, self.lines = text, now, self.lines + 1
            with contextlib.suppress(OSError):  # talk is no reason to end a run
                print(text, file=sys.stderr, flush=True)

    def _bar(self, name: str, news: dict) -> None:
        if not self.bars:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(24),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
            )
            self.bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bars.start()
        if name not in self.tasks:
            for task in (t for t in self.bars.tasks if t.stop_time is None):
                self.bars.update(task.id, completed=task.total)
                self.bars.stop_task(task.id)
            self.tasks[name] = self.bars.add_task(_plain(name), total=None, text="")
        total, done = next(((news[t], news[d]) for d, t in PROGRESS if news.get(t)), (None, 0))
        self.bars.update(self.tasks[name], total=total, completed=done, text=_plain(_detail(news)))


def _what(news: dict) -> str:
    return " ".join(str(news[key]) for key in ("stage", "phase") if news.get(key))


def _detail(news: dict) -> str:
    told = [_what(news)]
    if news.get("total_bytes"):
        told.append(f"{show_size(news.get('done_bytes', 0))} of {show_size(news['total_bytes'])}")
    if news.get("cells"):
        told.append(f"{news['done_cells']} of {news['cells']} runs")
    if news.get("circuits"):
        told.append(f"{news['circuits']} circuits")
    if news.get("clock_s"):
        told.append(f"clock {show_time(news['clock_s'])}")
    return ", ".join(told)


def _plain(text: str) -> str:
    """`text` with rich's markup disarmed."""
    return text.replace("[", "\\[")
