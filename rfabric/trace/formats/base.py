"""What a trace format is: a name, how its files are told from others, a reader, maybe a writer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..model import Trace


@dataclass(frozen=True)
class TraceFormat:
    """One file format of traces.

    about: one line, which `rfabric list formats` prints. suffixes: of its files. Where several
    formats share a suffix, `sniff` says of the first bytes of a file whether they are of this one.
    read: the Trace of a file; parameters behind the path are settings of the format. write: a
    trace to a file; None: rfabric only reads this format.

    A reader may raise RFabricError, OSError and ValueError: `read_trace` puts the path before.
    """

    name: str
    about: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes], bool]
    read: Callable[..., Trace]
    write: Callable[[Trace, Path], None] | None = None


def written(path: Path, lines: Iterable[str]) -> None:
    """Write these lines of text to the file."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def first_line(head: bytes, comment: str = "") -> str:
    """The first line of a file's first bytes that is neither blank nor a comment; else ''."""
    every = map(str.strip, head.decode("utf-8-sig", "replace").splitlines())
    return next((ln for ln in every if ln and not (comment and ln.startswith(comment))), "")
