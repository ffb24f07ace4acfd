"""One OCS as SONiC's tables show it, and as RFC 7951 JSON: a view on the same core, in the words
that the makers of optical switches use.

SONiC names simplex ports: light that enters at 1A leaves at the B side of another port, and a
cross-connect is called `1A-2B`. The transceivers here are duplex, so a circuit a1:1-a1:2 is two
cross-connects, 1A-2B and 2A-1B, and a request that makes or removes one of the two alone is an
error. Source of names and states: the SONiC modules `sonic-ocs-states` (2024-11-21) and the
CONFIG_DB of its virtual optical switch; state words of `optical-circuit-switch`: those of the
OCP model, see `Core.port_states`.

What a request asks for becomes one plan and one commit: all of it or nothing.

RFabricError for what is not of that form.
"""

import re
from collections.abc import Iterable, Mapping

from ..errors import RFabricError
from ..fabric import Fabric, Port
from ..optics import Circuit, Circuits, check_ports
from .core import Core
from .epochs import RewirePlan, StateError
from .schema import LETTERS, Limit, PlanRequest, a_list, a_text, an_object, short

CROSS_CONNECT = "([1-9][0-9]{0,4})A-([1-9][0-9]{0,4})B"
OPERATIONS = ("create", "merge", "replace", "delete", "remove")  # RFC 8072, but insert and move
PATCH = "ietf-yang-patch:yang-patch"
TABLE, LIST = "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST"
CONFIG, STATES = "sonic-ocs:sonic-ocs", "sonic-ocs-states:sonic-ocs-states"
STATUS = {  # of a port, by the word of the OCP model
    "CONNECTED": "tuned",
    "PENDING_CONNECTION": "tuning",
    "PENDING_DISCONNECTION": "tuning",
    "DISCONNECTED": "blocked",
    "UNKNOWN": "failed",
}


def names_of(circuits: Iterable[Circuit]) -> list[str]:
    """The cross-connects of circuits, in the order of their A sides.

    >>> names_of([Circuit.parse("a1:1-a1:2")])
    ['1A-2B', '2A-1B']
    """
    ways = sorted((a.number, b.number) for c in circuits for a, b in (c, c[::-1]))
    return [f"{a}A-{b}B" for a, b in ways]


def circuits_of(names: Iterable[str], ocs: str) -> Circuits:
    """The circuits that cross-connects of one OCS make up; RFabricError where one lacks its way
    back.
    """
    ways = {name: tuple(map(int, re.fullmatch(CROSS_CONNECT, name).groups())) for name in names}
    there = dict.fromkeys(ways.values())
    for name, (a, b) in ways.items():
        if a == b:
            raise RFabricError(f"cross-connect {name}: a port cannot be joined to itself")
        if (b, a) not in there:
            raise RFabricError(
                f"cross-connect {name} lacks its way back, {b}A-{a}B: the transceivers of {ocs} "
                "are duplex; make or remove both in one request"
            )
    circuits = [Circuit.of(Port(ocs, a), Port(ocs, b)) for a, b in there if a < b]
    check_ports(circuits)  # in the order of the request: what was there comes first
    return Circuits(frozenset(circuits))


# --- what is asked -------------------------------------------------------------------------------


def config_tables(data: object, ocs: str, fabric: Fabric) -> list[str]:
    """The cross-connects that tables as CONFIG_DB holds them ask for."""
    data = an_object(data, "CONFIG_DB", ("OCS_CROSS_CONNECT",), ("OCS_PORT",))
    for name, row in _rows(data.get("OCS_PORT", {}), "OCS_PORT").items():
        _check_side(name, ocs, fabric)
        status = row.get("config_status", "normal")
        if status != "normal":
            raise RFabricError(
                f"OCS_PORT {name}: config_status {short(status)} cannot be set here; the ports of "
                f"{ocs} are normal"
            )
    rows = _rows(data["OCS_CROSS_CONNECT"], "OCS_CROSS_CONNECT")
    return [_named({"cross_connect_id": name} | row, ocs, fabric) for name, row in rows.items()]


def cross_connect_list(data: object, ocs: str, fabric: Fabric) -> list[str]:
    """The cross-connects of an RFC 7951 document."""
    table = "sonic-ocs:OCS_CROSS_CONNECT"
    listed = an_object(an_object(data, ocs, (table,), ())[table], table, (LIST,), ())[LIST]
    most = Limit(len(fabric.ports[ocs]), unit=f"cross-connects, one a port of {ocs}")
    names = [_named(row, ocs, fabric) for row in a_list(listed, LIST, most)]
    if len(set(names)) < len(names):
        raise RFabricError(f"cross-connect {max(names, key=names.count)} is listed twice")
    return names


