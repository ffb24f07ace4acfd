"""What is written as JSON is read again as it was, or is only printed."""

import ast
import json
from dataclasses import fields
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rfabric
from rfabric.control.epochs import RewirePlan
from rfabric.emulate.drills import Drilled
from rfabric.emulate.foreseen import SimulatedTraffic
from rfabric.emulate.stream import Loss
from rfabric.fabric import Fabric, Port, parse_fabric
from rfabric.optics import Circuit, Circuits, Rewire, RewireRecord
from rfabric.report.result import Folding, Pace, Scale
from rfabric.study.grid import Grid
from rfabric.trace import PhaseKey

SECONDS, WORDS, WHOLE = st.floats(0, 1e9), st.text(max_size=8), st.integers(0, 1 << 40)
BY_TYPE = {
    bool: st.booleans(), int: WHOLE, float: SECONDS, str: WORDS, float | None: st.none() | SECONDS,
    tuple[int, ...]: st.lists(WHOLE, max_size=3).map(tuple),
    tuple[float, ...]: st.lists(SECONDS, max_size=3).map(tuple),
    tuple[str, ...]: st.lists(WORDS, max_size=3).map(tuple),
}  # fmt: skip


def of(kind, **own):
    """Any object of a dataclass: fields by their type, but for these."""
    values = {f.name: BY_TYPE[f.type] for f in fields(kind) if f.name not in own} | own
    return st.fixed_dictionaries(values).map(lambda chosen: kind(**chosen))


def joined(ports, count):
    """So many circuits of one OCS, between its ports in this order."""
    pairs = zip(ports[: 2 * count : 2], ports[1 : 2 * count : 2], strict=True)
    return Circuits(frozenset(Circuit.of(Port("a1", a), Port("a1", b)) for a, b in pairs))


FABRICS = ("rfabric,pods=2,tors=2,gpus=2,delay=25us", "fat-tree,k=4", "two-clusters")
CIRCUITS = st.builds(joined, st.permutations(range(1, 9)), st.integers(0, 4))
REWIRES = st.builds(Rewire.between, CIRCUITS, CIRCUITS)
SCALES = of(Scale, sample=SECONDS | st.just(inf))
PHASES = st.dictionaries(of(PhaseKey), SECONDS, max_size=3)
PAIRS = st.tuples(WORDS, WORDS)
WRITTEN = {
    Circuits: CIRCUITS,
    Drilled: of(Drilled, loss=of(Loss)),
    Fabric: st.sampled_from(FABRICS).map(parse_fabric),
    Folding: of(Folding, off=st.none() | PHASES),
    Grid: of(
        Grid,
        scale=st.none() | SCALES.map(Scale.to_json),
        versions=st.none() | st.dictionaries(st.text(), st.text()),
    ),
    Pace: of(Pace),
    Rewire: REWIRES,
    RewirePlan: of(RewirePlan, rewire=REWIRES),
    RewireRecord: of(RewireRecord),
    Scale: SCALES,
    SimulatedTraffic: of(
        SimulatedTraffic,
        at_once=st.dictionaries(PAIRS, WHOLE, max_size=3),
        ways=st.none() | st.dictionaries(PAIRS, st.lists(WHOLE, max_size=3), max_size=3),
        whole=st.frozensets(WHOLE, max_size=3),
    ),
}
PRINTED_ONLY = {
    "Bill", "Crossover", "CurvePoint", "DaysRow", "JointRow", "Line", "MeasuredPattern", "PaperRow",
    "PhaseBeside", "PointGroup", "Reached", "Regret", "ScheduledStep", "Soaked", "StageCircuits",
    "StepCost", "Tally",
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_what_was_written_is_read_as_it_was(kind, data):
    made = data.draw(WRITTEN[kind])
    assert kind.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_what_is_written_is_read_or_only_printed():
    classes = [
        node
        for file in Path(rfabric.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    has = {c: {part.name for part in c.body if isinstance(part, ast.FunctionDef)} for c in classes}
    read = {c.name for c in classes if "from_json" in has[c]}
    assert read == {kind.__name__ for kind in WRITTEN}
    inherited = {c for c in classes if read & set(map(ast.unparse, c.bases))}
    written = {c.name for c in classes if "to_json" in has[c] and c not in inherited}
    assert written - read == PRINTED_ONLY and not read - written
