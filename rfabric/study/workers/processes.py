"""Processes of this machine, each replaced when it dies: only the task that it had is lost.

A thread stands for each process and owns it, so that who died, and with what, is always known; one
`ProcessPoolExecutor` of several would break as a whole.
"""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

from .base import WorkerDiedError, Workers


@contextmanager
def opened(jobs: int) -> Iterator[Workers]:
    """So many processes; on an error or Ctrl-C they end at once."""
    made = Processes(jobs)
    try:
        yield Workers(made, lambda: jobs, (WorkerDiedError,), remote=False)
    except BaseException:
        made.end()
        raise
    finally:
        made.shutdown(cancel_futures=True)


class Processes(ThreadPoolExecutor):
    """An executor over processes that outlives each of them."""

    def __init__(self, jobs: int):
        super().__init__(jobs, thread_name_prefix="worker")
        self._own = threading.local()
        self._every: list[ProcessPoolExecutor] = []
        self._ended = False

    def submit(self, fn, /, *args, **settings) -> Future:
        """Call `fn`, a function of a module, in one of the processes; its future raises
        WorkerDiedError where that process is gone.
        """
        return super().submit(self._there, fn, *args, **settings)

    def _there(self, fn, *args, **settings):
        pool = getattr(self._own, "pool", None) or self._begin()
        try:
            return pool.submit(fn, *args, **settings).result()
        except BrokenProcessPool as error:
            self._own.pool = None
            pool.shutdown()  # its own thread ends too: one left behind breaks as Python ends
            self._every.remove(pool)
            raise WorkerDiedError(f"a process of this machine: {error}") from error

    def _begin(self) -> ProcessPoolExecutor:
        if self._ended:
            raise WorkerDiedError("the sweep has ended")
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin_worker)
        self._own.pool = pool
        self._every.append(pool)
        return pool

    def end(self) -> None:
        """Do not wait for what nobody wants any more."""
        self._ended = True
        super().shutdown(wait=False, cancel_futures=True)
        for pool in list(self._every):
            for process in list((pool._processes or {}).values()):
                process.terminate()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As an executor's; the processes end with it."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        for pool in list(self._every):
            pool.shutdown(wait, cancel_futures=cancel_futures)


def _begin_worker() -> None:
    """Workers leave Ctrl-C to the process that began them, and end with it, also by `kill -9`:
    they hold both ends of the pipe that they read, so it would never say so.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[parent_process()], daemon=True).start()


def _end_with(parent) -> None:
    parent.join()
    os._exit(1)
