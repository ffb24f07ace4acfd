"""Published experiments run again: paper, ours, ratio, trust, and why they differ.

One module a paper.

Each module offers `rows(seed, progress) -> list[PaperRow]`. Inputs are what the papers state;
nothing is fitted to the figure to be reproduced. A row that cannot be run has no `ours` and says
why; a miss stays a miss. A row of trust `circular` is counted with none: what it is compared with
is among what it is made of.

A module may hold EXPERIMENTS as well: name -> function of the seed, whose rows say what a miss's
likely cause does when it is changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from ...errors import RFabricError, meant

QUOTED, SECOND_HAND = "quoted", "second-hand"
# ours rests on seconds that this very paper measured: it shows that nothing contradicts, not more
CIRCULAR = "circular"
Value = float | tuple[float, float]


@dataclass(frozen=True)
class PaperRow:
    """One published figure (None where there is none) and what rfabric makes of it; a pair is a
    range.

    `unit` is x for ratios, share for 0..1.
    """

    metric: str
    paper: Value | None
    ours: Value | None
    unit: str = "x"
    why: str = ""
    trust: str = QUOTED

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's, middles of ranges; None where there is nothing to divide."""
        if self.ours is None or self.paper is None or not middle(self.paper):
            return None
        return middle(self.ours) / middle(self.paper)

    def to_json(self) -> dict:
        """The row with stable keys."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "paper": None if self.paper is None else _listed(self.paper),
            "ours": None if self.ours is None else _listed(self.ours),
            "ratio": self.ratio,
            "trust": self.trust,
            "why": self.why,
        }


PartBegun = Callable[[str], None]  # told the name of each part as it begins
PaperPart = Callable[[int], Iterable[PaperRow]]  # a function of the seed, called *_rows


def rows_of(parts: Sequence[PaperPart], seed: int, progress: PartBegun) -> list[PaperRow]:
    """The rows of all parts, one after another."""
    rows: list[PaperRow] = []
    for part in parts:
        progress(part.__name__.removesuffix("_rows"))
        rows += part(seed)
    return rows


UNPUBLISHED = "joint", "days"  # in no paper: `study.joint`, `study.days`
# name of the paper: module of this folder
REPRODUCTIONS = {
    "weave": "weave",
    "rollpacker": "rollpacker",
    "rollart": "rollart",
    "orchestrrl": "orchestrrl",
    "mixnet": "mixnet",
    "opus": "opus",
}


def reproduce(
    paper: str, seed: int = 0, progress: PartBegun = lambda _: None, experiment: str = ""
) -> list[PaperRow]:
    """The rows of one paper, or of one of its experiments; `progress` is told what is being run.

    RFabricError for an unknown paper or experiment.
    """
    if paper not in REPRODUCTIONS:
        raise RFabricError(f"no reproduction of {paper!r}; there are {', '.join(REPRODUCTIONS)}")
    module = import_module(f".{REPRODUCTIONS[paper]}", __name__)
    if not experiment:
        return module.rows(seed, progress)
    known: Mapping[str, PaperPart] = getattr(module, "EXPERIMENTS", {})
    if experiment not in known:
        there = f"there are {', '.join(known)}" if known else "it has none"
        raise RFabricError(
            f"{paper} has no experiment {experiment!r}{meant(experiment, known)}; {there}"
        )
    progress(experiment)
    return list(known[experiment](seed))


def middle(value: Value) -> float:
    """The value, or the middle of a range."""
    return sum(value) / 2 if isinstance(value, tuple) else value


def span(values: Sequence[float]) -> tuple[float, float]:
    """The range of some values."""
    return min(values), max(values)


def _listed(value: Value) -> float | list[float]:
    return list(value) if isinstance(value, tuple) else value
