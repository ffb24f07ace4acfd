"""Chakra: collectives along some dimensions of ASTRA-sim's network (`involved_dim`).

involved_dim [1, 0] on a network of 4 x 2: of ranks 0 to 7, {0, 1, 2, 3} and {4, 5, 6, 7}. Ranks
count along the first dimension first. The network stands in a file of its own (`npus_count`).
"""

import re
from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from operator import mul

from ...errors import RFabricError
from .chakra_wire import ChakraNode

DIMENSIONS = re.compile(r"[1-9]\d{0,6}(x[1-9]\d{0,6})*")


def sizes_of(text: str) -> tuple[int, ...]:
    """Ranks along each dimension, of `4x2`; () of nothing. RFabricError for another text."""
    if text and not DIMENSIONS.fullmatch(text):
        raise RFabricError(f"dims {text[:40]!r}: write the ranks along each dimension, such as 4x2")
    return tuple(map(int, text.split("x"))) if text else ()


def along(node: ChakraNode) -> list[bool] | None:
    """Which dimensions a collective is along; None where it is along all, or its group is named."""
    said = node.attrs.get("involved_dim")
    if not isinstance(said, list) or "pg_name" in node.attrs or all(said):
        return None
    return [bool(one) for one in said]


def among(
    rank: int, said: Sequence[bool], sizes: Sequence[int], ranks: int, where: str
) -> list[int]:
    """The ranks that differ from `rank` along these dimensions alone, itself among them; what is
    said of more dimensions than the network has counts for nothing, as in ASTRA-sim.
    RFabricError where the dimensions are not said or do not suit.
    """
    shown = [int(one) for one in said]
    if not sizes:
        raise RFabricError(
            f"{where}: involved_dim {shown} is among some ranks alone, which ASTRA-sim's network "
            "tells and not this file: say its npus_count, such as --set dims=4x2"
        )
    if len(sizes) > len(said) or prod(sizes) != ranks:
        raise RFabricError(
            f"{where}: involved_dim {shown} of {ranks} ranks; dims {'x'.join(map(str, sizes))} "
            f"must be {len(said)} numbers at most whose product is {ranks}"
        )
    strides = accumulate((1, *sizes), mul)
    places = [
        range(0, size * stride, stride) if one else (rank // stride % size * stride,)
        for one, size, stride in zip(said, sizes, strides, strict=False)
    ]
    return sorted(map(sum, product(*places)))
