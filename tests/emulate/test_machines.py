"""A fabric on several machines: what goes between them, and, with network namespaces as machines,
whole runs.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_emulate import LONGER, SMALL, step

import rfabric
from rfabric.cli import main
from rfabric.emulate import world
from rfabric.emulate.machines.leader import FarAgent, Leader
from rfabric.emulate.machines.pipe import Pipe
from rfabric.emulate.machines.remote import Machines, parse_machines
from rfabric.emulate.machines.serve import serve
from rfabric.emulate.machines.slices import sliced
from rfabric.emulate.machines.spread import Between, asked_of, hops_carried
from rfabric.emulate.machines.watch import merged, together
from rfabric.emulate.processors import Processors
from rfabric.emulate.sandbox import which
from rfabric.errors import PaceError, RFabricError, RunError
from rfabric.fabric import fat_tree
from rfabric.fabric import rfabric as optical
from rfabric.optics import Timing
from rfabric.report.result import Pace, Scale
from rfabric.simulate.world import simulate
from rfabric.study.run import Case, check
from rfabric.trace import TraceBuilder

ROOT = Path(rfabric.__file__).parents[1]
# s: a machine that does other work beside may take ten times as long as an idle one
BUSY = 150.0


# --- words, frames, clocks ------------------------------------------------------------------------


def test_machines_have_a_name_for_the_remote_shell_and_an_address_for_the_others():
    machines = parse_machines("root@gpu1=10.0.0.1,gpu2=10.0.0.2", "ssh -p 22", "agent")
    assert [(m.name, m.address) for m in machines.all] == [
        ("root@gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2"),
    ]  # fmt: skip
    assert not Machines()


@pytest.mark.parametrize(
    "words, said",
    [
        ("a=10.0.0.1,a=10.0.0.2", "name a stands for two machines"),
        ("a=10.0.0.1,b=10.0.0.1", "address 10.0.0.1 stands for two machines"),
        ("a=10.0.0.1,", "'' is no machine"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is no machine"),
        ("a=10.0.0.1,b=127.0.0.1", "b is 127.0.0.1, which others cannot reach"),
        ("a=no.such.invalid", "no.such.invalid has no IPv4 address .*write a=ADDRESS"),
    ],
)
def test_machines_that_cannot_be_are_refused(words, said):
    with pytest.raises(RFabricError, match=said):
        parse_machines(words)


def test_an_empty_list_is_not_this_machine_alone(capsys):
    assert main(["emulate", "--on", "", "-q"]) == 2
    assert "argument --on: the word is empty" in capsys.readouterr().err


def test_a_remote_shell_that_is_no_words_is_refused():
    with pytest.raises(RFabricError, match="--rsh .*No closing quotation"):
        parse_machines("a=10.0.0.1", "ssh '")
    with pytest.raises(RFabricError, match="--rsh: it is empty"):
        parse_machines("a=10.0.0.1", " ")


@pytest.mark.parametrize("option", ["--rsh=ssh -p 22", "--rfabric-path=/opt/agent"])
def test_how_machines_are_reached_says_nothing_without_them(option, capsys):
    assert main(["emulate", option]) == 2
    assert "is for the machines of --on" in capsys.readouterr().err


@contextlib.contextmanager
def agent_at(tmp_path):
    """A leader of one agent, and the agent's end of the pipe."""
    to, of = os.pipe(), os.pipe()
    here, there = Pipe(of[0], to[1]), Pipe(to[0], of[1])
    yield Leader([FarAgent(0, "gpu7", here, tmp_path / "log")]), there, of[1]


def test_what_is_no_frame_is_shown_with_the_name_of_the_machine(tmp_path):
    with agent_at(tmp_path) as (leader, _, write):
        (tmp_path / "log").write_text("a warning\n")
        os.write(write, b"Welcome to gpu7, which greets in words\n")
        with pytest.raises(RunError, match="(?s)machine gpu7 is gone.*Welcome to gpu7.*a warning"):
            leader.meet()


def test_a_machine_that_goes_ends_the_run_with_its_name(tmp_path):
    with agent_at(tmp_path) as (leader, there, write):
        (tmp_path / "log").write_text("Connection to gpu7 closed.\n")
        there.say({"hello": {"version": "1", "datapath": "user"}})
        threading.Timer(0.2, os.close, (write,)).start()
        with pytest.raises(RunError, match="machine gpu7 is gone.*Connection to gpu7 closed"):
            leader.meet()


