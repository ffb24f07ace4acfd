"""Edges of a file whose state is down are no cables."""

import json
from pathlib import Path

import pytest

from rfabric.fabric.formats.base import Reading
from rfabric.fabric.formats.node_link import _read


@pytest.mark.parametrize("key", ["status", "state", "oper_status", "adminStatus"])
def test_an_edge_that_is_down_is_left_out_and_counted(tmp_path: Path, key: str) -> None:
    ends = [("h1", "leaf1"), ("h2", "leaf1"), ("leaf1", "spine1"), ("leaf1", "spine1")]
    states = ["up", "UP", "up", "Down"]
    links = [
        {"source": a, "target": b, "rate": "100Gbit/s", key: state}
        for (a, b), state in zip(ends, states, strict=True)
    ]
    nodes = [{"id": name} for name in ("h1", "h2", "leaf1", "spine1")]
    file = tmp_path / "net.json"
    file.write_text(json.dumps({"nodes": nodes, "links": links}))
    network = _read(file, Reading())
    assert [(cable.a, cable.b) for cable in network.cables] == ends[:3]
    assert network.dropped == ("edges that are down left out: 1",)
