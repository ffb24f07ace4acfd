"""All-reduce bus bandwidth, of one server or of several: a column a configuration, GPU and GPUs or
nodes in its name.

    payload_bytes, a100_8gpu_busbw_GBps, h100_4node_busbw_GBps, ...

A node has the GPUs of a server of the catalog. Bandwidths were taken by PyTorch's or nccl-tests'
own loops, whose launch the host pays: HOST_LAUNCH. `algbw` in a name means algorithm bandwidth, the
name of an algorithm (`ring`, `nvls`) forces it; GBps are bytes and Gbps bits, a payload may carry
its unit (`payload_MiB`).
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...compute.communication import (
    HOST_LAUNCH,
    GpuNetwork,
    RankGroup,
    bus_bandwidth,
    collective_seconds,
    network,
)
from ...compute.gpus import find_gpu
from ...errors import RFabricError
from ...units import BITS_PER_BYTE, parse_size
from . import Point, PointGroup
from .tables import RefusedRow, attempt, by_size, number, rows

_SIZE = re.compile(r"(\d+)[ _-]*x?[ _-]*(gpus?|nodes?|servers?)(?![a-z])", re.I)
_ALGORITHM = re.compile(r"(?<![a-z])(ring|tree|nvls)(?![a-z])", re.I)


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Two groups: payloads from 1 MiB on, and smaller ones. RFabricError where the file has no such
    columns.
    """
    table = rows(path)
    size_column = next(
        (c for c in table[0] if c and re.search(r"payload|size|bytes", c, re.I)), None
    )
    columns = [c for c in table[0] if c and re.search(r"bw|bandwidth", c, re.I)]
    if not columns:
        raise RFabricError(
            f"{path.name} has columns {', '.join(table[0])}, none of a bandwidth such as "
            "h100_8gpu_busbw_GBps"
        )
    calls = [
        (f"row {i + 2} {c}", lambda row=row, c=c: _point(row, size_column, c))
        for i, row in enumerate(table)
        for c in columns
        if (row[c] or "").strip()
    ]
    made, refused = attempt(calls)
    return by_size(path.stem, path, made, refused)


def _point(row: dict[str, str], size_column: str | None, column: str) -> tuple[float, Point]:
    if size_column is None:
        raise RefusedRow("no column of payload bytes")
    group, net = _where(column)
    size = _bytes(row, size_column)
    forced = _ALGORITHM.search(column)
    algorithm = forced[1].lower() if forced else None
    if algorithm == "nvls" and group.servers > 1:
        algorithm = "nvls-tree"
    asked = "all-reduce", size, group, net, algorithm
    rate = size / collective_seconds(*asked) if "algbw" in column.lower() else bus_bandwidth(*asked)
    # GBps are bytes, Gbps are bits
    measured = number(row, column) / (BITS_PER_BYTE if re.search(r"Gb(ps|it)", column) else 1)
    return size, Point(f"{column} {size:.0f} B", measured, rate / 1e9, "GB/s")


def _bytes(row: dict[str, str], column: str) -> float:
    """A payload, with its unit in the cell (`16 MiB`) or in the column's name (`payload_MiB`);
    bytes where neither says one.
    """
    unit = re.search(r"[_ (]([KMG]i?B)\)?$", column)
    if re.search("[A-Za-z]", row[column]) or unit:
        try:
            return float(parse_size(row[column] + (unit[1] if unit else ""), column, bare=True))
        except RFabricError as error:
            raise RefusedRow(str(error)) from None
    return number(row, column)


def _where(column: str) -> tuple[RankGroup, GpuNetwork]:
    gpu = find_gpu(column)
    if gpu is None:
        raise RefusedRow("names no GPU of the catalog")
    net = network(gpu, launch=HOST_LAUNCH)
    counts = {kind[0].lower(): int(n) for n, kind in _SIZE.findall(column)}
    nodes = counts.get("n") or counts.get("s")
    if nodes is None and "g" not in counts:
        raise RefusedRow("says neither GPUs nor nodes, such as _8gpu_ or _4node_")
    # beside a count of nodes, that of GPUs is a node's, unless it is too many for one
    each = counts.get("g", gpu.gpus_per_server)
    gpus = each if nodes is None or each > gpu.gpus_per_server else each * nodes
    servers = (
        -(-gpus // net.domain)
        if nodes is None
        else max(1, -(-nodes * gpu.gpus_per_server // net.domain))
    )
    return RankGroup(gpus, servers), net
