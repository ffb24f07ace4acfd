"""The switches of a fabric as OpenFlow 1.3 peers over TCP, with the tables of `FakeSwitches`."""

import contextlib
import socket
import struct
import threading

from rfabric.control import flowmods
from rfabric.control.fake import FakeSwitches
from rfabric.control.switches import crossbar_of
from rfabric.optics import Circuits


class Peers:
    """All switches, each connected to every controller port of `ports`; they connect again."""

    def __init__(self, fabric, *ports):
        self.fabric, self.held, self.ports = fabric, FakeSwitches(fabric), ports
        self.dark, self.closed, self.wires, self.roles = set(), False, 0, {}
        self.one, self.live = threading.RLock(), {}
        self.watched = []  # what was wrong with a crossbar at any instant
        self.bytes = {}  # that a port has received and sent; of others none
        for node in fabric.switches:
            for port in ports:
                self.start(node.dpid, port)

    def start(self, dpid, port):
        threading.Thread(target=self.stay, args=(dpid, port), daemon=True).start()

    def stay(self, dpid, port):
        wait = threading.Event()
        while not self.closed:
            with (
                contextlib.suppress(OSError),
                # from another address: where nobody listens a connection could meet itself, and
                # hold the port
                socket.create_connection(("127.0.0.1", port), 60, ("127.0.0.2", 0)) as link,
            ):
                self.live[dpid, port] = link
                self.serve(link, dpid, port)
            wait.wait(0.02)

    def serve(self, link, dpid, port):
        def send(kind, xid, body=b""):
            link.sendall(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)

        send(0, 0)
        with link.makefile("rb") as stream:
            while (head := stream.read(8)) and len(head) == 8 and not self.closed:
                _, kind, size, xid = struct.unpack("!BBHI", head)
                body = stream.read(size - 8)
                with self.one:
                    for kind_back, back in self.answers(dpid, port, kind, head + body):
                        send(kind_back, xid, back)

    def answers(self, dpid, port, kind, message):
        if kind == 2:  # ECHO
            return [(3, message[8:])]
        if kind == 5:  # FEATURES
            return [(6, struct.pack("!QIBB2xII", dpid, 0, 254, 0, 0, 0))]
        if kind == 14:
            return self.take(dpid, port, message)
        if kind == 18:
            return [(19, message[8:10] + bytes(6) + self.told(dpid, message))]
        if kind == 20:
            return [(21, b"")]
        if kind == 24:
            return self.play(dpid, port, message)
        return []

    def take(self, dpid, port, message):
        if self.roles.get((dpid, port)) == flowmods.SLAVE:
            return [(1, struct.pack("!HH", 1, 10) + message[:64])]  # BAD_REQUEST, IS_SLAVE
        self.wires += 1
        self.held._take(dpid, [message])
        cross = crossbar_of(self.held.tables[dpid])
        if len(set(cross.values())) < len(cross):
            self.watched.append((dpid, cross))
        return []

    def play(self, dpid, port, message):
        role = struct.unpack_from("!I", message, 8)[0]
        if role == flowmods.MASTER:
            self.roles |= {k: flowmods.SLAVE for k in self.roles if k[0] == dpid}
        self.roles[dpid, port] = role
        return [(25, message[8:])]

    def told(self, dpid, message):
        kind = struct.unpack_from("!H", message, 8)[0]
        name = self.held.names[dpid]
        if kind == 13:
            return b"".join(self.port(port) for port in self.fabric.ports[name])
        if kind == flowmods.PORT_STATS:
            return b"".join(self.counters(port) for port in self.fabric.ports[name])
        if kind == flowmods.FLOW_STATS:
            entries = self.held.tables[dpid].values()
            return b"".join(self.flow(e) for e in entries if flowmods.asks_for(message, e))
        return b""

    def port(self, port):
        return struct.pack(
            "!I4x6s2x16s8I", port.number, bytes(6), str(port).encode(), 0,
            int(port in self.dark), 0, 0, 0, 0, 0, 0,
        )  # fmt: skip

    def counters(self, port):
        received, sent = self.bytes.get(port, (0, 0))
        return struct.pack("!I4x12Q2I", port.number, 0, 0, received, sent, *[0] * 10)

    @staticmethod
    def flow(entry):
        wire = flowmods.strike(entry)
        match = wire[48:]
        out = b"" if entry.out is None else flowmods._output(entry.out)
        size = 48 + len(match) + len(out)
        head = struct.pack("!HBxIIHHHH4xQQQ", size, 0, 0, 0, entry.priority, 0, 0, 0,
                           entry.cookie, 0, 0)  # fmt: skip
        return head + match + out

    def darken(self, port, dark=True):
        """The light of a port goes, or comes back, and all controllers are told."""
        with self.one:
            (self.dark.add if dark else self.dark.discard)(port)
            dpid = self.fabric.node[port.node].dpid
            body = struct.pack("!B7x", 2) + self.port(port)
            for (owner, _), link in self.live.items():
                if owner == dpid:
                    link.sendall(struct.pack("!BBHI", 4, 12, 8 + len(body), 0) + body)

    def lit(self):
        """The circuits that are there both ways."""
        both = set()
        for node in self.fabric.ocses:
            cross = crossbar_of(self.held.tables[node.dpid])
            both |= {
                f"{node.name}:{a}-{b}" for a, b in cross.items() if cross.get(b) == a and a < b
            }
        return Circuits.from_json(both)

    def close(self):
        self.closed = True
        for link in list(self.live.values()):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
