"""MLflow: RUN/metrics/timing_s/gen, a line `milliseconds value step` each time; or mlflow.db."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ...errors import RFabricError
from ...files import lines_of, open_text
from .base import LoggedMetrics, LoggedSteps, of_steps

SQLITE = b"SQLite format 3\x00"


def metrics(folder: Path) -> Iterator[LoggedMetrics]:
    """The metrics of a run, a file each, folders as its name has slashes."""
    steps: LoggedSteps = defaultdict(dict)
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = file.relative_to(folder).as_posix()
        with open_text(file) as opened:
            for number, line in enumerate(lines_of(opened), 1):
                step, value = _line(line, f"metrics/{name}, line {number}")
                steps[step][name] = value
    return of_steps("metrics", steps)


def _line(line: str, where: str) -> tuple[int, float]:
    try:
        _, value, step, *_ = line.split()
        return int(step), float(value)
    except ValueError:
        raise RFabricError(
            f"{where}: {line.strip()[:40]!r} is not `milliseconds value step`; remove the line"
        ) from None


def database(path: Path, run: str = "") -> Iterator[LoggedMetrics]:
    """The metrics of a run in MLflow's SQLite; of the only one, where none is named. RFabricError
    where there are several, or it cannot be read.
    """
    steps: LoggedSteps = defaultdict(dict)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            runs = [one for (one,) in base.execute("SELECT DISTINCT run_uuid FROM metrics")]
            if run not in runs and (run or len(runs) != 1):
                some = ", ".join(sorted(runs)[:4])
                raise RFabricError(f"holds {len(runs)} runs ({some} ...); give {path.name}/RUN")
            for key, value, step, nan in base.execute(
                "SELECT key, value, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY "
                "timestamp", (run or runs[0],),
            ):  # fmt: skip
                steps[step][key] = float("nan") if nan else value
    except sqlite3.Error as error:
        raise RFabricError(f"is no database of MLflow that can be read: {error}") from error
    return of_steps(path.name, steps)
