"""The seam under Ryu 4.34 and os-ken on both its hubs: real controllers, switches of threads."""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from real import NAMESPACE, RYU_PYTHON, WITHOUT_RYU, free_port, listens, private_ovs, until

from rfabric.control import launch, seam
from rfabric.errors import RFabricError

LAUNCH = (
    "import sys; from rfabric.control.launch import run_apps as run; "
    "run([sys.argv[1]], port=int(sys.argv[2]))"
)

APP = """
import json, os
from http.server import BaseHTTPRequestHandler
from rfabric.control import seam
from rfabric.errors import RunError


class Small(seam.App):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []
        seam.serve_http(Rest, self, port=int(os.environ["REST_PORT"]))

    def switch_up(self, dpid):
        self.call(lambda: self.seen.append(f"up {dpid}"))  # already in the event loop: runs at once

    def switch_down(self, dpid):
        self.seen.append(f"down {dpid}")

    def push_rules(self, dpids, rules, timeout_s):
        of, make = seam.offline(), seam.parser
        wires = [
            seam.wire(make.OFPFlowMod(of, match=make.OFPMatch(in_port=n), priority=n, instructions=[
                make.OFPInstructionActions(
                    of.ofproto.OFPIT_APPLY_ACTIONS, [make.OFPActionOutput(n + 1)])]))
            for n in range(1, rules + 1)
        ]
        push = self.push({dpid: wires for dpid in dpids}, timeout_s)
        return {"ok": push.ok, "text": str(push), "refused": push.refused, "silent": push.silent,
                "seconds": push.programmed_s - push.started_s}

    def answer(self, ask):
        what, t = ask.pop("what"), ask.get("timeout_s", 5.0)
        if what == "version":
            return seam.version()
        if what == "switches":
            return self.call(lambda: sorted(self.switches))
        if what == "seen":
            return self.call(lambda: list(self.seen))
        if what == "raise":
            return self.call(lambda: [][1])
        if what == "mark":
            return self.call(lambda: self.seen.append("mark"), t)
        if what == "nap":
            return self.call(lambda: seam.hub.sleep(ask["seconds"]), t)
        if what == "push inside":
            return self.call(lambda: self.push({}))
        return self.push_rules(ask["dpids"], ask["rules"], t)


class Rest(BaseHTTPRequestHandler):
    def do_POST(self):
        ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            body = {"result": self.server.answer(ask)}
        except (RunError, IndexError) as error:
            body = {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass
"""


class FakeSwitch:
    """A switch of OpenFlow 1.3: `willing`, `refusing` (table full), `silent` or `closing` at a
    barrier.
    """

    def __init__(self, port: int, dpid: int, mood: str = "willing"):
        self.dpid, self.mood, self.rules = dpid, mood, []
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def send(self, kind: int, xid: int, body: bytes = b"") -> None:
        self.socket.sendall(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)

    def serve(self) -> None:
        with contextlib.suppress(OSError), self.socket.makefile("rb") as stream:
            self.send(0, 0)  # HELLO
            while head := stream.read(8):
                _, kind, size, xid = struct.unpack("!BBHI", head)
                self.handle(kind, xid, head + stream.read(size - 8))

    def handle(self, kind: int, xid: int, message: bytes) -> None:
        if kind == 2:  # ECHO_REQUEST
            self.send(3, xid, message[8:])
        elif kind == 5:  # FEATURES_REQUEST
            self.send(6, xid, struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0, 0))
        elif kind == 18:  # MULTIPART_REQUEST: the ports, of which there are none
            self.send(19, xid, struct.pack("!HH4x", 13, 0))
        elif kind == 14 and self.mood == "refusing":  # FLOW_MOD_FAILED, TABLE_FULL
            self.send(1, xid, struct.pack("!HH", 5, 1) + message[:64])
        elif kind == 14:
            self.rules.append(message[:4] + bytes(4) + message[8:])
        elif kind == 20 and self.mood == "closing":
            self.close()
        elif kind == 20 and self.mood != "silent":
            self.send(21, xid)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@dataclass
