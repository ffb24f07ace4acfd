"""Whether tests notice a change: `make mutants ROOM=optics N=30`, or this file by itself.

N places of rfabric/ROOM are drawn (the same seed draws the same). One at a time is changed in a
copy of the tree and tests/ROOM are run on it (of a folder in a room, the room's): first those that
run the changed line, then all. A change that fails no test is a survivor: either a test is missing,
or the change does not matter. Prints each survivor and the score at the end; one with which the
tests never end is noticed.

Changed are: comparisons (< to <=, == to !=, ...), + - * / // %, min and max, `and` and `or`, `not`,
and whole numbers (n to n + 1). Tests marked `root` are not run; those in slow.txt with --slow.
"""

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__", "bench")
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
LOGIC = {ast.And: ast.Or, ast.Or: ast.And}
NAMES = {"min": "max", "max": "min"}
PATIENCE = 3.0  # times what the tests compute on the tree as it is; then a mutant is endless
BESIDE = 2.0  # the same by the clock: as often again, for programs that run beside it
LEAST_S = 20.0  # more in any case
PASSED = (0, 5)  # pytest's codes: all pass, or none is left
NO_SUCH = 4  # tests by name are not there, or what they import does not load
NOT_READ = ("annotation", "returns", "decorator_list")  # fields whose values decide nothing


@dataclass(frozen=True)
class Mutant:
    """One change: `old` at [start, end) of the file's bytes becomes `new`.

    `line` is where the change stands, `first` where its statement begins.
    """

    file: Path
    first: int
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old} -> {new}"


