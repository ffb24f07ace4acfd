"""Dollars a step: what GPUs, network and electricity cost for the time of one step, every part
named, nothing counted twice.

    gpus           GPUs at their hourly price, less what that price holds already and is named below
    gpu_power      their electricity, at the power a data sheet allows them: an upper bound
    nics           the NICs of the bill, spread over their life
    network        switches, optics and fibre of the bill, spread over their life
    network_power  the electricity of these
    cpu_servers    CPU servers of environments at their hourly price, less their electricity
    cpu_power      that electricity

A GPU is rented with the server around it: the price holds its electricity and its NICs (`RENTED`),
so these are taken out of the price before they are named. Whether it holds a network too no cloud
says: if so, every total is too high by that network, the same on every fabric, and differences
between fabrics are right. The price of a CPU server holds its electricity alone: its card is one of
the fabric's, dearer than the 50 Gbit/s that such a server is rented with. Nor does the price of
GPUs hold the NICs of hosts that a job leaves idle on a larger fabric: they are paid beside it.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from ..errors import RFabricError, RunError
from ..units import SECONDS_PER_HOUR
from .cost import Bill

HOURS_A_YEAR = 8766
# U.S. industrial average of 2023 (Energy Information Administration); no cooling on top
KWH_USD = 0.08
# straight-line life of network equipment: an assumption; clouds write servers off in 4 to 6 years
YEARS = 4.0
HOLDABLE = ("power", "nics")  # what the hourly price of a GPU may hold
RENTED = HOLDABLE
CPU = ("cpu_servers", "cpu_power")  # parts that only jobs with CPU servers have


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a job: USD an hour and W of all together, None where not published; `holds`: what
    that price pays for; `cards`: their share of the network's cards, of which alone it can.
    """

    usd_per_hour: float
    watts: float | None = None
    holds: Collection[str] = RENTED
    cards: float = 1.0

    def __post_init__(self):
        for name in ("usd_per_hour", "watts"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise RFabricError(f"GPUs: {name}={value} must be a number, 0 or more")
        strange = set(self.holds) - set(HOLDABLE)
        if strange:
            raise RFabricError(
                f"GPUs: a price holds {', '.join(HOLDABLE)} or nothing, not "
                f"{', '.join(sorted(strange))}"
            )
        if not 0 <= self.cards <= 1:
            raise RFabricError(f"GPUs: cards={self.cards} is no share; it is 0 to 1")

    def times(self, number: int) -> "Gpus":
        """So many of these."""
        watts = None if self.watts is None else self.watts * number
        return replace(self, usd_per_hour=self.usd_per_hour * number, watts=watts)


@dataclass(frozen=True)
class CpuServers:
    """The CPU servers of a job: USD an hour and W of all together."""

    usd_per_hour: float
    watts: float

    def __post_init__(self):
        for name in ("usd_per_hour", "watts"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise RFabricError(f"CPU servers: {name}={value} must be a number, 0 or more")


@dataclass(frozen=True)
class StepCost:
    """USD of one step by part; a part is None where its watts are not known, and then not in the
    sum. Those of CPU servers are None where there are none.
    """

    gpus: float
    gpu_power: float | None
    nics: float
    network: float
    network_power: float | None
    cpu_servers: float | None = None
    cpu_power: float | None = None

    @property
    def usd(self) -> float:
        """US dollars of all parts."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """The parts that are known, by name."""
        return {
            f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None
        }

    def to_json(self) -> dict:
        """`usd_per_step`, and `usd_per_step_parts` with None for what is not known; without CPU
        servers nothing is said of them.
        """
        there = [f.name for f in fields(self) if self.cpu_servers is not None or f.name not in CPU]
        return {
            "usd_per_step": self.usd,
            "usd_per_step_parts": {name: getattr(self, name) for name in there},
        }


def step_cost(
    step_s: float,
    gpus: Gpus,
    network: Bill,
    *,
    years: float = YEARS,
    usd_per_kwh: float = KWH_USD,
    busy: float = 1.0,
    servers: CpuServers | None = None,
) -> StepCost:
    """What one step of `step_s` costs on a network that is written off over `years`, of which it is
    `busy` a share; `servers`: CPU servers that the job has beside its GPUs. RFabricError for
    figures out of bounds; RunError where the parts are not the whole.
    """
    for name, value in (("step_s", step_s), ("usd_per_kwh", usd_per_kwh)):
        if not 0 <= value < math.inf:
            raise RFabricError(f"{name}={value} must be a number, 0 or more")
    if not 0 < years < math.inf or not 0 < busy <= 1:
        raise RFabricError(f"years={years} must be above 0, busy={busy} above 0 and at most 1")
    hours = step_s / SECONDS_PER_HOUR
    life = years * HOURS_A_YEAR * busy
    nics = sum(line.usd for line in network.lines if line.item == "nic")
    power, drawn = (_energy_usd(watts, hours, usd_per_kwh) for watts in (gpus.watts, network.watts))
    named = {"power": power or 0.0, "nics": nics * gpus.cards * hours / life}
    own = gpus.usd_per_hour * hours - sum(named[what] for what in gpus.holds)
    if own < 0:
        raise RFabricError(
            f"{gpus.usd_per_hour:g} USD an hour do not pay for the {' and '.join(gpus.holds)} "
            f"that this price of GPUs is said to hold; say that it holds less"
        )
    cost = StepCost(
        own,
        power,
        nics * hours / life,
        (network.usd - nics) * hours / life,
        drawn,
        *(_rented(servers, hours, usd_per_kwh) if servers else ()),
    )
    # of what a GPU's price may hold
    beside = sum(part for what, part in named.items() if what not in gpus.holds)
    paid = gpus.usd_per_hour * hours + beside + (network.usd - nics) * hours / life + (drawn or 0.0)
    paid += nics * (1 - gpus.cards) * hours / life  # of other hosts
    if servers:
        paid += servers.usd_per_hour * hours
    if not math.isclose(cost.usd, paid, rel_tol=1e-9):
        raise RunError(
            f"the parts of a step cost {cost.usd:.9g} USD, all that is paid {paid:.9g} USD"
        )
    return cost


def _rented(servers: CpuServers, hours: float, usd_per_kwh: float) -> tuple[float, float]:
    """USD of CPU servers without their electricity, and of that; RFabricError for a price that does
    not pay for it.
    """
    power = servers.watts / 1e3 * hours * usd_per_kwh
    if servers.usd_per_hour * hours < power:
        raise RFabricError(
            f"{servers.usd_per_hour:g} USD an hour do not pay for the {servers.watts:g} W that "
            "these CPU servers may draw; raise environments.usd_per_hour"
        )
    return servers.usd_per_hour * hours - power, power


def _energy_usd(watts: float | None, hours: float, usd_per_kwh: float) -> float | None:
    return None if watts is None else watts / 1e3 * hours * usd_per_kwh
