"""What every builder cables with: a sketch that hands out ports, checks of numbers, how many
switches join so many racks.

A cable takes the next free port at both ends, so port numbers follow from the order of cabling: a
rack has its GPUs at ports 1..gpus, then its uplinks by plane, then the thin electrical cable; an
aggregation switch has its racks first, then its cables to the core; a core switch has pod after
pod.

RFabricError says which setting is out of bounds, and the nearest that is not.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from ...errors import RFabricError
from ..model import Link, Node, Port

CABLE_DELAY = 0.5e-6  # s: ~100 m of fibre at 5 ns/m; cable lengths inside a data hall
# Ports of a packet switch by their rate (bit/s), as sold in one box of up to 25.6 Tbit/s; a rate
# between takes the next row. A box of 51.2 Tbit/s has 128 ports of 400G or 64 of 800G (NVIDIA
# SN5600, Arista 7060X6-64PE): say radix=128.
RADIX = {
    100e9: 64,  # NVIDIA SN4600C (data sheet): 64 x 100G
    200e9: 64,  # NVIDIA SN4600 (data sheet): 64 x 200G
    400e9: 64,  # NVIDIA QM9700 (manual; the switch whose watts `prices.csv` has): 64 x 400G
    800e9: 32,  # Arista 7060X6-32PE (data sheet): 32 x 800G
}
# Of the largest packet switch there is: 102.4 Tbit/s chips have 512 ports of 200 Gbit/s (Broadcom
# Tomahawk 6).
MAX_PORTS = 512
SMALLEST_RADIX = 4  # two ports down, two up: below that a tree does not narrow
TIER_CODE = {"edge": 1, "aggregation": 2, "core": 3, "electrical": 4, "server": 5}
DPID_DIGITS = 0x1000


class Tiers(NamedTuple):
    """`groups` of leaves below switches of their own, and core switches a plane above these; (1,
    0): one switch a plane.
    """

    groups: int
    cores: int


class Spine(NamedTuple):
    """How the switches between leaves and core are called and numbered, where others stand in their
    tier already.
    """

    letter: str = "a"
    first: int = 0
    in_pod: bool = True


class Sketch:
    """Nodes and cables under construction."""

    def __init__(self):
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.standing: Counter[str] = Counter()  # switches so far, by tier
        self._ports: Counter[str] = Counter()

    def switch(
        self,
        name: str,
        kind: str,
        tier: str,
        place: tuple[int, int],
        pod: int = -1,
        plane: int = -1,
    ) -> str:
        """A switch whose datapath id one can read in hex: 0x<tier><place, twice 3 digits>."""
        if max(place) >= DPID_DIGITS:
            raise RFabricError(
                f"switch {name} would be number {max(place)} of its tier, the limit is "
                f"{DPID_DIGITS - 1}"
            )
        self.standing[tier] += 1
        self.nodes.append(
            Node(name, kind, tier, pod, plane, TIER_CODE[tier] << 24 | place[0] << 12 | place[1])
        )
        return name

    def hosts(self, counts: Sequence[int]) -> list[str]:
        """counts[p] hosts in each pod p, numbered through."""
        names = []
        for pod, count in enumerate(counts):
            for _ in range(count):
                names.append(f"h{len(names) + 1}")
                self.nodes.append(Node(names[-1], "host", "host", pod))
        return names

    def cable(self, a: str, b: str, rate: float, delay: float = CABLE_DELAY) -> None:
        """Join two nodes at their next free ports: rate in bit/s, delay in s."""
        ends = []
        for name in (a, b):
            self._ports[name] += 1
            ends.append(Port(name, self._ports[name]))
        self.links.append(Link(*ends, rate, delay))

    def racks(
        self, pods: int, tors: int, gpus: int, rate: float, tier: str = "edge"
    ) -> list[list[str]]:
        """Hosts and the racks (ToRs or servers) that hold them, by pod."""
        hosts = iter(self.hosts([tors * gpus] * pods))
        letter = {"edge": "t", "server": "s"}[tier]
        by_pod: list[list[str]] = []
        for p in range(pods):
            by_pod.append([])
            for t in range(tors):
                name = self.switch(f"{letter}{p * tors + t + 1}", "eps", tier, (p, t), p)
                by_pod[p].append(name)
                for _ in range(gpus):
                    self.cable(next(hosts), name, rate)
        return by_pod

    def planes(
        self,
        pods: list[list[str]],
        planes: int,
        kind: str,
        rate: float,
        cores: int,
        spine: Spine = Spine(),
    ) -> None:
        """`planes` slices: one aggregation switch per pod and `cores` core switches, full rate
        above the rack; 0: no core.

        A core switch takes an equal share of the up-cables of every aggregation switch of its
        plane, one for each rack.
        """
        share = len(pods[0]) // cores if cores else 0
        for (p, racks), j in product(enumerate(pods), range(planes)):
            agg = self.switch(
                f"{spine.letter}{p * planes + j + 1}", kind, "aggregation", (p, spine.first + j),
                p if spine.in_pod else -1, j,
            )  # fmt: skip
            for rack in racks:
                self.cable(rack, agg, rate)
        for j, i in product(range(planes), range(cores)):
            core = self.switch(f"c{j * cores + i + 1}", kind, "core", (j, i), -1, j)
            for p, _ in product(range(len(pods)), range(share)):
                self.cable(f"{spine.letter}{p * planes + j + 1}", core, rate)

    def spines(
        self, leaves: Sequence[str], tiers: Tiers, count: int, rate: float, spine: Spine = Spine()
    ) -> None:
        """`count` planes of packet switches above `leaves`: a spine with a cable to each, or groups
        of spines and cores.
        """
        if tiers.groups > 1:
            size = len(leaves) // tiers.groups
            groups = [list(leaves[i : i + size]) for i in range(0, len(leaves), size)]
            self.planes(groups, count, "eps", rate, tiers.cores, spine)
            return
        for j in range(count):
            top = self.switch(f"c{j + 1}", "eps", "core", (j, 0), -1, j)
            for leaf in leaves:
                self.cable(leaf, top, rate)

    def always_on(self, below: Sequence[str], rate: float, radix: int) -> None:
        """A thin cable of each of `below` to x1 or, where that has too few ports, to a tree of
        switches that never blocks.
        """
        if len(below) <= radix:
            top = self._thin()
            for name in below:
                self.cable(name, top, rate)
            return
        count = -(-len(below) // (radix // 2))
        each, lowest = -(-len(below) // count), []
        for i in range(0, len(below), each):
            lowest.append(self._thin())
            for name in below[i : i + each]:
                self.cable(name, lowest[-1], rate)
        together = max(radix // len(lowest), 1)  # planes of the tree that one switch has ports for
        for j in range(0, each, together):
            self.always_on(lowest * min(together, each - j), rate, radix)

    def _thin(self) -> str:
        number = self.standing["electrical"]
        return self.switch(f"x{number + 1}", "eps", "electrical", divmod(number, DPID_DIGITS))


# --- numbers --------------------------------------------------------------------------------------


def shape(name: str, pods: int, tors: int, gpus: int) -> tuple[int, int, int]:
    """Pods, racks a pod, GPUs a rack, when they are whole numbers that make two GPUs."""
    sizes = whole("pods", pods, 1), whole("tors", tors, 1), whole("gpus", gpus, 1)
    if math.prod(sizes) < 2:
        raise RFabricError(f"{name}: {pods} x {tors} x {gpus} is one GPU; a fabric needs two")
    return sizes


def whole(name: str, value: int, least: int) -> int:
    """The value where it is a whole number of `least` or more; else RFabricError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RFabricError(f"{name}={value!r} must be a whole number, {least} or more")
    return value


