"""Chakra execution traces as protobuf holds them: messages, each behind its length.

    GlobalMetadata   1 version, 2 attr
    Node             1 id, 2 name, 3 type, 4 ctrl_deps, 5 data_deps, 6 start_time_micros,
                     7 duration_micros, 10 attr
    AttributeProto   1 name, then one of many values: 7 int32 ... 13 uint64, 27 bool, 28 bools,
                     29 string

Source: schema/protobuf/et_def.proto of mlcommons/chakra.
"""

import struct
from typing import NamedTuple

from ...errors import RFabricError
from ...protobuf import fields, varint

METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)
SIGNED, ZIGZAG, TRUTHS, TEXT = (7, 9), (15, 17), 28, 29


class ChakraNode(NamedTuple):
    """One node of a rank's graph; micros: how long it computes; deps: ids, data before control."""

    id: int
    name: str
    type: int
    deps: list[int]
    micros: int
    attrs: dict


class Graph(NamedTuple):
    """What one rank's file holds; facts: of its metadata; groups: ranks by process group."""

    name: str
    facts: dict
    nodes: list[ChakraNode]
    groups: dict[str, list[int]]
    notes: list[str]


def decoded(name: str, data: bytes) -> Graph:
    """The graph of a file's bytes; RFabricError names the message that is damaged."""
    at, nodes, seen = 0, [], {}
    facts: dict = {}
    while at < len(data):
        try:
            size, at = varint(data, at)
            if at + size > len(data):
                raise IndexError
            message = data[at : at + size]
            if not facts and not nodes:
                facts = {"version": ""} | _metadata(message, seen)
            else:
                nodes.append(_node(message, seen))
        except (AttributeError, IndexError, struct.error, TypeError, ValueError) as error:
            what = f"node {len(nodes)}" if facts else "its metadata"
            raise RFabricError(
                f"{name}: {what}, at byte {at}, is cut short or damaged; is the file whole?"
            ) from error
        at += size
    return Graph(name, facts, nodes, {}, [])


def _metadata(message: bytes, seen: dict) -> dict:
    facts = {}
    for field, value in fields(message):
        if field == 1:
            facts["version"] = value.decode()
        elif field == 2:
            facts.update((_attribute(value, seen),))
    return facts


def _node(message: bytes, seen: dict) -> ChakraNode:
    number = kind = micros = 0
    name = ""
    ctrl: list[int] = []
    deps: list[int] = []
    attrs = {}
    for field, value in fields(message):
        if field == 1:
            number = value
        elif field == 2:
            name = value.decode()
        elif field == 3:
            kind = value
        elif field in (4, 5):
            waits = ctrl if field == 4 else deps
            waits.extend(_packed(value) if isinstance(value, bytes) else [value])
        elif field == 7:
            micros = value
        elif field == 10:
            key, one = _attribute(value, seen)
            attrs[key] = one
    return ChakraNode(number, name, kind, deps + ctrl, micros, attrs)


def _packed(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def _attribute(message: bytes, seen: dict) -> tuple:
    if message not in seen:
        name, content = "", None
        for field, value in fields(message):
            if field == 1:
                name = value.decode()
            elif field > 2:
                content = _value(field, value)
        seen[message] = name, content
    return seen[message]


def _value(field: int, value):
    if field in SIGNED:
        return value - (1 << 64) if value >> 63 else value
    if field in ZIGZAG:
        return (value >> 1) ^ -(value & 1)
    if field in (3, 5):
        return struct.unpack("<d" if field == 3 else "<f", value)[0]
    if field in (19, 21, 23, 25):
        return int.from_bytes(value, "little", signed=field > 21)
    if field == 27:
        return bool(value)
    if field == TRUTHS:
        return [bool(one) for _, values in fields(value)
                for one in (values if isinstance(values, bytes) else (values,))]  # fmt: skip
    return value.decode() if field == TEXT else value


# --- and back ------------------------------------------------------------------------------------


def encoded(facts: dict, nodes: list[ChakraNode]) -> bytes:
    """The bytes of a file: metadata, then nodes, each behind its length."""
    rest = [_entry(2, _pair(key, value)) for key, value in facts.items() if key != "version"]
    head = _entry(1, facts["version"].encode()) + b"".join(rest)
    return b"".join(_number(len(part)) + part for part in (head, *map(_message, nodes)))


def _message(node: ChakraNode) -> bytes:
    parts = [_key(1, 0), _number(node.id), _entry(2, node.name.encode()), _key(3, 0)]
    parts.append(_number(node.type))
    if node.deps:
        parts.append(_entry(5, b"".join(map(_number, node.deps))))
    if node.micros:
        parts += [_key(7, 0), _number(node.micros)]
    parts += [_entry(10, _pair(key, value)) for key, value in node.attrs.items()]
    return b"".join(parts)


def _pair(key: str, value) -> bytes:
    """An attribute: truth, text, ranks and tags as int32, all other numbers as int64, which is
    what ASTRA-sim asks for.
    """
    name = _entry(1, key.encode())
    if isinstance(value, bool):
        return name + _key(27, 0) + _number(value)
    if isinstance(value, str):
        return name + _entry(TEXT, value.encode())
    return name + _key(7 if key in ("comm_src", "comm_dst", "comm_tag") else 9, 0) + _number(value)


def _entry(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _number(len(data)) + data


def _key(field: int, wire: int) -> bytes:
    return _number(field << 3 | wire)


def _number(value: int) -> bytes:
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)
