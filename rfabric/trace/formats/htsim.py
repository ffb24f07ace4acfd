"""Flow lists of htsim and Opera: `src dst bytes start_ns` in each line, four whole numbers.

Hosts count from 0: host n is our h(n+1). `#` begins a comment.
"""

import re
from pathlib import Path

from ...errors import RFabricError
from ...files import lines_of, open_text
from ..model import Trace
from .base import TraceFormat, first_line
from .records import columns_of, trace_of

PROVENANCE = "htsim: src dst bytes start_ns; host n is h(n+1)"


def _read(path: Path) -> Trace:
    with open_text(path) as file:
        records = [
            _record(number, line) for number, line in enumerate(lines_of(file), 1) if _words(line)
        ]
    return trace_of(path, columns_of(records), {"provenance": {"format": PROVENANCE}})


def _words(line: str) -> list[str]:
    return line.split("#")[0].split()


def _is_flow(words: list[str]) -> bool:
    return len(words) == 4 and all(re.fullmatch(r"\d+", word) for word in words)


def _record(number: int, line: str) -> dict:
    words = _words(line)
    if not _is_flow(words):
        raise RFabricError(
            f"line {number}: {line.strip()!r} is not `src dst bytes start_ns`, four whole numbers"
        )
    src, dst, size, start = map(int, words)
    return {
        "src": f"h{src + 1}", "dst": f"h{dst + 1}", "size_bytes": size, "start_s": f"{start}ns",
    }  # fmt: skip


def _sniff(head: bytes) -> bool:
    return _is_flow(_words(first_line(head, "#")))


HTSIM = TraceFormat(
    "htsim", "flow lists of htsim and Opera: `src dst bytes start_ns`, host n is h(n+1)",
    (".txt", ".htsim", ".flows"), _sniff, _read, lines=True,
)  # fmt: skip
