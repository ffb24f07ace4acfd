"""Metrics of steps as loggers keep them, in files that are no text: one module each.

A folder is searched for such files; they must be of one run: its own, where it holds one beside
those of folders below it, as TensorBoard's hyperparameters make them. A last record that is cut
short, as killed jobs leave it, ends what is read, and is said.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from ...errors import RFabricError
from ...files import open_bytes
from . import mlflow, tensorboard, wandb
from .base import LoggedMetrics

__all__ = ["LoggedMetrics", "as_told"]


def as_told(path: Path, notes: list[str]) -> Iterator[LoggedMetrics] | None:
    """What a logger's file or folder tells; None for any other file. notes: what was cut short.

    RFabricError for a file that is damaged, a folder without such files or with those of many runs.
    """
    if path.is_dir():
        return _folder(path, notes)
    if path.parent.is_file() and _head(path.parent) == mlflow.SQLITE:
        return mlflow.database(path.parent, path.name)
    reader = _reader(path) if path.is_file() else None
    return reader(path, notes) if reader else None


def _head(path: Path) -> bytes:
    with open_bytes(path) as file:
        return file.read(len(mlflow.SQLITE))


def _reader(path: Path) -> Callable[[Path, list[str]], Iterator[LoggedMetrics]] | None:
    head = _head(path)
    if head.startswith(wandb.MAGIC):
        return wandb.history
    if head == mlflow.SQLITE:
        return lambda path, _: mlflow.database(path)
    known = len(head) >= 12 and tensorboard.checked(head[:8], head[8:12])
    return tensorboard.events if known else None


def _folder(path: Path, notes: list[str]) -> Iterator[LoggedMetrics]:
    """What the one run in a folder tells."""
    runs: dict[Path, list[Path]] = defaultdict(list)
    for file in sorted(_seen(path)):
        if file.name == "metrics" and file.is_dir():
            runs[file].append(file)
        elif "tfevents" in file.name:
            runs[file.parent].append(file)
        elif file.suffix == ".wandb" and not file.is_symlink():
            runs[file].append(file)
    if not runs:
        raise RFabricError(
            "holds no tfevents of TensorBoard, no .wandb, no metrics folder of MLflow; give the log"
        )
    if path in runs and len(runs) > 1:
        notes.append(f"{len(runs) - 1} runs in folders below it left out")
        runs = {path: runs[path]}
    if len(runs) > 1:
        some = ", ".join(str(run.relative_to(path)) for run in list(runs)[:4])
        raise RFabricError(f"holds {len(runs)} runs ({some} ...); give one of them")
    ((run, files),) = runs.items()
    if run.name == "metrics":
        return mlflow.metrics(run)
    return (told for file in files for told in (_reader(file) or _no_log)(file, notes))


def _seen(path: Path) -> Iterator[Path]:
    """All below a folder, and itself, but what is hidden, as MLflow's .trash."""
    yield path
    for file in path.rglob("*"):
        if not any(part.startswith(".") for part in file.relative_to(path).parts):
            yield file


def _no_log(path: Path, notes: list[str]) -> Iterator[LoggedMetrics]:
    if not path.stat().st_size:
        notes.append(f"{path.name} is empty")
        return iter(())
    raise RFabricError(f"{path.name} is damaged at its begin; take it out of the folder")