def test_what_an_agent_refuses_is_said_with_its_name(tmp_path):
    with agent_at(tmp_path) as (leader, there, _):
        there.say({"error": "emulation needs root", "kind": "RFabricError"})
        with pytest.raises(RFabricError, match="machine gpu7: emulation needs root"):
            leader.meet()


def test_a_machine_that_is_silent_is_named_with_what_its_remote_shell_said(tmp_path):
    with agent_at(tmp_path) as (leader, _, _write):
        (tmp_path / "log").write_text("ssh: still trying\n")
        with pytest.raises(RunError, match="gpu7 does not answer for 0 s.*ssh: still trying"):
            leader.ask("clock", timeout=0.1)


def test_a_clock_is_known_by_its_quickest_answer(tmp_path):
    agent = FarAgent(0, "a", None, tmp_path)
    agent.timed(10.0, 10.5, 110.45, 110.46)  # half a second, nearly all of it on the way there
    agent.timed(20.0, 20.003, 120.001, 120.002)
    assert agent.offset == pytest.approx(100.0, abs=1e-9)
    assert agent.trip == pytest.approx(0.002)


def test_an_agent_writes_to_no_folder_of_somebody_else(tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "rfabric-agent").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert serve() == 1
    assert b"belongs to somebody else" in capfdbinary.readouterr().out
    assert not list((tmp_path / "elsewhere").iterdir())


# --- what machines carry --------------------------------------------------------------------------


def test_all_tunnels_of_a_pair_together_must_fit_between_its_machines():
    slices = sliced(fat_tree(**SMALL), 2)
    ((pair, links),) = slices.between().items()
    payload = len(links) * 400e9 * 1e-4
    assert payload * 1.01 < asked_of(slices, 1e-4)[pair] < payload * 1.02  # and headers
    most = Between({pair: 100e6}).most(slices)
    assert asked_of(slices, most)[pair] == pytest.approx(0.7 * 100e6)


def test_the_busiest_machine_bounds_what_all_carry():
    fabric = fat_tree(**SMALL)
    result = simulate(fabric, step(fabric))
    even = hops_carried(result, [5e4, 5e4])
    assert 5e4 <= even <= 1e5  # what crosses a tunnel costs both
    assert hops_carried(result, [5e4, 1e4]) < 0.5 * even
    assert hops_carried(result, [5e4]) == 5e4


def test_any_machine_can_fail_a_run():
    slow = Pace(False, 0.9, 0.0, ("the datapath fell behind",), "use --bandwidth-scale 1e-5")
    pace = merged(Pace(), {"gpu1": Pace(cpu=0.2), "gpu2": slow})
    assert not pace.ok and pace.reasons == ("gpu2: the datapath fell behind",)
    assert pace.advice and pace.cpu == 0.9
    assert merged(Pace(), {"gpu1": Pace(), "gpu2": Pace()}).ok


def test_worlds_of_one_run_on_one_kernel_are_no_others():
    before = together([Processors(0, 0, 0, 0, 0), Processors(0, 0, 0, 0, 0)])
    two = [Processors(90, 60, 40, 30, 200), Processors(90, 60, 50, 30, 200)]
    assert together(two).foreign_since(before) == 0
    assert two[0].foreign_since(before) == pytest.approx(0.4)


