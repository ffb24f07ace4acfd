"""A Mininet network from a Fabric: unmodified Mininet 2.3, built in a few batches instead of one
fork per setting.

    Fabric (400 Gbit/s cables) x bandwidth_scale -> veth pairs, HTB on every interface -> Open
    vSwitch bridges, hosts

What makes it behave like the fabric of a GPU cluster rather than like the Internet:
- A cable's rate is the rate of its *payload*: HTB gets the Ethernet, IP and TCP headers on top.
- A port serves the flows in it in turn, a packet each; of an OCS none but those that are slower
  than others (`shaping.paced`). That is max-min fairness, what congestion control in a GPU fabric
  aims at. With one queue, flows behind two busy cables took up to twice their fair time.
- Nothing is lost to a full queue, as on a lossless (RoCE) fabric: a lane has at most WINDOW packets
  under way, fewer on slow cables, and queues hold them all.
- Offloads of the hosts are off: the user-space datapath would otherwise forward packets without a
  checksum.

Measured against max-min sharing, 64 hosts, 36 switches, 192 cables of 8 Mbit/s, random permutations
and 4:1 incasts of 1 s flows: median error of a flow 0.4 to 1 %, worst 12 %, of the last flow 1 %,
as long as the datapath keeps up (see `guard`). A lone flow, a ring of four or two flows on one
uplink take 0.97 to 1.01 of the ideal.
"""

import array
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import permutations
from math import ceil, inf
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import networkx as nx

from ..errors import RFabricError, RunError
from ..fabric import Fabric, Port, host_ip, host_mac
from ..trace.packets import MTU, PAYLOAD, RECEIVE_WINDOW
from ..units import show_rate, transfer_seconds
from . import crossbar
from .sandbox import DATAPATH, Namespace, Sandbox, established, run, sysctl
from .shaping import (
    LEAST_DELAY,
    MOST_CLASSES,
    MOST_WAITED_FOR,
    STALL_S,
    delaying,
    paced,
    shaping,
    turns_of,
)

WINDOW = RECEIVE_WINDOW // PAYLOAD  # packets
# Where cables are slow, so few packets that they last STALL_S, for which a busy host may hold them,
# but no fewer than there are cables on the longest way, each of which may hold one: with 4 on ways
# of 6 cables one all-gather in three took 10 to 55 % longer, with 6 one in sixty.
# More makes sharing slower to settle: a flow that is held up far away takes its turns at its own
# card until all that it may have under way waits there.
LEAST_WINDOW = 4
# An acknowledgement waits at a busy cable for the packet that is on it, however fast its own flow
# is: where cables between switches are slower than cards, LEAST_WINDOW are packets of theirs. With
# as few of the cards', flows whose acknowledgements crossed busy cables of a quarter of the rate
# took 74 to 84 % longer, now 0.5 to 1 %.
# Least retransmission time-out: s, packet times of the line, and what the cards of either end take
# for all that their flows may have under way: where these begin together, nothing is lost, only
# late.
# Measured after a dark time that swallowed the window: 50 ms recovers in 40 to 80 ms; 5 ms backs
# off into 30 to 380 ms; 200 ms: 40 to 210 ms.
RTO_MIN_S, RTO_MIN_PACKETS = 0.05, 20
# s, where no rewire drops packets: queues hold all that may be under way, so what is late is not
# lost. Of 40 flows into one card some waited longer for their first turn than its packets said;
# what was sent again made them take 83 % longer, and lanes slow until long after.
LOSSLESS_RTO_S = 5.0
OVS_SEND_BUFFER = 256 << 20  # bytes for all queues together: OVS sends through one packet socket
OVS_RECEIVE_BUFFER = 32 << 20  # bytes per port, for the time the datapath thread is busy elsewhere
# bit/s that HTB shapes here to about a percent (0.4 % at 240 kbit/s)
MIN_RATE, MAX_RATE = 2.5e5, 2e9

