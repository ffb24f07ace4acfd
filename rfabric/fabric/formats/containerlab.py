"""containerlab's topology YAML, in and out.

    name: lab
    topology:
      nodes:
        leaf1: {kind: nokia_srlinux, group: leaf}
        h1: {kind: linux}
      links:
        - endpoints: ["h1:eth1", "leaf1:e1-1"]
          vars: {rate: 400Gbit/s, delay: 500ns}        ours: containerlab itself has no rates, nor
                                                       a `state`, by which a link may be down

A node of kind `linux` (or another of HOSTS: virtual machines, traffic generators) is a host, unless
its group, its labels, its own hosts or, where it has several cables, its name (`spine1`) say
otherwise. One whose image is that of a router (FRR, BIRD, ...), and a virtual machine of several
cables, may be either: it is a host by its name (`server1`), by a single cable to a switch, or,
where no node is a host otherwise, by any single cable. Ends such as `macvlan:eth0` or `host:eth5`
leave the lab and are left out, and so are containers without a link (Grafana), which only the
management network reaches. Written nodes carry what they are as labels; images are examples.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import RFabricError, some
from ...files import twice
from ...units import spell_rate, spell_time
from ..model import Fabric
from ..network import NamedCable, Network
from ..roles import Role, named_role
from .base import (
    Reading,
    TopologyFormat,
    delay_of,
    items,
    joined_lines,
    mapping,
    mapping_of,
    name_of,
    rate_of,
    role_of,
    stem_of,
)
from .states import is_down

OUTSIDE = ("host", "macvlan", "mgmt-net", "vxlan", "vxlan-stitch", "dummy")
LABEL = "rfabric-"
# kinds of what stands at the end of a network: containerlab's manual, kinds
MACHINE = "generic_vm"
HOSTS = ("linux", MACHINE, "ext-container", "keysight_ixia-c-one", "ixia-c-one")
# words in the names of images of routers that run as `linux` or as a virtual machine
ROUTERS = {"frr", "quagga", "bird", "bird2", "gobgp", "openbgpd", "vyos", "sonic", "openvswitch",
           "opnsense", "pfsense", "mikrotik", "routeros", "openwrt", "crpd", "cumulus"}  # fmt: skip
BESIDE = {"host", "client", "mgmt", "exporter"}  # of what speaks with a router: docker-sonic-mgmt
IMAGES = {"host": "alpine:3", "eps": "quay.io/frrouting/frr:10.2.1"}


def _sniff(text: str) -> bool:
    return all(re.search(pattern, text, re.M) for pattern in (r"^topology\s*:", r"^\s+nodes\s*:"))


def _read(path: Path, reading: Reading) -> Network:
    data = mapping_of(path)
    topology = mapping(data.get("topology"), "topology")
    nodes = mapping(topology.get("nodes"), "topology.nodes")
    names = {name_of(n, "a node"): said for n, said in nodes.items()}
    cables, outside, down = [], 0, 0
    links = items(topology.get("links") or [], "topology.links")
    _refuse_an_interface_twice(links)
    for i, link in enumerate(links):
        where = f"links[{i}]"
        if is_down(_said_of(mapping(link, where), where)):
            down += 1
            continue
        cable = _cable(link, where, names, reading)
        outside += cable is None
        cables += [cable] if cable else []
    said = [f"{outside:,} links out of the lab left out"] if outside else []
    said += [f"links that are down left out: {down:,}"] if down else []
    near = _neighbours(cables)
    if cables and (alone := names.keys() - near.keys()):
        said.append(f"{len(alone):,} nodes without a link left out ({some(alone)})")
        names = {name: told for name, told in names.items() if name in near}
    roles = {n: _role(n, told, topology, len(near.get(n, ()))) for n, told in names.items()}
    roles = _hosts_alone(roles, near)
    if found := _hosts_beside(roles, near):
        how = "that might be routers are hosts by name or by a single cable"
        said.append(f"{len(found):,} nodes {how} ({some(found)})")
        roles |= dict.fromkeys(found, Role("host", "host"))
    labels = mapping(topology.get("defaults") or {}, "topology.defaults").get("labels") or {}
    delay = mapping(labels, "topology.defaults.labels").get(f"{LABEL}reconfig-delay", 0)
    return Network(
        str(data.get("name") or stem_of(path)), roles, tuple(cables), tuple(said),
        reading.delay(delay, "reconfig-delay"),
    )  # fmt: skip


def _role(name: str, said: Any, topology: dict, ends: int) -> Role:
    """By labels, group and kind, the node's own or those of its group or of all; of a kind where a
    router's image or so many `ends` leave it open.
    """
    said = mapping(said or {}, f"node {name}")
    groups = mapping(topology.get("groups") or {}, "topology.groups")
    above = [mapping(groups.get(said.get("group")) or {}, f"group of {name}"),
             mapping(topology.get("defaults") or {}, "topology.defaults")]  # fmt: skip
    kind = next((str(one["kind"]) for one in (said, *above) if one.get("kind")), "")
    kinds = mapping(topology.get("kinds") or {}, "topology.kinds")
    above.insert(1, mapping(kinds.get(kind) or {}, f"topology.kinds.{kind}"))
    image = next((str(one["image"]) for one in (said, *above) if one.get("image")), "")
    labels = mapping(said.get("labels") or {}, f"labels of {name}")
    ours = {str(key).removeprefix(LABEL): value for key, value in labels.items()}
    role = role_of(ours | {"group": said.get("group", "")})
    if role.kind:
        return role
    if kind not in HOSTS:
        return Role("eps")
    either = _of_router(image) or kind == MACHINE and ends > 1
    return Role() if either else Role("host", "host")


def _of_router(image: str) -> bool:
    """Whether an image such as `quay.io/frrouting/frr:10.4.1` is a router's."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return bool(words & ROUTERS) and not words & BESIDE


