"""One page of several run folders, or of a store: controls choose among runs that were made.

Of run folders there is a clock; of a store, whose cells are figures alone, a table.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import RFabricError
from ..units import show_thousands, show_time
from . import compare
from .choices import choices, choices_of_cells, jobs_differ_in, menus
from .folder import read_folder, write_text
from .html import CELLS, render_clock, render_moving, title_of
from .money import drawn, money
from .page.logged import LoggedRun
from .store import table_of_cells
from .summary import Run

MOST_RUNS = 60  # on one page: some 250 kB each
MOST_CELLS = 5_000  # of a store: some 700 B each
Folder = tuple[list[Run], dict]


def read_folders(paths: Sequence[Path]) -> list[Folder]:
    """The run folders at these paths, those of a comparison of many one by one; RFabricError for
    more runs than a page holds.
    """
    places = [place for path in paths for place in run_folders(path)]
    folders = [read_folder(place) for place in places]
    count = sum(len(runs) for runs, _ in folders)
    if count > MOST_RUNS:
        raise RFabricError(
            f"{count} runs are more than the {MOST_RUNS} that a page holds; name fewer run folders"
        )
    return folders


def run_folders(path: Path) -> list[Path]:
    """The folder of a run itself, or those of the cells of a comparison of several traces.
    RFabricError where none is done.
    """
    if not (path / "grid.json").is_file() or (path / "trace.csv").is_file():
        return [path]
    folders = sorted(file.parent for file in (path / "cells").glob("[!.]*/summary.json"))
    if not folders:
        raise RFabricError(f"no run in {path} is done")
    return folders


def summary_of_all(folders: Sequence[Folder], command: str) -> dict:
    """One summary of all folders, each run with a label of its own."""
    runs = [run for some, _ in folders for run in some]
    entries = [entry for _, summary in folders for entry in summary["runs"]]
    told = _labels(runs, choices(runs))
    versions: dict[str, str] = {}
    for _, summary in folders:
        versions |= summary["versions"]
    return {
        "version": folders[0][1]["version"],
        "created": max(summary["created"] for _, summary in folders),
        "command": command,
        "versions": versions,
        "jobs_differ_in": jobs_differ_in(runs),
        "runs": [entry | {"label": label} for entry, label in zip(entries, told, strict=True)],
    }


def write_several(
    path: Path,
    folders: Sequence[Folder],
    summary: dict,
    logged: LoggedRun | None = None,
    prices: Sequence[float] = (),
) -> None:
    """Write the page of these folders and of `summary_of_all` to `path`; it tells money at these
    `prices` of an OCS port (USD), too.
    """
    runs = [run for some, _ in folders for run in some]
    title = title_of(runs)
    from .page import records

    some = [runs for runs, _ in folders]
    clock = records.document_of_several(some, summary, title, logged, prices)
    told = money(runs, summary, prices, bars=False)
    clock |= {"choices": menus(choices(runs)), "pictures": drawn(told)}
    text = render_clock(
        "several.html",
        clock,
        summary,
        money=told,
        bound=any(map(compare.is_bound, summary["runs"])),
        cost_sources=compare.cost_sources(runs),
        fidelity=compare.fidelity(summary),
        made=list(dict.fromkeys(one["command"] for _, one in folders)),
    )
    write_text(path, text)


def write_cells(path: Path, folder: Path, command: str) -> list[dict]:
    """Write the page of a store's cells to `path`: its rows. RFabricError for more than it
    holds.
    """
    rows = table_of_cells(folder).to_pylist()
    if len(rows) > MOST_CELLS:
        raise RFabricError(
            f"{folder} holds {len(rows):,} cells, more than the {MOST_CELLS:,} of a page; ask it "
            f"with `rfabric query --store {folder}` or `rfabric best --store {folder}`"
        )
    chosen = choices_of_cells(rows)
    document = {
        "choices": menus(chosen),
        "runs": [{"engine": row["engine"], "label": row["label"]} for row in rows],
    }
    text = render_moving(
        "cells.html",
        CELLS,
        document,
        title=f"cells of {folder.name}",
        command=command,
        names=list(chosen[0]),
        cells=[
            (row["fabric"], _chosen(one), list(_figures(row)))
            for row, one in zip(rows, chosen, strict=True)
        ],
        columns=FIGURES,
    )
    write_text(path, text)
    return rows


FIGURES = "step", "exposed", "rewires", "dark", "network", "a step"


def _chosen(one: Mapping) -> list[str]:
    return ["–" if value is None else str(value) for value in one.values()]


def _figures(row: Mapping) -> Iterator[str]:
    factor, name, digits = compare.unit_of([row["step_s"]])
    yield f"{row['step_s'] * factor:.{digits}f} {name}"
    yield show_time(row["exposed_s"])
    yield f"{row['rewires']:,}"
    yield show_time(row["dark_s"])
    usd, paid = row.get("network_usd"), row.get("usd_per_step")
    yield "–" if usd is None else f"{show_thousands(usd)} k$"
    yield "–" if paid is None else f"{paid:,.4f} $"


def _labels(runs: Sequence[Run], every: Sequence[Mapping]) -> list[str]:
    """Of each run its fabric and whatever was chosen; runs that are alike in all have numbers."""
    plain = [
        " ".join([_kind(run), *(str(v) for k, v in one.items() if k != "fabric" and v is not None)])
        for run, one in zip(runs, every, strict=True)
    ]
    return [
        f"{label} #{plain[:i].count(label) + 1}" if label in plain[:i] else label
        for i, label in enumerate(plain)
    ]


def _kind(run: Run) -> str:
    packets = {"emulate": " emulated", "ns3": " ns-3"}
    return run.result.fabric.name + packets.get(run.result.engine, "")