TCP = {
    "net/ipv4/tcp_slow_start_after_idle": 0,
    "net/ipv4/tcp_no_metrics_save": 1,
    # where a flow moves from a full way to an empty one, packets overtake others. With timestamps
    # the receiver throws those away that come late (PAWS), once the first of them was sent again:
    # flows waited for their time-out, up to 9 s
    "net/ipv4/tcp_timestamps": 0,
    "net/ipv4/tcp_sack": 1,
    # no probes of a tail: a packet that waits in a queue for twice its usual round trip is not
    # lost, and its lane halved what it sends at once until long after (a ring on a leaf-spine 2:1
    # took a fifth longer, for one of its flows)
    "net/ipv4/tcp_early_retrans": 0,
    "net/ipv4/tcp_ecn": 0,
    "net/ipv4/tcp_autocorking": 0,
    "net/ipv4/tcp_min_tso_segs": 1,
    "net/ipv4/tcp_rmem": "16384 4194304 16777216",
    "net/ipv4/tcp_wmem": "16384 4194304 16777216",
}

SIOCETHTOOL = 0x8946  # linux/sockios.h
# linux/ethtool.h
ETHTOOL_OFF = {"tx-checksum": 0x17, "scatter-gather": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
PIDFD_GETFD = 438  # the system call's number, the same on every architecture (asm-generic/unistd.h)
EXPERIMENTAL = b"\x88\xb5"  # EtherType for local experiments (IEEE 802)
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ATTACH_FILTER = 32, 33, 26
MIRRORS_PORT = 6654  # of the run's own namespace, as its controller's
NEXT = 2  # from the port of a controller, or of its mirrors, to that of who stands by
RECONNECT_MS = 1000  # after which a switch tries again at the latest; Open vSwitch 3.1: 8 s
# classic BPF that takes no byte of a packet, and the struct sock_fprog that points to it
_REJECT = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
_NOTHING = struct.pack("HP", 1, ctypes.addressof(_REJECT))


class EmulatedNetwork:
    """The emulated network of `fabric` inside an open Sandbox; every rate is the fabric's times
    `bandwidth_scale`.

    `datapath` is `user` or `kernel` (see `calibrate.probe_host`). Without `controller_port` no
    switch has a controller. `at_once`: how many flows of (src, dst) may be under way together, one
    of every two hosts without it; the cables of hosts need no more turns than these take. `here`:
    the nodes of this machine, where the fabric is on several; only these are built, and cables
    between them. A cable to another machine has its interface already. `lossless`: nothing that is
    sent gets lost, so hosts wait long before they send it again. `ways`: the directed cables that
    the flows of (src, dst) cross, where these are sure (see `foreseen.ways`). `delays`: packets are
    held up for the delay of each cable, by the wall clock; not where flows are measured, of which
    it is added to when they end (`replay`).
    """

    def __init__(
        self,
        sandbox: Sandbox,
        fabric: Fabric,
        bandwidth_scale: float,
        datapath: str = "user",
        controller_port: int | None = None,
        at_once: Mapping[tuple[str, str], int] | None = None,
        here: frozenset[str] | None = None,
        lossless: bool = False,
        ways: Mapping[tuple[str, str], Sequence[int]] | None = None,
        delays: bool = False,
    ):
        self.delays = delays
        self.sandbox, self.fabric, self.bandwidth_scale = sandbox, fabric, bandwidth_scale
        self.datapath, self.controller_port = datapath, controller_port
        self.ip = {host: host_ip(i) for i, host in enumerate(fabric.hosts)}
        self.mac = {host: host_mac(i) for i, host in enumerate(fabric.hosts)}
        most = MOST_WAITED_FOR if at_once is None else MOST_CLASSES
        if at_once is None:
            at_once = dict.fromkeys(permutations(fabric.hosts, 2), 1)
        self.at_once = at_once
        self.turns = turns_of(fabric, at_once, most, ways)
        self.lossless = lossless
        self.leaving, self.coming = Counter[str](), Counter[str]()  # flows under way together
        self.peers: dict[str, set[str]] = {host: set() for host in fabric.hosts}  # in either way
        for (src, dst), several in at_once.items():
            self.leaving[src] += several
            self.coming[dst] += several
            self.peers[src].add(dst)
            self.peers[dst].add(src)
        self.here = frozenset(fabric.node) if here is None else here
        self.hosts = tuple(host for host in fabric.hosts if host in self.here)
        self.switches = tuple(node for node in fabric.switches if node.name in self.here)
        self.namespaces: dict[str, Namespace] = {}
        self.mininet: Any = None
        self.ocses = [n.name for n in self.switches if n.kind == "ocs"] if controller_port else []
        self.unlit = crossbar.lacking() if self.ocses else ""  # why Open vSwitch moves the light
        if self.unlit:
            self.ocses = []
        check_rates(fabric, bandwidth_scale)
        self._fastest = fastest_line(fabric) * bandwidth_scale
        self._windows = windows_of(fabric, bandwidth_scale, ways)
        # bit/s of the fastest NIC of each server
        self._out = {
            node.name: max(rates) * bandwidth_scale
            for node in fabric.nodes
            if node.tier == "server" and (rates := nics(fabric, node.name))
        }

    def rate(self, host: str) -> float:
        """bit/s of payload of the host's cable, as emulated."""
        return self.fabric.rate(self.fabric.ports[host][0]) * self.bandwidth_scale

    def window(self, host: str) -> int:
        """Packets that a lane of the host may have under way."""
        return self._windows[host]

    def line(self, src: str, dst: str) -> float:
        """bit/s at which packets of one host to another leave it, or its server."""
        near, far = (self.fabric.peer[self.fabric.ports[h][0]][1].node for h in (src, dst))
        return self.rate(src) if near == far else min(self.rate(src), self._out.get(near, inf))

    def start(
        self, connect_timeout: float = 20.0, until_listening: Callable[[], None] = lambda: None
    ) -> None:
        """Build, start the switches, shape, and wait until all are connected to the controller.

        until_listening: waits for the controller, which may come up while cables are plugged.
        """
        self._build()
        self._plug()
        if self.ocses:
            self._start_mirrors()
        until_listening()
        if self.ocses:
            self.sandbox.wait_port(MIRRORS_PORT, "mirrors", connect_timeout)
        self.mininet.start()
        self.sandbox.check()  # of a datapath that died meanwhile Mininet only logs
        self.tune()
        if self.controller_port:
            self._wait_connected(connect_timeout)

    def tune(self) -> None:
        """Check the ports of Open vSwitch, give them their rates and deep sockets: whenever it was
        started.
        """
        self._check_bridges()
        if self.datapath == "user":
            self._open_sending_socket()
            ports = {p.interface for ocs in self.ocses for p in self.fabric.ports[ocs]}
            deepen_packet_sockets(self.sandbox.children[DATAPATH].pid, ports)
        self._shape()
        self.sandbox.reserve()

    def asks(self, switch: str) -> int | None:
        """The port at which a switch finds its controller: an OCS's mirrors are between them."""
        return MIRRORS_PORT if switch in self.ocses else self.controller_port

    def join_controllers(self, standby: bool) -> None:
        """Connect every switch to its controller, and to one that stands by or no longer to it."""
        words, again = [], f"max_backoff={RECONNECT_MS}"
        for i, switch in enumerate(self.switches):
            ports = [self.asks(switch.name) + n for n in ((0, NEXT) if standby else (0,))]
            for n, port in enumerate(ports):
                target = f'target="tcp:127.0.0.1:{port}"'
                words += ["--", f"--id=@c{i}x{n}", "create", "Controller", target, again]
            ids = ",".join(f"@c{i}x{n}" for n in range(len(ports)))
            words += ["--", "set", "Bridge", switch.name, f"controller=[{ids}]"]
        run(["ovs-vsctl", *words[1:]])

    def stop(self) -> None:
        """Close the namespaces.

        The rest dies with the world: `mininet.stop()` would delete each cable by a fork.
        """
        for namespace in self.namespaces.values():
            namespace.close()
        self.namespaces.clear()

    def _build(self) -> None:
        """Mininet's own objects: shells, nodes, ports.

        Cables are collected, `_plug` makes them in one batch.
        """
        from mininet.net import Mininet

        classes = _mininet_classes(self.asks)
        # its init() raises limits of the whole machine by sysctl; the Sandbox set what is needed
        Mininet.inited = True
        topo = _topo(self.fabric, self.here, self.ip, self.mac, self.datapath)
        self.mininet = Mininet(
            topo,
            host=classes["host"],
            switch=classes["switch"],
            link=classes["link"],
            controller=None,
            build=False,
        )
        if self.controller_port:
            for name, at in (("c0", self.controller_port), ("c1", MIRRORS_PORT)):
                self.mininet.addController(name, classes["controller"], ip="127.0.0.1", port=at)
        self.mininet.build()
        for port in self._cut():
            classes["intf"](port.interface, node=self.mininet[port.node], port=port.number)
        for host in self.hosts:
            if not self.mininet[
                host
            ].shell.stdout.readline():  # its number, once it has a namespace
                raise RunError(f"host {host} has no namespace: mnexec failed")
        self.namespaces = {h: Namespace(self.mininet[h].pid) for h in self.hosts}

    def _plug(self) -> None:
        """Make all veth pairs in one `ip -batch`, then set up each host with one batch in its
        namespace.
        """
        kinds, lines = self.fabric.node, []
        for link in self.fabric.links:
            if not {link.a.node, link.b.node} <= self.here:
                continue
            a, b = (link.a, link.b) if kinds[link.b.node].kind == "host" else (link.b, link.a)
            if kinds[a.node].kind == "host":
                raise RFabricError(f"cable {a}-{b} joins two hosts; put a switch between")
            peer = f"name {b.interface} mtu {MTU} {QUEUES}"
            if kinds[b.node].kind == "host":
                peer += f" address {self.mac[b.node]} netns {self.mininet[b.node].pid}"
            lines.append(f"link add name {a.interface} mtu {MTU} {QUEUES} type veth peer {peer}")
        lines += [f"link set {port.interface} up" for port in self._switch_ports()]
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        for host in self.hosts:
            with self.namespaces[host]:
                self._set_up_host(host)

    def _time_out(self, host: str) -> float:
        """s after which the host takes a packet for lost, at least."""
        ends = self.peers[host] | {host}
        flows = max(self.leaving[host], *(self.coming[end] for end in ends))
        slowest = min(self._fastest, *map(self.rate, ends))
        packets = max(RTO_MIN_PACKETS, self.window(host) * flows)
        queued = max(RTO_MIN_S, packets * transfer_seconds(MTU, slowest))
        return max(queued, LOSSLESS_RTO_S) if self.lossless else queued

    def _set_up_host(self, host: str) -> None:
        for scope in ("all", "default"):
            sysctl(f"net/ipv6/conf/{scope}/disable_ipv6", 1, optional=True)
        for key, value in TCP.items():
            sysctl(key, value)
        port = self.fabric.ports[host][0]
        name = port.interface
        window, rto = self.window(host), round(1000 * self._time_out(host))
        limits = f"initcwnd {window} window {RECEIVE_WINDOW} rto_min {rto}ms"
        lines = [
            "link set lo up",
            f"addr add {self.ip[host]}/8 dev {name} noprefixroute",
            # TCP would hand on several packets as one, and a turn be as long as they are
            f"link set {name} gso_max_segs 1 up",
            f"route add 10.0.0.0/8 dev {name} src {self.ip[host]} {limits}",
        ]
        lines += [
            f"neigh add {self.ip[other]} lladdr {self.mac[other]} nud permanent dev {name}"
            for other in sorted(self.peers[host])
        ]
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        run(["tc", "-batch", "-"], "\n".join(self._queueing(port)) + "\n")
        offloads_off([name])

    def _shape(self) -> None:
        """What every switch port needs of `_queueing`, after OVS took them over (it clears a port's
        queueing discipline).
        """
        lines = [line for port in self._switch_ports() for line in self._queueing(port)]
        run(["tc", "-batch", "-"], "\n".join(lines) + "\n")

    def _queueing(self, port: Port) -> list[str]:
        """The lines for `tc` of what leaves by a port: netem where it is held up, then HTB where it
        is paced.
        """
        delay = self.fabric.links[self.fabric.peer[port][0] // 2].delay
        delay = delay if self.delays and delay >= LEAST_DELAY else 0.0
        if port in self.turns:
            rate = self.fabric.rate(port) * self.bandwidth_scale
            return shaping(port.interface, rate, self.turns[port], delay)
        return delaying(port.interface, delay) if delay else []

    def _start_mirrors(self) -> None:
        ports = {
            self.fabric.node[ocs].dpid: {p.number: p.interface for p in self.fabric.ports[ocs]}
            for ocs in self.ocses
        }
        told = self.sandbox.run_dir / "mirrors.json"
        told.write_text(
            json.dumps(
                {
                    "controllers": {MIRRORS_PORT + n: self.controller_port + n for n in (0, NEXT)},
                    "ocses": ports,
                }
            )
        )
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.sandbox.start(
            "mirrors", [sys.executable, "-m", "rfabric.emulate.mirrors", str(told)], env
        )

    def _open_sending_socket(self) -> None:
        """Have OVS send one frame that means nothing: it opens its sending socket when it sends for
        the first time.
        """
        port = self._switch_ports()[0]
        frame = b"\xff" * 6 + bytes(6) + EXPERIMENTAL + bytes(46)
        out = f"in_port=controller packet={frame.hex()} actions=output:{port.number}"
        run(["ovs-ofctl", "-OOpenFlow13", "packet-out", port.node, out])

    def _switch_ports(self) -> list:
        return [port for node in self.switches for port in self.fabric.ports[node.name]]

    def _cut(self) -> list[Port]:
        """The ports here whose cables lead to another machine."""
        peer = self.fabric.peer
        return [port for port in self._switch_ports() if peer[port][1].node not in self.here]

    def _check_bridges(self) -> None:
        """Every port must have got the number the fabric gave it; Mininet only logs what ovs-vsctl
        refuses.
        """
        text = ask_ovs("--columns=name,ofport", "list", "Interface")
        numbers = dict(line.replace('"', "").split(",") for line in text.splitlines())
        for port in self._switch_ports():
            if numbers.get(port.interface) != str(port.number):
                got = numbers.get(port.interface, "nothing")
                raise RunError(
                    f"Open vSwitch gave port {port} the number {got}; see logs/ovs-vswitchd.log"
                )

    def _wait_connected(self, timeout: float) -> None:
        limit = time.monotonic() + timeout
        while True:
            self.sandbox.check()
            # what Open vSwitch says, `is_connected`, is up to 5 s old
            connected = established(self.controller_port)
            if connected >= len(self.switches):
                return
            if time.monotonic() > limit:
                raise RunError(
                    f"{connected} of {len(self.switches)} switches reached the "
                    f"controller in {timeout:g} s; see logs/controller.log"
                )
            time.sleep(0.02)


QUEUES = "numtxqueues 1 numrxqueues 1"  # else one queue a core, on every interface


def ask_ovs(*arguments: str) -> str:
    """The rows that `ovs-vsctl` prints, as CSV without headings."""
    return run(["ovs-vsctl", "--format=csv", "--no-headings", *arguments])


def windows_of(
    fabric: Fabric,
    bandwidth_scale: float,
    ways: Mapping[tuple[str, str], Sequence[int]] | None = None,
) -> dict[str, int]:
    """Packets that a lone lane of each host may have under way; `ways` as of `longest_way`."""
    fastest, slowest, way = fastest_line(fabric), slowest_line(fabric), longest_way(fabric, ways)
    rates = {host: fabric.rate(fabric.ports[host][0]) for host in fabric.hosts}
    return {
        host: packets_under_way(rate * bandwidth_scale, min(rate, fastest) / slowest, way)
        for host, rate in rates.items()
    }


def packets_under_way(rate: float, slower: float = 1.0, way: float = 0.0) -> int:
    """How many a lane may have where cards have `rate` bit/s, are `slower` times as fast as the
    slowest cable between switches, and a packet waits at `way` cables at most.
    """
    last = ceil(STALL_S / transfer_seconds(PAYLOAD, rate))
    return min(max(last, ceil(LEAST_WINDOW * max(slower, 1.0)), round(way)), WINDOW)


def longest_way(
    fabric: Fabric, ways: Mapping[tuple[str, str], Sequence[int]] | None = None
) -> float:
    """How many cables a packet may wait at between the two hosts furthest apart: the ports that are
    shaped, one that is faster than the line as the part of a packet's time that it takes.

    ways: the directed cables between two hosts, where these are known. Else whatever the circuits:
    an OCS joins any two of its ports.
    """
    line, shaped = fastest_line(fabric), paced(fabric)
    waits = {
        port: min(line / fabric.rate(port), 1.0) if port in shaped else 0.0 for port in fabric.peer
    }
    if ways:
        each = [waits[port] for link in fabric.links for port in (link.a, link.b)]
        return max(sum(each[cable] for cable in way if cable < len(each)) for way in ways.values())
    graph = nx.DiGraph()
    for port, (_, far) in fabric.peer.items():
        graph.add_edge(port.node, far.node, weight=waits[port])
    racks = {frozenset(graph[host]): host for host in fabric.hosts}  # who stands alike is as far
    return max(
        max(ways.get(host, 0.0) for host in fabric.hosts)
        for ways in (nx.single_source_dijkstra_path_length(graph, h) for h in racks.values())
    )


def nics(fabric: Fabric, server: str) -> list[float]:
    """bit/s of the ports by which a server's hosts leave it."""
    ports = fabric.ports[server]
    return [fabric.rate(p) for p in ports if fabric.node[fabric.peer[p][1].node].kind != "host"]


def slowest_line(fabric: Fabric) -> float:
    """bit/s of the slowest cable between switches, inf where there is none."""
    kind = fabric.node
    between = (
        k.rate for k in fabric.links if "host" not in {kind[k.a.node].kind, kind[k.b.node].kind}
    )
    return min(between, default=inf)


def fastest_line(fabric: Fabric) -> float:
    """bit/s of the fastest cable outside servers: what a flow's pipeline and a switch's backlog are
    measured by.

    What joins the GPUs of a server to its NICs is NVLink, several times as fast so that it holds
    nobody up.
    """
    node = fabric.node
    inside = {"host", "server"}
    outside = [k.rate for k in fabric.links if {node[k.a.node].tier, node[k.b.node].tier} != inside]
    return max(outside or [k.rate for k in fabric.links])


def scales(fabric: Fabric) -> tuple[float, float]:
    """The least and the largest bandwidth scale at which the fastest cables can be shaped."""
    return MIN_RATE / fastest_line(fabric), MAX_RATE / max(link.rate for link in fabric.links)


def check_rates(fabric: Fabric, bandwidth_scale: float) -> None:
    """RFabricError for a scale that puts the fastest cable outside what HTB can shape; it names
    those that fit.

    Slower ones may carry nothing: `scale.check_rates_of` knows which do.
    """
    rates = [link.rate for link in fabric.links]
    low, high = scales(fabric)
    if not low <= bandwidth_scale <= high:
        raise RFabricError(
            f"bandwidth_scale / time_dilation is {bandwidth_scale:.3g}: cables would be shaped to "
            f"{show_rate(min(rates) * bandwidth_scale)} to "
            f"{show_rate(max(rates) * bandwidth_scale)}; choose the two so that it lies "
            f"between {low:.3g} and {high:.3g}"
        )


def deepen_packet_sockets(pid: int, deaf: Collection[str] = ()) -> int:
    """Give the packet sockets of ovs-vswitchd `pid` buffers that hold the run's queues; returns how
    many sockets.

    The user-space datapath sends every packet through one AF_PACKET socket, and the kernel charges
    queued packets to it. The default of 212992 bytes is about 12 jumbo packets in *all* queues of
    *all* switches, the rest is dropped and no counter tells. The limit could be raised by a sysctl
    of the whole machine; reaching for the run's own sockets (pidfd_getfd) changes nothing else.

    deaf: interfaces at which nothing is to reach it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    deepened = 0
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except OSError:
                continue
            fd = libc.syscall(PIDFD_GETFD, pidfd, int(name), 0)
            if fd < 0:
                continue
            with socket.socket(fileno=fd) as sock:
                if sock.family == socket.AF_PACKET:
                    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, OVS_SEND_BUFFER)
                    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, OVS_RECEIVE_BUFFER)
                    deepened += 1
                    if sock.getsockname()[0] in deaf:
                        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _NOTHING)
    finally:
        os.close(pidfd)
    return deepened


def offloads_off(interfaces: Iterable[str]) -> None:
    """`ethtool -K IF tx off sg off tso off gso off gro off` for interfaces of this namespace,
    without forks. RunError where the kernel refuses.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in interfaces:
            for command in ETHTOOL_OFF.values():
                value = array.array("I", [command, 0])
                request = struct.pack("16sP", name.encode(), value.buffer_info()[0])
                try:
                    fcntl.ioctl(sock, SIOCETHTOOL, request.ljust(40, b"\0"))
                except OSError as error:
                    raise RunError(
                        f"cannot switch offloads of {name} off: {error.strerror}"
                    ) from error


def _topo(
    fabric: Fabric, here: frozenset[str], ip: dict[str, str], mac: dict[str, str], datapath: str
):
    """What is `here` of the fabric as Mininet's `Topo`: same names, same port numbers."""
    from mininet.topo import Topo

    topo = Topo()
    for node in (node for node in fabric.nodes if node.name in here):
        if node.kind == "host":
            topo.addHost(node.name, ip=f"{ip[node.name]}/8", mac=mac[node.name])
        else:
            topo.addSwitch(
                node.name,
                dpid=f"{node.dpid:016x}",
                datapath=datapath,
                failMode="secure",
                protocols="OpenFlow13",
                reconnectms=RECONNECT_MS,
                batch=True,
            )
    for link in (link for link in fabric.links if {link.a.node, link.b.node} <= here):
        topo.addLink(link.a.node, link.b.node, port1=link.a.number, port2=link.b.number)
    return topo


def _mininet_classes(asks: Callable[[str], int | None]) -> dict[str, type]:
    """Mininet's extension points, with classes that record; `EmulatedNetwork._plug` does the
    work. A host is a process that holds its namespace: nobody types into a shell there, and to
    start one takes several times as long. Switches start in few calls of `ovs-vsctl`.

    asks: the port of the controller of a switch.
    """
    from mininet.link import Intf, Link
    from mininet.node import Host, OVSSwitch, RemoteController

    class CollectedIntf(Intf):
        def config(self, **_):
            return {}

    class CollectedLink(Link):
        def __init__(self, *args, **params):
            super().__init__(*args, **{**params, "intf": CollectedIntf})

        @classmethod
        def makeIntfPair(cls, *_args, **_params):
            return None

    class ConfiguredHost(Host):
        def startShell(self, mnopts=None):
            holds = ["mnexec", "-cdnp", "sleep", "infinity"]
            self.shell = self._popen(holds, stdin=DEVNULL, stdout=PIPE)
            self.pid = self.shell.pid

        def config(self, mac=None, ip=None, **_):
            intf = self.defaultIntf()
            intf.mac = mac
            intf.ip, intf.prefixLen = ip.split("/")
            return {}

    class BatchedSwitch(OVSSwitch):
        def startShell(self, mnopts=None):
            self.pid = os.getpid()  # it is in the namespace of this process

        def start(self, controllers):
            super().start([c for c in controllers if c.port == asks(self.name)])

    class WaitedController(RemoteController):
        def checkListening(self):
            return None

    return {
        "link": CollectedLink,
        "intf": CollectedIntf,
        "host": ConfiguredHost,
        "switch": BatchedSwitch,
        "controller": WaitedController,
    }