class Controller:
    """A running controller process: where switches connect and where it is asked."""

    process: subprocess.Popen
    ofp_port: int
    rest_port: int
    name: str

    def ask(self, what: str, **details) -> dict:
        """One request over REST; the answer's JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest_port}/",
            json.dumps({"what": what, **details}).encode(),
            method="POST",
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=30
        ) as reply:
            return json.load(reply)

    def connect(self, *moods: str, first: int = 1) -> list[FakeSwitch]:
        """Fake switches of these moods, numbered from `first`, all seen by the controller."""
        switches = [FakeSwitch(self.ofp_port, first + i, mood) for i, mood in enumerate(moods)]
        until(
            lambda: {s.dpid for s in switches} <= set(self.ask("switches")["result"]),
            "switches to be up",
        )
        return switches


@contextlib.contextmanager
def running(name: str, folder: Path, app: str = APP) -> Iterator[Controller]:
    """A controller process of one of FLAVOURS around an app file."""
    file, ofp_port, rest_port = folder / "small_app.py", free_port(), free_port()
    file.write_text(app)
    env = {
        **os.environ,
        "REST_PORT": str(rest_port),
        "RFABRIC_SDN": "os-ken" if "os-ken" in name else "ryu",
    }
    env["OSKEN_HUB_TYPE"] = name.removeprefix("os-ken ") if "os-ken" in name else ""
    command = [
        sys.executable if "os-ken" in name else str(RYU_PYTHON),
        "-c",
        LAUNCH,
        str(file),
        str(ofp_port),
    ]
    if name == "ryu-manager":
        options = [f"--ofp-tcp-listen-port={ofp_port}", "--ofp-listen-host=127.0.0.1"]
        command = [str(RYU_PYTHON), "-m", "ryu.cmd.manager", *options, str(file)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        for port in (ofp_port, rest_port):
            until(
                lambda port=port: process.poll() is not None or listens(port), f"{name} to listen"
            )
        assert process.poll() is None, (folder / "log").read_text()
        yield Controller(process, ofp_port, rest_port, name)
    finally:
        process.kill()
        process.wait()


FLAVOURS = [
    "os-ken eventlet",
    "os-ken native",
    pytest.param("ryu", marks=WITHOUT_RYU),
    pytest.param("ryu-manager", marks=WITHOUT_RYU),
]


@pytest.fixture(scope="module", params=FLAVOURS)
def controller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    with running(request.param, tmp_path_factory.mktemp("controller")) as started:
        yield started


@pytest.fixture
def switches(controller: Controller) -> Iterator[list[FakeSwitch]]:
    """Six willing switches, and none left behind."""
    made = controller.connect(*["willing"] * 6)
    yield made
    for switch in made:
        switch.close()
    until(lambda: not controller.ask("switches")["result"], "switches to be gone")


def test_runs_on_what_was_asked_for(controller):
    name, hub = controller.ask("version")["result"].split(" on ")
    assert name.split()[0] == ("os-ken" if "os-ken" in controller.name else "ryu")
    assert hub.split()[0] == ("threads" if "native" in controller.name else "eventlet")


def test_call_returns_the_result_or_raises_the_error(controller):
    assert controller.ask("switches") == {"result": []}
    assert controller.ask("raise") == {"error": "IndexError: list index out of range"}


def test_call_gives_up_in_time_and_drops_the_work(controller):
    with ThreadPoolExecutor() as pool:
        nap = pool.submit(controller.ask, "nap", seconds=1.0)
        time.sleep(0.3)
        late = controller.ask("mark", timeout_s=0.2)
        assert late["error"].startswith(
            "RunError: controller Small: no result in 0.2 s: its loop was busy"
        )
        assert nap.result() == {"result": None}
    assert "mark" not in controller.ask("seen")["result"]
    assert "began it" in controller.ask("nap", seconds=0.3, timeout_s=0.1)["error"]


def test_push_from_the_event_loop_is_refused(controller):
    assert "its own loop must read" in controller.ask("push inside")["error"]


def test_push_reaches_every_switch_in_order(controller, switches):
    report = controller.ask("push", dpids=[1, 2, 3, 4, 5, 6], rules=40)["result"]
    assert report["ok"], report["text"]
    for switch in switches:
        assert [seam.decode(rule).priority for rule in switch.rules] == list(range(1, 41))


def test_pushes_at_once_do_not_mix(controller, switches):
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(controller.ask, "push", dpids=[n % 6 + 1], rules=10) for n in range(24)
        ]
        assert all(a.result()["result"]["ok"] for a in asked)
    assert [len(s.rules) for s in switches] == [40] * 6


def test_push_names_the_switches_that_refuse_stay_silent_or_are_absent(controller, switches):
    bad = controller.connect("refusing", "silent", first=0x11)
    report = controller.ask("push", dpids=[1, 0x11, 0x12, 0x99], rules=2, timeout_s=0.5)["result"]
    for switch in bad:
        switch.close()
    assert not report["ok"]
    assert [r[:2] for r in report["refused"]] == [[0x11, 0], [0x11, 1]]
    assert "FLOW_MOD_FAILED" in report["refused"][0][2] and "TABLE_FULL" in report["refused"][0][2]
    assert report["silent"] == [0x12, 0x99]
    assert (
        "switch 0x99 did not answer" in report["text"]
        and "switch 0x11 refused message 1" in report["text"]
    )


def test_push_does_not_wait_for_a_switch_that_goes_away(controller, switches):
    controller.connect("closing", first=0x21)
    started = time.monotonic()
    report = controller.ask("push", dpids=[1, 0x21], rules=1, timeout_s=20.0)["result"]
    assert report["silent"] == [0x21]
    assert time.monotonic() - started < 15
    assert controller.ask("seen")["result"][-1] == "down 33"


def test_a_switch_may_come_back(controller, switches):
    switches[0].close()
    until(lambda: 1 not in controller.ask("switches")["result"], "switch 1 to be gone")
    switches += controller.connect("willing")
    assert controller.ask("push", dpids=[1], rules=3)["result"]["ok"]
    assert len(switches[-1].rules) == 3


@pytest.mark.parametrize("name", FLAVOURS[:-1])
def test_stops_when_told_to(name, tmp_path):
    with running(name, tmp_path) as controller:
        switch = controller.connect("willing")[0]
        controller.process.send_signal(signal.SIGTERM)
        assert controller.process.wait(timeout=20) == 0
        switch.close()


@pytest.mark.parametrize("name", FLAVOURS[:-1])
def test_an_app_that_fails_to_start_ends_the_process(name, tmp_path):
    broken = APP.replace("self.seen = []", "raise KeyError('seen')")
    with pytest.raises(AssertionError, match="KeyError: 'seen'"), running(name, tmp_path, broken):
        pass


@WITHOUT_RYU
def test_ryu_and_os_ken_make_the_same_bytes():
    code = (
        "from rfabric.control import seam; d = seam.offline(); p = seam.parser; "
        "print(seam.wire(p.OFPFlowMod(d, priority=9, "
        "match=p.OFPMatch(in_port=3, eth_type=0x800, ipv4_dst=('10.1.0.0', '255.255.0.0')), "
        "instructions=[p.OFPInstructionActions(4, [p.OFPActionOutput(5)])])).hex(), seam.version())"
    )
    said = []
    for python, name in ((sys.executable, "os-ken"), (str(RYU_PYTHON), "ryu")):
        env = {**os.environ, "RFABRIC_SDN": name}
        said.append(
            subprocess.run(
                [python, "-c", code], env=env, capture_output=True, text=True, check=True
            ).stdout
        )
    (os_ken, _, os_ken_version), (ryu, _, ryu_version) = (line.partition(" ") for line in said)
    assert (
        os_ken == ryu
        and os_ken_version.startswith("os-ken ")
        and ryu_version.startswith("ryu 4.34")
    )


def test_wire_and_decode_are_inverse():
    make, of = seam.parser, seam.offline()
    message = make.OFPFlowMod(of, match=make.OFPMatch(in_port=7), priority=11, out_port=3)
    data = seam.wire(message)
    assert data == seam.wire(message)
    back = seam.decode(data)
    assert (back.priority, back.match["in_port"], back.out_port) == (11, 7, 3)


def test_importing_the_seam_imports_no_framework():
    code = (
        "import sys, rfabric.control.seam; print({'ryu', 'os_ken', 'eventlet'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_errors_name_the_way_out(tmp_path, monkeypatch):
    broken = tmp_path / "broken.py"
    broken.write_text("import os\ndef f(:\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for app, options, text in (
            (tmp_path / "none.py", {}, "no such file or module"),
            ("no_such_module", {}, "no such file or module"),
            (broken, {}, f"{broken}, line 2"),
            ("a,b.py", {}, "comma"),
            ("json", {"port": 70000}, "OpenFlow port 70000: choose one from 1 to 65535"),
            (
                "json",
                {"port": port},
                f"127.0.0.1:{port}: Address already in use; name another port",
            ),
        ):
            with pytest.raises(RFabricError, match=re.escape(text)):
                launch.run_apps([app], **options)
    monkeypatch.setenv("RFABRIC_SDN", "pox")
    with pytest.raises(RFabricError, match="RFABRIC_SDN=pox: unknown; use ryu or os-ken"):
        seam.flavour()
    monkeypatch.delenv("RFABRIC_SDN")
    monkeypatch.setattr(seam.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RFabricError, match="has no Ryu and no os-ken: .*`make setup`"):
        seam.flavour()


def test_the_interpreter_for_the_controller_can_be_named(monkeypatch):
    monkeypatch.setenv("RFABRIC_CONTROL_PYTHON", "/opt/sdn/bin/python")
    assert seam.interpreter() == "/opt/sdn/bin/python"
    monkeypatch.delenv("RFABRIC_CONTROL_PYTHON")
    monkeypatch.setenv("RFABRIC_SDN", "os-ken")
    assert seam.interpreter() == sys.executable


# --- real switches: a private user-space Open vSwitch in namespaces of its own --------------------


def push_through_ovs(name: str, folder: str, bridges: int, rules: int, times: int) -> None:
    """Inside the namespaces: push rules to bridges; print the reports, the first bridge's rules."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with private_ovs(Path(folder)) as env, running(name, Path(folder)) as controller:
        add = ["ovs-vsctl", "--timeout=60"]
        for n in range(1, bridges + 1):
            other = f"other_config:datapath-id={n:016x}"
            add += [
                "--",
                "add-br",
                f"b{n}",
                "--",
                "set",
                "bridge",
                f"b{n}",
                "datapath_type=netdev",
                other,
            ]
            add += ["protocols=OpenFlow13", "fail_mode=secure"]
            add += ["--", "set-controller", f"b{n}", f"tcp:127.0.0.1:{controller.ofp_port}"]
        subprocess.run(add, env=env, check=True)
        dpids = list(range(1, bridges + 1))
        until(lambda: controller.ask("switches")["result"] == dpids, "the bridges to connect")
        reports = [controller.ask("push", dpids=dpids, rules=rules)["result"] for _ in range(times)]
        dump = ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "b1", "--no-stats"]
        flows = subprocess.run(dump, env=env, capture_output=True, text=True, check=True).stdout
    print(json.dumps({"reports": reports, "flows": [line.strip() for line in flows.splitlines()]}))


@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize("name", FLAVOURS)
def test_push_programs_open_vswitch(name, run_dir):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_seam; "
        "test_seam.push_through_ovs(*sys.argv[2:4], bridges=4, rules=10, times=3)"
    )
    command = [
        *NAMESPACE,
        sys.executable,
        "-c",
        code,
        str(Path(__file__).parent),
        name,
        str(run_dir),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert all(report["ok"] for report in said["reports"]), said["reports"]
    assert sorted(said["flows"]) == sorted(
        (f"priority={n},in_port={n} actions=output:{n + 1}") for n in range(1, 11)
    )
