"""What is worked out of a fabric once, however often it is asked for."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from .model import Fabric

T = TypeVar("T")


def kept(work: Callable[[Fabric], T]) -> Callable[[Fabric], T]:
    """`work`, whose answer for a fabric is kept in the fabric's `memo`."""

    @wraps(work)
    def known(fabric: Fabric) -> T:
        if work not in fabric.memo:
            fabric.memo[work] = work(fabric)
        return fabric.memo[work]

    return known
