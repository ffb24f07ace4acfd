"""Real processes, ports and switches, which tests of the controller start and wait for."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
