"""Kineto: how a rank splits an all-to-all among its group.

    "In split size": "[1, 2, 3]", "In msg nelems": 600, "Out split size": "[]", ...

Split sizes count rows of the tensor, of any length, or elements; none are even ones. PyTorch writes
the first 30 alone, and "..." for the others.
"""

import re
from collections.abc import Sequence

from ...errors import RFabricError

SplitParts = tuple[tuple[float, ...], tuple[float, ...]]
UNSPLIT = "all-to-alls whose split sizes are not there or cut short: sent evenly"


def parts_of(args: dict, sizes: Sequence[int], ranks: int, where: str) -> SplitParts | None:
    """Bytes to and from each rank; both empty where all are alike, None where they are not known.

    sizes: bytes that go out and come in, in all. RFabricError for splits that cannot be.
    """
    out, back = (str(args.get(f"{way} split size", "...")) for way in ("In", "Out"))
    if "..." in out + back:
        return None
    if not _numbers(out + back):
        return (), ()
    return _shares(out, sizes[0], ranks, where), _shares(back, sizes[1], ranks, where)


def _shares(text: str, size: int, ranks: int, where: str) -> tuple[float, ...]:
    rows = _numbers(text) or [1] * ranks
    if len(rows) != ranks or min(rows) < 0 or (size and not sum(rows)):
        raise RFabricError(
            f"{where}: split sizes {text[:60]} are none of {ranks} ranks; record it again, or "
            "leave such collectives out with the setting skip=alltoall"
        )
    return tuple(size * n / (sum(rows) or 1) for n in rows)


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"-?\d+", text)]
