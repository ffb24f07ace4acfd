"""What can be chosen among runs that were made: whatever differs between them.

Fabric, what of one fabric differs (its OCS delay, its size), circuit policy, scheduler, routing,
recipe, what of one recipe differs (the strategy of weight sync), seed, and the network's price
where one fabric has two. A run that has nothing to do with a choice, such as a Fat-Tree with a
circuit policy, is there with any.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..specs import read_spec
from ..units import show_time
from .summary import Run, cost, setting

UNSAID = "usual"  # a setting that one of the recipes or fabrics leaves as it is
OCS_DELAY = "OCS delay"
PageChoice = dict[str, object]


def choices(runs: Sequence[Run]) -> list[PageChoice]:
    """Of each run its value of everything that differs; None where it has none."""
    fabrics = [_fabric(run) for run in runs]
    recipes = [dict(_flat(run.result.trace.provenance.get("settings") or {})) for run in runs]
    specs = [run.result.fabric.spec for run in runs]
    parts = (
        [{"fabric": run.result.fabric.name} for run in runs],
        [_settings(run) for run in runs],
        _within([run.result.fabric.name for run in runs], fabrics),
        _within(specs, [{"network's price": _price(run)} for run in runs]),
        [{"recipe": run.result.traffic} for run in runs],
        _within([run.result.traffic for run in runs], recipes),
    )
    return _differing(parts)


def jobs_differ_in(runs: Sequence[Run]) -> list[str]:
    """What of the jobs themselves is not the same for all runs: settings of one recipe, the seed.
    Whether that makes their steps those of other jobs, who chose it knows.
    """
    recipes = [dict(_flat(run.result.trace.provenance.get("settings") or {})) for run in runs]
    named = [run.result.traffic for run in runs]
    differing = _differing((_within(named, recipes), [{"seed": run.result.seed} for run in runs]))
    return list(dict.fromkeys(name for one in differing for name in one))


def other_jobs(summary: dict) -> str:
    """What a reader of runs that differ in their jobs must know; empty where they do not."""
    differ = ", ".join(summary.get("jobs_differ_in", ()))
    return differ and f" Jobs differ in {differ}: where that is other work, no run is the better."


def choices_of_cells(rows: Sequence[Mapping]) -> list[PageChoice]:
    """As `choices`, of the rows of a store: in the words that they were asked in."""
    specs = [read_spec(row["fabric"]) for row in rows]
    settings = [dict(_words(row.get("settings") or "")) for row in rows]
    fabrics = [
        {OCS_DELAY if key == "delay" else key: text for key, text in spec.settings.items()}
        for spec in specs
    ]
    parts = (
        [{"fabric": spec.head} for spec in specs],
        [_words_of_cell(row) for row in rows],
        _within([spec.head for spec in specs], fabrics),
        _within([row["fabric"] for row in rows], [_price_of_cell(row) for row in rows]),
        [{"recipe": row["traffic"]} for row in rows],
        _within([row["traffic"] for row in rows], settings),
        _within([row["traffic"] for row in rows], [_files(row, "job_files") for row in rows]),
        _within([row["fabric"] for row in rows], [_files(row, "network_files") for row in rows]),
    )
    return _differing(parts)


def _files(row: Mapping, kind: str) -> PageChoice:
    """Which contents of the files that its words name, where a store holds cells of several."""
    return {kind.replace("_", " "): row.get(kind) or UNSAID}


def _words(settings: str) -> Iterator[tuple[str, str]]:
    for word in shlex.split(settings):
        key, _, value = word.partition("=")
        yield key.replace(".", " ").replace("_", " "), value


def _words_of_cell(row: Mapping) -> PageChoice:
    optical = row["policy"] != "ecmp"
    return {
        "policy": row["policy"] if optical else None,
        "scheduler": row["scheduler"] or None,
        "routing": row["routing"] or None,
        "transport": row.get("transport") or None,
        "seed": row["seed"],
    }


def _price_of_cell(row: Mapping) -> PageChoice:
    usd = row.get("network_usd")
    return {"network's price": UNSAID if usd is None else f"{usd / 1e3:,.0f} k$"}


def _differing(parts: Iterable[Sequence[Mapping]]) -> list[PageChoice]:
    """What is not the same for all that have it."""
    every = [_joined(some) for some in zip(*parts, strict=True)]
    names = dict.fromkeys(name for one in every for name in one)
    differ = [n for n in names if len({repr(v) for v in _given(one.get(n) for one in every)}) > 1]
    return [{name: one.get(name) for name in differ} for one in every]


def _joined(parts: Iterable[Mapping]) -> PageChoice:
    return {name: value for part in parts for name, value in part.items()}


def _given(values: Iterable) -> list:
    return [value for value in values if value is not None]


def _settings(run: Run) -> PageChoice:
    result = run.result
    return {
        "policy": result.policy if result.fabric.ocses else None,
        "scheduler": result.trace.provenance.get("scheduler") or None,
        "routing": result.routing or None,
        "transport": result.transport,
        "seed": result.seed,
    }


def _fabric(run: Run) -> PageChoice:
    """Its parameters, as one reads them."""
    fabric = run.result.fabric
    settings = {k.rsplit("_", 1)[0]: setting(k, v) for k, v in fabric.parameters.items()}
    settings.pop("delay", None)
    delay = show_time(fabric.reconfig_delay) if fabric.ocses else None
    return {k: text.partition("=")[2] for k, text in settings.items()} | {OCS_DELAY: delay}


def _price(run: Run) -> str | None:
    usd = cost(run.result).get("network_usd")
    return None if usd is None else f"{usd / 1e3:,.0f} k$"


def _flat(settings: Mapping, before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        name = f"{before} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name, str(value)


def _within(groups: Sequence[str], every: Sequence[Mapping]) -> list[PageChoice]:
    """What differs between those of one group; the others have nothing of it."""
    differing: list[PageChoice] = [{} for _ in every]
    for group in dict.fromkeys(groups):
        mine = [i for i, name in enumerate(groups) if name == group]
        for key in dict.fromkeys(key for i in mine for key in every[i]):
            values = [every[i].get(key, UNSAID) for i in mine]
            if len(set(values)) > 1:
                for i, value in zip(mine, values, strict=True):
                    differing[i][key] = value
    return differing


def menus(every: Sequence[Mapping]) -> list[dict]:
    """Of each choice its values as texts, and which of them each run has (-1: any)."""
    menus = []
    for name in every[0]:
        values = list(dict.fromkeys(str(v) for v in _given(one[name] for one in every)))
        of = [-1 if one[name] is None else values.index(str(one[name])) for one in every]
        menus.append({"name": name, "values": values, "of": of})
    return menus
