"""Who computes the cells of a sweep: anything that is a `concurrent.futures.Executor`.

    --jobs 8                          processes of this machine
    --workers tcp://HOST:8786         a Dask cluster (rfabric[dask]), such as dask-jobqueue starts
    --workers ray://HOST:10001        a Ray cluster (rfabric[ray]), through its client server

What is sent is a function's name and a text, what comes back is bytes. A new kind of workers is one
module that yields `Workers`, and its row in KINDS.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from ...errors import RFabricError
from .base import Workers

KINDS = {"tcp": "on_dask", "tls": "on_dask", "ray": "on_ray"}


@contextmanager
def connected(address: str, jobs: int) -> Iterator[Workers]:
    """The workers at `address`, or `jobs` processes of this machine where it is ''.

    RFabricError where the address is none, nobody answers there, or there are no workers.
    """
    name = _module(address) if address else "processes"
    module = import_module(f".{name}", __package__)
    opened: Callable = module.opened
    with opened(address or jobs) as workers:
        yield workers


def _module(address: str) -> str:
    scheme, slashes, rest = address.partition("://")
    if not slashes or scheme not in KINDS or not rest:
        raise RFabricError(
            f"--workers {address}: give the address of a Dask scheduler, tcp://HOST:8786, or of a "
            "Ray cluster, ray://HOST:10001; for processes of this machine say --jobs N"
        )
    return KINDS[scheme]


__all__ = ["KINDS", "Workers", "connected"]
