"""What a sweep knows of its workers, whoever they are."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass


class WorkerDiedError(Exception):
    """The process that a task was given to is gone."""


@dataclass(frozen=True)
class Workers:
    """An executor; `count()` processes of it work now, and a future raises one of `died` where its
    process is gone. `remote`: they may have none of our files.
    """

    executor: Executor
    count: Callable[[], int]
    died: tuple[type[BaseException], ...]
    remote: bool = True
