#!/usr/bin/env python3
"""How long is a path dark? Numbered, timestamped packets through it at a small interval; the
longest gap is the answer.

    h1 --- probe.py send ---> t1 ... circuit ... t2 ---> probe.py listen --- h2

    mnexec -a PID_OF_H2 python3 traffic/probe.py listen --interface h2-eth1 --seconds 5 &
    mnexec -a PID_OF_H1 python3 traffic/probe.py send --interface h1-eth1 --to-ip 10.0.0.2 --to-mac
    00:00:00:00:00:02

A program of its own: it shares neither code nor clock readings with the controller whose rewires it
judges. Each packet carries its number and the CLOCK_MONOTONIC instant it was sent. Where numbers
are missing between two packets that arrived, the path was dark between their sending; the
resolution is the interval. The listener prints JSON:

    sent, received, lost, reordered  packets; `sent` is null when the sender's last word was lost as
                                     well
    interval_s                       mean time between sendings: what was achieved, not what was
                                     asked for
    longest_gap_s                    the longest dark stretch, 0 where nothing was lost
    gaps                             [{from_s, to_s, lost}], in CLOCK_MONOTONIC seconds: comparable
                                     on one machine

Needs root (raw sockets) and, to send, scapy.
"""

import argparse
import json
import socket
import struct
import sys
import time

PORT = 47474  # UDP, in nobody's way
STAMP = struct.Struct("!4sQQ")  # magic, number, CLOCK_MONOTONIC nanoseconds
MAGIC, END = b"rfpr", b"rfen"
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
        help=("time between probes, default 0.5; less loads the host"),
    )
    listener = roles.add_parser("listen", help="listen for probes and print the JSON report")
    for role in (sender, listener):
        role.add_argument("--interface", required=True, help="for example h1-eth1")
        role.add_argument("--seconds", type=_positive, default=3.0, help="how long, default 3")
    given = parser.parse_args()
    try:
        if given.role == "send":
            frame = build(given.interface, given.to_ip, given.to_mac)
            send(given.interface, frame, given.interval_ms / 1e3, given.seconds)
        else:
            print(json.dumps(report(listen(given.interface, given.seconds))))
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


def send(interface: str, frame: bytearray, interval: float, seconds: float) -> int:
    """Send a probe every `interval` s for `seconds` s, then the last word; returns how many were
    sent.
    """
    with _open(interface) as wire:
        began = due = time.monotonic()
        number = 0
        while due < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            STAMP.pack_into(frame, HEAD, MAGIC, number, time.monotonic_ns())
            wire.send(frame)
            number += 1
            # a late sender does not catch up in a burst
            due = max(due + interval, time.monotonic())
        for _ in range(FAREWELLS):
            STAMP.pack_into(frame, HEAD, END, number, time.monotonic_ns())
            wire.send(frame)
            time.sleep(5e-3)
    return number


def listen(interface: str, seconds: float) -> tuple[list[tuple[int, int]], int | None]:
    """(number, sent at, ns) of the probes in order of arrival, and how many were sent if the last
    word arrived.
    """
    seen: list[tuple[int, int]] = []
    with _open(interface) as wire:
        limit = time.monotonic() + seconds
        print("listening", file=sys.stderr, flush=True)
        while (left := limit - time.monotonic()) > 0:
            wire.settimeout(left)
            try:
                frame = wire.recv(2048)
            except TimeoutError:
                break
            found = parse(frame)
            if found is None:
                continue
            magic, number, sent_ns = found
            if magic == END:
                return seen, number
            seen.append((number, sent_ns))
    return seen, None


def parse(frame: bytes) -> tuple[bytes, int, int] | None:
    """(magic, number, sent at in ns) of a probe; None for any other frame."""
    if (
        len(frame) < HEAD + STAMP.size
        or frame[12:15] != b"\x08\x00\x45"
        or frame[23] != socket.IPPROTO_UDP
    ):
        return None
    stamp = STAMP.unpack_from(frame, HEAD)
    ours = struct.unpack_from("!H", frame, 36)[0] == PORT and stamp[0] in (MAGIC, END)
    return stamp if ours else None


def report(heard: tuple[list[tuple[int, int]], int | None]) -> dict:
    """What the listener heard, as the JSON of the docstring."""
    seen, sent = heard
    ordered = sorted(set(seen))
    gaps = [
        {"from_s": a_ns / 1e9, "to_s": b_ns / 1e9, "lost": b - a - 1}
        for (a, a_ns), (b, b_ns) in zip(ordered, ordered[1:], strict=False)
        if b - a > 1
    ]
    span = ordered[-1][0] - ordered[0][0] if ordered else 0
    return {
        "sent": sent,
        "received": len(ordered),
        "lost": sent - len(ordered) if sent is not None else sum(g["lost"] for g in gaps),
        "reordered": sum(b < a for (a, _), (b, _) in zip(seen, seen[1:], strict=False)),
        "interval_s": (ordered[-1][1] - ordered[0][1]) / 1e9 / span if span else None,
        "longest_gap_s": max((g["to_s"] - g["from_s"] for g in gaps), default=0.0),
        "gaps": gaps,
    }


def _open(interface: str) -> socket.socket:
    """A raw socket on one interface of the namespace this program runs in."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    try:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
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
