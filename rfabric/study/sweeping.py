"""A sweep: the cells of a grid into a store, by whatever workers, none run that is known already.

    words -> keys -> in the store? in the cache? -> tasks -> workers -> cache, store

The cache is a folder of one small file a cell, under the digest of the code, that all sweeps of a
machine share, or of several by a shared disk. A cell is in it as soon as its answer is here:
whatever ends a sweep, who starts it again runs only what is missing.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

from ..errors import RFabricError, RunError
from ..files import replacing
from ..report.folder import writing
from ..report.store import add_rows, keys_in, open_store
from ..schedulers.table import asked_network, parse_policies
from .cells import answered, files_of_cell, forget_files, key_of, task_of, with_files
from .farm import LostItems, outcomes
from .fingerprint import Code, code_here
from .grid import Cell, Grid, check_cells
from .workers import connected

ALIKE = 20  # cells that break alike, and none that does not: the sweep ends
MOST_TOGETHER = 16  # cells of one trace in one task
A_WORKER = 8  # tasks, at least, so that none waits long for the last
SAVE_S, SAVE_ROWS = 30.0, 1000  # a part of the store is written after so long, or so many cells
SAY_S = 5.0  # progress is told so often


@dataclass(frozen=True)
class Place:
    """Where a sweep's cells go, and who runs which of them.

    shard: (i, n), the i-th of n parts, from 1. workers: an address, '': `jobs` processes.
    """

    store: Path
    cache: Path
    jobs: int
    workers: str = ""
    shard: tuple[int, int] = (1, 1)


@dataclass
class Tally:
    """What came of the cells: `stored` were in the store before, `cached` in the cache."""

    cells: int = 0
    stored: int = 0
    cached: int = 0
    run: int = 0
    broke: list[tuple[Cell, str]] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Cells of which there is no more to be done."""
        return self.stored + self.cached + self.run + len(self.broke)

    def to_json(self) -> dict:
        """The counts, and each cell that broke with its error."""
        broke = [asdict(cell) | {"error": error} for cell, error in self.broke]
        counts = {name: getattr(self, name) for name in ("cells", "stored", "cached", "run")}
        return counts | {"broke": broke}


def sweep_cells(
    grid: Grid,
    place: Place,
    tell: Callable[[dict], None] = lambda _: None,
    wanted: Callable[[Cell], bool] = lambda _: True,
) -> Tally:
    """Bring every cell of the grid, or of the shard, into the store, where it is wanted.

    RFabricError for words that cannot be run, before anything is, and for workers that cannot run
    them; RunError where cells broke, the others being in the store, or where ALIKE of them broke
    alike and none ran.
    """
    tally = sweep_what_runs(grid, place, tell, wanted)
    complain(tally, place)
    return tally


def sweep_what_runs(
    grid: Grid,
    place: Place,
    tell: Callable[[dict], None] = lambda _: None,
    wanted: Callable[[Cell], bool] = lambda _: True,
) -> Tally:
    """As `sweep_cells`, without an error for the cells that broke."""
    _refuse_outside(grid)
    forget_files()
    code = code_here()
    open_store(place.store, asdict(code))
    cells = _of_shard([cell for cell in grid.cells() if wanted(cell)], place.shard)
    keyed = [(_key(grid, cell, code), cell) for cell in cells]
    there, tally = keys_in(place.store), Tally(len(keyed))
    missing = [one for one in keyed if one[0] not in there]
    tally.stored = len(keyed) - len(missing)
    saved = _Saved(place, code)
    try:
        missing = [one for one in missing if not saved.again(one[0])]
        tally.cached = len(keyed) - tally.stored - len(missing)
        check_cells(grid, _each_word_once(cell for _, cell in missing))
        if missing:
            _run(grid, place, missing, _Answers(tally, saved, tell))
    finally:
        saved.flush()
    return tally


def _refuse_outside(grid: Grid) -> None:
    """RFabricError for a scheduler whose plan is made elsewhere: its words do not decide it."""
    for policy in grid.policies:
        scheduler = parse_policies(policy).scheduler
        if asked_network(scheduler) not in ("", "fabric"):
            raise RFabricError(
                f"policy {scheduler} asks a controller, whose answers no sweep can keep; say "
                "network=fabric, or use `rfabric compare`"
            )


