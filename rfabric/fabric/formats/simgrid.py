"""A SimGrid platform: hosts, routers, links, and a route for each cable.

SimGrid finds the shortest way over the cables (zone `Dijkstra`) and takes one for each pair, where
rfabric spreads pairs over all; between two nodes it knows one link, so several cables are one link
of all their rate, and the file says so.
"""

from collections.abc import Iterator
from html import escape  # the one of xml.sax loads all of urllib
from itertools import groupby

from ..model import Fabric, Link
from .base import TopologyFormat, joined_lines, never, no_circuits

SPEED = "1Tf"  # of a GPU; rfabric's traffic carries its own computing


def _write(fabric: Fabric) -> str:
    no_circuits(fabric, "a SimGrid platform")
    return joined_lines(_lines(fabric))


def _lines(fabric: Fabric) -> Iterator[str]:
    yield "<?xml version='1.0'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1">'
    wide = [cables for cables in _bundles(fabric) if len(cables) > 1]
    if wide:
        yield f"  <!-- {len(wide)} links stand for several cables each, with all their rate -->"
    yield f'  <zone id="{escape(fabric.name)}" routing="Dijkstra">'
    for node in fabric.nodes:
        host = node.kind == "host"
        yield (
            f'    <host id="{node.name}" speed="{SPEED}"/>'
            if host
            else f'    <router id="{node.name}"/>'
        )
    bundles = _bundles(fabric)
    for i, cables in enumerate(bundles):
        rate, delay = sum(cable.rate for cable in cables), max(cable.delay for cable in cables)
        yield (
            f'    <link id="l{i}" bandwidth="{_plain(rate)}bps" latency="{_plain(delay)}s" '
            'sharing_policy="SPLITDUPLEX"/>'
        )
    for i, cables in enumerate(bundles):
        a, b = _ends(cables[0])
        for way, src, dst in (("UP", a, b), ("DOWN", b, a)):
            yield (
                f'    <route src="{src}" dst="{dst}" symmetrical="NO">'
                f'<link_ctn id="l{i}" direction="{way}"/></route>'
            )
    yield "  </zone>"
    yield "</platform>"


def _bundles(fabric: Fabric) -> list[list[Link]]:
    """The cables between the same two nodes together."""
    return [list(cables) for _, cables in groupby(sorted(fabric.links, key=_ends), key=_ends)]


def _ends(cable: Link) -> tuple[str, str]:
    a, b = sorted((cable.a.node, cable.b.node))
    return a, b


def _plain(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


SIMGRID = TopologyFormat(
    "simgrid", "a SimGrid platform: hosts, routers, links, shortest paths (written only)",
    (".xml",), never, None, _write,
)  # fmt: skip
