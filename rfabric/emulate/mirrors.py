"""The mirrors of emulated OCSes: between each OCS's switch and the controller they hear what is
ordered, and move the light.

    Open vSwitch, bridge o1 <-- OpenFlow --> mirrors <-- OpenFlow --> controller
    (tables, counters)                          |
                                           `KernelCrossbar`: light in the kernel

A process of its own, started with the network: `python -m rfabric.emulate.mirrors FILE`. What the
controller orders they carry out at once and hand on: a rule of a circuit is light, a rule struck is
dark. MOVE (`control.flowmods`) is theirs alone: the ports go dark for as long as it says, and what
is lit meanwhile shines after that. The next barrier is theirs to answer too: the light has moved,
the tables follow and are read back. What a switch says it holds when asked for all, as it is
whenever it has connected, counts: so they agree again whatever befell it or the controller.
"""

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..control import flowmods
from ..control.flowmods import Entry
from .crossbar import KernelCrossbar

ALL_FLOWS = flowmods.ask_flows()[8:]
CONNECT_S = 5.0  # s the controller may take to accept; the switch tries again
HEAD, CHUNK = 8, 1 << 16  # bytes
# OpenFlow 1.3 (ONF TS-006), A.1
ERROR, FEATURES_REPLY, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 1, 6, 19, 20, 21
MORE = 1  # OFPMPF_REPLY_MORE


class Mirrors:
    """Of one OCS with these interfaces, by port number."""

    def __init__(self, ports: Mapping[int, str], crossbar: KernelCrossbar):
        self.ports, self.crossbar = ports, crossbar

    def move(self, ports: Iterable[int], dark: float) -> None:
        """These ports are dark for so many s, and longer where nothing tells them where to lead."""
        for port in ports:
            self.crossbar.lead(self.ports[port], None)
            self.crossbar.darken(self.ports[port], dark)

    def take(self, command: int, entry: Entry) -> None:
        """Do what a flow-mod says."""
        if command == flowmods.DELETE:
            self.show(())
        elif (port := dict(entry.match).get("in_port")) in self.ports:
            self._lead(port, entry.out if command == flowmods.ADD else None)

    def show(self, entries: Iterable[Entry]) -> None:
        """Exactly what a switch with these entries would do."""
        leads = {dict(entry.match).get("in_port"): entry.out for entry in entries}
        for port in self.ports:
            self._lead(port, leads.get(port))

    def lost(self) -> bytes:
        """What met the dark, as a message."""
        lost = self.crossbar.lost
        return flowmods.lost({port: lost(name) for port, name in self.ports.items()})

    def _lead(self, port: int, out: int | None) -> None:
        self.crossbar.lead(self.ports[port], self.ports[out] if out else None)


class SwitchConnection:
    """One connection of a switch: what goes where. `ocses`: mirrors by datapath id."""

    def __init__(self, ocses: Mapping[int, Mirrors]):
        self.ocses = ocses
        self.mirrors: Mirrors | None = None  # until it has said who it is
        self.moved = False  # since the last barrier: the next is the mirrors' to answer
        self.asked: bytes | None = None  # of the question for all that it holds
        self.held: list[Entry] = []  # what it has answered

    def ordered(self, message: bytes) -> tuple[bytes, bytes]:
        """Of what the controller sent: what goes on to the switch, and what back."""
        kind, xid = message[1], message[4:HEAD]
        if flowmods.is_move(message):
            self.moved = True
            before = self.mirrors.lost()
            self.mirrors.move(*flowmods.decode_move(message))
            return b"", before
        if kind == BARRIER_REQUEST and self.moved:
            self.moved = False
            return b"", message[:1] + bytes([BARRIER_REPLY]) + message[2:]
        if kind == flowmods.FLOW_MOD:
            self.asked = None  # what is told from here on may be older
            self.mirrors.take(*flowmods.decode(message))
        elif message[HEAD:] == ALL_FLOWS:
            self.asked, self.held = xid, []
        return message, b""

    def told(self, message: bytes) -> tuple[bytes, bytes]:
        """Of what the switch sent: what goes on to the controller, and what back."""
        kind, xid = message[1], message[4:HEAD]
        if kind == FEATURES_REPLY:
            self.mirrors = self.ocses[int.from_bytes(message[HEAD : HEAD + 8], "big")]
            return message + self.mirrors.lost(), b""
        if kind == ERROR and (entry := flowmods.refused(message)):
            self.mirrors.take(flowmods.DELETE_STRICT, entry)
        elif kind == MULTIPART_REPLY and xid == self.asked:
            self.held += flowmods.entries_of(message)
            if not message[HEAD + 3] & MORE:
                self.mirrors.show(self.held)
        return message, b""


async def join(
    ocses: Mapping[int, Mirrors],
    port: int,
    orders: asyncio.StreamReader,
    switch: asyncio.StreamWriter,
) -> None:
    """Hand on what a switch and the controller at `port` say, until either has gone."""
    with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError), contextlib.closing(switch):
        calling = asyncio.open_connection("127.0.0.1", port)
        answers, controller = await asyncio.wait_for(calling, CONNECT_S)
        with contextlib.closing(controller):
            line = SwitchConnection(ocses)
            await asyncio.gather(
                _hand_on(orders, line.told, controller, switch),
                _hand_on(answers, line.ordered, switch, controller),
            )


async def _hand_on(
    heard: asyncio.StreamReader,
    hear: Callable[[bytes], tuple[bytes, bytes]],
    to: asyncio.StreamWriter,
    back: asyncio.StreamWriter,
) -> None:
    """All messages that have come, at one go; who does not read is not heard either."""
    rest = b""
    while data := await heard.read(CHUNK):
        whole, rest = _split(rest + data)
        heard_on = [hear(message) for message in whole]
        to.write(b"".join(on for on, _ in heard_on))
        back.write(b"".join(answer for _, answer in heard_on))
        await to.drain()
        await back.drain()
    raise EOFError


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages at its head, and the rest."""
    whole, at = [], 0
    while len(data) >= at + HEAD:
        end = at + max(int.from_bytes(data[at + 2 : at + 4], "big"), HEAD)
        if end > len(data):
            break
        whole.append(data[at:end])
        at = end
    return whole, data[at:]


async def serve(ocses: Mapping[int, Mirrors], controllers: Mapping[int, int]) -> None:
    """Take connections of switches for ever: at each port those for the controller at another."""
    async with contextlib.AsyncExitStack() as stack:
        for port, controller in controllers.items():
            joined = functools.partial(join, ocses, controller)
            await stack.enter_async_context(await asyncio.start_server(joined, "127.0.0.1", port))
        await asyncio.Event().wait()


def main(file: str) -> None:
    """Serve the OCSes that a file tells of: interfaces by port number, by datapath id."""
    told = json.loads(Path(file).read_text())
    ocses = {int(d): {int(n): i for n, i in ports.items()} for d, ports in told["ocses"].items()}
    crossbar = KernelCrossbar(name for ports in ocses.values() for name in ports.values())
    mirrors = {dpid: Mirrors(ports, crossbar) for dpid, ports in ocses.items()}
    with contextlib.suppress(OSError):  # where the host does not allow it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    asyncio.run(serve(mirrors, {int(at): to for at, to in told["controllers"].items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
