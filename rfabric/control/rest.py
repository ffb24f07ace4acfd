"""REST, as people and the emulator ask: JSON in and out, on loopback unless told otherwise.

    GET  /health             is every switch connected, programmed?
    GET  /fabric  /switches  what is cabled; what is connected
    GET  /epoch  /circuits   the epoch and its circuits; what is lit, per OCS
    PUT  /pairs              host pairs to keep routes for               GET  /pairs
    POST /plans              an intent or explicit circuits -> plan n    GET  /plans  /plans/n
    POST /plans/n/commit     rewire; answers once verified, rolled back  POST /plans/n/abort
    GET  /ocs  /ocs/NAME     every port with its state word              GET  /ocs/NAME/circuits
    PUT  /ocs/NAME/circuits  plan and commit the circuits of one OCS
    GET  /ocs/NAME/config_db, and PUT: SONiC's tables       /ocs/NAME/restconf/data/...  (sonic.py)
    GET  /events  /metrics   what happens, as server-sent events; counters for Prometheus
    GET  /openapi.json       all of this, and every limit, as OpenAPI 3.1

PUT /pairs takes {"pairs": [["h1", "h5"], ...], "routing": SCHEME}; `placed` needs "bytes" beside: a
row for each kind of communication, in it a number for each pair. POST /plans takes {"policy",
"demand"} or {"circuits"}, and where wanted "pairs", "in_flight", "time_dilation", "delay_s", the
OCS delay of this plan alone, and "control_s", the seconds from requested to programmed that are
emulated (else those count that the switches take). With a demand go "now_s", the demands "upcoming"
and "sending", and "also": lists of circuits to weigh beside the policy's; the answer's "others" are
its next best.

What was answered to POST and PUT outlives the controller (journal.py, RFABRIC_JOURNAL), and `GET
/health` names the file; without one, `none`, it is gone with it.

Errors are {"error": text}: 400 bad input, 401 no token, 403 asked by a web page, 404 no such thing,
408 too slow, 409 wrong state or epoch, 411, 413 a body without a length, too long, 421 not our
name, 429 too many at once, 500 rolled back, 503 switches missing. Who may ask: border.py.
"""

import contextlib
import io
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from ..errors import RFabricError, RunError
from . import border, logs, openapi, schema, seam, views, watch
from .addresses import endpoint
from .core import Core, RolledBackError, UnavailableError
from .epochs import NotFoundError, StateError

MAX_CONNECTIONS = 64
PATIENCE_S = 60.0  # for a request to have come, then the connection is closed
WRITE_S = 10.0  # for a reader to take what he is sent
LINGER_S, LINGER_BYTES = 1.0, 1 << 20  # for what a refused client is still sending

_log = logging.getLogger(__name__)


class RestServer(Protocol):
    """What the handler finds as its `server`: the core once the fabric is known."""

    core: Core | None

    def health(self) -> dict:
        """The answer to `GET /health`."""


@dataclass(frozen=True)
class HttpAnswer:
    """A status code and the body: an object for JSON, or text of another kind."""

    status: int
    body: dict | str
    kind: str = "application/json"
    allow: tuple[str, ...] = ()  # the methods that a path takes, where it was asked with another


class _MethodError(RFabricError):
    """A path that exists, asked with a method it does not take (HTTP 405)."""

    def __init__(self, path: str, takes: Iterable[str], method: str):
        self.takes = tuple(takes)
        super().__init__(f"{path} takes {' or '.join(self.takes)}, not {method}")


STATUS: dict[type[RFabricError], int] = {  # the first that fits
    NotFoundError: 404,
    StateError: 409,
    RolledBackError: 500,
    UnavailableError: 503,
    _MethodError: 405,
    schema.TooLargeError: 413,
    views.TooManyError: 429,
    RunError: 500,
    RFabricError: 400,
}
TAGS = {401: "access-denied", 403: "access-denied", 405: "operation-not-supported", 409: "in-use"}


def answer(server: RestServer, method: str, path: str, body: bytes) -> HttpAnswer:
    """The answer to one request; every error of rfabric becomes a status code and its text."""
    path = path.partition("?")[0].rstrip("/") or "/"
    try:
        return HttpAnswer(200, _dispatch(server, method, path, body))
    except RFabricError as error:
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
        more = error.plan.to_json() if isinstance(error, RolledBackError) else {}
        reply = _error(status, error, more, path)
        return replace(reply, allow=error.takes) if isinstance(error, _MethodError) else reply
    except Exception as error:  # a bug of ours: say so to the client, keep the controller
        _log.exception("%s %s", method, path)
        return _error(500, f"the controller failed: {type(error).__name__}: {error}", path=path)


