"""Chakra as JSON, one file a rank, in three forms:

    {"schema": "1.1.1-chakra.0.0.4", "nodes": [...]}   PyTorch's execution trace: collectives as
                                                       `record_param_comms`, one after the other
    {"version": ...} {"id": "1", "type": ...} ...      what `chakra_jsonizer` makes of an .et file
    {"workload_graph": [{"Id": 1, "NodeType": 4}]}     nodes with `runtime` in microseconds

PyTorch's names operators, most without a time: what has none takes none, and it is said.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import RFabricError
from ...files import open_text, parse_json
from ..model import Trace
from .base import TraceFormat, whole
from .chakra import check_schema, files_read, read_ranks
from .chakra_graph import COLLECTIVES
from .chakra_wire import COLLECTIVE, COMPUTE, RECEIVE, SEND, ChakraNode, Graph
from .kineto_early import NCCL

TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
SQUEEZED = {kind.replace("-", ""): i for i, kind in enumerate(COLLECTIVES)} | {
    "allgatherbase": 2, "allgatherintotensor": 2, "reducescatterbase": 7, "alltoallv": 6,
    "reducescattertensor": 7, "alltoallbase": 6, "allreducecoalesced": 0,
    "allgatherintotensorcoalesced": 2, "reducescattertensorcoalesced": 7, "allreducesparse": 0,
    "broadcastoop": 5, "reduceoop": 1,
}  # fmt: skip
ROOTED = ("reduce", "gather", "scatter", "broadcast")
COMMS = "record_param_comms"
WHOLE = re.compile("[us]?int|s?fixed")  # attributes of which kinds hold whole numbers
SILENT = ("wait", "init", "")  # records of no bytes
DATA, CONTROL = ("dataDeps", "data_deps"), ("ctrlDeps", "ctrl_deps")  # as versions spell them


def _read(path: Path, ranks_per_host: int = 1, ranks: int = 0, dims: str = "") -> Trace:
    return read_ranks(path, CHAKRA_JSON, _graph, ranks_per_host, ranks, dims)


def _graph(file: Path) -> Graph:
    with open_text(file) as opened:
        text = opened.read()
    try:
        objects = list(_objects(text))
        first = objects[0] if objects else None
        if not isinstance(first, dict):
            raise RFabricError(
                f"{file.name}: is no Chakra graph, which is an object; rows of a trace are JSON "
                "lines, an object each (.jsonl)"
            )
        if len(objects) > 1 and {"workload_graph", "nodes"} & first.keys():
            raise RFabricError(
                f"{file.name}: {len(objects)} graphs, one behind the other; give each rank's a "
                "file of its own"
            )
        if "workload_graph" in first:
            return _workload(file.name, first)
        check_schema(file.name, str(first.get("schema") or first.get("version") or ""))
        return _pytorch(file.name, first) if "nodes" in first else _dumped(file.name, objects)
    except KeyError as error:
        raise RFabricError(f"{file.name}: is no Chakra graph: {error} is missing") from error
    except (TypeError, AttributeError, IndexError) as error:
        raise RFabricError(
            f"{file.name}: is no Chakra graph: what stands there is of another kind ({error})"
        ) from error
    except RFabricError:
        raise
    except ValueError as error:
        raise RFabricError(f"{file.name}: is no JSON, or cut short: {error}") from error


def _objects(text: str) -> Iterable[dict]:
    """All objects, one behind the other."""
    decoder, blanks = json.JSONDecoder(), re.compile(r"\s*")
    at = blanks.match(text).end()
    while at < len(text):
        one, end = decoder.raw_decode(text, at)
        yield one
        at = blanks.match(text, end).end()


# --- what `chakra_jsonizer` writes ---------------------------------------------------------------


def _dumped(name: str, objects: list[dict]) -> Graph:
    facts = {"version": ""} | _values(objects[0])
    return Graph(name, facts, [_message(name, one) for one in objects[1:]], {}, [])


def _message(name: str, one: dict) -> ChakraNode:
    number = whole(one.get("id", 0), f"{name}: id")
    kind, where = one.get("type", TYPES[0]), f"{name}: node {number}"
    if kind not in TYPES:
        raise RFabricError(f"{where}: type {kind!r} is none of {', '.join(TYPES)}")
    waits = [*_either(one, *DATA), *_either(one, *CONTROL)]
    micros = one.get("durationMicros", one.get("duration_micros", 0))
    return ChakraNode(
        number, str(one.get("name", "")), TYPES.index(kind),
        [whole(dep, f"{where}: deps") for dep in waits], whole(micros, f"{where}: durationMicros"),
        _values(one),
    )  # fmt: skip


def _either(one: dict, *keys: str) -> list:
    return next((one[key] for key in keys if key in one), [])


def _values(one: dict) -> dict:
    values = {}
    for attr in one.get("attr", ()):
        key = next((k for k in attr if k not in ("name", "docString", "doc_string")), None)
        value = attr.get(key)
        if isinstance(value, dict):
            value = value.get("values", [])
        elif isinstance(value, str) and WHOLE.match(key):  # as JSON of protobuf quotes 64 bits
            value = whole(value, f"attribute {attr['name']}", -(2**63), 2**64 - 1)
        values[str(attr["name"])] = value
    return values | ({"version": one["version"]} if "version" in one else {})


# --- graphs of `workload_graph` ------------------------------------------------------------------


_ATTRIBUTES = ("involved_dim", "pg_name", "root_rank", "num_ops", "tensor_size")


def _workload(name: str, data: dict) -> Graph:
    nodes, known = data["workload_graph"], {one["Id"] for one in data["workload_graph"]}
    made, gone, silent = [], 0, 0
    for one in nodes:
        waits = [*_either(one, *DATA), *_either(one, *CONTROL)]
        kept = [dep for dep in waits if dep in known]
        gone += len(waits) - len(kept)
        kind = whole(one["NodeType"], f"{name}: node {one['Id']}: NodeType", 0, len(TYPES) - 1)
        attrs = {key: one[key] for key in one if key.startswith("comm_") or key in _ATTRIBUTES}
        if kind in (COLLECTIVE, SEND, RECEIVE) and "comm_size" not in attrs:
            kind, silent = COMPUTE, silent + 1
        micros = whole(one.get("runtime", 0), f"{name}: node {one['Id']}: runtime")
        made.append(ChakraNode(one["Id"], str(one.get("Name", "")), kind, kept, micros, attrs))
    notes = [f"{name}: {gone} waits for nodes that the file lacks are dropped"] if gone else []
    if silent:
        notes.append(
            f"{name}: {silent} communication nodes say no comm_size: their runtime computes"
        )
    return Graph(name, {"version": ""}, made, {}, notes)


# --- execution traces of PyTorch -----------------------------------------------------------------


def _pytorch(name: str, data: dict) -> Graph:
    groups, backends = _process_groups(data["nodes"])
    made: list[ChakraNode] = []
    timeless = sent = 0
    for one in sorted(data["nodes"], key=lambda node: node["id"]):
        after = [made[-1].id] if made else []
        micros = one.get("exclusive_dur", 0)
        if one["name"] == COMMS:
            if attrs := _comms(f"{name}: node {one['id']}", one, groups, backends):
                made.append(ChakraNode(one["id"], COMMS, attrs.pop("type"), after, 0, attrs))
        elif NCCL.match(one["name"]):  # joined in from Kineto: its record is the collective
            sent += 1
        elif micros:
            made.append(ChakraNode(one["id"], one["name"], COMPUTE, after, round(micros), {}))
        else:
            timeless += 1
    notes = [f"{name}: {timeless:,} operators have no time and take none"] if timeless else []
    if sent:
        notes.append(f"{name}: {sent:,} kernels of NCCL left out, their records count")
    return Graph(name, {"version": ""}, made, groups, notes)


def _process_groups(nodes: list[dict]) -> tuple[dict[str, list[int]], dict]:
    """Ranks by group, and groups by the number of their backend."""
    groups, backends = {}, {}
    for one in nodes:
        if "process_group:init" in one["name"]:
            for group in parse_json(one["inputs"]["values"][0]):
                ranks = [int(rank) for rank in group.get("ranks") or range(group["group_size"])]
                groups[str(group["pg_name"])] = ranks
                backends[group.get("backend_id")] = str(group["pg_name"])
    return groups, backends


def _comms(where: str, one: dict, groups: dict[str, list[int]], backends: dict) -> dict:
    """Attributes of a collective, a send or a receive, whose root or peer is counted in its group;
    {} of a record that sends nothing.
    """
    values = one["inputs"]["values"]
    said = {attr["name"]: attr.get("value") for attr in one.get("attrs", ())}
    at = next((i for i, value in enumerate(values) if isinstance(value, str)), None)
    word = str(said.get("collective_name") or (values[at] if at is not None else ""))
    kind = re.sub(r"[^a-z]", "", word.lower())
    if kind in SILENT:
        return {}
    group = next((v[0] for v in values[1:at] if isinstance(v, list) and v), None)
    if group is None:
        group = next((backends[v] for v in values[1:at] if v in backends), said.get("pg_name", ""))
    attrs = {"comm_size": _bytes(values[0]), "pg_name": str(group)}
    ranks = groups.get(str(group), ())
    if kind in ("send", "recv"):
        key = "comm_dst" if kind == "send" else "comm_src"
        peer = _in_job(values[at - 1], ranks, f"{where}: its peer")
        return attrs | {"type": SEND if kind == "send" else RECEIVE, key: peer}
    if kind not in SQUEEZED:
        raise RFabricError(f"{where}: unknown collective {word!r}; known: {', '.join(COLLECTIVES)}")
    if at and COLLECTIVES[SQUEEZED[kind]] in ROOTED and type(values[at - 1]) is int:
        attrs["root_rank"] = _in_job(values[at - 1], ranks, f"{where}: its root")
    return attrs | {"type": COLLECTIVE, "comm_type": SQUEEZED[kind]}


def _in_job(rank: object, ranks: Sequence[int], what: str) -> int:
    """The rank of the job that this one of a group is."""
    number = whole(rank, what)
    return ranks[number] if number < len(ranks) else number


def _bytes(value) -> int:
    """Bytes of all tensors in a list of lists: [tensor, storage, offset, elements, bytes each]."""
    if not isinstance(value, list):
        return 0
    if len(value) >= 5 and all(isinstance(cell, int) for cell in value[:5]):
        return value[3] * value[4]
    return sum(map(_bytes, value))


def _sniff(head: bytes) -> bool:
    text = head.decode("utf-8-sig", "replace").lstrip()
    if not text.startswith("{"):
        return False
    schema = re.search(r'"(schema|version)"\s*:\s*"[\w.-]*0\.0\.\d', text[:400])
    workload = re.search(r'"workload_graph"\s*:\s*\[', text)
    return bool(schema or workload or "-chakra." in text[:400])


CHAKRA_JSON = TraceFormat(
    "chakra-json", "Chakra as JSON, a file a rank: PyTorch's execution trace, `chakra_jsonizer`",
    (".json",), _sniff, _read, folders=True, reads=lambda path: files_read(path, CHAKRA_JSON),
)  # fmt: skip
