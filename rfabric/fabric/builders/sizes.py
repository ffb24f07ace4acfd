"""Sizes for so many GPUs: the settings by which each builder makes room, within the ports of the
switches that were asked for.

Racks grow by doubling, 4 GPUs up to 64, then a server and more, until two tiers (or some 512 racks)
hold them or a ToR is full.

RFabricError where no shape has so many.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...errors import RFabricError
from ...units import parse_rate
from .parts import core_switches, radix_at, tiers_of

# The settings of a spec that say nothing of size; `gpus` are those of one of the job's servers,
# where a job says so.
Given = Mapping[str, int | float | str]
Room = Callable[..., dict[str, int]]  # room(hosts, least=SMALLEST, given=NOTHING)
NOTHING: Given = MappingProxyType({})

SMALLEST, MOST_RACKS, MOST_HOSTS = 64, 512, 1 << 18
SHAPE = ("pods", "tors", "gpus")
RATE = "400Gbit/s"
# servers of a pod on one set of rail switches: NVIDIA's scalable unit, 32 servers x 8 rails
RAIL_SERVERS = 32
SERVER = 8  # GPUs of a server where no job says otherwise
EVEN = 8  # leaves below three tiers come in eights, which groups can share evenly


def sized(room: Room) -> Callable:
    """Give a builder its own sizing: `builder.room(hosts, least, given)` are the settings that hold
    so many GPUs.

    A `room` that takes two arguments is not asked what was given.
    """
    asks = len(inspect.signature(room).parameters) > 2

    def mark(builder: Callable) -> Callable:
        own = room if asks else lambda hosts, least=SMALLEST, given=NOTHING: room(hosts, least)
        builder.room = own  # type: ignore[attr-defined]
        return builder

    return mark


def radix_of(given: Given, *more: str) -> int:
    """Ports of the packet switches of a builder that gets these settings; `more` rates than `rate`
    count as well.
    """
    rates = [
        parse_rate(given.get("rate", RATE), "rate"),
        *(parse_rate(given[key], key) for key in more if key in given),
    ]
    return radix_at(given.get("radix", 0), *rates)


def shape_for(hosts: int, least: int = SMALLEST, given: Given = NOTHING) -> dict[str, int]:
    """`pods`, `tors`, `gpus` for so many GPUs: 4 x 4 x 4 up to 64; beyond, racks of a server or
    more, at most half a ToR's ports.

    `least` is the smallest fabric to make; with less than 64, racks of 4 make one as small as the
    traffic.
    """
    radix = radix_of(given)
    shape = shaped(hosts, least, radix // 2, radix // 2)
    if core_switches(shape["pods"], shape["tors"], radix, 1) is None:
        raise RFabricError(
            f"{max(hosts, least):,} GPUs: three tiers of switches of {radix} ports end at "
            f"{radix**3 // 4:,}; take a larger radix"
        )
    return shape


def shaped(hosts: int, least: int, most_gpus: int, most_tors: int) -> dict[str, int]:
    """A shape of racks of at most `most_gpus`, in pods of at most `most_tors` racks."""
    hosts = max(hosts, least, 2)
    if hosts > MOST_HOSTS:
        raise RFabricError(
            f"the traffic names GPU h{hosts}; {MOST_HOSTS:,} at most get a fabric by themselves: "
            f"state its size, {', '.join(f'{key}=N' for key in SHAPE)}"
        )
    gpus = _rack(hosts, MOST_RACKS, most_gpus)
    racks = -(-hosts // gpus)
    pods = 2 ** (racks.bit_length() // 2)
    while -(-racks // pods) > most_tors and pods < racks:
        pods *= 2
    return dict(zip(SHAPE, (pods, -(-racks // pods), gpus), strict=True))


def _rack(hosts: int, racks: int, most: int) -> int:
    """GPUs of a rack so that so many racks hold `hosts`, by doubling; `most` at most."""
    gpus = min(4 if hosts <= SMALLEST else 8, most)
    while hosts > gpus * racks and 2 * gpus <= most:
        gpus *= 2
    return gpus


def leaves_for(hosts: int, least: int = SMALLEST, given: Given = NOTHING) -> dict[str, int]:
    """`tors` of `gpus` for a leaf-spine: two tiers as long as larger racks make them enough."""
    radix, hosts = radix_of(given), max(hosts, least, 2)
    if hosts <= SMALLEST:
        small = shape_for(hosts, least, given)
        return {"tors": small["pods"] * small["tors"], "gpus": small["gpus"]}
    gpus = _rack(hosts, radix, radix // 2)
    return {"tors": _leaves(-(-hosts // gpus), radix), "gpus": gpus}


def _leaves(count: int, radix: int, spare: int = 0, step: int = EVEN) -> int:
    """The next number of leaves that switches of so many ports join, `step` at a time where two
    tiers are not enough.
    """
    if count + spare <= radix:
        return count
    most = radix * (radix // 2)
    fits = (
        n for n in range(-(-count // step) * step, most + 1, step) if tiers_of(n, radix, 1, spare)
    )
    if (leaves := next(fits, None)) is not None:
        return leaves
    raise RFabricError(
        f"{count:,} leaves: three tiers of switches of {radix} ports end at {most:,}; take a "
        "larger radix"
    )


def rails_for(hosts: int, least: int = SMALLEST, given: Given = NOTHING) -> dict[str, int]:
    """`pods` of `servers` of 8 `gpus`, as many servers a pod as a rail switch takes."""
    radix, hosts = radix_of(given), max(hosts, least)
    servers = min(RAIL_SERVERS, radix // 2)
    if hosts <= 2 * servers * 8:
        return {"pods": 2, "servers": max(-(-hosts // 16), 1), "gpus": 8}
    return {
        "pods": _leaves(8 * -(-hosts // (8 * servers)), radix) // 8,
        "servers": servers,
        "gpus": 8,
    }


def halves_for(hosts: int, least: int = SMALLEST, given: Given = NOTHING) -> dict[str, int]:
    """`training` and `generation` for two clusters of one size; a port of each spine or core is the
    border's.
    """
    radix = radix_of(given, "generation_rate")
    half = -(-max(hosts, least) // 16) * 8
    gpus = max(_rack(half, radix - 1, radix // 2), min(8, radix // 2))
    leaves = _leaves(-(-half // gpus), radix, 1)
    return {"training": leaves * gpus, "generation": leaves * gpus, "gpus": gpus}


def pods_for(ports: int, hosts: int, least: int, given: Given) -> dict[str, int]:
    """A shape below OCSes of so many ports, with as many more ToRs a pod as it takes for core OCSes
    to share them evenly.
    """
    shape = shaped(
        hosts, least, (radix_of(given) - 1) // 2, ports // 2
    )  # half the uplinks, one port for the thin cable
    while core_switches(shape["pods"], shape["tors"], ports) is None:
        shape["tors"] += 1
        if 2 * shape["tors"] > ports:
            raise RFabricError(
                f"OCSes of {ports} ports do not join {max(hosts, least):,} GPUs; take a larger "
                "ocs_ports"
            )
    return shape


def rotors_for(ports: int, hosts: int, least: int, given: Given) -> dict[str, int]:
    """`tors` of `gpus` below rotor switches of so many ports: there is no second stage."""
    radix, hosts = radix_of(given), max(hosts, least, 2)
    gpus = _rack(hosts, min(ports, MOST_RACKS), radix // 2)
    tors = -(-hosts // gpus)
    if tors > ports:
        raise RFabricError(
            f"rotor: {hosts:,} GPUs are more than rotor switches of {ports} ports above ToRs "
            f"of {radix} join, {ports * gpus:,}; take a larger ocs_ports or radix"
        )
    return {"tors": tors, "gpus": gpus}


def servers_for(ports: int, hosts: int, least: int, given: Given) -> dict[str, int]:
    """`servers` of the job's size that OCSes of so many ports join."""
    gpus = given.get("gpus", SERVER)
    servers = max(-(-max(hosts, least) // gpus), 2)
    while tiers_of(servers, ports) is None:
        servers += 1
        if servers > ports * ports // 2:
            raise RFabricError(
                f"OCSes of {ports} ports do not join {max(hosts, least):,} GPUs; take a larger "
                "ocs_ports"
            )
    return {"servers": servers, "gpus": gpus}


def regions_for(usual: int, hosts: int, least: int, given: Given) -> dict[str, int]:
    """`servers` of the job's size in whole regions, as many as their leaves' switches join; a small
    fabric is one small region.
    """
    gpus = given.get("gpus", SERVER)
    if gpus < 2:
        raise RFabricError(
            "mixnet: a server has NICs on OCSes and on packet switches, so two GPUs; the job's "
            "servers have one"
        )
    servers, region = max(-(-max(hosts, least) // gpus), 2), given.get("region", usual)
    if not isinstance(region, int) or region < 1:  # the builder says what is wrong with it
        region = usual
    small = {"region": servers} if servers < usual and "region" not in given else {}
    region = small.get("region", region)
    return {
        "servers": _leaves(math.ceil(servers / region), radix_of(given)) * region,
        "gpus": gpus,
    } | small
