"""Metrics of steps as loggers keep them, in files that are no text.

    TensorBoard   events.out.tfevents...: length, its checksum, an Event of protobuf, its checksum
    wandb         run-ID.wandb, offline: the log of LevelDB, pieces of Records of protobuf
    MLflow        RUN/metrics/timing_s/gen, a line `milliseconds value step` each time; or mlflow.db

A folder is searched for such files; they must be of one run. A last record that is cut short, as
killed jobs leave it, ends what is read, and is said. Sources: tensorflow/core/util/event.proto,
summary.proto and record_writer.cc; wandb/proto/wandb_internal.proto; LevelDB's log_format.md.
"""

import json
import sqlite3
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..errors import RFabricError
from ..files import lines_of, open_bytes, open_text
from ..protobuf import fields

Told = tuple[str, int, dict[str, float]]  # where, step, metrics
Steps = dict[int, dict[str, float]]
WANDB, BLOCK, FULL, FIRST, LAST = b":W&B", 32768, 1, 2, 4
SMALL = 4096  # bytes: larger records hold no numbers of steps, and would take long to check
SQLITE = b"SQLite format 3\x00"
# fields of protobuf messages
EVENT_STEP, EVENT_SUMMARY, VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 2, 5, 1, 2, 8
TENSOR_TYPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 4, 5, 6
RECORD_HISTORY, HISTORY_ITEM, HISTORY_STEP = 2, 1, 2
ITEM_KEY, ITEM_NESTED, ITEM_WHOLE, ITEM_NUMBER, ITEM_JSON = 1, 2, 5, 6, 16
TENSOR = {1: ("<f4", TENSOR_FLOATS), 2: ("<f8", TENSOR_DOUBLES)}
DAMAGED = (IndexError, KeyError, AttributeError, ValueError, struct.error, TypeError)


def as_told(path: Path, notes: list[str]) -> Iterator[Told] | None:
    """What a logger's file or folder tells; None for any other file. notes: what was cut short.

    RFabricError for a file that is damaged, a folder without such files or with those of many runs.
    """
    if path.is_dir():
        return _folder(path, notes)
    if path.parent.is_file() and _head(path.parent) == SQLITE:
        return _database(path.parent, path.name)
    reader = _reader(path) if path.is_file() else None
    return reader(path, notes) if reader else None


def _head(path: Path) -> bytes:
    with open_bytes(path) as file:
        return file.read(len(SQLITE))


def _reader(path: Path) -> Callable[[Path, list[str]], Iterator[Told]] | None:
    head = _head(path)
    if head.startswith(WANDB):
        return _wandb
    if head == SQLITE:
        return lambda path, _: _database(path)
    return _events if len(head) >= 12 and _checked(head[:8], head[8:12]) else None


def _folder(path: Path, notes: list[str]) -> Iterator[Told]:
    """What the one run in a folder tells."""
    runs: dict[Path, list[Path]] = defaultdict(list)
    for file in sorted(_seen(path)):
        if file.name == "metrics" and file.is_dir():
            runs[file].append(file)
        elif "tfevents" in file.name:
            runs[file.parent].append(file)
        elif file.suffix == ".wandb" and not file.is_symlink():
            runs[file].append(file)
    if not runs:
        raise RFabricError(
            "holds no tfevents of TensorBoard, no .wandb, no metrics folder of MLflow; give the log"
        )
    if len(runs) > 1:
        some = ", ".join(str(run.relative_to(path)) for run in list(runs)[:4])
        raise RFabricError(f"holds {len(runs)} runs ({some} ...); give one of them")
    ((run, files),) = runs.items()
    if run.name == "metrics":
        return _metrics(run)
    return (told for file in files for told in (_reader(file) or _no_log)(file, notes))


def _seen(path: Path) -> Iterator[Path]:
    """All below a folder, and itself, but what is hidden, as MLflow's .trash."""
    yield path
    for file in path.rglob("*"):
        if not any(part.startswith(".") for part in file.relative_to(path).parts):
            yield file


def _no_log(path: Path, notes: list[str]) -> Iterator[Told]:
    if not path.stat().st_size:
        notes.append(f"{path.name} is empty")
        return iter(())
    raise RFabricError(f"{path.name} is damaged at its begin; take it out of the folder")


# --- TensorBoard ----------------------------------------------------------------------------------


def _events(path: Path, notes: list[str]) -> Iterator[Told]:
    """Scalars of an event file, a step at a time."""
    steps: Steps = defaultdict(dict)
    with open_bytes(path) as file:
        for number, (data, check) in enumerate(_records(file, path.name, notes), 1):
            where = f"{path.name}, record {number}"
            try:
                step, found = _scalars(data)
            except DAMAGED as error:
                raise _damaged(where) from error
            if (found or len(data) <= SMALL) and not _checked(data, check):
                raise _damaged(where)
            if found:
                steps[step].update(found)
    return _of_steps(path.name, steps)