# --- runs on network namespaces -------------------------------------------------------------------


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class TwoMachines:
    """Two network namespaces joined by a cable; `machines` as `--on` would say."""

    def __init__(self, tmp_path):
        token = secrets.token_hex(2)
        self.tmp = tmp_path
        self.names = [f"rf{token}a", f"rf{token}b"]
        self.ends = [f"rf{token}va", f"rf{token}vb"]
        script = tmp_path / "agent"
        script.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={ROOT} TMPDIR={tmp_path / 'there'}\n"
            f"exec {sys.executable} -m rfabric agent\n"
        )
        script.chmod(0o755)
        (tmp_path / "there").mkdir()
        on = ",".join(f"{name}=10.77.0.{i}" for i, name in enumerate(self.names, 1))
        self.on, self.agent = on, str(script)
        self.machines = parse_machines(on, "ip netns exec", str(script))

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        (a, b), (va, vb) = self.names, self.ends
        ip("link", "add", va, "netns", a, "type", "veth", "peer", "name", vb, "netns", b)
        for i, (name, end) in enumerate(zip(self.names, self.ends, strict=True), 1):
            ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", end)
            self.set(name, "mtu", "9216", "up")
            ip("-n", name, "link", "set", "lo", "up")
        return self

    def set(self, name, *words):
        ip("-n", name, "link", "set", self.ends[self.names.index(name)], *words)

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "del", name)

    def inhabitants(self):
        """Processes of agents of this test."""
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self._belongs(pid)]

    def _belongs(self, pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return any(str(self.tmp / "there").encode() in word for word in words)
        return False

    def assert_clean(self):
        limit = time.monotonic() + BUSY
        while self.inhabitants() and time.monotonic() < limit:
            time.sleep(0.1)
        assert not self.inhabitants()
        for name in self.names:
            links = subprocess.run(["ip", "-n", name, "-d", "link"], capture_output=True, text=True)
            assert "vxlan" not in links.stdout and "rf" in links.stdout
        left = list((self.tmp / "there").glob("rfabric-agent/*"))
        assert not left

    def emulate(self, fabric, trace, policy="demand", scale=LONGER, **words):
        """Patient with a busy machine, whose guard refuses: what was measured is what counts."""
        try:
            return world.emulate(
                fabric, trace, policy, scale=scale, machines=self.machines,
                out=self.tmp / "runs", **words,
            )  # fmt: skip
        except PaceError as error:
            signs = "others on this host", "fell behind", "waited for a processor"
            assert any(sign in str(error) for sign in signs)
            return error.refused[0]


@pytest.fixture
def two(tmp_path):
    with TwoMachines(tmp_path) as machines:
        yield machines
        machines.assert_clean()


@pytest.mark.root
@pytest.mark.parametrize("build", [fat_tree, optical])
def test_a_step_on_two_machines_is_the_step_on_one(build, two):
    fabric = build(**SMALL)
    trace = step(fabric, 4e9)
    expected = simulate(fabric, trace, "demand")
    result = two.emulate(fabric, trace)
    assert (result.sent == trace.size).all() and (result.received == trace.size).all()
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs]
    packets = 4 * 9000 / LONGER.bandwidth
    worst = np.abs(result.link_bytes - expected.link_bytes).max()
    assert worst <= 0.01 * expected.link_bytes.max() + packets
    for key, seconds in expected.communication.items():
        assert result.communication[key] == pytest.approx(seconds, rel=0.35), key


@pytest.mark.root
@pytest.mark.parametrize("in_flight", ["hold", "drain", "drop"])
def test_a_rewire_under_flows_on_two_machines_follows_its_policy(in_flight, two):
    fabric = optical(**SMALL)
    b = TraceBuilder(fabric.hosts)
    b.flows([0, 1], [6, 7], 5e10, phase="a", label="long")
    b.flows([2, 3], [0, 1], 5e10, start=0.4, phase="b", label="late")
    trace, timing = b.build(), Timing(in_flight=in_flight)
    expected = simulate(fabric, trace, "demand", timing=timing)
    result = two.emulate(fabric, trace, scale=Scale(1e-4, 2.0), timing=timing)
    assert (result.sent == result.received).all()
    assert [c for _, c in result.epochs] == [c for _, c in expected.epochs]
    under = [r for r in result.rewires if r.requested > 0]
    assert under
    assert (result.lost_bytes > 0) == (in_flight == "drop")


@pytest.mark.root
def test_packets_go_in_fragments_where_the_machines_network_takes_no_large_ones(two):
    for name in two.names:
        two.set(name, "mtu", "1500")
    fabric = fat_tree(**SMALL)
    trace = step(fabric, 1e9)
    result = two.emulate(fabric, trace)
    assert (result.received == trace.size).all()


@pytest.mark.root
def test_a_network_between_machines_that_is_too_slow_is_refused_before_the_run(two):
    shape = "qdisc replace dev {} root tbf rate 20mbit burst 20kb latency 5ms"
    for name, end in zip(two.names, two.ends, strict=True):
        subprocess.run(["tc", "-n", name, *shape.format(end).split()], check=True)
    with pytest.raises(RFabricError, match="the network between machines .* loses packets at"):
        two.emulate(fat_tree(**SMALL), step(fat_tree(**SMALL)), scale=Scale(1e-4, 2.0))


@pytest.mark.root
@pytest.mark.beside
def test_machines_that_do_not_reach_one_another_are_named_with_the_way_out(two):
    away = replace(two.machines.all[1], address="10.77.0.9")
    two.machines = replace(two.machines, all=(two.machines.all[0], away))
    with pytest.raises(RFabricError, match="nothing comes from machine .*UDP port 47890"):
        two.emulate(fat_tree(**SMALL), step(fat_tree(**SMALL)))


@pytest.mark.root
@pytest.mark.beside
def test_more_machines_than_parts_are_refused_before_anything_starts(two):
    third = replace(two.machines.all[0], name="third", address="10.77.0.3")
    fabric = fat_tree(pods=1, tors=2, gpus=2)
    two.machines = replace(two.machines, all=(*two.machines.all, third))
    with pytest.raises(RFabricError, match="leaves 2 parts with hosts"):
        two.emulate(fabric, step(fabric))
    with pytest.raises(RFabricError, match="leaves 2 parts with hosts"):
        check(Case(fabric, "static"), "emulate", 3)


