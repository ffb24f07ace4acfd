"""The house: which room may import which, how long files and lines are, what has a name of its own
and a docstring.
"""

import ast
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1] / "rfabric"
GROUND = {"units", "errors", "files", "folders", "specs", "plugins", "native"}
BELOW_COMPUTE = {"fabric", "routing", "optics", "trace"}
MAY = {
    "units": set(),
    "errors": set(),
    "files": set(),
    "folders": set(),
    "specs": set(),
    "plugins": set(),
    "native": set(),
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
    "study": BELOW_COMPUTE
    | {"compute", "rl", "schedulers", "simulate", "emulate", "control", "report"},
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
    if room in ("cli", "__init__", "__main__"):
        return
    for module, _ in imports(file):
        parts = module.split(".")
        if parts[0] == "rfabric" and len(parts) > 1 and parts[1] in MAY and parts[1] != room:
            assert parts[1] in MAY[room] | GROUND, f"{file.relative_to(ROOT)} imports {module}"


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
    "emulate/network.py": "one network, from plugging to closing",
    "emulate/replay.py": "one replay loop with its clock, wire and rewires",
    "emulate/sandbox.py": "the outside and the inside of one world: what one makes the other ends",
    "emulate/wire.py": "one set of lanes: opened, warmed, sent on and closed",
    "fabric/cost.py": "parts, prices and bills, which are read together",
    "optics/policies.py": "every policy beside the next, and the table of their names",
    "report/result.py": "one noun and what is worked out from its columns",
    "routing/placing.py": "one algorithm",
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
    names = ("Makefile", "setup.cfg", "CONTRIBUTING.md", "CHANGELOG.md")
    written = [ROOT.parent / name for name in names]
    for folder in (ROOT, *(ROOT.parent / name for name in ("tests", "topologies", "controller"))):
        written += [f for f in folder.rglob("*") if f.suffix in (".py", ".cpp")]
    longest = longest_line()
    assert not [
        f"{file.relative_to(ROOT.parent)}:{number}"
        for file in written
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > longest and len(line.split()) > 1
    ]


# --- names -------------------------------------------------------------------------------------

SAME_NAMES: dict[str, str] = {}  # of classes that stand in two files, and why they must


def test_a_public_class_has_a_name_of_its_own():
    """One noun, one meaning: who reads a name in one file may trust it in the next."""
    files = defaultdict(list)
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(file.relative_to(ROOT).as_posix())
    shared = {name: where for name, where in files.items() if len(where) > 1}
    assert {n: where for n, where in shared.items() if n not in SAME_NAMES} == {}
    assert not set(SAME_NAMES) - set(shared), "no longer in two files: take them off the table"


# --- docstrings --------------------------------------------------------------------------------


def described(file):
    """(name, docstring) of the module and each public class, function, method."""
    tree = ast.parse(file.read_text())
    yield "", ast.get_docstring(tree)
    yield from _described(tree.body)


def _described(body, within=""):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in body:
        if isinstance(node, kinds) and not node.name.startswith("_"):
            yield f"{within}{node.name}", ast.get_docstring(node)
            if isinstance(node, ast.ClassDef):
                yield from _described(node.body, f"{node.name}.")


def test_everything_public_says_what_it_is():
    """Exempt: what begins with an underscore, functions inside functions, and a method that another
    class of its room describes: there it is one verb of several nouns, such as a policy's `decide`.
    """
    silent = []
    for room in {f.relative_to(ROOT).parts[0] for f in ROOT.rglob("*.py")}:
        files = [ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py")
        every = [(file, name, text) for file in files for name, text in described(file)]
        verbs = {name.partition(".")[2] for _, name, text in every if text}
        silent += [
            f"{file.relative_to(ROOT)}: {name}"
            for file, name, text in every
            if not text and name.partition(".")[2] not in verbs - {""}
        ]
    assert not silent


# --- slow tests --------------------------------------------------------------------------------


def test_every_slow_test_is_still_there():
    """Else slow.txt keeps out of `make check` what has a new name: `pytest --write-slow 1`."""
    tests = Path(__file__).parent
    for line in (tests / "slow.txt").read_text().split():
        file, _, name = line.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (tests.parent / file).read_text(), line
