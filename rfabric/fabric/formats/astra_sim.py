"""The network of ASTRA-sim's analytical backends, YAML: a shape for each dimension.

    topology: [ Ring, FullyConnected, Switch ]     npus_count: [ 2, 8, 4 ]
    bandwidth: [ 200.0, 100.0, 50.0 ]              latency: [ 50, 500, 2000 ]

NPUs are numbered along the first dimension first. Those that differ in one dimension alone are
joined by its shape: in a ring to both neighbours, each to each, or each to a switch. A link has the
bandwidth and the latency of its dimension each way, so that a Switch takes twice its latency.
Bandwidth is in GB/s of 2^30 bytes (`bw_GBps_to_Bpns` of astra-network-analytical), latency in ns;
`rate_unit` and `delay_unit` say other units.

An NPU is a host. Where it has several cables, these end at a node of its own that passes on, to
which the host is cabled at the rate of all of them.

ASTRA-sim's first version had JSON (`topologies-per-dim`, `links-count`), which is refused.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from ...errors import RFabricError, meant, some
from ...units import BITS_PER_BYTE
from ..network import MOST_NODES, NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, items, mapping_of, name_of, stem_of

KEYS = ("topology", "npus_count", "bandwidth", "latency")
SHAPES = ("Ring", "FullyConnected", "Switch")
GBPS, NS = 2.0**30 * BITS_PER_BYTE, 1e-9  # of a bare bandwidth in bit/s, and of a latency in s
OLD = re.compile(r'"(?:topologies-per-dim|links-count|units-count)"\s*:')


def _sniff(text: str) -> bool:
    lines = all(re.search(rf'^[\s{{]*"?{key}"?\s*:', text, re.M) for key in KEYS[:2])
    return lines or OLD.search(text) is not None


def _read(path: Path, reading: Reading) -> Network:
    data = mapping_of(path)
    if "topologies-per-dim" in data or "links-count" in data:
        raise RFabricError(
            "is the JSON of ASTRA-sim's first version, which does not say what its links join; "
            f"write {', '.join(KEYS)} as YAML, a list each, for its second"
        )
    shapes, counts, rates, delays = _dimensions(data, reading)
    npus, cables = math.prod(counts), _count(shapes, counts)
    if npus == 1:
        raise RFabricError("npus_count: one NPU is no network; 2 at least")
    if max(npus, cables) > MOST_NODES:
        raise RFabricError(f"{npus:,} NPUs of {cables:,} cables; {MOST_NODES:,} at most")
    nodes = {f"npu{i}": Role("host", "host") for i in range(npus)}
    wires: list[NamedCable] = []
    for dim, (shape, rate, delay) in enumerate(zip(shapes, rates, delays, strict=True)):
        for i, row in enumerate(_rows(counts, dim)):
            switch = f"dim{dim}.{i}"
            if shape == "Switch" and len(row) > 1:
                nodes[switch] = Role("eps")
            wires += [
                NamedCable(a, b, rate, delay, f"dimension {dim}")
                for a, b in _joined(shape, row, switch)
            ]
    said = [f"{some(map(str, data.keys() - {*KEYS}))} left out"] if data.keys() - {*KEYS} else []
    nodes, wires = _passing_on(nodes, wires, said)
    return Network(stem_of(path), nodes, tuple(wires), tuple(said))


def _dimensions(
    data: dict, reading: Reading
) -> tuple[list[str], list[int], list[float], list[float]]:
    """Shape, NPUs, bit/s and s of each dimension."""
    if missing := [key for key in KEYS if key not in data]:
        raise RFabricError(f"{missing[0]} is missing; a network of ASTRA-sim needs it")
    listed = {key: items(data[key], key) for key in KEYS}
    if len({len(every) for every in listed.values()}) > 1 or not listed["topology"]:
        said = ", ".join(f"{key} has {len(every)}" for key, every in listed.items())
        raise RFabricError(f"each list needs a value for each dimension: {said}")
    shapes = [name_of(one, "topology") for one in listed["topology"]]
    for shape in shapes:
        if shape not in SHAPES:
            raise RFabricError(
                f"topology {shape!r} is not read{meant(shape, SHAPES)}; {', '.join(SHAPES)} are"
            )
    counts = [_npus(count) for count in listed["npus_count"]]
    rates = [
        reading.rate(one, f"bandwidth[{i}]", None if reading.rate_unit else GBPS)
        for i, one in enumerate(listed["bandwidth"])
    ]
    if 0 in rates:
        raise RFabricError(f"bandwidth[{rates.index(0)}]: 0 must be above 0")
    delays = [
        reading.delay(one, f"latency[{i}]", None if reading.delay_unit else NS)
        for i, one in enumerate(listed["latency"])
    ]
    return shapes, counts, rates, delays


def _npus(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_NODES:
        raise RFabricError(f"npus_count {str(count)[:40]!r} must be 1 to {MOST_NODES:,}")
    return count


def _count(shapes: list[str], counts: list[int]) -> int:
    """How many cables there will be, at most."""
    each = {"Ring": lambda n: n, "Switch": lambda n: n, "FullyConnected": lambda n: n * (n - 1) / 2}
    return int(sum(
        math.prod(counts) / n * each[shape](n) for shape, n in zip(shapes, counts, strict=True)
    ))  # fmt: skip


def _rows(counts: list[int], dim: int) -> Iterator[list[str]]:
    """The NPUs that differ in dimension `dim` alone, in its order."""
    step, n = math.prod(counts[:dim]), counts[dim]
    for above, below in product(range(math.prod(counts[dim + 1 :])), range(step)):
        yield [f"npu{above * step * n + i * step + below}" for i in range(n)]


def _joined(shape: str, row: list[str], switch: str) -> list[tuple[str, str]]:
    """The pairs that a shape joins; two NPUs in a ring have one link."""
    if len(row) == 1:
        return []
    if shape == "Switch":
        return [(npu, switch) for npu in row]
    if shape == "FullyConnected":
        return list(combinations(row, 2))
    return [*pairwise(row), *([(row[-1], row[0])] if len(row) > 2 else [])]


def _passing_on(
    nodes: dict[str, Role], wires: list[NamedCable], said: list[str]
) -> tuple[dict[str, Role], list[NamedCable]]:
    """With every NPU behind a node that passes on, unless all have a single cable, to a switch."""
    hosts = [name for name, role in nodes.items() if role.kind == "host"]
    rates: dict[str, float] = defaultdict(float)
    for wire in wires:
        for end in (wire.a, wire.b):
            rates[end] += wire.rate or 0.0
    if len(wires) <= len(hosts) and any(role.kind == "eps" for role in nodes.values()):
        return nodes, wires
    behind = {name: f"{name} links" for name in hosts}
    said.append(f"each of {len(hosts):,} NPUs passes on between its links, at the rate of all")
    own = [NamedCable(name, links, rates[name], 0.0) for name, links in behind.items()]
    moved = [NamedCable(behind[w.a], behind.get(w.b, w.b), w.rate, w.delay, w.where) for w in wires]
    return nodes | dict.fromkeys(behind.values(), Role("eps", "server")), own + moved


ASTRA_SIM = TopologyFormat(
    "astra-sim", "ASTRA-sim's analytical network, YAML: Ring, FullyConnected, Switch a dimension",
    (".yml", ".yaml"), _sniff, _read,
)  # fmt: skip
