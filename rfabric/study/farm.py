"""Tasks over workers that may die: each is done, or is said to have cost two workers.

A worker that dies costs the items of its task once more, each in a task of its own: one that kills
whoever has it is found, and takes no other with it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

from ..errors import RunError
from .workers import Workers

AHEAD = 2  # tasks a worker is given before it has done the first
BEAT, PATIENCE = 5.0, 60.0  # s: workers are counted so often; none are there for so long


@dataclass(frozen=True)
class LostItems:
    """What comes instead of an answer of items that no worker survived."""

    why: str

    def __str__(self) -> str:
        return f"two workers died of it, by lack of memory perhaps: {self.why}"


def outcomes(
    workers: Workers,
    work: Callable,
    tasks: Sequence[Sequence[Any]],
    arguments: Callable[[Sequence[Any]], tuple],
) -> Iterator[tuple[Sequence[Any], Any]]:
    """(items, what `work(*arguments(items))` gave, or LostItems), as tasks are done.

    RunError where no worker has been there for PATIENCE s, or where they cannot do such work.
    """
    waiting = deque((task, False) for task in tasks)
    running: dict[Future, tuple[Sequence[Any], bool]] = {}
    staff = _Staff(workers)
    while waiting or running:
        while waiting and len(running) < AHEAD * max(staff.count(), 1):
            task = waiting.popleft()
            running[workers.executor.submit(work, *arguments(task[0]))] = task
        done, _ = wait(running, BEAT, FIRST_COMPLETED)
        staff.check(bool(done))
        for future in done:
            items, before = running.pop(future)
            outcome = _outcome(workers, future)
            if isinstance(outcome, LostItems) and not before:
                waiting.extend(([item], True) for item in items)
            else:
                yield items, outcome


def _outcome(workers: Workers, future: Future) -> Any:
    try:
        return future.result()
    except workers.died as error:
        return LostItems(str(error) or type(error).__name__)
    except Exception as error:
        if not workers.remote:
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunError(
            f"the workers cannot run cells: {said}; install the same rfabric on each of them"
        ) from error


class _Staff:
    """How many workers there are, and since when there are none."""

    def __init__(self, workers: Workers):
        self._workers, self._now = workers, time.monotonic()
        self._seen = self._counted = self._now
        self._count = workers.count()

    def count(self) -> int:
        """Asked anew after each BEAT; a scheduler that does not answer has no workers."""
        now = time.monotonic()
        if now - self._counted > BEAT:
            self._counted = now
            try:
                self._count = self._workers.count()
            except Exception:  # whatever the engine raises of a connection that is gone
                self._count = 0
        return self._count

    def check(self, done: bool) -> None:
        """RunError where nobody has been there for PATIENCE s."""
        if done or self.count():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > PATIENCE:
            raise RunError(
                f"no worker was there for {PATIENCE:g} s; start some, and run the same command "
                "again: finished cells are kept"
            )
