"""What a fabric costs to buy (USD) and to run (W): parts counted from its cables, priced by
`prices.csv`.

    NIC              one a host cable; in a server whose NICs are cabled to OCSes, one a cable that
                     leaves the server (one for `nic_ports` of them where a NIC is split)
    electrical port  one a cabled port of a packet switch
    OCS port         one a cabled port of an optical circuit switch; of a patch panel, a patch-panel
                     port
    transceiver      one at each cable end in a NIC or a packet switch, by rate and reach; an OCS
                     passes light and has none; the ports of a split NIC share one, whose fibres
                     part (a DR4 module has four lanes of its own)
    fibre            metres of cable: METRES by tier, or what a cable's own delay says at 5 ns/m
    copper cable     with `copper`: one for two transceivers and the fibre, where a host cable is
                     short enough

    a k-ary Fat-Tree: k^3/4 NICs, 5 k^3/4 electrical ports (five a NIC), 6 k^3/4 transceivers

Counted are the network's parts alone: no GPUs, no racks, no labour. NVLink and PCIe in a server are
no parts of it. Every price has a source in the table. A rate the table lacks is bought at the next
higher one; above the highest it is refused.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple

from ..errors import RFabricError, RunError, meant
from ..files import read_text
from ..units import parse_rate, show_rate
from .builders.parts import CABLE_DELAY, MAX_PORTS
from .model import TIERS, Fabric

TABLE = Path(__file__).with_name("prices.csv")
# of shipped fabrics; one of your own may have ports of its own `optics`
ITEMS = ("nic", "electrical-port", "ocs-port", "patch-panel-port", "transceiver", "copper-cable",
         "fibre-metre")  # fmt: skip
COLUMNS = ("item", "rate_gbps", "usd", "watts", "usd_source", "watts_source")
S_PER_METRE = 5e-9  # light in fibre
# m: what SR, DR, FR, LR and ER optics are specified for (IEEE 802.3)
REACHES = (100, 500, 2000, 10000, 40000)
# m: light through OCSes crosses up to four cables and needs single-mode optics, DR at least
THROUGH_OCS = 500
# passive copper at 100 Gbit/s a lane reaches 2 to 3 m (IEEE 802.3ck; vendors' data sheets)
COPPER_METRES = 3.0
# Cable lengths by the tier of the lower end, lowest first, in m: an assumption. A rack is 2 m high,
# a row of racks some 30 m long, a hall some 100 m (the delay the builders give every cable). Rail
# switches stand at the end of the row, not in the rack.
METRES = {
    "host": 3.0,
    "server": 30.0,
    "edge": 30.0,
    "aggregation": 100.0,
    "core": 100.0,
    "electrical": 100.0,
}
RAIL_METRES = 30.0


class Part(NamedTuple):
    """What is counted: an item of `rate` bit/s; `reach` in m for transceivers, 0 for all else."""

    item: str
    rate: float
    reach: float = 0.0

    def __str__(self) -> str:
        words = [
            self.item,
            show_rate(self.rate) if self.rate else "",
            f"to {self.reach:g} m" if self.reach else "",
        ]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Price:
    """One row of the table: USD and W of one part; None where no source gives them.

    `reach` is inf where it does not matter.
    """

    item: str
    rate: float
    usd: float | None
    watts: float | None
    usd_source: str
    watts_source: str
    reach: float = math.inf


@dataclass(frozen=True)
class Line:
    """One line of a bill: `count` of a part, with the rows of the table that price it."""

    part: Part
    count: float
    price: Price
    power: Price | None

    @property
    def item(self) -> str:
        """What is bought."""
        return self.part.item

    @property
    def rate(self) -> float:
        """Bit/s that the part is bought for."""
        return self.part.rate

    @property
    def usd(self) -> float:
        """US dollars of all pieces."""
        return self.count * self.price.usd

    @property
    def watts(self) -> float | None:
        """Watts of all pieces; None where the table has no figure."""
        return self.count * self.power.watts if self.power else None

    def to_json(self) -> dict:
        count = int(self.count) if self.count == int(self.count) else self.count
        return {
            "part": str(self.part),
            "count": count,
            "unit_usd": self.price.usd,
            "source": self.price.usd_source,
            "unit_watts": self.power.watts if self.power else None,
            "watts_source": self.power.watts_source if self.power else "",
        }


@dataclass(frozen=True)
class Bill:
    """What one fabric costs, line by line."""

    lines: tuple[Line, ...]

    @property
    def usd(self) -> float:
        """US dollars of all lines."""
        return sum(line.usd for line in self.lines)

    @property
    def watts(self) -> float | None:
        """Electrical power of switches and transceivers, without NICs; None where the figure of a
        part is missing.
        """
        watts = [line.watts for line in self.lines if line.item != "nic"]
        return None if None in watts else sum(watts)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the figures used, each once."""
        texts = [line.price.usd_source for line in self.lines]
        texts += [line.power.watts_source for line in self.lines if line.power]
        return tuple(dict.fromkeys(texts))

    def to_json(self) -> dict:
        watts = None if self.watts is None else round(self.watts, 1)
        return {"network_usd": round(self.usd, 2), "network_watts": watts}


