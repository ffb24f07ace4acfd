"""As root: Ryu, os-ken, Open vSwitch and Mininet in namespaces of their own."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from real import (
    ROOT,
    RYU_PYTHON,
    WITHOUT_RYU,
    child,
    crossed,
    in_namespace,
    listens,
    network_under_control,
    ping,
    prepare_namespace,
    private_ovs,
    until,
)

from rfabric.control.client import Client
from rfabric.errors import RunError
from rfabric.fabric import parse_fabric


def mn_and_ryu_manager(folder, app, file, topo, named=""):
    """The two commands of a user: ryu-manager on an app, mn on a topology file; every host pings
    every other.

    The app is told what fabric it steers where `named` is not empty.
    """
    prepare_namespace()
    ryu = [str(RYU_PYTHON), "-m", "ryu.cmd.manager", str(ROOT / "controller" / app)]
    mn = [
        "mn",
        "--custom",
        str(ROOT / "topologies" / file),
        "--topo",
        topo,
        "--controller",
        "remote",
    ]
    harmless = Path(folder, "bin")  # mn cleans up machine-wide after an exception: not from a test
    harmless.mkdir()
    for program in ("rm", "pkill", "killall"):
        (harmless / program).symlink_to("/bin/true")
    os.environ["PATH"] = f"{harmless}:{os.environ['PATH']}"
    with private_ovs(Path(folder)) as env, child(ryu, f"{folder}/ryu.out", RFABRIC_TOPO=named):
        os.environ.update(env, PATH=os.environ["PATH"])
        until(lambda: listens(6653), "ryu-manager to listen")
        ran = subprocess.run(
            [*mn, "--switch", "ovs,datapath=user", "--test", "pingall"],
            capture_output=True,
            text=True,
        )
        said = ran.stdout + ran.stderr
        assert "Results:" in said, said
        print(
            json.dumps(
                {"mn": said, "fabric": Client().health()["fabric"], "left": Client().get("/pairs")}
            )
        )


@WITHOUT_RYU
@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize(
    ("app", "file", "topo"),
    [
        ("ocs.py", "rfabric.py", "rfabric,pods=2,tors=2,gpus=1"),
        ("ecmp.py", "fat_tree.py", "fat-tree,pods=2,tors=2,gpus=1"),
    ],
)
def test_mn_and_ryu_manager_need_no_settings(app, file, topo, run_dir):
    said = in_namespace(mn_and_ryu_manager, run_dir, app, file, topo)
    assert "Results: 0% dropped (12/12 received)" in said["mn"], said["mn"]
    assert said["fabric"].startswith(topo)
    assert len(said["left"]["routed"]) == 12 and said["left"]["pairs"] == []


@WITHOUT_RYU
@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize(
    ("app", "topo"),
    [
        ("ecmp.py", "two-clusters,training=2,generation=2,gpus=2"),
        ("ocs.py", "mixnet,servers=2,gpus=2,region=1"),
        ("ocs.py", "opus,servers=2,gpus=2"),
    ],
)
def test_mn_and_ryu_manager_carry_other_fabrics_once_named(app, topo, run_dir):
    file = f"{topo.partition(',')[0].replace('-', '_')}.py"
    said = in_namespace(mn_and_ryu_manager, run_dir, app, file, topo, topo)
    assert "Results: 0% dropped (12/12 received)" in said["mn"], said["mn"]
    assert said["fabric"] == topo


DELAY = 0.1  # s: long enough that a loaded machine cannot hide it


def rewire_with_probes(folder, sdn):
    """A small fabric under the controller: probed rewires, a frozen switch, a killed controller."""
    spec = f"rfabric,pods=2,tors=2,gpus=1,delay={DELAY * 1e3:g}ms"
    fabric = parse_fabric(spec)
    with network_under_control(folder, spec, sdn) as (net, client, controller, straight):
        told = {"lossless": ping(net, fabric)}
        told["probed"] = [
            probed(net, client, circuits) for circuits in (crossed(fabric, straight), straight)
        ]
        told["meanwhile"] = asked_meanwhile(client, crossed(fabric, straight), straight)
        told["frozen"] = frozen(folder, client, crossed(fabric, straight))
        told["after"] = ping(net, fabric)
        told["held"] = crossbar("a1") == {
            p.number: q.number for c in straight.of("a1") for p, q in (c, c[::-1])
        }
        controller.kill()
        controller.wait()
        with pytest.raises(RunError) as gone:
            client.plan_circuits(straight)
        told["gone"] = str(gone.value)
    print(json.dumps(told))


def probed(net, client, circuits):
    """A rewire with probes from h1 to h4 through it: the controller's record, the probes'."""
    source, sink = net["h1"], net["h4"]
    probe = [sys.executable, str(ROOT / "traffic/probe.py")]
    listen = [
        "mnexec",
        "-a",
        str(sink.pid),
        *probe,
        "listen",
        "--interface",
        "h4-eth1",
        "--seconds",
        "20",
    ]
    send = [
        "mnexec",
        "-a",
        str(source.pid),
        *probe,
        "send",
        "--interface",
        "h1-eth1",
        "--seconds",
        "2",
        "--interval-ms",
        "1",
    ]
    planned = client.plan_circuits(circuits, in_flight="drop")
    with subprocess.Popen(
        listen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as listener:
        listener.stderr.readline()
        seen = "/sys/class/net/t1-eth1/statistics/rx_packets"
        before = int(Path(seen).read_text())
        with subprocess.Popen([*send, "--to-ip", sink.IP(), "--to-mac", sink.MAC()]) as sender:
            until(lambda: int(Path(seen).read_text()) > before + 200, "probes")
            done = client.commit(planned.epoch)
            sender.wait()
        report = json.loads(listener.communicate()[0])
    return {"commit": dataclasses.asdict(done), "probe": report}


def asked_meanwhile(client, *both):
    """States seen by other requests during a rewire five times as long, there and back."""
    seen = set()
    for circuits in both:
        planned = client.plan_circuits(circuits, time_dilation=5)
        commit = threading.Thread(target=client.commit, args=(planned.epoch,))
        commit.start()
        while commit.is_alive():
            seen.add((client.get("/epoch")["under_way"] or {"state": ""})["state"])
            seen |= {port["state"] for port in client.get("/ocs/a1")["ports"]}
    return sorted(seen)


def frozen(folder, client, circuits):
    """A commit while ovs-vswitchd stands still: the error, and the plan's state afterwards."""
    planned, vswitchd = (
        client.plan_circuits(circuits),
        int((Path(folder) / "ovs-vswitchd.pid").read_text()),
    )
    os.kill(vswitchd, signal.SIGSTOP)
    try:
        with pytest.raises(RunError) as error:
            client.commit(planned.epoch)
    finally:
        os.kill(vswitchd, signal.SIGCONT)
    client.wait_ready(30)
    return {
        "error": str(error.value),
        "state": client.get(f"/plans/{planned.epoch}")["state"],
        "epoch": client.epoch(),
    }


