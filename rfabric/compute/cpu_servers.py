"""CPU servers as data: what those cost that environments and rewards run on, and what they draw.

`cpu_servers.csv` restates public figures, each with its source and date. They are whole servers as
a cloud rents them on demand, two sockets; `usd_least` is the lowest price of the same server that
its source has (spot), so a bill may be too high by half of this line. Power is that of the sockets
at their limit: memory, disks and fans come on top, some tens of percent.
"""

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CpuServer:
    """One kind of CPU server: W of its sockets, USD an hour on demand and at the least."""

    name: str
    vcpus: int
    memory_gib: int
    power_w: float
    usd_per_hour: float
    usd_least: float
    source: str
    power_source: str


def _table() -> dict[str, CpuServer]:
    path = Path(__file__).with_name("cpu_servers.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _server(**row) for row in csv.DictReader(file)}


def _server(name: str, source: str, power_source: str, **figures: str) -> CpuServer:
    whole = {key: int(figures[key]) for key in ("vcpus", "memory_gib")}
    money = {key: float(figures[key]) for key in ("power_w", "usd_per_hour", "usd_least")}
    return CpuServer(name=name, source=source, power_source=power_source, **whole, **money)


CPU_SERVERS = _table()
