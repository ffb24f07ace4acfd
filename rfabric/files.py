"""Files that a user hands over: plain UTF-8, or packed by gzip or zstd, and each key said once;
and the name beside a file that it is written to.

    read_text("job.yaml")    open_text("trace.csv.gz")    read_json("fabric.json")

What packed a file is told by its first bytes, whatever its name. What cannot be read is an
OSError or a ValueError that says why; who calls says which file it was.
"""

import gzip
import io
import json
import math
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from .errors import RFabricError

PACKED = (".gz", ".zst")
_GZIP, _ZSTD, _WIDE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"\xff\xfe", b"\xfe\xff")
PACKERS = _GZIP, _ZSTD  # how packed files begin
NOTHING = ("", "nan", "n/a", "na", "none", "null", "-", "--")  # cells of what is not known
MOST_DIGITS = 308  # of a whole number: more are beyond a float


def kind_of(path: str | Path) -> str:
    """The suffix of a file's name, without that of its packing: `.csv` of `trace.csv.gz`."""
    path = Path(path)
    return (path.with_suffix("") if path.suffix in PACKED else path).suffix


def read_text(path: str | Path, most: int = -2) -> str:
    """All text of a file, or one character more than `most`, with lines that end in LF and
    without a mark before it; OSError or UnicodeDecodeError.
    """
    with open_text(path, newline=None) as file:
        text = file.read(most + 1)
    if "\0" in text:
        raise OSError("holds a NUL: this is no text file")
    return text


@contextmanager
def open_text(path: str | Path, newline: str | None = "") -> Iterator[TextIO]:
    """A file as text, unpacked; line ends as they stand, or as `newline` says (see `open`)."""
    with (
        open_bytes(path, _WIDE) as unpacked,
        io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline=newline) as text,
    ):
        yield text


@contextmanager
def open_bytes(path: str | Path, wide: tuple[bytes, ...] = ()) -> Iterator[BinaryIO]:
    """A file as bytes, unpacked; OSError for one that begins with any of `wide`."""
    kind = Path(path).stat().st_mode  # a pipe would wait for who writes
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError("is no regular file but a pipe or a device; copy it to a file first")
    with open(path, "rb") as file:
        start = file.peek(4)[:4]
        if wide and start.startswith(wide):
            raise OSError("is UTF-16 text; save it as UTF-8")
        try:
            yield _unpacked(file, start)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(f"is a damaged gzip file: {error}") from error


def _unpacked(file: io.BufferedReader, start: bytes) -> BinaryIO:
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    return io.BytesIO(_unpack_zstd(file.read())) if start == _ZSTD else file


def _unpack_zstd(data: bytes) -> bytes:
    """The frames of a zstd file; one that is cut short is an error, not a shorter file."""
    try:
        import zstandard
    except ImportError as error:
        raise OSError("is packed by zstd: pip install zstandard, or unpack it") from error
    parts = []
    try:
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(data))
            if not frame.eof:
                raise OSError("is a damaged zstd file: it ends early")
            data = frame.unused_data
    except zstandard.ZstdError as error:
        raise OSError(f"is a damaged zstd file: {error}") from error
    return b"".join(parts)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a file or folder to; it takes the place of `path` at the end,
    and vanishes on an error. A link, a device or a pipe stays what it is: it is written itself.
    """
    if not _may_be_replaced(path):
        yield path
        return
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")  # others may write it too
    try:
        yield beside
        os.replace(beside, path)
    finally:
        if beside.is_dir():
            shutil.rmtree(beside)
        beside.unlink(missing_ok=True)


def _may_be_replaced(path: Path) -> bool:
    """Whether nothing is there, a file or a folder: what root puts in the place of /dev/null is
    every program's.
    """
    try:
        kind = path.lstat().st_mode
    except OSError:  # who writes says why
        return True
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


NO_END = "its last line has no end; is the file whole?"


def has_end(path: Path) -> bool:
    """Whether the last line of a file that is not packed has an end; what is packed has its own."""
    with open(path, "rb") as file:
        packed = file.read(4).startswith(PACKERS)
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - 1, 0))
        return packed or file.read(1) in (b"", b"\n", b"\r")


def lines_of(file: TextIO) -> Iterator[str]:
    """The lines of a text; RFabricError for one with a NUL, as binary files have."""
    for number, line in enumerate(file, 1):
        if "\0" in line:
            raise RFabricError(f"line {number} holds a NUL: this is no text file")
        yield line


def json_objects(lines: Iterable[str]) -> Iterator[tuple[int, dict]]:
    """The object on each line of JSON lines that is not blank, with the line's number; RFabricError
    for a line that is none.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            said = parse_json(line)
        except ValueError as error:
            raise RFabricError(
                f"line {number}: no valid JSON, it may be cut short: {error}; remove the line"
            ) from error
        if not isinstance(said, dict):
            raise RFabricError(f"line {number}: is no object; every line is one")
        yield number, said


