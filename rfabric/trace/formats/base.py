"""What a trace format is: a name, how its files are told from others, a reader, maybe a writer."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import RFabricError
from ...files import lines_of, open_text
from ...units import show_size, show_time
from ..model import Trace
from .columns import ended

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TraceFormat:
    """One file format of traces.

    about: one line, which `rfabric list formats` prints. suffixes: of its files. `sniff` says of
    the first bytes of a file, whatever its name, whether they are of this format. read: the Trace
    of a file; parameters behind the path are settings of the format. write: a trace to a file, or
    to a folder where the format has `folders`; None: rfabric only reads this format. folders: it
    also reads a folder of such files. lines: rows of text, which may be cut in mid-number. reads:
    the files that are read for the one that is named; None: that one alone.

    A reader may raise RFabricError, OSError and ValueError: `read_trace` puts the path before.
    """

    name: str
    about: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes], bool]
    read: Callable[..., Trace]
    write: Callable[[Trace, Path], None] | None = None
    folders: bool = False
    lines: bool = False
    reads: Callable[[Path], Iterable[Path]] | None = None


def written(path: Path, lines: Iterable[str]) -> None:
    """Write these lines of text to the file."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(ended(lines))


def filled(path: Path) -> list[tuple[int, str]]:
    """The lines of a text file that are neither blank nor comments (`#`), each with its number from
    1 on; RFabricError where there are none.
    """
    with open_text(path) as file:
        every = list(enumerate(lines_of(file), 1))
    lines = [(n, line) for n, line in every if line.strip() and not line.startswith("#")]
    if not lines:
        raise RFabricError("holds nothing; is it the right file?")
    return lines


def first_line(head: bytes, comment: str = "") -> str:
    """The first line of a file's first bytes that is neither blank nor a comment; else ''."""
    every = map(str.strip, head.decode("utf-8-sig", "replace").splitlines())
    return next((ln for ln in every if ln and not (comment and ln.startswith(comment))), "")


def understood(trace: Trace, name: str, path: Path, dropped: Sequence[str] = ()) -> Trace:
    """The trace with what was read of a file of somebody else's format: said, and kept as its
    provenance; dropped: what the file says and the trace does not, or assumes.
    """
    span = float(trace.compute_only()[1].max(initial=0.0))
    sent = int(trace.total.sum())
    sums = {"rows": len(trace), "bytes": sent, "hosts": len(trace.hosts), "span_s": span}
    log.warning(
        "%s: %s, %s rows, %s, %s hosts, %s without the network%s",
        path.name, name, f"{len(trace):,}", show_size(sent), len(trace.hosts), show_time(span),
        "".join(f"; {one}" for one in dropped),
    )  # fmt: skip
    said = {"source": path.name, "format": name} | trace.provenance | sums
    return replace(trace, provenance=said | {"dropped": list(dropped)})


def whole(text: object, what: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number from `least` to `most`; RFabricError that begins with `what`."""
    number = None
    if not isinstance(text, bool) and str(text).removesuffix(".0").lstrip("+-").isdecimal():
        number = int(str(text).removesuffix(".0")[:400])
    if number is None or not least <= number <= most:
        shown = str(text)[:40]
        raise RFabricError(f"{what}: {shown!r} is no whole number from {least:,} to {most:,}")
    return number
