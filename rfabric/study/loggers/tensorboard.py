"""TensorBoard: events.out.tfevents..., of lengths, Events of protobuf, and checksums of both.

Sources: tensorflow/core/util/event.proto, summary.proto and record_writer.cc.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...files import open_bytes
from ...protobuf import fields
from .base import DAMAGED, LoggedMetrics, LoggedSteps, damaged, of_steps

SMALL = 4096  # bytes: larger records hold no numbers of steps, and would take long to check
# fields of protobuf messages
EVENT_STEP, EVENT_SUMMARY, VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 2, 5, 1, 2, 8
TENSOR_TYPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 4, 5, 6
TENSOR = {1: ("<f4", TENSOR_FLOATS), 2: ("<f8", TENSOR_DOUBLES)}


def events(path: Path, notes: list[str]) -> Iterator[LoggedMetrics]:
    """Scalars of an event file, a step at a time. RFabricError where the file is damaged."""
    steps: LoggedSteps = defaultdict(dict)
    with open_bytes(path) as file:
        for number, (data, check) in enumerate(_records(file, path.name, notes), 1):
            where = f"{path.name}, record {number}"
            try:
                step, scalars = _scalars(data)
            except DAMAGED as error:
                raise damaged(where) from error
            if (scalars or len(data) <= SMALL) and not checked(data, check):
                raise damaged(where)
            if scalars:
                steps[step].update(scalars)
    return of_steps(path.name, steps)


def _records(file: BinaryIO, name: str, notes: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """(data, its checksum) of each record."""
    number = 0
    while head := file.read(12):
        number += 1
        if len(head) == 12 and not checked(head[:8], head[8:]):
            raise damaged(f"{name}, record {number}")
        data = file.read(struct.unpack("<Q", head[:8])[0]) if len(head) == 12 else b""
        check = file.read(4)
        if len(check) < 4:
            notes.append(f"{name}: record {number} is cut short; what stands before it is read")
            return
        yield data, check


def _scalars(event: bytes) -> tuple[int, dict[str, float]]:
    step, scalars = 0, {}
    for field, value in fields(event):
        if field == EVENT_STEP:
            step = value
        elif field == EVENT_SUMMARY:
            for _, one in fields(value):
                parts = dict(fields(one))
                if (scalar := _scalar(parts)) is not None:
                    scalars[parts[VALUE_TAG].decode()] = scalar
    return step, scalars


def _scalar(value: dict) -> float | None:
    """The one number of a summary's value, be it plain or a tensor; None for anything else."""
    if VALUE_SIMPLE in value:
        return float(struct.unpack("<f", value[VALUE_SIMPLE])[0])
    tensor = dict(fields(value[VALUE_TENSOR])) if VALUE_TENSOR in value else {}
    form, plain = TENSOR.get(tensor.get(TENSOR_TYPE, 0), ("", 0))
    data = tensor.get(TENSOR_CONTENT) or tensor.get(plain) if form else None
    return float(np.frombuffer(data, form)[0]) if data and len(data) == int(form[-1]) else None


def checked(data: bytes, check: bytes) -> bool:
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
