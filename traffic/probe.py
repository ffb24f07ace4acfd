#!/usr/bin/env python3
"""How long is a path dark? Numbered packets through it at a small interval; the longest gap between
two that arrived is the answer.

    h1 --- probe.py send ---> t1 ... circuit ... t2 ---> probe.py listen --- h2
                               +--- the stream beside it, over packet switches alone ---> h3

    mnexec -a PID_OF_H2 python3 traffic/probe.py listen --interface h2-eth1 --seconds 5 &
    mnexec -a PID_OF_H1 python3 traffic/probe.py send --interface h1-eth1 --to-ip 10.0.0.2 --to-mac
    00:00:00:00:00:02

A program of its own: it shares neither code nor clock readings with the controller whose rewires it
judges. Each packet carries its number; the kernel stamps it where it is heard, however late this
program reads it. Where numbers are missing between two packets that arrived, the path was dark.
Heard right behind the circuit (at the packet switch that it ends at) a gap is what the circuit did;
heard further on it is also what other switches did with the last packet before it.

A gap is too long by what the host stood still around it. That tells the stream beside: the same
numbers, sent at the same time (`send --beside-ip, --beside-mac`) over a way that is never dark and
heard at another port (`listen --beside`). From the first to the last number that was lost, by its
packets, it was dark. So the dark lasted between `least_s`, give or take a packet of this stream and
`behind_s` (what was lost may have waited on its way to the circuit), and `to_s` - `from_s`.

The listener prints JSON:

    sent, received, lost, reordered  packets; `sent` is null when the sender's last word was lost as
                                     well
    interval_s                       mean time between arrivals: what was achieved, not what was
                                     asked for
    longest_gap_s                    the longest dark stretch, 0 where nothing was lost
    gaps                             [{from_s, to_s, lost}], in CLOCK_MONOTONIC seconds: comparable
                                     on one machine; with a stream beside also `least_s`,
                                     `silent_s`, the longest silence of that stream meanwhile, and
                                     `behind_s`, how much later than their twins beside the probes
                                     around the gap arrived

Needs root (raw sockets) and, to send, scapy.
"""

import argparse
import contextlib
import json
import selectors
import socket
import struct
import sys
import time
from itertools import pairwise

PORT = 47474  # UDP, in nobody's way
STAMP = struct.Struct("!4sQQ")  # magic, number, CLOCK_MONOTONIC nanoseconds when it was sent
MAGIC, BESIDE, END = b"rfpr", b"rfbs", b"rfen"
SO_TIMESTAMPNS = 35  # socket(7): the kernel stamps what comes in; Python has no name for it
KERNEL_TIME = struct.Struct("@qq")  # s and ns, CLOCK_REALTIME
HEAD = 14 + 20 + 8  # Ethernet, IPv4 without options, UDP
ALL = 0x0003  # ETH_P_ALL
FAREWELLS = 20  # the last word is said this often, 5 ms apart, in case the path is dark just then


