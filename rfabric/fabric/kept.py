"""What is worked out of a fabric once, however often it is asked for."""

from collections.abc import Callable, Hashable
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


def kept_last(known: dict, question: Hashable, answer: Callable[[], T], most: int) -> T:
    """The answer, which depends on the question only. `known` holds those to the last `most`
    questions, because what repeats asks again.
    """
    known[question] = value = known.pop(question) if question in known else answer()
    if len(known) > most:
        known.pop(next(iter(known)))
    return value
