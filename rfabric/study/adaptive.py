"""A sweep that ends when the question is answered: successive halving over seeds.

Rounds of 2, 4, 8 .. seeds, as many as the grid has. After each, job by job: who is told apart from
the best is dropped, and where what is left is within `share` of the best, its job is done. Each
comparison is paired, seed against seed. The interval is looked at after every round, so that the
chance to drop the best by mistake is that of several looks, not of one at 95 %.
"""

from collections.abc import Callable
from dataclasses import replace

from ..errors import RFabricError
from ..report.ranking import CONTENDER, JOB, Standing, jobs_of, standings, words_of_row
from ..report.store import table_of_cells
from .cells import asked_as
from .grid import Cell, Grid
from .sweeping import Place, Tally, complain, sweep_what_runs

FIRST = 2  # seeds of the first round: fewer have no interval


def sweep_until(
    grid: Grid,
    place: Place,
    share: float,
    measure: str = "step_s",
    tell: Callable[[dict], None] = lambda _: None,
) -> Tally:
    """Sweep as many seeds of the grid as the comparison of its networks takes.

    share: of the best's mean, that the interval of what the others have more must stay within, at
    both of its ends.
    RFabricError for fewer than two seeds, or for a shard, which could not see the others' cells;
    RunError where cells broke, once all others are answered.
    """
    if len(grid.seeds) < FIRST or place.shard[1] > 1:
        raise RFabricError("--until takes --seeds 2 or more, and no --shard: it compares all cells")
    tally, open_, seeds = Tally(), None, FIRST
    looked_at: frozenset[int] = frozenset()
    while True:
        step = replace(grid, seeds=grid.seeds[: min(seeds, len(grid.seeds))])
        swept = sweep_what_runs(step, place, tell, wanted=_among(grid, open_, looked_at))
        tally.cells += swept.cells
        tally.run += swept.run
        tally.cached += swept.cached
        tally.stored += swept.stored
        tally.broke += swept.broke
        looked_at = frozenset(step.seeds)
        some = tally.done > len(tally.broke)
        open_ = _undecided(grid, place, step.seeds, share, measure) if some else set()
        seeds *= 2
        if not open_ or len(step.seeds) == len(grid.seeds):
            complain(tally, place)
            return tally


def _among(
    grid: Grid, open_: set[tuple] | None, looked_at: frozenset[int]
) -> Callable[[Cell], bool]:
    """The cells of seeds that no round has run, of networks that are not told apart yet."""
    if open_ is None:
        return lambda _: True
    return lambda cell: cell.seed not in looked_at and _named(asked_as(grid, cell)) in open_


def _named(row: dict) -> tuple[str, ...]:
    return words_of_row(row, (*JOB, *CONTENDER))


def _undecided(
    grid: Grid, place: Place, seeds: tuple[int, ...], share: float, measure: str
) -> set[tuple]:
    """The networks, with their jobs, that more seeds are to tell apart."""
    mine = {_named(asked_as(grid, cell)) for cell in replace(grid, seeds=grid.seeds[:1]).cells()}
    rows = [
        row
        for row in table_of_cells(place.store).to_pylist()
        if _named(row) in mine and row["seed"] in seeds
    ]
    undecided: set[tuple] = set()
    for job, contenders in jobs_of(rows, measure).items():
        best, *others = standings(contenders)
        doubtful = [s for s in others if _is_doubtful(s, best.contender.mean)]
        within = share * abs(best.contender.mean)
        if any(is_open(standing, within) for standing in doubtful):
            undecided |= {(*job, *s.contender.words) for s in (best, *doubtful)}
    return undecided


def is_open(standing: Standing, within: float) -> bool:
    """Whether its interval reaches farther from the best than `within`, in the measure's unit."""
    return standing.half is None or abs(standing.more) + standing.half > within


def _is_doubtful(standing: Standing, scale: float) -> bool:
    return standing.verdict(scale) != "more"
