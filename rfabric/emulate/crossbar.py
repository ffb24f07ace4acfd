"""The light of emulated OCSes: what comes in at a port leaves by another, in the kernel.

    cable -> port o1-eth1 -- program at its entrance -> port o1-eth3 -> cable
                                  |
                  a row for each port, in memory shared with this process:
                  | where it leads | dark until | bytes that met the dark |

The program is eBPF, a filter at the ports' clsact queueing disciplines. It reads the row anew for
each packet and compares the clock itself, so light goes out and comes back to the microsecond,
however busy the host is. Open vSwitch has the ports too, for its tables and counters; it is made
deaf (`network`), and no packet reaches it. The filters go with the interfaces. (At TCX hooks a
program goes with its last descriptor, but for each of them the kernel waits for all processors:
some 40 ms a port on a busy host, which was half of the time to bring up a fabric.)

Sources: linux/bpf.h (the call, helpers, struct __sk_buff), kernel documentation, "eBPF Instruction
Set Specification", tc-bpf(8). Arrays that processes share came with Linux 5.5.
"""

import contextlib
import ctypes
import mmap
import os
import platform
import socket
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import RFabricError
from .sandbox import run

BPF_CALL = {"x86_64": 321, "aarch64": 280}  # the system call's number (asm/unistd.h)
MAP_CREATE, PROG_LOAD, OBJ_PIN = 0, 5, 6
ARRAY, MAPPED, CLASSIFIER = 2, 1 << 10, 3
LOOK_UP, NOW, REDIRECT = 1, 5, 23  # helpers
SIZE, INTERFACE = 0, 40  # offsets in struct __sk_buff
DROP = 2  # TC_ACT_SHOT
LICENSE = ctypes.create_string_buffer(b"Dual MIT/GPL")  # some helpers are for such programs alone

_libc = ctypes.CDLL(None, use_errno=True)


class PortRow(ctypes.Structure):
    """What the program knows of a port: the interface it leads to (0: none), the instant (ns of
    CLOCK_MONOTONIC) before which it is dark, and the bytes that were dropped.
    """

    _fields_ = [("out", ctypes.c_uint64), ("dark", ctypes.c_uint64), ("lost", ctypes.c_uint64)]


def program(rows: int) -> bytes:
    """The program for the rows of a map with this descriptor."""
    code = [  # operation, registers (source, destination), jump or offset, operand
        (0xBF, 0x16, 0, 0),  # r6 = packet
        (0x61, 0x12, INTERFACE, 0),  # r2 = packet.interface
        (0x63, 0x2A, -4, 0),  # stack = r2
        (0xBF, 0xA2, 0, 0),  # r2 = address of that
        (0x07, 0x02, 0, -4),
        (0x18, 0x11, 0, rows),  # r1 = rows, in two places
        (0x00, 0x00, 0, 0),
        (0x85, 0x00, 0, LOOK_UP),  # r0 = row
        (0x15, 0x00, 12, 0),  # none: drop
        (0xBF, 0x07, 0, 0),  # r7 = row
        (0x85, 0x00, 0, NOW),  # r0 = now
        (0x79, 0x71, PortRow.dark.offset, 0),  # r1 = row.dark
        (0xAD, 0x10, 5, 0),  # now < r1: dark
        (0x79, 0x71, PortRow.out.offset, 0),  # r1 = row.out
        (0x15, 0x01, 3, 0),  # it leads nowhere: dark
        (0xB7, 0x02, 0, 0),  # r2 = 0, out of the interface
        (0x85, 0x00, 0, REDIRECT),
        (0x95, 0x00, 0, 0),  # return what that says
        (0x61, 0x62, SIZE, 0),  # dark: r2 = packet.size
        (0xDB, 0x27, PortRow.lost.offset, 0),  # row.lost += r2, in one piece
        (0xB7, 0x00, 0, DROP),  # drop: r0 = DROP
        (0x95, 0x00, 0, 0),
    ]
    return b"".join(struct.pack("<BBhi", *one) for one in code)


