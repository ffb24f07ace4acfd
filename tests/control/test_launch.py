"""The launcher: which app a fabric needs, why a controller cannot start, and how it greets."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from real import ROOT, RYU_PYTHON, WITHOUT_RYU, child, free_port, listens, until

from rfabric.control import launch
from rfabric.control.doorman import HELLO, Doorman, greet_once, server_at
from rfabric.control.launch import app_file, command


def test_the_launcher_picks_the_app_the_fabric_needs():
    assert app_file("rfabric,pods=2").endswith("controller/ocs.py") and app_file("").endswith(
        "controller/ocs.py"
    )
    assert app_file("fat-tree,k=4").endswith("controller/ecmp.py")
    options = [
        "--topo",
        "rfabric,pods=2",
        "--port",
        "8181",
        "--sdn",
        "os-ken",
        "--ofp-port",
        "6653",
    ]
    argv = command("rfabric,pods=2", port=8181, sdn="os-ken")
    assert argv == [sys.executable, "-m", "rfabric.control", *options]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topo", "nowhere"], "no fabric named 'nowhere'"),
        (["/nowhere/app.py"], "controller app /nowhere/app.py: no such file or module"),
        (["--port", "70000"], "RFABRIC_REST_PORT='70000': choose a port from 1 to 65535"),
        (
            ["--topo", "rfabric,pods=1", str(ROOT / "controller/ecmp.py")],
            "has optical switches; run controller/ocs.py",
        ),
    ],
)
def test_a_controller_that_cannot_start_says_why(options, text):
    argv = [*command(), *options, "--ofp-port", str(free_port())]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and text in ran.stderr and "Traceback" not in ran.stderr, ran.stderr


@pytest.mark.parametrize("sdn", [pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"])
def test_the_hello_is_text_to_mininet(sdn, tmp_path):
    """Mininet 2.3 looks for a controller with telnet: it fails on what is not UTF-8, and waits for
    ever after a byte 1.
    """
    port, rest = free_port(), free_port()
    with child(
        command("rfabric,pods=1", port=rest, sdn=sdn, ofp_port=port), tmp_path / "control.out"
    ) as controller:
        until(lambda: listens(port) or controller.poll() is not None, "the controller to listen")
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as telnet:
                heard = telnet.recv(64)
                assert (
                    heard.startswith(b"\x04\x00\x00\x08\x00\x00\x00 ")
                    and max(heard) < 127
                    and 1 not in heard
                )


# a Python of the framework that takes its time; no shell, as dash lets blocked signals through
SLOW = """#!{here} -S
import os, sys, time
while not os.path.exists("go"):
    time.sleep(0.05)
del os.environ["RFABRIC_CONTROL_PYTHON"]
os.execv("{python}", ["{python}", *sys.argv[1:]])
"""


@pytest.fixture(params=[pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"])
def loading(request, tmp_path, monkeypatch):
    """A controller that listens, its port, and what lets its framework load."""
    monkeypatch.chdir(tmp_path)
    slow, port, sdn = tmp_path / "python", free_port(), request.param
    python = RYU_PYTHON if sdn == "ryu" else sys.executable
    slow.write_text(SLOW.format(here=sys.executable, python=python))
    slow.chmod(0o755)
    words = command("rfabric,pods=1", port=free_port(), sdn=sdn, ofp_port=port, journal="none")
    around = {"RFABRIC_CONTROL_PYTHON": str(slow), "PYTHONPATH": str(ROOT)}
    heeding = ["env", "--default-signal=INT"]  # which background jobs ignore
    with child([*heeding, *words], tmp_path / "control.out", **around) as controller:
        until(lambda: listens(port) or controller.poll() is not None, "the controller to listen")
        yield controller, port, tmp_path / "go"


def test_a_switch_is_let_in_while_the_framework_loads(loading):
    """Open vSwitch asks once a second."""
    _, port, go = loading
    with socket.create_connection(("127.0.0.1", port), timeout=20) as switch:
        go.touch()
        assert switch.recv(2)[:2] == b"\x04\x00"  # HELLO of OpenFlow 1.3


def test_told_to_stop_while_the_framework_loads_it_does_without_a_word(loading, tmp_path):
    controller, _, go = loading
    words = Path(f"/proc/{controller.pid}/cmdline")  # none while one program takes another's place
    until(lambda: "python" in "".join(words.read_text().split("\0")[2:3]), "the other Python")
    controller.send_signal(signal.SIGINT)
    go.touch()
    assert controller.wait(20) == 0
    assert (tmp_path / "control.out").read_text() == ""


def at_door():
    """A listener with a doorman, and how to come."""
    listener = socket.create_server(("127.0.0.1", 0))
    where = listener.getsockname()
    return listener, Doorman(listener), lambda: socket.create_connection(where, timeout=10)


def test_who_comes_early_is_greeted_once_and_handed_over(monkeypatch):
    listener, doorman, come = at_door()
    early = [come() for _ in range(3)]
    assert [one.recv(99) for one in early] == [HELLO] * 3
    come().close()  # and is gone before anybody looks
    until(lambda: len(doorman.greeted) == 4, "the doorman to greet all")
    served, late = [], socket.socket()

    def spawn(handle, connection, peer):
        served.append((connection, peer))
        if len(served) == 4:
            late.connect(listening)
        if len(served) == 5:
            raise InterruptedError

    listening = listener.getsockname()
    monkeypatch.setattr(launch.seam, "hub_module", lambda name: socket)
    stack = SimpleNamespace(hub=SimpleNamespace(spawn=spawn))
    monkeypatch.setattr(launch.seam, "framework", lambda: stack)
    with pytest.raises(InterruptedError):
        server_at(listener, doorman)(None, None).serve_forever()
    assert [peer for _, peer in served[:3]] == [one.getsockname() for one in early]
    assert served[4][1] == late.getsockname() and served[4][1] not in doorman.greeted
    said = []

    class Datapath:
        ofproto = SimpleNamespace(OFPT_HELLO=0)

        def __init__(self, address):
            self.address = address

        def send_msg(self, msg, close_socket=False):
            said.append((self.address, msg.cls_msg_type))
            return True

    greet_once(Datapath, doorman)
    first, second = served[0][1], served[4][1]
    for peer, kind in ((first, 0), (first, 5), (first, 0), (second, 0)):
        assert Datapath(peer).send_msg(SimpleNamespace(cls_msg_type=kind))
    assert said == [(first, 5), (first, 0), (second, 0)]
    for one in (*early, late, *(connection for connection, _ in served)):
        one.close()


@pytest.mark.parametrize(
    ("app", "tls", "greets"),
    [("ocs.py", "", True), ("ecmp.py", "", True), ("ocs.py", "cert=a,key=b", False)],
)
def test_hello_is_said_early_by_our_own_apps_alone_and_not_inside_tls(
    app, tls, greets, monkeypatch, tmp_path
):
    """A user's app may speak another OpenFlow."""
    monkeypatch.setattr(launch.os, "environ", {"RFABRIC_OFP_TLS": tls})
    assert launch._speaks_plainly([str(ROOT / "controller" / app)]) is greets
    assert not launch._speaks_plainly([str(tmp_path / app)])
