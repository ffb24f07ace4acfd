"""Collectives between servers, weight syncs, first tokens and training of mixtures of experts, each
system predicted by constants fitted on all others.

A system is what one source measured on one kind of server and network: two sources of one instance
type are two systems; of first tokens it is a model on a GPU under an engine. Of each transport the
constants in `compute/between.FITTED` are fitted on the logarithm of seconds (soft L1, so that a
single slow run counts little), drawn to PRIOR with a tenth of a row's weight. Those of a weight
sync's software (`compute/sync_time.Software`) are fitted together on all other systems, as
mechanisms share them, and drawn to SYNC_PRIOR; what that says by itself stands beside, `before any
fit`. Of first tokens `first_token` says what is fitted. Of
training it is the share of their FLOP/s that experts' matmuls sustain (`training.GROUPED`); systems
are models, whatever the GPU, and GPUs, whatever the model.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from ...compute.between import FITTED, PRIOR, RAILS, Rails
from ...compute.sync_time import SOFTWARE, Software
from ...errors import RFabricError
from . import Point, PointGroup, first_token, serving, training
from . import weight_sync as syncs
from .nccl import Call, call_of, rows_of
from .nccl_tests import is_output
from .standing import TEXTS
from .tables import attempt, split_at

FILES = "measured/nccl_multinode_*"
SERVING_FILES = "measured/serving_ttft_tpot*.csv"
TRAINING_FILES = "measured/training_*.csv"
GROUPED_SHARES = np.arange(6, 21) / 20  # tried: 0.3 to 1
MOST_ROUNDS, STEP, KNEE, DRAWN = 30, 0.02, 0.15, 0.1
# Packing: Perplexity's and RollArt's (sync_time); engines take in what PCIe 5.0 x16 carries at 0.8
# of its 63 GB/s, gathering as packing does; an eager operation of PyTorch takes some 10 us of the
# host: 25 of them a tensor, 10 to quantise, one NCCL call of two; memory that is not pinned copies
# 6 GB/s, of which bf16 is a third beside fp32.
SYNC_PRIOR = Software(
    pack=7e9, unpack=6.1e9, load=50e9, tensor=0.25e-3, local_tensor=0.25e-3, stage=25e9,
    restore=2e9, setup=1.0, metadata=0.1, plan=0.1, send=20e-6, quantise=0.1e-3,
)  # fmt: skip
Constants = TypeVar("Constants", Rails, Software)


class Measured(Protocol[Constants]):
    """What was measured, and the seconds that constants give it."""

    seconds: float

    def modelled(self, constants: Constants) -> float:
        """The seconds that these constants give it."""


class Fold(NamedTuple):
    """A system left out: its calls, and the constants that all others of its transport give."""

    system: str
    calls: list[Call]
    rails: Rails


def leave_one_out(folder: str | Path) -> list[PointGroup]:
    """Groups of collectives, of weight syncs, of first tokens, then of training; RFabricError where
    the folder has none of them.
    """
    root = Path(folder)
    groups = [*_collectives(root), *_weight_syncs(root), *_first_tokens(root), *_mixtures(root)]
    if not groups:
        raise RFabricError(
            f"{folder} holds no {FILES}, {syncs.FILES} or {SERVING_FILES}, nor {TRAINING_FILES} of "
            "mixtures of experts; without them nothing can be left out"
        )
    return groups


def _collectives(folder: Path) -> list[PointGroup]:
    """By system, below and from 1 MiB on, and all systems together; none without files."""
    calls, refused = calls_between(folder)
    folds = [fold for name in FITTED for fold in _folds(name, calls)]
    groups = [group for fold in folds for group in _groups(fold)]
    points = tuple(point for group in groups for point in group.points)
    every = PointGroup("all systems, each left out", FILES, points, tuple(refused))
    return [every, *groups] if points or refused else []


def _weight_syncs(folder: Path) -> list[PointGroup]:
    """By system, by mechanism, and all systems together; none without files."""
    made, refused = _syncs(folder)
    by_system: dict[str, list[Point]] = {}
    by_mechanism: dict[str, list[Point]] = {}
    for system in dict.fromkeys(one.system for one in made):
        software = fit_syncs([one for one in made if one.system != system])
        for one in made:
            if one.system == system:
                by_system.setdefault(system, []).append(one.point(software))
                by_mechanism.setdefault(one.sync.transport, []).append(one.point(software))
    every = tuple(point for points in by_system.values() for point in points)
    named = [
        *((f"weight sync, {system}", points) for system, points in by_system.items()),
        *((f"weight sync by {name}", points) for name, points in by_mechanism.items()),
    ]
    groups = [syncs.group_of(name, syncs.FILES, tuple(points)) for name, points in named]
    whole = syncs.group_of("weight sync, each system left out", syncs.FILES, every, tuple(refused))
    guessed = tuple(one.point(SYNC_PRIOR) for one in made)
    unfitted = syncs.group_of("weight sync, before any fit", syncs.FILES, guessed)
    return [whole, unfitted, *groups] if every or refused else []


def _first_tokens(root: Path) -> list[PointGroup]:
    """First tokens of all systems together, each left out, and by system."""
    files = sorted(root.glob(SERVING_FILES))
    answers = [serving.answered(file, root) for file in files]
    made = [row for answered, _ in answers for row in answered]
    left = [name for _, refused in answers for name in refused]
    groups = [_first_tokens_of(s, made) for s in dict.fromkeys(row.system for row in made)]
    points = tuple(point for group in groups for point in group.points)
    name = "first tokens, each system left out"
    together = [PointGroup(name, SERVING_FILES, points, tuple(left))] if files else []
    return [*together, *groups]


def _first_tokens_of(system: str, rows: list[first_token.MeasuredFirstToken]) -> PointGroup:
    others = [row for row in rows if row.system != system]
    constants = first_token.fit(others) if others else first_token.NOTHING
    points = tuple(
        Point(system, row.measured, row.steps + constants.seconds(row.waits), "s", system)
        for row in rows
        if row.system == system
    )
    return PointGroup(f"first token {system}", SERVING_FILES, points)


def _mixtures(root: Path) -> list[PointGroup]:
    """Training of mixtures of experts: each model left out, then each GPU; none without files."""
    files = sorted(root.glob(TRAINING_FILES))
    made = [one for file in files for one in training.steps_of(file, root)[0] if one.mixed]
    told: dict[str, Callable[[training.MeasuredTraining], str]] = {
        "model": lambda one: one.model,
        "GPU": lambda one: one.gpu,
    }
    return [_mixtures_by(name, of, made) for name, of in told.items() if made]


def _mixtures_by(
    name: str,
    of: Callable[[training.MeasuredTraining], str],
    made: Sequence[training.MeasuredTraining],
) -> PointGroup:
    """Each row by the share that rows of other kinds ask for; extra: these shares."""
    points, shares, left = [], [], []
    for kind in dict.fromkeys(map(of, made)):
        others = [one for one in made if of(one) != kind]
        if not others:
            left.append(f"{kind}: no row is of another {name}")
            continue
        share = fit_grouped(others)
        shares.append((f"{kind}: grouped", share))
        mine = (one.changed(grouped=share) for one in made if of(one) == kind)
        points += [replace(one.point(), part=kind) for one in mine]
    name = f"training of mixtures, each {name} left out"
    return PointGroup(name, TRAINING_FILES, tuple(points), tuple(left), extra=tuple(shares))


def fit_grouped(made: Sequence[training.MeasuredTraining]) -> float:
    """Which of GROUPED_SHARES brings the seconds of `made` nearest, in the median."""

    def error(share: float) -> float:
        tried = (one.changed(grouped=share).point() for one in made)
        return float(np.median([abs(point.error) for point in tried]))

    return float(min(GROUPED_SHARES, key=error))


def refitted(folder: str | Path) -> dict[str, Rails]:
    """The constants of each transport between servers, fitted on all its systems; none without
    files.
    """
    calls, _ = calls_between(Path(folder))
    return {name: fit(name, [c for c in calls if c.transport == name]) for name in FITTED if calls}


def refitted_sync(folder: str | Path) -> Software | None:
    """The constants of weight syncs, fitted on all systems; None without files."""
    made, _ = _syncs(Path(folder))
    return fit_syncs(made) if made else None


def constants_hash() -> str:
    """Twelve hex digits of SHA-256 over the shipped constants of collectives."""
    return _hash(sorted(RAILS.items()))


def sync_constants_hash() -> str:
    """Twelve hex digits of SHA-256 over the shipped constants of weight syncs."""
    return _hash(SOFTWARE)


def _hash(constants: object) -> str:
    return hashlib.sha256(repr(constants).encode()).hexdigest()[:12]


def fit(transport: str, calls: list[Call]) -> Rails:
    """The constants of a transport that explain `calls` best; PRIOR where there are none."""
    return _fitted(FITTED[transport], PRIOR, calls)


def fit_syncs(made: list[syncs.Synced]) -> Software:
    """The constants that explain those of `made` best that may be fitted on."""
    names = [f.name for f in fields(Software)]
    return _fitted(names, SYNC_PRIOR, [one for one in made if one.fits])


def _fitted(
    names: Sequence[str], prior: Constants, calls: Sequence[Measured[Constants]]
) -> Constants:
    """`prior` with those of its constants that explain `calls` best."""
    from scipy.optimize import least_squares

    if not calls:
        return prior
    measured = np.log([call.seconds for call in calls])
    start = np.log([getattr(prior, name) for name in names])

    def constants(x: np.ndarray) -> Constants:
        return replace(prior, **dict(zip(names, np.exp(x).tolist(), strict=True)))

    def misses(x: np.ndarray) -> np.ndarray:
        tried = constants(x)
        modelled = np.log([call.modelled(tried) for call in calls])
        return np.concatenate([modelled - measured, DRAWN * (x - start)])

    best = least_squares(
        misses, start, loss="soft_l1", f_scale=KNEE, diff_step=STEP, max_nfev=MOST_ROUNDS
    )
    return constants(best.x)


def _syncs(folder: Path) -> tuple[list[syncs.Synced], list[str]]:
    made: list[syncs.Synced] = []
    refused: list[str] = []
    for file in sorted(folder.glob(syncs.FILES)):
        some, others = syncs.syncs_of(file, folder)
        made += some
        refused += [f"{file.name} {other}" for other in others]
    return made, refused


def calls_between(folder: Path) -> tuple[list[Call], list[str]]:
    """The measured collectives between servers, and the rows left out with the reason."""
    return attempt(
        (f"{file.name} {name}", lambda row=row: call_of(row()))
        for file in sorted(folder.glob(FILES))
        if file.suffix == ".csv" or (file.suffix in TEXTS and is_output(file))
        for name, row in rows_of(file, "device", "op_name", "message_size", "source")
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