def _records(file: BinaryIO, name: str, notes: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """(data, its checksum) of each record."""
    number = 0
    while head := file.read(12):
        number += 1
        if len(head) == 12 and not _checked(head[:8], head[8:]):
            raise _damaged(f"{name}, record {number}")
        data = file.read(struct.unpack("<Q", head[:8])[0]) if len(head) == 12 else b""
        check = file.read(4)
        if len(check) < 4:
            notes.append(f"{name}: record {number} is cut short; what stands before it is read")
            return
        yield data, check


def _damaged(where: str) -> RFabricError:
    return RFabricError(f"{where} is damaged: its checksum is not that of its bytes; copy it again")


def _scalars(event: bytes) -> tuple[int, dict[str, float]]:
    step, found = 0, {}
    for field, value in fields(event):
        if field == EVENT_STEP:
            step = value
        elif field == EVENT_SUMMARY:
            for _, one in fields(value):
                parts = dict(fields(one))
                if (scalar := _scalar(parts)) is not None:
                    found[parts[VALUE_TAG].decode()] = scalar
    return step, found


def _scalar(value: dict) -> float | None:
    """The one number of a summary's value, be it plain or a tensor; None for anything else."""
    if VALUE_SIMPLE in value:
        return float(struct.unpack("<f", value[VALUE_SIMPLE])[0])
    tensor = dict(fields(value[VALUE_TENSOR])) if VALUE_TENSOR in value else {}
    form, plain = TENSOR.get(tensor.get(TENSOR_TYPE, 0), ("", 0))
    data = tensor.get(TENSOR_CONTENT) or tensor.get(plain) if form else None
    return float(np.frombuffer(data, form)[0]) if data and len(data) == int(form[-1]) else None


def _checked(data: bytes, check: bytes) -> bool:
    """Whether `check` is the masked CRC-32C of `data`, as TensorFlow writes it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    return masked & 0xFFFFFFFF == int.from_bytes(check, "little")


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC = [_crc_of(byte) for byte in range(256)]


# --- Weights & Biases -----------------------------------------------------------------------------


def _wandb(path: Path, notes: list[str]) -> Iterator[Told]:
    """The history of an offline run, a row at a time."""
    for number, record in enumerate(_wandb_records(path, notes), 1):
        where = f"{path.name}, record {number}"
        try:
            rows = [_row(value) for field, value in fields(record) if field == RECORD_HISTORY]
        except DAMAGED as error:
            raise _damaged(where) from error
        for step, metrics in rows:
            yield where, step, metrics


def _wandb_records(path: Path, notes: list[str]) -> Iterator[bytes]:
    """Records, put together from their pieces, none of which goes over the end of a block."""
    with open_bytes(path) as file:
        at, number, whole = len(file.read(7)), 0, b""
        while head := file.read(min(7, BLOCK - at % BLOCK)):
            at += len(head)
            if len(head) < 7 and at % BLOCK == 0:  # the rest of a block is left empty
                continue
            number += 1
            check, size, kind = struct.unpack("<IHB", head) if len(head) == 7 else (0, 1, 0)
            data = file.read(size)
            at += len(data)
            if len(data) < size or len(head) < 7:
                notes.append(f"{path.name}: its last record is cut short; those before it are read")
                return
            if zlib.crc32(head[6:] + data) != check or not FULL <= kind <= LAST:
                raise _damaged(f"{path.name}, piece {number}")
            whole = data if kind in (FULL, FIRST) else whole + data
            if kind in (FULL, LAST):
                yield whole


def _row(history: bytes) -> tuple[int, dict[str, float]]:
    step, metrics = 0, {}
    for field, value in fields(history):
        if field == HISTORY_STEP:
            step = dict(fields(value)).get(1, 0)
        elif field == HISTORY_ITEM:
            name, number = _item(value)
            if number is not None:
                metrics[name] = number
    return step, metrics


def _item(item: bytes) -> tuple[str, float | None]:
    """Name and number of one metric; None for what is no number."""
    name, nested, number = "", [], None
    for field, value in fields(item):
        if field == ITEM_KEY:
            name = value.decode()
        elif field == ITEM_NESTED:
            nested.append(value.decode())
        elif field == ITEM_WHOLE:
            number = float(value - (1 << 64) if value >> 63 else value)
        elif field == ITEM_NUMBER:
            number = struct.unpack("<d", value)[0]
        elif field == ITEM_JSON:
            said = json.loads(value)
            number = float(said) if type(said) in (int, float) else None
    return name or "/".join(nested), number


# --- MLflow ---------------------------------------------------------------------------------------


def _metrics(folder: Path) -> Iterator[Told]:
    """The metrics of a run, a file each, folders as its name has slashes."""
    steps: Steps = defaultdict(dict)
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = file.relative_to(folder).as_posix()
        with open_text(file) as opened:
            for number, line in enumerate(lines_of(opened), 1):
                step, value = _line(line, f"metrics/{name}, line {number}")
                steps[step][name] = value
    return _of_steps("metrics", steps)


def _line(line: str, where: str) -> tuple[int, float]:
    try:
        _, value, step, *_ = line.split()
        return int(step), float(value)
    except ValueError:
        raise RFabricError(
            f"{where}: {line.strip()[:40]!r} is not `milliseconds value step`; remove the line"
        ) from None


def _database(path: Path, run: str = "") -> Iterator[Told]:
    """The metrics of a run in MLflow's SQLite; of the only one, where none is named."""
    steps: Steps = defaultdict(dict)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            runs = [one for (one,) in base.execute("SELECT DISTINCT run_uuid FROM metrics")]
            if run not in runs and (run or len(runs) != 1):
                some = ", ".join(sorted(runs)[:4])
                raise RFabricError(f"holds {len(runs)} runs ({some} ...); give {path.name}/RUN")
            for key, value, step, nan in base.execute(
                "SELECT key, value, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY "
                "timestamp", (run or runs[0],),
            ):  # fmt: skip
                steps[step][key] = float("nan") if nan else value
    except sqlite3.Error as error:
        raise RFabricError(f"is no database of MLflow that can be read: {error}") from error
    return _of_steps(path.name, steps)


def _of_steps(name: str, steps: Steps) -> Iterator[Told]:
    return ((f"{name}, step {step}", step, metrics) for step, metrics in steps.items())
