"""Workers of a Ray cluster, through its client server: `ray start --head` opens ray://HOST:10001.

A task takes one CPU of the cluster. Ray is told not to repeat tasks: a worker that died is told to
the sweep, which gives its cells to another once.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from ...errors import RFabricError
from .base import Workers

CLIENT_STARTS = 3


@contextmanager
def opened(address: str) -> Iterator[Workers]:
    """The cluster at this address, without ending it; RFabricError without Ray or an answer."""
    try:
        import ray
        from ray import exceptions
    except ImportError as error:
        raise RFabricError(
            f"--workers {address} needs Ray; pip install 'rfabric[ray]', here and on its nodes"
        ) from error
    _join(address, ray)
    died = exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError
    try:
        if not _count(ray):
            raise RFabricError(
                f"--workers {address}: the cluster has no CPU; add a node: ray start --address ..."
            )
        yield Workers(RayExecutor(ray), lambda: _count(ray), died)
    finally:
        ray.shutdown()


def _join(address: str, ray: Any) -> None:
    """Become a client of the cluster.

    The cluster starts a process for each client. Where both are busy that process sometimes ends
    before it serves, and Ray, which asks a silent cluster again, does not ask for another process.
    """
    for left in reversed(range(CLIENT_STARTS)):
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR")
            return
        except ConnectionAbortedError as error:
            if not left:
                why = [*filter(str.strip, str(error).splitlines())][-1].strip()
                raise RFabricError(
                    f"--workers {address}: the Ray cluster answers, but took no client in "
                    f"{CLIENT_STARTS} tries: {why}"
                ) from error
        except (OSError, RuntimeError, ValueError) as error:
            raise RFabricError(
                f"--workers {address}: no Ray cluster answers: {error}; start one: ray start --head"
            ) from error


class RayExecutor(Executor):
    """The cluster that `ray.init` found, as an executor."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._calls: dict[Callable, Any] = {}  # Ray sends a function once

    def submit(self, fn, /, *args, **settings) -> Future:
        """Call `fn`, a function of a module, on one CPU of the cluster."""
        if fn not in self._calls:
            self._calls[fn] = self._ray.remote(num_cpus=1, max_retries=0)(fn)
        return self._calls[fn].remote(*args, **settings).future()


def _count(ray: Any) -> int:
    """CPUs of the cluster: so many tasks run at a time."""
    return int(ray.cluster_resources().get("CPU", 0))