def mutants(file: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Every change that can be made to a file, named relative to `root`."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for first, node in _expressions(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        for changed in _changes(node):
            yield Mutant(file, first, node.lineno, start, end, old, f"({ast.unparse(changed)})")


def _expressions(node: ast.AST, first: int = 1) -> Iterator[tuple[int, ast.expr]]:
    """What is evaluated and the line of its statement, outermost first.

    Not what f-strings evaluate: Python 3.11 lacks their positions.
    """
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in NOT_READ or not isinstance(child, ast.AST) or _is_quiet(child):
                continue
            if isinstance(child, ast.expr):
                yield first, child
            yield from _expressions(child, child.lineno if isinstance(child, ast.stmt) else first)


def _is_quiet(node: ast.AST) -> bool:
    """An f-string, or the foot of a script."""
    guard = isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__")
    return guard or isinstance(node, ast.JoinedStr)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=[first, *more], comparators=right):
            yield ast.Compare(left, [COMPARISONS[type(first)](), *more], right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(LOGIC[type(op)](), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in NAMES:
            yield ast.Call(ast.Name(NAMES[name]), args, keywords)
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield ast.Constant(value + 1)


def drawn(room: str, number: int, seed: int, word: str = "") -> list[Mutant]:
    """`number` mutants of a room (or single file) drawn by `seed`, in the order of the tree."""
    at = ROOT / "rfabric" / room
    files = sorted(at.rglob("*.py")) if at.is_dir() else [at.with_suffix(".py")]
    every = [m for f in files if word in str(f) for m in mutants(f.relative_to(ROOT))]
    chosen = random.Random(seed).sample(range(len(every)), min(number, len(every)))
    return [every[i] for i in sorted(chosen)]


def tests_of(room: str) -> str:
    """The folder of tests/ that mirrors a room, or else the nearest one above."""
    mirror = Path("tests", room)
    return next(str(at) for at in (mirror, *mirror.parents) if (ROOT / at).is_dir())


@dataclass(frozen=True)
class Limits:
    """Seconds of a processor that tests may use, and those that may pass by the clock meanwhile, as
    some mutants wait for what never comes; without end where left out.
    """

    computing: float = inf
    passing: float = inf

    @classmethod
    def of(cls, computed: float, passed: float) -> "Limits":
        """Those of a mutant, where the tree as it is took so long."""
        return cls(LEAST_S + PATIENCE * computed, LEAST_S + BESIDE * PATIENCE * passed)


def tested(tree: Path, tests: list[str], *options: str, limits: Limits = Limits()) -> int | None:
    """Exit code of the tests on a tree, 0 if all pass; None where they are beyond their limits."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options]
    around = {"cwd": tree, "env": os.environ | {"PYTHONPATH": str(tree)}, "start_new_session": True}
    null = subprocess.DEVNULL
    started = subprocess.Popen([*command, *tests], stdout=null, stderr=null, **around)
    if limits.computing < inf:
        most = int(limits.computing)
        resource.prlimit(started.pid, resource.RLIMIT_CPU, (most, most + 1))
    try:
        code = started.wait(limits.passing if limits.passing < inf else None)
        return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
    except subprocess.TimeoutExpired:
        return None
    finally:
        if started.poll() is None:
            os.killpg(started.pid, 9)  # its session is its own: what it started goes with it
            started.wait()


class Ran:
    """Which tests run which lines of a tree, by what coverage wrote there."""

    def __init__(self, tree: Path) -> None:
        self.data = CoverageData(str(tree / ".coverage"))
        self.data.read()
        self.tree = tree.resolve()
        lines = (tests for file in self.data.measured_files() for tests in self._of(file).values())
        self.amounts = Counter(test for tests in lines for test in tests)

    def _of(self, file: str) -> dict[int, set[str]]:
        """Tests by line, without their parameters and phase: tests/x.py::test_y[1]|run."""
        contexts = self.data.contexts_by_lineno(file)
        return {
            line: {test.partition("|")[0].partition("[")[0] for test in tests if test}
            for line, tests in contexts.items()
        }

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that run the mutant's statement, those that run the fewest lines first."""
        by_line = self._of(str(self.tree / mutant.file))
        span = range(mutant.first, mutant.line + 1)
        here = {test for line in span for test in by_line.get(line, ())}
        return sorted(here, key=lambda test: (self.amounts[test], test))


def verdict(
    mutant: Mutant, tree: Path, ran: Ran, tests: list[str], marks: str, limits: Limits
) -> str:
    """What the tests, first those that `ran` it, say of a change: noticed, survived or endless."""
    target = tree / mutant.file
    before = target.read_bytes()
    target.write_bytes(before[: mutant.start] + mutant.new.encode() + before[mutant.end :])
    try:
        likely = ran.tests(mutant)
        code = tested(tree, likely, "-m", marks, limits=limits) if likely else 0
        if code in (*PASSED, NO_SUCH):
            code = tested(tree, tests, "-m", marks, limits=limits)
    finally:
        target.write_bytes(before)
    return "endless" if code is None else "survived" if code in PASSED else "noticed"


def main(argv: list[str] | None = None) -> int:
    """Draw, change, test and tell; exit code 2 where the tests fail on the tree as it is."""
    parser = argparse.ArgumentParser("tests/mutants.py", description=__doc__.partition("\n")[0])
    parser.add_argument("room", help="a folder of rfabric/, or a file there without its .py")
    parser.add_argument("-n", "--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", default="", help="only files with this in their path")
    parser.add_argument("--slow", action="store_true", help="tests of slow.txt as well")
    parser.add_argument("--tests", nargs="+", help="what to run instead of tests/ROOM")
    args = parser.parse_args(argv)
    tests = args.tests or [tests_of(args.room)]
    marks = "not root" if args.slow else "not root and not slow"
    with tempfile.TemporaryDirectory(prefix="rfabric-mutants-") as scratch:
        tree = Path(scratch, "tree")
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        return _told(drawn(args.room, args.number, args.seed, args.file), tree, tests, marks)


def _told(chosen: list[Mutant], tree: Path, tests: list[str], marks: str) -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    files = sorted({f"--cov={mutant.file.parent}" for mutant in chosen})
    begun = time.monotonic()
    if tested(tree, tests, "-m", marks, "--cov-context=test", "--cov-report=", *files):
        print(f"{' '.join(tests)}: fail without any change, so they say nothing", file=sys.stderr)
        return 2
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    limits = Limits.of(used.ru_utime + used.ru_stime, time.monotonic() - begun)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the unchanged tree's is there and stays
    ran = Ran(tree)
    verdicts: Counter[str] = Counter()
    for number, mutant in enumerate(chosen, 1):
        said = verdict(mutant, tree, ran, tests, marks, limits)
        verdicts[said] += 1
        if said != "noticed":
            print(f"{said} {number}/{len(chosen)}  {mutant}", flush=True)
    caught = len(chosen) - verdicts["survived"]
    print(f"noticed {caught} of {len(chosen)} ({caught / max(len(chosen), 1):.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
