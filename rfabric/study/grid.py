"""Fabrics x policies x recipes x seeds: what is compared, in words; `cell_folders` runs it, each
cell into a run folder of its own.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, Needs
from ..files import read_json
from ..optics import Timing
from ..report.folder import read_folder, write_text
from ..report.result import Scale
from ..report.summary import Run
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, asked_network, parse_policies
from ..schedulers.traffic import inputs_of_job, needs_of_job
from ..trace import Traffic
from .asked import fitted, traffic_on
from .run import Case, RunSettings, check

VERSION = 1


@dataclass(frozen=True)
class Cell:
    """One run of the grid, in the words of the command line."""

    fabric: str
    policy: str
    traffic: str
    seed: int


@dataclass(frozen=True)
class Grid:
    """What is compared; `scale` (`Scale.to_json`) is the same for all cells that are emulated.

    versions: the code, and the files that the words name, with their digests, as a comparison
    began.
    """

    fabrics: tuple[str, ...]
    policies: tuple[str, ...]
    traffics: tuple[str, ...]
    seeds: tuple[int, ...]
    engine: str = "simulate"
    settings: tuple[str, ...] = ()
    in_flight: str = "hold"
    scale: dict | None = None
    command: str = ""
    routing: str = "placed"
    match: str = ""
    repetitions: str = "folded"
    transport: str = "fluid"
    prices: tuple[float, ...] = ()  # of an OCS port (USD), among which the page chooses
    versions: dict | None = None

    def fabric(self, spec: str, needs: Needs) -> Fabric:
        """The fabric `spec` as a job needs it; with `match`, its variant nearest to the first one's
        cost or bandwidth.
        """
        return _fabric(spec, needs, *self._matched)

    @property
    def _matched(self) -> tuple[str, str]:
        """The fabric that others are matched to, and by what; '' twice where they are not."""
        return (self.fabrics[0], self.match) if self.match else ("", "")

    def cells(self) -> list[Cell]:
        """Every run, fabrics innermost; a fabric without OCS is run once a compute scheduler: no
        circuit policy can act on it.
        """
        cells = []
        for traffic, seed, fabric in product(self.traffics, self.seeds, self.fabrics):
            optical = self._optical(fabric, traffic)
            first = {parse_policies(p).scheduler: p for p in reversed(self.policies)}.values()
            cells += [
                Cell(fabric, p, traffic, seed) for p in self.policies if optical or p in first
            ]
        return cells

    def _optical(self, fabric: str, traffic: str) -> bool:
        return _optical(fabric, needs_of(traffic, self.settings), *self._matched)

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The compute schedulers, each once: so many traces a recipe and seed has."""
        return tuple(dict.fromkeys(parse_policies(p).scheduler for p in self.policies))

    @property
    def one_trace(self) -> bool:
        """Whether all cells play the same trace."""
        return len(self.traffics) == len(self.seeds) == len(
            self.schedulers
        ) == 1 and not asked_network(self.schedulers[0])

    def traffic(self, cell: Cell) -> Traffic:
        """What the job of a cell sends; where its scheduler asks the network, on that fabric."""
        policies = parse_policies(cell.policy)
        job = cell.traffic, self.settings, cell.seed
        if not asked_network(policies.scheduler):  # one trace for all fabrics and circuits
            return _traffic(*job, replace(policies, circuits=DEFAULT_CIRCUITS))
        return _traffic(*job, policies, (cell.fabric, *self._matched), self.in_flight)

    def to_json(self) -> dict:
        return {"version": VERSION} | asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> "Grid":
        """The grid that `to_json` wrote."""
        values = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "version"
        }
        return cls(**values)


def read_grid(folder: str | Path) -> Grid:
    """The grid of a folder that `run` began. RFabricError where there is none to resume."""
    path = Path(folder) / "grid.json"
    try:
        data = read_json(path)
        if data.get("version") != VERSION:
            raise RFabricError(
                f"{path}: grid version {data.get('version')!r}; this rfabric "
                f"reads version {VERSION}"
            )
        return Grid.from_json(data)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RFabricError(f"{folder} is no folder of a comparison to resume: {error}") from error


