"""MixNet (SIGCOMM 2025): its cost efficiency over Fat-Tree and rail-optimized, from the same
prices, counted part by part.

The paper's prices are those of `fabric/prices.csv` (its cost calculator). Its electrical side is
counted as in its Fat-Tree: three tiers, five switch ports a NIC; 6 of a server's 8 NICs are
optical. Performance is taken as equal to the non-blocking Fat-Tree's, as the paper reports it: cost
efficiency is then the ratio of costs. The published ratios are ranges over the paper's models and
sizes; one inside its range is met.
"""

from collections.abc import Iterator

from ...fabric import Fabric, parse_fabric
from ...fabric.cost import bill
from . import QUOTED, PaperRow, PartBegun

GPUS = 1024
PUBLISHED = {"100Gbit/s": (1.2, 1.5), "400Gbit/s": (1.9, 2.3)}  # over Fat-Tree, by link rate
COUNTS = {
    "6 of 8 NICs optical, three tiers, as the paper": "optical=6,tiers=3",
    "4 of 8 NICs optical, three tiers": "optical=4,tiers=3",
    "6 of 8 NICs optical, two tiers, which are enough here": "optical=6",
}
WHY = {
    "optical=6,tiers=3": (
        "parts at the calculator's prices, NICs, transceivers and fibre among them"
    ),
    "optical=4,tiers=3": "more on the packet switches: this builder's usual half",
    "optical=6": "dearer tiers are left out on one side alone: the Fat-Tree keeps its three",
}


def rows(seed: int = 0, progress: PartBegun = lambda _: None) -> list[PaperRow]:
    """The paper's ratios beside ours; nothing is drawn at random."""
    return [row for part in (_ratios, _ports) for row in part(progress)]


def _ratios(progress: PartBegun) -> Iterator[PaperRow]:
    for rate, published in PUBLISHED.items():
        progress(rate)
        whole = _usd(f"fat-tree,rate={rate}")
        for name, settings in COUNTS.items():
            paper = published if settings == "optical=6,tiers=3" else None
            ours = whole / _usd(f"mixnet,{settings},rate={rate}")
            yield PaperRow(
                f"{GPUS:,} GPUs, {rate}, {name}: Fat-Tree's cost over MixNet's",
                paper,
                ours,
                "x",
                WHY[settings],
                QUOTED,
            )


def _ports(progress: PartBegun) -> Iterator[PaperRow]:
    """Switch ports a NIC on the packet-switched side: the five of a three-tier Fat-Tree."""
    progress("ports")
    fabric = _fabric("mixnet,optical=6,tiers=3")
    nics = fabric.parameters["servers"] * (fabric.parameters["gpus"] - fabric.parameters["optical"])
    ports = sum(line.count for line in bill(fabric).lines if line.item == "electrical-port")
    yield PaperRow(
        "switch ports a NIC, electrical side",
        5.0,
        ports / nics,
        "ports",
        "k-ary Fat-Tree: 5/4 k^3 ports, k^3/4 NICs",
        QUOTED,
    )


def _usd(spec: str) -> float:
    return bill(_fabric(spec)).usd


def _fabric(spec: str) -> Fabric:
    return parse_fabric(spec, GPUS)
