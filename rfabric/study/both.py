"""One run in both worlds: what was simulated is emulated, and the two are held against each other."""

from collections.abc import Callable
from pathlib import Path

from ..emulate.scale import resolution
from ..emulate.world import emulate
from ..optics import Timing
from ..report.result import Result, Scale, fidelity
from ..report.summary import Run
from ..trace import Trace


def emulated(
    expected: Result, trace: Trace, *, scale: Scale, timing: Timing = Timing(), out: str | Path = "runs",
    progress: Callable[[dict], None] | None = None,
) -> Run:  # fmt: skip
    """Emulate the run of `trace` that `expected` simulated; its fidelity is the distance from the simulation."""
    policy = expected.policy if expected.fabric.ocses else "own"
    about = {"traffic": expected.traffic, "seed": expected.seed, "routing": expected.routing}
    about |= {"scale": scale, "timing": timing, "out": out, "progress": progress}
    result = emulate(expected.fabric, trace, policy, **about)
    return Run(result, fidelity(result, expected, resolution(result)))
