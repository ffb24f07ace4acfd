"""`GET /openapi.json`: every path, body, answer and limit as OpenAPI 3.1, built from the tables of
schema.py and views.py.
"""

import functools
import re
from collections.abc import Sequence

from .. import __version__
from ..optics import IN_FLIGHT
from . import schema, sonic, views

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
WORD, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
FLAG, THING = {"type": "boolean"}, {"type": "object"}
SAME_TO_ALL = (400, 401, 403, 405, 408, 411, 413, 421, 429)
ERRORS = {
    400: "bad input", 401: "a token is needed", 403: "asked by a web page", 404: "no such thing",
    405: "not with this method", 408: "the request did not come in time",
    409: "wrong state or epoch", 411: "a body needs a length", 413: "the body is too long",
    421: "Host is not ours", 429: "too many at once", 500: "rolled back", 503: "switches missing",
}  # fmt: skip
WHAT = {
    "/health": "Is every switch connected and programmed?",
    "/metrics": "Counters and gauges in Prometheus' text format 0.0.4.",
    "/events": "Plans, rewires, switches and links as server-sent events.",
    "/openapi.json": "This document.",
    "/epoch": "The epoch, its circuits and the rewire under way.",
    "/fabric": "What is cabled.",
    "/switches": "What is connected and programmed.",
    "/circuits": "What is lit, by OCS.",
    "/pairs": "Host pairs that have routes.",
    "/plans": "Plans: an intent or explicit circuits become plan n.",
    "/plans/{epoch}": "One plan.",
    "/plans/{epoch}/commit": "Rewire; answers once verified or rolled back.",
    "/plans/{epoch}/abort": "Give up a plan that was not committed.",
    "/ocs": "All OCSes with their ports.",
    "/ocs/{ocs}": "One OCS, every port with its state word.",
    "/ocs/{ocs}/circuits": "The circuits of one OCS; PUT plans and commits them.",
    "/ocs/{ocs}/config_db": "SONiC's tables; PUT replaces the cross-connects in one commit.",
}
SHAPES = {  # of answers, where every key is always there
    "/health": {"ready": FLAG, "waiting_for": {"type": "array", "items": WORD}},
    "/epoch": {"epoch": WHOLE, "circuits": {"type": "array", "items": WORD}},
    "/switches": {"switches": {"type": "array", "items": THING}},
    "/circuits": {"epoch": WHOLE, "circuits": {"type": "array", "items": WORD}, "ocs": THING},
    "/pairs": {"pairs": {}},
    "/ocs": {"reconfig_delay_s": NUMBER, "ocs": {"type": "array", "items": THING}},
    "/ocs/{ocs}": {"name": WORD, "dpid": WHOLE, "ports": {"type": "array", "items": THING}},
    "/ocs/{ocs}/circuits": {"ocs": WORD, "circuits": {"type": "array", "items": WORD}},
}
PLAN = {
    "epoch": WHOLE, "state": WORD, "made_in_epoch": WHOLE, "why": WORD, "phase": WORD,
    "in_flight": WORD, "time_dilation": NUMBER, "circuits_changed": WHOLE, "lost_bytes": WHOLE,
    "error": WORD,
}  # fmt: skip


@functools.cache
def document() -> dict:
    """The OpenAPI document."""
    paths = {_template(p): _path(_template(p), tuple(verbs)) for p, verbs in views.PATHS.items()}
    for path, kind in (("/health", JSON), ("/openapi.json", JSON), ("/metrics", TEXT)):
        paths[path] = {"get": _operation(path, "GET", kind)}
    paths["/events"] = {"get": _operation("/events", "GET", EVENTS)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rfabric controller", "version": __version__},
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": {"token": _BEARER}},
        "security": [{}, {"token": []}],  # on loopback none is needed
    }


_BEARER = {"type": "http", "scheme": "bearer"}


def _template(pattern: str) -> str:
    """A path as OpenAPI writes it: groups get names."""
    return re.sub(r"\([^)]*\)", lambda m: "{ocs}" if "A-Z" in m[0] else "{epoch}", pattern)


def _path(path: str, methods: Sequence[str]) -> dict:
    kinds = {"ocs": WORD | {"pattern": "^[A-Za-z0-9]{1,8}$"}, "epoch": WHOLE | {"minimum": 0}}
    kinds["epoch"]["maximum"] = 999_999_999
    named = [
        {"name": name, "in": "path", "required": True, "schema": kinds[name]}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    operations = {method.lower(): _operation(path, method) for method in methods}
    return operations | ({"parameters": named} if named else {})


def _operation(path: str, method: str, kind: str = JSON) -> dict:
    body = _request(path, method)
    errors = {*SAME_TO_ALL, 503} | ({404} if "{" in path else set())
    errors |= {409, 500} if method != "GET" else set()
    operation = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()} {path}").strip("_"),
        "summary": WHAT.get(path, "RFC 7951 JSON, see rfabric/control/sonic.py."),
        "responses": {"200": _answered(path, method, kind)}
        | {str(code): _failed(ERRORS[code]) for code in sorted(errors)},
    }
    if body:
        content = {JSON: {"schema": body}}
        needed = "commit" not in path and "abort" not in path
        operation["requestBody"] = {"required": needed, "content": content}
    return operation


