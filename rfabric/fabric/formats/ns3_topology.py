"""The topology text of ns-3's RDMA simulators (HPCC's `topology.txt`, which SimAI's grew from).

    5 1 4                        nodes, switches, cables
    4                            which nodes are switches; the others are hosts
    0 4 400Gbps 0.0005ms 0       two nodes, rate, delay, error rate

Nodes are numbered from 0, hosts first. SimAI's own form begins with six numbers (nodes, GPUs a
server, NVSwitches, switches, cables, kind of GPU). Its NVSwitches, which line 2 has first, are
switches here, and a GPU with NVLinks and NICs is a host and a node that passes on between them.
"""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ...errors import RFabricError
from ...units import parse_rate, parse_time
from ..model import Fabric
from ..network import MOST_NODES, NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, joined_lines, no_circuits, stem_of, text_of

HEAD = re.compile(r"\s*\d+ +\d+ +\d+(?: +\d+ +\d+ +[A-Za-z]\w*)?\s*\n")
CABLE = re.compile(r"^\s*\d+ +\d+ +[\d.]+[kKMGT]?b(?:ps|/s) +[\d.e-]+[mun]?s +[\d.e-]+\s*$", re.M)


def _sniff(text: str) -> bool:
    return HEAD.match(text) is not None and CABLE.search(text[:65536]) is not None


def _read(path: Path, reading: Reading) -> Network:
    lines = [(n, line.split()) for n, line in enumerate(text_of(path).splitlines(), 1)
             if line.strip()]  # fmt: skip
    if len(lines) < 2 or len(lines[0][1]) not in (3, 6):
        raise RFabricError("line 1: three numbers are expected: nodes, switches, cables")
    head, simai = lines[0][1], len(lines[0][1]) == 6
    picked = (head[0], head[3], head[4]) if simai else head
    count, above, wires = (_whole(text, "line 1") for text in picked)
    above += _whole(head[2], "line 1") if simai else 0
    switches = [_node(text, count, f"line {lines[1][0]}") for text in lines[1][1]]
    if len(set(switches)) != above:
        raise RFabricError(f"line {lines[1][0]}: {len(set(switches))} switches, line 1: {above}")
    nodes = {str(i): Role("host", "host") for i in range(count)}
    nodes |= dict.fromkeys(switches, Role("eps"))
    hosts = [name for name, role in nodes.items() if role.kind == "host"]
    cables = [_cable(words, n, count) for n, words in lines[2:]]
    if len(cables) != wires:
        raise RFabricError(f"{len(cables)} cables, line 1 says {wires}; is the file whole?")
    lost = sum(float(words[4]) > 0 for _, words in lines[2:])
    said = [f"error rates of {lost:,} cables left out"] if lost else []
    if behind := [name for i, name in enumerate(hosts) if name != str(i)]:
        said.append(f"hosts do not come first: node {behind[0]} is h{hosts.index(behind[0]) + 1}, "
                    f"where a flow list takes it for h{int(behind[0]) + 1}")  # fmt: skip
    if simai:
        inside = set(switches[: _whole(head[2], "line 1")])
        nodes, cables = _passing_on(nodes, cables, inside, said)
    ends = Counter(end for cable in cables for end in (cable.a, cable.b))
    if several := [name for name in hosts if ends[name] > 1]:
        said.append(f"a flow list's numbers do not hold from node {several[0]} on, whose "
                    f"{ends[several[0]]} NICs are a host each")  # fmt: skip
    return Network(stem_of(path), nodes, tuple(cables), tuple(said))


def _passing_on(
    nodes: dict[str, Role], cables: list[NamedCable], inside: set[str], said: list[str]
) -> tuple[dict[str, Role], list[NamedCable]]:
    """With each host that is cabled both to NVSwitches (`inside`) and to others behind a node that
    passes on between these, at the rate of all of them: it remains one host.
    """
    near: dict[str, dict[bool, float]] = {}  # bit/s of a host to NVSwitches, and to others
    for cable in cables:
        for name, other in ((cable.a, cable.b), (cable.b, cable.a)):
            if nodes[name].kind == "host":
                rates = near.setdefault(name, {})
                rates[other in inside] = rates.get(other in inside, 0.0) + (cable.rate or 0.0)
    both = {name: sum(rates.values()) for name, rates in near.items() if len(rates) == 2}
    behind = {name: f"{name} links" for name in both}
    if both:
        said.append(f"{len(both):,} hosts pass on between NVSwitches and NICs")
    moved = [
        replace(cable, a=behind.get(cable.a, cable.a), b=behind.get(cable.b, cable.b))
        for cable in cables
    ]
    own = [NamedCable(name, behind[name], rate, 0.0) for name, rate in both.items()]
    return nodes | dict.fromkeys(behind.values(), Role("eps", "server")), own + moved


def _whole(text: str, where: str) -> int:
    if not text.isdecimal() or int(text[:20]) > MOST_NODES:
        raise RFabricError(f"{where}: {text[:40]!r} is no whole number up to {MOST_NODES:,}")
    return int(text)


def _node(text: str, count: int, where: str) -> str:
    if _whole(text, where) >= count:
        raise RFabricError(f"{where}: node {text}, and there are 0 to {count - 1}")
    return str(int(text))


def _cable(words: list[str], n: int, count: int) -> NamedCable:
    where = f"line {n}"
    if len(words) != 5 or not re.fullmatch(r"[\d.]+(?:e-?\d+)?", words[4]):
        raise RFabricError(f"{where}: `0 4 400Gbps 0.0005ms 0` is expected, a cable")
    a, b = (_node(text, count, where) for text in words[:2])
    rate = parse_rate(words[2], f"{where}: rate")
    if not rate:
        raise RFabricError(f"{where}: rate {words[2]!r} must be above 0")
    return NamedCable(a, b, rate, parse_time(words[3], f"{where}: delay"), where)


def _write(fabric: Fabric) -> str:
    no_circuits(fabric, "ns-3's topology text")
    order = [*fabric.hosts, *(node.name for node in fabric.switches)]
    row = {name: i for i, name in enumerate(order)}
    head = f"{len(order)} {len(fabric.switches)} {len(fabric.links)}"
    lines = [head, " ".join(str(row[node.name]) for node in fabric.switches)]
    lines += [
        f"{row[k.a.node]} {row[k.b.node]} {_plain(k.rate / 1e9)}Gbps {_plain(k.delay * 1e3)}ms 0"
        for k in fabric.links
    ]
    return joined_lines(lines)


def _plain(value: float) -> str:
    """All digits of a number, as ns-3 reads them: without an exponent."""
    text = f"{value:.17f}".rstrip("0").rstrip(".")
    short = repr(value)
    return short.removesuffix(".0") if "e" not in short else text


NS3_TOPOLOGY = TopologyFormat(
    "ns3-topology", "ns-3's RDMA simulators (HPCC, SimAI): nodes, switches, a cable a line",
    (".ns3",), _sniff, _read, _write, lines=True,
)  # fmt: skip
