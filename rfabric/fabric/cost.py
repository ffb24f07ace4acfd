"""What a fabric costs to buy (USD) and to run (W): parts counted from its cables, priced by `prices.csv`.

    NIC               one a host port
    electrical port   one a cabled port of a packet switch
    OCS port          one a cabled port of an optical circuit switch
    transceiver       one at each cable end in a NIC or a packet switch; an OCS passes light and has none

Counted are the network's parts alone: no GPUs, no fibre (below 1 % of the sum), no racks, no labour. Every price has a
source in the table. A rate the table lacks is bought at the next higher one; above the highest it is refused.
"""

import csv
import inspect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..errors import RFabricError
from ..units import parse_rate, show_rate
from .builders import fat_tree
from .model import KINDS, Fabric

TABLE = Path(__file__).with_name("prices.csv")


@dataclass(frozen=True)
class Price:
    """One row of the table: USD and W of one part; None where no source was found."""

    item: str
    rate: float
    usd: float | None
    watts: float | None
    usd_source: str
    watts_source: str


@dataclass(frozen=True)
class Line:
    """One line of a bill: `count` parts of `rate` bit/s, with the rows of the table that price them."""

    item: str
    rate: float
    count: int
    price: Price
    power: Price | None

    @property
    def usd(self) -> float:
        return self.count * self.price.usd

    @property
    def watts(self) -> float | None:
        """None where the table has no figure."""
        return self.count * self.power.watts if self.power else None


@dataclass(frozen=True)
class Bill:
    """What one fabric costs, line by line."""

    lines: tuple[Line, ...]

    @property
    def usd(self) -> float:
        return sum(line.usd for line in self.lines)

    @property
    def watts(self) -> float | None:
        """Electrical power of switches and transceivers, without NICs; None where the figure of a part is missing."""
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


def bill(fabric: Fabric, prices: Iterable[Price] = ()) -> Bill:
    """The bill of `fabric`, at `prices` (default: the table). RFabricError for a rate above the highest priced."""
    table = tuple(prices) or price_table()
    return Bill(tuple(_line(table, *part, count) for part, count in sorted(parts(fabric).items())))


def parts(fabric: Fabric) -> Counter:
    """How many of each (item, rate in bit/s) the fabric is made of."""
    if "parts" not in fabric.memo:
        fabric.memo["parts"] = _parts(fabric)
    return fabric.memo["parts"]


def _parts(fabric: Fabric) -> Counter:
    import numpy as np

    count: Counter = Counter()
    kind = np.array([KINDS.index(node.kind) for node in fabric.nodes])[fabric.cabling.node]  # of each port's owner
    for rate in np.unique(fabric.cabling.rate).tolist():
        ports = np.bincount(kind[fabric.cabling.rate == rate], minlength=len(KINDS)).tolist()
        for number, name in zip(ports, KINDS, strict=True):
            count[{"host": "nic", "eps": "electrical-port", "ocs": "ocs-port"}[name], rate] += number
            count["transceiver", rate] += number if name != "ocs" else 0
    return +count


@cache
def price_table(path: Path = TABLE) -> tuple[Price, ...]:
    """The rows of a price table; a figure without a source is refused."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return tuple(_price(row) for row in rows)


def equal_cost_fat_tree(fabric: Fabric) -> tuple[Fabric, float]:
    """The Fat-Tree of the same shape whose cost comes nearest to `fabric`'s, and its cost relative to it.

    Candidates are the oversubscription ratios that leave each ToR a whole number of uplinks.
    """
    given = fabric.parameters
    missing = [key for key in ("pods", "tors", "gpus", "rate_bps") if key not in given]
    if missing:
        raise RFabricError(
            f"{fabric.name}: without {', '.join(missing)} no Fat-Tree can be fitted; name one with --topo"
        )
    target = bill(fabric).usd
    ratios = [given["gpus"] / uplinks for uplinks in range(1, given["gpus"] + 1)]
    shape = {key: given[key] for key in ("pods", "tors", "gpus")}
    trees = [_tree(shape, ratio, given["rate_bps"]) for ratio in ratios]
    best = min(trees, key=lambda tree: abs(bill(tree).usd - target))
    return best, bill(best).usd / target


def _tree(shape: dict, ratio: float, rate: float) -> Fabric:
    settings = shape | {"oversubscription": int(ratio) if ratio == int(ratio) else ratio, "rate": rate}
    usual = {key: p.default for key, p in inspect.signature(fat_tree).parameters.items()}
    usual["rate"] = parse_rate(usual["rate"])
    told = [f"{key}={value}" for key, value in settings.items() if value != usual[key]]
    return replace(fat_tree(**settings), spec=",".join(["fat-tree", *told]))


def _line(table: tuple[Price, ...], item: str, rate: float, count: int) -> Line:
    enough = sorted((p for p in table if p.item == item and p.rate >= rate), key=lambda p: p.rate)
    price = next((p for p in enough if p.usd is not None), None)
    if price is None:
        highest = max((p.rate for p in table if p.item == item), default=0.0)
        raise RFabricError(
            f"no price for a {item} of {show_rate(rate)}; the table {TABLE.name} ends at {show_rate(highest)}"
        )
    return Line(item, rate, count, price, next((p for p in enough if p.watts is not None), None))


def _price(row: dict) -> Price:
    for figure in ("usd", "watts"):
        if row[figure] and not row[f"{figure}_source"]:
            raise RFabricError(f"price of {row['item']} at {row['rate_gbps']} Gbit/s: {figure} has no source")
    usd, watts = (float(row[figure]) if row[figure] else None for figure in ("usd", "watts"))
    rate = parse_rate(f"{row['rate_gbps']}Gbit/s", row["item"])
    return Price(row["item"], rate, usd, watts, row["usd_source"], row["watts_source"])
