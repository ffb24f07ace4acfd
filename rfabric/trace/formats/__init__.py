"""Trace files: one module a format, and the table of them. `base.py` says what a format is.

To add one: write its module beside these, with a TraceFormat, and name that in FORMATS.
"""

import csv
import logging
from contextlib import suppress
from pathlib import Path

from ...errors import RFabricError
from ...files import NO_END, has_end, kind_of, open_bytes, replacing
from ...folders import as_path
from ...specs import Spec, by_signature
from ..model import Trace
from .aicb import AICB
from .aicb_csv import AICB_CSV
from .base import TraceFormat
from .chakra import CHAKRA
from .chakra_json import CHAKRA_JSON
from .coflow import COFLOW
from .csv_rows import CSV
from .flow_sizes import FLOW_SIZES
from .htsim import HTSIM
from .htsim_matrix import HTSIM_MATRIX
from .json_lines import JSON_LINES
from .kineto import KINETO
from .nccl_inspector import NCCL_INSPECTOR
from .ns3_flows import NS3_FLOWS
from .nsys import NSYS
from .pcap import PCAP

log = logging.getLogger(__name__)

FORMATS = {
    form.name: form
    for form in (
        CSV, JSON_LINES, HTSIM, HTSIM_MATRIX, NS3_FLOWS, COFLOW, FLOW_SIZES, CHAKRA, CHAKRA_JSON,
        AICB, AICB_CSV, NCCL_INSPECTOR, KINETO, NSYS, PCAP,
    )
}  # fmt: skip
TRACE_SUFFIXES = tuple(dict.fromkeys(end for form in FORMATS.values() for end in form.suffixes))
HEAD_BYTES = 4096  # of a file, by which its format is told
FIRST_FILES = 8  # of a folder
NO_TRACES = (".yaml", ".yml", ".py")  # recipes, jobs and topologies


def is_trace(name: str | Path) -> bool:
    """Whether a name is that of a trace: a file or folder that a format knows by its first bytes,
    or a name with the suffix of traces alone, packed or not, of a file that need not be there.
    """
    if kind_of(name) in NO_TRACES:
        return False
    if kind_of(name) in set(TRACE_SUFFIXES) - {".json"}:
        return True
    with suppress(OSError):  # who reads it says why
        return _known(Path(name)) is not None
    return False


def read_trace(path: str | Path, format: str = "", **settings) -> Trace:
    """Read a trace in the format that its first bytes say, else its suffix; packed by gzip or zstd
    too, as `trace.csv.gz`; or a folder with one file a rank.

    format: its name, where it is not to be told from the file. settings: of the format, for those
    that have any; text as people write it, or values.

    RFabricError, which begins with the path: an unknown suffix or setting, a file that cannot be
    read or says what is no trace.
    """
    path = as_path(path, "trace")
    try:
        form = _format_of(path, format)
        trace = form.read(path, **_settings(form, settings))
        if form.lines and not has_end(path):
            log.warning("%s: %s", path.name, NO_END)
        return trace
    except RFabricError as error:
        raise RFabricError(f"{path}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error
    # numbers of thousands of digits, lists within lists
    except (csv.Error, ValueError, RecursionError) as error:
        kind = kind_of(path)[1:] or "trace"
        raise RFabricError(f"{path}: not a valid {kind} file: {error}") from error


def files_of_trace(path: Path, format: str = "") -> tuple[Path, ...]:
    """The files that a trace is read from: those of a folder, of a file those that its format reads
    with it; the file alone where something is wrong with them, which reading them will tell.
    """
    if path.is_dir():
        return tuple(sorted(filter(Path.is_file, path.iterdir())))
    with suppress(RFabricError, OSError, ValueError):
        if reads := _format_of(path, format).reads:
            return tuple(sorted(reads(path)))
    return (path,)


def is_drawn(path: Path, format: str = "") -> bool:
    """Whether the flows of a file are drawn by chance, of which `seed` is a setting; False where
    something is wrong with it, which reading it will tell.
    """
    with suppress(RFabricError, OSError):
        return "seed" in by_signature(_format_of(path, format).read)
    return False


def _format_of(path: Path, name: str = "") -> TraceFormat:
    """The format of this name, else the one that knows the first bytes, else that of the suffix."""
    if name:
        if name not in FORMATS:
            raise RFabricError(f"no format {name!r}; there are {', '.join(FORMATS)}")
        return FORMATS[name]
    kind = kind_of(path)
    if (known := _known(path)) is not None:
        return known
    claiming = [form for form in FORMATS.values() if kind in form.suffixes]
    if claiming:
        if path.is_file() and not _head(path).strip():
            raise RFabricError("holds no flow: it is empty")
        return claiming[0]
    what = "a folder of no format" if path.is_dir() else f"unknown trace suffix {kind!r}"
    raise RFabricError(
        f"{what}; use one of {', '.join(TRACE_SUFFIXES)}, or say which it is by --format "
        f"({', '.join(FORMATS)})"
    )


def _known(path: Path) -> TraceFormat | None:
    """The format whose first bytes a file has, those of its suffix asked first; in a folder its
    first files are asked, of formats that read folders.
    """
    if not path.is_dir():
        return _by_content(path, list(FORMATS.values()))
    asked = [form for form in FORMATS.values() if form.folders]
    try:
        files = sorted(path.iterdir())[:FIRST_FILES]
        return next(filter(None, (_by_content(file, asked) for file in files)), None)
    except OSError:
        return None  # who reads it says why


def _by_content(file: Path, asked: list[TraceFormat]) -> TraceFormat | None:
    """OSError for a file that is damaged, whose text would be taken for one of another format."""
    if not file.is_file():
        return None
    head = _head(file)
    asked = sorted(asked, key=lambda form: kind_of(file) not in form.suffixes)
    return next((form for form in asked if form.sniff(head)), None)


def _head(file: Path) -> bytes:
    with open_bytes(file) as opened:
        return opened.read(HEAD_BYTES)


def _settings(form: TraceFormat, settings: dict) -> dict:
    """Settings as the reader takes them; text is read as its default says."""
    known = by_signature(form.read)
    known.pop(next(iter(known)))
    for key in settings:
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RFabricError(f"{form.name} has no setting {key!r}; {has}")
    text = {key: value for key, value in settings.items() if isinstance(value, str)}
    return settings | Spec(form.name, text).values(known)


def write_trace(trace: Trace, path: str | Path, format: str = "") -> None:
    """Write a trace in the format of this name, else in the one that its suffix says: beside the
    name first, and then renamed. RFabricError where a folder is there already.
    """
    path = as_path(path, "trace")
    write = _writer(path, format)
    with replacing(path) as beside:
        write(trace, beside)
        if beside.is_dir() and path.is_dir():
            raise RFabricError(f"{path}: is there already; name a new folder")


def _writer(path: Path, name: str):
    writers = {form.name: form for form in FORMATS.values() if form.write}
    if name:
        if name not in writers:
            raise RFabricError(f"{path}: no format {name!r} is written; {', '.join(writers)} are")
        return writers[name].write
    for form in writers.values():
        if path.suffix in form.suffixes:
            return form.write
    ends = dict.fromkeys(e for form in writers.values() for e in form.suffixes)
    raise RFabricError(f"{path}: a trace is written as {' or '.join(ends)}")