def _of_shard(cells: Sequence[Cell], shard: tuple[int, int]) -> Sequence[Cell]:
    """One of n parts of equal size, of neighbours: they share traces."""
    i, n = shard
    return cells[len(cells) * (i - 1) // n : len(cells) * i // n]


# --- names -------------------------------------------------------------------------------------


def _key(grid: Grid, cell: Cell, code: Code) -> str:
    return key_of(grid, cell, code, files_of_cell(grid, cell))


def _each_word_once(cells: Iterable[Cell]) -> list[Cell]:
    """Some of these cells, in which each fabric, policy and recipe stands at least once."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for cell in cells:
        words = {("fabric", cell.fabric), ("policy", cell.policy), ("traffic", cell.traffic)}
        if not words <= seen:
            seen |= words
            chosen.append(cell)
    return chosen


# --- running -----------------------------------------------------------------------------------


def _run(grid: Grid, place: Place, missing: list[tuple[str, Cell]], watch: "_Answers") -> None:
    code = code_here()

    def words(keyed: Sequence[tuple[str, Cell]]) -> tuple[str]:
        cells = [cell for _, cell in keyed]
        files = {
            name: digest for cell in cells for name, digest in files_of_cell(grid, cell).items()
        }
        task = task_of(grid, cells, code, files)
        return (with_files(task) if files and workers.remote else task,)

    with connected(place.workers, min(place.jobs, len(missing))) as workers:
        tasks = list(_together(missing, workers.count()))
        for keyed, outcome in outcomes(workers, answered, tasks, words):
            watch.take(keyed, _answers(outcome, len(keyed)))


def _together(keyed: Sequence[tuple[str, Cell]], workers: int) -> Iterator[list[tuple[str, Cell]]]:
    """Tasks: some cells of one trace each, of which many are left for every worker."""
    most = min(max(len(keyed) // (A_WORKER * max(workers, 1)), 1), MOST_TOGETHER)

    def trace(one: tuple[str, Cell]) -> tuple[str, int, str]:
        return one[1].traffic, one[1].seed, parse_policies(one[1].policy).scheduler

    for _, group in groupby(sorted(keyed, key=trace), trace):
        cells = list(group)
        yield from (cells[i : i + most] for i in range(0, len(cells), most))


def _answers(outcome: bytes | LostItems, count: int) -> list[dict]:
    if isinstance(outcome, LostItems):
        return [{"error": str(outcome)}] * count
    said = json.loads(outcome)
    if "refused" in said:
        raise RFabricError(said["refused"])
    return said["cells"]


class _Answers:
    """What is done with each answer: kept, counted, told; and when it is time to stop."""

    def __init__(self, tally: Tally, saved: "_Saved", tell: Callable[[dict], None]):
        self._tally, self._saved, self._tell = tally, saved, tell
        self._alike: Counter[str] = Counter()
        self._began, self._told, self._first = 0.0, time.monotonic(), 0

    def take(self, keyed: Sequence[tuple[str, Cell]], answers: Sequence[dict]) -> None:
        """The answers of some cells; RunError where cells break alike and none ran."""
        ran = {}
        for (key, cell), answer in zip(keyed, answers, strict=True):
            if "row" in answer:
                ran[key] = answer["row"]
            else:
                self._tally.broke.append((cell, answer["error"]))
                self._alike[_shape(answer["error"])] += 1
        self._tally.run += len(ran)
        self._saved.new(ran)
        self._stop_if_hopeless()
        self._say(time.monotonic())

    def _say(self, now: float) -> None:
        """The clock of what is left runs from the first answer: workers have begun by then."""
        done = self._tally.done
        if not self._began:
            self._began, self._first = now, done
        if now - self._told > SAY_S or done == self._tally.cells:
            self._told = now
            self._tell(_news(self._tally, done - self._first, now - self._began))

    def _stop_if_hopeless(self) -> None:
        shape, times = (self._alike.most_common(1) or [("", 0)])[0]
        if not self._tally.run and times >= ALIKE:
            first = next(error for _, error in self._tally.broke if _shape(error) == shape)
            raise RunError(
                f"the first {times} cells broke alike and none ran, so the other "
                f"{self._tally.cells - self._tally.done} are not tried: {first}"
            )


def _shape(error: str) -> str:
    """An error without its numbers: cells that break alike differ in them."""
    return re.sub(r"\d+(\.\d+)?", "#", error)


def _news(tally: Tally, count: int, seconds: float) -> dict:
    """`count` cells were done in so many seconds."""
    said = f"{tally.done} of {tally.cells} cells"
    if count and tally.done < tally.cells:
        left = (tally.cells - tally.done) * seconds / count
        said += f", {count / max(seconds, 1e-9):.3g} a second, {_clock(left)} left"
    return {"stage": "", "phase": said, "done": tally.done, "of": tally.cells}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def complain(tally: Tally, place: Place) -> None:
    """RunError where cells broke."""
    if not tally.broke:
        return
    kinds = Counter(_shape(error) for _, error in tally.broke)
    cell, error = tally.broke[0]
    alike = f", {len(kinds)} errors" if len(kinds) > 1 else ""
    raise RunError(
        f"{len(tally.broke)} of {tally.cells} cells broke{alike}, first {cell.fabric} under "
        f"{cell.policy}, {cell.traffic}, seed {cell.seed}: {error}; the others are in "
        f"{place.store}, and who says the same again tries these again"
    )


# --- kept --------------------------------------------------------------------------------------


class _Saved:
    """Rows on their way: each into the cache at once, into the store some at a time."""

    def __init__(self, place: Place, code: Code):
        self._store, self._code = place.store, code
        self._cache = place.cache / code.digest
        self._rows: list[dict] = []
        self._since = time.monotonic()

    def _file(self, key: str) -> Path:
        return self._cache / key[:2] / f"{key}.json"

    def again(self, key: str) -> bool:
        """Whether the cache knows a cell; its row goes into the store."""
        with suppress(OSError, ValueError):  # one that is not there, or damaged, is run
            row = json.loads(self._file(key).read_bytes())
            if isinstance(row, dict) and row.get("key") == key:
                self._rows.append(row)
                self._flush_in_time()
                return True
        return False

    def new(self, by_key: Mapping[str, dict]) -> None:
        """Cells that have been run: all are for the store, also where the cache takes no more."""
        code = {"version": self._code.rfabric, "code": self._code.digest}
        rows = [{"key": key} | row | code for key, row in by_key.items()]
        self._rows += rows
        for row in rows:
            path = self._file(row["key"])
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as beside:
                    beside.write_text(json.dumps(row), encoding="utf-8")
        self._flush_in_time()

    def _flush_in_time(self) -> None:
        if len(self._rows) >= SAVE_ROWS or time.monotonic() - self._since > SAVE_S:
            self.flush()

    def flush(self) -> None:
        """Write what the store does not have yet."""
        add_rows(self._store, self._rows)
        self._rows, self._since = [], time.monotonic()
