"""Where reconfiguring stops to pay: step time against the reconfiguration delay, by fabric and by
how often circuits change.

    lines    optical fabric x granularity, one step for each delay, 10 us to 1 s
    flat     packet fabrics, which no delay touches

All runs have the compute scheduler that the policy names, if it names one: the same trace.

A line breaks even with a flat fabric at the delay where their step times meet: between two delays
of the sweep it is taken as straight over the logarithm of the delay, and it is searched from the
longest delay down: below it the line never loses again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import RFabricError, meant
from ..fabric import parse_fabric
from ..optics.policies import GRANULARITIES
from ..report.crossover import BreakEven, Crossover, DelayCurve
from ..schedulers.table import parse_policies
from ..specs import read_spec
from ..units import show_time
from .cell_folders import Hands, run
from .grid import Grid, begin, entries_of

DELAYS = tuple(10 ** (exponent / 2) for exponent in range(-10, 1))  # 10 us to 1 s, two a decade
NATIVE = {"rotor": "rotor"}  # fabrics that turn by themselves, and the policy that does it


@dataclass(frozen=True)
class Sweep:
    """What to sweep: optical fabrics, packet fabrics to hold them against, granularities, delays
    (s).
    """

    optical: tuple[str, ...]
    flat: tuple[str, ...]
    granularities: tuple[str, ...]
    delays: tuple[float, ...]
    traffic: str
    policy: str = "demand"
    routing: str = "placed"
    settings: tuple[str, ...] = ()
    seed: int = 0
    repetitions: str = "folded"

    def __post_init__(self):
        if len(self.delays) < 2 or min(self.delays) <= 0:
            raise RFabricError(
                "a sweep needs two delays above 0; "
                f"{', '.join(map(show_time, self.delays)) or 'none'} were given"
            )
        for name in self.granularities:
            if name not in GRANULARITIES:
                raise RFabricError(
                    f"no granularity {name!r}{meant(name, GRANULARITIES)}; there are "
                    f"{', '.join(GRANULARITIES)}"
                )

    def lines(self) -> list[tuple[str, str]]:
        """(fabric, policy) of each line."""
        return [(fabric, policy) for fabric in self.optical for policy in self._policies(fabric)]

    def _policies(self, fabric: str) -> list[str]:
        if native := NATIVE.get(fabric.partition(",")[0]):
            return [self.scheduled(native)]
        circuits = parse_policies(self.policy).circuits
        return [self.scheduled(f"{circuits},granularity={g}") for g in self.granularities]

    def scheduled(self, circuits: str) -> str:
        """These circuits under the compute scheduler of `policy`, where it names one."""
        scheduler = parse_policies(self.policy).scheduler
        return f"{scheduler}+{circuits}" if scheduler else circuits


def sweep(
    asked: Sweep, folder: Path, jobs: int = 0, progress: Callable[[dict], None] = lambda _: None
) -> Crossover:
    """Run the sweep with its cells under `folder`; each line is a grid that a second call takes up
    where it stopped.
    """
    _check(asked)
    steps = [(f, p, tuple(f"{f},delay={_text(d)}" for d in asked.delays)) for f, p in asked.lines()]
    total = len(steps) * len(asked.delays) + len(asked.flat)
    base = Grid(
        (),
        (asked.scheduled("demand"),),
        (asked.traffic,),
        (asked.seed,),
        settings=asked.settings,
        routing=asked.routing,
        repetitions=asked.repetitions,
    )
    told = _SweepProgress(total, progress)
    flat = (
        _entries(replace(base, fabrics=asked.flat), folder / "flat", jobs, told)
        if asked.flat
        else []
    )
    lines = []
    for number, (fabric, policy, specs) in enumerate(steps):
        entries = _entries(
            replace(base, fabrics=specs, policies=(policy,)), folder / f"line-{number}", jobs, told
        )
        lines.append(
            DelayCurve(
                fabric,
                policy,
                asked.delays,
                tuple(e["step_s"] for e in entries),
                tuple(len(e["rewires"]) for e in entries),
            )
        )
    levels = tuple((e["fabric"], e["step_s"]) for e in flat)
    return Crossover(
        asked.traffic, asked.seed, tuple(lines), levels, tuple(break_evens(lines, levels))
    )


def _check(asked: Sweep) -> None:
    """RFabricError where a fabric or a policy is none, or the delay of a fabric cannot be swept,
    before anything runs.
    """
    for spec in asked.flat:
        parse_fabric(spec)
    for spec in asked.optical:
        if not parse_fabric(spec).ocses:
            raise RFabricError(
                f"{spec} has no optical switch whose delay could be swept; compare with it: "
                f"--against {spec}"
            )
    for spec, policy in asked.lines():
        if "delay" in read_spec(spec).settings:
            raise RFabricError(
                f"{spec} sets the delay, which crossover varies: leave it out, and name the "
                "delays with --delays"
            )
        parse_fabric(f"{spec},delay={_text(asked.delays[0])}")
        parse_policies(policy)


def break_evens(
    lines: Sequence[DelayCurve], levels: Sequence[tuple[str, float]]
) -> list[BreakEven]:
    """Where each line meets each flat fabric."""
    return [
        BreakEven(line.label, name, *crossing(line.delays, line.step_s, level))
        for line in lines
        for name, level in levels
    ]


def crossing(
    delays: Sequence[float], steps: Sequence[float], level: float
) -> tuple[float | None, str]:
    """(delay in s, what it says): the longest delay up to which the line is not above `level`; None
    where it never meets it.
    """
    above = [step > level * (1 + 1e-9) for step in steps]
    if not any(above):
        return None, "never slower"
    if all(above):
        return None, "never faster"
    last = max(i for i, over in enumerate(above) if not over)
    if last == len(above) - 1:
        return None, "faster at the longest delay"
    a, b = (math.log(delays[i]) for i in (last, last + 1))
    low, high = steps[last], steps[last + 1]
    share = (level - low) / (high - low)
    return math.exp(a + share * (b - a)), "breaks even"


class _SweepProgress:
    """Progress over all grids of a sweep."""

    def __init__(self, total: int, progress: Callable[[dict], None]):
        self.total, self.progress, self.before = total, progress, 0

    def __call__(self, news: dict) -> None:
        self.progress(news | {"done_cells": self.before + news["done_cells"], "cells": self.total})


def _entries(grid: Grid, folder: Path, jobs: int, told: _SweepProgress) -> list[dict]:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "grid.json").is_file():
        begin(grid, folder)
    entries = entries_of(run(grid, folder, Hands(jobs), told))
    told.before += len(entries)
    return entries


def _text(seconds: float) -> str:
    return f"{seconds:.6g}s"
