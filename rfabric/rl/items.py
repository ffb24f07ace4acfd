"""A row of the explanation of a step."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..compute.spread import Spread
from ..trace import Flows
from ..units import show_rate
from . import flows
from .workload import Workload


@dataclass(frozen=True)
class Item:
    """One contribution to a phase: how many, seconds (of the slowest; at NIC rate for bytes),
    bytes, and why; `residuals` say how far measurements of its kind lie from it, and `within`
    between what (s) eight measurements in ten would be: None for no time.
    """

    phase: str
    item: str
    count: int
    seconds: float
    bytes: int
    why: str
    residuals: Spread | None = None
    within: tuple[float, float] | None = None


def sent_item(w: Workload, phase: str, item: str, turns: Iterable[Flows], why: str) -> list[Item]:
    """One item for flows that go out in `turns`, one after the other; none when they stay inside
    servers.
    """
    turns = [turn for turn in turns if len(turn.src)]
    if not turns:
        return []
    seconds = sum(flows.wire_seconds(w, turn) for turn in turns)
    size = sum(sum(turn.size) for turn in turns)
    why = f"{why}; {show_rate(w.nic_bps)} NICs"
    return [Item(phase, item, sum(len(turn.src) for turn in turns), seconds, int(size), why)]
