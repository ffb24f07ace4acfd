"""The kit that builders of fabrics are made with; the builders themselves stand in `topologies/`.

A builder is a function from settings (numbers, quantities as text with units or as floats of the
base unit) to a Fabric whose `parameters` are those settings in base units (`rate` -> `rate_bps`,
`delay` -> `delay_s`); `builder.room(hosts, least, given)` are the settings that hold so many GPUs
(`sized`).

    Sketch                    nodes and cables under construction: racks, planes, spines, any cable
    whole, shape, uplinks, narrow, nearest, radix_at      settings, checked
    core_switches, grouped, joined, Tiers, Spine          how many switches join so many racks
    ocs_of, CROSSBARS         optical circuit switches by name; direct: servers cabled to them
"""

from .crossbars import CROSSBARS, Crossbar, ocs_of, ocs_ports_of
from .direct import INSIDE, REINIT, direct
from .parts import (
    CABLE_DELAY,
    MAX_PORTS,
    RADIX,
    TIER_CODE,
    Sketch,
    Spine,
    Tiers,
    core_switches,
    grouped,
    joined,
    narrow,
    nearest,
    radix_at,
    shape,
    uplinks,
    whole,
)
from .sizes import (
    NOTHING,
    SMALLEST,
    halves_for,
    leaves_for,
    pods_for,
    rails_for,
    regions_for,
    rotors_for,
    servers_for,
    shape_for,
    sized,
)

__all__ = [
    "CABLE_DELAY", "CROSSBARS", "INSIDE", "MAX_PORTS", "NOTHING", "RADIX", "REINIT", "SMALLEST",
    "TIER_CODE", "Crossbar", "Sketch", "Spine", "Tiers", "core_switches", "direct", "grouped",
    "halves_for", "joined", "leaves_for", "narrow", "nearest", "ocs_of", "ocs_ports_of", "pods_for",
    "radix_at", "rails_for", "regions_for", "rotors_for", "servers_for", "shape", "shape_for",
    "sized", "uplinks", "whole",
]  # fmt: skip
