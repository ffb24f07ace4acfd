"""The compiled core that `python -m rfabric.simulate.build` makes: the engine, and the inner loops
of ways and placing.

Who calls it declares what it calls; where it was never built, Python does the same, slower.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

from .errors import RFabricError

LIBRARY = Path(os.environ.get("RFABRIC_CORE", Path(__file__).parent / "simulate" / "core.so"))
INTERFACE = 5  # rf_interface() of core.cpp


@cache
def core() -> ctypes.CDLL | None:
    """The loaded library; None where it was never built.

    RFabricError for one that cannot be used.
    """
    if not LIBRARY.exists():
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise RFabricError(
            f"{LIBRARY} cannot be loaded ({error}): run python -m rfabric.simulate.build"
        ) from None
    if found.rf_interface() != INTERFACE:
        raise RFabricError(
            f"{LIBRARY} has interface {found.rf_interface()}, this rfabric needs {INTERFACE}: "
            "run python -m rfabric.simulate.build"
        )
    return found
