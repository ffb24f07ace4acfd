"""Collectives between servers and first tokens, each system predicted by constants fitted on all
others.

Of collectives a system is what one source measured on one kind of server and network: two sources
of one instance type are two systems. Of each transport the constants in `compute/between.FITTED`
are fitted on the logarithm of seconds (soft L1, so that a single slow run counts little), drawn to
PRIOR with a tenth of a row's weight. Of first tokens a system is a model on a GPU under an engine;
`first_token` says what is fitted.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...compute.between import FITTED, PRIOR, RAILS, Rails
from ...errors import RFabricError
from . import Point, PointGroup, first_token, serving
from .nccl import Call, call_of
from .tables import attempt, rows, split_at

FILES = "measured/nccl_multinode_*.csv"
SERVING_FILES = "measured/serving_ttft_tpot*.csv"
MOST_ROUNDS, STEP, KNEE, DRAWN = 30, 0.02, 0.15, 0.1


class Fold(NamedTuple):
    """A system left out: its calls, and the constants that all others of its transport give."""

    system: str
    calls: list[Call]
    rails: Rails


def leave_one_out(folder: str | Path) -> list[PointGroup]:
    """Groups by system, below and from 1 MiB on, and all systems together, then those of first
    tokens; RFabricError where there are neither.
    """
    root = Path(folder)
    found = [*(_collectives(root) if _any(root, FILES) else ()), *_first_tokens(root)]
    if not found:
        raise RFabricError(
            f"{folder} holds neither {FILES} nor {SERVING_FILES}; without them nothing can be left "
            "out"
        )
    return found


def _any(root: Path, pattern: str) -> bool:
    return next(root.glob(pattern), None) is not None


def _collectives(root: Path) -> list[PointGroup]:
    calls, refused = _calls(root)
    folds = [fold for name in FITTED for fold in _folds(name, calls)]
    found = [group for fold in folds for group in _groups(fold)]
    points = tuple(point for group in found for point in group.points)
    return [PointGroup("all systems, each left out", FILES, points, tuple(refused)), *found]


def _first_tokens(root: Path) -> list[PointGroup]:
    """First tokens of all systems together, each left out, and by system."""
    files = sorted(root.glob(SERVING_FILES))
    answers = [serving.answered(file, root) for file in files]
    made = [row for found, _ in answers for row in found]
    left = [name for _, refused in answers for name in refused]
    groups = [_first_tokens_of(s, made) for s in dict.fromkeys(row.system for row in made)]
    points = tuple(point for group in groups for point in group.points)
    name = "first tokens, each system left out"
    together = [PointGroup(name, SERVING_FILES, points, tuple(left))] if files else []
    return [*together, *groups]


def _first_tokens_of(system: str, rows: list[first_token.Answered]) -> PointGroup:
    others = [row for row in rows if row.system != system]
    constants = first_token.fit(others) if others else first_token.NOTHING
    points = tuple(
        Point(system, row.measured, row.steps + constants.seconds(row.waits), "s", system)
        for row in rows
        if row.system == system
    )
    return PointGroup(f"first token {system}", SERVING_FILES, points)


def refitted(folder: str | Path) -> dict[str, Rails]:
    """The constants of each transport, fitted on all its systems; none without such files."""
    if not _any(Path(folder), FILES):
        return {}
    calls, _ = _calls(Path(folder))
    return {name: fit(name, [c for c in calls if c.transport == name]) for name in FITTED}


def constants_hash() -> str:
    """Twelve hex digits of SHA-256 over the shipped constants."""
    return hashlib.sha256(repr(sorted(RAILS.items())).encode()).hexdigest()[:12]


def fit(transport: str, calls: list[Call]) -> Rails:
    """The constants of a transport that explain `calls` best; PRIOR where there are none."""
    from scipy.optimize import least_squares

    if not calls:
        return PRIOR
    names, measured = FITTED[transport], np.log([call.seconds for call in calls])
    start = np.log([getattr(PRIOR, name) for name in names])

    def misses(x: np.ndarray) -> np.ndarray:
        rails = _rails(names, x)
        modelled = np.log([call.modelled(rails) for call in calls])
        return np.concatenate([modelled - measured, DRAWN * (x - start)])

    best = least_squares(
        misses, start, loss="soft_l1", f_scale=KNEE, diff_step=STEP, max_nfev=MOST_ROUNDS
    )
    return _rails(names, best.x)


def _rails(names: Iterable[str], x: np.ndarray) -> Rails:
    return replace(PRIOR, **dict(zip(names, np.exp(x).tolist(), strict=True)))


def _calls(folder: Path) -> tuple[list[Call], list[str]]:
    return attempt(
        (f"{file.name} row {i + 2}", lambda row=row: call_of(row))
        for file in sorted(folder.glob(FILES))
        for i, row in enumerate(rows(file, "device", "op_name", "message_size", "source"))
    )


def _folds(transport: str, calls: list[Call]) -> list[Fold]:
    mine = [call for call in calls if call.transport == transport]
    return [
        Fold(
            system,
            [call for call in mine if call.system == system],
            fit(transport, [call for call in mine if call.system != system]),
        )
        for system in dict.fromkeys(call.system for call in mine)
    ]


def _groups(fold: Fold) -> list[PointGroup]:
    made = [(call.size, _point(call, fold.rails)) for call in fold.calls]
    return [group for group in split_at(fold.system, FILES, made) if group.points]


def _point(call: Call, rails: Rails) -> Point:
    return Point(call.name, call.seconds * 1e3, call.modelled(rails) * 1e3, "ms")
