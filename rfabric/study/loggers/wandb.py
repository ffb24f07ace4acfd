"""Weights & Biases, offline: run-ID.wandb, the log of LevelDB, pieces of Records of protobuf.

Sources: wandb/proto/wandb_internal.proto; LevelDB's log_format.md.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from ...files import open_bytes
from ...protobuf import fields
from .base import DAMAGED, LoggedMetrics, damaged

MAGIC, BLOCK, FULL, FIRST, LAST = b":W&B", 32768, 1, 2, 4
# fields of protobuf messages
RECORD_HISTORY, HISTORY_ITEM, HISTORY_STEP = 2, 1, 2
ITEM_KEY, ITEM_NESTED, ITEM_WHOLE, ITEM_NUMBER, ITEM_JSON = 1, 2, 5, 6, 16


def history(path: Path, notes: list[str]) -> Iterator[LoggedMetrics]:
    """The history of an offline run, a row at a time. RFabricError where the file is damaged."""
    for number, record in enumerate(_records(path, notes), 1):
        where = f"{path.name}, record {number}"
        try:
            rows = [_row(value) for field, value in fields(record) if field == RECORD_HISTORY]
        except DAMAGED as error:
            raise damaged(where) from error
        for step, metrics in rows:
            yield where, step, metrics


def _records(path: Path, notes: list[str]) -> Iterator[bytes]:
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
                raise damaged(f"{path.name}, piece {number}")
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
