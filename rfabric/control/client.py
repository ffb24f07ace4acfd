"""The REST client: what the emulator and scripts call.

Standard library only; one connection a request.

    control = Client("http://127.0.0.1:8080")
    control.wait_ready(30)
    control.put_pairs(trace.pairs())
    planned = control.plan("demand", demand, pairs, now_s)
    if planned.rewire: done = control.commit(planned.epoch)

Bad input, wrong epochs and missing tokens (400 to 499) are RFabricErrors; a controller that is
gone, or a rewire that was rolled back, RunErrors.
"""

import http.client
import json
import os
import re
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import RFabricError, RunError
from ..fabric import Fabric, Pair
from ..optics import Circuits, Demand, Rewire
from ..routing.schemes import ECMP, Routing
from .addresses import REST_URL
from .border import read_tokens
from .schema import demand_json, pairs_json
from .sonic import CONFIG, LIST, PATCH, STATES, TABLE


class RefusedError(RFabricError):
    """What the controller did not take: bad input, a wrong epoch, no token.

    status: HTTP's, 400 to 499.
    """

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class PlannedRewire:
    """The answer to an intent: what plan `epoch` would change (nothing where `rewire` is empty),
    and why.
    """

    epoch: int
    state: str
    rewire: Rewire
    why: str
    least_window: float
    later: float = 0.0  # s that stages to come are predicted to gain
    wait: bool = False  # what begins has no way until something in flight has ended
    others: tuple[Circuits, ...] = ()  # that are predicted to gain less, the best first
    completion: float = float("inf")  # s until all of the demand is predicted to have arrived


@dataclass(frozen=True)
class Committed:
    """What a commit did, in CLOCK_MONOTONIC seconds; circuits torn down plus set up; bytes lost in
    the dark.
    """

    epoch: int
    requested: float
    programmed: float
    dark_until: float
    usable: float
    circuits_changed: int
    lost_bytes: int


