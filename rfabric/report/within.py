"""Between what measurements lie about predicted seconds, of phases and of the whole run.

The trace of a recipe says how far measurements of each phase's kind, and of communication, lay from
what was predicted (`compute/spread`): eight in ten between `low` and `high` times it.

    a phase   what it computes by the residuals of its kind, what bytes add to it by those of
              communication
    the step  each phase on its way by its own; where phases overlap by the widest of them, and
              where none runs as predicted

All errors are taken to go in one direction: the sums of what is low, and of what is high. That is
the widest that they can be together. Traces that were given, and not predicted, have none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import RFabricError
from .result import PhaseTime, Result, union_seconds

NEAREST_FIRST = ("same system", "other system", "other scale")  # how far `basis` is from the job
COMMUNICATION = "communication"


def phases_within(result: Result) -> dict[str, dict]:
    """By phase name, steps added up: `low` and `high` (s), `basis`, and the `kind` and `rows` of
    the residuals; a phase of unknown kind is communication. Empty where nothing was predicted;
    RFabricError where a trace's file says it otherwise.
    """
    said = result.trace.provenance.get("within")
    if not said:
        return {}
    if not _are_spreads(said):
        raise RFabricError(
            "provenance of the trace: within must say low and high (numbers, low at most high), "
            f"basis ({', '.join(NEAREST_FIRST)}), kind and rows of each phase, and of "
            f"{COMMUNICATION}; write the trace again, or leave within out for no intervals"
        )
    return {
        name: _phase(times, said.get(name, said[COMMUNICATION]), said[COMMUNICATION])
        for name, times in _by_name(result).items()
    }


def step_within(result: Result) -> dict | None:
    """`low` and `high` (s) of the whole run and the `basis` of that, the farthest of its phases';
    None where nothing was predicted.
    """
    phases = phases_within(result)
    if not phases:
        return None
    basis = max((one["basis"] for one in phases.values()), key=NEAREST_FIRST.index)
    low, high = (_whole(result, phases, end) for end in ("low", "high"))
    return {"low": low, "high": high, "basis": basis}


def within_note(runs: Sequence[dict]) -> str:
    """Which residuals stand behind the intervals of runs; empty where there are none."""
    phases = [(name, phase.get("within_s")) for r in runs for name, phase in r["phases"].items()]
    told = dict.fromkeys(
        f"{name.replace('_', ' ')} by {one['kind']} ({one['basis']}, {one['rows']:,} rows)"
        for name, one in phases
        if one and one["high"] > 0
    )
    if not told:
        return ""
    return (
        " 80 % within: where eight in ten measurements would be, by residuals of their kind: "
        f"{', '.join(told)}, exposed bytes by collectives measured at NIC rate; the step with all "
        "phases low, or all high. Fabrics share these errors: their order is more certain than "
        "their seconds."
    )


def _are_spreads(said: Any) -> bool:
    if not isinstance(said, dict) or COMMUNICATION not in said:
        return False
    return all(isinstance(one, dict) and _is_spread(**one) for one in said.values())


def _is_spread(
    low: Any = None,
    high: Any = None,
    basis: Any = None,
    kind: Any = None,
    rows: Any = None,
    **_: Any,
) -> bool:
    numbers = all(type(one) in (int, float) for one in (low, high, rows))
    return numbers and 0 <= low <= high < math.inf and basis in NEAREST_FIRST and bool(kind)


def _by_name(result: Result) -> dict[str, list[PhaseTime]]:
    named: dict[str, list[PhaseTime]] = {}
    for phase in result.phases:
        named.setdefault(phase.key.phase or "flows", []).append(phase)
    return named


def _phase(times: Iterable[PhaseTime], own: Mapping, sent: Mapping) -> dict:
    """What phases of a name compute, by residuals of their `own`, and what bytes add, as `sent`."""
    comm = [min(max(one.exposed, 0.0), one.seconds) for one in times]
    computes = sum(one.seconds for one in times) - sum(comm)
    ends = {end: own[end] * computes + sent[end] * sum(comm) for end in ("low", "high")}
    return ends | {key: own[key] for key in ("basis", "kind", "rows")}


def _whole(result: Result, phases: Mapping[str, dict], end: str) -> float:
    """Seconds of the run where each phase is as `low`, or as `high`, as it may be."""
    times = _by_name(result)
    spent = {name: sum(one.seconds for one in times[name]) for name in phases}
    shares = {name: phases[name][end] / s if s else 1.0 for name, s in spent.items()}
    widest = sorted(shares, key=shares.__getitem__, reverse=end == "high")
    covered, seconds, taken = 0.0, result.step_seconds, []
    for name in widest:
        taken += times[name]
        upto = union_seconds(
            *(np.array([getattr(p, at) for p in taken]) for at in ("begin", "end"))
        )
        seconds += (shares[name] - 1) * (upto - covered)
        covered = upto
    return seconds
