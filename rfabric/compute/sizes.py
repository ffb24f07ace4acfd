"""The sizes that a model's name states."""

import re
from dataclasses import dataclass

SLACK = 0.1  # parameters of an approximation, from those that a name states
# Of each expert of an NxM model beyond the first; attention is theirs together. Two experts work on
# a token: Mixtral 8x7B has 46.7 billion parameters, 12.9 of them active; 8x22B 141 and 39.
_SHARED = 0.81


@dataclass(frozen=True)
class Sizes:
    """Parameters, all and those a token passes, as a name states them; `family` its letters."""

    total: float
    active: float
    family: str


def stated_sizes(name: str) -> Sizes | None:
    """The sizes in a model's name; None where it states none.

    >>> stated_sizes("Qwen/Qwen3.5-122B-A10B")
    Sizes(total=122000000000.0, active=10000000000.0, family='qwen')
    """
    last = re.split(r"[/:]", name.rstrip("/"))[-1].lower()
    total = re.search(r"(?<![a-z\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bt])(?![a-z]*\d*b)", last) or (
        re.search(r"(?<![a\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bt])", last)
    )
    if total is None:
        return None
    active = re.search(r"(?<![a-z])a(\d+(?:\.\d+)?)b|(?<=b)a(\d+(?:\.\d+)?)b", last)
    each, experts = float(total[2]) * (1e12 if total[3] == "t" else 1e9), int(total[1] or 1)
    count = each * (_SHARED * (experts - 1) + 1)
    dense = count if experts == 1 else each * (_SHARED + 1)
    passes = float(active[1] or active[2]) * 1e9 if active else dense
    family = re.match(r"[a-z]*", re.sub(r"^[^a-z]*", "", last))
    return Sizes(count, passes, family[0] if family else "") if count > 0 else None
