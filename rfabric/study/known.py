"""What there is to choose from: a line for each name of the tables that parse the command line."""

import inspect
from collections.abc import Callable, Iterable
from itertools import takewhile

from ..compute.gpus import GPUS
from ..compute.named import load_model
from ..errors import RFabricError, meant
from ..fabric import fabric_names
from ..fabric.formats import TOPOLOGIES
from ..fabric.shipped import builder_of
from ..folders import data_dir
from ..optics.policies import ABOUT
from ..rl import recipe_names
from ..routing import schemes
from ..schedulers import weave
from ..schedulers.table import SCHEDULERS
from ..trace.formats import FORMATS
from .step_log import LOGS

Known = dict[str, dict[str, str]]


def known(kinds: Iterable[str] = ()) -> Known:
    """kind -> name -> what it is, in a line; of all kinds where none is named. RFabricError for a
    kind that there is not.
    """
    asked = list(kinds) or list(KINDS)
    for kind in asked:
        if kind not in KINDS:
            raise RFabricError(
                f"no kind {kind!r}{meant(kind, KINDS)}; there are {', '.join(KINDS)}"
            )
    return {kind: KINDS[kind]() for kind in asked}


def _first_words(described: object) -> str:
    """The first paragraph of a docstring, as a line."""
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())


def _fabrics() -> dict[str, str]:
    return {name: _first_words(builder_of(name)) for name in fabric_names()}


def _policies() -> dict[str, str]:
    return dict(ABOUT)


def _schedulers() -> dict[str, str]:
    one = {name: _first_words(scheduler) for name, scheduler in SCHEDULERS.items()}
    return one | {
        name: f"Several jobs that share nodes: {_first_words(p)}"
        for name, p in weave.POLICIES.items()
    }


def _routing() -> dict[str, str]:
    return schemes.SCHEMES | schemes.SEVERAL


def _recipes() -> dict[str, str]:
    return {name: _comment(data_dir("traffic") / f"{name}.yaml") for name in recipe_names()} | {
        path.stem: _comment(path) for path in sorted((data_dir("traffic") / "jobs").glob("*.yaml"))
    }


def _comment(path) -> str:
    """The first paragraph of a file's comment, which says what it is, as a line."""
    with open(path, encoding="utf-8") as file:
        lines = takewhile(lambda line: line.startswith("# "), file)
        return " ".join(line[2:].strip() for line in lines)


def _models() -> dict[str, str]:
    names = sorted(path.stem for path in (data_dir("traffic") / "models").glob("*.json"))
    return {name: _sizes(name) for name in names}


def _sizes(name: str) -> str:
    model = load_model(name)
    return (
        f"{model.parameters / 1e9:,.1f} B parameters, {model.active_parameters / 1e9:,.1f} B active"
    )


def _gpus() -> dict[str, str]:
    return {
        g.name: f"{g.hbm_bytes / 1e9:,.0f} GB, {g.bf16_flops / 1e12:,.0f} TFLOP/s in bf16"
        for g in GPUS.values()
    }


def _formats() -> dict[str, str]:
    traces = {f.name: f"{' '.join(f.suffixes)}: {f.about}" for f in FORMATS.values()}
    return traces | {
        f.name: f"{' '.join(f.suffixes)}: topology, {f.about}" for f in TOPOLOGIES.values()
    } | {name: f"log of steps, {what}" for name, what in LOGS.items()}  # fmt: skip


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "fabrics": _fabrics, "policies": _policies, "schedulers": _schedulers, "routing": _routing,
    "recipes": _recipes, "models": _models, "gpus": _gpus, "formats": _formats,
}  # fmt: skip
