"""Fabrics of a few racks, and what is asked for and lit there, by the numbers of racks."""

import numpy as np
from hypothesis import strategies as st

from rfabric.fabric import rfabric
from rfabric.optics import Demand, light, planes

FOUR = rfabric(pods=1, tors=4, gpus=1, planes=2)  # racks t1 to t4, two uplinks each, a thin cable
LONELY = rfabric(pods=1, tors=4, gpus=1, planes=2, electrical=0)
TWO_PODS = rfabric(pods=2, tors=3, gpus=2, planes=3)
RATE = 4e11
THIN = 1e11


def asks(fabric, *entries, **kind):
    """A demand of (rack, rack, bytes), racks by number from 0."""
    sent = np.zeros((len(fabric.racks),) * 2)
    for a, b, size in entries:
        sent[a, b] += size
    return Demand(fabric.racks, sent, **kind)


def lit(fabric, *matchings):
    """Circuits plane by plane, pairs of racks by number from 0."""
    named = [[(fabric.racks[a], fabric.racks[b]) for a, b in pairs] for pairs in matchings]
    return light(fabric, dict(enumerate(named)))


def mates_of(fabric, matchings):
    """Who each rack is joined to, by number, where pairs of names are joined plane by plane."""
    mates = np.full((len(matchings), len(fabric.racks)), -1)
    for row, pairs in zip(mates, matchings, strict=True):
        for a, b in pairs:
            i, j = fabric.rack_index[a], fabric.rack_index[b]
            row[i], row[j] = j, i
    return mates


def pairs_of(fabric, mates):
    """The pairs of names that are joined, plane by plane: the inverse of `mates_of`."""
    return [
        [(fabric.racks[a], fabric.racks[b]) for a, b in enumerate(row) if a < b]
        for row in mates.tolist()
    ]


def matchings_of(fabric):
    """Any matchings of the racks of a fabric, one a plane."""
    racks = st.permutations(range(len(fabric.racks)))
    pairs = st.builds(
        lambda order, n: [tuple(order[2 * i : 2 * i + 2]) for i in range(n)],
        racks,
        st.integers(0, len(fabric.racks) // 2),
    )
    return st.lists(pairs, min_size=len(planes(fabric)), max_size=len(planes(fabric)))


CIRCUITS = matchings_of(TWO_PODS).map(lambda some: lit(TWO_PODS, *some))


class Fixed:
    """A policy whose answer is given: circuits by how many demands are asked for together."""

    name = "fixed"

    def __init__(self, *answers):
        self.answers = list(answers)

    def decide(self, demand, circuits, now, upcoming=()):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
