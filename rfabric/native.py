"""The compiled core that `python -m rfabric.simulate.build` makes: the engine, the inner loops of
ways and placing, matchings of racks and the core OCSes they cross, edges dealt evenly, the passes
over the rows of a trace, continuous batching, and the writing of tables.

Who calls it declares what it calls; where it was never built, Python does the same, slower. Of
matchings that weigh the same alone it may find another.
"""

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path

from .errors import RFabricError

LIBRARY = Path(os.environ.get("RFABRIC_CORE", Path(__file__).parent / "simulate" / "core.so"))
SOURCES = tuple(
    Path(__file__).parent / "simulate" / name
    for name in (
        "core.cpp",
        "ways.cpp",
        "matching.cpp",
        "swaps.cpp",
        "dealing.cpp",
        "colours.cpp",
        "rows.cpp",
        "sweeps.cpp",
        "serving.cpp",
        "tables.cpp",
    )
)
INTERFACE = 14  # rf_interface() of core.cpp


@cache
def core() -> ctypes.CDLL | None:
    """The loaded library; None where it was never built.

    RFabricError for one that cannot be used.
    """
    if not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise RFabricError(
            f"{LIBRARY} cannot be loaded ({error}): run python -m rfabric.simulate.build"
        ) from None
    if library.rf_interface() != INTERFACE:
        raise RFabricError(
            f"{LIBRARY} has interface {library.rf_interface()}, this rfabric needs {INTERFACE}: "
            "run python -m rfabric.simulate.build"
        )
    return library


def give_back() -> None:
    """Give the system what was freed between things that stay: the C library keeps it otherwise.
    Nothing where it cannot (it is glibc that can).
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def source_digest() -> str:
    """SHA-256 of the files that the core is built from, in hex."""
    digest = hashlib.sha256()
    for file in SOURCES:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def built_from() -> str:
    """The digest of the files that the loaded core was built from; '' where it was never built.

    RFabricError for a core that was built from others than those beside it.
    """
    if core() is None:
        return ""
    said = getattr(core(), "rf_source", None)
    if said:
        said.restype = ctypes.c_char_p
    digest = said().decode() if said else ""
    if digest != source_digest():
        raise RFabricError(
            f"{LIBRARY} was built from other files than {SOURCES[0].parent} holds now: run "
            "python -m rfabric.simulate.build"
        )
    return digest
