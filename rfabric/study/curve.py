"""How a whole run grows with its job: CPU seconds and bytes of each stage from 64 to 262,144 GPUs.

    points = measure(sizes_of(["curve"], up_to=65536))  # each in a process of its own

    start      Python, and what it imports
    plan       recipe, drawn responses, who computes what when
    trace      the rows that this sends, with what each waits for
    fabric     its nodes and cables
    simulate   the event loop around the next three
    placement  a way for each pair of hosts, under each set of circuits
    policies   circuits chosen, and weighed against staying
    core       the C++ engine
    folder     the files of the run folder, Parquet too where pyarrow is installed
    page       report.html

The job is `pipeline_costs.job`: one dense model, its data parallelism as wide as the GPUs allow.
"""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import RFabricError, RunError, meant
from ..files import replacing
from ..report.compare import Row, Table
from ..report.folder import writing
from ..units import show_size
from .pipeline_costs import FABRIC, STAGES
from .stopwatch import Cost

SIZES = tuple(64 * 4**k for k in range(7))  # GPUs
USUAL_LIMIT = 65_536  # GPUs: beyond, one run takes minutes and several GB
PREFIX = "curve"
CASES = tuple(f"{PREFIX}-{gpus}" for gpus in SIZES)
FITTED = 3  # the largest sizes, which exponents are of: what is constant hides growth below


@dataclass(frozen=True)
class CurvePoint:
    """One size: rows of its trace, rewires, the most memory its process had, bytes of its run
    folder, and the cost of each stage.
    """

    gpus: int
    rows: int
    rewires: int
    peak_bytes: int
    folder_bytes: int
    stages: dict[str, Cost]

    @property
    def cpu_s(self) -> float:
        """Of all stages."""
        return sum(cost.cpu_s for cost in self.stages.values())

    def to_json(self) -> dict:
        """Plain values, a stage's under its name."""
        stages = {name: vars(cost) for name, cost in self.stages.items()}
        return vars(self) | {"cpu_s": self.cpu_s, "stages": stages}


def is_case(name: str) -> bool:
    """Whether a benchmark's name is of this module."""
    return name.partition("-")[0] == PREFIX


def sizes_of(cases: Iterable[str], up_to: int = USUAL_LIMIT) -> list[int]:
    """The sizes, GPUs, that these cases name: `curve` is every size up to `up_to`, and
    `curve-262144` that one, however large. RFabricError for others.
    """
    if up_to < SIZES[0]:
        raise RFabricError(f"--up-to {up_to}: the curve begins at {SIZES[0]} GPUs; say more")
    chosen = set()
    for case in cases:
        if case == PREFIX:
            chosen |= {gpus for gpus in SIZES if gpus <= up_to}
        elif case in CASES:
            chosen.add(SIZES[CASES.index(case)])
        else:
            raise RFabricError(
                f"no benchmark {case!r}{meant(case, CASES)}; of the curve there are {PREFIX} and "
                f"{', '.join(CASES)}"
            )
    return sorted(chosen)


def measure(
    sizes: Sequence[int], progress: Callable[[str], None] = lambda _: None
) -> list[CurvePoint]:
    """A run of each size. RunError where one ended otherwise than well."""
    points = []
    for gpus in sizes:
        progress(f"{PREFIX}-{gpus}")
        points.append(_alone(gpus))
    return points


def _alone(gpus: int) -> CurvePoint:
    """In a fresh process: what another has read or allocated does not count."""
    words = [sys.executable, "-m", f"{__package__}.pipeline_costs", str(gpus)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip()[-2000:] or "for lack of memory perhaps"
        raise RunError(f"benchmark {PREFIX}-{gpus} ended with code {done.returncode}: {why}")
    said = json.loads(done.stdout)
    stages = {name: Cost(**cost) for name, cost in said.pop("stages").items()}
    return CurvePoint(gpus, **said, stages=stages)


def exponents(points: Sequence[CurvePoint], what: str) -> dict[str, float]:
    """Stage, and `all`, -> a in cost ~ GPUs**a, by least squares over the FITTED largest sizes;
    `what` is `cpu_s` or `peak_bytes`. Empty for fewer sizes, and without a stage that costs nothing
    there.
    """
    largest = sorted(points, key=lambda point: point.gpus)[-FITTED:]
    if len(largest) < FITTED:
        return {}
    x = np.log([point.gpus for point in largest])
    columns = {name: [getattr(p.stages[name], what) for p in largest] for name in STAGES}
    columns["all"] = [getattr(p, what) for p in largest]
    return {
        name: float(np.polyfit(x, np.log(values), 1)[0])
        for name, values in columns.items()
        if min(values) > 0
    }


# --- tables ---------------------------------------------------------------------------------------


def tables(points: Sequence[CurvePoint]) -> list[Table]:
    """Seconds and bytes, a line a stage and a column a size."""
    if not points:
        return []
    fitted = f"the {FITTED} largest sizes" if len(points) >= FITTED else f"{FITTED} sizes or more"
    return [
        _table(points, "Seconds of each stage", "cpu_s", _seconds, _SECONDS.format(fitted)),
        _table(points, "Memory of each stage", "peak_bytes", show_size, _MEMORY),
        Table("What was run", _columns(points), tuple(_facts(points))),
    ]


_SECONDS = (
    f"CPU seconds of one process, {FABRIC}; each instant counts for the innermost stage. "
    "Exponent a: a stage costs GPUs**a, by {}."
)
_MEMORY = (
    "The most by which memory rose in a stage above what the stages before it had left; of "
    "placement, policies and core, in one call. All: the most that the process had."
)


def _table(
    points: Sequence[CurvePoint], title: str, what: str, show: Callable[[float], str], note: str
) -> Table:
    slopes = exponents(points, what)
    lines = [
        _line(name, [show(getattr(p.stages[name], what)) for p in points], slopes.get(name))
        for name in STAGES
    ]
    total = _line("all", [show(getattr(p, what)) for p in points], slopes.get("all"))
    return Table(title, (*_columns(points), "exponent"), (*lines, total), note)


def _columns(points: Sequence[CurvePoint]) -> tuple[str, ...]:
    return "", *(f"{point.gpus:,} GPUs" for point in points)


def _facts(points: Sequence[CurvePoint]) -> Iterator[Row]:
    yield Row("rows of the trace", tuple(f"{point.rows:,}" for point in points))
    yield Row("rewires", tuple(f"{point.rewires:,}" for point in points))
    yield Row("run folder", tuple(show_size(point.folder_bytes) for point in points))


def _line(name: str, cells: Sequence[str], slope: float | None = None) -> Row:
    shown = "" if slope is None or name == "start" else f"{slope:.2f}"  # start does not grow
    return Row(name, (*cells, shown))


def _seconds(value: float) -> str:
    """Two digits that count, never more than milliseconds."""
    digits = min(max(1 - math.floor(math.log10(value)), 0), 3) if value > 0 else 0
    return f"{value:,.{digits}f} s"


def write(points: Sequence[CurvePoint], folder: Path) -> None:
    """curve.csv in `folder`: a line for each size and stage."""
    path = folder / "curve.csv"
    with writing(path), replacing(path) as beside, beside.open("w", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["gpus", "rows", "stage", "cpu_s", "peak_bytes"])
        for point in points:
            for name, cost in point.stages.items():
                lines.writerow([point.gpus, point.rows, name, cost.cpu_s, cost.peak_bytes])
