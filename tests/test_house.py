"""The house: which room may import which and is tested where, how long files and lines are, what
has a name of its own and a docstring.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent / "rfabric"
GROUND = {"units", "errors", "files", "folders", "specs", "plugins", "native", "nccl", "protobuf"}
BELOW_COMPUTE = {"fabric", "routing", "optics", "trace"}
ABOVE = {"compute", "rl", "schedulers", "simulate", "emulate", "control", "report"}
MAY = dict.fromkeys(GROUND, set()) | {
    "fabric": set(),
    "routing": {"fabric"},
    "optics": {"fabric", "routing"},
    "trace": {"fabric", "routing", "optics"},
    "compute": set(),
    "rl": {"compute", "trace", "fabric"},
    "schedulers": {"rl", "compute", "trace", "optics", "fabric"},
    "report": BELOW_COMPUTE,
    "simulate": BELOW_COMPUTE | {"report"},
    "control": {"fabric", "routing", "optics"},
    "emulate": BELOW_COMPUTE | {"report", "control"},
    "study": BELOW_COMPUTE | ABOVE,
    "cli": BELOW_COMPUTE | ABOVE | {"study"},
    "__init__": set(),  # what it offers is loaded on first use
    "__main__": {"cli"},
}


def imports(file):
    """(module, whether at import time) of every rfabric or foreign import in a file."""
    tree = ast.parse(file.read_text())
    top = {id(n) for n in tree.body}
    package = ("rfabric", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, node.module or "")).strip(".")
            names = [f"{module}.{a.name}" for a in node.names] if module == "rfabric" else [module]
            for name in names:
                yield name, id(node) in top


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_run_one_way(file):
    room = file.relative_to(ROOT).parts[0].removesuffix(".py")
    for module, _ in imports(file):
        package, *rest = module.split(".")
        if package == "rfabric" and rest != ["__version__"]:
            assert rest and rest[0] in MAY[room] | GROUND | {room}, f"{file}: {module}"


def rooms():
    """Folders and modules of rfabric."""
    return {f.name.removesuffix(".py") for f in ROOT.iterdir() if f.suffix == ".py" or holds(f)}


def holds(folder):
    """Whether there is Python in a folder: else what is left of one, or a cache."""
    return folder.is_dir() and any(folder.rglob("*.py"))


def test_every_room_says_what_it_may_import():
    assert MAY.keys() == rooms()


# --- tests -------------------------------------------------------------------------------------

TESTED_ELSEWHERE = {  # rooms of one module
    "__init__": "cli/test_face.py: its verbs are those of the command line",
    "__main__": "cli/test_cli.py, whose processes it starts",
    "errors": "where each is raised",
    "folders": "test_wheel.py: where an installation has them",
    "nccl": "fabric/test_topology_files.py, compute/test_communication.py: by who reads it",
    "protobuf": "trace/test_importers.py: by the formats that are written in it",
}
OF_ALL_ROOMS = {
    "examples": "docstrings",
    "fuzz": "what reads files and requests, fed by a fuzzer",
    "house": "these rules",
    "inputs": "all that reads a file, and files that are odd",
    "json": "all that is written as JSON",
    "lessons": "README and docs",
    "wheel": "an installation",
}


def test_tests_mirror_the_rooms():
    folders = {f.name for f in TESTS.iterdir() if holds(f)}
    assert folders == {f.name for f in ROOT.iterdir() if holds(f)}
    modules = {f.stem.removeprefix("test_") for f in TESTS.glob("test_*.py")} - set(OF_ALL_ROOMS)
    assert modules == rooms() - folders - set(TESTED_ELSEWHERE)
    named = {*re.findall(r"\S+\.py", " ".join(TESTED_ELSEWHERE.values()))}
    named |= {f"test_{name}.py" for name in OF_ALL_ROOMS}
    assert not [name for name in named if not (TESTS / name).is_file()]


def test_no_circle_of_files():
    """Imports inside functions and for types alone count as well."""
    files = {
        ".".join(("rfabric", *f.relative_to(ROOT).with_suffix("").parts)): f
        for f in ROOT.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    graph = nx.DiGraph()
    for name, file in files.items():
        for module in named(file):
            target = module if module in files else module.rpartition(".")[0]
            if target in files and target not in (name, "rfabric"):
                graph.add_edge(name, target)
    groups = nx.strongly_connected_components(graph)
    circles = [sorted(group) for group in groups if len(group) > 1]
    assert not circles


def named(file):
    """Every rfabric module, or name in one, that a file imports."""
    package = ("rfabric", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join(filter(None, (*base, node.module or "")))
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_mininet_and_ryu_are_imported_in_their_rooms_and_inside_functions(file):
    room = file.relative_to(ROOT).parts[0]
    for module, at_top in imports(file):
        root = module.split(".")[0]
        if root == "mininet":
            assert room == "emulate" and not at_top
        if root in ("ryu", "os_ken"):
            assert file.relative_to(ROOT).as_posix() == "control/seam.py"
        if root == "scapy":
            place = file.relative_to(ROOT).as_posix()
            assert place == "trace/formats/pcap_packets.py" and not at_top


def test_every_folder_of_modules_is_a_package_that_an_installation_gets():
    assert not [f.parent for f in ROOT.rglob("*.py") if not (f.parent / "__init__.py").is_file()]


def test_import_rfabric_is_light():
    code = "import sys, rfabric, rfabric.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "scipy",
        "matplotlib",
        "numba",
        "mininet",
        "ryu",
        "os_ken",
        "scapy",
        "jinja2",
        "networkx",
        "numpy",
        "rustworkx",
    }
    assert not heavy & set(loaded)


def test_the_tree_of_the_readme_is_the_tree():
    readme = (ROOT.parent / "README.md").read_text(encoding="utf-8")
    drawn = readme.split("## The tree, in reading order")[1].split("```")[1]
    named = {
        word.strip(",")
        for line in drawn.strip().splitlines()
        for word in line.split("  ")[0].split()
    }
    named |= {f"rfabric/{name}" for name in named if "/" not in name}
    assert not [name for name in named if "/" in name and not (ROOT.parent / name).exists()]
    there = {f"rfabric/{f.name}{'/' if f.is_dir() else ''}" for f in ROOT.iterdir()}
    beside = {"rfabric/__pycache__/", "rfabric/__main__.py"}
    assert not there - named - beside


# --- lengths -----------------------------------------------------------------------------------

LONGEST_FILE = 400  # lines
LONG_FILES = {  # and why they are longer
    "compute/serving.py": "one event loop of one server: its parts share one state",
    "compute/training.py": "one pass over a layer: each term of its time is a few lines",
    "control/app.py": "what an event loop hears and what a worker does about it",
    "control/core.py": "one state machine: what it answers to each order, and its way back",
    "control/seam.py": "all that differs between Ryu and os-ken; nothing else needs to know",
    "emulate/drills.py": "the faults, a function each, and the table of what they promise",
    "emulate/network.py": "one network, from plugging to closing",
    "emulate/replay.py": "one replay loop with its clock, wire and rewires",
    "emulate/sandbox.py": "the outside and the inside of one world: what one makes the other ends",
    "emulate/wire.py": "one set of lanes: opened, warmed, sent on and closed",
    "fabric/cost.py": "parts, prices and bills, which are read together",
    "optics/policies.py": "every policy beside the next, and the table of their names",
    "report/result.py": "one noun and what is worked out from its columns",
    "routing/placing.py": "one algorithm",
    "routing/schemes.py": "every scheme beside the next, and the table of their names",
    "simulate/bench.py": "our side and the peer's, measured in one way",
    "simulate/world.py": "one event loop of the flow-level world",
    "study/forecast.py": "one walk through a trace",
    "study/reproduce/rollart.py": "a paper's experiments, table by table",
    "study/reproduce/weave.py": "a paper's experiments, table by table",
    "trace/model.py": "one noun and what is worked out from its columns",
}


def test_a_file_is_long_for_a_reason_that_is_written_down():
    files = {f.relative_to(ROOT).as_posix(): f.read_text() for f in ROOT.rglob("*.py")}
    long = {name for name, text in files.items() if len(text.splitlines()) > LONGEST_FILE}
    assert not long - set(LONG_FILES), f"more than {LONGEST_FILE} lines: divide, or say why"
    assert not set(LONG_FILES) - long, "no longer so long: take them off the table"


def longest_line() -> int:
    """Characters, for prose and code alike where pyproject.toml makes no difference."""
    ruff = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["ruff"]
    return ruff["lint"].get("pycodestyle", {}).get("max-line-length", ruff["line-length"])


def test_lines_are_no_longer_than_pyproject_allows():
    """Ruff reads Python alone. As with ruff, one word that is too long may stand by itself."""
    written = [TESTS.parent / name for name in ("Makefile", "setup.cfg", "CHANGELOG.md")]
    written += [TESTS.parent / "CONTRIBUTING.md", TESTS.parent / "README.md"]
    written += (TESTS.parent / "docs").glob("*.md")
    for name in ("rfabric", "tests", "topologies", "controller", "traffic", "docs"):
        written += [f for f in (TESTS.parent / name).rglob("*") if f.suffix in (".py", ".cpp")]
    longest = longest_line()
    assert not [
        f"{file.relative_to(TESTS.parent)}:{number}"
        for file in written
        for number, line in enumerate(lines_of(file), 1)
        if len(line) > longest and len(line.split()) > 1
    ]


def lines_of(file):
    """Its lines; of a page without tables, pictures, blocks of commands and what a link leads to,
    which cannot be broken.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    if file.suffix != ".md":
        return lines
    kept, fenced = [], False
    for line in lines:
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        whole = fence or fenced or line.lstrip().startswith(("|", "!["))
        kept.append("" if whole else re.sub(r"\]\([^)]*\)", "]", line))
    return kept


