"""The house: which room may import which, and that `import rfabric` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rfabric"
GROUND = {"units", "errors", "native"}
MAY = {
    "units": set(),
    "errors": set(),
    "native": set(),
    "fabric": set(),
    "optics": {"fabric"},
    "trace": {"fabric", "optics"},
    "rl": {"fabric", "optics", "trace"},
    "report": {"fabric", "optics", "trace", "rl"},
    "simulate": {"fabric", "optics", "trace", "report"},
    "control": {"fabric", "optics"},
    "emulate": {"fabric", "optics", "trace", "report", "control"},
    "study": {"fabric", "optics", "trace", "rl", "simulate", "emulate", "report"},
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


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_mininet_and_ryu_are_imported_in_their_rooms_and_inside_functions(file):
    room = file.relative_to(ROOT).parts[0]
    for module, at_top in imports(file):
        root = module.split(".")[0]
        if root == "mininet":
            assert room == "emulate" and not at_top
        if root in ("ryu", "os_ken"):
            assert file.relative_to(ROOT).as_posix() == "control/seam.py"
        assert root != "scapy"


def test_every_folder_of_modules_is_a_package_that_an_installation_gets():
    assert not [f.parent for f in ROOT.rglob("*.py") if not (f.parent / "__init__.py").is_file()]


def test_import_rfabric_is_light():
    code = "import sys, rfabric, rfabric.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
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
