"""Rows of a Chakra graph as they are read, and the Trace they become."""

import json

from ...errors import RFabricError
from ...routing.rows import offsets_of
from ..model import PhaseKey, Trace

OURS = "rfabric"  # our own attribute: what a row says beyond Chakra's words


class Rows:
    """Columns that grow; `waits`: of each row, references that are resolved at the end."""

    def __init__(self) -> None:
        self.columns: dict[str, list] = {c: [] for c in ("src", "dst", "size", "gap", "said")}
        self.waits: list[list] = []

    def add(self, src, dst, size, waits, label, gap=0.0, said=None) -> int:
        """The number of a new row; `said`: what our own attribute says of it."""
        said = said or {"phase": "workload", "label": label}
        for column, value in zip(self.columns.values(), (src, dst, size, gap, said), strict=True):
            column.append(value)
        self.waits.append(waits)
        return len(self.waits) - 1


def trace_of_rows(rows: Rows, done: dict[tuple[int, int], list], ours: str | None) -> Trace:
    """The trace of all rows; done: what references stand for, `ours`: what our attribute says of
    the whole. RFabricError where there is none.
    """
    columns, facts = rows.columns, _our_facts(rows, ours)
    waits = [_resolved(done, refs) for refs in rows.waits]
    order = list(range(len(waits)))
    if facts:
        order.sort(key=lambda row: columns["said"][row]["row"])
    place = {row: i for i, row in enumerate(order)}
    after = [[place[row] for row in waits[own]] for own in order]
    said = [columns["said"][row] for row in order]
    names = {key: dict.fromkeys(facts.get(f"{key}s", ())) for key in ("phase", "label")}
    for key, seen in names.items():
        seen.update(dict.fromkeys(one[key] for one in said))
    codes = {key: {name: i for i, name in enumerate(seen)} for key, seen in names.items()}
    most = max(max(columns["src"], default=0), max(columns["dst"], default=0)) + 1
    if not said:
        raise RFabricError("holds no node that computes or sends")
    return Trace(
        tuple(facts.get("hosts", (f"h{i + 1}" for i in range(most)))),
        *([columns[key][row] for row in order] for key in ("src", "dst", "size")),
        [one.get("start", 0.0) for one in said],
        [columns["gap"][row] for row in order],
        offsets_of(list(map(len, after))),
        [row for rows in after for row in rows],
        [one.get("step", 0) for one in said],
        *([codes[key][one[key]] for one in said] for key in ("phase", "label")),
        *(tuple(names[key]) for key in ("phase", "label")),
        {PhaseKey.of(key): value for key, value in facts.get("windows", {}).items()},
        facts.get("provenance", {}),
        paces={PhaseKey.of(key): value for key, value in facts.get("paces", {}).items()},
    )


def _our_facts(rows: Rows, ours: str | None) -> dict:
    if ours is None or any("row" not in one for one in rows.columns["said"]):
        return {}
    return json.loads(ours)


def _resolved(done: dict, refs: list) -> list[int]:
    """Rows that references stand for, each once, in their order."""
    rows: dict[int, None] = {}
    waiting = list(reversed(refs))
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += reversed(done[one])
        else:
            rows[one] = None
    return list(rows)
