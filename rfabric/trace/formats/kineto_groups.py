"""Kineto: the ranks of a group, of which PyTorch writes the first 30 alone.

"Process Group Ranks": "[0, 2, 4, ...]", "Group size": 64        or "[0, 2, ..., 126]"
"""

import re
from itertools import pairwise

CUT = "collectives whose group's ranks are cut short: completed evenly"
UNGROUPED = "collectives of a PyTorch that says no groups: taken as among all ranks"
GUESSED = "collectives whose group's ranks are not said: taken as neighbours of the rank"


def listed(text: str, size: object) -> list[int] | None:
    """The ranks in such a text; one that is cut short is completed where its ranks are evenly
    spaced, and else has those that stand there: None where no size says how many are lacking, and
    where none stands there.
    """
    head, cut, tail = text.partition("...")
    first, last = ([int(n) for n in re.findall(r"\d+", part)] for part in (head, tail))
    steps = {b - a for a, b in pairwise(first)}
    if not cut:
        return first or None
    if len(steps) == 1 and (step := steps.pop()) > 0:
        end = last[-1] if last else first[0] + (size - 1) * step if type(size) is int else -1
        whole = list(range(first[0], end + 1, step))
        if whole and whole[-1:] == [end] and size in (None, len(whole)):
            return whole
    return None if size is None else first + last
