"""A Fabric as a Mininet topology: the same names, ports, addresses and datapath ids as everywhere
in rfabric.

    topos = {"rfabric": mininet_topo(rfabric)}            in a file for `mn --custom`

Mininet is imported when `mn` calls, not before, and nothing else but the standard library: `mn`
runs under Debian's Python.
"""

import inspect
import sys
from collections.abc import Callable

from ..errors import RFabricError
from ..fabric import Fabric, host_ip, host_mac
from ..specs import takes_text


def mininet_topo(builder: Callable[..., Fabric]) -> Callable:
    """What Mininet's `topos` wants: a callable from `--topo` settings to a `mininet.topo.Topo`."""

    def build(*args, **settings):
        try:
            return topo_of(builder(**_as_written(builder, args, settings)))
        except (RFabricError, TypeError) as error:
            # An exception would make mn run its machine-wide clean-up (killing processes by name);
            # an exit does not.
            print(f"rfabric: {error}", file=sys.stderr)
            sys.exit(2)

    build.__doc__ = builder.__doc__
    return build


def _as_written(builder: Callable[..., Fabric], args: tuple, settings: dict) -> dict:
    """The settings of `mn --topo`, of which `mn` has made numbers where it could: `delay=10` has no
    unit here either.
    """
    given = inspect.signature(builder).bind(*args, **settings).arguments
    return {key: str(value) if takes_text(builder, key) else value for key, value in given.items()}


def topo_of(fabric: Fabric):
    """The `mininet.topo.Topo` of a fabric; cables have no rate of their own here (`rfabric emulate`
    shapes them).
    """
    from mininet.topo import Topo

    topo = Topo()
    for index, host in enumerate(fabric.hosts):
        topo.addHost(host, ip=f"{host_ip(index)}/8", mac=host_mac(index))
    for node in fabric.switches:
        topo.addSwitch(node.name, dpid=f"{node.dpid:016x}")
    for link in fabric.links:
        topo.addLink(link.a.node, link.b.node, port1=link.a.number, port2=link.b.number)
    return topo
