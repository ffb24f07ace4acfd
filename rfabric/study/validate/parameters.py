"""Parameters: what a model's config.json comes to, against the totals that were published.

    models/*.json                configs in Hugging Face form
    models/published_totals.csv  model, total_b, active_b, source: in billions; wins where it names
                                 the model

Else the reference is what a model's maker states, where a config in traffic/models restates that;
else the counts in a config's
name: `32B`, `235B-A22B` (total and active), `17B-16E` (active), `8x7B` (the model with one expert a
layer). A name rounds, so the nearest number that rounds to it stands for it. Active counts are
published with both tables of the vocabulary, without the one only looked up, or without both: the
nearest of these readings is compared.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...compute.models import Model
from ...compute.named import find_model, read_model, same_model
from ...errors import RFabricError
from . import Point, PointGroup
from .tables import attempt
from .tables import rows as table_of

_NOTE = (
    "against published_totals.csv, else the figures its maker states, else the counts in its "
    "name to their rounding; active counts in the nearest of three readings"
)


@dataclass(frozen=True)
class Stated:
    """Parameters in billions as someone states them; `unit` is the last digit's weight, 0 where the
    figure counts as exact.

    kind: `total`, `active`, or `single`: the model with one expert a layer.
    """

    kind: str
    billions: float
    unit: float = 0.0

    def nearest(self, modelled: float) -> float:
        """The number that rounds to this one and is nearest to `modelled`."""
        return min(max(modelled, self.billions - self.unit / 2), self.billions + self.unit / 2)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """One group for all configs of the folder that `path` is in; it comes with the first of
    them.
    """
    files = sorted(path.parent.glob("*.json"))
    if path != files[0]:
        return
    points: list[Point] = []
    published, left = _published(path.parent)
    for name, model, stated in _rows(files, published):
        if isinstance(model, RFabricError):
            left.append(f"{name}: {model}")
        elif not stated:
            left.append(
                f"{name}: neither published_totals.csv nor traffic/models nor its name states "
                "a number of parameters"
            )
        else:
            points += [_point(name, model, one) for one in stated]
    yield PointGroup(
        "parameters",
        str(path.parent.relative_to(data) / "*.json"),
        tuple(points),
        tuple(left),
        _NOTE,
    )


StatedModel = tuple[str, Model | RFabricError, list[Stated]]


def _rows(files: list[Path], published: dict[str, list[Stated]]) -> Iterator[StatedModel]:
    """Every config with what is stated of it, then what is stated of models without a config
    beside.
    """
    for file in files:
        mine = [name for name in published if same_model(name, file.stem)]
        model = _read(file)
        stated = published[mine[0]] if mine else _shipped(file.stem)
        yield file.stem, model, stated or stated_in(file.stem)
    for name, stated in published.items():
        if not any(same_model(name, file.stem) for file in files):
            shipped = find_model(name)
            yield (
                name,
                shipped
                or RFabricError(
                    "no config beside published_totals.csv nor in traffic/models has this name"
                ),
                stated,
            )


def _read(file: Path) -> Model | RFabricError:
    try:
        return read_model(file)
    except RFabricError as error:
        return error


def _published(folder: Path) -> tuple[dict[str, list[Stated]], list[str]]:
    """The rows of published_totals.csv by model, and those that are not understood; none where
    there is no such file.
    """
    file = folder / "published_totals.csv"
    if not file.is_file():
        return {}, []
    try:
        rows = [row for row in table_of(file, "model", "total_b") if row["model"]]
    except RFabricError as error:
        return {}, [str(error)]
    made, left = attempt(
        (f"{file.name} {row['model']}", lambda row=row: (row["model"], _cells(row))) for row in rows
    )
    return dict(made), left


def _cells(row: dict[str, str]) -> list[Stated]:
    stated = [s for s in (_cell(row, "total"), _cell(row, "active")) if s]
    if not stated:
        raise RFabricError("states neither total_b nor active_b")
    return stated


def _cell(row: dict[str, str], kind: str) -> Stated | None:
    text = (row.get(f"{kind}_b") or "").upper().rstrip("B").strip()
    if text in ("", "-", "NAN", "NONE", "N/A"):
        return None
    try:
        billions = float(text)
    except ValueError:
        billions = 0.0
    if not 0 < billions < float("inf"):
        raise RFabricError(f"{kind}_b {text!r} is no number of billions")
    return Stated(kind, billions)


_NUMBER = r"(\d+(?:\.\d+)?)"
_NAMES = (  # first that fits; what its numbers state
    (re.compile(rf"\d+x{_NUMBER}b(?![a-z0-9])"), ("single",)),
    (re.compile(rf"(?<![a-z0-9.]){_NUMBER}b[-_]a{_NUMBER}b(?![a-z0-9])"), ("total", "active")),
    (re.compile(rf"(?<![a-z0-9.]){_NUMBER}b[-_]\d+e(?![a-z0-9])"), ("active",)),
    (re.compile(rf"(?<![a-z0-9.])a{_NUMBER}b(?![a-z0-9])"), ("active",)),
    (re.compile(rf"(?<![a-z0-9.]){_NUMBER}b(?![a-z0-9])"), ("total",)),
    (re.compile(rf"(?<![a-z0-9.]){_NUMBER}m(?![a-z0-9])"), ("total",)),
)


def stated_in(name: str) -> list[Stated]:
    """The counts that a model's name states."""
    for pattern, kinds in _NAMES:
        match = pattern.search(name.lower().removesuffix(".json"))
        if match:
            scale = 1e-3 if match[0].endswith("m") else 1.0
            return [
                _rounded(kind, text, scale)
                for kind, text in zip(kinds, match.groups(), strict=True)
            ]
    return []


def _rounded(kind: str, text: str, scale: float) -> Stated:
    decimals = len(text.partition(".")[2])
    return Stated(kind, float(text) * scale, 10.0**-decimals * scale)


def _shipped(name: str) -> list[Stated]:
    """What the config of the same model in traffic/models says was published."""
    model = find_model(name)
    if model is None:
        return []
    return [
        Stated(kind, value)
        for kind, value in (("total", model.published_b), ("active", model.published_active_b))
        if value
    ]


def _point(name: str, model: Model, stated: Stated) -> Point:
    modelled = min(_readings(model, stated.kind), key=lambda value: abs(value - stated.billions))
    said = "" if stated.kind == "total" else f", {_WORDS[stated.kind]}"
    return Point(name + said, stated.nearest(modelled), modelled, "billion parameters")


_WORDS = {"active": "active", "single": "with one expert a layer"}


def _readings(model: Model, kind: str) -> tuple[float, ...]:
    if kind == "total":
        return (model.parameters / 1e9,)
    if kind == "single":
        experts = model.experts.count if model.experts else 1
        return ((model.dense_parameters + model.expert_parameters / experts) / 1e9,)
    active, table = model.active_parameters, model.vocab * model.hidden
    return (
        active / 1e9,
        (active - model.looked_up_parameters) / 1e9,
        (active - table * (1 if model.tied else 2)) / 1e9,
    )
