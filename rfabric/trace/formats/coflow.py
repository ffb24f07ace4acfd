"""Coflow benchmarks (FB2010 of coflow-benchmark): shuffles between racks, each a coflow.

    150 526                                  racks, coflows
    1 0 2 120 7 1 70:4.0                     id, arrival in ms, mappers and their racks,
                                             reducers as rack:MB

A rack is a host here: rack n is h(n+1) where racks count from 0, as in the published file, and h(n)
where they count from 1. What a reducer fetches (MB of 2^20 bytes, as CoflowSim has them) comes
evenly from all mappers; what mapper and reducer have in one rack does not leave it.
"""

import re
from pathlib import Path

import numpy as np

from ...errors import RFabricError
from ..model import MOST_BYTES, Trace
from .base import TraceFormat, filled, understood, whole

MEGABYTE = 2**20


def _read(path: Path) -> Trace:
    lines = [(number, line.split()) for number, line in filled(path)]
    racks, count = (whole(word, f"line 1: {what}", 1) for word, what in zip(
        (*lines[0][1], "", ""), ("racks", "coflows"), strict=False
    ))  # fmt: skip
    if len(lines) - 1 != count:
        raise RFabricError(f"says {count} coflows and holds {len(lines) - 1}; is the file whole?")
    coflows = [_coflow(f"line {n}", words, racks) for n, words in lines[1:]]
    return _trace(path, coflows, racks)


def _coflow(where: str, words: list[str], racks: int) -> tuple:
    """(name, arrival s, racks of mappers, racks of reducers, bytes of each reducer)"""
    short = f"{where}: ends early; say `id arrival_ms M mappers R rack:MB`"
    if len(words) < 3:
        raise RFabricError(short)
    arrival = _number(words[1], f"{where}: arrival")
    maps = whole(words[2], f"{where}: mappers", 1)
    if len(words) < maps + 4:
        raise RFabricError(short)
    mappers = [whole(w, f"{where}: mapper", 0, racks) for w in words[3 : 3 + maps]]
    reduces = whole(words[3 + maps], f"{where}: reducers", 1)
    rest = words[4 + maps :]
    if len(rest) != reduces:
        raise RFabricError(f"{where}: says {reduces} reducers and names {len(rest)}")
    ends, sizes = [], []
    for word in rest:
        rack, colon, size = word.partition(":")
        if not colon:
            raise RFabricError(f"{where}: {word[:20]!r} is not rack:MB")
        ends.append(whole(rack, f"{where}: reducer", 0, racks))
        sizes.append(round(_number(size, f"{where}: reducer {rack}") * MEGABYTE))
    return words[0], arrival / 1000, mappers, ends, sizes


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= MOST_BYTES / MEGABYTE:
        raise RFabricError(f"{what} {text[:20]!r} must be a number, 0 or more")
    return number


def _trace(path: Path, coflows: list[tuple], racks: int) -> Trace:
    parts = [_flows(number, coflow, racks + 1) for number, coflow in enumerate(coflows)]
    src, dst, size, which = map(np.concatenate, zip(*parts, strict=True))
    inside = src == dst
    kept = ~inside & (size > 0)
    if not kept.any():
        raise RFabricError("no coflow sends bytes from one rack to another")
    named = np.unique([rack for _, _, m, r, _ in coflows for rack in (*m, *r)])
    if named[0] == 0 and named[-1] == racks:
        raise RFabricError(f"racks 0 and {racks} are both named, of {racks}; count from 0 or 1")
    first = 1 if named[-1] < racks else 0
    hosts, ends = np.unique(np.concatenate((src[kept], dst[kept])), return_inverse=True)
    arrivals = np.array([coflow[1] for coflow in coflows])
    rows = int(kept.sum())
    nothing = np.zeros(rows)
    trace = Trace(
        tuple(f"h{rack + first}" for rack in hosts.tolist()), ends[:rows], ends[rows:], size[kept],
        arrivals[which[kept]], nothing, np.zeros(rows + 1), [], nothing, nothing, which[kept],
        ("shuffle",), tuple(f"coflow {coflow[0]}" for coflow in coflows),
    )  # fmt: skip
    return understood(trace, COFLOW.name, path, _dropped(racks, size[inside].sum(), first))


def _flows(number: int, coflow: tuple, most: int) -> tuple:
    """Columns of its flows: each reducer's bytes, evenly from all mappers to the byte, one flow a
    pair of racks.
    """
    _, _, mappers, reducers, sizes = coflow
    maps, total = np.array(mappers), np.array(sizes, np.int64)[:, None]
    share = total // len(maps) + (np.arange(len(maps)) < total % len(maps))
    codes = maps[None, :] * most + np.array(reducers)[:, None]
    pairs, which = np.unique(codes.ravel(), return_inverse=True)
    size = np.zeros(len(pairs), np.int64)
    np.add.at(size, which.ravel(), share.ravel())
    return pairs // most, pairs % most, size, np.full(len(pairs), number)


def _dropped(racks: int, inside: int, first: int) -> list[str]:
    base = "0" if first else "1"
    said = [f"a host stands for each of {racks} racks, counted from {base}"]
    return said + ([f"{inside:,} bytes stay inside racks"] if inside else [])


def _sniff(head: bytes) -> bool:
    lines = head.decode("utf-8-sig", "replace").split("\n")
    begins = re.fullmatch(r"\s*\d+\s+\d+\s*", lines[0])
    return bool(begins and len(lines) > 1 and re.match(r"\s*\S+ [\d.]+ \d+ .*\d+:[\d.]", lines[1]))


COFLOW = TraceFormat(
    "coflow", "coflow-benchmark (FB2010): `id arrival_ms M mappers R rack:MB`, a host a rack",
    (".coflow",), _sniff, _read, lines=True,
)  # fmt: skip