def begin(grid: Grid, folder: Path) -> None:
    """Check every cell's words, then write grid.json: from here on the folder can be resumed."""
    check_cells(grid, grid.cells())
    keep_grid(grid, folder)


def keep_grid(grid: Grid, folder: Path) -> None:
    """Write grid.json."""
    write_text(folder / "grid.json", json.dumps(grid.to_json(), indent=2) + "\n")


def check_cells(grid: Grid, cells: Sequence[Cell]) -> None:
    """RFabricError for words that cannot be run, before any of these cells is. Seeds draw alike: a
    job is made of the first that it has among these.
    """
    first: dict[str, Fabric] = {}  # of each traffic
    drawn: dict[str, int] = {}
    for cell in cells:
        seed = drawn.setdefault(cell.traffic, cell.seed)
        made = grid.traffic(cell) if cell.seed == seed else None
        fabric = grid.fabric(cell.fabric, made.needs if made else Needs())
        if made:
            fitted(made, (first.setdefault(cell.traffic, fabric), fabric))
        check(Case(fabric, parse_policies(cell.policy).circuits), grid.engine)


def runs_of(places: Sequence[Path]) -> list[Run]:
    """The runs of these cells; cells of one trace share it, as a run folder wants."""
    runs = [read_folder(place)[0][0] for place in places]
    trace = runs[0].result.trace
    return [replace(run_, result=replace(run_.result, trace=trace)) for run_ in runs]


def entries_of(places: Sequence[Path]) -> list[dict]:
    """The summaries of these cells."""
    return [read_json(place / "summary.json")["runs"][0] for place in places]


def remove_cells(folder: Path) -> None:
    """Remove what only a comparison under way needs."""
    shutil.rmtree(folder / "cells", ignore_errors=True)
    (folder / "grid.json").unlink(missing_ok=True)


def run_settings(grid: Grid, cell: Cell, out: str | Path = "runs") -> RunSettings:
    """How a cell is played; its emulation, if it is one, has its folder under `out`."""
    settings = RunSettings(
        grid.engine,
        cell.seed,
        grid.routing,
        grid.in_flight,
        grid.repetitions,
        out=out,
        transport=grid.transport,
    )
    return settings.at(Scale.from_json(grid.scale)) if grid.scale else settings


def case_of(grid: Grid, cell: Cell) -> tuple[Case, Traffic]:
    """The fabric of a cell as its job needs it and who chooses its circuits; what is sent there."""
    traffic = grid.traffic(cell)
    fabric = grid.fabric(cell.fabric, traffic.needs)
    return Case(fabric, parse_policies(cell.policy).circuits), fitted(traffic, [fabric])


def default_jobs(grid: Grid) -> int:
    """Processes for a grid where nothing is said: one a core, one where real time is measured."""
    return 1 if grid.engine == "emulate" else len(os.sched_getaffinity(0))


@lru_cache(1)  # the cells of one trace come one after another
def _traffic(
    name: str,
    settings: tuple[str, ...],
    seed: int,
    policies: Policies,
    place: tuple[str, str, str] = ("", "", ""),
    in_flight: str = "hold",
) -> Traffic:
    """What a job sends; `place`: the words of `_fabric` for the fabric that its scheduler asks."""
    spec, *matched = place

    def asked(needs: Needs) -> Fabric:
        return _fabric(spec, needs, *matched)

    return traffic_on(name, settings, seed, [policies], [asked], Timing(in_flight=in_flight))


needs_of, inputs_of = lru_cache(64)(needs_of_job), lru_cache(64)(inputs_of_job)


@lru_cache(4096)
def _optical(spec: str, needs: Needs, reference: str, match: str) -> bool:
    return bool(_fabric(spec, needs, reference, match).ocses)


def forget() -> None:
    """Forget what was read from files that words name: they may have changed since."""
    for kept in (_traffic, needs_of, inputs_of, _optical, _fabric):
        kept.cache_clear()


@lru_cache(8)
def _fabric(spec: str, needs: Needs, reference: str = "", match: str = "") -> Fabric:
    made = needs.fabric(spec)
    if not match or spec == reference:
        return made
    from ..fabric.match import matched

    return matched(made, to=needs.fabric(reference), by=match).fabric
