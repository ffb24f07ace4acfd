"""Opus (photonic rails, arXiv 2602.12521): 23x less network power and 4x less network cost than
rails of packet switches.

The abstract states the two figures, not what was counted. Three counts of the same two fabrics
bound them:

    every part                     NICs, the transceivers in them, and everything above
    without NICs                   the same on both fabrics; their power is in no count of ours
    without NICs and transceivers  what stands above the NICs: packet switches and their
                                   transceivers, or OCSes

With the NICs' transceivers counted no OCS, however frugal, saves more than a factor of seven, as
both fabrics need their light: 23x must leave them out, and then it depends on the watts of an OCS
port alone.
"""

from collections.abc import Callable
from dataclasses import replace

from ...fabric import parse_fabric
from ...fabric.cost import Bill, Line, bill
from . import PaperRow, PartBegun

GPUS = 1024
COST, POWER = 4.0, 23.0
OCS = "ocs-port"


def rows(seed: int = 0, progress: PartBegun = lambda _: None) -> list[PaperRow]:
    """The paper's two ratios beside ours, by what is counted; nothing is drawn at random."""
    progress("bills")
    rails, opus = (bill(parse_fabric(name, GPUS)) for name in ("rail-optimized", "opus"))
    every = [_counted(priced, lambda _: True) for priced in (rails, opus)]
    bare = [_counted(priced, lambda line: line.item != "nic") for priced in (rails, opus)]
    above = [_less(priced, bare[i], GPUS) for i, priced in enumerate((rails, opus))]
    name = f"{GPUS:,} GPUs, rail-optimized over Opus"
    ports = sum(line.count for line in opus.lines if line.item == OCS)
    saved = PaperRow(
        f"{name}: the most that OCSes without power would save",
        None,
        bare[0][1] / (bare[1][1] - _ocs_watts(opus)),
    )
    told = (
        (
            "network cost, every part",
            COST,
            every[0][0] / every[1][0],
            "NICs are half of Opus's bill",
        ),
        ("network cost, without NICs", COST, bare[0][0] / bare[1][0], "the nearest from below"),
        (
            "network cost, without NICs and transceivers in them",
            COST,
            above[0][0] / above[1][0],
            "the nearest from above",
        ),
        (
            "network power, every part",
            POWER,
            bare[0][1] / bare[1][1],
            "the NICs' transceivers, 12 W each, are nearly all of it",
        ),
        (
            "network power, without transceivers in NICs",
            POWER,
            above[0][1] / above[1][1],
            "0.14 W an OCS port, of a Calient S320 with every port in use",
        ),
    )
    why = (
        "what 23x implies, NICs' transceivers left out: an OCS with its idle ports and control, "
        "or other switches"
    )
    return [
        *(
            PaperRow(f"{name}: {what}", paper, ours, "x", f"what was counted is not stated; {said}")
            for what, paper, ours, said in told
        ),
        replace(saved, why="every part counted: a bound for any OCS"),
        PaperRow("watts an OCS port that make it 23x", None, above[0][1] / POWER / ports, "W", why),
    ]


def _counted(priced: Bill, wanted: Callable[[Line], bool]) -> tuple[float, float]:
    """USD and W of some lines of a bill; NICs have no watts in it."""
    lines = [line for line in priced.lines if wanted(line)]
    return sum(line.usd for line in lines), sum(line.watts or 0.0 for line in lines)


def _less(priced: Bill, counted: tuple[float, float], nics: int) -> tuple[float, float]:
    """`counted` without one transceiver for each NIC."""
    one = next(line for line in priced.lines if line.item == "transceiver")
    return counted[0] - nics * one.price.usd, counted[1] - nics * one.power.watts


def _ocs_watts(priced: Bill) -> float:
    return sum(line.watts for line in priced.lines if line.item == OCS)
