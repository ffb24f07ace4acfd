"""The errors that the model is asked to stay below beside those it reaches, on rows that say
something: those of a system whose constants were fitted without it (`left out`), of files that no
constant was fitted on (`held out`), and apart from them those fitted on, or circular.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from . import Point, PointGroup, validate
from .leave_one_out import leave_one_out
from .standing import FITTED, HELD_OUT
from .tables import same_side

LEFT_OUT = "left out"
Measure = Callable[[Sequence[Point]], float]


@dataclass(frozen=True)
class Goal:
    """What is asked: of each measure at most, or of a share at least, its figure; of points whose
    name or part holds `of`, in groups called like one of `groups`, where given of one basis alone.
    """

    name: str
    groups: tuple[str, ...]
    measures: Mapping[str, float]
    of: str = ""
    basis: str = ""


@dataclass(frozen=True)
class Reached:
    """One figure that is asked for, beside what rows of one basis reach."""

    name: str
    measure: str
    asked: float
    reached: float
    rows: int
    basis: str

    @property
    def met(self) -> bool:
        """Whether it is reached, to a tenth of a percent."""
        more = round(self.reached - self.asked, 3)
        return more >= 0 if self.measure in SHARES else more <= 0

    def to_json(self) -> dict:
        """Its fields; figures are shares of 1."""
        return {**self.__dict__, "met": self.met}


def _errors(points: Sequence[Point]) -> np.ndarray:
    return np.abs([point.error for point in points])


def _near(points: Sequence[Point]) -> float:
    return float(np.mean([0.5 <= p.modelled / p.measured <= 2 for p in points]))


SHARES: dict[str, Measure] = {"within twofold": _near, "right in sign": same_side}
_MEASURES: dict[str, Measure] = SHARES | {
    "median": lambda points: float(np.median(_errors(points))),
    "p90": lambda points: float(np.quantile(_errors(points), 0.9)),
}
_DEEPEP = {"median": 0.20}
# Time per output token: as it was before these goals were set.
ASKED = (
    Goal(
        "all-reduce between servers", ("all systems, each left out",),
        {"median": 0.20, "p90": 0.50}, "all-reduce",
    ),
    Goal(
        "weight sync", ("weight sync, each system left out",),
        {"within twofold": 0.85, "median": 0.35},
    ),
    Goal("step on policy", ("nemo_rl step*",), {"median": 0.20}, "on policy"),
    Goal(
        "what asynchrony gains", ("nemo_rl asynchronous gain*", "verl asynchronous gain*"),
        {"right in sign": 0.90, "median": 0.15},
    ),
    Goal("time to first token", ("first tokens, each system left out",), {"median": 0.35}),
    Goal("time per output token", ("serving TPOT*",), {"median": 0.071}, basis=FITTED),
    Goal("time per output token", ("serving TPOT*",), {"median": 0.199}, basis=HELD_OUT),
    *(
        Goal(f"DeepEP normal, {nodes}", ("deepep* normal",), _DEEPEP, nodes)
        for nodes in ("1 node", "2 nodes", "4 nodes", "8 nodes")
    ),
    Goal("training, dense", ("training *",), {"median": 0.12}, "dense"),
    Goal(
        "training, mixtures of experts", ("training of mixtures, each model left out",),
        {"median": 0.12},
    ),
)  # fmt: skip


def reached(folder: str | Path, left_out: Iterable[PointGroup] | None = None) -> list[Reached]:
    """What is asked beside what is reached in a folder, in the order of ASKED; nothing is said
    where it has no rows. `left_out`: what `leave_one_out` made of the folder, where it is known.
    """
    folds = leave_one_out(folder) if left_out is None else left_out
    groups = [*validate(folder), *folds]
    return [one for asked in ASKED for one in compared(asked, groups)]


def compared(asked: Goal, groups: Iterable[PointGroup]) -> Iterable[Reached]:
    """Each figure of what is asked beside the rows of each basis, those fitted on last."""
    by_basis: dict[str, list[Point]] = {}
    for group in groups:
        basis = LEFT_OUT if group.name.endswith(LEFT_OUT) else group.basis
        if any(fnmatch(group.name, name) for name in asked.groups) and asked.basis in ("", basis):
            points = [p for p in group.points if asked.of in p.part or asked.of in p.name]
            by_basis.setdefault(basis, []).extend(points)
    for basis, points in sorted(by_basis.items(), key=lambda item: item[0] == FITTED):
        for measure, figure in asked.measures.items() if points else ():
            value = _MEASURES[measure](points)
            yield Reached(asked.name, measure, figure, value, len(points), basis)