def main() -> int:
    """Parse the arguments and probe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    roles = parser.add_subparsers(dest="role", required=True)
    sender = roles.add_parser("send", help="send probes")
    sender.add_argument("--to-ip", required=True, help="IPv4 address of the listening host")
    sender.add_argument("--to-mac", required=True, help="its MAC address")
    sender.add_argument(
        "--interval-ms",
        type=_positive,
        default=0.5,
        help="time between probes, default 0.5; less loads the host",
    )
    sender.add_argument("--beside-ip", help="the same for the stream beside")
    sender.add_argument("--beside-mac", help="its MAC address")
    listener = roles.add_parser("listen", help="listen for probes and print the JSON report")
    listener.add_argument("--beside", help="the interface where the stream beside is heard")
    for role in (sender, listener):
        role.add_argument("--interface", required=True, help="for example h1-eth1")
        role.add_argument("--seconds", type=_positive, default=3.0, help="how long, default 3")
    given = parser.parse_args()
    try:
        if given.role == "send":
            ends = [(given.to_ip, given.to_mac), (given.beside_ip, given.beside_mac)]
            frames = [build(given.interface, ip, mac) for ip, mac in ends if ip and mac]
            send(given.interface, frames, given.interval_ms / 1e3, given.seconds)
        else:
            print(json.dumps(report(*listen(given.interface, given.seconds, given.beside))))
    except (OSError, ImportError) as error:
        print(
            (
                f"probe: {given.interface}: {error}; it needs root, an interface of this "
                "namespace, and scapy"
            ),
            file=sys.stderr,
        )
        return 2
    return 0


def build(interface: str, to_ip: str, to_mac: str) -> bytearray:
    """One probe frame, made by scapy once; number and time are written into it for each sending."""
    from scapy.arch import get_if_addr, get_if_hwaddr
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    # 0: no checksum
    network = IP(src=get_if_addr(interface), dst=to_ip) / UDP(sport=PORT, dport=PORT, chksum=0)
    return bytearray(
        bytes(
            Ether(src=get_if_hwaddr(interface), dst=to_mac) / network / Raw(STAMP.pack(MAGIC, 0, 0))
        )
    )


def send(interface: str, frames: list[bytearray], interval: float, seconds: float) -> int:
    """Send a probe (the first frame; the second is the one beside) every `interval` s for `seconds`
    s, then the last word; returns how many were sent.
    """
    with _open(interface) as wire:
        began = due = time.monotonic()
        number = 0
        while due < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            for magic, frame in zip((MAGIC, BESIDE), frames, strict=False):
                STAMP.pack_into(frame, HEAD, magic, number, time.monotonic_ns())
                wire.send(frame)
            number += 1
            # a late sender does not catch up in a burst
            due = max(due + interval, time.monotonic())
        for _ in range(FAREWELLS):
            STAMP.pack_into(frames[0], HEAD, END, number, time.monotonic_ns())
            wire.send(frames[0])
            time.sleep(5e-3)
    return number


Heard = list[tuple[int, int]]  # (number, CLOCK_MONOTONIC ns when the kernel got it), as they came


def listen(
    interface: str, seconds: float, beside: str | None = None
) -> tuple[Heard, int | None, Heard | None]:
    """The probes heard, how many were sent if the last word arrived, and what was heard beside."""
    heard: dict[bytes, Heard] = {MAGIC: [], BESIDE: []}
    ears = {interface: (MAGIC, END)} | ({beside: (BESIDE,)} if beside else {})
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for ear, magics in ears.items():
            selector.register(stack.enter_context(_open(ear)), selectors.EVENT_READ, magics)
        limit, sent = time.monotonic() + seconds, None
        print("listening", file=sys.stderr, flush=True)
        while sent is None and (left := limit - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                probe, at = _receive(key.fileobj)
                if probe is None or probe[0] not in key.data:
                    continue
                if probe[0] == END:
                    sent = probe[1]
                else:
                    heard[probe[0]].append((probe[1], at))
    return heard[MAGIC], sent, heard[BESIDE] if beside else None


def _receive(wire: socket.socket) -> tuple[tuple[bytes, int, int] | None, int]:
    """One frame as a probe, and when the kernel got it, in ns of CLOCK_MONOTONIC."""
    frame, said, _, _ = wire.recvmsg(2048, socket.CMSG_SPACE(KERNEL_TIME.size))
    seconds, ns = KERNEL_TIME.unpack(said[0][2]) if said else divmod(time.time_ns(), 10**9)
    return parse(frame), seconds * 10**9 + ns - (time.time_ns() - time.monotonic_ns())


def parse(frame: bytes) -> tuple[bytes, int, int] | None:
    """(magic, number, sent at in ns) of a probe; None for any other frame."""
    if (
        len(frame) < HEAD + STAMP.size
        or frame[12:15] != b"\x08\x00\x45"
        or frame[23] != socket.IPPROTO_UDP
    ):
        return None
    stamp = STAMP.unpack_from(frame, HEAD)
    ours = struct.unpack_from("!H", frame, 36)[0] == PORT and stamp[0] in (MAGIC, BESIDE, END)
    return stamp if ours else None


def report(seen: Heard, sent: int | None, beside: Heard | None = None) -> dict:
    """What the listener heard, as the JSON of the docstring."""
    ordered = sorted(set(seen))
    gaps = [
        {"from_s": a_ns / 1e9, "to_s": b_ns / 1e9, "lost": b - a - 1}
        | _meanwhile((a, a_ns), (b, b_ns), beside)
        for (a, a_ns), (b, b_ns) in pairwise(ordered)
        if b - a > 1
    ]
    span = ordered[-1][0] - ordered[0][0] if ordered else 0
    return {
        "sent": sent,
        "received": len(ordered),
        "lost": sent - len(ordered) if sent is not None else sum(g["lost"] for g in gaps),
        "reordered": sum(b < a for (a, _), (b, _) in pairwise(seen)),
        "interval_s": (ordered[-1][1] - ordered[0][1]) / 1e9 / span if span else None,
        "longest_gap_s": max((g["to_s"] - g["from_s"] for g in gaps), default=0.0),
        "gaps": gaps,
    }


def _meanwhile(before: tuple[int, int], after: tuple[int, int], beside: Heard | None) -> dict:
    """What the stream beside says of the gap between two probes: nothing without one."""
    if beside is None:
        return {}
    during = sorted((n, ns) for n, ns in beside if before[0] <= n <= after[0])
    lost = [ns for n, ns in during if before[0] < n < after[0]]
    silences = [later - ns for (_, ns), (_, later) in pairwise(during)]
    # what came behind its twin may have waited for the circuit when that went dark
    behind = max(ns - dict(during).get(n, ns) for n, ns in (before, after))
    return {
        "least_s": max(lost[-1] - lost[0], 0) / 1e9 if lost else 0.0,
        "behind_s": max(behind, 0) / 1e9,
        "silent_s": max(silences, default=0) / 1e9,
    }


def _open(interface: str) -> socket.socket:
    """A raw socket on one interface of the namespace this program runs in."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    try:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        wire.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        wire.bind((interface, 0))
    except OSError:
        wire.close()
        raise
    return wire


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 and below 3600")
    return value


if __name__ == "__main__":
    sys.exit(main())
