"""REST, as people and the emulator ask: JSON in and out, on loopback unless told otherwise.

    GET  /health             is every switch connected, programmed?
    GET  /fabric  /switches  what is cabled; what is connected
    GET  /epoch  /circuits   the epoch and its circuits; what is lit, per OCS
    PUT  /pairs              host pairs to keep routes for               GET  /pairs
    POST /plans              an intent or explicit circuits -> plan n    GET  /plans  /plans/n
    POST /plans/n/commit     rewire; answers once verified, rolled back  POST /plans/n/abort
    GET  /ocs  /ocs/NAME     every port with its state word              GET  /ocs/NAME/circuits
    PUT  /ocs/NAME/circuits  plan and commit the circuits of one OCS

PUT /pairs takes {"pairs": [["h1", "h5"], ...], "routing": SCHEME}; `placed` needs "bytes" beside: a
row for each kind of communication, in it a number for each pair. POST /plans takes {"policy",
"demand"} or {"circuits"}, and where wanted "pairs", "in_flight", "time_dilation", "delay_s", the
OCS delay of this plan alone, and "control_s", the seconds from requested to programmed that are
emulated (else those count that the switches take). With a demand go "now_s", the demands "upcoming"
and "sending", and "also": lists of circuits to weigh beside the policy's; the answer's "others" are
its next best.

Errors are {"error": text}: 400 bad input, 403 asked by a web page, 404 no such thing, 409 wrong
state or epoch, 500 rolled back, 503 switches missing.
"""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from ..errors import RFabricError, RunError
from ..optics import Circuits, Rewire
from . import schema
from .core import Core, RolledBackError, UnavailableError
from .epochs import Epochs, NotFoundError, RewirePlan, StateError

_log = logging.getLogger(__name__)


class RestServer(Protocol):
    """What the handler finds as its `server`: the core once the fabric is known, and words for
    `GET /health`.
    """

    core: Core | None

    def health(self) -> dict: ...


@dataclass(frozen=True)
class Answer:
    """A status code and the JSON body."""

    status: int
    body: dict


def answer(server: RestServer, method: str, path: str, body: bytes) -> Answer:
    """The answer to one request; every error of rfabric becomes a status code and its text."""
    try:
        return Answer(
            200, _dispatch(server, method, path.partition("?")[0].rstrip("/") or "/", body)
        )
    except NotFoundError as error:
        return _error(404, error)
    except StateError as error:
        return _error(409, error)
    except RolledBackError as error:
        return _error(500, error, error.plan.to_json())
    except UnavailableError as error:
        return _error(503, error)
    except _MethodError as error:
        return _error(405, error)
    except RFabricError as error:
        return _error(500 if isinstance(error, RunError) else 400, error)
    except Exception as error:  # a bug of ours: say so to the client, keep the controller
        _log.exception("%s %s", method, path)
        return _error(500, f"the controller failed: {type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """One connection of a client; `self.server` is a `RestServer`."""

    protocol_version = "HTTP/1.1"
    server_version = "rfabric"
    timeout = 60  # s without a request, then the connection is closed

    def do_GET(self) -> None:
        """GET, as http.server calls it."""
        self._serve()

    do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        # a page in the user's browser; loopback does not keep it out
        if self.headers.get("Origin"):
            self.close_connection = True
            self._send(
                _error(
                    403,
                    RFabricError(
                        "requests from web pages are refused; use curl or rfabric.control.client"
                    ),
                )
            )
            return
        size = self.headers.get("Content-Length", "0")
        if not size.isdigit() or int(size) > schema.MAX_BODY:
            self.close_connection = True
            self._send(
                _error(
                    400, (f"Content-Length {size!r}: a number up to {schema.MAX_BODY} is expected")
                )
            )
            return
        self._send(answer(self.server, self.command, self.path, self.rfile.read(int(size))))

    def _send(self, reply: Answer) -> None:
        data = json.dumps(reply.body).encode() + b"\n"
        head = f"HTTP/1.1 {reply.status} {self.responses[reply.status][0]}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        head += "Connection: close\r\n\r\n" if self.close_connection else "\r\n"
        # one segment, so that no delayed acknowledgement comes between
        self.wfile.write(head.encode() + data)

    def log_message(self, form: str, *args: object) -> None:
        """Requests go to the log, not to stderr."""
        _log.debug("%s " + form, self.client_address, *args)


# --- what each path does --------------------------------------------------------------------------


class _MethodError(RFabricError):
    """A path that exists, asked with a method it does not take (HTTP 405)."""


def _plan(core: Core, body: object) -> dict:
    plan, decision, least = core.plan(schema.plan_request(body, core.fabric))
    about = {
        "why": decision.why,
        "least_window_s": least,
        "later_s": decision.later,
        "wait": decision.wait,
    }
    about["others"] = [circuits.to_json() for circuits in decision.others]
    return _shown(plan, core.epochs) | about


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
    plan, decision, _ = core.plan(schema.ocs_request(body, ocs, core.fabric))
    if plan is not None:
        plan = core.commit(plan.epoch)
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


PATHS: dict[str, dict[str, Callable[..., dict]]] = {
    r"/epoch": {"GET": _epoch},
    r"/fabric": {"GET": _fabric},
    r"/switches": {"GET": _switches},
    r"/circuits": {"GET": _circuits},
    r"/pairs": {"GET": _get_pairs, "PUT": _put_pairs},
    r"/plans": {"GET": _plans, "POST": _plan},
    r"/plans/(\d{1,9})": {"GET": _one_plan},
    r"/plans/(\d{1,9})/commit": {"POST": _commit},
    r"/plans/(\d{1,9})/abort": {"POST": _abort},
    r"/ocs": {"GET": _all_ocs},
    r"/ocs/([A-Za-z0-9]{1,8})": {"GET": _ocs},
    r"/ocs/([A-Za-z0-9]{1,8})/circuits": {"GET": _ocs_circuits, "PUT": _put_ocs},
}


def _dispatch(server: RestServer, method: str, path: str, body: bytes) -> dict:
    if (method, path) == ("GET", "/health"):
        return server.health()
    for pattern, methods in PATHS.items():
        if match := re.fullmatch(pattern, path):
            if method not in methods:
                raise _MethodError(f"{path} takes {' or '.join(methods)}, not {method}")
            if server.core is None:
                raise UnavailableError(
                    "the fabric is not known yet: "
                    f"{server.health()['trouble'] or 'no switch has connected'}"
                )
            return methods[method](server.core, schema.parse_json(body), *match.groups())
    raise NotFoundError(
        f"no path {path}; there are /health, {', '.join(p for p in PATHS if '(' not in p)}"
    )


def _error(status: int, error: object, more: dict | None = None) -> Answer:
    return Answer(status, {**(more or {}), "error": str(error)})
