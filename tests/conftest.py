"""What all tests share: root tests skipped loudly where they cannot run, and a folder for a run."""

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same code gives the same verdict; HYPOTHESIS_PROFILE=explore draws new cases every time.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
SKIPPED = "root test: "


@functools.cache
def why_not_root() -> str:
    """The reason why tests marked `root` cannot run here; empty where they can."""
    if os.geteuid() != 0:
        return "not root: run `sudo make test`"
    if importlib.util.find_spec("mininet") is None:
        return "no mininet for this Python: apt-get install mininet, and use Debian's Python"
    for program, package in (
        ("ovs-vswitchd", "openvswitch-switch"),
        ("tc", "iproute2"),
        ("ethtool", "ethtool"),
    ):
        if shutil.which(program, path=SYSTEM_PATH) is None:
            return f"no {program}: apt-get install {package}"
    namespace = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True
    )
    return f"no namespaces for this root: {namespace.stderr.strip()}" if namespace.returncode else ""


def pytest_configure(config: pytest.Config) -> None:
    os.environ["PATH"] = SYSTEM_PATH
    config.addinivalue_line("markers", "root: needs root, Mininet and Open vSwitch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("root") and why_not_root():
            item.add_marker(pytest.mark.skip(reason=f"{SKIPPED}{why_not_root()}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [r.longrepr[2] for r in terminalreporter.stats.get("skipped", []) if isinstance(r.longrepr, tuple)]
    for reason, count in Counter(r.partition(SKIPPED)[2] for r in reasons if SKIPPED in r).items():
        terminalreporter.write_line(f"ROOT TESTS NOT RUN: {count} ({reason})", yellow=True, bold=True)


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """An empty folder for one run. Its path is short: a socket's path may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="rfabric-") as folder:
        yield Path(folder)
