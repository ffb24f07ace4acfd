"""Topology files: one module a format, and the table of them. `base.py` says what a format is.

To add one: write its module beside these, with a TopologyFormat, and name that in TOPOLOGIES.
"""

import csv
import os
from dataclasses import replace
from pathlib import Path

from ...errors import RFabricError, meant
from ...files import NO_END, PACKED, has_end, read_text
from ...units import parse_rate
from ..model import Fabric
from ..network import Assumed, fabric_of
from .astra_sim import ASTRA_SIM
from .base import Reading, TopologyFormat
from .cable_rows import CABLE_ROWS
from .containerlab import CONTAINERLAB
from .dot import GRAPHVIZ
from .drawings import MERMAID_TEXT
from .edge_list import EDGE_LIST
from .gexf import GEXF
from .gml import GML
from .graphml import GRAPHML
from .host_rows import HOST_ROWS
from .htsim_topology import HTSIM_TOPOLOGY
from .ibnetdiscover import IBNETDISCOVER
from .infragraph import INFRAGRAPH
from .lldp import LLDP
from .miniedit import MINIEDIT
from .nccl_topology import NCCL_TOPOLOGY
from .netlab import NETLAB
from .node_link import NODE_LINK
from .ns3_topology import NS3_TOPOLOGY
from .pajek import PAJEK
from .simgrid import SIMGRID

TOPOLOGIES = {
    form.name: form
    for form in (
        HOST_ROWS, CABLE_ROWS, GRAPHML, GML, GEXF, PAJEK, EDGE_LIST, ASTRA_SIM, INFRAGRAPH, LLDP,
        IBNETDISCOVER, NODE_LINK, NCCL_TOPOLOGY, CONTAINERLAB, NETLAB, MINIEDIT, NS3_TOPOLOGY,
        SIMGRID, HTSIM_TOPOLOGY, GRAPHVIZ, MERMAID_TEXT,
    )
}  # fmt: skip
FABRIC_JSON = "fabric-json"  # rfabric's own: all that a Fabric is
SUFFIXES = tuple(
    dict.fromkeys(end for form in TOPOLOGIES.values() if form.read for end in form.suffixes)
)
FIRST_FILES = 8  # of a folder
SNIFFED = 1 << 22  # characters of a file, by which its format is told


def is_topology(name: str | Path) -> bool:
    """Whether this names a file or a folder that some format knows by what it holds."""
    path = Path(name)
    try:
        return _known(path) is not None
    except (OSError, ValueError):  # who reads all of it says what is wrong
        return False


def names_topology(head: str) -> bool:
    """Whether the head of a spec is the name of a topology file, which need not be there: by its
    suffix, or because there is such a file, or a folder of them.
    """
    bare = next((head.removesuffix(end) for end in PACKED if head.endswith(end)), head)
    if bare.endswith(".py"):
        return False
    path = Path(head)
    there = path.is_file() and (path.suffix != "" or os.sep in head)
    return bare.endswith(SUFFIXES) or there or (path.is_dir() and os.sep in head)


