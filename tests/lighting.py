"""Circuits that tests of fabrics light."""

from collections import Counter

import numpy as np

from rfabric.optics import Circuits, Demand, parse_policy


def lit(fabric):
    """A mesh of the racks, as every run begins."""
    idle = Demand(fabric.racks, np.zeros((len(fabric.racks),) * 2))
    return (
        parse_policy("static", fabric).decide(idle, Circuits(), 0.0) if fabric.ocses else Circuits()
    )


def switches(fabric):
    return Counter(f"{n.kind} {n.tier}" for n in fabric.switches)


def some_matching(region, chance):
    racks = list(region)
    chance.shuffle(racks)
    pairs, left = [], racks
    while left:
        a, *left = left
        b = next((rack for rack in left if region[rack] == region[a]), None)
        if b and chance.random() < 0.8:
            pairs.append((a, b))
            left = [rack for rack in left if rack != b]
    return pairs