# --- names -------------------------------------------------------------------------------------

NOUN = re.compile(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")  # not a constant


def nouns(body):
    """Classes of a file, names of types, type variables."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        for target in getattr(node, "targets", ()):
            if isinstance(target, ast.Name) and NOUN.fullmatch(target.id):
                yield target.id


def shared_nouns(sources):
    """Public nouns that stand in several files, and private ones that a public one is called as."""
    files = defaultdict(list)
    for name, text in sources.items():
        for noun in nouns(ast.parse(text).body):
            files[noun].append(name)
    meant = {noun: where + files.get(f"_{noun}", []) for noun, where in files.items()}
    return {n: where for n, where in meant.items() if n[0] != "_" and len(where) > 1}


def test_a_noun_has_one_meaning():
    """Who reads a name in one file may trust it in the next."""
    assert not shared_nouns({f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8")
                             for f in sorted(ROOT.rglob("*.py"))})  # fmt: skip


def test_what_two_files_call_alike_is_told():
    """Classes and names of types; of private ones, only what a public one is called too."""
    one = "class Job: ...\nclass _Own: ...\nLIMIT = 3\nPair = tuple[str, str]\n"
    two = "class _Job: ...\nclass _Own: ...\nLIMIT = 4\nPair = tuple[int, int]\n"
    assert shared_nouns({"a.py": one, "b.py": two}) == {
        "Job": ["a.py", "b.py"], "Pair": ["a.py", "b.py"]
    }  # fmt: skip


# --- docstrings --------------------------------------------------------------------------------


FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
ALIKE = {"to_json", "from_json"}  # plain data and back, quantities under keys with their units


def public(body, within=None):
    """(class it stands in, definition) of each public class, function and method."""
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            yield within, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, node)


def name_of(base):
    """What a class names as its base: `seam.App` and `Protocol[T]` by `App` and `Protocol`."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def with_bases(node, classes):
    """A class and all that it is derived from."""
    yield node
    for base in map(name_of, node.bases):
        for known in classes.get(base, ()):
            if known is not node:
                yield from with_bases(known, classes)


def offered(node, classes):
    """Names that objects of a class have: methods, fields, what methods set."""
    for one in with_bases(node, classes):
        yield from (part.name for part in one.body if isinstance(part, FUNCTIONS))
        for part in one.body:
            targets = getattr(part, "targets", [getattr(part, "target", None)])
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        stored = (part for part in ast.walk(one) if isinstance(part, ast.Attribute))
        yield from (part.attr for part in stored if isinstance(part.ctx, ast.Store))


def described_above(node, classes, protocols):
    """Methods that a base of a class, or a protocol that it implements, describes."""
    _, *above = with_bases(node, classes)
    has = {*offered(node, classes)}
    above += [p for p in protocols if p is not node and has.issuperset(offered(p, classes))]
    return {m.name for one in above for m in one.body
            if isinstance(m, FUNCTIONS) and ast.get_docstring(m)}  # fmt: skip


def silent_in(sources):
    """Modules, public classes, functions and methods without docstring: `file: name`."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    classes = {}
    for node in (n for tree in trees.values() for n in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            classes.setdefault(node.name, []).append(node)
    every = [node for some in classes.values() for node in some]
    protocols = [node for node in every if "Protocol" in map(name_of, node.bases)]
    for file, tree in trees.items():
        if not ast.get_docstring(tree):
            yield file
        for within, node in public(tree.body):
            if not ast.get_docstring(node) and not (
                within and node.name in ALIKE | described_above(within, classes, protocols)
            ):
                yield f"{file}: {within.name + '.' if within else ''}{node.name}"


def test_everything_public_says_what_it_is():
    """Exempt: what begins with an underscore, functions inside functions, a method that a base of
    its class or a protocol describes, and what is the same everywhere (ALIKE).
    """
    assert not [*silent_in({f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8")
                            for f in sorted(ROOT.rglob("*.py"))})]  # fmt: skip


def own(node, kept=()):
    """What stands in a function itself, not in one inside it, nor where its own `except` sees."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) or part in kept:
            continue
        yield part
        yield from own(part, part.body if isinstance(part, ast.Try) and part.handlers else ())


def raised(function):
    """What a function itself raises, where it is not for those who derive from its class to do."""
    made = (ast.unparse(n.exc) for n in own(function) if isinstance(n, ast.Raise) and n.exc)
    return [text for text in made if text != "NotImplementedError"]


TELLS = re.compile(r"\w+Error\b|\b[Rr]aises?\b|\bRefusedRow\b")


def untold_in(sources):
    """Public functions that raise what neither they nor their class or module tell of."""
    for file, text in sources.items():
        tree = ast.parse(text)
        for within, node in public(tree.body):
            told = " ".join(ast.get_docstring(n) or "" for n in (tree, within, node) if n)
            if isinstance(node, FUNCTIONS) and raised(node) and not TELLS.search(told):
                yield f"{file}: {within.name + '.' if within else ''}{node.name}"


def test_everything_public_says_what_it_raises():
    assert not [*untold_in({f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8")
                            for f in sorted(ROOT.rglob("*.py"))})]  # fmt: skip


RAISING = '''
def quiet(x):
    """A number."""
    raise ValueError(x)
def telling(x):
    """A number; ValueError for others."""
    raise ValueError(x)
def catching(x):
    """A number, or nothing."""
    try:
        raise ValueError(x)
    except ValueError:
        return None
class Base:
    """For others."""
    def decide(self):
        """An answer."""
        raise NotImplementedError
'''


def test_who_raises_and_does_not_say_so_is_told():
    assert [*untold_in({"a.py": RAISING})] == ["a.py: quiet"]


SOURCE = '''"""Policies."""
class Asked(Protocol):
    """Whom one asks."""
    slot: float
    def decide(self):
        """The answer."""
class Fixed:
    """Implements it."""
    def __init__(self):
        self.slot = 1.0
    def decide(self): ...
class Mine(Fixed):
    """Inherits from who does."""
    def decide(self): ...
class Other:
    """Has a method of that name."""
    def decide(self): ...
    def to_json(self): ...
'''


def test_a_method_is_not_described_by_who_has_one_of_its_name():
    assert [*silent_in({"a.py": SOURCE})] == ["a.py: Other.decide"]


# --- slow tests --------------------------------------------------------------------------------


def test_every_slow_test_is_still_there():
    """Else slow.txt keeps out of `make check` what has a new name: `pytest --write-slow 1`."""
    tests = Path(__file__).parent
    for line in (tests / "slow.txt").read_text().split():
        file, _, name = line.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (tests.parent / file).read_text(), line


# --- several processes -------------------------------------------------------------------------


def test_files_that_take_minutes_are_there_and_come_first(pytestconfig):
    tests = Path(__file__).parent
    shared = pytestconfig.pluginmanager.get_plugin(str(tests / "conftest.py"))
    first, second, *_ = long = shared.LONG
    assert all((tests / name).exists() for name in long)
    items = [SimpleNamespace(path=tests / name) for name in ("a.py", second, "b.py", first)]
    shared._line_up(items)
    names = [item.path.relative_to(tests).as_posix() for item in items]
    assert names == [first, second, "a.py", "b.py"]
