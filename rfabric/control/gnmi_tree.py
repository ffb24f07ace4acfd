"""What gNMI's paths and orders mean: where they lead in an OCS's RFC 7951 documents, and the edits
of its cross-connects that a Set asks for.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2 as gnmi

from .client import Client
from .schema import parse_json
from .sonic import CONFIG, LIST, STATES, TABLE

OPTICAL = "rfabric-ocs:optical-circuit-switch"
MODELS = {"sonic-ocs": "2024-11-21", "sonic-ocs-states": "2024-11-21", "rfabric-ocs": ""}
CONFIGURED, KEPT = (CONFIG,), (STATES, OPTICAL)
DOCUMENTS = {"ALL": (*CONFIGURED, *KEPT), "CONFIG": CONFIGURED, "STATE": KEPT, "OPERATIONAL": KEPT}
ENCODINGS = ("JSON", "JSON_IETF")


class Refused(Exception):
    """What is not answered: a gRPC status and its text."""

    def __init__(self, code: grpc.StatusCode, text: str):
        super().__init__(text)
        self.code = code


def invalid(text: str) -> Refused:
    """A request that makes no sense."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, text)


# --- what is there --------------------------------------------------------------------------------


class Look:
    """One path of one OCS: what stands there now."""

    def __init__(self, client: Client, prefix: Any, path: Any, encoding: int, kind: str = "ALL"):
        if gnmi.Encoding.Name(encoding) not in ENCODINGS:
            raise Refused(
                grpc.StatusCode.UNIMPLEMENTED,
                f"encoding {gnmi.Encoding.Name(encoding)}; there are {' and '.join(ENCODINGS)}",
            )
        self.client, self.encoding, self.kind = client, gnmi.Encoding.Name(encoding), kind
        self.ocs, self.path = _ocs(client, prefix, path), path
        self.elems = _elems(prefix, path)

    def value(self) -> Any:
        """The JSON there; None: nothing of that kind. Raises what gNMI answers to a path that leads
        nowhere.
        """
        if not self.elems:
            documents = map(self._document, DOCUMENTS[self.kind])
            return {key: value for document in documents for key, value in document.items()}
        name = _among(DOCUMENTS["ALL"], self.elems[0].name)
        if name is None:
            raise _no_such(self.elems[:1], "there are " + ", ".join(DOCUMENTS["ALL"]))
        return _within(self._document(name), self.elems) if name in DOCUMENTS[self.kind] else None

    def _document(self, name: str) -> dict:
        return self.client.ocs_document(self.ocs, name)

    def notification(self, value: Any = None) -> Any:
        """As gNMI says it; `value` where it is known."""
        value = self.value() if value is None else value
        told = [] if value is None else [gnmi.Update(path=self.path, val=self._typed(value))]
        target = gnmi.Path(target=self.ocs)
        return gnmi.Notification(timestamp=time.time_ns(), prefix=target, update=told)

    def _typed(self, value: Any) -> Any:
        data = json.dumps(value).encode()
        if self.encoding == "JSON":
            return gnmi.TypedValue(json_val=data)
        return gnmi.TypedValue(json_ietf_val=data)


def _ocs(client: Client, prefix: Any, path: Any = None) -> str:
    names = [one["name"] for one in client.get("/ocs")["ocs"]]
    asked = prefix.target or (path.target if path is not None else "")
    if asked in names:
        return asked
    if not asked and len(names) == 1:
        return names[0]
    said = f"no OCS {asked[:100]!r}" if asked else "the target names no OCS"
    raise Refused(grpc.StatusCode.NOT_FOUND, f"{said}; there are {', '.join(names) or 'none'}")


def _elems(prefix: Any, path: Any) -> list[Any]:
    """All elements of a path, an origin that is a module's put before the first."""
    elems = [*prefix.elem, *path.elem]
    origin = prefix.origin or path.origin
    if origin in MODELS and elems and ":" not in elems[0].name:
        first = gnmi.PathElem(name=f"{origin}:{elems[0].name}", key=elems[0].key)
        return [first, *elems[1:]]
    if origin in MODELS and not elems:
        documents = [name for name in DOCUMENTS["ALL"] if name.startswith(f"{origin}:")]
        return [gnmi.PathElem(name=name) for name in documents]
    return elems


def _among(names: Sequence[str], wanted: str) -> str | None:
    """The name that is meant, with its module or without."""
    return next((n for n in names if wanted in (n, n.partition(":")[2])), None)


