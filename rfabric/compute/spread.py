"""How far measurements lie from what is predicted, by kind of prediction.

`residuals.csv`: eight measured values in ten lie between low and high times the prediction, on

    same system    GPUs and kind of model (dense, MoE) that constants were fitted on
    other system   rows that no constant was fitted on
    other scale    more GPUs than were measured: nothing says how much wider it is, so it is the
                   widest of the kind, and marked

Of `communication` the prediction is bytes at the rate of network cards: the least that they take,
so that what was measured lies above it.

`rfabric validate DIR --residuals FILE` makes the table from the measurements (`study/validate/
residuals`).
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..errors import RFabricError
from .gpus import Gpu
from .models import Model

SAME, OTHER, SCALE = "same system", "other system", "other scale"
COLUMNS = ("kind", "basis", "of", "gpus", "most_gpus", "low", "high", "rows", "source")
FILE = Path(__file__).parent / "residuals.csv"


@dataclass(frozen=True)
class Spread:
    """Residuals of a kind: measured over predicted seconds, from `low` to `high` in eight of ten
    rows; `of` is the kind of model and `gpus` are the GPUs that it speaks for, all where empty.
    """

    kind: str
    basis: str
    of: str
    gpus: frozenset[str]
    most_gpus: int
    low: float
    high: float
    rows: int
    source: str

    def around(self, seconds: float) -> tuple[float, float]:
        """(low, high) s about a prediction."""
        return self.low * seconds, self.high * seconds

    def shares(self) -> dict:
        """For a file: `low` and `high`, of a prediction, and on what they rest."""
        said = ("low", "high", "basis", "kind", "rows")
        return {name: getattr(self, name) for name in said}

    def fits(self, model: Model, gpu: Gpu) -> bool:
        """Whether its rows are of this kind of model, and of this GPU."""
        kind = "MoE" if model.experts else "dense"
        return self.of in ("", kind) and (not self.gpus or gpu.name in self.gpus)


def spread(kind: str, model: Model, gpu: Gpu, gpus: int) -> Spread:
    """The residuals that speak for a prediction on so many GPUs; RFabricError for a kind that was
    never measured.
    """
    table = [row for row in _table() if row.kind == kind]
    fitting = next((row for row in table if row.fits(model, gpu)), None)
    if fitting is None:
        kinds = ", ".join(dict.fromkeys(row.kind for row in _table()))
        raise RFabricError(f"no residuals of {kind!r}; there are those of {kinds}")
    return fitting if gpus <= max(row.most_gpus for row in table) else _wide(fitting, table)


def widest(each: Sequence[dict]) -> dict:
    """`Spread.shares` for predictions of several jobs: from the lowest to the highest of theirs,
    on the basis that is farthest from its job.
    """
    farthest = max(each, key=lambda one: (SAME, OTHER, SCALE).index(one["basis"]))
    low, high = min(one["low"] for one in each), max(one["high"] for one in each)
    return farthest | {"low": low, "high": high}


def _wide(fitting: Spread, table: list[Spread]) -> Spread:
    """The widest of a kind, for a scale at which nothing was measured."""
    low, high = min(row.low for row in table), max(row.high for row in table)
    return replace(fitting, basis=SCALE, low=low, high=high)


@lru_cache(maxsize=1)
def _table() -> tuple[Spread, ...]:
    with FILE.open(encoding="utf-8") as file:
        return tuple(_read(row) for row in csv.DictReader(file))


def _read(row: dict[str, str]) -> Spread:
    gpus = frozenset(filter(None, row["gpus"].split(";")))
    bounds = float(row["low"]), float(row["high"])
    named = row["kind"], row["basis"], row["of"]
    return Spread(*named, gpus, int(row["most_gpus"]), *bounds, int(row["rows"]), row["source"])