@dataclass(frozen=True)
class Client:
    """The controller at `url`; `timeout` (s) bounds every request and must exceed the longest dark
    time.
    """

    url: str = REST_URL
    timeout: float = 60.0
    token: str = field(default="", repr=False)  # what `token_of` its token file says
    ca: str = ""  # a file: who signed the certificate of an https controller, where that is private

    def __post_init__(self):
        address = urllib.parse.urlsplit(self.url)
        known = address.scheme in ("http", "https") and address.hostname
        if not known or address.path.rstrip("/") or not _is_port(address):
            raise RFabricError(
                f"controller address {self.url!r}: write http://HOST:PORT or https://HOST:PORT"
            )

    def health(self) -> dict:
        """Whether the controller is `ready`, and whom it is `waiting_for`."""
        return self.get("/health")

    def wait_ready(self, timeout: float, check: Callable[[], None] | None = None) -> dict:
        """Until every switch is connected and programmed; RunError with what is missing after
        `timeout` s.

        `check` is called in every turn and may raise, for example when the controller's process has
        died.
        """
        limit, state = time.monotonic() + timeout, "it does not answer"
        while time.monotonic() < limit:
            if check:
                check()
            try:
                health = self.health()
            except RunError as error:
                state = str(error)
            else:
                if health["ready"]:
                    return health
                state = health["trouble"] or f"waiting for {', '.join(health['waiting_for'][:8])}"
            time.sleep(0.05)
        raise RunError(f"the controller at {self.url} is not ready after {timeout:g} s: {state}")

    def fabric(self) -> Fabric:
        """The fabric the controller steers."""
        return Fabric.from_json(self.get("/fabric"))

    def circuits(self) -> Circuits:
        """What is lit."""
        return Circuits.from_json(self.get("/circuits")["circuits"])

    def epoch(self) -> int:
        """The number of the last rewire that was verified; 0 at the start."""
        return self.get("/epoch")["epoch"]

    def put_pairs(
        self, pairs: Iterable[Pair], routing: Routing = ECMP, fabric: Fabric | None = None
    ) -> dict:
        """Have routes for these host pairs, and back, in every epoch; by a `routing` other than
        ECMP on this `fabric`.
        """
        if routing.sent is not None and fabric is None:
            fabric = self.fabric()
        return self.put("/pairs", pairs_json(list(pairs), routing, fabric))

    def plan(
        self,
        policy: str,
        demand: Demand,
        pairs: Iterable[Pair],
        now: float = 0.0,
        upcoming: Sequence[Demand] = (),
        time_dilation: float = 1.0,
        in_flight: str = "hold",
        delay: float | None = None,
        sending: Sequence[Demand] = (),
        also: Sequence[Circuits] = (),
        control: float | None = None,
    ) -> PlannedRewire:
        """State an intent: `demand` is about to be sent; `upcoming` are the Demands of later
        phases, `sending` those in flight.

        `pairs`: all host pairs that send, now or soon: none may be cut off. `also`: circuits to be
        weighed beside the policy's.

        `delay` (s) is how long the OCSes take, where it is not what the fabric says; `control` (s)
        how long a rewire takes to be programmed, where it is not what the switches take.
        """
        request = {
            "policy": policy,
            "demand": demand_json(demand),
            "pairs": [list(p) for p in pairs],
            "now_s": now,
            "upcoming": [demand_json(d) for d in upcoming],
            "sending": [demand_json(d) for d in sending],
            "also": [some.to_json() for some in also],
            "time_dilation": time_dilation,
            "in_flight": in_flight,
            "control_s": control,
            "delay_s": delay,
        }
        return _planned(self.post("/plans", request))

    def plan_circuits(self, circuits: Circuits, **options) -> PlannedRewire:
        """A plan for explicit circuits; options: pairs, time_dilation, in_flight, delay_s,
        control_s.
        """
        return _planned(self.post("/plans", {"circuits": circuits.to_json(), **options}))

    def commit(self, epoch: int) -> Committed:
        """Carry out a plan; returns when it was verified, RunError when it was rolled back."""
        done = self.post(f"/plans/{epoch}/commit")
        times = (done[f"{name}_s"] for name in ("requested", "programmed", "dark_until", "usable"))
        return Committed(done["epoch"], *times, done["circuits_changed"], done["lost_bytes"])

    def abort(self, epoch: int) -> dict:
        """Give up a plan that was not committed."""
        return self.post(f"/plans/{epoch}/abort")

    def plans(self) -> list[dict]:
        """All plans so far."""
        return self.get("/plans")["plans"]

    def optical_ports(self, ocs: str) -> list[dict]:
        """Every simplex port of an OCS: blocked, tuning, tuned or failed, and what it leads to."""
        return self.ocs_document(ocs, STATES)[STATES]["OCS_PORT"]["OCS_PORT_LIST"]

    def ocs_document(self, ocs: str, name: str) -> dict:
        """An RFC 7951 document of an OCS: `sonic.CONFIG`, `sonic.STATES`, or one in OCP's words."""
        return self.get(_restconf(ocs, name))

    def cross_connect(self, order: str, ocs: str, connects: Iterable[str]) -> dict:
        """`connect` or `disconnect` these of one OCS, `1A-2B` or `1-2` for both ways: one commit,
        whose result is returned.
        """
        operation = {"connect": "merge", "disconnect": "delete"}[order]
        names = dict.fromkeys(name for text in connects for name in both_ways(text))
        edits = [{"operation": operation, "target": f"/{LIST}={name}"} for name in names]
        return self.edit_cross_connects(ocs, edits)

    def edit_cross_connects(self, ocs: str, edits: Iterable[dict]) -> dict:
        """The edits of an RFC 8072 patch, in one commit: each an `operation` and its `target`."""
        named = [{"edit-id": str(i), **edit} for i, edit in enumerate(edits)]
        return self.ask("PATCH", _restconf(ocs, f"{CONFIG}/{TABLE}"), {PATCH: {"edit": named}})

    def put_cross_connects(self, ocs: str, rows: Sequence[dict]) -> dict:
        """Have exactly these of one OCS, each a row with its `cross_connect_id`: one commit."""
        body = {f"sonic-ocs:{TABLE}": {LIST: list(rows)}}
        return self.put(_restconf(ocs, f"{CONFIG}/{TABLE}"), body)

    def get(self, path: str) -> dict:
        """What the controller answers to GET."""
        return self.ask("GET", path)

    def put(self, path: str, body: object) -> dict:
        """What it answers to PUT of this JSON."""
        return self.ask("PUT", path, body)

    def post(self, path: str, body: object = None) -> dict:
        """What it answers to POST of this JSON."""
        return self.ask("POST", path, body)

    def ask(self, method: str, path: str, body: object = None) -> dict:
        """One request: the JSON of the answer, or an error with the controller's text. RunError
        where no answer comes or the controller failed, RefusedError where it refuses.
        """
        address = urllib.parse.urlsplit(self.url)
        connection = self._connection(address)
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        try:
            connection.request(method, path, data, self._headers())
            reply = connection.getresponse()
            status, answer = reply.status, json.loads(reply.read())
        except TimeoutError as error:
            raise RunError(
                f"the controller at {self.url} did not answer {path} in {self.timeout:g} s"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = str(error) or type(error).__name__
            raise RunError(f"the controller at {self.url} is gone: {path}: {said}") from error
        finally:
            connection.close()
        if status == 200:
            return answer
        said = f"controller: {answer.get('error', f'status {status}')}"
        raise RunError(said) if status >= 500 else RefusedError(said, status)

    def _connection(self, address: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        host, wait = address.hostname, self.timeout
        if address.scheme == "http":
            return http.client.HTTPConnection(host, address.port or 80, timeout=wait)
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise RFabricError(f"--ca {self.ca}: {error.strerror or error}") from None
        return http.client.HTTPSConnection(host, address.port or 443, timeout=wait, context=context)

    def _headers(self) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", "Connection": "close", **shown}


def token_of(file: str = "") -> str:
    """The first token of a token file, of that in RFABRIC_REST_TOKENS where none is named; '' where
    that is not set either. RFabricError where the file cannot be read.
    """
    file = file or os.environ.get("RFABRIC_REST_TOKENS", "")
    if file and not os.path.exists(file):
        raise RFabricError(f"token file {file}: no such file; copy it from the controller")
    return next(iter(read_tokens(file))) if file else ""


def _restconf(ocs: str, path: str) -> str:
    return f"/ocs/{urllib.parse.quote(ocs, safe='')}/restconf/data/{path}"


def both_ways(text: str) -> list[str]:
    """`1-2` as the cross-connects 1A-2B and 2A-1B; `1A-2B` is one of its own.

    >>> both_ways("1-2")
    ['1A-2B', '2A-1B']
    """
    ports = re.fullmatch("([0-9]+)-([0-9]+)", text)
    return [f"{ports[1]}A-{ports[2]}B", f"{ports[2]}A-{ports[1]}B"] if ports else [text]


def _is_port(address: urllib.parse.SplitResult) -> bool:
    try:
        return address.port is None or address.port > 0
    except ValueError:  # no number, or none that TCP has
        return False


def _planned(data: dict) -> PlannedRewire:
    rewire = Rewire.from_json(data)
    return PlannedRewire(
        data["epoch"],
        data["state"],
        rewire,
        data["why"],
        data["least_window_s"],
        data["later_s"],
        data["wait"],
        tuple(map(Circuits.from_json, data["others"])),
        float("inf") if data.get("completion_s") is None else data["completion_s"],
    )
