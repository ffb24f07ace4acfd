"""Runs as Python objects: printed in one line, made into tables, drawn and saved.

run.to_pandas()         its flows, the columns of flows.csv
run.plot("step.png")    the whole step
compared.to_pandas()    a row a run: step, exposed communication, cost
compared.save("mine")   a run folder; `report.folder.read_folder` and `rfabric report mine` read it
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import native
from ..errors import RFabricError
from ..folders import as_path
from .folder import RunFolder, new_folder, write_folder, writing
from .html import drawing, write_page
from .notebook import run_html, runs_html
from .summary import Run, labels, row_of, run_summary, summary_of
from .tables import flow_columns


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Run):
    """A run, and the files that its traffic came from."""

    inputs: tuple[Path, ...] = ()

    @property
    def step_seconds(self) -> float:
        """From the first instant to the last finish."""
        return self.result.step_seconds

    @property
    def exposed_seconds(self) -> float:
        """What communication adds to computing."""
        return self.result.exposed_seconds

    def to_pandas(self) -> Any:
        """A DataFrame of the flows, a row each, with the columns of flows.csv."""
        return _frame(flow_columns(self.result))

    def plot(self, file: str | Path = "") -> Any:
        """A matplotlib Figure: the whole step, a row an activity; `file`: it goes there as PNG."""
        figures = drawing()
        return _drawn(figures.timeline(self.result, figures.PRINT), file)

    def _repr_html_(self) -> str | None:
        return run_html(self)

    def save(self, folder: str | Path) -> Path:
        """Write the run folder `folder`, which must not exist yet."""
        return Comparison((self,)).save(folder)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Sequence[Outcome]):
    """Runs of one trace side by side."""

    runs: tuple[Outcome, ...]

    @classmethod
    def of(cls, runs: Iterable[Run], inputs: Sequence[Path] = ()) -> "Comparison":
        """Runs as a folder has them, and the files that their traffic came from."""
        return cls(tuple(Outcome(**vars(run), inputs=tuple(inputs)) for run in runs))

    def __getitem__(self, index):
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        steps = ", ".join(
            f"{label} {run.step_seconds:.3f} s"
            for label, run in zip(labels(self.runs), self.runs, strict=True)
        )
        if not self.runs:
            return "<Comparison of nothing>"
        return f"<Comparison of {self.runs[0].result.traffic or 'a trace'}: {steps}>"

    def _repr_html_(self) -> str | None:
        return runs_html(self)

    def rows(self) -> Iterator[dict]:
        """The results of each run, in plain values."""
        for label, run in zip(labels(self.runs), self.runs, strict=True):
            yield row_of(run_summary(run) | {"label": label})

    def to_pandas(self) -> Any:
        """A DataFrame of `rows`, with the seconds and exposed seconds of every phase."""
        return _frame(list(self.rows()))

    def plot(self, file: str | Path = "") -> Any:
        """A matplotlib Figure: step time, exposed communication and network cost, a bar a run;
        `file`: it goes there as PNG.
        """
        figures = drawing()
        return _drawn(figures.comparison(self.runs, figures.PRINT), file)

    def save(self, folder: str | Path) -> Path:
        """Write the run folder `folder`, which must not exist yet. RFabricError where it does,
        or there is no run.
        """
        folder = as_path(folder, "cannot write")
        if not self.runs:
            raise RFabricError(f"cannot write {folder}: there is no run to write")
        with writing(folder):
            there = folder.exists()
        if there:
            raise RFabricError(f"cannot write {folder}: it is there already; choose another name")
        with new_folder(folder.parent, folder.name) as made:
            self.write(made)
        return made.final

    def write(
        self,
        folder: RunFolder,
        command: str = "",
        tell: Callable[[str, dict], None] = lambda *_: None,
        page: bool = True,
        prices: Sequence[float] = (),
    ) -> tuple[dict, bool]:
        """Fill `folder`, with a `page` where it can be drawn, which chooses among `prices` of an
        OCS port (USD); returns the summary, and whether there is one.
        """
        tell("report", {"stage": "write"})
        native.give_back()
        summary = summary_of(self.runs, command, folder.created)
        write_folder(folder.path, self.runs, summary, self.runs[0].inputs)
        if not page:
            return summary, False
        tell("report", {"stage": "draw"})
        return summary, write_page(folder.path, self.runs, summary, prices)


def _drawn(figure: Any, file: str | Path) -> Any:
    if file != "":
        drawing().png(figure, as_path(file, "cannot write"))
    return figure


def _frame(data: dict | list[dict]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise RFabricError("to_pandas needs pandas; install rfabric[pandas]") from error
    return pandas.DataFrame(data)
