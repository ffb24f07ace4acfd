"""Trace files: one module a format, and the table of them. `base.py` says what a format is.

To add one: write its module beside these, with a TraceFormat, and name that in FORMATS.
"""

import csv
import inspect
import os
from pathlib import Path

from ...errors import RFabricError
from ...files import kind_of, open_text
from ...folders import as_path
from ..model import Trace
from .base import TraceFormat
from .csv_rows import CSV
from .htsim import HTSIM
from .json_lines import JSON_LINES

FORMATS = {form.name: form for form in (CSV, JSON_LINES, HTSIM)}
TRACE_SUFFIXES = tuple(dict.fromkeys(end for form in FORMATS.values() for end in form.suffixes))
HEAD_BYTES = 4096  # of a file, by which its format is told


def is_trace(name: str | Path) -> bool:
    """Whether a name is that of a trace file, by its suffix, packed or not; the file need not be
    there.
    """
    return kind_of(name) in TRACE_SUFFIXES


def read_trace(path: str | Path, **settings) -> Trace:
    """Read a trace in the format that its suffix says, and its first bytes where formats share it;
    packed by gzip or zstd too, as `trace.csv.gz`.

    settings: of the format, for those that have any.

    RFabricError, which begins with the path: an unknown suffix or setting, a file that cannot be
    read or says what is no trace.
    """
    path = as_path(path, "trace")
    try:
        form = _format_of(path)
        _check_settings(form, settings)
        return form.read(path, **settings)
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error
    # numbers of thousands of digits, lists within lists
    except (csv.Error, ValueError, RecursionError) as error:
        raise RFabricError(f"{path}: not a valid {kind_of(path)[1:]} file: {error}") from error


def _format_of(path: Path) -> TraceFormat:
    """The only format of this suffix, or the first of several that knows the file's first bytes."""
    kind = kind_of(path)
    claiming = [form for form in FORMATS.values() if kind in form.suffixes]
    if not claiming:
        raise RFabricError(f"unknown trace suffix {kind!r}; use one of {', '.join(TRACE_SUFFIXES)}")
    if len(claiming) == 1:
        return claiming[0]
    with open_text(path) as file:
        head = file.read(HEAD_BYTES).encode()
    return next((form for form in claiming if form.sniff(head)), claiming[0])


def _check_settings(form: TraceFormat, settings: dict) -> None:
    known = list(inspect.signature(form.read).parameters)[1:]
    for key in settings:
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RFabricError(f"{form.name} has no setting {key!r}; {has}")


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace in the format that its suffix says: beside the name first, and then renamed."""
    path = as_path(path, "trace")
    writers = {e: form.write for form in FORMATS.values() if form.write for e in form.suffixes}
    if path.suffix not in writers:
        raise RFabricError(f"{path}: a trace is written as {' or '.join(writers)}")
    beside = path.with_name(path.name + ".part")
    try:
        writers[path.suffix](trace, beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
