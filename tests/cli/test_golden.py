"""Golden runs: what every verb that needs neither root nor network says of small inputs, and what
it writes, beside what it said and wrote when somebody last looked at it.

golden.json keeps short texts whole, and two digits of a hash for each line, or few lines, of longer
ones, each text once. Versions, dates and hashes of the model are left out of both, and numbers are
rounded. Pages, pictures and Parquet are not compared, as the versions of libraries decide them, nor
are copies of shipped files. After a change of output that is meant:

    .venv/bin/python tests/cli/test_golden.py --write
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from written import INPUTS, OPTICAL, SMALL, begun, filled, left, said

from rfabric.cli.arguments import parser

AGAIN = ".venv/bin/python tests/cli/test_golden.py --write"
GOLDEN = Path(__file__).with_name("golden.json")
LARGEST = 60_000  # bytes of it, so that a change of it can be read
WHOLE = 1000  # characters of a text that is kept as it is
MARKS = 60  # of a longer text, at most
DIGITS = 9  # that a number has; versions of numpy and of Python may differ in those beyond
SMALLEST = 1e-12  # of which nothing but rounding is left
NOT_COMPARED = (".png", ".html", ".parquet", "/store.json")

OVER = "--topo fat-tree,oversubscription=4"
OWN = "longest_first.py:longest-first+ring_policy.py:ring,skip=2"
FEW = "--traffic grpo-64 --set generation.batch=64"
CUTS = "--traffic orchestrrl-64 --set generation.batch=256"
# Commands that run one after the other in a folder with the inputs of `written`.
CASES: tuple[tuple[str, ...], ...] = (
    (f"simulate --traffic flows.csv {SMALL} --seed 3", "report runs/*", "check runs/* flows.csv"),
    (
        f"simulate --traffic flows.csv {SMALL} --policy static --policy demand --in-flight drain "
        "--routing split --no-report --json",
    ),
    (
        "simulate --topo rfabric --topo mixnet --traffic grpo-64 --no-report --policy "
        "demand,granularity=per-collective",
    ),
    (f"simulate --no-report {CUTS} --policy orchestrrl",),
    (
        f"simulate --topo rfabric --no-report --json {CUTS} --policy "
        "orchestrrl,network=fabric+phase",
    ),
    ("simulate --topo leaf-spine --traffic weave-2jobs --policy random --no-report --json",),
    (f"simulate --topo rfabric --no-report {FEW} --policy {OWN}",),
    ("simulate --policy demnd",),
    ("simulate --traffic grpo-64 --policy sync --policy async",),
    (f"simulate --traffic grpo-64 {SMALL} --policy sync,network=fabric",),
    (f"compare {SMALL} --traffic flows.csv --policy static --policy bvn --no-report --jobs 1",),
    (
        f"compare {SMALL} --traffic flows.csv --seeds 2 --no-report --jobs 1 --json --match cost "
        "--transport rdma",
    ),
    (
        f"compare --topo rfabric {OVER} --no-report --jobs 1 {FEW} --policy "
        "sync,network=fabric --policy orchestrrl,network=fabric+phase",
    ),
    ("compare --topo rfabric",),
    (f"replay flows.csv {SMALL} --policy greedy --repetitions all --no-report --json",),
    ("replay grpo-64",),
    (f"replay flows.csv {SMALL} --pcap h1",),
    ("trace grpo-64 --explain",),
    ("trace grpo-64-moe --set pipeline=async --set staleness=2 -o sent.csv --json",),
    ("topo rfabric,pods=2,tors=2 -o lab.clab.yml", "check lab.clab.yml roll.yaml none.csv --json"),
    ("topo mixnet --dot",),
    (f"replay flows.csv {OPTICAL} --no-report --quiet", "report runs/* -o all.html --yours "
     "train.log"),
    ("list --json",),
    ("clean",),
    ("validate data --rows", "validate data --json"),
    ("validate-run train.log --traffic grpo-64",),
    ("import roll roll.yaml -o mine.yaml", "trace mine.yaml --json"),
    (
        "crossover --topo rfabric --against fat-tree --traffic grpo-64 --granularity per-phase "
        "--delays 1ms,10ms --jobs 1",
    ),
    ("model Qwen3-30B-A3B --tp 4 --ep 4",),
    ("cost --topo fat-tree --topo mixnet --gpus 1024 --sweep --step-s 205 --gpu-usd-per-hour 5",),
    (f"circuits {SMALL} --traffic flows.csv --policy demand --policy bvn",),
    (f"circuits --topo rfabric {FEW} --policy sync,network=fabric --json",),
    ("circuits --policy rotor --traffic flows.csv",),
    ("reproduce opus",),
    ("reproduce mixnet --json",),
    (f"timeline --policy orchestrrl {CUTS}",),
    (f"timeline --policy orchestrrl,network=fabric {OVER} {CUTS} --json",),
    ("timeline --policy weave --traffic weave-2jobs --perfetto drawn.json",),
    ("timeline --policy solo --jobs jobs.csv",),
    (
        f"sweep {SMALL} --traffic flows.csv --seeds 2 --jobs 1 --cache known --json",
        f"sweep {SMALL} --traffic flows.csv --seeds 2 --jobs 1 --cache known --store again",
        "best --minimise step_s",
        "query 'select fabric, policy, seed, step_s, network_usd from cells order by all' --csv",
        "merge sweep again --store all",
    ),
)  # fmt: skip
STORE = {"sweep", "best", "query", "merge"}  # verbs that need pyarrow and duckdb
ROOT = "needs root: tests/emulate, and tests/cli/test_cli.py"
NOT_GOLDEN = {
    "emulate": ROOT,
    "selftest": ROOT,
    "drill": ROOT,
    "shell": ROOT,
    "agent": ROOT,
    "doctor": "says what this machine is",
    "bench": "says what this machine takes: tests/cli/test_cli.py",
    "control": "serves until it is told to end: tests/control",
    "ocs": "asks a controller that runs: tests/control",
    "completion": "shtab and argparse word it, each version otherwise: tests/cli/test_shells.py",
    "man": "argparse words it, each version otherwise: tests/cli/test_shells.py",
}
VERSIONS = re.compile(r'"versions": \{[^{}]*\}')
HASHED = re.compile(r'(sha256 |hash": ")[0-9a-f]+')
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def name_of(case: Sequence[str]) -> str:
    """How golden.json calls a case."""
    return "; ".join(case)


def plain(data: bytes) -> str:
    """A text without what may differ from machine to machine."""
    text = HASHED.sub(r"\1-", VERSIONS.sub('"versions": {}', data.decode()))
    return NUMBER.sub(_rounded, text)


def _rounded(found: re.Match) -> str:
    word = found[0]
    if word.lstrip("-").isdigit():
        return word
    if 0 < abs(float(word)) < SMALLEST:
        return "0.0"
    digits = word.partition("e")[0].lstrip("-0.")
    return word if len(digits) <= DIGITS else repr(float(f"{float(word):.{DIGITS}g}"))


def ran(case: Sequence[str], folder: Path) -> dict[str, str]:
    """What each command of a case says, and each file that is there afterwards."""
    filled(folder)
    texts = {}
    for number, command in enumerate(case, 1):
        told = said(begun([*words_of(command, folder)], folder))
        verb = f"{number}. {command.split()[0]}"
        for name, data in told.items():
            if data not in (b"", b"0"):  # silence, and an exit code of success
                texts[f"{verb}: {name}"] = plain(data)
    files = {name: plain(data) for name, data in left(folder).items() if is_compared(name)}
    return texts | {name.removeprefix("runs/-/"): text for name, text in files.items()}


def words_of(command: str, folder: Path) -> Iterator[str]:
    """Its words, with names of files for patterns."""
    for word in shlex.split(command):
        if word.endswith("*"):
            yield from sorted(str(path.relative_to(folder)) for path in folder.glob(word))
        else:
            yield word


def is_compared(name: str) -> bool:
    """Whether a file is one that a verb wrote, and whose text is the same everywhere."""
    shipped = "/inputs/" in name and Path(name).name not in INPUTS
    kept = name in INPUTS or name.startswith("known/")
    return not (shipped or kept or name.endswith(NOT_COMPARED))


# --- golden.json ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Long:
    """What is kept of a long text: its lines, and two digits for each `size` of them."""

    lines: int
    size: int
    marks: str

    @classmethod
    def of(cls, lines: Sequence[str], size: int = 0) -> "Long":
        """A text of so many lines; `size` 0: as gives MARKS of them at most."""
        size = size or -(-len(lines) // MARKS)
        parts = (lines[i : i + size] for i in range(0, len(lines), size))
        return cls(len(lines), size, "".join(hashed("\n".join(part))[:2] for part in parts))

    def differs(self, lines: Sequence[str]) -> str:
        """Where these lines are others."""
        pairs = zip_longest(
            *(re.findall("..", of.marks) for of in (Long.of(lines, self.size), self))
        )
        first = self.size * next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
        count = f"{len(lines)} lines, were {self.lines}; " * (len(lines) != self.lines)
        return f"{count}from line {first + 1} on: {lines[first : first + self.size]}"


@dataclass
class Golden:
    """Texts of all cases: case -> name -> hash of a text; that -> its lines, or what is kept."""

    cases: dict[str, dict[str, str]] = field(default_factory=dict)
    texts: dict[str, list[str] | Long] = field(default_factory=dict)

    def keep(self, case: str, texts: Mapping[str, str]) -> None:
        """From now on these are the texts of the case."""
        self.cases[case] = {name: hashed(text) for name, text in texts.items()}
        for text in texts.values():
            lines = text.split("\n")
            self.texts[hashed(text)] = lines if len(text) <= WHOLE else Long.of(lines)

    def differences(self, case: str, now: Mapping[str, str]) -> list[str]:
        """Where the texts of a case are not as they were, a line each."""
        before = self.cases[case]
        found = {n: self._difference(now.get(n), before.get(n)) for n in {**before, **now}}
        return [f"{name}: {what}" for name, what in found.items() if what]

    def _difference(self, text: str | None, before: str | None) -> str:
        if text is None or before is None:
            what = "is no longer there" if text is None else "was not there before"
            return f"{what}: {text}" if text and len(text) <= WHOLE else what
        if hashed(text) == before:
            return ""
        lines, was = text.split("\n"), self.texts[before]
        if isinstance(was, Long):
            return was.differs(lines)
        pairs = enumerate(zip_longest(lines, was), 1)
        return next(f"line {n}: {a!r}, was {b!r}" for n, (a, b) in pairs if a != b)

    def to_text(self) -> str:
        """A line a case, and a line a text."""
        texts = {
            digest: [*vars(kept).values()] if isinstance(kept, Long) else kept
            for digest, kept in self.texts.items()
        }
        return f'{{"cases": {_lines(self.cases)}, "texts": {_lines(texts)}}}\n'

    @classmethod
    def read(cls) -> "Golden":
        """That of golden.json; what is kept of a long text begins with a number."""
        data = json.loads(GOLDEN.read_text(encoding="utf-8"))
        texts = {
            digest: Long(*kept) if isinstance(kept[0], int) else kept
            for digest, kept in data["texts"].items()
        }
        return cls(data["cases"], texts)


def _lines(of: Mapping) -> str:
    entries = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in of.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def hashed(text: str) -> str:
    """12 digits of its SHA-256."""
    return sha256(text.encode()).hexdigest()[:12]


def write_golden() -> None:
    """Run all cases, and keep what they say."""
    golden = Golden()
    for case in CASES:
        print(name_of(case), file=sys.stderr)
        with TemporaryDirectory() as folder:
            golden.keep(name_of(case), ran(case, Path(folder)))
    GOLDEN.write_text(golden.to_text(), encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_a_verb_says_and_writes_is_what_it_said_and_wrote(case, tmp_path):
    if STORE & {command.split()[0] for command in case}:
        pytest.importorskip("duckdb")
        pytest.importorskip("pyarrow")
    found = Golden.read().differences(name_of(case), ran(case, tmp_path))
    assert not found, "\n".join([*case, *found, "if that is meant: " + AGAIN])


def test_each_verb_is_golden_or_says_why_it_is_not():
    shown = {command.split()[0] for case in CASES for command in case}
    assert shown | NOT_GOLDEN.keys() == set(parser().verbs())
    assert not shown & NOT_GOLDEN.keys()


def test_what_is_golden_is_that_of_the_cases_and_can_be_read():
    assert list(Golden.read().cases) == [name_of(case) for case in CASES]
    assert GOLDEN.stat().st_size <= LARGEST


LONG = "\n".join(f"line {number} of many" for number in range(500))


@pytest.mark.parametrize(
    ("text", "now", "says"),
    [
        ("a\nb\n", "a\nb\n", ""),
        ("a\nb\n", "a\nc\n", "line 2: 'c', was 'b'"),
        ("a\n", "a\nc\n", "line 2: 'c', was ''"),
        ("a", None, "is no longer there"),
        (LONG, LONG, ""),
        (LONG, LONG.replace("333 of", "333 off"), "from line 334 on: ['line 333 off many'"),
        (LONG, f"{LONG}\nmore", "501 lines, were 500; from line "),
    ],
)
def test_the_first_line_that_differs_is_named(text, now, says):
    golden = Golden()
    golden.keep("case", {"stdout": text})
    told = golden.differences("case", {} if now is None else {"stdout": now})
    assert [one.startswith(f"stdout: {says}") for one in told] == [True] * bool(says)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"0.30000000000000004 s", b"0.3 s"),
        (b'"a": 100.00000000000001,', b'"a": 100.0,'),
        (b"1.1e-17,2", b"0.0,2"),
        (b'"versions": {"numpy": "1"}', b'"versions": {"numpy": "2", "mine.py": "3"}'),
        (b'"model_hash": "12ab"', b'"model_hash": "0f"'),
    ],
)
def test_what_may_differ_is_not_kept(one, other):
    assert plain(one) == plain(other)


@pytest.mark.parametrize(
    ("one", "other"), [(b"0.3", b"0.31"), (b"137438953472", b"137438953473"), (b"1.5", b"1.50")]
)
def test_what_may_not_differ_is_kept(one, other):
    assert plain(one) != plain(other)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"write {GOLDEN.name} anew: {AGAIN}")
    write_golden()