class KernelCrossbar:
    """Programs at these interfaces of this network namespace, which has mounts of its own; all are
    dark at first. RFabricError where the kernel has no such programs, or does not let us.
    """

    def __init__(self, interfaces: Iterable[str]):
        self.index = {name: socket.if_nametoindex(name) for name in interfaces}
        self._fds: list[int] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        count, size = max(self.index.values()) + 1, ctypes.sizeof(PortRow)
        rows = self._kept(MAP_CREATE, struct.pack("5I", ARRAY, 4, size, count, MAPPED))
        self._rows = (PortRow * count).from_buffer(mmap.mmap(rows, count * size))
        self._ahead = _clock_ahead()
        code = ctypes.create_string_buffer(program(rows))
        load = struct.pack(
            "IIQQ", CLASSIFIER, (len(code) - 1) // 8, ctypes.addressof(code),
            ctypes.addressof(LICENSE),
        )  # fmt: skip
        with _named(self._kept(PROG_LOAD, load)) as file:
            moves = f"ingress bpf direct-action object-pinned {file}"
            self._tc("qdisc replace dev {} clsact", "filter add dev {} " + moves)

    def _kept(self, command: int, words: bytes) -> int:
        self._fds.append(_bpf(command, words))
        return self._fds[-1]

    def lead(self, interface: str, to: str | None) -> None:
        """What comes in at `interface` leaves by `to`, once it is not dark; None: nowhere."""
        self._row(interface).out = self.index[to] if to else 0

    def darken(self, interface: str, seconds: float) -> None:
        """Nothing passes from here on for so long, wherever it leads."""
        self._row(interface).dark = time.monotonic_ns() + self._ahead + round(seconds * 1e9)

    def lost(self, interface: str) -> int:
        """Bytes of frames that came in and met no light, ever."""
        return self._row(interface).lost

    def _tc(self, *commands: str) -> None:
        lines = [command.format(name) for name in self.index for command in commands]
        run(["tc", "-batch", "-"], "\n".join(lines) + "\n")

    def close(self) -> None:
        """Let go of program and rows: filters of them stay as they are."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _row(self, interface: str) -> PortRow:
        return self._rows[self.index[interface]]


def lacking() -> str:
    """Why there can be no crossbar here, '' where it can: tried on the loopback."""
    try:
        trial = KernelCrossbar(["lo"])
        trial.close()
        trial._tc("qdisc del dev {} clsact")
    except RFabricError as error:
        return str(error)
    return ""


def _bpf(command: int, words: bytes) -> int:
    """What bpf(2) answers to these words: a descriptor, where it makes something."""
    number = BPF_CALL.get(platform.machine())
    if number is None:
        raise RFabricError(f"no eBPF on {platform.machine()}; it is known on {', '.join(BPF_CALL)}")
    attr = ctypes.create_string_buffer(words, 128)
    fd = _libc.syscall(number, command, attr, len(attr))
    if fd < 0:
        why = os.strerror(ctypes.get_errno())
        raise RFabricError(f"bpf({command}): {why}; Linux 5.5 with CAP_BPF and CAP_NET_ADMIN can")
    return fd


@contextlib.contextmanager
def _named(program: int) -> Iterator[str]:
    """A file that is the program: `tc` takes no descriptors. It stands in the world's own folder,
    which goes with the world.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("OVS_RUNDIR")) as folder:
        run(["mount", "-t", "bpf", "bpf", folder])
        try:
            file = ctypes.create_string_buffer(os.fsencode(f"{folder}/light"))
            _bpf(OBJ_PIN, struct.pack("QI", ctypes.addressof(file), program))
            yield f"{folder}/light"
        finally:
            run(["umount", folder])


def _clock_ahead() -> int:
    """ns that the program's clock, the kernel's own, is ahead of ours: a namespace may differ."""
    try:
        text = Path("/proc/self/timens_offsets").read_text()
    except OSError:  # a kernel without such namespaces
        return 0
    seconds, ns = text.split("monotonic")[1].split()[:2]
    return -(int(seconds) * 10**9 + int(ns))
