"""The cells of a comparison into run folders: by this machine's cores, or by workers elsewhere.

    runs/20250721-143005-9f3a/
        grid.json                 what was asked for; `resume` needs nothing else
        cells/000-fat-tree.../    a run folder a cell, renamed into place when whole
        summary.json report.html  when all cells are there

A grid that was interrupted, killed or that broke in one cell is taken up again where it stopped:
cells that are whole stay. Each cell is made from its own words alone, so the order and the number
of workers change nothing, and one that was made before is copied (`kept`). Workers that share no
disk with us send a run folder back as a ZIP archive.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import RFabricError, RunError
from ..report.folder import NOT_KEPT, new_folder, sweep, write_refused
from ..report.outcome import Comparison
from .cells import files_of_cell, ready, refusal, task_of, with_files
from .farm import outcomes
from .fingerprint import code_here
from .grid import Cell, Grid, case_of, default_jobs, run_settings
from .kept import Folders, folder_key
from .run import play
from .workers import connected

ARCHIVE = b"PK"  # how a ZIP archive begins; all else is JSON
Keyed = tuple[Cell, Path, str]  # a cell, its place, and its key among the kept


@dataclass(frozen=True)
class Hands:
    """Who runs cells: `workers` at an address, '' for `jobs` processes here (0: as many as cores;
    emulation measures real time and has one); `kept`: the folders made before, if they count.
    """

    jobs: int = 0
    workers: str = ""
    kept: Folders | None = None


def run(
    grid: Grid,
    folder: Path,
    hands: Hands = Hands(),
    progress: Callable[[dict], None] = lambda _: None,
) -> list[Path]:
    """Run the cells of `folder` that are missing and return the run folders of all, in the order of
    `grid.cells()`.

    RunError where a cell broke: the others are finished first, and stay.
    """
    if hands.workers and grid.engine == "emulate":
        raise RFabricError(
            f"--workers {hands.workers}: an emulation measures the packets of this machine; leave "
            "--workers out, or simulate"
        )
    sweep(folder / "cells")
    cells = grid.cells()
    places = [folder / "cells" / _slug(i, cell) for i, cell in enumerate(cells)]
    missing = list(_missing(grid, cells, places, hands.kept))
    done = len(cells) - len(missing)
    broken = []
    progress({"stage": "run", "done_cells": done, "cells": len(cells)})
    for (cell, place, key), error in _outcomes(grid, missing, hands):
        done += 1
        if error:
            broken.append((cell, error))
        elif hands.kept:
            hands.kept.keep(key, place)
        news = {"phase": f"{cell.fabric} {cell.traffic}", "done_cells": done, "cells": len(cells)}
        progress({"stage": "run"} | news)
    if broken:
        cell, error = broken[0]
        raise RunError(
            f"{len(broken)} of {len(cells)} cells broke, first {cell.fabric} under "
            f"{cell.policy}: {error}"
        )
    return places


def _missing(
    grid: Grid, cells: Sequence[Cell], places: Sequence[Path], kept: Folders | None
) -> Iterator[Keyed]:
    """The cells that are neither in place nor known from before."""
    for cell, place in zip(cells, places, strict=True):
        if not (place / "summary.json").is_file():
            key = folder_key(grid, [cell]) if kept else ""
            if not (kept and kept.fetch(key, place)):
                yield cell, place, key


def _slug(index: int, cell: Cell) -> str:
    name = "".join(
        c if c.isalnum() or c in ".=" else "-"
        for c in f"{cell.fabric}-{cell.policy}-{Path(cell.traffic).stem}-{cell.seed}"
    )
    return f"{index:03d}-{name.strip('-.')[:80]}"


def cell_of(cells: Sequence[Cell], place: Path) -> Cell:
    """The one of a grid's `cells` whose run folder stands at `place`."""
    return cells[int(place.name.partition("-")[0])]


def _outcomes(grid: Grid, missing: Sequence[Keyed], hands: Hands) -> Iterator[tuple[Keyed, str]]:
    """(cell, what went wrong or nothing) as cells are done."""
    jobs = min(hands.jobs or default_jobs(grid), len(missing))
    if not hands.workers and (jobs <= 1 or grid.engine == "emulate"):
        yield from ((one, tried(grid, one[0], one[1])) for one in missing)
        return
    with connected(hands.workers, jobs) as workers:
        work = _far if workers.remote else tried
        words = _task(grid) if workers.remote else _words(grid)
        for (one,), answer in outcomes(workers, work, [[m] for m in missing], words):
            yield one, _unpacked(answer, one[1]) if isinstance(answer, bytes) else str(answer)


def _words(grid: Grid) -> Callable[[Sequence[Keyed]], tuple]:
    return lambda one: (grid, *one[0][:2])


def tried(grid: Grid, cell: Cell, place: Path) -> str:
    """Make the run folder of a cell; what went wrong, or nothing. What was measured and refused is
    kept beside the cells.
    """
    try:
        _run(grid, cell, place)
    except RFabricError as error:
        if error.refused:
            apart = place.parents[1]
            write_refused(apart, error.refused)
            return f"{error}; its figures are not to be used, they are kept in {apart / NOT_KEPT}"
        return str(error)
    return ""


def _run(grid: Grid, cell: Cell, place: Path) -> None:
    case, traffic = case_of(grid, cell)
    runs = play([case], traffic, run_settings(grid, cell, place.parent))
    with new_folder(place.parent, place.name) as folder:
        Comparison(tuple(runs)).write(folder, grid.command, page=False)


# --- workers elsewhere -------------------------------------------------------------------------


def _task(grid: Grid) -> Callable[[Sequence[Keyed]], tuple[str]]:
    code = code_here()

    def words(one: Sequence[Keyed]) -> tuple[str]:
        cell = one[0][0]
        return (with_files(task_of(grid, [cell], code, files_of_cell(grid, cell))),)

    return words


def _far(task: str) -> bytes:
    """Run the one cell of a task, in this process: its run folder as an archive, or what went
    wrong, as JSON.
    """
    said = json.loads(task)
    try:
        with ready(said) as grid, TemporaryDirectory(prefix="rfabric-cell-") as scratch:
            place = Path(scratch, "cell")
            error = tried(grid, Cell(*said["cells"][0]), place)
            return json.dumps({"error": error}).encode() if error else _packed(place)
    except RFabricError as error:
        return refusal(error)


def _packed(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return out.getvalue()


def _unpacked(answer: bytes, place: Path) -> str:
    """Put the run folder of an answer in its place; what went wrong instead, or nothing.

    RFabricError where workers cannot run any cell.
    """
    if answer.startswith(ARCHIVE):
        with new_folder(place.parent, place.name) as folder:
            zipfile.ZipFile(io.BytesIO(answer)).extractall(folder.path)
        return ""
    said = json.loads(answer)
    if "refused" in said:
        raise RFabricError(said["refused"])
    return said["error"]
