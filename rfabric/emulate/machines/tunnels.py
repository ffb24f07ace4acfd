"""Cut cables as VXLAN tunnels (RFC 7348) between the private worlds of two machines.

    world of machine 1                                        world of machine 2
    bridge t1 -- t1-eth3 = VXLAN 4711 ==== UDP, machine to machine ==== VXLAN 4711 = a1-eth2 -- a1

The interface lies in the world, its UDP socket in the network of the machine, where it was asked
for: nothing there is set up, and with the world it is gone. Each cable has a network identifier of
its own. A frame larger than the machines' network takes goes in fragments, which their kernels put
together again.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import RFabricError, RunError
from ...trace.packets import MTU
from ..network import EXPERIMENTAL, QUEUES, offloads_off
from ..sandbox import Namespace, run
from ..shaping import ETHERNET

UDP_PORT = 47890  # of no other protocol's (IANA's is 4789, which a machine's own networks may use)
CABLES = 1 << 12  # tunnels a run may have: the rest of an identifier is the run's
HEADERS = 20 + 8 + 8 + ETHERNET  # bytes on the machines' network around a packet: IP, UDP, VXLAN
FRAME = (
    b"\xff" * 6 + bytes(6) + EXPERIMENTAL + bytes(MTU - 2)
)  # ETHERNET + MTU bytes; means nothing
LISTED_S = 5.0  # s in which a full frame must have come through a tunnel


class Tunnel(NamedTuple):
    """One end of a cut cable: an interface, its network identifier, both machines' addresses."""

    interface: str
    vni: int
    local: str
    remote: str


def make(tunnels: Iterable[Tunnel], home: Namespace, inhabitant: int) -> None:
    """Make these interfaces in the world of process `inhabitant`, which is not this one: this
    thread goes into `home`, the machine's network, where their sockets are. RFabricError where the
    kernel refuses.
    """
    some = list(tunnels)
    lines = [
        f"link add name {t.interface} mtu {MTU} {QUEUES} netns {inhabitant} type vxlan id {t.vni} "
        f"local {t.local} remote {t.remote} dstport {UDP_PORT} nolearning"
        for t in some
    ]
    with home:
        try:
            run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        except RunError as error:
            raise RFabricError(
                f"cannot make VXLAN interfaces (UDP port {UDP_PORT}, identifiers from "
                f"{some[0].vni}): {error}"
            ) from error
    run(["ip", "-batch", "-"], "".join(f"link set {t.interface} up\n" for t in some))
    offloads_off(t.interface for t in some)


class Flood:
    """Frames into tunnels, and the counters of these."""

    def __init__(self, tunnels: Iterable[str]):
        self._into = {name: _packet_socket(name) for name in tunnels}

    def send(self, rate: float, seconds: float) -> dict[str, int]:
        """About `rate` bit/s of full frames into each, so long; returns how many frames went."""
        begin, sent = time.monotonic(), 0
        gap = 8 * len(FRAME) / rate
        while (now := time.monotonic()) < begin + seconds:
            if begin + sent * gap > now:
                time.sleep(min(begin + sent * gap - now, 0.002))
                continue
            for sock in self._into.values():
                sock.send(FRAME)
            sent += 1
        return dict.fromkeys(self._into, sent)

    def hidden(self) -> int:
        """Bytes of each frame that the counters of a tunnel's sender leave out."""
        name, sock = next(iter(self._into.items()))
        before = sent_bytes(name)
        sock.send(FRAME)
        return len(FRAME) - (sent_bytes(name) - before)

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._into.values():
            sock.close()


def sent_bytes(interface: str) -> int:
    """What an interface has counted as sent."""
    return int(Path("/sys/class/net", interface, "statistics/tx_bytes").read_text())


def got(tunnels: Iterable[str]) -> dict[str, int]:
    """Frames that came through each tunnel so far."""
    stats = {name: Path("/sys/class/net", name, "statistics/rx_packets") for name in tunnels}
    return {name: int(file.read_text()) for name, file in stats.items()}


def silent(tunnels: Mapping[str, Tunnel], before: Mapping[str, int]) -> list[str]:
    """The tunnels through which nothing came since, waited for LISTED_S."""
    limit = time.monotonic() + LISTED_S
    while left := [name for name, count in got(tunnels).items() if count == before[name]]:
        if time.monotonic() > limit:
            break
        time.sleep(0.05)
    return left


def _packet_socket(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((interface, 0))
    return sock