def yang_edits(data: object, ocs: str, fabric: Fabric) -> tuple[str, list[tuple[str, str]]]:
    """The name of a patch, and operation and cross-connect of each of its edits (RFC 8072)."""
    data = an_object(data, "yang-patch", ("edit",), ("patch-id", "comment"))
    patch = a_text(data.get("patch-id", ""), "patch-id", LETTERS["patch"])
    most = Limit(4 * len(fabric.ports[ocs]), unit=f"edits, four a port of {ocs}")
    edits = []
    for edit in a_list(data["edit"], "edit", most):
        edit = an_object(edit, "edit", ("operation", "target"), ("edit-id", "value"))
        if edit["operation"] not in OPERATIONS:
            raise RFabricError(
                f"edit: operation {short(edit['operation'])} is not one of {', '.join(OPERATIONS)}"
            )
        target = a_text(edit["target"], "target", LETTERS["patch"])
        edits.append((edit["operation"], _named_by(target, edit.get("value"), ocs, fabric)))
    return patch, edits


def _named_by(target: str, value: object, ocs: str, fabric: Fabric) -> str:
    """The cross-connect that an edit aims at; its value, where it has one, must say the same."""
    if not target.startswith(f"/{LIST}="):
        raise RFabricError(f"edit: target {target!r} is not /{LIST}=NAME, for example 1A-2B")
    name = _named({"cross_connect_id": target.removeprefix(f"/{LIST}=")}, ocs, fabric)
    said = {} if value is None else value
    for rows in an_object(said, f"value of {target}", (), (LIST, f"sonic-ocs:{LIST}")).values():
        for row in a_list(rows, LIST, Limit(1, unit="cross-connect an edit")):
            if _named(row, ocs, fabric) != name:
                raise RFabricError(f"edit: target {target} and its value, {short(row)}, are two")
    return name


def _rows(data: object, table: str) -> dict[str, dict]:
    if not isinstance(data, dict) or not all(isinstance(row, dict) for row in data.values()):
        raise RFabricError(f"{table}: expected an object of objects, as CONFIG_DB has")
    return data


def _named(row: object, ocs: str, fabric: Fabric) -> str:
    """The name of a cross-connect; its sides, where they are given, must say the same."""
    sides = ("a_side", "b_side")
    row = an_object(row, "cross-connect", ("cross_connect_id",), sides)
    name = a_text(row["cross_connect_id"], "cross_connect_id", LETTERS["circuit"])
    if not re.fullmatch(CROSS_CONNECT, name):
        raise RFabricError(f"cross-connect {name!r} is not iA-jB, for example 1A-2B")
    for key, side in zip(sides, name.split("-"), strict=True):
        if row.get(key, side) != side:
            raise RFabricError(f"cross-connect {name}: its {key} is {side}, not {short(row[key])}")
        _check_side(side, ocs, fabric)
    return name


def _check_side(side: str, ocs: str, fabric: Fabric) -> None:
    matched = re.fullmatch("([1-9][0-9]{0,4})[AB]", side)
    if not matched or Port(ocs, int(matched[1])) not in fabric.peer:
        there = [str(port.number) for port in fabric.ports[ocs]]
        raise RFabricError(
            f"no port {short(side)} at {ocs}; there are {there[0]}A, {there[0]}B to "
            f"{there[-1]}A, {there[-1]}B"
        )


# --- what is there --------------------------------------------------------------------------------


def config_db(core: Core, _: object, ocs: str) -> dict:
    """The tables OCS_PORT and OCS_CROSS_CONNECT as CONFIG_DB holds them."""
    core.port_states(ocs)
    entries = {row["cross_connect_id"]: row for row in _connects(core, ocs)}
    sides = ("a_side", "b_side")
    return {
        "OCS_PORT": {
            f"{port.number}{side}": {
                "label": f"{way}_{core.fabric.peer[port][1]}", "config_status": "normal",
            }
            for side, way in (("A", "ingress"), ("B", "egress"))
            for port in core.fabric.ports[ocs]
        },
        "OCS_CROSS_CONNECT": {
            name: {side: row[side] for side in sides} for name, row in entries.items()
        },
    }  # fmt: skip


def config(core: Core, _: object, ocs: str) -> dict:
    """The same as RFC 7951 JSON."""
    tables = config_db(core, None, ocs)
    ports = [{"name": name, **row} for name, row in tables["OCS_PORT"].items()]
    return {CONFIG: {"OCS_PORT": {"OCS_PORT_LIST": ports}, **_table(_connects(core, ocs))}}


def cross_connects(core: Core, _: object, ocs: str) -> dict:
    """The table OCS_CROSS_CONNECT alone."""
    core.port_states(ocs)
    return {"sonic-ocs:OCS_CROSS_CONNECT": _table(_connects(core, ocs))["OCS_CROSS_CONNECT"]}