def _within(data: Any, elems: Sequence[Any]) -> Any:
    """What elements lead to, keys choosing the rows of lists."""
    for depth, elem in enumerate(elems, 1):
        name = _among(list(data), elem.name) if isinstance(data, dict) else None
        if name is None:
            raise _no_such(elems[:depth])
        data = data[name]
        if elem.key:
            rows = data if isinstance(data, list) else []
            chosen = [row for row in rows if _fits(row, elem.key)]
            if not chosen:
                raise _no_such(elems[:depth])
            data = chosen if "*" in elem.key.values() else chosen[0]
    return data


def _fits(row: dict, keys: Any) -> bool:
    return all(value in ("*", str(row.get(name))) for name, value in keys.items())


def _no_such(elems: Sequence[Any], more: str = "") -> Refused:
    text = "".join(
        f"/{elem.name}" + "".join(f"[{k}={v}]" for k, v in sorted(elem.key.items()))
        for elem in elems
    )
    said = f"no path {text[:300]}" + (f"; {more}" if more else "")
    return Refused(grpc.StatusCode.NOT_FOUND, said)


# --- orders ---------------------------------------------------------------------------------------


def order(client: Client, request: Any) -> None:
    """All of a SetRequest, as one request of REST. Raises what gNMI answers to one that asks for
    more.
    """
    ocs = _ocs(client, request.prefix, next(iter(_paths(request)), None))
    if any(path.target not in ("", ocs) for path in _paths(request)):
        raise invalid("one Set changes one OCS; send one for each")
    whole = [update for update in request.replace if not _key(request.prefix, update.path)]
    if whole:
        if len(whole) + len(request.delete) + len(request.update) > 1 or len(request.replace) > 1:
            raise invalid("replacing the whole table goes alone in its Set")
        client.put_cross_connects(ocs, _rows(_json(whole[0].val)))
        return
    edits = [
        *({"operation": "remove", "target": _target(request.prefix, p)} for p in request.delete),
        *(edit for u in (*request.replace, *request.update) for edit in _merges(request.prefix, u)),
    ]
    if not edits:
        raise invalid("nothing to delete, replace or update")
    client.edit_cross_connects(ocs, edits)


def _paths(request: Any) -> list[Any]:
    return [*request.delete, *(u.path for u in (*request.replace, *request.update))]


def _key(prefix: Any, path: Any) -> str:
    """The cross-connect that a path names; '' for the table. Refused for any other path."""
    elems = _elems(prefix, path)
    names = [elem.name.rpartition(":")[2] for elem in elems]
    table = [CONFIG.rpartition(":")[2], TABLE, LIST]
    keys = dict(elems[-1].key) if elems else {}
    if names != table[: len(names)] or len(names) < (3 if keys else 2):
        raise invalid(
            f"{str(_no_such(elems)).removeprefix('no path ')} cannot be set; what can is "
            f"/{CONFIG}/{TABLE}/{LIST}[cross_connect_id=1A-2B]"
        )
    if set(keys) - {"cross_connect_id"}:
        raise invalid(f"the key of {LIST} is cross_connect_id, not {', '.join(sorted(keys))}")
    return keys.get("cross_connect_id", "")


def _target(prefix: Any, path: Any) -> str:
    name = _key(prefix, path)
    if not name:
        raise invalid(
            f"delete names a cross-connect, {LIST}[cross_connect_id=1A-2B]; to have none, replace "
            f"the table by an empty one"
        )
    return f"/{LIST}={name}"


def _merges(prefix: Any, update: Any) -> list[dict]:
    name, value = _key(prefix, update.path), _json(update.val)
    rows = [{"cross_connect_id": name} | _an_object(value)] if name else _rows(value)
    return [
        {
            "operation": "merge",
            "target": f"/{LIST}={name or row.get('cross_connect_id', '')}",
            "value": {LIST: [row]},
        }
        for row in rows
    ]


def _an_object(value: Any) -> dict:
    if not isinstance(value, dict):
        raise invalid('a cross-connect is an object: {"a_side": "1A", "b_side": "2B"}')
    return value


def _rows(value: Any) -> list[dict]:
    """The rows of a table, whatever of its own names stand around them."""
    for name in (TABLE, LIST):
        if isinstance(value, dict) and (key := _among(list(value), name)):
            value = value[key]
    if not isinstance(value, list):
        raise invalid(f"the table is an object with the list {LIST}")
    return [_an_object(row) for row in value]


def _json(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind not in ("json_val", "json_ietf_val"):
        raise invalid(f"a value is JSON or JSON_IETF, not {kind or 'nothing'}")
    return parse_json(getattr(value, kind))