@dataclass(frozen=True)
class Flip:
    """The factor on one price at which fabrics `a` and `b` (labels) cost the same; None where no
    factor does that.

    `prices` are the rows of one item that cost the same, such as the OCS port of every rate: they
    change together. Beyond the factor the dearer of the two fabrics is the cheaper.
    """

    prices: tuple[Price, ...]
    a: str
    b: str
    factor: float | None

    @property
    def usd(self) -> float:
        """US dollars of its first price."""
        return self.prices[0].usd

    def __str__(self) -> str:
        rates = sorted({price.rate for price in self.prices if price.rate})
        return " ".join([self.prices[0].item, " or ".join(map(show_rate, rates))]).rstrip()


# --- bills ----------------------------------------------------------------------------------------


def bill(
    fabric: Fabric,
    prices: Iterable[Price] = (),
    *,
    copper: bool = False,
    metres: Mapping[str, float] = METRES,
) -> Bill:
    """The bill of `fabric`, at `prices` (default: the table).

    RFabricError for a rate above the highest priced.
    """
    table = tuple(prices) or price_table()
    counted = parts(fabric, copper=copper, metres=metres)
    return Bill(tuple(_line(table, part, count) for part, count in sorted(counted.items())))


def parts(
    fabric: Fabric, *, copper: bool = False, metres: Mapping[str, float] = METRES
) -> Counter[Part]:
    """How many of each part the fabric is made of; `metres` by tier of a cable's lower end."""
    key = "parts", copper, tuple(sorted(metres.items()))
    if key not in fabric.memo:
        _sold(fabric)
        fabric.memo[key] = _parts(fabric, copper, metres)
    return fabric.memo[key]


def _sold(fabric: Fabric) -> None:
    """Refuse packet switches of more ports than are sold: the ideal switch of a large fabric; an
    imported network has its own. What is inside a server is no network to be priced.
    """
    if servers := fabric.parameters.get("inside_server"):
        what = f"a rack of {servers} servers" if servers > 1 else "a server"
        raise RFabricError(f"{fabric.name} is the inside of {what}, whose price holds it")
    from .cabling import cabling_of

    limit = fabric.parameters.get("radix", MAX_PORTS)
    for node, ports in zip(fabric.nodes, cabling_of(fabric).degree.tolist(), strict=True):
        if node.kind == "eps" and node.tier != "server" and ports > limit:
            raise RFabricError(
                f"{fabric.name}: a packet switch of {ports:,} ports "
                f"such as {node.name} is not sold, the limit is {limit}: it is a bound without "
                "a price"
            )


class _CabledPorts:
    """The ports of a fabric as masks, in the order of `cabling_of(fabric)`; `metres` of the cable
    at each.
    """

    def __init__(self, fabric: Fabric, metres: Mapping[str, float]):
        import numpy as np

        from .cabling import cabling_of

        cabling = cabling_of(fabric)
        kind = np.array([node.kind for node in fabric.nodes])[cabling.node]
        tier = np.array([TIERS.index(node.tier) for node in fabric.nodes])[cabling.node]
        far = np.arange(len(tier)) ^ 1  # the other end of each port's cable
        host, server = tier == TIERS.index("host"), tier == TIERS.index("server")
        self.rate, self.optical, self.nic = cabling.rate, kind == "ocs", host | server
        self.cable = ~(host & server[far] | server & host[far])  # NVLink is none
        self.metres = _lengths(fabric, tier, far, metres)
        self.in_rack = self.cable & (host | host[far]) & (self.metres <= COPPER_METRES)
        reach = np.where(self.optical[far], np.maximum(self.metres, THROUGH_OCS), self.metres)
        self.reach = np.array([0, *REACHES, math.inf])[np.searchsorted([0, *REACHES], reach)]


