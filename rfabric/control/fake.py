"""In-memory switches that read the same OpenFlow bytes as real ones and answer: where does this
packet go?

For tests of the controller without root, and for trying a policy on a laptop. A switch can be told
to misbehave:
`silent` takes nothing and answers nothing, `refusing` answers with errors, `forgetful` takes
everything and then holds nothing new.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..fabric import Fabric, Port, host_ip
from ..routing import walk
from . import flowmods
from .flowmods import Entry, decode
from .seam import Push
from .switches import HeldFlows


@dataclass
class FakeClock:
    """A clock that stands still until somebody sleeps; each push costs `step` s."""

    at: float = 0.0
    step: float = 0.0

    def now(self) -> float:
        """s; it is as late as somebody has slept."""
        return self.at

    def sleep_until(self, instant: float) -> None:
        """It is `instant` (s) at once; an instant that has passed changes nothing."""
        self.at = max(self.at, instant)


@dataclass
class FakeSwitches:
    """All switches of a fabric.

    `sent` counts the flow-mods each has taken, `arrived` the bytes at each port. `timed`: of OCSes
    that time their dark themselves, the ports that went dark, for how many s, and when.
    """

    fabric: Fabric
    clock: FakeClock = field(default_factory=FakeClock)
    moods: dict[str, str] = field(default_factory=dict)
    tables: dict[int, dict[tuple, Entry]] = field(default_factory=lambda: defaultdict(dict))
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    arrived: dict[Port, int] = field(default_factory=lambda: defaultdict(int))
    counted: dict[int, dict[int, int]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    timed: dict[str, list[tuple[tuple[int, ...], float, float]]] = field(default_factory=dict)

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
                self._take(dpid, wires)
        silent = tuple(sorted(set(messages) - set(done)))
        self.clock.sleep_until(started + (timeout_s if silent else self.clock.step))
        return Push(started, done, tuple(refused), silent)

    def flows(self, asked: Mapping[int, Sequence[bytes]], timeout_s: float) -> dict[int, HeldFlows]:
        """What they hold of what they are asked for; nothing of those that are silent."""
        return {
            d: {
                key: entry
                for key, entry in self.tables[d].items()
                if any(flowmods.asks_for(request, entry) for request in requests)
            }
            for d, requests in asked.items()
            if self.names[d] not in self.away and self.moods.get(self.names[d]) != "silent"
        }

    def received(self, dpid: int) -> Mapping[int, int]:
        """Bytes by port, as they were counted last."""
        return self.counted.get(dpid, {})

    def lost(self, dpid: int) -> Mapping[int, int] | None:
        """No bytes, of an OCS that times its dark itself."""
        return {} if self.names[dpid] in self.timed else None

    def where_lost(self, src: str, dst: str, size_bytes: int = 100) -> str:
        """Send one IPv4 packet from host to host: '' when it arrives, else where it ended and
        why.
        """
        return self.way(src, dst, size_bytes)[1]

    def way(
        self, src: str, dst: str, size_bytes: int = 100, begun: Sequence[int] = ()
    ) -> tuple[list[int], str]:
        """The ports by which such a packet leaves switch after switch, once it has left the first
        by those of `begun`; and `where_lost`.
        """
        outs: list[int] = []
        fields = {"eth_type": flowmods.IPV4, "src": self._ip(src), "dst": self._ip(dst)}

        def leads(into: Port) -> int | str:
            self.arrived[into] += size_bytes
            table = self.tables[self.fabric.node[into.node].dpid].values()
            entry = lookup(table, {**fields, "in_port": into.number})
            if entry is None or entry.out is None:
                return "dropped"
            if entry.out == flowmods.TO_CONTROLLER:
                return "asks the controller"
            outs.append(entry.out)
            return entry.out

        return outs, walk(self.fabric, src, dst, leads, begun)

    def _take(self, dpid: int, wires: Sequence[bytes]) -> None:
        name = self.names[dpid]
        for wire in wires:
            if wire == flowmods.count_ports():
                self.counted[dpid] = {p.number: self.arrived[p] for p in self.fabric.ports[name]}
            elif flowmods.is_move(wire):
                self.timed[name].append((*flowmods.decode_move(wire), self.clock.now()))
            else:
                apply(self.tables[dpid], wire)
                self.sent[name] += 1

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
        table[entry.key] = entry
    elif command == flowmods.DELETE_STRICT:
        table.pop(entry.key, None)
    else:
        for key in [k for k, e in table.items() if set(entry.match) <= set(e.match)]:
            del table[key]
