"""What the compiled core costs in instructions, counted by callgrind: they repeat, on any machine,
where time does not.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from engines import engine_alone

from rfabric.simulate import bench, completion_times, workloads
from rfabric.simulate.build import FAST, SOURCE, compiler

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None,
    reason="instructions are not counted: no valgrind (apt-get install valgrind)",
)

# Work, and instructions a flow as g++ 12.2 -O3 makes them for x86-64. Lower one when the core gets
# better.
CASES = {
    "rings": (lambda: workloads.disjoint_rings(64), 2133),
    "rings on a fat-tree": (lambda: workloads.rings_on_fat_tree(8), 644),
    "web search": (lambda: workloads.web_search(8, 2000), 6986),
    "all-to-all": (lambda: workloads.all_to_all(8, 64), 1772),
    "balanced all-to-all": (lambda: workloads.all_to_all(8, 64, spread="balanced"), 1200),
    "jittered all-to-all": (lambda: workloads.all_to_all(8, 32, jitter=0.1), 14433),
    "overloaded mix": (lambda: workloads.overloaded_mix(4, 10, 30), 18288),
}
RECORDED_WITH = "12"  # major version of g++
SLACK, SLACK_OF_ANOTHER_COMPILER = 1.05, 1.5

# Everything core.cpp does for link_bytes() and busy_time() while it runs; what they do themselves
# is counted as well.
STATISTICS = ("if (link.count == 0) busy[l] -= now;", "busy[l] += now;", "ended.push_back(f);")
COUNTED = ("add", "run", "link_bytes", "busy_time")


class Counter:
    """The instructions that one build of the core spends in rf_add and rf_run; with `bins`, in link
    statistics too.
    """

    def __init__(self, folder: Path, core: Path):
        self.folder, self.program = folder, folder / f"{core.stem}-driver"
        driver = Path(__file__).with_name("engine_driver.cpp")
        command = [
            *compiler(),
            "-std=c++17",
            "-O1",
            str(driver),
            str(core),
            f"-Wl,-rpath,{core.parent}",
        ]
        subprocess.run([*command, "-o", str(self.program)], check=True)

    def __call__(self, work: workloads.Work, bins: int = 0) -> int:
        bench.write_work(work, self.folder / "a.work")
        end = completion_times(capacity=work.capacity, **work.columns).max() if bins else 0.0
        command = [
            "valgrind",
            "--tool=callgrind",
            *[f"--toggle-collect=rf_{name}" for name in COUNTED],
            f"--callgrind-out-file={self.folder / 'callgrind.out'}",
            str(self.program),
            str(self.folder / "a.work"),
            *([str(bins), repr(float(end))] if bins else []),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(re.search(r"Collected : (\d+)", done.stderr)[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cost")


@pytest.fixture(scope="module")
def counted(folder):
    return Counter(folder, engine_alone(folder / "core.so", *FAST))


@pytest.fixture(scope="module")
def counted_without_statistics(folder):
    source = SOURCE.read_text()
    for statement in STATISTICS:
        assert source.count(statement) == 1, (
            f"core.cpp does not say {statement!r} once: name what it says now"
        )
        source = source.replace(statement, "")
    (folder / "bare.cpp").write_text(source)
    bare = engine_alone(folder / "bare.so", *FAST, source=folder / "bare.cpp")
    return Counter(folder, bare)


def slack() -> float:
    command = [*compiler(), "-dumpversion"]
    version = (
        subprocess.run(command, capture_output=True, text=True, check=True)
        .stdout.partition(".")[0]
        .strip()
    )
    macros = subprocess.run(
        [*compiler(), "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True
    ).stdout
    same = version == RECORDED_WITH and "__clang__" not in macros and "__x86_64__" in macros
    return SLACK if same else SLACK_OF_ANOTHER_COMPILER


@pytest.mark.parametrize("name", CASES)
def test_a_flow_costs_no_more_instructions_than_recorded(name, counted):
    make, recorded = CASES[name]
    work = make()
    assert counted(work) / work.flows < recorded * slack()


def test_counts_repeat(counted):
    work = workloads.web_search(8, 300)
    assert counted(work) == pytest.approx(counted(work), rel=1e-3)


def test_cost_is_linear_in_flows(counted):
    """Twice the flows at a load that lets as many leave as come, eight times the network: a flow
    costs what it did.
    """
    once, twice = (counted(workloads.web_search(8, n, load=0.3)) / n for n in (6000, 12000))
    assert twice < 1.15 * once
    # both large enough to be played in groups, which costs instructions and saves cache misses
    small, large = (counted(workloads.rings_on_fat_tree(k)) / k**3 for k in (16, 32))
    assert large < 1.15 * small


# A bin looks once at every flow in flight, so many of them cost little beside many events, but not
# beside a single one.
@pytest.mark.parametrize(
    ("name", "bins"),
    [("rings", 20), ("web search", 20), ("overloaded mix", 20), ("balanced all-to-all", 1)],
)
def test_link_statistics_cost_less_than_15_percent(name, bins, counted, counted_without_statistics):
    """Bytes at the end of time bins (what `utilisation` asks for) and busy times, against a core
    that keeps none.
    """
    work = CASES[name][0]()
    assert counted(work, bins) < 1.15 * counted_without_statistics(work)
