"""The packet engine: ns-3's TCP (`packets.cpp`) behind the flow engine's interface.

    fabric, share of all bytes -> ns-3's nodes and cables -> `world` plays a trace on them as on the
    flow engine: the same stages, decisions and rewires

A packet costs what it costs, so all bytes and rates shrink by one factor where a trace sends more
than BUDGET packet-hops; times stay what they are, and what takes less than a few packets is blurred
(`report.result.Scale`). Needs rfabric[ns3] and a C++ compiler, once.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import metadata, util
from pathlib import Path

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..trace import Trace
from ..trace.packets import FIRST_SEGMENTS, MTU, PAYLOAD, RECEIVE_WINDOW, WAY
from ..trace.pairs import PairWays
from .build import compile_to
from .compiled import CompiledEngine, declared
from .inputs import Batch

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("packets.cpp")
MODULES = ("core", "network", "internet", "point-to-point")
FRAME = 2  # bytes of PPP's header
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-DNDEBUG")
BUDGET = 4e6  # packet-hops of a run: less than a minute of one core
# CPU s of 21 runs, measured on two busy cores, 300 to 12,000 flows of 1 kB to 1 MB: a packet or an
# acknowledgement at a cable; a connection; one look at one connection of a host, which ns-3 has at
# all of them for each packet that comes in, and which takes twice as long where so many ends are
# open that memory no longer answers at once. 0.6 to 1.9 times what the runs took
CABLE_S, CONNECTION_S, LOOK_S, SLOW_MEMORY = 7e-6, 3e-4, 4e-8, 6000
TOGETHER_S = 1e-3  # flows that start in one such time are open at once
PATIENCE_S = 120  # of one core; a run beyond may take hours
HOSTS = 128  # more would take minutes a second of traffic


def share_of(trace: Trace, ways: PairWays) -> float:
    """Of all bytes, what is sent: all, where that is no more than BUDGET packet-hops."""
    sends = np.flatnonzero(trace.size > 0)
    offsets, _ = ways.of(sends)
    hops = float((np.ceil(trace.size[sends] / PAYLOAD) * np.diff(offsets)).sum())
    return min(1.0, BUDGET / hops) if hops else 1.0


def connections(trace: Trace, each: bool = False) -> np.ndarray:
    """How many are open from host to host, int64[hosts, hosts]: flows of one pair share one where
    one waits for the other, or starts later, so at the least so many as are open at once. `each`:
    every flow has its own.
    """
    hosts = len(trace.hosts)
    most = np.zeros(hosts**2, dtype=np.int64)
    for rows in trace.levels:
        sends = rows[trace.size[rows] > 0]
        pair = trace.src[sends].astype(np.int64) * hosts + trace.dst[sends]
        if each:
            np.add.at(most, pair, 1)
            continue
        together = np.rec.fromarrays([pair, trace.start[sends] // TOGETHER_S])
        _, first, count = np.unique(together, return_index=True, return_counts=True)
        np.maximum.at(most, pair[first], count)
    return most.reshape(hosts, hosts)


def run_seconds(trace: Trace, ways: PairWays, share: float, each: bool = False) -> float:
    """About what so large a share of `trace` costs one core, s: packets and acknowledgements, one
    of two packets, cable by cable; connections; and hosts that look for the one of each packet.
    """
    sends, hosts = np.flatnonzero(trace.size > 0), len(trace.hosts)
    open_, offsets = connections(trace, each), ways.of(sends)[0]
    data = np.ceil(trace.size[sends] * share / PAYLOAD)
    cables = float((1.5 * data * np.diff(offsets)).sum())
    # a handshake is a packet that goes and one that comes
    come = open_.sum(axis=0) + np.bincount(trace.dst[sends], data, minlength=hosts)
    come += open_.sum(axis=1) + np.bincount(trace.src[sends], data / 2, minlength=hosts)
    there = (open_.sum(axis=0) + open_.sum(axis=1)).astype(float)
    looks = float(come @ there) * (1 + there.sum() / SLOW_MEMORY)
    return CABLE_S * cables + CONNECTION_S * float(open_.sum()) + LOOK_S * looks


def refuse_hosts(fabric: Fabric) -> None:
    """RFabricError for more than HOSTS hosts."""
    if len(fabric.hosts) > HOSTS:
        raise RFabricError(
            f"{fabric.name} has {len(fabric.hosts):,} hosts; packets are simulated on {HOSTS} "
            "at most: use a smaller fabric, or leave out --engine ns3"
        )


def refuse_long(trace: Trace, ways: PairWays, share: float, each: bool = False) -> None:
    """RFabricError for what would take more than PATIENCE_S; `each`: flows have connections of
    their own.
    """
    if (seconds := run_seconds(trace, ways, share, each)) > PATIENCE_S:
        sends = np.count_nonzero(trace.size)
        raise RFabricError(
            f"{sends:,} flows need {connections(trace, each).sum():,} connections, and ns-3 would "
            f"take about {seconds:,.0f} s, more than {PATIENCE_S}: simulate fewer flows, or leave "
            "out --engine ns3"
        )


def refuse_part(share: float) -> None:
    """RFabricError where flows that start slowly do not send all of their bytes: a first window of
    ten packets stands for no more than these.
    """
    if share < 1:
        raise RFabricError(
            f"--transport tcp: of {share:.2g} of all bytes, slow start would not be seen; send all "
            "of them with --bandwidth-scale 1, which may take long, or a smaller trace"
        )


class PacketEngine(CompiledEngine):
    """ns-3 for the cables of `fabric`, everything `share` times as large; one at a time a process.

    slow: each flow has a connection of its own, which starts slowly, as TCP's do; else those that
    are open go on, their windows open.

    RFabricError without ns-3; `refuse_hosts` and `refuse_long` refuse before what is too large.
    """

    def __init__(self, fabric: Fabric, share: float, slow: bool = False):
        self._core, self._turn = _library(), threading.RLock()
        self._links, self._share = 2 * len(fabric.links) + 1, share
        number = {node.name: i for i, node in enumerate(fabric.nodes)}
        ends = np.array(
            [(number[k.a.node], number[k.b.node]) for k in fabric.links], dtype=np.int64
        )
        # headers go on top: a cable carries its nominal rate as payload
        rate = np.repeat([k.rate for k in fabric.links], 2) * share * (MTU + FRAME) / PAYLOAD
        delay = np.repeat([k.delay for k in fabric.links], 2).astype(float)
        host = np.array([node.kind == "host" for node in fabric.nodes], dtype=np.int8)
        there, back = (np.ascontiguousarray(e.ravel()) for e in (ends, ends[:, ::-1]))
        window = RECEIVE_WINDOW + int(2 * WAY * delay.max() * rate.max() / 8)
        columns = (column.ctypes.data for column in (there, back, rate, delay))
        self._handle = self._core.rf_packets(
            len(host), host.ctypes.data, len(there), *columns, MTU, window, slow * FIRST_SEGMENTS
        )
        if not self._handle:
            raise RFabricError("another simulation of packets is under way in this process")

    def add(self, batch: Batch) -> None:
        if batch.weight is not None and (batch.weight != 1).any():
            raise RFabricError("packets are sent flow by flow: a row has weight 1")
        super().add(replace(batch, size=np.ceil(batch.size * self._share)))

    def run(self, until: float, breath: Callable[[], None] | None = None) -> np.ndarray:
        events = super().run(until, breath)
        if error := self._call("rf_error").decode():
            raise RunError(f"ns-3: {error}")
        return events

    def remaining(self, flows: np.ndarray) -> np.ndarray:
        return super().remaining(flows) / self._share

    def link_bytes(self) -> np.ndarray:
        return super().link_bytes() / self._share


@cache
def _library() -> ctypes.CDLL:
    """`packets.cpp`, compiled against the ns-3 that is installed."""
    version, home = ns3()
    output = SOURCE.with_name(f"packets-{version}.so")
    if not output.exists() or output.stat().st_mtime < SOURCE.stat().st_mtime:
        _build(output, home)
    library = declared(ctypes.CDLL(str(output)))
    array, count = ctypes.c_void_p, ctypes.c_int64
    library.rf_packets.restype = ctypes.c_void_p
    library.rf_packets.argtypes = [count, array, count, *[array] * 4, count, count, count]
    library.rf_error.restype, library.rf_error.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return library


def require() -> None:
    """RFabricError where packets cannot be simulated here."""
    _library()


def ns3() -> tuple[str, Path]:
    """The version of ns-3 that is installed, and where; RFabricError where none is."""
    spec = util.find_spec("ns3")
    if spec is None or not spec.submodule_search_locations:
        raise RFabricError("--engine ns3 needs ns-3's wheel; install rfabric[ns3]")
    return metadata.version("ns3"), Path(next(iter(spec.submodule_search_locations)))


def _build(output: Path, home: Path) -> None:
    if not os.access(output.parent, os.W_OK):
        raise RFabricError(
            f"cannot write {output}, which --engine ns3 builds once: run it as the "
            "user who owns that folder"
        )
    lib = home / "lib64"
    names = [next(lib.glob(f"libns3*-{module}.so"), None) for module in MODULES]
    if None in names:
        raise RFabricError(f"{lib} lacks ns-3's modules {', '.join(MODULES)}: install rfabric[ns3]")
    log.warning("building the packet engine, once, in about 20 s")
    words = [*FLAGS, f"-I{home / 'include'}", str(SOURCE)]
    compile_to(output, words, [*map(str, names), f"-Wl,-rpath,{lib}"])
