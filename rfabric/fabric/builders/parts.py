"""What every builder cables with: a sketch that hands out ports, checks of numbers, sizes for so many GPUs.

A cable takes the next free port at both ends, so port numbers follow from the order of cabling: a rack has its GPUs at ports
1..gpus, then its uplinks by plane, then the thin electrical cable; an aggregation switch has its racks first, then its
cables to the core; a core switch has pod after pod.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

from ...errors import RFabricError
from ..model import Link, Node, Port

CABLE_DELAY = 0.5e-6  # s: ~100 m of fibre at 5 ns/m; cable lengths inside a data hall
MAX_PORTS = 512  # of one packet switch: 102.4 Tbit/s chips have 512 ports of 200 Gbit/s (Broadcom Tomahawk 6)
OCS_PORTS = 320  # Calient S320, the largest of the 3D-MEMS switches (device manual; shared by MixNet's cost calculator)
PANEL_PORTS = 1008  # Telescent NTM, a robotic patch panel (vendor)
TIER_CODE = {"edge": 1, "aggregation": 2, "core": 3, "electrical": 4, "server": 5}
DPID_DIGITS = 0x1000
SMALLEST, MOST_RACKS, MOST_GPUS = 64, 512, 128
SHAPE = ("pods", "tors", "gpus")


class Sketch:
    """Nodes and cables under construction."""

    def __init__(self):
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self._ports: Counter[str] = Counter()

    def switch(self, name: str, kind: str, tier: str, place: tuple[int, int], pod: int = -1, plane: int = -1) -> str:
        """A switch whose datapath id one can read in hex: 0x<tier><place, twice 3 digits>."""
        if max(place) >= DPID_DIGITS:
            raise RFabricError(
                f"switch {name} would be number {max(place)} of its tier, the limit is {DPID_DIGITS - 1}"
            )
        self.nodes.append(Node(name, kind, tier, pod, plane, TIER_CODE[tier] << 24 | place[0] << 12 | place[1]))
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
        ends = []
        for name in (a, b):
            self._ports[name] += 1
            ends.append(Port(name, self._ports[name]))
        self.links.append(Link(*ends, rate, delay))

    def racks(self, pods: int, tors: int, gpus: int, rate: float, tier: str = "edge") -> list[list[str]]:
        """Hosts and the racks (ToRs or servers) that hold them, by pod."""
        hosts = iter(self.hosts([tors * gpus] * pods))
        letter = {"edge": "t", "server": "s"}[tier]
        found: list[list[str]] = []
        for p in range(pods):
            found.append([])
            for t in range(tors):
                name = self.switch(f"{letter}{p * tors + t + 1}", "eps", tier, (p, t), p)
                found[p].append(name)
                for _ in range(gpus):
                    self.cable(next(hosts), name, rate)
        return found

    def planes(self, pods: list[list[str]], planes: int, kind: str, rate: float, cores: int, widest: int) -> None:
        """`planes` slices: one aggregation switch per pod and `cores` core switches, full rate above the rack; 0: no core.

        A core switch takes an equal share of the up-cables of every aggregation switch of its plane, one for each rack.
        """
        tors, share = len(pods[0]), len(pods[0]) // cores if cores else 0
        need = max(2 * tors if cores else tors, len(pods) * share)
        if need > widest:
            raise RFabricError(
                f"a switch would need {need} ports, the limit is {widest}; use fewer pods or racks a pod"
            )
        for (p, racks), j in product(enumerate(pods), range(planes)):
            agg = self.switch(f"a{p * planes + j + 1}", kind, "aggregation", (p, j), p, j)
            for rack in racks:
                self.cable(rack, agg, rate)
        for j, i in product(range(planes), range(cores)):
            core = self.switch(f"c{j * cores + i + 1}", kind, "core", (j, i), -1, j)
            for p, _ in product(range(len(pods)), range(share)):
                self.cable(f"a{p * planes + j + 1}", core, rate)

    def spines(self, leaves: Sequence[str], count: int, rate: float) -> None:
        """`count` packet switches above `leaves`, one cable to each."""
        if len(leaves) > MAX_PORTS:
            raise RFabricError(f"a spine would need {len(leaves)} ports, the limit is {MAX_PORTS}; use larger leaves")
        for j in range(count):
            spine = self.switch(f"c{j + 1}", "eps", "core", (j, 0), -1, j)
            for leaf in leaves:
                self.cable(leaf, spine, rate)


# --- numbers ---------------------------------------------------------------------------------------------------------


def shape(name: str, pods: int, tors: int, gpus: int) -> tuple[int, int, int]:
    """Pods, racks a pod, GPUs a rack, when they are whole numbers that make two GPUs."""
    found = whole("pods", pods, 1), whole("tors", tors, 1), whole("gpus", gpus, 1)
    if math.prod(found) < 2:
        raise RFabricError(f"{name}: {pods} x {tors} x {gpus} is one GPU; a fabric needs two")
    return found


def whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RFabricError(f"{name}={value!r} must be a whole number, {least} or more")
    return value


def number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RFabricError(f"{name}={value!r} must be a number")
    return float(value)


def uplinks(name: str, down: int, oversubscription: float, what: str = "GPUs a ToR") -> tuple[int, float]:
    """How many uplinks `down` cables get at `oversubscription`:1, and the ratio as a float."""
    ratio = number("oversubscription", oversubscription)
    up = down / ratio if ratio else 0
    if ratio < 1 or up < 1 or abs(up - round(up)) > 1e-9:
        near = down / min(max(round(up), 1), down)
        raise RFabricError(
            f"{name}: oversubscription {oversubscription} with {down} {what} gives {up:g} uplinks; "
            f"use a divisor of {down}, from 1 to {down}: the nearest that works is {near:g}"
        )
    return round(up), ratio


def narrow(name: str, what: str, ports: int, way_out: str) -> None:
    """Refuse a packet switch of more ports than are sold."""
    if ports > MAX_PORTS:
        raise RFabricError(f"{name}: {what} would need {ports} ports, the limit is {MAX_PORTS}; {way_out}")


def nearest(value: int, works: Callable[[int], bool], most: int = 8192) -> int | None:
    """The whole number next to `value` that works, the lower of two; None where none does."""
    for step in range(most):
        for found in (value - step, value + step):
            if found >= 1 and works(found):
                return found
    return None


def core_switches(pods: int, tors: int, ocs_ports: int) -> int | None:
    """The fewest core OCSes a plane that join `pods` of `tors` racks in any matching; 0 for one pod, None where none do.

    Several are dealt equal, even shares of every pod's up-cables: see `optics.dealing` for why that is enough.
    """
    if pods == 1:
        return 0 if tors <= ocs_ports else None
    if 2 * tors > ocs_ports:
        return None
    if pods * tors <= ocs_ports:
        return 1
    fits = (c for c in range(2, tors // 2 + 1) if not tors % (2 * c) and pods * tors // c <= ocs_ports)
    return next(fits, None)


def groups(racks: int, ocs_ports: int) -> tuple[int, int] | None:
    """(groups, core OCSes a plane) that join `racks` with OCSes of so many ports: one group where one OCS is enough."""
    if racks <= ocs_ports:
        return 1, 0
    for size in range(ocs_ports // 2, 1, -1):
        if not racks % size and (cores := core_switches(racks // size, size, ocs_ports)):
            return racks // size, cores
    return None


def grouped(name: str, key: str, racks: int, ocs_ports: int) -> tuple[int, int]:
    """`groups`, or an error that names the nearest number of racks that can be joined."""
    found = groups(racks, ocs_ports)
    if found is None:
        near = nearest(racks, lambda n: groups(n, ocs_ports) is not None)
        way_out = f"the nearest that works is {key}={near}" if near else "use a larger ocs_ports"
        raise RFabricError(f"{name}: OCSes of {ocs_ports} ports do not join {key}={racks} evenly; {way_out}")
    return found


# --- sizes -----------------------------------------------------------------------------------------------------------


def sized(room: Callable[[int, int], dict[str, int]]) -> Callable:
    """Give a builder its own sizing: `builder.room(hosts, least)` are the settings that hold so many GPUs."""

    def mark(builder: Callable) -> Callable:
        builder.room = room
        return builder

    return mark


def shape_for(hosts: int, least: int = SMALLEST) -> dict[str, int]:
    """`pods`, `tors`, `gpus` for so many GPUs: 4 x 4 x 4 up to 64; beyond, racks of a server or more, at most 512 racks.

    A rack of 128 GPUs needs a ToR of 256 ports (102.4 Tbit/s switches have them at 400 Gbit/s). `least` is the smallest
    fabric to make; with less than 64, racks of 4 make one as small as the traffic.
    """
    hosts = max(hosts, least, 2)
    if hosts > MOST_RACKS * MOST_GPUS:
        raise RFabricError(
            f"the traffic names GPU h{hosts}; {MOST_RACKS * MOST_GPUS:,} at most get a fabric by themselves: "
            f"state its size, {', '.join(f'{key}=N' for key in SHAPE)}"
        )
    gpus = 4 if hosts <= SMALLEST else 8
    while hosts > gpus * MOST_RACKS:
        gpus *= 2
    racks = -(-hosts // gpus)
    pods = 2 ** (racks.bit_length() // 2)
    return dict(zip(SHAPE, (pods, -(-racks // pods), gpus), strict=True))


def servers_for(hosts: int, least: int = SMALLEST, ports: int = OCS_PORTS) -> dict[str, int]:
    """`servers` of 8 `gpus` that OCSes of so many ports join."""
    servers = max(-(-max(hosts, least) // 8), 2)
    while groups(servers, ports) is None:
        servers += 1
    return {"servers": servers, "gpus": 8}