def number(name: str, value: float) -> float:
    """The value as a float; RFabricError where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RFabricError(f"{name}={value!r} must be a number")
    return float(value)


def uplinks(
    name: str,
    down: int,
    oversubscription: float,
    radix: int,
    what: str = "GPUs a ToR",
    key: str = "oversubscription",
) -> tuple[int, float]:
    """How many uplinks a switch of `radix` ports with `down` cables gets at `oversubscription`:1,
    and the ratio as a float; RFabricError where that is no whole number, which `key` says.
    """
    ratio = number(key, oversubscription)
    up = down / ratio if ratio > 0 else math.inf
    if not 1 <= up <= down or abs(up - round(up)) > 1e-9:
        most = min(down, max(radix - down, 1))
        near = dict.fromkeys(min(max(f(min(up, most)), 1), most) for f in (math.floor, math.ceil))
        ways = " or ".join(f"{key}={down / n:.12g} ({_counted(n)})" for n in near)
        gives = f"gives {down} {what} {up:.3g} uplinks, which must be a whole number, 1 to {down}"
        raise RFabricError(
            f"{name}: {key}={oversubscription} {gives if ratio > 0 else 'is not above 0'}; use "
            f"{ways}"
        )
    return round(up), ratio


def _counted(up: int) -> str:
    return f"{up} uplinks" if up > 1 else "1 uplink"


def narrow(name: str, what: str, ports: int, way_out: str, limit: int) -> None:
    """Refuse a packet switch of more ports than it has."""
    if ports > limit:
        raise RFabricError(
            f"{name}: {what} would need {ports} ports, the limit is {limit}; {way_out}, or "
            f"radix={ports}"
        )


def radix_at(radix: int, *rates: float) -> int:
    """Ports of the packet switches: `radix`, or where that is 0 what is sold at the fastest of
    `rates` (bit/s).
    """
    if whole("radix", radix, 0):
        return whole("radix", radix, SMALLEST_RADIX)
    return next((ports for rate, ports in RADIX.items() if rate >= max(rates)), min(RADIX.values()))


def nearest(value: int, works: Callable[[int], bool], most: int = 8192) -> int | None:
    """The whole number next to `value` that works, the lower of two; None where none does."""
    for step in range(most):
        for number in (value - step, value + step):
            if number >= 1 and works(number):
                return number
    return None


def core_switches(pods: int, tors: int, ports: int, step: int = 2, spare: int = 0) -> int | None:
    """The fewest core switches a plane that join `pods` of `tors` racks in any matching; 0 for one
    pod, None where none do.

    Several are dealt equal shares of every pod's up-cables, of a multiple of `step` cables: OCSes
    take even ones, see `optics.cores` for why that is enough; packet switches any (step=1), `spare`
    ports of a core kept for others.
    """
    if pods == 1:
        return 0 if tors + spare <= ports else None
    if 2 * tors > ports:
        return None
    if pods * tors + spare <= ports:
        return 1
    shares = (c for c in range(2, tors // step + 1) if not tors % (step * c))
    return next((c for c in shares if pods * tors // c + spare <= ports), None)


def tiers_of(racks: int, ports: int, step: int = 2, spare: int = 0, least: int = 1) -> Tiers | None:
    """How switches of so many ports join `racks`, in at least so many groups; one, where one switch
    a plane is enough.
    """
    if racks + spare <= ports and least == 1:
        return Tiers(1, 0)
    for size in range(min(ports // 2, racks // max(least, 2)), 0, -1):
        if not racks % size and (cores := core_switches(racks // size, size, ports, step, spare)):
            return Tiers(racks // size, cores)
    return None


def grouped(name: str, key: str, racks: int, ocs_ports: int) -> Tiers:
    """`tiers_of` OCSes, or an error that names the nearest number of racks that can be joined."""
    if (tiers := tiers_of(racks, ocs_ports)) is not None:
        return tiers
    near = nearest(racks, lambda n: tiers_of(n, ocs_ports) is not None)
    way_out = f"the nearest that works is {key}={near}" if near else "use a larger ocs_ports"
    raise RFabricError(
        f"{name}: OCSes of {ocs_ports} ports do not join {key}={racks} evenly; {way_out}"
    )


def joined(
    name: str,
    key: str,
    count: int,
    radix: int,
    *,
    leaves: int = 1,
    unit: int = 1,
    spare: int = 0,
    least: int = 1,
) -> Tiers:
    """`tiers_of` packet switches above `count` x `leaves`, or an error that says which size fits;
    one is `unit` of `key`.
    """
    if (tiers := tiers_of(count * leaves, radix, 1, spare, least)) is not None:
        return tiers
    near = nearest(count, lambda n: tiers_of(n * leaves, radix, 1, spare, least) is not None)
    nearby = f"the nearest that works is {key}={near * unit}, or take " if near else ""
    raise RFabricError(
        f"{name}: switches of {radix} ports do not join {count * leaves} leaves evenly: two tiers "
        f"end at {radix - spare}, three at {radix * (radix // 2)}; {nearby}a larger radix"
    )