def _failed(what: str) -> dict:
    return {"description": what, "content": {JSON: {"schema": _ref("Error")}}}


def _answered(path: str, method: str, kind: str) -> dict:
    shape = WORD if kind != JSON else _object(SHAPES.get(path, {}), more=True)
    if path.startswith("/plans") and (path, method) != ("/plans", "GET"):
        shape = _ref("Plan")
    return {"description": "done", "content": {kind: {"schema": shape}}}


def _request(path: str, method: str) -> dict | None:
    bodies = {
        ("/pairs", "PUT"): _ref("Pairs"),
        ("/plans", "POST"): {"oneOf": [_ref("Intent"), _ref("Circuits")]},
        ("/ocs/{ocs}/circuits", "PUT"): _ref("Circuits"),
        ("/ocs/{ocs}/config_db", "PUT"): _ref("ConfigDb"),
    }
    if method == "GET":
        return None
    if path.startswith("/plans/"):
        return _object({})
    if "restconf" in path:
        return {
            "anyOf": [_ref("CrossConnects"), _ref("YangPatch")][: 2 if method == "PATCH" else 1]
        }
    return bodies[path, method]


def _schemas() -> dict:
    keys, fields = _object, _fields()
    pairs = {"pairs": fields["pairs"]}
    fields["pairs"] = {"anyOf": [fields["pairs"], {"type": "null"}]}  # of a plan: as they are
    connect = {"type": "string", "pattern": f"^{sonic.CROSS_CONNECT}$"}
    row = _object({"cross_connect_id": connect, "a_side": WORD, "b_side": WORD}, 1)
    rows = _object({sonic.LIST: {"type": "array", "items": row}}, 1)
    edit = {"operation": {"enum": list(sonic.OPERATIONS)}, "target": WORD, "edit-id": WORD}
    edits = {"type": "array", "items": _object(edit | {"value": {}}, 2)}
    patch = _object({"edit": edits, "patch-id": WORD, "comment": WORD}, 1)
    table = {"type": "object", "additionalProperties": THING}
    return {
        "Error": _object({"error": WORD}, 1, more=True),
        "Plan": keys(PLAN, len(PLAN), more=True),
        "Intent": _keyed(schema.INTENT_KEYS, fields),
        "Circuits": _keyed(schema.CIRCUITS_KEYS, fields),
        "Demand": _keyed(schema.DEMAND_KEYS, fields | {"bytes": _rows()}),
        "Pairs": _keyed(
            schema.PAIRS_KEYS, fields | pairs | {"bytes": _rows(schema.ITEMS["kinds"])}
        ),
        "ConfigDb": _object({"OCS_CROSS_CONNECT": table, "OCS_PORT": table}, 1),
        "CrossConnects": _object({"sonic-ocs:OCS_CROSS_CONNECT": rows}, 1),
        "YangPatch": _object({sonic.PATCH: patch}, 1),
    }


def _fields() -> dict[str, dict]:
    """Each key of a request, with its limits."""
    numbers = {key: _number(key) for key in schema.LIMITS}
    for key in ("delay_s", "control_s", "window_s"):
        numbers[key] = {"anyOf": [numbers[key], {"type": "null"}]}
    texts = {key: WORD | {"maxLength": int(most.most)} for key, most in schema.LETTERS.items()}
    circuits = {"type": "array", "items": texts["circuit"]}
    follows = {"type": "integer", "minimum": 1, "maximum": schema.LIMITS["follows"].most}
    return {
        **numbers,
        **texts,
        "circuits": circuits,
        "pairs": {"type": "array", "items": PAIR},
        "racks": {"type": "array", "items": WORD},
        "demand": _ref("Demand"),
        "in_flight": {"enum": list(IN_FLIGHT)},
        "upcoming": _listed(_ref("Demand"), "upcoming"),
        "sending": _listed(_ref("Demand"), "sending"),
        "also": _listed(circuits, "also"),
        "follows": _listed(follows, "follows"),
    }


def _number(key: str) -> dict:
    limit = schema.LIMITS[key]
    return {"type": "number", "minimum": limit.least, "maximum": limit.most}


def _listed(items: dict, key: str) -> dict:
    return {"type": "array", "items": items, "maxItems": int(schema.ITEMS[key].most)}


def _rows(limit: schema.Limit | None = None) -> dict:
    rows = {"type": "array", "items": {"type": "array", "items": _number("bytes")}}
    return rows | ({"maxItems": int(limit.most)} if limit else {})


def _keyed(keys: tuple[Sequence[str], Sequence[str]], fields: dict) -> dict:
    required, optional = keys
    return _object({key: fields[key] for key in (*required, *optional)}, len(required))


def _object(properties: dict, required: int | None = None, more: bool = False) -> dict:
    """An object of which the first `required` keys must be there (all, where none is said)."""
    names = list(properties)[:required]
    closed = {} if more else {"additionalProperties": False}
    return {"type": "object", "properties": properties, "required": names, **closed}


def _ref(name: str) -> dict:
    return {"$ref": f"#/components/schemas/{name}"}
