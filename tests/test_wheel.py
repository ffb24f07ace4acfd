"""What a wheel of this tree brings, and that rfabric runs from it outside the repository."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from rfabric.errors import RFabricError
from rfabric.simulate.build import compiler

ROOT = Path(__file__).parents[1]
TREE = (
    "rfabric", "topologies", "controller", "traffic", "setup.cfg", "pyproject.toml", "README.md",
    "LICENSE",
)  # fmt: skip
OFFLINE = ["--no-build-isolation"] if find_spec("setuptools") and find_spec("wheel") else []
QUIET = ["--quiet", "--disable-pip-version-check", "--no-deps"]


def pip(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: setuptools leaves build/ and *.egg-info where it builds."""
    tree, out = (tmp_path_factory.mktemp(name) for name in ("tree", "out"))
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    for built in tree.rglob("*.so"):
        built.unlink()
    pip("wheel", tree, "--wheel-dir", out, *QUIET, *OFFLINE)
    return next(out.glob("rfabric-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin/ of a fresh environment with the wheel; it shares what rfabric depends on."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    options = ["--system-site-packages", "--without-pip"]
    subprocess.run([sys.executable, "-m", "venv", *options, home], check=True)
    python = home / "bin" / "python"
    pip("--python", python, "install", *QUIET, "--no-index", "--ignore-installed", wheel)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site.stdout.strip(), "shared.pth").write_text("\n".join(shared))
    return home / "bin"


def run(installed: Path, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [installed / words[0], *words[1:]],
        cwd=folder,
        env=clean | env,
        capture_output=True,
        text=True,
    )


def test_a_wheel_brings_every_file_that_the_package_reads(wheel):
    there = set(zipfile.ZipFile(wheel).namelist())
    kinds = (".py", ".cpp", ".csv", ".json", ".html")
    package = [f for f in (ROOT / "rfabric").rglob("*") if f.suffix in kinds]
    assert not {str(f.relative_to(ROOT)) for f in package} - there
    share = {name.partition("/share/rfabric/")[2] for name in there}
    folders = [ROOT / name for name in ("topologies", "controller", "traffic")]
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file()]
    copied = {str(f.relative_to(ROOT)) for f in files if f.suffix != ".pyc"}
    assert not copied - share


def test_an_installed_rfabric_is_the_wheel_and_lists_fabrics(installed, tmp_path):
    done = run(installed, tmp_path, "python", "-c", "import rfabric; print(rfabric.__file__)")
    assert done.stdout.startswith(str(installed.parent)), done
    listed = run(installed, tmp_path, "rfabric", "list")
    assert listed.returncode == 0 and "leaf-spine" in listed.stdout, listed


def test_an_installed_rfabric_builds_its_core_simulates_and_reports(installed, tmp_path):
    try:
        compiler()
    except RFabricError as error:
        pytest.skip(str(error))
    built = run(installed, tmp_path, "python", "-m", "rfabric.simulate.build", CXXFLAGS="-O0")
    assert Path(built.stdout.strip()).parts[-3:] == ("rfabric", "simulate", "core.so"), built
    shutil.copy(installed.parent / "share/rfabric/traffic/ring.csv", tmp_path)
    step = ("--topo", "rfabric", "--traffic", "ring.csv", "--json")
    done = run(installed, tmp_path, "rfabric", "simulate", *step)
    assert done.returncode == 0, done
    folder = tmp_path / json.loads(done.stdout)["folder"]
    (folder / "report.html").unlink()
    again = run(installed, tmp_path, "rfabric", "report", str(folder))
    assert again.returncode == 0 and (folder / "report.html").is_file(), again


def test_an_installed_rfabric_says_what_an_emulation_needs(installed, tmp_path):
    done = run(installed, tmp_path, "rfabric", "emulate", PATH=str(tmp_path))
    assert done.returncode == 2, done
    assert "apt-get install" in done.stderr and "mininet" in done.stderr
    assert "Traceback" not in done.stderr
