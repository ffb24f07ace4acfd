"""What tests of the controller start and wait for: processes, Open vSwitch, Mininet networks; as
root in namespaces of their own.
"""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import all_pairs

from rfabric.control.client import Client
from rfabric.control.launch import command
from rfabric.fabric import Port, parse_fabric
from rfabric.optics import Circuit, Circuits, light, planes

ROOT = Path(__file__).parents[2]
RYU_PYTHON = ROOT / ".venv-ryu/bin/python"
WITHOUT_RYU = pytest.mark.skipif(
    not RYU_PYTHON.exists(), reason="no .venv-ryu: run `make setup` to test under Ryu"
)
NAMESPACE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount"]


def until(true, what: str, limit_s: float = 20.0) -> None:
    """Wait for a condition; the limit is for a controller that will never get there."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s for {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def child(argv, log, **env):
    """A process that does not outlive the block."""
    with Path(log).open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def private_ovs(folder: Path) -> Iterator[dict[str, str]]:
    """An ovsdb-server and ovs-vswitchd of this folder's own; yields the environment to use."""
    env = {
        **os.environ,
        **{f"OVS_{kind}": str(folder) for kind in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")},
    }
    subprocess.run(["ovsdb-tool", "create", folder / "conf.db"], env=env, check=True)
    remote = f"--remote=punix:{folder}/db.sock"
    quiet = ["-vconsole:off", "--pidfile"]
    daemons = [subprocess.Popen(["ovsdb-server", folder / "conf.db", remote, *quiet], env=env)]
    try:
        until((folder / "db.sock").exists, "ovsdb-server")
        subprocess.run(["ovs-vsctl", "--no-wait", "init"], env=env, check=True)
        daemons.append(subprocess.Popen(["ovs-vswitchd", *quiet], env=env))
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def prepare_namespace():
    """lo up, this namespace's own /sys, no IPv6 chatter; and no way for mn to raise limits of the
    whole machine.
    """
    for argv in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "sysfs", "sysfs", "/sys"],
    ):
        subprocess.run(argv, check=True)
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    subprocess.run(["mount", "--bind", "/proc/sys", "/proc/sys"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", "/proc/sys"], check=True)


def in_namespace(function, *arguments):
    """Run a test file's function as process 1 of private namespaces; its last line, as JSON."""
    module, name = function.__module__, function.__name__
    code = (
        f"import sys; sys.path.insert(0, sys.argv[1]); import {module} as t; "
        f"t.{name}(*sys.argv[2:])"
    )
    argv = [
        *NAMESPACE,
        sys.executable,
        "-c",
        code,
        str(Path(__file__).parent),
        *map(str, arguments),
    ]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    logs = "".join(
        f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(Path(arguments[0]).glob("*.out"))
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:] + logs
    return json.loads(ran.stdout.splitlines()[-1])


@contextlib.contextmanager
def network_under_control(folder, spec, sdn="", words=()):
    """A started Mininet network of `spec` in switches of its own, its client, its controller, and
    the circuits that are lit: each pair of ToRs over every plane. words: what starts it instead.
    """
    prepare_namespace()
    from mininet.net import Mininet
    from mininet.node import OVSSwitch, RemoteController

    from rfabric.emulate.topo import topo_of

    fabric = parse_fabric(spec)
    with (
        private_ovs(Path(folder)) as env,
        child(words or command(spec, sdn=sdn), f"{folder}/control.out") as controller,
    ):
        os.environ.update(env)
        until(lambda: listens(6653) or controller.poll() is not None, "the controller to listen")
        Mininet.inited = True
        switch = functools.partial(OVSSwitch, datapath="user")
        net = Mininet(topo=topo_of(fabric), switch=switch, controller=None, build=False)
        net.addController("c0", RemoteController, ip="127.0.0.1", port=6653)
        net.build()
        net.start()
        client = Client()
        client.wait_ready(30)
        client.put_pairs(all_pairs(fabric))
        straight = light(fabric, dict.fromkeys(planes(fabric), [("t1", "t4"), ("t2", "t3")]))
        first = client.plan_circuits(straight)
        if first.rewire:
            client.commit(first.epoch)
        yield net, client, controller, straight


def crossed(fabric, circuits):
    """The same light paths over the other core cables: every circuit moves, no route does."""
    tors = fabric.parameters["tors"]

    def moved(port):
        if fabric.node[port.node].tier == "aggregation":
            up = port.number - tors
            return Port(port.node, port.number if up < 1 else tors + up % tors + 1)
        pod, up = divmod(port.number - 1, tors)
        return Port(port.node, pod * tors + (up + 1) % tors + 1)

    return Circuits(frozenset(Circuit.of(moved(c.a), moved(c.b)) for c in circuits))


def ping(net, fabric):
    """How many of all ordered host pairs answer a ping."""
    pairs = all_pairs(fabric)
    argv = [["mnexec", "-a", str(net[a].pid), "ping", "-c1", "-W5", net[b].IP()] for a, b in pairs]
    return [sum(subprocess.run(a, capture_output=True).returncode == 0 for a in argv), len(pairs)]