def states(core: Core, _: object, ocs: str) -> dict:
    """What the ports do now: blocked, tuning, tuned or failed."""
    words = core.port_states(ocs)
    status = {port.number: STATUS[word] for port, (word, _) in words.items()}
    ports = [
        {
            "simplex_port_id": f"{port.number}{side}",
            "connector_type": "",
            "connector_pin": "",
            "target_simplex_port_id": f"{other.number}{far}" if other else "",
            "status": STATUS[word],
        }
        for side, far in ("AB", "BA")
        for port, (word, other) in words.items()
    ]
    rows = [
        row | {f"{side}_side_status": status[int(row[f"{side}_side"][:-1])] for side in ("a", "b")}
        for row in _connects(core, ocs)
    ]
    return {STATES: {"OCS_PORT": {"OCS_PORT_LIST": ports}, **_table(rows)}}


def optical_circuit_switch(core: Core, _: object, ocs: str) -> dict:
    """The OCS in the words of the OCP model: duplex ports and the connections between them."""
    words = core.port_states(ocs)
    ports = [
        {"name": str(port), "connection-state": word}
        | ({"connected-to": str(other)} if other else {})
        for port, (word, other) in words.items()
    ]
    lit = [
        {"name": str(c), "port-a": str(c.a), "port-b": str(c.b)}
        for c in core.epochs.circuits.of(ocs)
    ]
    about = {"name": ocs, "ports": {"port": ports}, "connections": {"connection": lit}}
    return {"rfabric-ocs:optical-circuit-switch": about}


def _connects(core: Core, ocs: str) -> list[dict]:
    return [
        {"cross_connect_id": name, "a_side": name.split("-")[0], "b_side": name.split("-")[1]}
        for name in names_of(core.epochs.circuits.of(ocs))
    ]


def _table(rows: list[dict]) -> dict:
    return {"OCS_CROSS_CONNECT": {LIST: rows}}


# --- orders ---------------------------------------------------------------------------------------


def put_config_db(core: Core, body: object, ocs: str) -> dict:
    """Have exactly the cross-connects of these tables."""
    core.port_states(ocs)
    names = config_tables(body, ocs, core.fabric)
    return _result(core, ocs, _commit(core, ocs, names, core.epochs.active))


def put_cross_connects(core: Core, body: object, ocs: str) -> dict:
    """Have exactly these cross-connects."""
    core.port_states(ocs)
    names = cross_connect_list(body, ocs, core.fabric)
    return _result(core, ocs, _commit(core, ocs, names, core.epochs.active))


def patch_cross_connects(core: Core, body: object, ocs: str) -> dict:
    """Add these cross-connects; or, asked in the words of RFC 8072, edit by edit: one result for
    all.
    """
    core.port_states(ocs)
    base = core.epochs
    there = names_of(base.circuits.of(ocs))
    if not (isinstance(body, Mapping) and PATCH in body):
        wanted = [*there, *cross_connect_list(body, ocs, core.fabric)]
        return _result(core, ocs, _commit(core, ocs, wanted, base.active))
    patch, edits = yang_edits(an_object(body, "YANG patch", (PATCH,), ())[PATCH], ocs, core.fabric)
    wanted = dict.fromkeys(there)
    for operation, name in edits:
        _edit(wanted, operation, name)
    plan = _commit(core, ocs, wanted, base.active)
    status = {"patch-id": patch, "ok": [None]}
    return {f"{PATCH}-status": status} | _result(core, ocs, plan)


def _edit(names: dict[str, None], operation: str, name: str) -> None:
    if operation == "create" and name in names:
        raise StateError(f"create {name}: that cross-connect is there; use merge, or delete it")
    if operation == "delete" and name not in names:
        known = " ".join(names) or "none"
        raise StateError(f"delete {name}: there is no such cross-connect; there are {known}")
    if operation in ("delete", "remove"):
        names.pop(name, None)
    else:
        names[name] = None


def _commit(core: Core, ocs: str, names: Iterable[str], base: int) -> RewirePlan | None:
    """One plan from what was there in epoch `base`, and its commit; None: nothing to change."""
    request = PlanRequest(circuits=circuits_of(dict.fromkeys(names), ocs), ocs=ocs)
    return core.rewire(request, base)[0]


def _result(core: Core, ocs: str, plan: RewirePlan | None) -> dict:
    return {
        "result": plan.state if plan else "UNCHANGED",
        "epoch": core.epochs.active if plan is None else plan.epoch,
        "circuits_changed": plan.rewire.size if plan else 0,
        "cross_connects": names_of(core.epochs.circuits.of(ocs)),
    }
