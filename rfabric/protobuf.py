"""Messages of protobuf, without their schema: numbers of fields, and what they hold.

Source: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from typing import Any


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends; IndexError where the bytes end first."""
    value, shift = data[at] & 127, 7
    while data[at] > 127:
        at += 1
        value |= (data[at] & 127) << shift
        shift += 7
    if shift > 70:
        raise ValueError("a number of more than 64 bits")
    return value, at + 1


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field, value) of a message: numbers, and bytes of what has a length.

    IndexError or ValueError for bytes that are no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            if wire not in (1, 2, 5):
                raise ValueError(f"a value of wire type {wire}")
            size, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value = data[at : at + size]
            at += size
            if at > end:
                raise IndexError
        yield key >> 3, value
