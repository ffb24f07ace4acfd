"""When Python searches for garbage."""

import atexit
import contextlib
import gc
from collections.abc import Iterator

# What is left goes with the process: to search it takes a twentieth of a short command.
atexit.register(gc.freeze)


@contextlib.contextmanager
def uncollected(wanted: bool = True) -> Iterator[None]:
    """No search for cycles among what is made inside: of modules, and of a large fabric's millions
    of objects, all stay. They leave as old ones, which a full search alone looks at.
    """
    before = gc.isenabled()
    if wanted:
        gc.disable()
    try:
        yield
    finally:
        if before:
            gc.freeze()
            gc.unfreeze()  # to the oldest generation; else the next allocation searches them all
            gc.enable()
