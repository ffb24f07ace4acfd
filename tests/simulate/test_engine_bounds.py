"""The compiled core never touches memory that is not its own: stories played under AddressSanitizer
and UBSan.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rfabric.native import source_digest
from rfabric.simulate.build import BASE, CHECKED, OTHERS, SOURCE, compile_to, compiler

LINES = "-g1"  # all that a report shows: whole symbols take a third of the time to compile
# Plays what test_engine.py compares with the reference, more of it, and asks for every result
# after every call; then whole runs, whose ways are placed and whose tables are written compiled.
FUZZ = """
import sys
import warnings
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import HealthCheck, given, settings

sys.path.insert(0, sys.argv[1])
import test_engine as t
import rfabric
from rfabric.optics import cores, matched, swapped
from rfabric.simulate import workloads as w


def play(story):
    for engine, _, _ in t.live(*story, "compiled"):
        engine.start_times(), engine.finish_times(), engine.link_bytes()
        engine.busy_time(), engine.counters()
        engine.remaining(engine.active())
    engine.close()


def way(rng, links, longest):
    return rng.choice(links, rng.integers(1, longest + 1), replace=False).tolist()


def widening_story(rng):
    \"\"\"Paths of later batches are ever longer, then short; flows in flight move to such.\"\"\"
    links, calls, known = 70, [], 0
    for longest in (1, 2, 3, 5, 9, 17, 33, 70, 2, 1, 40):
        n = int(rng.integers(1, 30))
        ways = [way(rng, links, longest) for _ in range(n)]
        after = [
            rng.integers(0, known + i, 2).tolist() if known + i and rng.random() < 0.3 else []
            for i in range(n)
        ]
        size, latency = rng.uniform(0, 9, n), rng.uniform(0, 1, n)
        calls.append(("add", (), t.flows(ways, size, after=after, latency=latency)))
        known += n
        moved = rng.choice(known, min(known, 9), replace=False)
        ways = [way(rng, links, longest) for _ in moved]
        calls += [("pass", (rng.uniform(0, 2),), {}), ("reroute", (moved, *t.csr(ways)), {})]
        calls += [("watch", (rng.choice(known, 1),), {}), ("run", (), {})]
    return rng.uniform(1, 50, links), calls


@given(t.stories())
@settings(
    deadline=None, database=None, derandomize=True, max_examples=150,
    suppress_health_check=list(HealthCheck),
)
def drawn(story):
    play(story)


warnings.simplefilter("ignore", t.Deadlock)
drawn()
for seed in range(60):
    play(t.random_story(np.random.default_rng(seed)))
    play(widening_story(np.random.default_rng(seed)))
    play(t.incast_story(np.random.default_rng(seed)))
    t.completion_times(**t.random_case(np.random.default_rng(seed)), tolerance=1e-3 * (seed % 2))
for work in (
    w.disjoint_rings(16), w.all_to_all(8, 48, jitter=0.1), w.all_to_all(4, 16),
    w.web_search(4, 1000), w.overloaded_mix(4, 10, 20), w.rings_on_fat_tree(8, members=4),
    w.expert_groups(8),
):
    t.completion_times(capacity=work.capacity, **work.columns)
for seed in range(300):
    rng = np.random.default_rng(seed)
    one, other = np.triu_indices(int(rng.integers(2, 40)), 1)
    some = rng.random(len(one)) < rng.random()
    some[0] = True
    weight = rng.integers(0, 10 ** rng.integers(0, 9), some.sum())
    matched.by_core(one[some], other[some], weight)
    racks, planes = other.max() + 1, rng.integers(1, 4)
    region, given = rng.integers(-1, 2, (planes, racks)), np.zeros(some.sum())
    for until_met in (False, True):
        wanted = weight.astype(float) + 1
        swapped.swapped(one[some], other[some], wanted, region, 3, given, until_met)
    colours = int(rng.integers(1, 9))
    stubs = rng.permutation(np.repeat(np.arange(rng.integers(1, 9)), 2 * colours)).reshape(-1, 2)
    cores.by_core(stubs[stubs[:, 0] != stubs[:, 1]].T, colours)
for fabric, policy in ("rfabric", "demand"), ("fat-tree,oversubscription=2", "static"):
    with TemporaryDirectory() as folder:
        rfabric.simulate(fabric, "grpo-64-moe", policy, routing="placed").save(folder + "/run")
print("played")
"""


def sanitizer() -> str:
    """The runtime of AddressSanitizer, which must be loaded before Python, and that of C++, whose
    exceptions it looks for when it is: libraries of others throw some.
    """
    libraries = []
    for name in ("libasan.so", "libstdc++.so"):
        asked = [*compiler(), f"-print-file-name={name}"]
        libraries.append(Path(subprocess.run(asked, capture_output=True, text=True).stdout.strip()))
        if not libraries[-1].is_absolute():
            pytest.skip(f"{' '.join(compiler())} has no {name}: install g++, or set CXX")
    return " ".join(str(library.resolve()) for library in libraries)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """All of the core that is not the engine, as one object: the same with either."""
    made = tmp_path_factory.mktemp("others") / "others.o"
    flags = [flag for flag in BASE if flag != "-shared"]
    compile_to(made, ["-r", "-nostdlib", *flags, *CHECKED, LINES, *map(str, OTHERS)])
    return made


SMALL = ["-DRFABRIC_CROWD=2", "-DRFABRIC_APART=2"]


@pytest.mark.parametrize("flags", [[], SMALL], ids=["as it is", "small crowds and groups"])
def test_the_core_never_reads_or_writes_out_of_bounds(tmp_path, others, flags):
    runtime, core = sanitizer(), tmp_path / "core.so"
    engine = [*BASE, *CHECKED, LINES, *flags, f'-DRF_SOURCE="{source_digest()}"', str(SOURCE)]
    compile_to(core, [*engine, str(others)])
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "RFABRIC_CORE": str(core),
        # Python keeps memory till its end
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "played\n", done.stderr[-4000:]
