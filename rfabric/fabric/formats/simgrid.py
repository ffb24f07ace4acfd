"""A SimGrid platform: hosts, routers, links, and a route for each cable.

    <zone id="net" routing="Floyd">
      <host id="h1" speed="1Tf"/>  <router id="t1"/>
      <link id="l1" bandwidth="12.5GBps" latency="500ns"/>
      <route src="h1" dst="t1"><link_ctn id="l1"/></route>
      <cluster id="c" prefix="n" suffix="" radical="0-15" speed="1Tf" bw="125MBps" lat="50us"/>

A route or zoneRoute over one link is a cable of its rate, both ways. One over several, as zones of
`Full` routing have them, says of no node between, and is refused; so is a link in routes between
other nodes, which is a medium that they share. A cluster is a switch, or with
`topology="FAT_TREE"` that tree. A bare `bandwidth` is in bytes/s, a bare `latency` in s (SimGrid's
manual, Platform reference). The DTD that `<!DOCTYPE>` names is not fetched.

Written, SimGrid finds the shortest way over the cables (zone `Dijkstra`) and takes one for each
pair, where rfabric spreads pairs over all; between two nodes it knows one link, so several cables
are one link of all their rate, and the file says so.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape  # the one of xml.sax loads all of urllib
from itertools import groupby
from pathlib import Path

from ...errors import RFabricError, meant
from ...files import twice
from ..model import Fabric, Link
from ..network import MOST_NODES, NamedCable, Network
from ..roles import Role
from .base import Reading, TopologyFormat, joined_lines, no_circuits, stem_of, text_of, xml_of
from .graphs import each_once
from .simgrid_clusters import DUPLEX, HOST, SWITCH, cluster_of, delay_in, rate_in, said_in

SPEED = "1Tf"  # of a GPU; rfabric's traffic carries its own computing
# what says of more cables or of other ways than is read here
UNREAD = (
    "peer", "cabinet", "bypassRoute", "bypassZoneRoute", "bypassASroute", "host_link", "backbone"
)  # fmt: skip


@dataclass
class _Platform:
    """What a file has said so far. used: the ends and the routes of each link."""

    nodes: dict[str, Role] = field(default_factory=dict)
    cables: list[NamedCable] = field(default_factory=list)
    used: dict[str, list[tuple[str, str, bool]]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def _sniff(text: str) -> bool:
    return re.search(r"<platform\s[^>]*\bversion\s*=", text[:8192]) is not None


def _read(path: Path, reading: Reading) -> Network:
    root = xml_of(text_of(path))
    for element in root.iter():
        if element.tag in UNREAD:
            raise RFabricError(
                f"<{element.tag}> is not read; say its cables as <link> and <route> of one link"
            )
    done = _Platform()
    for kind, role in (("host", HOST), ("router", SWITCH)):
        for element in root.iter(kind):
            _add(done, said_in(element, "id"), role)
    for element in root.iter("cluster"):
        nodes, cables = cluster_of(element, done.said)
        for name, role in nodes.items():
            _add(done, name, role)
        done.cables += cables
    if (name := twice(said_in(one, "id") for one in root.iter("link"))) is not None:
        raise RFabricError(f"link {name} stands twice; keep one")
    links = {said_in(one, "id"): one for one in root.iter("link")}
    for kind, ends in (
        ("route", ("src", "dst")),
        ("zoneRoute", ("gw_src", "gw_dst")),
        ("ASroute", ("gw_src", "gw_dst")),
    ):
        for element in root.iter(kind):
            _add_route(done, element, ends, links)
    _add_links(done, links)
    if left := len(links.keys() - done.used.keys()):
        done.said.append(f"{left:,} links in no route left out")
    return Network(stem_of(path), done.nodes, tuple(done.cables), tuple(done.said))


def _add(done: _Platform, name: str, role: Role) -> None:
    if name in done.nodes:
        raise RFabricError(f"{name} stands twice; keep one")
    done.nodes[name] = role
    if len(done.nodes) > MOST_NODES:
        raise RFabricError(f"more than {MOST_NODES:,} nodes")


def _add_route(done: _Platform, element, ends: tuple[str, str], links: dict) -> None:
    """Note that a route takes its link."""
    a, b = (said_in(element, end) for end in ends)
    for end in (a, b):
        if end not in done.nodes:
            known = meant(end, done.nodes)
            raise RFabricError(f"<{element.tag}> {a} - {b} ends at {end}, which is no node{known}")
    taken = [said_in(one, "id") for one in element.iter("link_ctn")]
    if len(taken) != 1:
        raise RFabricError(
            f"<{element.tag}> {a} - {b} is over {len(taken)} links and says of no node between "
            "them; rfabric needs the cables: a route of one link for each, to a <router> between, "
            'in a zone of routing="Floyd"'
        )
    link = re.sub(r"_(?:UP|DOWN)$", "", taken[0]) if taken[0] not in links else taken[0]
    if link not in links:
        raise RFabricError(f"<{element.tag}> {a} - {b}: there is no link {link!r}")
    both = element.get("symmetrical", "YES").upper() in ("YES", "TRUE", "1")
    done.used.setdefault(link, []).append((a, b, both))


def _add_links(done: _Platform, links: dict) -> None:
    """A cable for each link that a route takes; of links that go one way, for each two of them."""
    one_way, shared = list[NamedCable](), 0
    for name, routes in done.used.items():
        a, b, _ = routes[0]
        if other := next((route for route in routes if {a, b} != {*route[:2]}), None):
            raise RFabricError(
                f"link {name} is in the routes {a} - {b} and {other[0]} - {other[1]}: a medium of "
                "several; make it a <router> with a link to each"
            )
        link = links[name]
        cable = NamedCable(
            a, b, rate_in(said_in(link, "bandwidth"), f"link {name} bandwidth"),
            delay_in(link.get("latency", "0"), f"link {name} latency"), f"link {name}",
        )  # fmt: skip
        if len({route[:2] for route in routes}) == 2 or any(both for *_, both in routes):
            done.cables.append(cable)
            shared += link.get("sharing_policy", "SHARED").upper() != DUPLEX
        else:
            one_way.append(cable)
    done.cables += each_once(one_way, done.said, directed=True)
    if shared:
        done.said.append(f"{shared:,} links that both ways share (not {DUPLEX}) have each its rate")


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
    "simgrid", "a SimGrid platform: hosts, routers, links, clusters; written as shortest paths",
    (".xml",), _sniff, _read, _write,
)  # fmt: skip
