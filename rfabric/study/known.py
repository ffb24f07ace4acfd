"""What there is to choose from, from the very tables that the choice is made by."""

from collections.abc import Callable, Mapping

from ..fabric import BUILDERS, fabric_names
from ..fabric.shipped import builder_of
from ..optics.policies import ABOUT
from ..routing.schemes import SCHEMES, SEVERAL
from ..schedulers.table import SCHEDULERS
from ..schedulers.weave import POLICIES


def known() -> dict[str, dict[str, str]]:
    """By kind (fabric, policy, scheduler, ...) every name, with what it is in one line."""
    return {
        "fabric": _documented({name: builder_of(name) for name in _ours_first()}),
        "policy": dict(ABOUT),
        "scheduler": _documented(SCHEDULERS),
        "scheduler of several jobs": _documented(POLICIES),
        "routing": SCHEMES | SEVERAL,
    }


def _ours_first() -> tuple[str, ...]:
    return (*BUILDERS, *(name for name in fabric_names() if name not in BUILDERS))


def _documented(table: Mapping[str, Callable]) -> dict[str, str]:
    """The first line of each docstring."""
    return {name: (made.__doc__ or "").strip().partition("\n")[0] for name, made in table.items()}
