"""Collectives of vidur's profiles (github.com/microsoft/vidur data/profiling); `vidur_mlp` reads
those of layers.

    vidur_*_all_reduce.csv, vidur_*_send_recv.csv  time_stats.NAME.median (ms), num_workers, size
                                                   (bytes), collective,
                                                   devices_per_node

The GPU stands in the file name. Times are those of kernels, without the host's launch.
"""

from collections.abc import Iterable
from pathlib import Path

from ...compute.communication import RankGroup, collective_seconds, network
from ...compute.gpus import find_gpu
from . import Point, PointGroup
from .tables import RefusedRow, number, rows, split_by_size


def check(path: Path, data: Path) -> Iterable[PointGroup]:
    """Groups of the file: messages from 1 MiB on and smaller ones; nothing of files that
    `vidur_mlp` reads.
    """
    if "collective" in (table := rows(path))[0]:
        return split_by_size(path.stem, path, [(row, lambda r: _point(r, path)) for row in table])
    if "mlp" in path.stem:
        return []
    names = tuple(
        f"row {i + 2}: a vidur profile of this kind is not modelled" for i in range(len(table))
    )
    return [PointGroup(path.stem, f"{path.parent.name}/{path.name}", (), names)]


def _point(row: dict[str, str], path: Path) -> tuple[float, Point]:
    gpu = find_gpu(path.stem.removeprefix("vidur_"))
    if gpu is None:
        raise RefusedRow(f"{path.name} names no GPU of the catalog")
    kind, workers, size = row["collective"], int(number(row, "num_workers")), number(row, "size")
    each = int(number(row, "devices_per_node"))
    group = RankGroup(workers, -(-workers // each))
    seconds = collective_seconds(kind, size, group, network(gpu))
    name = f"{gpu.name} {kind} {workers} GPUs, {each} a server, {size:.0f} B"
    measured, part = number(row, f"time_stats.{kind}.median"), f"{workers} GPUs, {each} a server"
    return size, Point(name, measured, seconds * 1e3, "ms", part)
