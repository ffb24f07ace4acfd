"""How long light is away, as root: frames through OCSes, stamped by the kernel.

Inside a world this file runs itself, as `test_emulate_wire` does.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rfabric.emulate import network, sandbox
from rfabric.emulate.crossbar import KernelCrossbar, lacking
from rfabric.emulate.drills import RATE, rewire
from rfabric.emulate.live import live
from rfabric.fabric import Port, rfabric

REWIRES, EVERY_S = 30, 5e-5
LIMIT = 120.0  # s after which a world that hangs is ended
HEAD = b"\xff" * 6 + bytes(6) + network.EXPERIMENTAL
EVERY_PROTOCOL, SO_TIMESTAMPNS, OUTGOING = 3, 35, 4  # linux/if_ether.h, socket.h, if_packet.h


# --- inside a world -------------------------------------------------------------------------------


class Ear:
    """The numbers of the frames that come in at an interface, and when (s), by the kernel."""

    def __init__(self, interface):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, network.SO_RCVBUFFORCE, 1 << 26)
        self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.sock.bind((interface, EVERY_PROTOCOL))

    def heard(self):
        stamps = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, ((_, _, stamp),), _, address = self.sock.recvmsg(64, 64)
                if address[2] != OUTGOING and frame[:14] == HEAD:
                    seconds, ns = struct.unpack("qq", stamp)
                    stamps[struct.unpack_from("!Q", frame, 14)[0]] = seconds + ns / 1e9
        return stamps


def mouth(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((interface, EVERY_PROTOCOL))
    return lambda number: sock.send(HEAD + struct.pack("!Q38x", number))


@contextlib.contextmanager
def sending(interface):
    """A frame every EVERY_S, by a process of its own."""
    if not (pid := os.fork()):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        send, number = mouth(interface), 0
        while True:
            send(number)
            number += 1
            time.sleep(EVERY_S)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def dark(run_dir):
    """Of each rewire of 8 hosts, the least and the most s that an in-port was dark; the circuits
    that are lit after them, by the switches and by the light.
    """
    fabric = rfabric(pods=2, tors=2, gpus=2)

    def peer(port):
        return fabric.peer[port][1].interface

    with live(run_dir, fabric, RATE) as up:
        if up.network.unlit:
            return {"lacking": up.network.unlit}
        port = min(end for circuit in up.rest.circuits() for end in circuit)
        others = [other for other in fabric.ports[port.node] if other != port]
        with sending(peer(port)):
            spans = [spanned(Ear(port.interface), [Ear(peer(o)) for o in others], up)
                     for _ in range(REWIRES)]  # fmt: skip
        light = [one for ocs in fabric.ocses for one in lit(fabric.ports[ocs.name], peer)]
        switches = [list(map(str, ends)) for one in up.lit() for ends in (one, one[::-1])]
        delay = fabric.reconfig_delay
    return {"spans": spans, "delay": delay, "light": light, "switches": switches}


def spanned(entrance, exits, up):
    """Least and most s for which what entered during a rewire did not come out."""
    time.sleep(0.005)
    rewire(up)
    time.sleep(0.005)
    entered = entrance.heard()
    time.sleep(0.01)
    passed = sorted({n for ear in exits for n in ear.heard()} & entered.keys())
    before, after = max(zip(passed, passed[1:], strict=False), key=lambda two: two[1] - two[0])
    inside = [entered[n] for n in range(before + 1, after) if n in entered]
    return inside[-1] - inside[0], entered[after] - entered[before]


def lit(ports, peer):
    """(in-port, out-port) of all ways that a frame takes through an OCS."""
    ears = {port: Ear(peer(port)) for port in ports}
    for port in ports:
        mouth(peer(port))(port.number)
    time.sleep(0.05)
    return [[str(Port(out.node, n)), str(out)] for out, ear in ears.items() for n in ear.heard()]


def killed(run_dir):
    """What comes in at a port with a program, before and after who had it was killed; or why there
    are no programs here.
    """
    if why := lacking():
        return {"lacking": why}
    for pair in ("a", "b"):
        sandbox.run(["ip", "link", "add", "name", pair, "type", "veth", "peer", "name", f"{pair}0"])
        for end in (pair, f"{pair}0"):
            sandbox.run(["ip", "link", "set", "dev", end, "up"])
    mine, other, said = own(), Ear("b"), os.pipe()
    if not (pid := os.fork()):
        light = KernelCrossbar(["a0", "b0"])
        light.lead("a0", "b0")
        os.write(said[1], b"1")
        signal.pause()
    os.read(said[0], 1)
    counts = [counted(mine, other)]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return [*counts, counted(mine, other)]


def own():
    """What the stack behind the program gets: taps of all protocols come before it."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    sock.bind(("a0", int.from_bytes(network.EXPERIMENTAL, "big")))
    return sock


def counted(mine, other):
    """How many frames come out at b of one that goes into a, and whether the stack gets it."""
    mouth("a")(1)
    time.sleep(0.2)
    count = len(other.heard())
    with contextlib.suppress(BlockingIOError):
        return [count, len(mine.recv(64)) > 0]
    return [count, False]


# --- outside --------------------------------------------------------------------------------------


def world(run_dir, scenario, **surroundings):
    process = sandbox.launch(
        [sys.executable, __file__, scenario, str(run_dir)], run_dir, os.environ | surroundings,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        sandbox.end(process, run_dir)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.root
@pytest.mark.parametrize("sdn", ["", "os-ken"])
def test_dark_lasts_as_configured_and_light_is_what_the_switches_hold(run_dir, sdn):
    if sdn and find_spec("os_ken") is None:
        pytest.skip("no os-ken")
    told = world(run_dir, "dark", RFABRIC_SDN=sdn)
    if "lacking" in told:
        pytest.skip(told["lacking"])
    least, most = np.array(told["spans"]).T
    assert len(most) == REWIRES
    assert most.min() >= told["delay"], "dark for less than configured"
    assert np.percentile(least, 95) <= told["delay"] + 1e-3, least
    assert sorted(told["light"]) == sorted(told["switches"]) != []


@pytest.mark.root
@pytest.mark.beside
def test_mirrors_stay_where_they_are_when_who_moves_them_is_killed(run_dir):
    told = world(run_dir, "killed")
    if "lacking" in told:
        pytest.skip(told["lacking"])
    assert told == [[1, False]] * 2


if __name__ == "__main__":
    print(json.dumps({"dark": dark, "killed": killed}[sys.argv[1]](Path(sys.argv[2]))), flush=True)
