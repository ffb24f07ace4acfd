"""NCCL's topology of one server (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`): what is inside.

    <system version="1">
      <cpu numaid="0" ...>                              aggregation
        <pci class="0x060400" link_speed="8 GT/s" link_width="16">    a PCIe switch: edge
          <pci class="0x030200" link_speed=... link_width=...>        a GPU: a host
            <gpu dev="0" sm="80"><nvlink target="..." count="12" tclass="0x068000"/></gpu>

Where GPUs have NVLinks, these are the network (all to one switch, or GPU to GPU), and PCIe is left
out; else PCIe is, with the CPUs above it. Groups of GPUs that NVLink does not join (bridges of two,
AMD's hives) have PCIe between them. RCCL's files say `xgmi` of AMD's links. Where NVLink joins
several servers (GB200 NVL72) the file has all of them, told apart by the `host_hash` of their CPUs.
NICs lead out of the server and are left out: a fabric of servers is a file of its own. Classes are
PCI's; rates as NCCL and RCCL count them (`src/graph/topo.h`).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...errors import RFabricError
from ...files import twice
from ...nccl import NVLINK, XGMI
from ..network import NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, stem_of, text_of, xml_of

GPU, NIC, BRIDGE, NVSWITCH = "0x0302", "0x02", "0x0604", "0x0680"
# share of what a PCIe lane signals that is data: 8b/10b, from 8 GT/s 128b/130b, from 64 GT/s FLITs
LANES = ((8.0, 0.8), (64.0, 128 / 130), (float("inf"), 242 / 256))
CPUS = "between CPUs"
COMMENT = re.compile(r"<!--.*?-->", re.S)


class _Device(NamedTuple):
    """A PCI device: its bus id, class, bit/s up (None: not said), its parent; a GPU by its class,
    or because NCCL found one there (consumer cards are of class 0x030000).
    """

    name: str
    kind: str
    rate: float | None
    parent: str
    gpu: bool


def _sniff(text: str) -> bool:
    return re.search(r"<system\b[^>]*>\s*<cpu\b", COMMENT.sub("", text)) is not None


def _read(path: Path, reading: Reading) -> Network:
    root = xml_of(COMMENT.sub("", text_of(path)))  # those of RCCL's models hold `--`, as no XML may
    if root.tag != "system":
        graphs = ": these are the rings and trees that NCCL chose (NCCL_GRAPH_DUMP_FILE)"
        raise RFabricError(
            f"<{root.tag}>{graphs if root.tag == 'graphs' else ''}; its topology begins with "
            "<system>: NCCL_TOPO_DUMP_FILE writes it"
        )
    servers = _tell_apart(root)
    devices = list(_devices(root))
    names = [device.name for device in devices]
    cpus = [_cpu(cpu) for cpu in root.findall("cpu")]
    if (name := twice([*names, *cpus])) is not None:
        raise RFabricError(f"busid or numaid {name} stands twice; keep one")
    gpus = [d for d in devices if d.gpu]
    if len(gpus) < 2:
        raise RFabricError(f"{len(gpus)} GPUs (class {GPU}00, or a <gpu>); a network needs two")
    linked = _nvlinks(root, gpus)
    if servers > 1 and not linked:
        raise RFabricError(f"{servers} servers that no NVLink joins; give the file of one")
    nodes, cables, said = linked or _pcie(root, devices, gpus)
    if linked and servers == 1 and (groups := _groups(nodes, cables)) > 1:
        above, pcie, notes = _pcie(root, devices, gpus)
        nodes, cables = above | nodes, cables + _from_switches(nodes, pcie)
        said = [said[0].replace("no PCIe", f"PCIe between {groups} groups of them"), *notes[1:]]
    nics = sum(d.kind.startswith(NIC) for d in devices)
    what = f"{servers} servers on one NVLink" if servers > 1 else "the inside of one server"
    said.append(f"{what}; {nics} NICs, which lead out of it, left out")
    return Network(
        stem_of(path), nodes, tuple(cables), tuple(said), parameters={"inside_server": servers}
    )


def _tell_apart(root) -> int:
    """How many servers the CPUs are of; of several, each has its number before all its names."""
    hosts = list(dict.fromkeys(cpu.get("host_hash", "") for cpu in root.findall("cpu")))
    for cpu in root.findall("cpu") if len(hosts) > 1 else ():
        before = f"server{hosts.index(cpu.get('host_hash', '')) + 1}/"
        cpu.set("numaid", before + cpu.get("numaid", "0"))
        for key, tag in (("busid", "pci"), ("target", "nvlink"), ("target", "xgmi")):
            for element in cpu.iter(tag):
                if name := element.get(key):
                    element.set(key, before + name)
    return len(hosts)


def _devices(root) -> Iterator[_Device]:
    """Every <pci>, below its CPU or bridge."""
    stack = [(cpu, _cpu(cpu)) for cpu in root.findall("cpu")]
    while stack:
        element, parent = stack.pop(0)
        for child in element.findall("pci"):
            name = child.get("busid")
            if not name:
                raise RFabricError(f"a <pci> below {parent} has no busid")
            kind = child.get("class", "")
            gpu = kind.startswith(GPU) or child.find("gpu") is not None
            yield _Device(name, kind, _pci_rate(child, name), parent, gpu)
            stack.append((child, name))


def _cpu(element) -> str:
    return f"cpu{element.get('numaid', '0')}"


def _pci_rate(element, name: str) -> float | None:
    """bit/s of a PCIe port; None where speed or width are not said."""
    speed, width = element.get("link_speed", ""), element.get("link_width", "")
    if not speed or not width or width == "0" or speed.lower().startswith("unknown"):
        return None  # virtual machines do not tell it
    figure = re.fullmatch(r"\s*([0-9.]+)\s*(?:GT/s|Gb/s)?(?:\s*PCIe)?\s*", speed)
    if not figure or not width.isdecimal() or not float(figure[1]):
        raise RFabricError(f"pci {name}: {speed!r} x {width!r} is no speed such as 8 GT/s x 16")
    transfers = float(figure[1])
    share = next(share for below, share in LANES if transfers < below)
    return transfers * 1e9 * int(width) * share


def _pcie(root, devices: list[_Device], gpus: list[_Device]):
    """GPUs below bridges below CPUs, which are joined among themselves."""
    known = {d.name: d for d in devices}
    nodes = {d.name: Role("host", "host") for d in gpus}
    cables: dict[str, NamedCable] = {}
    for gpu in gpus:
        device = gpu
        while device:
            cables[device.name] = NamedCable(
                device.name, device.parent, device.rate, 0.0, f"pci {device.name}"
            )
            nodes.setdefault(device.parent, Role("eps"))
            device = known.get(device.parent)
    cpus = [_cpu(cpu) for cpu in root.findall("cpu") if _cpu(cpu) in nodes]
    said = ["the file names no NVLink, which NCCL finds itself: GPUs over PCIe"]
    if len(cpus) > 1:
        nodes[CPUS] = Role("eps", "core")
        rate = max((c.rate for c in cables.values() if c.rate), default=None)
        for cpu in cpus:
            cables[cpu] = NamedCable(cpu, CPUS, rate, 0.0)
        said.append("the file says no rate between CPUs: that of the fastest PCIe port taken")
    return nodes, list(cables.values()), said


def _nvlinks(root, gpus: list[_Device]):
    """GPUs on one NVSwitch, or each on a switch of its own with NVLinks between; None without
    NVLink.
    """
    links = dict.fromkeys((gpu.name for gpu in gpus), ())
    rates, kind = {}, "xgmi" if next(root.iter("xgmi"), None) is not None else "nvlink"
    for element in root.iter("pci"):
        gpu = element.find("gpu")
        if element.get("busid") in links and gpu is not None:
            links[element.get("busid")] = tuple(gpu.iter(kind))
            if links[element.get("busid")]:
                rate_of = _xgmi_rate if kind == "xgmi" else _nvlink_rate
                rates[element.get("busid")] = rate_of(gpu, element.get("busid"))
    if not rates:
        return None
    what = "NVLink" if kind != "xgmi" else kind
    said = [f"GPUs over {what}, {min(rates.values()) / 8e9:g} GB/s a link and direction; no PCIe"]
    every = (link for own in links.values() for link in own)
    through = all(link.get("tclass", "").startswith(NVSWITCH) for link in every)
    bare = [name for name in links if not links[name]]
    if through and bare:
        raise RFabricError(f"GPU {bare[0]} has no {what} and others have; which joins them?")
    make = _switched if through else _meshed
    return *make(links, rates), said


def _groups(nodes: dict[str, Role], cables: list[NamedCable]) -> int:
    """How many parts of a network no cable joins."""
    import networkx as nx

    graph = nx.Graph([(cable.a, cable.b) for cable in cables])
    graph.add_nodes_from(nodes)
    return nx.number_connected_components(graph)


def _from_switches(nodes: dict[str, Role], pcie: list[NamedCable]) -> list[NamedCable]:
    """PCIe where a GPU that has a switch of its own comes by that."""
    own = {name: f"{name} links" for name in nodes if f"{name} links" in nodes}
    return [replace(cable, a=own.get(cable.a, cable.a)) for cable in pcie]


def _nvlink_rate(gpu, name: str) -> float:
    """bit/s of one NVLink of a GPU."""
    sm = gpu.get("sm", "")
    if not sm.isdecimal() or int(sm) < min(NVLINK):
        raise RFabricError(f"gpu {name}: sm {sm!r} has no known NVLink; NCCL knows from 60 on")
    return NVLINK[max(known for known in NVLINK if known <= int(sm))] * 8e9


def _xgmi_rate(gpu, name: str) -> float:
    """bit/s of one xgmi link of a GPU."""
    gcn = gpu.get("gcn", "")
    if not gcn.isdecimal() or int(gcn) not in XGMI:
        known = ", ".join(map(str, XGMI))
        raise RFabricError(f"gpu {name}: no rate of xgmi is known of gcn {gcn!r}; of {known} it is")
    return XGMI[int(gcn)] * 8e9


def _switched(links: dict, rates: dict):
    nodes = {name: Role("host", "host") for name in links} | {"NVSwitch": Role("eps", "edge")}
    cables = [
        NamedCable(name, "NVSwitch", rates[name] * sum(_count(n, name) for n in own), 0.0)
        for name, own in links.items()
    ]
    return nodes, cables


def _meshed(links: dict, rates: dict):
    """A GPU and the switch that its NVLinks are, if any: what passes through takes them too."""
    nodes = {name: Role("host", "host") for name in links}
    nodes |= {f"{name} links": Role("eps", "server") for name in rates}
    cables, done = [], set()
    for name in rates:
        own = links[name]
        total = sum(_count(n, name) for n in own)
        cables.append(NamedCable(name, f"{name} links", rates[name] * total, 0.0))
        for link in own:
            other = _target(link, name, links)
            if frozenset((name, other)) not in done:
                done.add(frozenset((name, other)))
                ends = f"{name} links", f"{other} links"
                cables.append(NamedCable(*ends, rates[name] * _count(link, name), 0.0))
    return nodes, cables


def _target(link, name: str, links: dict) -> str:
    """The GPU at the other end: bus ids may leave out the domain, or the function."""
    target = link.get("target", "")
    others = [other for other in links if other.startswith(target) or other.endswith(target)]
    if not target or len(others) != 1 or others[0] == name:
        raise RFabricError(f"gpu {name}: NVLink to {target!r}, which is no other GPU of the file")
    return others[0]


def _count(link, name: str) -> int:
    count = link.get("count", "1")
    if not count.isdecimal() or not 0 < int(count) <= 64:
        raise RFabricError(f"gpu {name}: {count!r} NVLinks; 1 to 64")
    return int(count)


NCCL_TOPOLOGY = TopologyFormat(
    "nccl-topology", "what is inside one server, by NCCL_TOPO_DUMP_FILE: NVLink, else PCIe",
    (".xml",), _sniff, _read,
)  # fmt: skip
