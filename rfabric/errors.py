"""The one error root. A message names the thing, the value, the limit and the way out."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

# of two words, from 0 to 1, from which on one may have been meant by the other: difflib's own
# default
LIKENESS = 0.6
SHOWN = 3  # names in a message


class RFabricError(ValueError):
    """Bad input or an impossible request; the command line prints the message and exits with code
    2.

    refused: the Results that were measured all the same, one a try; their figures must not be used.
    """

    def __init__(self, message: str = "", refused: Sequence[Any] = ()):
        super().__init__(message)
        self.refused = tuple(refused)


class PaceError(RFabricError):
    """An emulation could not keep pace with its own clock (exit code 1)."""


class RunError(RFabricError):
    """A run broke under way: a process died, a flow stalled, bytes went missing (exit code 1)."""


BY_NAME = {kind.__name__: kind for kind in (RFabricError, RunError)}  # as processes tell them


def told(error: RFabricError) -> dict[str, str]:
    """What a process says of its error to who started it: `error`, the text, and `kind`, a key of
    BY_NAME; kinds of its own are told as what they are kinds of.
    """
    kind = next(kind for kind in type(error).__mro__ if kind in BY_NAME.values())
    return {"error": str(error), "kind": kind.__name__}


def meant(word: str, known: Iterable[str]) -> str:
    """`, did you mean NAME?` for the known name nearest to `word`; empty where none is like it."""
    close = difflib.get_close_matches(str(word), [str(name) for name in known], 1, LIKENESS)
    return f", did you mean {close[0]}?" if close else ""


def some(names: Iterable[str]) -> str:
    """The first names, and that there are more."""
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
