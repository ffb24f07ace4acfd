"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import rfabric

ROOT = Path(rfabric.__file__).parent
FILES = {
    file.relative_to(ROOT).as_posix(): file
    for file in sorted(ROOT.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
}
FIRST = {  # where who begins looks first
    "units.py", "specs.py", "fabric/spec.py", "optics/circuits.py", "trace/builder.py",
    "trace/collectives.py", "trace/model.py",
}  # fmt: skip


def loaded(file):
    """The module of a file; what it needs and is not there is a reason to skip it."""
    name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name.startswith("rfabric"):
            raise
        pytest.skip(f"no {error.name}: pip install rfabric with the extra that brings it")


def test_what_is_looked_at_first_has_examples():
    assert not FIRST - FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_examples_give_what_they_say(name):
    ran = doctest.testmod(loaded(FILES[name]))
    assert ran.attempted and not ran.failed
