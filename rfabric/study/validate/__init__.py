"""Model against measurement: every check for which a folder holds data, in the layout of file names
and columns below.

    models/*.json                    parameters                  module `parameters`
    measured/serving_ttft_tpot.csv   serving                     `serving`
    measured/all_reduce.log          what nccl-tests print       `nccl_tests`
    ...                              see CHECKS

Each module offers `check(path, data) -> Iterable[PointGroup]`, `path` being a file that its pattern
matched and `data` the folder. A row that cannot be modelled is named in `PointGroup.unmodelled`
with the reason, never dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ...files import kind_of
from .standing import HELD_OUT, TEXTS, basis, not_compared


@dataclass(frozen=True)
class Point:
    """One measured value and what the model makes of it, both in `unit`; `part` is what of its
    group it belongs to: model, GPU, scale, dense or MoE.
    """

    name: str
    measured: float
    modelled: float
    unit: str
    part: str = ""

    @property
    def error(self) -> float:
        """Relative distance of the model, signed: +0.1 is 10 % too high."""
        return self.modelled / self.measured - 1


@dataclass(frozen=True)
class PointGroup:
    """The points of one kind in one file; `unmodelled` names the rows left out, each with its
    reason.

    `extra` holds further figures of the group by name, such as a correlation or a share of pairs
    ranked rightly; `basis` is what its rows are worth (`standing`).
    """

    name: str
    file: str
    points: tuple[Point, ...]
    unmodelled: tuple[str, ...] = ()
    note: str = ""
    extra: tuple[tuple[str, float], ...] = ()
    basis: str = HELD_OUT

    @property
    def errors(self) -> np.ndarray:
        """Absolute relative errors (float64[points])."""
        return np.abs([point.error for point in self.points])

    @property
    def median_error(self) -> float | None:
        """Median relative error; None without points."""
        return float(np.median(self.errors)) if self.points else None

    @property
    def p90_error(self) -> float | None:
        """Nine points in ten are off by no more; None without points."""
        return float(np.quantile(self.errors, 0.9)) if self.points else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """(low, high): eight measured values in ten are between low and high times what the model
        says; None without points.
        """
        if not self.points:
            return None
        ratios = [point.measured / point.modelled for point in self.points if point.modelled]
        low, high = np.quantile(ratios, [0.1, 0.9]).tolist() if ratios else (0.0, np.inf)
        return low, high

    @property
    def parts(self) -> dict[str, "PointGroup"]:
        """Its points by part, as groups of their own; empty where there is one part alone."""
        names = sorted({point.part for point in self.points})
        return {
            name: replace(self, points=tuple(p for p in self.points if p.part == name))
            for name in (names if len(names) > 1 else ())
        }

    def to_json(self) -> dict:
        """The group with stable keys; errors are relative, without sign."""
        return {
            "file": self.file,
            "rows": len(self.points) + len(self.unmodelled),
            "modelled": len(self.points),
            "median_error": self.median_error,
            "p90_error": self.p90_error,
            "basis": self.basis,
            "interval": self.interval and list(self.interval),
            "parts": {
                name: {
                    "rows": len(p.points),
                    "median_error": p.median_error,
                    "p90_error": p.p90_error,
                }
                for name, p in self.parts.items()
            },
            **dict(self.extra),
            "unmodelled": list(self.unmodelled),
        }

    def points_to_json(self) -> list[dict]:
        """Every point with stable keys; `error` is relative, signed."""
        keys = ("name", "measured", "modelled", "unit", "error")
        return [{key: getattr(point, key) for key in keys} for point in self.points]


# module: the file names it reads, relative to the folder
CHECKS = {
    "parameters": ("models/*.json",),
    "serving": ("measured/serving_ttft_tpot*.csv",),
    "nccl": ("measured/nccl_*.csv", *(f"measured/*{kind}" for kind in TEXTS)),
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


def validate(
    folder: str | Path, progress: Callable[[str], None] = lambda _: None
) -> list[PointGroup]:
    """Every group of points that `folder` has data for, in the order of CHECKS, or that a file of
    nccl-tests' output gives; RFabricError where it has none.
    """
    root = Path(folder)
    if root.suffix in TEXTS and not root.exists():
        raise RFabricError(f"{folder}: no such file")
    if root.is_file() and kind_of(root) != ".csv":
        return _of_file(root)
    layout = ", ".join(pattern for patterns in CHECKS.values() for pattern in patterns)
    if not root.is_dir():
        raise RFabricError(f"{folder} is no folder; give one with {layout}")
    groups: list[PointGroup] = []
    for module, patterns in CHECKS.items():
        for path in _matched(root, patterns):
            progress(str(path.relative_to(root)))
            groups += _checked(module, path, root)
    if not groups:
        raise RFabricError(f"{folder} holds nothing to validate against; it may hold {layout}")
    return _told_apart(groups)


def _of_file(path: Path) -> list[PointGroup]:
    """The groups of a file of nccl-tests' output; RFabricError where no row can be compared."""
    groups = _checked("nccl", path, path.parent)
    if not any(group.points for group in groups):
        raise RFabricError(f"{path}: {groups[0].unmodelled[0].removeprefix('the whole file: ')}")
    return _told_apart(groups)


def left_unread(folder: str | Path) -> dict[str, str]:
    """Every file of `folder` that no check compares with, by its path there, with the reason."""
    root = Path(folder)
    return not_compared(root, (p for patterns in CHECKS.values() for p in _matched(root, patterns)))


def _matched(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files that patterns name; of texts those alone that nccl-tests wrote."""
    paths = sorted(path for pattern in patterns for path in root.glob(pattern))
    return [path for path in paths if path.suffix not in TEXTS or _is_output(path)]


def _is_output(path: Path) -> bool:
    return import_module(".nccl_tests", __name__).is_output(path)


def _checked(module: str, path: Path, root: Path) -> list[PointGroup]:
    """The groups of one file that have rows; a file that cannot be read as what its name says is a
    group with the reason.
    """
    try:
        groups = [
            _finite(group) for group in import_module(f".{module}", __name__).check(path, root)
        ]
    except (RFabricError, OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        what = (
            str(error)
            if isinstance(error, RFabricError)
            else f"cannot be read: {type(error).__name__} {error}"
        )
        return [
            PointGroup(path.stem, str(path.relative_to(root)), (), (f"the whole file: {what}",))
        ]
    return [group for group in groups if group.points or group.unmodelled]


def _finite(group: PointGroup) -> PointGroup:
    """The group with points that are no numbers above 0 among those left out."""
    bad = [p for p in group.points if not (0 < p.measured < np.inf and 0 <= p.modelled < np.inf)]
    if not bad:
        return group
    left = tuple(
        f"{p.name}: measured {p.measured:g}, modelled {p.modelled:g} {p.unit} cannot be compared"
        for p in bad
    )
    kept = tuple(p for p in group.points if p not in bad)
    return replace(group, points=kept, unmodelled=group.unmodelled + left)


def _told_apart(groups: list[PointGroup]) -> list[PointGroup]:
    """The groups with what their rows are worth, each with a name of its own: the second of a name
    carries its file's.
    """
    seen: set[str] = set()
    named = []
    for group in groups:
        name = group.name if group.name not in seen else f"{group.name} ({group.file})"
        seen.add(name)
        named.append(replace(group, name=name, basis=basis(group.file, group.name)))
    return named
