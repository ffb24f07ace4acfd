"""Workers of a Dask cluster: `dask worker tcp://HOST:8786 --nthreads 1`, or those that
dask-jobqueue starts by SLURM, PBS, LSF or SGE.

Dask gives the task of a worker that died to another, some times over (`allowed-failures` of its
scheduler); only then its future raises KilledWorker. Workers that join later take part.
"""

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

from ...errors import RFabricError
from .base import Workers

PATIENCE = 10  # s for the scheduler to answer, and for the first worker


@contextmanager
def opened(address: str) -> Iterator[Workers]:
    """The cluster of this scheduler, without ending it; what was not done is given up."""
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise RFabricError(
            f"--workers {address} needs Dask; pip install 'rfabric[dask]', here and on its workers"
        ) from error
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise RFabricError(
            f"--workers {address}: no Dask scheduler answers; start one: dask scheduler"
        ) from error
    with client:
        _wait_for_one(client, address)
        executor = client.get_executor(pure=False)
        try:
            yield Workers(executor, lambda: _count(client), (KilledWorker, CancelledError))
        finally:
            executor.shutdown(wait=False)


def _wait_for_one(client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise RFabricError(
            f"--workers {address}: the scheduler has no workers; start some: dask worker {address} "
            "--nthreads 1"
        ) from error


def _count(client) -> int:
    """Threads of all workers: so many tasks run at a time."""
    return sum(client.nthreads().values())
