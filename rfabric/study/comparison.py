"""A comparison in its folder: begun, run cell by cell (`cell_folders`), finished.

grid -> begun -> run -> finish: one trace makes a run folder of all its runs, several make a
                                table, a picture and a page of what the cells came to
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import RFabricError
from ..files import read_json
from ..report import grid as grid_report
from ..report.folder import RunFolder, give_to_caller, new_name, write_text, writing
from ..report.html import can_draw_page
from ..report.outcome import Comparison
from .cell_folders import cell_of
from .cells import files_of_cell, forget_files
from .fingerprint import code_here
from .grid import (
    Grid,
    begin,
    case_of,
    entries_of,
    keep_grid,
    read_grid,
    remove_cells,
    run_settings,
    runs_of,
)  # fmt: skip
from .run import RunSettings, Tell, chosen_scale, simulated


def begun(grid: Grid, out: str | Path) -> Path:
    """A folder under `out` with the grid, every word of it checked; nothing where one is wrong."""
    forget_files()
    folder = Path(out) / new_name()
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    with writing(folder):
        folder.mkdir(parents=True)
        try:
            begin(grid, folder)
            keep_grid(replace(grid, versions=_versions(grid)), folder)
        except BaseException:
            (folder / "grid.json").unlink(missing_ok=True)
            for path in made:
                path.rmdir()
            raise
        give_to_caller([*made, folder / "grid.json"])
    return folder


def resumed(folder: Path) -> Grid:
    """The grid of a comparison that goes on; RFabricError where its cells would be of other files,
    or of other code, than those that are done.
    """
    grid = read_grid(folder)
    forget_files()
    now = _versions(grid)
    changed = [name for name, its in (grid.versions or {}).items() if now.get(name, "") != its]
    if changed:
        raise RFabricError(
            f"{', '.join(changed)} changed since {folder} began, and its finished runs are of what "
            "was there then: put that back, or begin another comparison"
        )
    return grid


def _versions(grid: Grid) -> dict[str, str]:
    """What decides the figures of a grid beside its words."""
    files: dict[str, str] = {}
    for cell in grid.cells():
        files |= files_of_cell(grid, cell)
    with suppress(RFabricError):  # a core that is not built from it is told where it is used
        files["rfabric's own code"] = code_here().digest
    return files


def scaled(grid: Grid, settings: RunSettings, tell: Tell = lambda *_: None) -> Grid:
    """The grid with one scale for every cell, chosen as for runs side by side: by what the
    simulations of all say.
    """
    expected = [simulated(*case_of(grid, cell), run_settings(grid, cell)) for cell in grid.cells()]
    return replace(grid, scale=chosen_scale(expected, settings, tell).to_json())


def finish(grid: Grid, folder: Path, places: Sequence[Path], page: bool) -> None:
    """Make what the run folders of all cells come to, with a `page` where it can be drawn."""
    made = _finish_one if grid.one_trace else _finish_many
    made(grid, folder, places, page)
    give_to_caller(folder.rglob("*"))


def finish_again(folder: Path) -> None:
    """Make the table, the picture and the page of several traces again, from the cells that are
    there. RFabricError where none is done.
    """
    places = sorted(path.parent for path in (folder / "cells").glob("[!.]*/summary.json"))
    if not places:
        raise RFabricError(
            f"no run in {folder} is done; go on with: rfabric compare --resume {folder}"
        )
    _finish_many(read_grid(folder), folder, places, page=True)
    give_to_caller(folder.rglob("*"))


def _finish_one(grid: Grid, folder: Path, places: Sequence[Path], page: bool) -> None:
    """One trace: the folder becomes a run folder of all its runs."""
    inputs = tuple(sorted((places[0] / "inputs").glob("*")))
    runs = Comparison.of(runs_of(places), inputs)
    whole = RunFolder(folder, folder, _created(places))
    runs.write(whole, grid.command, page=page, prices=grid.prices)
    remove_cells(folder)


def _finish_many(grid: Grid, folder: Path, places: Sequence[Path], page: bool) -> None:
    entries, created = _told_apart(grid, places, entries_of(places)), _created(places)
    summary = grid_report.grid_summary(entries, grid.to_json(), grid.command, created)
    write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    if page and can_draw_page():
        grid_report.write_page(folder / "report.html", summary)


def _told_apart(grid: Grid, places: Sequence[Path], entries: Sequence[dict]) -> list[dict]:
    """The runs of these cells, those of two files of one name by the words they were asked in."""
    cells = grid.cells()
    asked = [cell_of(cells, place).traffic for place in places]
    both = set(zip((entry["traffic"] for entry in entries), asked, strict=True))
    times = Counter(name for name, _ in both)
    return [
        entry | {"traffic": word} if times[entry["traffic"]] > 1 else entry
        for entry, word in zip(entries, asked, strict=True)
    ]


def _created(places: Sequence[Path]) -> str:
    return read_json(places[0] / "summary.json")["created"]