def _neighbours(cables: list[NamedCable]) -> dict[str, list[str]]:
    """What each node is cabled to, once a cable."""
    near: dict[str, list[str]] = {}
    for cable in cables:
        near.setdefault(cable.a, []).append(cable.b)
        near.setdefault(cable.b, []).append(cable.a)
    return near


def _hosts_alone(roles: dict[str, Role], near: Mapping[str, list[str]]) -> dict[str, Role]:
    """A `linux` node of several cables is a switch (FRR) where its name says so, or where a `linux`
    node of one cable is below it.
    """
    leaves = {n for n, role in roles.items() if role.kind == "host" and len(near.get(n, ())) == 1}
    return {
        name: Role("eps")
        if role.kind == "host"
        and len(ends := near.get(name, ())) > 1
        and (leaves & set(ends) or _named(name) == "eps")
        else role
        for name, role in roles.items()
    }


def _hosts_beside(roles: dict[str, Role], near: Mapping[str, list[str]]) -> list[str]:
    """Beside hosts, those of the nodes that may be either that are hosts too: by name, or by a
    single cable to a switch where the name says nothing. Where no node is a host `network` tells
    all of them.
    """
    if not any(role.kind == "host" for role in roles.values()):
        return []
    return [
        name
        for name, role in roles.items()
        if not role.kind
        and (_named(name, ends := near.get(name, [])) or _below(ends, roles)) == "host"
    ]


def _below(ends: list[str], roles: Mapping[str, Role]) -> str:
    """`host` for a node of a single cable to what is a switch for certain."""
    return "host" if len(ends) == 1 and roles[ends[0]].kind == "eps" else ""


def _named(name: str, ends: Sequence[str] = ()) -> str:
    """The kind that the name of a node with such neighbours says; '' where it says none."""
    said = named_role(name, len(ends))
    return said.kind if said is not None else ""


def _cable(link: dict, where: str, nodes: dict, reading: Reading) -> NamedCable | None:
    """The cable of a link in the brief or the extended form; None: it leaves the lab."""
    ends = link.get("endpoints")
    if ends is None and "endpoint" in link:
        return None  # the extended form of an end outside
    names = [_node(end, where) for end in items(ends, f"{where}.endpoints")]
    if len(names) != 2:
        raise RFabricError(f"{where}: {len(names)} endpoints; a cable has two")
    if any(name in OUTSIDE and name not in nodes for name in names):
        return None
    for name in names:
        if name not in nodes:
            raise RFabricError(f"{where} ends at {name}, which is no node of the file")
    said = _said_of(link, where)
    rate, delay = rate_of(said, reading, where), delay_of(said, reading, where)
    return NamedCable(*names, rate, delay, where)


def _said_of(link: dict, where: str) -> dict:
    """What a link's labels and variables say of it."""
    labels, own = (mapping(link.get(k) or {}, f"{where}.{k}") for k in ("labels", "vars"))
    return labels | own


def _refuse_an_interface_twice(links: list) -> None:
    every = [link.get("endpoints") for link in links if isinstance(link, Mapping)]
    ends = [end for listed in every if isinstance(listed, list) for end in listed]
    named = [
        f"{end.get('node')}:{end.get('interface')}" if isinstance(end, Mapping) else str(end)
        for end in ends
    ]
    lab = [name for name in named if ":" in name and name.partition(":")[0] not in OUTSIDE]
    if (name := twice(lab)) is not None:
        raise RFabricError(f"{name} ends two links; an interface has one")


def _node(end: Any, where: str) -> str:
    """The node of `leaf1:e1-1` or of {node: leaf1, interface: e1-1}."""
    if isinstance(end, Mapping):
        return name_of(end.get("node"), f"{where}.endpoints.node")
    return name_of(end, f"{where}.endpoints").partition(":")[0]


def _write(fabric: Fabric) -> str:
    lines = [
        "# Rates and delays stand under `vars`, which containerlab keeps and does not apply.",
        "# Images are examples.",
        f"name: {re.sub(r'[^a-z0-9-]+', '-', fabric.name.lower()).strip('-') or 'fabric'}",
        "topology:",
    ]
    if fabric.reconfig_delay:
        delay = f'{{{LABEL}reconfig-delay: "{spell_time(fabric.reconfig_delay)}"}}'
        lines.append(f"  defaults: {{labels: {delay}}}")
    lines.append("  nodes:")
    for node in fabric.nodes:
        image = IMAGES.get(node.kind, IMAGES["eps"])
        labels = ", ".join(
            f'{LABEL}{key}: "{getattr(node, key)}"' for key in ("kind", "tier", "pod", "plane")
        )
        lines.append(f"    {node.name}: {{kind: linux, image: {image!r}, labels: {{{labels}}}}}")
    lines.append("  links:")
    for link in fabric.links:
        ends = ", ".join(f'"{end.node}:eth{end.number}"' for end in (link.a, link.b))
        lines.append(f"    - endpoints: [{ends}]")
        said = f'rate: "{spell_rate(link.rate)}", delay: "{spell_time(link.delay)}"'
        lines.append(f"      vars: {{{said}}}")
    return joined_lines(lines)


CONTAINERLAB = TopologyFormat(
    "containerlab", "a lab's nodes and links as YAML; `linux` nodes are hosts",
    (".clab.yml", ".clab.yaml", ".yml", ".yaml"), _sniff, _read, _write,
)  # fmt: skip
