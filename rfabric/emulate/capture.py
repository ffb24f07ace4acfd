"""Packets at one node of an emulation, written as pcapng while it runs.

    mnexec -a PID python -m rfabric.emulate.capture h1.pcapng h1-eth0    a host, in its namespace
    python -m rfabric.emulate.capture e1.pcapng e1-eth1 e1-eth2 ...      a switch, all its ports

The first SNAP bytes of each packet, with its whole length, on the wall clock, which runs `time
dilation` times slower than what is emulated. It ends at SIGTERM, and then says how many packets
came too fast to be kept. One process has all ports of a switch, and one file: tcpdump would need a
process and a file a port.

Source of the blocks: draft-ietf-opsawg-pcapng.
"""

import contextlib
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import RunError
from ..fabric import Fabric

if TYPE_CHECKING:
    from .network import EmulatedNetwork
    from .sandbox import Sandbox

SNAP = 128  # bytes: Ethernet, IP and TCP with all their options
BUFFER = 32 << 20  # bytes of the kernel's queue
ETH_P_ALL = 3
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33  # asm-generic/socket.h
SOL_PACKET, PACKET_STATISTICS, PACKET_OUTGOING = 263, 6, 4  # linux/if_packet.h
SECTION, INTERFACE, PACKET, STATISTICS = 0x0A0D0D0A, 1, 6, 5
ETHERNET = 1  # LINKTYPE_ETHERNET
IF_NAME, IF_TSRESOL, EPB_FLAGS, ISB_IFRECV, ISB_IFDROP = 2, 9, 2, 4, 5
INBOUND, OUTBOUND = 1, 2
POLL_S = 0.1
END_S = 10.0  # s that what is queued may take to be written


def file_name(fabric: Fabric, policy: str, node: str) -> str:
    """What the capture of a node is called in the run folder."""
    words = f"{fabric.spec or fabric.name}-{policy}-{node}"
    return re.sub(r"[^A-Za-z0-9.=]+", "-", words) + ".pcapng"


# --- beside the emulation -------------------------------------------------------------------------


@contextlib.contextmanager
def captured(
    nodes: Sequence[str], box: "Sandbox", network: "EmulatedNetwork", folder: Path
) -> Iterator[list[str]]:
    """Captures at `nodes` to `folder`/NODE.pcapng; afterwards the list says what was lost."""
    notes: list[str] = []
    for node in nodes:
        _start(node, box, network, folder)
    for node in nodes:
        box.wait(_name(node), lambda node=node: bool(box.tail(_name(node))), END_S)
    try:
        yield notes
    finally:
        for node in nodes:
            box.children[_name(node)].terminate()
    for node in nodes:
        notes += _ended(node, box)


def _start(node: str, box: "Sandbox", network: "EmulatedNetwork", folder: Path) -> None:
    fabric = network.fabric
    ports = [port.interface for port in fabric.ports[node]]
    inside = (
        ["mnexec", "-a", str(network.mininet[node].pid)] if fabric.node[node].kind == "host" else []
    )
    argv = [*inside, sys.executable, "-m", "rfabric.emulate.capture",
            str(folder / f"{node}.pcapng"), *ports]  # fmt: skip
    box.start(_name(node), argv, os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])})


def _name(node: str) -> str:
    return f"capture-{node}"


def _ended(node: str, box: "Sandbox") -> list[str]:
    child = box.children.pop(_name(node))
    try:
        code = child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    said = box.tail(_name(node), 1).split()
    if code or said[0] != "captured":
        raise RunError(f"the capture at {node} ended with {code}: {box.tail(_name(node))}")
    kept, lost = map(int, said[1:])
    note = f"{node}: {kept} packets captured, their first {SNAP} bytes, on the wall clock"
    return [f"{note}; {lost} came too fast and were not kept" if lost else note]


# --- the process that captures --------------------------------------------------------------------


def main(path: str, *interfaces: str) -> None:
    """Capture until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    sockets = [_opened(name) for name in interfaces]
    ways = selectors.DefaultSelector()
    for number, sock in enumerate(sockets):
        ways.register(sock, selectors.EVENT_READ, number)
    with open(path, "wb", buffering=1 << 20) as file:
        file.write(section(interfaces))
        print("ready", flush=True)
        kept = 0
        while (some := ways.select(0 if ended else POLL_S)) or not ended:
            for key, _ in some:
                kept += _drain(key.fileobj, key.data, file)  # type: ignore[arg-type]
        lost = sum(_end(sock, number, file) for number, sock in enumerate(sockets))
    print("captured", kept, lost, flush=True)


def _opened(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind((interface, ETH_P_ALL))
    return sock


def _drain(sock: socket.socket, number: int, file: BinaryIO, most: int = 1000) -> int:
    """Write what is queued, `most` packets of it at once; how many."""
    room = bytearray(SNAP)
    for kept in range(most):
        try:
            size, said, _, address = sock.recvmsg_into([room], 64, socket.MSG_TRUNC)
        except BlockingIOError:
            return kept
        time = next((d for _, kind, d in said if kind == SO_TIMESTAMPNS), bytes(16))
        seconds, nanos = struct.unpack("qq", time)
        way = OUTBOUND if address[2] == PACKET_OUTGOING else INBOUND
        file.write(packet(number, seconds * 10**9 + nanos, room[:size], size, way))
    return most


def _end(sock: socket.socket, number: int, file: BinaryIO) -> int:
    """Write how many packets an interface had, and lost; the latter."""
    every, lost = struct.unpack("II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    counts = _option(ISB_IFRECV, struct.pack("<Q", every)) + _option(
        ISB_IFDROP, struct.pack("<Q", lost)
    )
    file.write(_block(STATISTICS, struct.pack("<III", number, 0, 0) + counts + _option(0, b"")))
    return lost


def section(interfaces: Sequence[str]) -> bytes:
    """The begin of a file: its byte order, and its interfaces, with times in ns."""
    head = _block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    return head + b"".join(
        _block(
            INTERFACE,
            struct.pack("<HHI", ETHERNET, 0, SNAP)
            + _option(IF_NAME, name.encode()) + _option(IF_TSRESOL, b"\x09") + _option(0, b""),
        )
        for name in interfaces
    )  # fmt: skip


def packet(interface: int, time: int, data: bytes, size: int, way: int) -> bytes:
    """A packet of `size` bytes at `time` ns, of which `data` was kept."""
    head = struct.pack("<IIIII", interface, time >> 32, time & 0xFFFFFFFF, len(data), size)
    flags = _option(EPB_FLAGS, struct.pack("<I", way)) + _option(0, b"")
    return _block(PACKET, head + _padded(data) + flags)


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def _option(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + _padded(data)


def _padded(data: bytes) -> bytes:
    return bytes(data) + bytes(-len(data) % 4)


if __name__ == "__main__":
    main(*sys.argv[1:])
