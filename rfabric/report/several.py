"""One page of several run folders: controls choose among their runs, each of which was made.

What can be chosen is what differs: fabric, what of one fabric differs (its OCS delay, its size),
circuit policy, scheduler, routing, recipe, what of one recipe differs (the strategy of weight sync),
seed, and the network's price where one fabric has two. A run that has nothing to do with a choice,
such as a Fat-Tree with a circuit policy, is there with any.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import RFabricError
from ..units import show_time
from . import compare
from .folder import read_folder, write_text
from .html import render_clock
from .page import records
from .page.logged import LoggedRun
from .page.logged import table as logged_table
from .summary import Run, setting

MOST_RUNS = 60  # on one page: some 250 kB each
UNSAID = "usual"  # a setting that one of the recipes leaves as it is
Folder = tuple[list[Run], dict]


def read_folders(paths: Sequence[Path]) -> list[Folder]:
    """The run folders at these paths, those of a comparison of many one by one; RFabricError for
    more runs than a page holds.
    """
    places = [place for path in paths for place in _run_folders(path)]
    found = [read_folder(place) for place in places]
    count = sum(len(runs) for runs, _ in found)
    if count > MOST_RUNS:
        raise RFabricError(
            f"{count} runs are more than the {MOST_RUNS} that a page holds; name fewer run folders"
        )
    return found


def _run_folders(path: Path) -> list[Path]:
    if not (path / "grid.json").is_file() or (path / "trace.csv").is_file():
        return [path]
    found = sorted(file.parent for file in (path / "cells").glob("[!.]*/summary.json"))
    if not found:
        raise RFabricError(f"{path} holds no run that is done")
    return found


def summary_of_all(folders: Sequence[Folder], command: str) -> dict:
    """One summary of all folders, each run with a label of its own."""
    runs = [run for some, _ in folders for run in some]
    entries = [entry for _, summary in folders for entry in summary["runs"]]
    told = _labels([e["label"] for e in entries], choices(runs))
    versions: dict[str, str] = {}
    for _, summary in folders:
        versions |= summary["versions"]
    return {
        "version": folders[0][1]["version"],
        "created": max(summary["created"] for _, summary in folders),
        "command": command,
        "versions": versions,
        "runs": [entry | {"label": label} for entry, label in zip(entries, told, strict=True)],
    }


def write_several(
    path: Path, folders: Sequence[Folder], summary: dict, logged: LoggedRun | None = None
) -> None:
    """Write the page of these folders and of `summary_of_all` to `path`."""
    runs = [run for some, _ in folders for run in some]
    names = list(dict.fromkeys(run.result.fabric.name for run in runs))
    traffics = dict.fromkeys(run.result.traffic or "trace" for run in runs)
    title = f"{' and '.join(traffics)} on {' and '.join(names)}"
    clock = records.document_of_several([some for some, _ in folders], summary, title, logged)
    clock["choices"] = _menus(choices(runs))
    text = render_clock(
        "several.html",
        clock,
        summary,
        yours=logged_table(clock["yours"], [e["label"] for e in summary["runs"]])
        if logged
        else None,
        comparison=compare.comparison(summary),
        fidelity=compare.fidelity(summary),
        made=list(dict.fromkeys(one["command"] for _, one in folders)),
    )
    write_text(path, text)


# --- what can be chosen -----------------------------------------------------------------------


def choices(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Of each run its value of everything that differs; None where it has none."""
    fabrics = [_fabric(run) for run in runs]
    recipes = [dict(_flat(run.result.trace.provenance.get("settings") or {})) for run in runs]
    specs = [run.result.fabric.spec for run in runs]
    parts = (
        [{"recipe": run.result.traffic} for run in runs],
        _within([run.result.traffic for run in runs], recipes),
        [{"fabric": run.result.fabric.name} for run in runs],
        _within([run.result.fabric.name for run in runs], fabrics),
        _within(specs, [{"network's price": _price(run)} for run in runs]),
        [_settings(run) for run in runs],
    )
    every = [_joined(some) for some in zip(*parts, strict=True)]
    names = dict.fromkeys(name for one in every for name in one)
    differ = [n for n in names if len({repr(v) for v in _given(one.get(n) for one in every)}) > 1]
    return [{name: one.get(name) for name in differ} for one in every]


def _joined(parts: Iterable[Mapping]) -> dict[str, object]:
    return {name: value for part in parts for name, value in part.items()}


def _given(values: Iterable) -> list:
    return [value for value in values if value is not None]


def _settings(run: Run) -> dict[str, object]:
    result = run.result
    return {
        "policy": result.policy if result.fabric.ocses else None,
        "scheduler": result.trace.provenance.get("scheduler") or None,
        "routing": result.routing or None,
        "seed": result.seed,
    }


def _fabric(run: Run) -> dict[str, object]:
    """Its parameters, as one reads them."""
    fabric = run.result.fabric
    found = {k.rsplit("_", 1)[0]: setting(k, v) for k, v in fabric.parameters.items()}
    found.pop("delay", None)
    delay = show_time(fabric.reconfig_delay) if fabric.ocses else None
    return {k: text.partition("=")[2] for k, text in found.items()} | {"OCS delay": delay}


def _price(run: Run) -> str | None:
    from .summary import cost

    usd = cost(run.result).get("network_usd")
    return None if usd is None else f"{usd / 1e3:,.0f} k$"


def _flat(settings: Mapping, before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        name = f"{before} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name, str(value)


def _within(groups: Sequence[str], every: Sequence[Mapping]) -> list[dict[str, object]]:
    """What differs between those of one group; the others have nothing of it."""
    found: list[dict[str, object]] = [{} for _ in every]
    for group in dict.fromkeys(groups):
        mine = [i for i, name in enumerate(groups) if name == group]
        for key in dict.fromkeys(key for i in mine for key in every[i]):
            values = [every[i].get(key, UNSAID) for i in mine]
            if len(set(values)) > 1:
                for i, value in zip(mine, values, strict=True):
                    found[i][key] = value
    return found


def _menus(every: Sequence[Mapping]) -> list[dict]:
    """Of each choice its values as texts, and which of them each run has (-1: any)."""
    menus = []
    for name in every[0]:
        values = list(dict.fromkeys(str(v) for v in _given(one[name] for one in every)))
        of = [-1 if one[name] is None else values.index(str(one[name])) for one in every]
        menus.append({"name": name, "values": values, "of": of})
    return menus


def _labels(known: Sequence[str], every: Sequence[Mapping]) -> list[str]:
    """Labels of several folders: those that come twice say what was chosen, or their number."""
    said = [name for name in every[0] if name not in ("fabric", "policy")]
    often = Counter(known)
    found = [
        ", ".join([label, *(f"{n} {one[n]}" for n in said if one[n] is not None)])
        if often[label] > 1
        else label
        for label, one in zip(known, every, strict=True)
    ]
    return [
        f"{label} ({found[:i].count(label) + 1})" if found.count(label) > 1 else label
        for i, label in enumerate(found)
    ]
