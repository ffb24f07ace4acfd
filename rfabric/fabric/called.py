"""Hosts by the names that the file of a network gives them, which the Fabric calls h1, h2, ..."""

from collections.abc import Mapping, Sequence

from ..errors import RFabricError, meant, some
from .model import Fabric
from .roles import OURS


def hosts_called(
    fabric: Fabric, names: Sequence[str], told: Mapping[str, str] = {}
) -> tuple[str, ...]:
    """The hosts of `fabric` that a trace calls by these names: all as the fabric does, or else all
    as its file does. told: what those are truly called, such as addresses of a capture; they are
    found by this where the file has any of it. RFabricError for a name that neither has.
    """
    own = _by_own_name(fabric)
    truly = [told.get(name, name) for name in names]
    by_own = bool(told) and not own.keys().isdisjoint(truly)
    if not by_own and all(name in fabric.host_index for name in names):
        return tuple(names)
    missing = [name for name in truly if name not in own]
    if not missing:
        return tuple(own[name] for name in truly)
    if not by_own and own.keys().isdisjoint(names):
        missing = [name for name in names if name not in fabric.host_index]
    raise RFabricError(_lacking(fabric, missing, own, by_own))


def _by_own_name(fabric: Fabric) -> dict[str, str]:
    """Hosts by the names of their file, where the fabric is of one."""
    names = fabric.parameters.get("names")
    told = names.items() if isinstance(names, dict) else ()
    return {str(old): new for new, old in told if new in fabric.host_index}


def _lacking(fabric: Fabric, missing: Sequence[str], own: dict[str, str], told: bool) -> str:
    """That the trace names others; `told`: by addresses, which nobody chose."""
    first, where = missing[0], fabric.spec or fabric.name
    has = f"{len(fabric.hosts)} hosts, {fabric.hosts[0]} to {fabric.hosts[-1]}"
    lacks = f"the trace names {len(missing)} hosts that {where} lacks, first {first}"
    if not own:
        return (
            f"{lacks}; the fabric has {has}; give one that has them (`rfabric list fabrics` says "
            "how large each can be), or name hosts as it does"
        )
    if OURS.fullmatch(first) and first not in fabric.host_index:
        return f"{lacks}; it has {has}, and one is a GPU with its NIC: give a network of so many"
    nics = [name for name in own if name.startswith(f"{first}:")]
    which = f", whose NICs are {some(nics)}" if nics else meant(first, own)
    if first in fabric.host_index:
        which = " among the names of its file"
    way = "leave out what it sends, or cable it" if told else "name all in one of these ways"
    return f"{lacks}{which}; it has {has}, in its file {some(own)}: {way}"
