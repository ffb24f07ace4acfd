"""What all tests share: root tests skipped loudly where they cannot run, and a folder for a run.

slow.txt names the tests that are marked `slow` and left to `make test`. It is written by
`python -m pytest --write-slow 1`: what took over 1 s goes in, what was run and took less goes out.
"""

import functools
import gc
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
settings.register_profile("same", derandomize=True, deadline=None)  # no test is about seconds
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
SKIPPED = "root test: "
SLOW = Path(__file__).with_name("slow.txt")
# Files that take minutes. Of several processes one would be alone with the last of them, so they
# come first, the longest before all.
LONG = (
    "emulate/test_live.py",
    "test_lessons.py",
    "study/test_sweeping.py",
    "optics/test_planning.py",
    "simulate/test_engine_bounds.py",
    "test_fuzz.py",
    "simulate/test_engine_cost.py",
    "report/test_live_page.py",
)


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
    return (
        f"no namespaces for this root: {namespace.stderr.strip()}" if namespace.returncode else ""
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-slow", type=float, metavar="SECONDS", help=f"write {SLOW.name}: what takes longer"
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ["PATH"] = SYSTEM_PATH
    os.environ["RFABRIC_JOURNAL"] = "none"  # what a test's controller knows ends with it
    os.environ["RFABRIC_CACHE"] = "none"  # what a test runs is run
    config.addinivalue_line("markers", "root: needs root, Mininet and Open vSwitch")
    config.addinivalue_line("markers", "beside: root, and does not mind what runs beside it")
    config.addinivalue_line("markers", f"slow: not for every day, by {SLOW.name}")


def _function(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.partition("[")[0]


def _write_slow(terminalreporter: pytest.TerminalReporter, least: float) -> None:
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_function(report.nodeid)] += report.duration
    kept = set(SLOW.read_text().split()) - set(seconds)
    slow = sorted(kept | {test for test, taken in seconds.items() if taken > least})
    SLOW.write_text("".join(f"{test}\n" for test in slow))


def _line_up(items: list[pytest.Item]) -> None:
    """Put the items of LONG files before all others; what is of one file stays together."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: nobody looks for garbage in it, then or later."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist: several processes share the files
        _line_up(items)
    slow = set(SLOW.read_text().split())
    for item in items:
        if _function(item.nodeid) in slow:
            item.add_marker("slow")
        if item.get_closest_marker("root") and why_not_root():
            item.add_marker(pytest.mark.skip(reason=f"{SKIPPED}{why_not_root()}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [
        r.longrepr[2]
        for r in terminalreporter.stats.get("skipped", [])
        if isinstance(r.longrepr, tuple)
    ]
    for reason, count in Counter(r.partition(SKIPPED)[2] for r in reasons if SKIPPED in r).items():
        terminalreporter.write_line(
            f"ROOT TESTS NOT RUN: {count} ({reason})", yellow=True, bold=True
        )
    least = terminalreporter.config.getoption("--write-slow")
    if least is not None:
        _write_slow(terminalreporter, least)


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """An empty folder for one run. Its path is short: a socket's path may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="rfabric-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _standard_files_stay() -> Iterator[None]:
    """No test closes a file that all share: the next one to open a file would get its number."""
    before = _standard_files()
    yield
    assert _standard_files() == before, "this test has closed stdin, stdout or stderr"


def _standard_files() -> list[bool]:
    return [os.path.exists(f"/proc/self/fd/{number}") for number in range(3)]