def read_network(
    file: str,
    rate: str | float = "400Gbit/s",
    uplink_rate: str | float = "",
    format: str = "",
    tiers: str = "",
    hosts: int = 0,
    part: str = "",
    rate_unit: str = "",
    delay_unit: str = "",
) -> Fabric:
    """The fabric in `file`, in the format that its content says, else its suffix; packed by gzip or
    zstd too.

    `rate` is that of host cables, `uplink_rate` of the others (default: `rate`), where the file
    gives none. format: its name, where it is not to be told. tiers: columns of switches in a table,
    lowest first, as `ASW;PSW`. hosts: so many below every ToR, where the file names none. part: of
    a network in several parts the one that holds this node. rate_unit, delay_unit: of numbers
    without a unit. RFabricError says what is wrong where.
    """
    host = parse_rate(rate, "rate")
    above = parse_rate(uplink_rate, "uplink_rate") if uplink_rate != "" else host
    if isinstance(hosts, bool) or not isinstance(hosts, int) or not 0 <= hosts <= 512:
        raise RFabricError(f"hosts={hosts!r} must be a whole number, 0 to 512")
    path, reading, kind = Path(file), Reading(rate_unit, delay_unit, tiers), "topology"
    try:
        form = _format_of(path, format)
        kind = f"whole {form.name}"
        network = form.read(path, reading)
        if form.lines and not has_end(path):
            network = replace(network, dropped=(*network.dropped, NO_END))
        return fabric_of(network, form.name, Assumed(host, above, hosts, part))
    except RFabricError as error:
        near = ", " if str(error).startswith("line ") else ": "
        raise RFabricError(f"{file}{near}{error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RFabricError(f"fabric file {file}: {error}") from error
    # numbers of thousands of digits, lists within lists
    except (csv.Error, ValueError, RecursionError) as error:
        raise RFabricError(f"{file}: is no {kind} file: {error}") from error


def _format_of(path: Path, name: str = "") -> TopologyFormat:
    """The format of this name, else the one that knows the text, else that of the suffix."""
    readers = {form.name: form for form in TOPOLOGIES.values() if form.read}
    if name:
        if name not in readers:
            raise RFabricError(
                f"no format {name!r} is read{meant(name, readers)}; {', '.join(readers)} are"
            )
        return readers[name]
    by_suffix = (form for form in readers.values() if _bare(path.name).endswith(form.suffixes))
    if (form := _known(path) or next(by_suffix, None)) is not None:
        return form
    raise RFabricError(f"no format knows it; say which it is by format=NAME ({', '.join(readers)})")


def _bare(name: str) -> str:
    return next((name.removesuffix(end) for end in PACKED if name.endswith(end)), name)


def _known(path: Path) -> TopologyFormat | None:
    """The format that knows a file's text, those of its suffix asked first; in a folder its first
    files are asked, of formats that read folders.
    """
    asked = [form for form in TOPOLOGIES.values() if form.read]
    if path.is_dir():
        folders = [form for form in asked if form.folders]
        files = [file for file in sorted(path.iterdir())[:FIRST_FILES] if file.is_file()]
        return next(filter(None, (_by_text(file, folders, ValueError) for file in files)), None)
    return _by_text(path, asked)


def _by_text(
    path: Path, asked: list[TopologyFormat], passed_over: type[Exception] | tuple = ()
) -> TopologyFormat | None:
    """By the beginning of a file; one that raises what is `passed_over` is of none."""
    try:
        text = read_text(path, SNIFFED)
    except passed_over:
        return None
    asked = sorted(asked, key=lambda form: not _bare(path.name).endswith(form.suffixes))
    return next((form for form in asked if form.sniff(text)), None)


def written(fabric: Fabric, path: str | Path, format: str = "") -> str:
    """The text of a fabric in the format of this name, else in the one of the file's suffix.
    RFabricError where neither is a format that is written.
    """
    import json

    name = format or _writer(Path(path).name)
    if name == FABRIC_JSON:
        return json.dumps(fabric.to_json(), indent=1) + "\n"
    form = TOPOLOGIES.get(name)
    if form is None or form.write is None:
        raise RFabricError(f"{path}: no format {name!r} is written; {', '.join(_writers())} are")
    return form.write(fabric)


def _writers() -> list[str]:
    return [FABRIC_JSON, *(form.name for form in TOPOLOGIES.values() if form.write)]


def _writer(name: str) -> str:
    """The format of a suffix; `.json` is rfabric's own."""
    if name.endswith(".json"):
        return FABRIC_JSON
    writers = [form for form in TOPOLOGIES.values() if form.write]
    for form in writers:
        if name.endswith(form.suffixes):
            return form.name
    ends = dict.fromkeys([".json", *(end for form in writers for end in form.suffixes)])
    raise RFabricError(
        f"{name}: a fabric is written as {', '.join(ends)}; or say --write-as NAME "
        f"({', '.join(_writers())})"
    )