def read_json(path: str | Path) -> Any:
    """What a JSON file holds, as `parse_json` reads it."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise RFabricError(str(error)) from error


def parse_json(text: str | bytes, **how) -> Any:
    """What JSON says; ValueError for a key that stands twice, a number beyond a float, lists within
    lists without end, and what is no JSON. `how`: options of `json.loads`.
    """
    hooks = {"object_pairs_hook": _object, "parse_int": whole, "parse_float": _finite}
    try:
        return json.loads(text, **(hooks | how))
    except RecursionError:
        raise ValueError("lists stand within lists, too deep to be read") from None


def _object(pairs: list[tuple[str, Any]]) -> dict:
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        raise ValueError(f"key {twice(key for key, _ in pairs)!r} stands twice; keep one")
    return by_key


def twice(names: Iterable[Hashable]) -> Any:
    """The first name that has stood before; None where none has."""
    seen: set[Hashable] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def whole(text: str, most: int = MOST_DIGITS) -> int:
    """A whole number of `most` digits at most (Python itself reads 4,300); else ValueError."""
    if len(text) > most:
        raise ValueError(f"a number of {len(text)} digits; {most} at most")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number {text[:20]} is beyond 1e308")
    return number


def parse_yaml(text: str, aliases: bool = False) -> Any:
    """What YAML says, by safe tags alone; RFabricError for a key that stands twice, for aliases
    unless they are allowed, and for what is no YAML.
    """
    import yaml

    try:
        # derived from SafeLoader
        return yaml.load(text, Loader=_yaml_loader(aliases))  # noqa: S506
    except RecursionError:
        raise RFabricError("lists stand within lists, too deep to be read") from None
    except RFabricError:
        raise
    # the library's constructors break on text that does not hold what its tag promises
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise RFabricError(" ".join(str(error).split())) from error


@cache
def _yaml_loader(aliases: bool) -> type:
    """YAML's safe loader, except that a key given twice is an error and not the last one's win.

    Without `aliases` an alias is an error too: a few aliases of aliases stand for gigabytes. Made
    when it is first asked for: Mininet's Python may have no yaml.
    """
    import yaml

    class OneOfEachKey(yaml.SafeLoader):
        def compose_node(self, parent, index):
            if not aliases and self.check_event(yaml.AliasEvent):
                raise RFabricError(
                    f"line {self.peek_event().start_mark.line + 1}: aliases are not "
                    "read; write the value out"
                )
            return super().compose_node(parent, index)

    OneOfEachKey.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
    OneOfEachKey.add_constructor("tag:yaml.org,2002:int", _whole_yaml)
    return OneOfEachKey


def _mapping(loader, node) -> dict:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":  # <<: *other, whose keys stand below these
            continue
        name = loader.construct_object(key_node, deep=True)
        if isinstance(name, Hashable):  # else the library refuses it below
            if name in seen:
                line = key_node.start_mark.line + 1
                raise RFabricError(f"key {name} stands twice, again in line {line}; keep one")
            seen.add(name)
    return loader.construct_mapping(node, deep=True)


def _whole_yaml(loader, node) -> int:
    if len(node.value) > MOST_DIGITS:
        raise RFabricError(f"a number of {len(node.value)} digits; {MOST_DIGITS} at most")
    return loader.construct_yaml_int(node)
