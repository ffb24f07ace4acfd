"""Fair company: the variant of a fabric whose cost, or bandwidth, comes nearest to another's.

    matched(fat_tree(), to=rfabric(), by="cost")  -> fat-tree,oversubscription=2, 1.01 of rfabric's
                                                  cost

A fabric is made cheaper or dearer by the one setting that thins it: uplinks of its racks
(oversubscription, planes, NICs). GPUs, their racks and the NIC rate stay.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import RFabricError
from ..units import spell_rate, spell_time
from .builders.parts import core_switches
from .builders.sizes import SHAPE, radix_of
from .cost import bill
from .model import Fabric
from .shipped import BUILDERS

BuilderSettings = dict[str, int | float | str]


@dataclass(frozen=True)
class Match:
    """A fabric, and its cost or bandwidth in shares of what it was matched to."""

    fabric: Fabric
    share: float


def matched(fabric: Fabric, to: Fabric, by: str) -> Match:
    """The variant of `fabric` nearest to `to` by `cost` (USD of the network) or `bandwidth` (bit/s
    a GPU out of its rack).

    Both grow with the uplinks, so that a search by halves finds it among many without building all.
    RFabricError for another measure.
    """
    if by not in MEASURES:
        raise RFabricError(f"match by {by!r}: there are {', '.join(MEASURES)}")
    target, known = MEASURES[by](to), variants(fabric)
    made: dict[int, Match] = {}

    def at(i: int) -> Match:
        if i not in made:
            variant = build(fabric.name, known[i])
            made[i] = Match(variant, MEASURES[by](variant) / target)
        return made[i]

    low, high = 0, len(known) - 1
    falls = at(low).share > at(high).share
    while high - low > 1:
        middle = (low + high) // 2
        if (at(middle).share >= 1) == falls:
            low = middle
        else:
            high = middle
    return min(at(low), at(high), key=lambda match: abs(match.share - 1))


def bandwidth(fabric: Fabric) -> float:
    """bit/s a GPU that leave its rack or server; of a single rack, what its NICs carry."""
    out = nics = 0.0
    for link in fabric.links:
        ends = link.a.node, link.b.node
        if any(end in fabric.host_index for end in ends):
            nics += link.rate
        else:
            out += link.rate * sum(end in fabric.rack_index for end in ends)
    return (out or nics) / len(fabric.hosts)


def variants(fabric: Fabric) -> list[BuilderSettings]:
    """The settings of every way to thin `fabric` that its builder knows, by uplinks, up or down;
    its own among them. RFabricError for a fabric that no builder of ours made.
    """
    if fabric.name not in BUILDERS:
        raise RFabricError(
            f"{fabric.name}: only the fabrics {', '.join(BUILDERS)} can be matched; name its "
            "company with --topo"
        )
    given = settings_of(fabric)
    return [given | changes for changes in KNOBS.get(fabric.name, _as_it_is)(given)]


def settings_of(fabric: Fabric) -> BuilderSettings:
    """The settings that build `fabric` again: its parameters without their units."""
    known = inspect.signature(BUILDERS[fabric.name]).parameters
    bare = {
        key.removesuffix("_bps").removesuffix("_s"): value
        for key, value in fabric.parameters.items()
    }
    return {key: value for key, value in bare.items() if key in known}


def build(name: str, settings: Mapping[str, int | float | str]) -> Fabric:
    """The fabric of a builder, with the spec that says so: settings that differ from the builder's
    own alone.
    """
    usual, made = settings_of(BUILDERS[name]()), BUILDERS[name](**settings)
    told = [
        f"{key}={_spelled(made, key, value)}"
        for key, value in settings.items()
        if value != usual.get(key)
    ]
    return replace(made, spec=",".join([name, *told]))


def equal_cost_fat_tree(fabric: Fabric) -> tuple[Fabric, float]:
    """The Fat-Tree of as many GPUs whose cost comes nearest to `fabric`'s, and its cost relative to
    it.

    It has the pods and racks of `fabric` where that has any that a Fat-Tree of its packet switches
    can join. Candidates are the oversubscription ratios that leave each ToR a whole number of
    uplinks. RFabricError where the fabric says no shape
    or rate of a Fat-Tree.
    """
    given, known = fabric.parameters, fabric.name in BUILDERS
    missing = [key for key in (*SHAPE, "rate_bps") if key not in given]
    if missing and not known:
        raise RFabricError(
            f"{fabric.name}: without {', '.join(missing)} no Fat-Tree can be fitted; name one "
            "with --topo"
        )
    same = {"rate": given["rate_bps"]} | ({"radix": given["radix"]} if "radix" in given else {})
    fits = (
        not missing and core_switches(given["pods"], given["tors"], radix_of(same), 1) is not None
    )
    room = BUILDERS["fat-tree"].room  # type: ignore[attr-defined] # set by `sized`
    size = {k: given[k] for k in SHAPE} if fits else room(len(fabric.hosts), 1, same)
    best = matched(build("fat-tree", size | same), fabric, "cost")
    return best.fabric, best.share


def _ratios(
    down: Callable[[BuilderSettings], int],
) -> Callable[[BuilderSettings], list[BuilderSettings]]:
    """Every oversubscription that leaves a whole number of uplinks for so many cables below, as far
    as there are ports.
    """
    return lambda given: [
        {"oversubscription": down(given) / up}
        for up in range(min(down(given), given["radix"] - down(given)), 0, -1)
    ]


def _counts(key: str) -> Callable[[BuilderSettings], list[BuilderSettings]]:
    """From one uplink a rack to as many as GPUs, as far as a ToR has ports."""

    def counts(given: BuilderSettings) -> list[BuilderSettings]:
        free = (
            given["radix"] - given["gpus"] - bool(given["electrical"])
            if "radix" in given
            else given["gpus"]
        )
        return [{key: count} for count in range(1, max(min(given["gpus"], free), given[key]) + 1)]

    return counts


def _as_it_is(_: BuilderSettings) -> list[BuilderSettings]:
    return [{}]


def _spelled(made: Fabric, key: str, value: int | float | str) -> str:
    """A setting of `made` as its spec says it."""
    for unit, spell in (("_bps", spell_rate), ("_s", spell_time)):
        if f"{key}{unit}" in made.parameters:
            return spell(made.parameters[f"{key}{unit}"])
    return str(int(value) if isinstance(value, float) and value == int(value) else value)


MEASURES = {"cost": lambda fabric: bill(fabric).usd, "bandwidth": bandwidth}
KNOBS = {
    "fat-tree": _ratios(lambda given: given["gpus"]),
    "leaf-spine": _ratios(lambda given: given["gpus"]),
    "two-clusters": _ratios(lambda given: given["gpus"]),
    "rail-optimized": _ratios(lambda given: given["servers"]),
    "mixnet": _ratios(lambda given: given["region"] * (given["gpus"] - given["optical"])),
    "rfabric": _counts("planes"),
    "rotor": _counts("planes"),
    "topoopt": _counts("degree"),
}
