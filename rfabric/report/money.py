"""What of a page depends on the price of an OCS port, made once for each price that can be chosen.

The page shows the part of the chosen price and works nothing out: bills, dollars a step and the
Pareto picture are those of `summary.cost` and `fabric.cost.bill` at that price.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import RFabricError
from ..units import show_thousands, show_time
from . import compare
from .choices import other_jobs
from .page import pictures
from .summary import Run, cost

MOST_PRICES = 12  # on one page: each has its pictures


@dataclass(frozen=True)
class Money:
    """The money of a page at one price. key: '' as listed, else its place among the prices; bars
    and points: records of its pictures, where there are any.
    """

    key: str
    comparison: compare.Table
    bars: dict | None
    points: list[dict] | None
    front: compare.Table
    bills: tuple[compare.Table, ...]


def money(
    runs: Sequence[Run], summary: dict, prices: Sequence[float], bars: bool = True
) -> list[Money]:
    """The money as listed and at each of `prices` (USD); `summary` names the runs."""
    check_prices(prices)
    return [
        _at(runs, summary, "" if usd is None else str(i - 1), usd, bars)
        for i, usd in enumerate([None, *prices])
    ]


def drawn(every: Sequence[Money]) -> dict[str, list]:
    """The records of the pictures of all prices, by kind."""
    return {"bars": [one.bars for one in every], "front": [one.points for one in every]}


def check_prices(prices: Sequence[float]) -> None:
    """RFabricError for more prices than a page holds."""
    if len(prices) > MOST_PRICES:
        raise RFabricError(
            f"--ocs-port-price: {len(prices)} prices are more than the {MOST_PRICES} that a page "
            "holds; name fewer"
        )


def _at(runs: Sequence[Run], summary: dict, key: str, usd: float | None, bars: bool) -> Money:
    told = summary if usd is None else summary_at(runs, summary, usd)
    rows = [row | row["cost"] for row in told["runs"]]
    several = sum(row["network_usd"] is not None for row in rows) > 1
    return Money(
        key,
        compare.comparison(told),
        pictures.bars(runs, usd) if bars else None,
        pictures.front(rows) if several else None,
        front(told),
        tuple(compare.bills(runs, usd)),
    )


def summary_at(runs: Sequence[Run], summary: dict, usd: float) -> dict:
    """The summary of these runs with what they cost where an OCS port costs `usd`."""
    entries = [
        entry | {"cost": cost(run.result, usd)}
        for run, entry in zip(runs, summary["runs"], strict=True)
    ]
    return summary | {"runs": entries}


def front(summary: dict) -> compare.Table:
    """The points of step time against dollars, and which of them are on either front."""
    runs = [run | run["cost"] for run in summary["runs"]]
    rows = [
        (run["label"], *_point(run, [one for one in runs if one["traffic"] == run["traffic"]]))
        for run in runs
    ]
    columns = "fabric", "step", "network", "on its front", "a step", "on its front"
    note = other_jobs(summary).strip()
    return compare.Table.of("", columns, rows, note, words=(0, 3, 5))


def _point(run: dict, runs: Sequence[dict]) -> Iterator[str]:
    yield show_time(run["step_s"])
    for key, shown in (("network_usd", _thousands), ("usd_per_step", "{:,.4f} $".format)):
        value = run.get(key)
        yield "–" if value is None else shown(value)
        priced = [other for other in runs if other.get(key) is not None]
        bound = compare.is_bound(run)
        yield "bound" if bound else "yes" if compare.on_front(run, priced, key) else "no"


def _thousands(usd: float) -> str:
    return f"{show_thousands(usd)} k$"
