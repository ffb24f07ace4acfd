"""In-memory switches that read the same OpenFlow bytes as real ones and answer: where does this packet go?

For tests of the controller without root, and for trying a policy on a laptop. A switch can be told to misbehave: `silent` takes
nothing and answers nothing, `refusing` answers with errors, `forgetful` takes everything and then holds nothing new.
"""

import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..fabric import Fabric, Port, host_ip
from . import flowmods
from .core import Reading
from .seam import Push


@dataclass(frozen=True)
class Entry:
    """One flow of a table: what it matches (`in_port`, `eth_type`, `src`, `dst` where present), and the port it leads to."""

    priority: int
    match: tuple[tuple[str, int | str], ...]
    out: int | None
    cookie: int = 0


@dataclass
class FakeClock:
    """A clock that stands still until somebody sleeps; each push costs `step` s."""

    at: float = 0.0
    step: float = 0.0

    def now(self) -> float:
        return self.at

    def sleep_until(self, instant: float) -> None:
        self.at = max(self.at, instant)


@dataclass
class FakeSwitches:
    """All switches of a fabric. `sent` counts the flow-mods each has taken; `lost` the packets that met a table miss."""

    fabric: Fabric
    clock: FakeClock = field(default_factory=FakeClock)
    moods: dict[str, str] = field(default_factory=dict)
    tables: dict[int, dict[tuple, Entry]] = field(default_factory=lambda: defaultdict(dict))
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lost: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    away: set[str] = field(default_factory=set)

    def __post_init__(self):
        self.names = {n.dpid: n.name for n in self.fabric.switches}

    def present(self) -> set[int]:
        return {dpid for dpid, name in self.names.items() if name not in self.away}

    def push(self, messages: Mapping[int, Sequence[bytes]], timeout_s: float) -> Push:
        """What a real push does, in no time but `clock.step`."""
        started, done, refused = self.clock.now(), {}, []
        for dpid, wires in messages.items():
            name = self.names[dpid]
            mood = "silent" if name in self.away else self.moods.get(name, "")
            if mood == "refusing":
                refused += [(dpid, i, "FLOW_MOD_FAILED, TABLE_FULL") for i in range(len(wires))]
            if mood != "silent":
                done[dpid] = started + self.clock.step
            if not mood:
                for wire in wires:
                    apply(self.tables[dpid], wire)
                self.sent[name] += len(wires)
        silent = tuple(sorted(set(messages) - set(done)))
        self.clock.sleep_until(started + (timeout_s if silent else self.clock.step))
        return Push(started, done, tuple(refused), silent)

    def read(self, dpids: Iterable[int], timeout_s: float) -> dict[int, Reading]:
        """The crossbars as they are."""
        return {
            dpid: Reading(
                {dict(e.match)["in_port"]: e.out for e in self.tables[dpid].values() if "in_port" in dict(e.match)},
                self.lost[dpid],
            )
            for dpid in dpids
            if self.moods.get(self.names[dpid]) != "silent" and self.names[dpid] not in self.away
        }

    def where_lost(self, src: str, dst: str, size_bytes: int = 100) -> str:
        """Send one IPv4 packet from host to host: '' when it arrives, else where it ended and why."""
        fields = {"eth_type": flowmods.IPV4, "src": self._ip(src), "dst": self._ip(dst)}
        port, seen = self.fabric.ports[src][0], set()
        while True:
            into = self.fabric.peer[port][1]
            if into.node == dst:
                return ""
            if into in seen or into.node not in self.fabric.node or self.fabric.node[into.node].kind == "host":
                return f"loop at {into}" if into in seen else f"delivered to {into}"
            seen.add(into)
            dpid = self.fabric.node[into.node].dpid
            entry = lookup(self.tables[dpid].values(), {**fields, "in_port": into.number})
            if entry is None or entry.out is None:
                self.lost[dpid] += size_bytes
                return f"dropped at {into}"
            if entry.out == flowmods.TO_CONTROLLER:
                return f"asks the controller at {into}"
            port = Port(into.node, entry.out)

    def _ip(self, host: str) -> str:
        return host_ip(self.fabric.hosts.index(host))


def lookup(entries: Iterable[Entry], packet: Mapping[str, int | str]) -> Entry | None:
    """The entry of highest priority that matches."""
    hits = [e for e in entries if all(packet.get(k) == v for k, v in e.match)]
    return max(hits, key=lambda e: e.priority, default=None)


def apply(table: dict[tuple, Entry], wire: bytes) -> None:
    """What a switch does with one flow-mod."""
    command, entry = decode(wire)
    if command == flowmods.ADD:
        table[entry.priority, entry.match] = entry
    elif command == flowmods.DELETE_STRICT:
        table.pop((entry.priority, entry.match), None)
    else:
        for key in [k for k, e in table.items() if set(entry.match) <= set(e.match)]:
            del table[key]


def decode(wire: bytes) -> tuple[int, Entry]:
    """The command and the entry of a flow-mod as `flowmods` packs it."""
    version, kind, size = struct.unpack_from("!BBH", wire)
    if (version, kind, size) != (flowmods.VERSION, flowmods.FLOW_MOD, len(wire)):
        raise ValueError(f"not one OpenFlow 1.3 flow-mod of {len(wire)} bytes: {wire[:8].hex()}")
    cookie, command, priority = struct.unpack_from("!Q9xB4xH", wire, 8)
    match_size = struct.unpack_from("!H", wire, 50)[0]
    rest = 48 + match_size + -match_size % 8
    out = struct.unpack_from("!I", wire, rest + 12)[0] if len(wire) > rest else None
    return command, Entry(priority, tuple(_fields(wire[52 : 48 + match_size])), out, cookie)


def _fields(data: bytes) -> Iterable[tuple[str, int | str]]:
    names = {flowmods.IN_PORT: "in_port", flowmods.ETH_TYPE: "eth_type", flowmods.IPV4_SRC: "src", flowmods.IPV4_DST: "dst"}
    while data:
        name, size = names[data[2] >> 1], data[3]
        value = data[4 : 4 + size]
        yield name, socket.inet_ntoa(value) if name in ("src", "dst") else int.from_bytes(value, "big")
        data = data[4 + size :]


def wall_clock_push(switches: FakeSwitches) -> FakeSwitches:
    """The same switches on the real clock, for a controller served over REST."""
    switches.clock = RealClock()
    return switches


class RealClock(FakeClock):
    """`FakeClock` that really sleeps."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, instant: float) -> None:
        time.sleep(max(0.0, instant - time.monotonic()))