class Handler(BaseHTTPRequestHandler):
    """One connection of a client; `self.server` is a `RestServer`."""

    protocol_version = "HTTP/1.1"
    server_version = "rfabric"
    border = border.LOCAL
    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    counted: Counter[tuple[str, str]] = Counter()

    def setup(self) -> None:
        """As http.server does, but with a limit to the time that a whole request takes."""
        super().setup()
        self.rfile = io.BufferedReader(_Timely(self.connection))

    def handle(self) -> None:
        """All requests of the connection, where there is room for it."""
        if not self.slots.acquire(blocking=False):
            self.requestline, self.command, self.path = "", "", "/"
            self._refuse(429, f"connections: {MAX_CONNECTIONS} are open, the limit; try again")
            return
        try:
            super().handle()
        finally:
            self.slots.release()

    def handle_one_request(self) -> None:
        """One request, all of which must come within PATIENCE_S."""
        self.rfile.raw.until = time.monotonic() + PATIENCE_S
        super().handle_one_request()

    def handle_expect_100(self) -> bool:
        """Whether the client may go on and send the body."""
        return not self._refused() and super().handle_expect_100()

    def do_GET(self) -> None:
        """Every method, as http.server calls it."""
        if self._refused():
            return
        if self.command in ("GET", "HEAD") and self.path.partition("?")[0] == "/events":
            self._events()
            return
        body = self._body()
        if body is not None:
            self._send(self._answer(body))

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def _refused(self) -> bool:
        if refusal := self.border.refusal(self.headers):
            self._refuse(refusal.status, refusal.text)
        elif "Transfer-Encoding" in self.headers:
            self._refuse(411, "Transfer-Encoding is not taken; send a Content-Length")
        elif len(set(self.headers.get_all("Content-Length", []))) > 1:
            self._refuse(400, "Content-Length is given twice; give it once")
        else:
            return self._too_large()
        return True

    def _too_large(self) -> bool:
        try:
            schema.body_size(self.headers.get("Content-Length", "0"))
        except RFabricError as error:
            self._refuse(STATUS[type(error)], str(error))
            return True
        return False

    def _body(self) -> bytes | None:
        size = schema.body_size(self.headers.get("Content-Length", "0"))
        try:
            body = self.rfile.read(size)
        except TimeoutError:
            self._refuse(408, f"the body did not come within {PATIENCE_S:g} s")
            return None
        if len(body) == size:
            return body
        self.close_connection = True  # who breaks off in the midst of an order has not given it
        return None

    def _answer(self, body: bytes) -> HttpAnswer:
        method = "GET" if self.command == "HEAD" else self.command
        if method == "GET" and self.path.partition("?")[0] == "/metrics":
            ready = bool(self.server.health().get("ready"))
            text = watch.exposition(self.server.core, self.counted, ready)
            return HttpAnswer(200, text, "text/plain; version=0.0.4; charset=utf-8")
        return answer(self.server, method, self.path, body)

    def _refuse(self, status: int, text: str) -> None:
        """Answer without having read the body, and close."""
        self.close_connection = True
        self._send(_error(status, text, path=self.path))
        self._linger()

    def _linger(self) -> None:
        """Read on for a moment: a close while the client sends would lose him the answer."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(1)
            self.rfile.raw.until, left = time.monotonic() + LINGER_S, LINGER_BYTES
            while left > 0 and (piece := self.rfile.read1(65536)):
                left -= len(piece)

    def _send(self, reply: HttpAnswer) -> None:
        body = reply.body
        data = (body if isinstance(body, str) else json.dumps(body) + "\n").encode()
        head = f"HTTP/1.1 {reply.status} {self.responses[reply.status][0]}\r\n"
        head += f"Content-Type: {reply.kind}\r\nContent-Length: {len(data)}\r\n"
        head += f"Allow: {', '.join(reply.allow)}\r\n" if reply.allow else ""
        head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        head += {
            401: 'WWW-Authenticate: Bearer realm="rfabric"\r\n',
            429: "Retry-After: 1\r\n",
        }.get(reply.status, "")
        head += "Connection: close\r\n\r\n" if self.close_connection else "\r\n"
        self._note(reply)
        self.connection.settimeout(PATIENCE_S)
        # one segment, so that no delayed acknowledgement comes between
        self.wfile.write(head.encode() + (b"" if self.command == "HEAD" else data))

    def _note(self, reply: HttpAnswer) -> None:
        """Count the request, and write orders into the audit log."""
        known = self.command if self.command in METHODS else "other"
        self.counted[known, str(reply.status)] += 1
        if self.command and self.command not in ("GET", "HEAD"):
            peer = ":".join(map(str, self.client_address[:2]))
            token = self.border.who(self.headers)
            logs.audit(peer, token, self.command, self.path, reply.status, reply.body)

    def _events(self) -> None:
        """`GET /events`: until the reader goes or is too slow."""
        core, last = self.server.core, self.headers.get("Last-Event-ID", "")
        if core is None:
            self._send(_error(503, "the fabric is not known yet"))
            return
        after = int(last) if re.fullmatch("[0-9]{1,15}", last) else None
        reader = core.watch.read(after)
        if reader is None:
            self._refuse(429, f"events: {watch.MAX_READERS} readers are there, the limit")
            return
        self.close_connection = True
        try:
            self._stream(core, reader)
        except OSError as error:  # he has gone, or does not read
            _log.debug("reader of events %s: %s", self.client_address, error)
        finally:
            core.watch.leave(reader)

    def _stream(self, core: Core, reader: watch.Reader) -> None:
        self.counted["GET", "200"] += 1
        self.connection.settimeout(WRITE_S)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        self.wfile.write(head + b"Connection: close\r\n\r\n")
        if self.command == "GET":
            for piece in watch.stream(core, reader):
                self.wfile.write(piece)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself finds wrong, in our form; a method it has no name for is none of
        the path's methods, as others are.
        """
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self.do_GET()
            return
        self.close_connection = True
        self.counted["other", str(code)] += 1
        reply = _error(code, message or self.responses[code][0])
        data = json.dumps(reply.body).encode() + b"\n"
        head = f"HTTP/1.1 {code} {self.responses[code][0]}\r\nContent-Type: application/json\r\n"
        self.wfile.write(
            f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data
        )

    def log_message(self, form: str, *args: object) -> None:
        """What http.server says, such as of a client too slow, goes to the log, not to stderr."""
        _log.debug("%s " + form, self.client_address, *args)


METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS")


class _Timely(io.RawIOBase):
    """What a socket receives until the instant `until`; TimeoutError after it.

    A time limit for each piece alone would let a client keep a connection by a byte a minute.
    """

    def __init__(self, connection: Any):
        self._connection, self.until = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self.until - time.monotonic(), 1e-3))
        return self._connection.recv_into(buffer)


def serve(app: Any, port: int, host: str) -> str:
    """Serve REST for an app as the environment says (see border.py); returns its URL."""
    border.keep_openflow_home()
    logs.write_json_lines(lambda: app.core.epochs.active if app.core else None)
    limits = border.from_environment(module=seam.hub_module("ssl"))
    guarded = {"border": limits, "counted": Counter()}
    guarded["slots"] = threading.BoundedSemaphore(MAX_CONNECTIONS)
    handler = type("Handler", (Handler,), guarded)
    tls = handler.border.tls

    def served(connection: Any, address: Any, app: Any) -> None:
        wire = border.wrapped(tls, connection, address) if tls else connection
        if wire is not None:
            handler(wire, address, app)

    bound = seam.serve_http(served, app, port, host)
    return f"http{'s' if tls else ''}://{endpoint(*bound)}"


def _dispatch(server: RestServer, method: str, path: str, body: bytes) -> dict:
    if path in ("/health", "/openapi.json", "/metrics", "/events"):
        if method != "GET":
            raise _MethodError(path, ["GET"], method)
        return server.health() if path == "/health" else openapi.document()
    for pattern, methods in views.PATHS.items():
        if match := re.fullmatch(pattern, path):
            if method not in methods:
                raise _MethodError(path, methods, method)
            if server.core is None:
                raise UnavailableError(
                    "the fabric is not known yet: "
                    f"{server.health()['trouble'] or 'no switch has connected'}"
                )
            return methods[method](server.core, schema.parse_json(body), *match.groups())
    raise NotFoundError(
        f"no path {path[:200]}; there are /health, "
        f"{', '.join(p for p in views.PATHS if '(' not in p)}"
    )


def _error(status: int, error: object, more: dict | None = None, path: str = "") -> HttpAnswer:
    text = str(error)
    body = {**(more or {}), "error": text}
    if "/restconf/" in path:  # RFC 8040
        kind = "application" if status < 500 else "rpc"
        tag = TAGS.get(status, "invalid-value" if status < 500 else "operation-failed")
        said = {"error-type": kind, "error-tag": tag, "error-message": text}
        body["ietf-restconf:errors"] = {"error": [said]}
    return HttpAnswer(status, body)
