"""What the process asks of the system's own libraries."""

import ctypes
import os
from pathlib import Path

import pytest

from rfabric import native

PIECE = 1 << 16  # bytes: too small for pages of its own


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="a C library without it")
def test_what_was_freed_between_things_that_stay_is_given_back():
    pieces = [bytearray(b"x") * PIECE for _ in range(1000)]
    stay = pieces[::50]
    del pieces
    before = resident()
    native.give_back()
    assert before - resident() > 900 * PIECE and all(piece[-1] == ord("x") for piece in stay)


def test_a_c_library_that_keeps_what_is_freed_is_no_error(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    native.give_back()
