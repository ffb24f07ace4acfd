"""Which network is best, by any column of a store's cells, job by job, seed against seed.

A contender is what was compared: fabric, policy, routing and how it was played. Two are held
against each other on the seeds that both have run: a seed draws the same job for both, so what
they differ by varies less than the measure itself. A file that has changed makes another job, or
another contender, of the same words.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RFabricError, meant
from .compare import NEGLIGIBLE, Table
from .grid import interval

JOB = ("asked_traffic", "settings", "matched", "job_files")
CONTENDER = (
    "asked_fabric", "asked_policy", "routing", "in_flight", "repetitions", "transport",
    "network_files",
)  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """The measure of one network on one job, by seed. `words` say which, in CONTENDER's order."""

    words: tuple[str, ...]
    by_seed: dict[int, float]

    @property
    def mean(self) -> float:
        """Over its own seeds."""
        return float(np.mean(list(self.by_seed.values())))

    def more_than(self, other: "Contender") -> np.ndarray:
        """What it has more than the other, on each seed that both have."""
        both = sorted(self.by_seed.keys() & other.by_seed.keys())
        return np.array([self.by_seed[seed] - other.by_seed[seed] for seed in both])


@dataclass(frozen=True)
class Standing:
    """A contender beside the best of its job: `more` on the mean of `seeds` that both have, give
    or take `half`, which is None of one seed.
    """

    contender: Contender
    more: float
    half: float | None
    seeds: int

    def verdict(self, scale: float, sign: int = 1) -> str:
        """What may be said of it, `scale` being the best's mean; sign: 1 where less is better."""
        if not self.seeds:
            return "no seed in common"
        if self.half is None:
            return "one seed"
        if sign * self.more - self.half <= NEGLIGIBLE * abs(scale):
            return "not told apart"
        return "more" if sign > 0 else "less"


def jobs_of(rows: Sequence[dict], measure: str) -> dict[tuple[str, ...], list[Contender]]:
    """The contenders of each job among these rows, those without the measure left out.

    RFabricError where no cell has such a column, or it holds no numbers.
    """
    _check(rows, measure)
    jobs: dict[tuple, dict[tuple, dict[int, float]]] = {}
    for row in rows:
        if row[measure] is not None:
            job, words = words_of_row(row, JOB), words_of_row(row, CONTENDER)
            jobs.setdefault(job, {}).setdefault(words, {})[row["seed"]] = float(row[measure])
    return {
        job: [Contender(words, by_seed) for words, by_seed in of.items()]
        for job, of in jobs.items()
    }


def words_of_row(row: Mapping, names: Sequence[str]) -> tuple[str, ...]:
    """Its words of these names; '' of a column that an older store does not have."""
    return tuple(row.get(name) or "" for name in names)


def _check(rows: Sequence[dict], measure: str) -> None:
    if not rows:
        raise RFabricError("no cell is left to choose from; see --where")
    if measure not in rows[0]:
        numbers = sorted(name for name in rows[0] if any(_is_number(row[name]) for row in rows))
        raise RFabricError(
            f"no column {measure!r}{meant(measure, numbers)}; there are {', '.join(numbers)}"
        )
    values = [row[measure] for row in rows if row[measure] is not None]
    if not values or not all(map(_is_number, values)):
        held = f"such as {values[0]!r}" if values else "nothing in any of these cells"
        raise RFabricError(f"column {measure!r} holds no numbers: {held}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def standings(contenders: Sequence[Contender], sign: int = 1) -> list[Standing]:
    """Each beside the best, best first; the best is the least, with `sign` -1 the greatest.

    Who shares no seed with the best comes last, with nothing to say of it.
    """
    best = max(contenders, key=lambda c: (len(c.by_seed), -sign * c.mean))
    for one in contenders:
        more = one.more_than(best)
        if len(more) and sign * more.mean() < 0:
            best = one
    return sorted(
        (_beside(one, best) for one in contenders),
        key=lambda s: (s.contender is not best, s.seeds == 0, sign * s.more),
    )


def _beside(one: Contender, best: Contender) -> Standing:
    more = one.more_than(best)
    if len(more) < 2:
        return Standing(one, float(more.mean()) if len(more) else 0.0, None, len(more))
    return Standing(one, *interval(more), len(more))


def documents(rows: Sequence[dict], measure: str, sign: int = 1) -> list[dict]:
    """The ranking of each job, for programs."""
    return [
        dict(zip(JOB, job, strict=True)) | {
            "measure": measure,
            "ranking": [_document(s) for s in standings(contenders, sign)],
        }
        for job, contenders in jobs_of(rows, measure).items()
    ]  # fmt: skip


def _document(standing: Standing) -> dict:
    one = standing.contender
    return dict(zip(CONTENDER, one.words, strict=True)) | {
        "mean": one.mean, "seeds": len(one.by_seed), "more_than_best": standing.more,
        "half_of_interval": standing.half, "seeds_shared": standing.seeds,
    }  # fmt: skip


def tables(rows: Sequence[dict], measure: str, sign: int = 1, most: int = 10) -> list[Table]:
    """One table a job, the best `most` of its contenders."""
    lacking = sum(row.get(measure) is None for row in rows)
    left = f" {lacking} cells have no {measure} and are left out." if lacking else ""
    jobs = jobs_of(rows, measure)
    named = Counter(job[:-1] for job in jobs)
    return [
        _table(_title(job, named[job[:-1]] > 1), standings(of, sign), measure, sign, most, left)
        for job, of in jobs.items()
    ]


def _title(job: tuple[str, ...], changed: bool) -> str:
    """A job by its words; by its files as well where the same words meant others."""
    traffic, settings, matched, files = job
    fitted = matched and f"(fitted to the {matched})"
    which = changed and f"(job_files = '{files}': they differ between cells)"
    return " ".join(filter(None, [traffic, settings, fitted, which]))


def _differing(ranked: Sequence[Standing]) -> list[int]:
    """Which of the words of CONTENDER tell these apart; the files only where no word does."""
    words = [s.contender.words for s in ranked]
    shown = [i for i in range(len(CONTENDER) - 1) if i < 2 or len({w[i] for w in words}) > 1]
    return [*shown, len(CONTENDER) - 1] if len({w[:-1] for w in words}) < len(words) else shown


def _table(
    title: str, ranked: Sequence[Standing], measure: str, sign: int, most: int, left: str
) -> Table:
    differing = _differing(ranked)
    scale = ranked[0].contender.mean
    shown = [
        (" ".join(s.contender.words[i] for i in differing), *_cells(s, n == 0, scale, sign))
        for n, s in enumerate(ranked[:most])
    ]
    others = f" {len(ranked) - most} more follow." if len(ranked) > most else ""
    columns = "fabric, policy", measure, "seeds", "than the best", "95 % interval", ""
    note = f"Mean over seeds; beside the best, on the seeds that both have.{left}{others}"
    return Table.of(f"{title}: by {measure}", columns, shown, note, words=(5,))


def _cells(s: Standing, best: bool, scale: float, sign: int) -> tuple[str, ...]:
    values = f"{s.contender.mean:,.6g}", str(len(s.contender.by_seed))
    if best:
        return *values, "", "", "best"
    span = "" if s.half is None else f"{s.more - s.half:+.4g} .. {s.more + s.half:+.4g}"
    return *values, f"{s.more:+.4g}" if s.seeds else "", span, s.verdict(scale, sign)