def _parts(fabric: Fabric, copper: bool, metres: Mapping[str, float]) -> Counter[Part]:
    ends = _CabledPorts(fabric, metres)
    short = ends.in_rack & copper
    split = fabric.parameters.get("nic_ports", 1)
    count: Counter[Part] = Counter()
    for item, which, per in (
        ("nic", ends.cable & ends.nic, split),
        ("electrical-port", ends.cable & ~ends.nic & ~ends.optical, 1),
        (f"{fabric.parameters.get('optics', 'ocs')}-port", ends.optical, 1),
    ):
        count.update(
            {Part(item, rate * per): number // per for rate, number in _by(ends.rate[which])}
        )
    _every_end(fabric, count, int(ends.cable.sum()), split)
    lit = ends.cable & ~ends.optical & ~short
    for which, per in ((lit & ends.nic, split), (lit & ~ends.nic, 1)):
        for rate, _ in _by(ends.rate[which]):
            reaches = _by(ends.reach[which & (ends.rate == rate)])
            count.update(
                {Part("transceiver", rate * per, reach): number // per for reach, number in reaches}
            )
    count.update(
        {Part("copper-cable", rate): number // 2 for rate, number in _by(ends.rate[short])}
    )
    fibre = ends.metres[ends.cable & ~short].sum() / 2  # both ends of a cable have its length
    count[Part("fibre-metre", 0.0)] = round(float(fibre), 6)
    return +count


def _every_end(fabric: Fabric, count: Counter[Part], ends: int, split: int) -> None:
    """RunError where the ports that are priced are not the `ends` of the cables, one by one."""
    ports = sum(number * (split if part.item == "nic" else 1) for part, number in count.items())
    if ports != ends:
        raise RunError(f"{fabric.name}: {ports:,} ports are priced, its cables have {ends:,} ends")


def _by(values) -> list[tuple[float, int]]:
    import numpy as np

    each, counts = np.unique(values, return_counts=True)
    return list(zip(each.tolist(), counts.tolist(), strict=True))


def _lengths(fabric: Fabric, tier, far, metres: Mapping[str, float]):
    """Metres of the cable at every port: a builder's cable by the tier of its lower end, any other
    by its own delay.
    """
    import numpy as np

    from .cabling import cabling_of

    missing = set(TIERS) - set(metres)
    if missing:
        raise RFabricError(
            f"no cable length for {', '.join(sorted(missing))}; there are {', '.join(METRES)}"
        )
    known = dict(metres)
    if fabric.name == "rail-optimized" and known["host"] == METRES["host"]:
        known["host"] = RAIL_METRES
    height = np.array([list(METRES).index(name) for name in TIERS])
    lower = np.where(height[tier] <= height[tier[far]], tier, tier[far])
    delay = cabling_of(fabric).delay
    return np.where(
        delay == CABLE_DELAY, np.array([known[name] for name in TIERS])[lower], delay / S_PER_METRE
    )


def _line(table: tuple[Price, ...], part: Part, count: float) -> Line:
    fits = (
        p for p in table if p.item == part.item and p.rate >= part.rate and p.reach >= part.reach
    )
    enough = sorted(fits, key=lambda p: (p.rate, p.reach))
    price = next((p for p in enough if p.usd is not None), None)
    if price is None:
        highest = max(
            (p.rate for p in table if p.item == part.item and p.usd is not None), default=None
        )
        ends = "has none" if highest is None else f"ends at {show_rate(highest)}"
        raise RFabricError(
            f"no price for a {part.item} of "
            f"{show_rate(part.rate)}{f' and {part.reach:g} m' if part.reach else ''}; the "
            f"table of prices {ends}: add a row to a copy of {TABLE.name}, and name it with "
            "--prices"
        )
    return Line(part, count, price, next((p for p in enough if p.watts is not None), None))


# --- prices ---------------------------------------------------------------------------------------


def with_price(item: str, usd: float) -> tuple[Price, ...]:
    """The table, with this price (USD a piece) of `item` at every rate."""
    return tuple(
        replace(row, usd=usd, usd_source="as asked") if row.item == item else row
        for row in price_table()
    )


@cache
def price_table(path: Path = TABLE) -> tuple[Price, ...]:
    """The rows of a price table; a figure without a source is refused (RFabricError)."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise RFabricError(f"price table {path}: {error}") from error
    lines = [
        (n, line)
        for n, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    rows = csv.DictReader((line + "\n" for _, line in lines), strict=True)
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise RFabricError(
            f"price table {path}: column {missing[0]} is missing; it has "
            f"{', '.join(rows.fieldnames or ())}"
        )
    prices: dict[tuple, Price] = {}
    try:
        for row in rows:
            where = f"{path}, line {lines[rows.line_num - 1][0]}"
            price = _price(row, where)
            key = price.item, price.rate, price.reach
            if prices.setdefault(key, price) is not price:
                raise RFabricError(f"{where}: {price.item} at {row['rate_gbps']} Gbit/s stands "
                                   "twice; keep one")  # fmt: skip
    except csv.Error as error:
        raise RFabricError(f"price table {path}: {error}") from error
    return tuple(prices.values())


def _price(row: dict, where: str) -> Price:
    if any(row.get(None, ())):
        raise RFabricError(f"{where}: more cells than the header has; quote text with commas")
    if hint := _unknown(row["item"] or ""):
        raise RFabricError(f"{where}: no part is called {row['item']!r}{hint}")
    name = f"{where}: price of {row['item']} at {row['rate_gbps']} Gbit/s"
    usd, watts, reach = (_figure(row.get(key), key, name) for key in ("usd", "watts", "reach_m"))
    for figure, value in (("usd", usd), ("watts", watts)):
        if value is not None and not row[f"{figure}_source"]:
            raise RFabricError(f"{name}: {figure} has no source")
    rate = parse_rate(f"{row['rate_gbps']}Gbit/s", row["item"])
    return Price(
        row["item"],
        rate,
        usd,
        watts,
        row["usd_source"] or "",
        row["watts_source"] or "",
        reach or math.inf,
    )


def _unknown(item: str) -> str:
    """What is said of an item that nothing is priced by: which may be meant, or all there are; ''
    for those there are, and for ports of one's own `optics`, unless they are a slip of the finger
    from one of ours.
    """
    plain = re.sub(r"[\s_]+", "-", item.lower())
    own = item.endswith("-port") and not any(_one_slip(plain, known) for known in ITEMS)
    if item in ITEMS or own:
        return ""
    return meant(plain, ITEMS) or f"; there are {', '.join(ITEMS)}, and OPTICS-port"


def _one_slip(a: str, b: str) -> bool:
    """Whether one letter more, less or other at most, or two that changed places, makes `b` of
    `a`.
    """
    same = len(commonprefix((a, b)))
    a, b = a[same:][::-1], b[same:][::-1]
    same = len(commonprefix((a, b)))
    a, b = a[same:], b[same:]
    return max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])


def _figure(text: str | None, key: str, name: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise RFabricError(f"{name}: {key} {text!r} must be a number, 0 or more")
    return value


# --- what follows from bills ----------------------------------------------------------------------


def flips(bills: Mapping[str, Bill]) -> list[Flip]:
    """For each pair of bills (by label) and each price used, the factor at which their order flips;
    the nearest to 1 first.
    """
    every = (flip for a, b in combinations(bills, 2) for flip in _flips(a, b, bills))
    return sorted(every, key=lambda flip: abs(math.log(flip.factor)) if flip.factor else math.inf)


def _flips(a: str, b: str, bills: Mapping[str, Bill]) -> list[Flip]:
    """The total of a bill is a straight line over the factor on one price; two lines cross once or
    never.
    """
    gap = bills[b].usd - bills[a].usd
    crossings = []
    for prices in _alike(bills[a].lines + bills[b].lines):
        slope = _spent(bills[a], prices) - _spent(bills[b], prices)
        factor = 1 + gap / slope if abs(slope) > 1e-9 else 0.0
        crossings.append(Flip(prices, a, b, factor if factor > 0 else None))
    return crossings


def _alike(lines: Iterable[Line]) -> list[tuple[Price, ...]]:
    """The prices of the lines, those of one item and figure together."""
    groups: dict[tuple, dict[Price, None]] = {}
    for price in (line.price for line in lines):
        groups.setdefault((price.item, price.usd), {})[price] = None
    return [tuple(prices) for prices in groups.values()]


def _spent(priced: Bill, prices: Sequence[Price]) -> float:
    return sum(line.usd for line in priced.lines if line.price in prices)
