"""How long prompts and responses are: a distribution of token counts from a CSV, drawn by its inverse CDF.

    quantile,tokens                              inverse CDF, linear between rows, from quantile 0 to 1
    tokens                                       samples, one a row
    output_tokens,expected_requests[,cdf]        counts, as ServeGen writes them (input_tokens for prompts)

Bring your own CSV in any of these forms; lines that begin with # are comments.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import RFabricError

_TOKENS = ("tokens", "output_tokens", "input_tokens")
_KNOWN = (*_TOKENS, "quantile", "expected_requests", "cdf")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Inverse CDF of token counts: `tokens` (float64[n], ascending, >= 1) at `quantile` (float64[n], 0 to 1).

    `source` is what the comments of its file say.
    """

    name: str
    quantile: np.ndarray
    tokens: np.ndarray
    source: str = ""

    def __post_init__(self):
        for key in ("quantile", "tokens"):
            object.__setattr__(self, key, np.asarray(getattr(self, key), dtype=float))
        if len(self.tokens) != len(self.quantile) or len(self.tokens) < 2:
            raise RFabricError(f"lengths {self.name}: needs as many quantiles as tokens, two rows at least")
        if not ((self.tokens >= 1) & (self.tokens < 1e12)).all() or (np.diff(self.tokens) < 0).any():
            raise RFabricError(f"lengths {self.name}: tokens must ascend and be 1 or more")
        ends = self.quantile[0] == 0 and self.quantile[-1] == 1
        if not (ends and (np.diff(self.quantile) >= 0).all()):
            raise RFabricError(f"lengths {self.name}: quantiles must ascend from 0 to 1; add the missing rows")

    @classmethod
    def read(cls, path: str | Path) -> "Lengths":
        """The distribution in a CSV file of one of the three forms."""
        path = Path(path)
        try:
            with open(path, newline="", encoding="utf-8") as file:
                lines = list(file)
                rows = list(csv.DictReader((line for line in lines if not line.startswith("#")), strict=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise RFabricError(f"lengths {path}: {error}") from error
        if not rows:
            raise RFabricError(f"lengths {path}: holds no rows")
        source = " ".join(line.strip("# \r\n") for line in lines if line.startswith("#"))
        return _from_columns(path.stem, _columns(path, rows), source)

    @classmethod
    def of_samples(cls, name: str, tokens, weights=None, source: str = "") -> "Lengths":
        """The distribution that takes exactly the values `tokens`, each as often as its weight says."""
        tokens = np.asarray(tokens, dtype=float)
        weights = np.ones(len(tokens)) if weights is None else np.asarray(weights, dtype=float)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise RFabricError(f"lengths {name}: the counts must be finite, not negative and not all 0")
        order = np.argsort(tokens, kind="stable")
        upper = np.cumsum(weights[order]) / weights.sum()
        upper[-1] = 1.0
        steps = np.stack([np.concatenate(([0.0], upper[:-1])), upper], axis=1).ravel()
        return cls(name, steps, np.repeat(tokens[order], 2), source)

    def at(self, quantile: float | np.ndarray) -> np.ndarray:
        """Whole tokens (int64) at `quantile` (0..1)."""
        return np.ceil(np.interp(quantile, self.quantile, self.tokens) - 1e-9).astype(np.int64)

    def sample(self, random: np.random.Generator, count: int, limit: int) -> np.ndarray:
        """`count` lengths (int64); longer ones are cut at `limit`, as an engine ends a response at its maximum."""
        return np.minimum(self.at(random.random(count)), limit)


def _columns(path: Path, rows: list[dict]) -> dict[str, np.ndarray]:
    unknown = [key for key in rows[0] if key not in _KNOWN]
    if unknown:
        raise RFabricError(f"lengths {path}: unknown columns {unknown}; there are {', '.join(_KNOWN)}")
    columns = {}
    for key in rows[0]:
        try:
            columns[key] = np.array([float(row[key]) for row in rows])
        except (TypeError, ValueError) as error:
            raise RFabricError(f"lengths {path}: column {key} must hold numbers: {error}") from error
    return columns


def _from_columns(name: str, columns: dict[str, np.ndarray], source: str) -> Lengths:
    tokens = next((columns[key] for key in _TOKENS if key in columns), None)
    if tokens is None:
        raise RFabricError(f"lengths {name}: no column of tokens; name it one of {', '.join(_TOKENS)}")
    if "quantile" in columns:
        return Lengths(name, columns["quantile"], tokens, source)
    counts = columns.get("expected_requests")
    if counts is None and "cdf" in columns:
        counts = np.diff(columns["cdf"], prepend=0.0)
    return Lengths.of_samples(name, tokens, counts, source)