def crossbar(bridge):
    """in-port -> out-port of a real bridge, as ovs-ofctl sees it."""
    dump = ["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", bridge]
    flows = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    return {int(a): int(b) for a, b in re.findall(r"in_port=(\d+) actions=output:(\d+)", flows)}


@pytest.mark.root
@pytest.mark.parametrize("sdn", [pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"])
def test_a_rewire_with_real_switches(sdn, run_dir):
    pytest.importorskip("scapy", reason="no scapy: pip install 'rfabric[probe]'")
    said = in_namespace(rewire_with_probes, run_dir, sdn)
    assert said["lossless"] == said["after"] == [12, 12]
    for run in said["probed"]:
        done, probe = run["commit"], run["probe"]
        longest = max(probe["gaps"], key=lambda gap: gap["to_s"] - gap["from_s"])
        assert done["dark_until"] - done["programmed"] == pytest.approx(DELAY)
        # Dark as long as configured: not shorter but for what switches after the circuit did with
        # the last packet before it, not longer than the rewire.
        assert probe["longest_gap_s"] > 0.8 * DELAY
        assert (
            longest["from_s"] > done["requested"] - 0.05 and longest["to_s"] < done["usable"] + 0.05
        )
        frame = 14 + 20 + 8 + 20
        assert done["lost_bytes"] == pytest.approx(frame * longest["lost"], rel=0.3)
    assert "did not answer within 1 s; circuits of epoch" in said["frozen"]["error"].replace(
        "; a2", ""
    )
    assert {"DARK", "PENDING_CONNECTION", "CONNECTED"} <= set(said["meanwhile"])
    assert said["frozen"]["state"] == "ABORTED" and said["held"]
    assert "the controller at http://127.0.0.1:8080 is gone" in said["gone"]
