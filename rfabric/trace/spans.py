"""Computing as it is drawn: which GPUs are at work from when to when."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """GPUs of a pool at work from `start` for `seconds`; `what` they do, in which step."""

    pool: str
    gpus: tuple[int, ...]
    start: float
    seconds: float
    what: str
    step: int = 0
