"""What each path of the REST interface does: from a core and a checked body to the JSON of the
answer.
"""

from collections.abc import Callable, Mapping

from ..errors import RFabricError
from ..optics import Circuits, Rewire
from . import schema, sonic
from .core import Core
from .epochs import Epochs, RewirePlan

MAX_WAITING = 64  # plans that are prepared and neither committed nor aborted


class TooManyError(RFabricError):
    """More at once than there is room for (HTTP 429)."""


def _plan(core: Core, body: object) -> dict:
    _check_room(core.epochs)
    request = schema.plan_request(body, core.fabric)
    plan, decision, least = core.plan(request)
    about = {
        "why": decision.why,
        "least_window_s": least,
        "later_s": decision.later,
        "wait": decision.wait,
        "completion_s": core.completion(request, decision),
    }
    about["others"] = [circuits.to_json() for circuits in decision.others]
    return _shown(plan, core.epochs) | about


def _check_room(epochs: Epochs) -> None:
    """A plan that waits holds its rules; who forgets to abort must not fill the memory."""
    waiting = sum(plan.state == "PREPARED" for plan in epochs.plans.values())
    if waiting >= MAX_WAITING:
        raise TooManyError(
            f"plans: {waiting} wait for their commit; the limit is {MAX_WAITING}: commit one, or "
            "abort those that are not needed"
        )


def _shown(plan: RewirePlan | None, epochs: Epochs) -> dict:
    """A plan, or where nothing is to be moved the present epoch as UNCHANGED."""
    if plan is None:
        plan = RewirePlan(
            epochs.active, epochs.active, Rewire(Circuits(), Circuits()), 0.0, state="UNCHANGED"
        )
    return plan.to_json()


def _commit(core: Core, body: object, epoch: str) -> dict:
    schema.nothing(body)
    return core.commit(int(epoch)).to_json()


def _abort(core: Core, body: object, epoch: str) -> dict:
    schema.nothing(body)
    return core.abort(int(epoch)).to_json()


def _put_ocs(core: Core, body: object, ocs: str) -> dict:
    plan, decision = core.rewire(schema.ocs_request(body, ocs, core.fabric))
    return {**_shown(plan, core.epochs), "why": decision.why, **_ocs_circuits(core, None, ocs)}


def _put_pairs(core: Core, body: object) -> dict:
    return core.set_pairs(*schema.pairs_request(body, core.fabric))


def _get_pairs(core: Core, _: object) -> dict:
    return {"pairs": sorted(core.demanded), "routed": sorted(core.pairs)}


def _epoch(core: Core, _: object) -> dict:
    epochs = core.epochs
    busy = epochs.under_way
    return {
        "epoch": epochs.active,
        "circuits": epochs.circuits.to_json(),
        "under_way": {"epoch": busy.epoch, "state": busy.state} if busy else None,
    }


def _plans(core: Core, _: object) -> dict:
    return {"plans": [p.to_json() for p in core.epochs.plans.values()]}


def _one_plan(core: Core, _: object, epoch: str) -> dict:
    return core.epochs.plan(int(epoch)).to_json()


def _circuits(core: Core, _: object) -> dict:
    epochs = core.epochs
    by_ocs = {n.name: epochs.circuits.of(n.name).to_json() for n in core.fabric.ocses}
    return {"epoch": epochs.active, "circuits": epochs.circuits.to_json(), "ocs": by_ocs}


def _ocs_circuits(core: Core, _: object, ocs: str) -> dict:
    core.port_states(ocs)
    return {"ocs": ocs, "circuits": core.epochs.circuits.of(ocs).to_json()}


def _ocs(core: Core, _: object, ocs: str) -> dict:
    states, node = core.port_states(ocs), core.fabric.node[ocs]
    ports = [
        {
            "port": str(port),
            "cable": str(core.fabric.peer[port][1]),
            "state": word,
            "connected_to": str(other) if other else None,
        }
        for port, (word, other) in states.items()
    ]
    return {
        "name": ocs,
        "dpid": node.dpid,
        "tier": node.tier,
        "pod": node.pod,
        "plane": node.plane,
        "ports": ports,
    }


def _all_ocs(core: Core, _: object) -> dict:
    delay = core.fabric.reconfig_delay
    return {"reconfig_delay_s": delay, "ocs": [_ocs(core, None, n.name) for n in core.fabric.ocses]}


def _fabric(core: Core, _: object) -> dict:
    return core.fabric.to_json()


def _switches(core: Core, _: object) -> dict:
    present = core.switches.present()
    rules: dict[str, int] = {}
    for switch, _match in core.table:
        rules[switch] = rules.get(switch, 0) + 1
    return {
        "switches": [
            {
                "name": n.name,
                "dpid": n.dpid,
                "kind": n.kind,
                "connected": n.dpid in present,
                "programmed": n.name in core.synced,
                "rules": rules.get(n.name, 0),
            }
            for n in core.fabric.switches
        ]
    }


OCS = "/ocs/([A-Za-z0-9]{1,8})"
YANG = f"{OCS}/restconf/data"
Verb = Callable[..., dict]
PATHS: Mapping[str, Mapping[str, Verb]] = {
    "/epoch": {"GET": _epoch},
    "/fabric": {"GET": _fabric},
    "/switches": {"GET": _switches},
    "/circuits": {"GET": _circuits},
    "/pairs": {"GET": _get_pairs, "PUT": _put_pairs},
    "/plans": {"GET": _plans, "POST": _plan},
    "/plans/([0-9]{1,9})": {"GET": _one_plan},
    "/plans/([0-9]{1,9})/commit": {"POST": _commit},
    "/plans/([0-9]{1,9})/abort": {"POST": _abort},
    "/ocs": {"GET": _all_ocs},
    OCS: {"GET": _ocs},
    f"{OCS}/circuits": {"GET": _ocs_circuits, "PUT": _put_ocs},
    f"{OCS}/config_db": {"GET": sonic.config_db, "PUT": sonic.put_config_db},
    f"{YANG}/{sonic.CONFIG}": {"GET": sonic.config},
    f"{YANG}/{sonic.CONFIG}/OCS_CROSS_CONNECT": {
        "GET": sonic.cross_connects,
        "PUT": sonic.put_cross_connects,
        "PATCH": sonic.patch_cross_connects,
    },
    f"{YANG}/{sonic.STATES}": {"GET": sonic.states},
    f"{YANG}/rfabric-ocs:optical-circuit-switch": {"GET": sonic.optical_circuit_switch},
}
