"""The examples in docstrings of compute and rl give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import rfabric

ROOT = Path(rfabric.__file__).parent
FILES = sorted(
    f for room in ("compute", "rl") for f in (ROOT / room).rglob("*.py") if ">>> " in f.read_text()
)


def test_there_are_examples():
    assert len(FILES) > 5


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_examples_give_what_they_say(file):
    name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
    ran = doctest.testmod(import_module(name))
    assert ran.attempted and not ran.failed
