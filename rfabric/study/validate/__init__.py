"""Model against measurement: every check for which a folder holds data, in the layout of file names and columns below.

    models/*.json                    parameters                  module `parameters`
    measured/serving_ttft_tpot.csv   serving                     `serving`
    ...                              see CHECKS

Each module offers `check(path, data) -> Iterable[Group]`, `path` being a file that its pattern matched and `data` the folder.
A row that cannot be modelled is named in `Group.unmodelled` with the reason, never dropped.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from ...errors import RFabricError


@dataclass(frozen=True)
class Point:
    """One measured value and what the model makes of it, both in `unit`."""

    name: str
    measured: float
    modelled: float
    unit: str

    @property
    def error(self) -> float:
        """Relative distance of the model, signed: +0.1 is 10 % too high."""
        return self.modelled / self.measured - 1


@dataclass(frozen=True)
class Group:
    """The points of one kind in one file; `unmodelled` names the rows left out, each with its reason.

    `extra` holds further figures of the group by name, such as a correlation or a share of pairs ranked rightly.
    """

    name: str
    file: str
    points: tuple[Point, ...]
    unmodelled: tuple[str, ...] = ()
    note: str = ""
    extra: tuple[tuple[str, float], ...] = ()

    @property
    def errors(self) -> np.ndarray:
        """Absolute relative errors (float64[points])."""
        return np.abs([point.error for point in self.points])

    @property
    def median_error(self) -> float | None:
        return float(np.median(self.errors)) if self.points else None

    @property
    def p90_error(self) -> float | None:
        return float(np.quantile(self.errors, 0.9)) if self.points else None

    def to_json(self) -> dict:
        """The group with stable keys; errors are relative, without sign."""
        return {
            "file": self.file,
            "rows": len(self.points) + len(self.unmodelled),
            "modelled": len(self.points),
            "median_error": self.median_error,
            "p90_error": self.p90_error,
            **dict(self.extra),
            "unmodelled": list(self.unmodelled),
        }


# module: the file names it reads, relative to the folder
CHECKS = {
    "parameters": ("models/*.json",),
    "serving": ("measured/serving_ttft_tpot*.csv",),
    "nccl": ("measured/nccl_*.csv",),
    "allreduce": ("measured/allreduce_busbw*.csv",),
    "deepep": ("measured/deepep*.csv",),
    "training": ("measured/training_*.csv",),
    "vidur": ("measured/vidur_*.csv",),
    "vidur_mlp": ("measured/vidur_*mlp*.csv",),
    "weight_sync": ("weight_sync/measured*.csv",),
    "nemo_rl": ("rl_measured/nemo_rl_*step_times*.csv",),
    "verl": ("rl_measured/verl_*.csv",),
    "rl_logs": ("rl_logs/*.csv",),
}


def validate(folder: str | Path, progress: Callable[[str], None] = lambda _: None) -> list[Group]:
    """Every group of points that `folder` has data for, in the order of CHECKS; RFabricError where it has none."""
    root = Path(folder)
    if not root.is_dir():
        raise RFabricError(f"{folder} is no folder; give one with {', '.join(p for ps in CHECKS.values() for p in ps)}")
    groups: list[Group] = []
    for module, patterns in CHECKS.items():
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            progress(str(path.relative_to(root)))
            groups += _merged(import_module(f".{module}", __name__).check(path, root))
    if not groups:
        raise RFabricError(f"{folder} holds nothing to validate against; the layout is {', '.join(CHECKS)}")
    return groups


def _merged(groups: Iterable[Group]) -> list[Group]:
    """Groups as they come, those without any row left out."""
    return [group for group in groups if group.points or group.unmodelled]