@contextlib.contextmanager
def under_way(two):
    """A long run of the command line on two machines, once packets move: its process."""
    from rfabric.trace import write_trace

    write_trace(step(fat_tree(**SMALL), 40e9), two.tmp / "long.csv")
    command = [
        sys.executable, "-m", "rfabric", "emulate", "--topo", "fat-tree,pods=2,tors=2,gpus=2",
        "--traffic", str(two.tmp / "long.csv"), "--on", two.on, "--rsh", "ip netns exec",
        "--rfabric-path", two.agent, "--bandwidth-scale", "1e-4", "--time-dilation", "2",
        "--out", str(two.tmp / "runs"), "-v",
    ]  # fmt: skip
    talk = two.tmp / "talk"
    with talk.open("w") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
    try:
        limit = time.monotonic() + BUSY
        while "run training" not in talk.read_text() and process.poll() is None:
            assert time.monotonic() < limit, talk.read_text()
            time.sleep(0.1)
        assert process.poll() is None, talk.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
@pytest.mark.beside
def test_a_machine_that_vanishes_ends_the_run_with_its_name_and_nothing_is_left(two):
    with under_way(two) as process:
        victim = next(
            pid for pid in two.inhabitants()
            if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
        )  # fmt: skip
        os.kill(victim, signal.SIGKILL)
        assert process.wait(BUSY) == 1
    said = (two.tmp / "talk").read_text()
    assert any(f"machine {name} is gone" in said for name in two.names), said
    assert "Traceback" not in said


@pytest.mark.root
@pytest.mark.beside
def test_a_leader_that_is_killed_leaves_nothing_on_any_machine(two):
    with under_way(two) as process:
        assert two.inhabitants()
        process.kill()
        process.wait()
        two.assert_clean()


@pytest.mark.root
@pytest.mark.beside
def test_interrupted_it_ends_on_all_machines(two):
    with under_way(two) as process:
        process.send_signal(signal.SIGINT)
        process.wait(BUSY)
        two.assert_clean()


# --- through ssh ----------------------------------------------------------------------------------

SSHD = which("sshd")
SSHD_WORLD = """mount --make-rprivate /
mount --bind {folder}/passwd /etc/passwd
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec {sshd} -D -e -f {folder}/config -o ListenAddress={address}
"""


class Sshd:
    """sshd in two namespaces, with keys of its own; `rsh` reaches it from the first."""

    def __init__(self, two):
        self.two, self.folder = two, two.tmp / "ssh"
        self.folder.mkdir()
        for key in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(words, check=True)
        (self.folder / "config").write_text(
            f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/user.pub\n"
            "PasswordAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\n"
            "PermitRootLogin yes\n"
        )
        known = Path("/etc/passwd").read_text().splitlines()
        if not any(line.startswith("sshd:") for line in known):
            known.append("sshd:x:999:65534::/run/sshd:/usr/sbin/nologin")
        (self.folder / "passwd").write_text("\n".join(known) + "\n")
        self.rsh = (
            f"ip netns exec {two.names[0]} ssh -i {self.folder}/user -o BatchMode=yes "
            "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        )

    def __enter__(self):
        self.processes = []
        for number, name in enumerate(self.two.names, 1):
            script = SSHD_WORLD.format(folder=self.folder, sshd=SSHD, address=f"10.77.0.{number}")
            words = ["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-ec", script]
            self.processes.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        limit = time.monotonic() + BUSY
        while time.monotonic() < limit and not all(map(self._listens, self.two.names)):
            time.sleep(0.1)
        return self

    @staticmethod
    def _listens(name):
        words = ["ip", "netns", "exec", name, "cat", "/proc/net/tcp"]
        return ":0016 " in subprocess.run(words, capture_output=True, text=True).stdout

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
            process.wait()


@pytest.mark.root
@pytest.mark.skipif(not SSHD, reason="no sshd here (openssh-server)")
def test_machines_are_reached_through_ssh(two):
    with Sshd(two) as sshd:
        on = "root@10.77.0.1,root@10.77.0.2"
        two.machines = parse_machines(on, sshd.rsh, two.agent)
        fabric = fat_tree(**SMALL)
        trace = step(fabric, 1e9)
        result = two.emulate(fabric, trace)
        assert (result.received == trace.size).all()
        two.assert_clean()
