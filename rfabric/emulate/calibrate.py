"""What this host can carry: facts read from it, and packet-hops a second measured on its own
datapath.

The calibration builds the default 64-host fabric in a private world, asks every cable for more than
any host moves, and counts what the switch ports got for two seconds. The number of ports matters,
for the user-space datapath looks at every port in turn: a short chain would promise too much.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, fat_tree
from ..routing import Routes
from .network import EmulatedNetwork
from .sandbox import Sandbox, datapath, run, which
from .wire import Wire

# bit/s a cable: 32 flows over 5 switches then ask for some millions of packet-hops a second
OVERLOAD = 200e6
WARM_UP, MEASURE = 0.7, 2.0  # s
AT_ONCE = 32  # switches that are programmed together
VERSIONS = {
    "mn": ("mn", "--version"),
    "ovs-vswitchd": ("ovs-vswitchd", "--version"),
    "ip": ("ip", "-V"),
    "tc": ("tc", "-V"),
    "unshare": ("unshare", "--version"),
    "setpriv": ("setpriv", "--version"),
    "ryu-manager": ("ryu-manager", "--version"),
}
QDISCS = ("htb", "tbf", "bfifo", "netem", "fq", "fq_codel")


@dataclass(frozen=True)
class Host:
    """What this host has: `datapath` is `kernel` or `user`; `programs` gives versions by name, ''
    where one is missing.
    """

    root: bool
    cores: int
    memory_bytes: int
    kernel: str
    datapath: str
    netem: bool
    qdiscs: tuple[str, ...]
    congestion: tuple[str, ...]
    programs: dict[str, str]


def probe_host() -> Host:
    """Read the facts; tc kinds are tried in a namespace of their own, and only as root (else none
    are listed).
    """
    root = os.geteuid() == 0
    qdiscs = tuple(kind for kind in QDISCS if root and has_qdisc(kind))
    return Host(
        root=root,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=os.uname().release,
        datapath=datapath(),
        netem="netem" in qdiscs,
        qdiscs=qdiscs,
        congestion=tuple(
            Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        ),
        programs={name: _version(argv) for name, argv in VERSIONS.items()},
    )


def boot_id() -> str:
    """What tells the kernel that runs here from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def packet_hops(sandbox: Sandbox, fabric: Fabric | None = None) -> float:
    """Packets a second that the switch ports of `fabric` (default: 64 hosts) take together when
    asked for too many.
    """
    fabric = fabric or fat_tree()
    fastest = max(link.rate for link in fabric.links)
    pairs = _across(fabric)
    once = dict.fromkeys(pairs, 1)
    network = EmulatedNetwork(sandbox, fabric, OVERLOAD / fastest, datapath(), at_once=once)
    network.start()
    install_rules(network, [*pairs, *((dst, src) for src, dst in pairs)])
    wire = Wire(network)
    try:
        wire.open(once)
        for flow, (src, dst) in enumerate(pairs):
            wire.send(flow, src, dst, 1 << 40)
        wire.poll(WARM_UP)
        before, begin = _received(fabric), time.monotonic()
        wire.poll(MEASURE)
        return (_received(fabric) - before) / (time.monotonic() - begin)
    finally:
        wire.close()
        network.stop()


def install_rules(network: EmulatedNetwork, pairs: list[tuple[str, str]]) -> None:
    """Program the packet switches for these host pairs without a controller, by `ovs-ofctl`."""
    lines: dict[str, set[str]] = {}
    for rule in Routes(network.fabric).rules(pairs):
        kind, *hosts = rule.match
        fields = ("nw_dst",) if kind == "to" else ("nw_src", "nw_dst")
        match = ",".join(
            f"{field}={network.ip[host]}" for field, host in zip(fields, hosts, strict=True)
        )
        lines.setdefault(rule.switch, set()).add(
            f"priority={rule.priority},ip,{match},actions=output:{rule.out}"
        )

    def program(switch: str) -> None:
        told = "\n".join(sorted(lines[switch])) + "\n"
        run(["ovs-ofctl", "-OOpenFlow13", "add-flows", switch, "-"], told)

    # Open vSwitch looks at all bridges in turn before it hears the next message: the more ask at
    # once, the fewer turns it takes
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(program, lines))


def _across(fabric: Fabric) -> list[tuple[str, str]]:
    """Half of the hosts send, each to its counterpart in the other half: the longest ways."""
    half = len(fabric.hosts) // 2
    return list(zip(fabric.hosts[:half], fabric.hosts[half:], strict=False))


def _received(fabric: Fabric) -> int:
    files = (
        Path("/sys/class/net", port.interface, "statistics/rx_packets")
        for node in fabric.switches
        for port in fabric.ports[node.name]
    )
    return sum(int(file.read_text()) for file in files)


def has_qdisc(kind: str) -> bool:
    """Whether the kernel has it, or a module of it to load: tried on the loopback of a namespace of
    its own.
    """
    argv = [
        "unshare",
        "--net",
        "--",
        which("tc") or "tc",
        "qdisc",
        "add",
        "dev",
        "lo",
        "root",
        kind,
    ]
    argv += {"tbf": ["rate", "1mbit", "burst", "9000", "limit", "9000"]}.get(kind, [])
    try:
        return subprocess.run(argv, capture_output=True).returncode == 0
    except OSError:
        return False


def _version(argv: tuple[str, ...]) -> str:
    """The first thing like a version that the program prints; '' where it is missing."""
    beside = Path(sys.prefix).parent / ".venv-ryu/bin" / argv[0]
    program = which(argv[0]) or (shutil.which(str(beside)) or "")
    if not program:
        return ""
    try:
        done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RFabricError(f"{program} does not run: {error}") from error
    version = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return version[0] if version else "present"
