"""Faults against a live emulation: what was lost, how long recovery took, which promise broke.

    drill  --a world-->  every fault in turn, while packets flow      see `emulate.drills`
           --another-->  the process that sends is killed from outside
    soak   --a world-->  rewires for minutes; what grows              see `emulate.soak`

The promises are those of the README's table of faults.
"""

from collections.abc import Sequence
from pathlib import Path

from ..emulate.drills import DRILLS, INSIDE, Drilled
from ..emulate.soak import Grown, Soaked
from ..errors import RFabricError
from ..fabric import Fabric, parse_fabric
from ..fabric.builders.parts import nearest
from ..report.compare import Table
from ..units import show_time
from .run import Tell

LEAST_HOSTS, HOSTS_BY = 8, 4
MOST_IN_RACK = 16  # hosts: what the switches of a rack have ports for
FEW = HOSTS_BY * MOST_IN_RACK  # hosts: more stand in whole racks, a pair of racks at a time
MORE_BY = 2 * MOST_IN_RACK
MOST_HOSTS = MORE_BY * 160  # an OCS of 320 ports joins two pods of so many racks
LEAST_SOAK = 10.0  # s: fewer samples than are judged come of less


def fabric(hosts: int) -> Fabric:
    """Two pods, with so many hosts in all: of two racks each, or of racks of MOST_IN_RACK.
    RFabricError where so many do not make two pods.
    """
    if not _makes_pods(hosts):
        near = nearest(min(max(hosts, LEAST_HOSTS), MOST_HOSTS), _makes_pods)
        raise RFabricError(
            f"--hosts {hosts}: two pods are drilled, of {LEAST_HOSTS} to {FEW} hosts in steps of "
            f"{HOSTS_BY}, or up to {MOST_HOSTS} in steps of {MORE_BY}; the nearest that works is "
            f"{near}"
        )
    if hosts <= FEW:
        return parse_fabric(f"rfabric,pods=2,tors=2,gpus={hosts // HOSTS_BY}")
    return parse_fabric(f"rfabric,pods=2,tors={hosts // MORE_BY},gpus={MOST_IN_RACK}")


def _makes_pods(hosts: int) -> bool:
    return LEAST_HOSTS <= hosts <= MOST_HOSTS and not hosts % (
        HOSTS_BY if hosts <= FEW else MORE_BY
    )


def faults(only: Sequence[str] = ()) -> list[str]:
    """What is asked for, all where nothing is; RFabricError for what is none."""
    if wrong := [name for name in only if name not in DRILLS]:
        raise RFabricError(f"--only {wrong[0]}: a fault is one of {', '.join(DRILLS)}")
    return [name for name in DRILLS if name in only or not only]


def drill(
    hosts: int = LEAST_HOSTS,
    only: Sequence[str] = (),
    out: str | Path = "runs",
    tell: Tell = lambda *_: None,
) -> list[Drilled]:
    """Every fault, or `only` some, against a live emulation (root)."""
    from ..emulate import world

    struck, wanted = fabric(hosts), faults(only)
    inside = [name for name in wanted if name in INSIDE]
    drilled = world.drills(struck, inside, lambda news: tell("drill", news), out) if inside else []
    if "sender" in wanted:
        drilled.append(world.kill_sender(struck, lambda news: tell("sender", news), out))
    return drilled


def soak(
    hosts: int, seconds: float, out: str | Path = "runs", tell: Tell = lambda *_: None
) -> Soaked:
    """Rewires under packets for so many s of wall clock (root); RFabricError for too few."""
    from ..emulate import world

    if seconds < LEAST_SOAK:
        raise RFabricError(
            f"--soak {show_time(seconds)}: too short to show what grows; soak for at least "
            f"{show_time(LEAST_SOAK)}"
        )
    return world.soak(fabric(hosts), seconds, lambda news: tell("soak", news), out)


def table(drilled: Sequence[Drilled]) -> Table:
    """A row a fault."""
    rows = [
        (
            one.what,
            f"{one.loss.lost} of {one.loss.sent}" if one.loss.sent else "the run",
            show_time(one.loss.silent),
            show_time(one.recovered),
            show_time(one.within),
            "; ".join(one.broken) or "kept",
        )
        for one in drilled
    ]
    columns = "fault", "packets lost", "silent", "recovery", "promised", "promises"
    return Table.of("Faults", columns, rows, words=(0, 5))


def growth(grown: Sequence[Grown]) -> Table:
    """A row for each that is counted."""
    rows = [
        (
            one.what,
            f"{one.first:,.0f}",
            f"{one.last:,.0f}",
            f"{one.slope:+,.2f}",
            f"{one.allowed:,.2f}",
            "flat" if one.ok else "grows",
        )
        for one in grown
    ]
    columns = "what", "first", "last", "in 100 rewires", "at most", ""
    return Table.of("Soak", columns, rows, words=(0, 5))
