"""The controller's border: who may ask, limits on what is asked, what is logged, counted and told;
over real HTTP with fake switches.
"""

import contextlib
import copy
import http.client
import json
import logging
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import schemathesis
from ground import PLAN, SMALL, RealClock, Served, changed, other_circuits, with_demand
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real import RYU_PYTHON, WITHOUT_RYU, child, free_port, listens, until
from schemathesis.specs.openapi.checks import positive_data_acceptance

from rfabric import cli
from rfabric.control import border, logs, openapi, rest, schema, sonic, views, watch
from rfabric.control.client import Client, both_ways, token_of
from rfabric.control.epochs import Epochs
from rfabric.control.launch import command
from rfabric.errors import RFabricError
from rfabric.fabric import Port, rfabric
from rfabric.optics import Circuit, Circuits, Rewire

SECRET = "a-secret-of-more-than-16"
SAMPLE = Path(__file__).parents[3] / "shared/data/formats/sonic_ocs/ocs_config_db.json"


@contextlib.contextmanager
def serving(fabric=SMALL, tls=None, **guarded):
    """REST over fake switches on a real socket, with a border of its own."""
    fresh = {"counted": Counter(), "slots": threading.BoundedSemaphore(rest.MAX_CONNECTIONS)}
    handler = type("Handler", (rest.Handler,), fresh | guarded)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served = Served(fabric)
    served.core.clock = served.switches.clock = RealClock()
    server.core, server.health, server.served = served.core, served.health, served
    server.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server():
    with serving() as server:
        yield server


def ask(server, method, path, body=None, headers=(), timeout=20):
    """Status and body of one request, as any client would send it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, dict(headers))
        reply = connection.getresponse()
        text = reply.read()
        told = reply.getheader("Content-Type") == "application/json" and text
        return reply.status, json.loads(text) if told else text.decode()
    finally:
        connection.close()


def said(server, raw, timeout=20):
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as wire:
        wire.sendall(raw)
        wire.shutdown(socket.SHUT_WR)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while piece := wire.recv(65536):
                heard += piece
        return heard


# --- limits ---------------------------------------------------------------------------------------

HUGE = 10**400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"circuits": [], "time_dilation": 1e300}, r"time_dilation: 1e\+300 is above .*1e\+06$"),
        ({"circuits": [], "time_dilation": HUGE}, r"time_dilation: 1000.*401 char.* 1e\+06$"),
        ({"circuits": [], "time_dilation": True}, "time_dilation: True must be a number"),
        ({"circuits": [], "time_dilation": -1}, "time_dilation: -1 must be a number, finite"),
        ({"circuits": [], "time_dilation": 0}, "time_dilation 0 must be 1 or more"),
        ({"circuits": [], "time_dilation": 1e6}, r"1e\+06 makes .* 10000 s long; the limit"),
        ({"circuits": [], "delay_s": 3600, "control_s": 1}, "3601 s long; the limit is 3600 s"),
        ({"circuits": [], "delay_s": 1e9}, r"delay_s: 1000000000.0 is above the limit, 3600 s"),
        ({"circuits": [], "delay_s": False}, "delay_s: False must be a number"),
        ({"circuits": [], "control_s": 1e300}, r"control_s: 1e\+300 is above the limit, 3600 s"),
        (changed(now_s=1e300), r"now_s: 1e\+300 is above the limit, 1e\+15 s"),
        (with_demand(window_s=1e300), r"demand.window_s: 1e\+300 is above the limit, 1e\+15 s"),
        (with_demand(bytes=[[1e300] * 4] * 4), r"demand.bytes: 1e\+300 .* limit, 1e\+18 bytes"),
        (with_demand(follows=[10**7]), r"demand.follows: 10000000 is above the limit, 1e\+06"),
        (with_demand(phase="x" * 201), r"demand.phase: 'xx.* has 201 characters; .* limit is 200"),
        (changed(policy="x" * 1001), r"policy: 'xx.*has 1001 characters; the limit is 1000"),
        (changed(upcoming=[0] * 10_001), r"upcoming: 10001 items; the limit is 10000 demands"),
        (changed(also=[[]] * 257), "also: 257 items; the limit is 256 lists of circuits"),
        (changed(pairs=[["h1", "h2"]] * 65), "pairs: 65 items; the limit is 64 pairs of 8 hosts"),
        ({"circuits": ["a1:1-a1:2"] * 99}, "circuits: 99 items; the limit is 12 circuits, two"),
        ({"circuits": [f"a1:{'9' * 5000}-1"]}, r"circuits: 'a1:9.* 5005 char.*; the limit is 40"),
        ([{}] * 3 + [[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]], "nested deeper than 16 lists"),
        (b"[" * 1_000_000, "lists stand within lists, too deep to be read"),
        (b'{"circuits": [], "circuits": []}', "key 'circuits' stands twice; keep one"),
        (b'{"circuits": [], "delay_s": ' + b"9" * 5000 + b"}", "5000 digits; 4000 at most$"),
        (b'{"circuits": [], "time_dilation": NaN}', "the request body holds NaN"),
        (b'{"circuits": [], "time_dilation": 1e999}', "number 1e999 is beyond 1e308"),
        (b'{"circuits": [], "in_flight": "\\ud800"}', r"in_flight '\\ud800' is not one of"),
    ],
)  # fmt: skip
def test_every_number_and_list_has_a_limit_and_its_error_names_it(server, body, text):
    status, reply = ask(server, "POST", "/plans", body)
    assert status == 400 and re.search(text, reply["error"]), reply
    assert len(reply["error"]) < 1000 and not server.core.epochs.plans


def test_plans_that_wait_have_a_limit_and_make_room_again(server, monkeypatch):
    monkeypatch.setattr(views, "MAX_WAITING", 3)
    for _ in range(3):
        assert ask(server, "POST", "/plans", {"circuits": []})[0] == 200
    status, reply = ask(server, "POST", "/plans", {"circuits": []})
    assert status == 429 and "plans: 3 wait for their commit; the limit is 3" in reply["error"]
    assert ask(server, "POST", "/plans/1/abort")[0] == 200
    assert ask(server, "POST", "/plans", {"circuits": []})[0] == 200


def test_plans_that_have_ended_are_forgotten_and_their_numbers_are_not_used_again():
    lit = Circuits(frozenset([Circuit.parse("a1:1-a1:2")]))
    epochs = Epochs(lit)
    for _ in range(1005):
        epochs = epochs.propose(Rewire(lit, Circuits()), 0.0)
        epochs = epochs.abort(epochs.last.epoch)
    kept = epochs.propose(Rewire(lit, Circuits()), 0.0).ready(1006)
    assert len(kept.plans) == 1000 and min(kept.plans) == 7 and kept.last.state == "PREPARED"
    for _ in range(1001):  # who waits is not forgotten
        kept = kept.propose(Rewire(lit, Circuits()), 0.0)
        kept = kept.abort(kept.last.epoch)
    assert kept.plan(1006).state == "PREPARED" and len(kept.plans) == 1000


HEAD = b"POST /plans HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "text"),
    [
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413, "'99999999999' bytes; the limit"),
        (HEAD + b"Content-Length: %s\r\n\r\n" % (b"9" * 400), 413, "the limit is 67108864"),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400, "'-1' must be a whole number of bytes"),
        (HEAD + b"Content-Length: \xb2\r\n\r\n", 400, "must be a whole number of bytes"),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "given twice"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411, "Content-Length"),
        (HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 413, "limit"),
        (b"GET /epoch HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "Host is given 2 times"),
        (b"BREW /epoch HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "/epoch takes GET, not BREW"),
        (b"BREW /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no path /x"),
        (b"GET /epoch\r\n\r\n", 404, ""),
        (b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, "URI Too Long"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, "Too many headers"),
        (b"OPTIONS /plans HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "takes GET or POST"),
        (b"GET /plans/\xd9\xa1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no path"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60) + b"\r\n", 400, "Bad request"),
    ],
)  # fmt: skip
def test_broken_requests_are_refused_in_json(server, raw, status, text):
    heard = said(server, raw)
    if b"HTTP/0.9" in raw or raw.startswith(b"GET /epoch\r\n"):  # HTTP/0.9 knows no status
        assert b'"epoch"' in heard or heard.startswith(b"HTTP/1.1")
        return
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), heard[:300]
    assert text in json.loads(body)["error"] and (b"close" in head or status < 406)


@pytest.mark.parametrize(("path", "takes"), [("/plans", "GET, POST"), ("/health", "GET")])
def test_a_wrong_method_is_told_the_right_ones(server, path, takes):
    heard = said(server, f"PUT {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert f"\r\nAllow: {takes}\r\n".encode() in heard


def test_an_order_that_breaks_off_is_not_carried_out(server):
    said(server, HEAD + b'Content-Length: 40\r\n\r\n{"circuits": []}')
    assert not server.core.epochs.plans


@pytest.mark.parametrize("path", ["/epoch", "/metrics", "/nothing"])
def test_head_is_answered_as_get_without_the_body(server, path):
    heads = [said(server, f"{m} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
             .partition(b"\r\n\r\n") for m in ("HEAD", "GET")]  # fmt: skip
    lines = [head.split(b"\r\n") for head, _, _ in heads]
    assert heads[0][2] == b"" != heads[1][2] and lines[0][:2] == lines[1][:2]
    assert lines[0][0] == (b"HTTP/1.1 404 Not Found" if path == "/nothing" else b"HTTP/1.1 200 OK")
    if path == "/epoch":  # the others tell what was asked before
        assert lines[0] == lines[1] and b"Content-Length: %d" % len(heads[1][2]) in lines[0]


def test_events_are_told_to_who_gets_them_alone(server):
    head = said(server, b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"Content-Type: text/event-stream" in head and head.endswith(b"\r\n\r\n")
    status, reply = ask(server, "POST", "/events", {})
    assert status == 405 and reply["error"] == "/events takes GET, not POST"
    with reading(server):
        assert server.RequestHandlerClass.counted["GET", "200"] == 2
    core, server.core = server.core, None
    assert ask(server, "GET", "/events") == (503, {"error": "the fabric is not known yet"})
    until(lambda: not core.watch.readers or core.watch.tell("link", {}), "the readers to be gone")


def test_who_asks_whether_he_may_send_is_told_to_go_on(server):
    body = b'{"circuits": []}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        wire.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert wire.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.sendall(body)
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_a_body_that_does_not_come_is_not_waited_for():
    refused = []

    def read(size):
        raise TimeoutError

    late = SimpleNamespace(
        headers={"Content-Length": "3"}, rfile=SimpleNamespace(read=read),
        _refuse=lambda *what: refused.append(what),
    )  # fmt: skip
    assert rest.Handler._body(late) is None
    assert refused == [(408, "the body did not come within 60 s")]


def test_what_comes_of_a_request_has_until_one_instant():
    waits = []
    wire = SimpleNamespace(settimeout=waits.append, recv_into=len)
    timely = rest._Timely(wire)
    timely.until = time.monotonic() + 50.0
    assert timely.readinto(b"four") == 4 and 49 < waits[0] <= 50
    timely.until = time.monotonic() - 50.0
    timely.readinto(b"")
    assert waits[1] == 1e-3


def test_methods_that_http_has_not_are_counted_as_one(server):
    for method in (b"BREW", b"COOK"):
        said(server, method + b" /epoch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    ask(server, "OPTIONS", "/epoch")
    said(server, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n")
    counted = server.RequestHandlerClass.counted
    assert counted == {("other", "405"): 2, ("OPTIONS", "405"): 1, ("other", "431"): 1}


def test_an_order_over_ipv6_is_audited_with_address_and_port(caplog):
    caplog.set_level(logging.INFO, "rfabric.audit")
    from_there = SimpleNamespace(
        command="POST", path="/plans", client_address=("::1", 5, 0, 0), counted=Counter(),
        headers={"Authorization": f"Bearer {SECRET}"}, border=border.Border({SECRET: "alice"}),
    )  # fmt: skip
    rest.Handler._note(from_there, rest.HttpAnswer(200, {}))
    (order,) = caplog.records
    assert (order.fields["peer"], order.fields["token"]) == ("::1:5", "alice")


def test_connections_have_a_limit(server):
    with serving(slots=threading.BoundedSemaphore(2)) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        until(lambda: server.RequestHandlerClass.slots._value == 0, "both to be served")
        status, reply = ask(server, "GET", "/epoch")
        assert status == 429 and "connections: 64 are open, the limit" in reply["error"]
        for wire in idle:
            wire.close()
        until(lambda: ask(server, "GET", "/epoch")[0] == 200, "room to be there again")


def test_a_client_that_sends_a_byte_now_and_then_is_dropped(monkeypatch):
    monkeypatch.setattr(rest, "PATIENCE_S", 0.3)
    with serving() as server, socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.settimeout(20)
        wire.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                wire.sendall(b" ")
                time.sleep(0.05)
        heard = b""
        with contextlib.suppress(ConnectionError):
            heard = wire.recv(65536)
        assert b"408" in heard or not heard  # told, or already closed while it was sending
        assert not server.core.epochs.plans


# --- who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:8080", 200), ("127.0.0.1:1", 200), ("[::1]:8080", 200),
        ("localhost.", 200), ("evil.example", 421), ("evil.example:8080", 421),
        ("localhost.evil.example", 421), ("10.0.0.1", 421), ("127.0.0.1.evil.example", 421),
        ("", 421), ("localhost@evil", 421), ("2130706433", 421), ("mine.example", 421),
    ],
)  # fmt: skip
def test_only_our_own_names_are_answered_on_loopback(server, host, status):
    got, reply = ask(server, "GET", "/epoch", headers={"Host": host})
    assert got == status
    assert status == 200 or "is not this controller" in reply["error"]


def test_an_exposed_controller_answers_to_its_addresses_and_the_names_it_was_given(tmp_path):
    file = tmp_path / "tokens"
    told = {"RFABRIC_REST_HOST": "0.0.0.0", "RFABRIC_REST_NAMES": "ocs.example, Other.example"}
    guarded = border.from_environment(told | {"RFABRIC_REST_TOKENS": str(file)})
    assert guarded.exposed and list(guarded.tokens.values()) == ["operator"]
    token = next(iter(guarded.tokens))
    with serving(border=guarded) as server:
        shown = {"Authorization": f"Bearer {token}"}
        names = {"10.0.0.1": 200, "ocs.example:8080": 200, "OTHER.example": 200}
        names |= {"evil.example": 421}
        for name, status in names.items():
            assert ask(server, "GET", "/epoch", headers=shown | {"Host": name})[0] == status


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/epoch"), ("POST", "/plans")])
def test_a_web_page_is_refused_whatever_it_asks(server, headers, method, path):
    status, reply = ask(server, method, path, {"circuits": []}, headers)
    assert status == 403 and "requests from web pages are refused" in reply["error"]
    assert not server.core.epochs.plans


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": SECRET}, 401),
        ({"Authorization": f"Basic {SECRET}"}, 401), ({"Authorization": f"Bearer {SECRET}x"}, 401),
        ({"Authorization": f"Bearer {SECRET}"}, 200), ({"Authorization": f"bearer {SECRET}"}, 200),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/health", "/metrics", "/openapi.json", "/epoch", "/nothing"])
def test_without_a_token_nothing_is_said(shown, status, path):
    with serving(border=border.Border({SECRET: "alice"})) as server:
        got, reply = ask(server, "GET", path, headers=shown)
        assert got == (404 if (path, status) == ("/nothing", 200) else status)
        assert got != 401 or "Authorization: Bearer TOKEN" in reply["error"]
        assert ask(server, "POST", "/plans", {"circuits": []}, shown)[0] == status


def test_events_need_a_token_as_well():
    with serving(border=border.Border({SECRET: "alice"})) as server:
        assert ask(server, "GET", "/events")[0] == 401


def test_the_token_file_is_made_for_its_owner_alone(tmp_path):
    file = tmp_path / "new" / "tokens"
    made = border.read_tokens(str(file))
    assert file.stat().st_mode & 0o777 == 0o600 and border.read_tokens(str(file)) == made
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert len(next(iter(made))) >= 32 and token_of(str(file)) in made
    file.write_text(f"# who may ask\nalice {SECRET}\n\nbob {SECRET[::-1]}\n")
    assert border.read_tokens(str(file)) == {SECRET: "alice", SECRET[::-1]: "bob"}


@pytest.mark.parametrize(
    ("mode", "text", "error"),
    [
        (0o640, f"alice {SECRET}", "has mode 640: others may read it; chmod 600"),
        (0o604, f"alice {SECRET}", "has mode 604"),
        (0o600, "alice short", "entry 1: write NAME TOKEN, the token of 16"),
        (0o600, SECRET, "entry 1: write NAME TOKEN"),
        (0o600, "# nobody", "holds no token"),
    ],
)
def test_a_token_file_that_others_can_read_or_nobody_can_use_is_refused(
    tmp_path, mode, text, error
):
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(RFabricError, match=error):
        border.read_tokens(str(file))
    with pytest.raises(RFabricError, match="no such file; copy it from the controller"):
        token_of(str(tmp_path / "elsewhere"))


def test_a_token_file_that_is_none_is_named(tmp_path):
    for mode in (0o700, 0o755):
        tmp_path.chmod(mode)
        with pytest.raises(RFabricError, match="is no file; name one of lines NAME TOKEN"):
            border.read_tokens(str(tmp_path))
    file = tmp_path / "tokens"
    file.write_bytes(b"alice \xff")
    file.chmod(0o600)
    with pytest.raises(RFabricError, match="token file .*/tokens: it is not text"):
        border.read_tokens(str(file))
    with pytest.raises(RFabricError, match="tokens/more: File exists"):
        border.read_tokens(str(file / "more"))


def test_a_token_has_sixteen_characters_or_more(tmp_path):
    file = tmp_path / "tokens"
    for length, taken in ((15, False), (16, True)):
        file.write_text(f"alice {'x' * length}\n")
        file.chmod(0o600)
        with contextlib.nullcontext() if taken else pytest.raises(RFabricError, match="entry 1"):
            assert border.read_tokens(str(file)) == {"x" * 16: "alice"}


def test_tokens_lie_where_a_user_keeps_settings(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert border.default_tokens() == "/settings/rfabric/tokens"
    monkeypatch.setenv("HOME", "/home/me")
    for unset in (lambda: monkeypatch.setenv("XDG_CONFIG_HOME", ""),
                  lambda: monkeypatch.delenv("XDG_CONFIG_HOME")):  # fmt: skip
        unset()
        assert border.default_tokens() == "/home/me/.config/rfabric/tokens"


@pytest.mark.parametrize(
    ("host", "home"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.168.0.7", False), ("ocs.example", False),
    ],
)  # fmt: skip
def test_what_is_loopback_needs_no_token_and_nothing_else_goes_without(tmp_path, host, home):
    told = {"RFABRIC_REST_HOST": host}
    assert border.is_loopback(host) == home
    if home:
        assert not border.from_environment(told).tokens
    tokens = {"RFABRIC_REST_TOKENS": str(tmp_path / "tokens")}
    assert border.from_environment(told | tokens).tokens


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that signed itself, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    return cert, key


def test_rest_in_tls_is_read_by_the_client_that_trusts_it(certificate):
    cert, key = certificate
    with serving(tls=border.read_tls(f"cert={cert},key={key}", "--tls")) as server:
        url = f"https://localhost:{server.port}"
        assert Client(url, ca=str(cert)).epoch() == 0
        with pytest.raises(RFabricError, match="certificate verify failed"):
            Client(url).epoch()
        with pytest.raises(RFabricError, match="--ca /nowhere"):
            Client(url, ca="/nowhere").epoch()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("cert=a", "write cert=FILE,key=FILE or"), ("cert=/x,key=/y", "cert=/x: no such file"),
        ("cert=a,key=b,more=c", "write cert=FILE"), ("x", "write cert=FILE"),
        (f"cert={__file__},key={__file__}", "--tls cert="),
    ],
)  # fmt: skip
def test_tls_settings_that_cannot_work_are_named(words, error):
    assert border.read_tls("", "--tls") is None
    with pytest.raises(RFabricError, match=error):
        border.read_tls(words, "--tls")


SDNS = [pytest.param("ryu", marks=WITHOUT_RYU), "os-ken"]


@pytest.mark.parametrize("sdn", SDNS)
def test_openflow_and_rest_in_tls_with_a_token(certificate, sdn, tmp_path):
    """Several switches, one after the other: Ryu's own TLS server takes one alone."""
    (cert, key), ofp, port = certificate, free_port(), free_port()
    tls, tokens = f"cert={cert},key={key},ca={cert}", tmp_path / "tokens"
    argv = [*command("rfabric,pods=1", port=port, sdn=sdn, ofp_port=ofp), "--tokens", str(tokens)]
    argv += ["--tls", f"cert={cert},key={key}", "--ofp-tls", tls, "--log", "json"]
    argv += ["--host", "0.0.0.0"]
    with child(argv, tmp_path / "control.out") as controller:
        until(lambda: listens(ofp) or controller.poll() is not None, "the controller to listen")
        context = ssl.create_default_context(cafile=cert)
        context.load_cert_chain(cert, key)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", ofp), timeout=20) as wire:
                inside = context.wrap_socket(wire, server_hostname="localhost")
                assert inside.recv(64).startswith(b"\x04\x00\x00\x08")  # OpenFlow 1.3, hello
        with socket.create_connection(("127.0.0.1", ofp), timeout=20) as plain:
            plain.sendall(b"\x04\x00\x00\x08\x00\x00\x00\x01")
            with contextlib.suppress(ConnectionError):
                assert not plain.recv(64).startswith(b"\x04")
        until(lambda: tokens.exists() and listens(port), "REST to listen")
        client = Client(f"https://localhost:{port}", ca=str(cert), token=token_of(str(tokens)))
        assert client.health()["control"].startswith(sdn)
        with pytest.raises(RFabricError, match="a token is needed"):
            Client(f"https://localhost:{port}", ca=str(cert)).health()
        asked = urllib.request.Request(
            f"https://localhost:{port}/metrics", headers={"Authorization": f"Bearer {client.token}"}
        )
        trusted = ssl.create_default_context(cafile=cert)
        with urllib.request.urlopen(asked, context=trusted, timeout=20) as reply:
            assert b"rfabric_ready 0" in reply.read()
    lines = (tmp_path / "control.out").read_text().splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert any("no TLS with" in one["message"] for one in told)
    assert all({"time", "level", "active_epoch"} <= set(one) for one in told)


SILENT = """
import gc, os, sys
from rfabric.control import border, seam
seam.prepare(seam.flavour()).patch()
import socket
gc.disable()  # what a failed handshake leaves stays
border.HANDSHAKE_S = 0.05
tls = border.read_tls(sys.argv[1], "--ofp-tls", seam.hub_module("ssl"))
server = seam.hub_module("socket").socket()
server.bind(("127.0.0.1", 0))
server.listen()
before = len(os.listdir("/proc/self/fd"))
for _ in range(5):
    with socket.create_connection(server.getsockname()):
        assert border.wrapped(tls, *server.accept()) is None
print(len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.mark.parametrize("sdn", SDNS)
def test_who_says_nothing_in_tls_leaves_no_descriptor_open(certificate, sdn):
    cert, key = certificate
    python = RYU_PYTHON if sdn == "ryu" else sys.executable
    env = os.environ | {"RFABRIC_SDN": sdn, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = f"cert={cert},key={key}"
    done = subprocess.run(
        [python, "-c", SILENT, words], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "0", done.stderr
    assert done.stderr.count("no TLS with") == 5


def test_the_controller_does_not_start_open(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice {SECRET}\n")
    tokens.chmod(0o644)
    argv = [*command("rfabric,pods=1", "0.0.0.0", free_port(), ofp_port=free_port())]
    ran = subprocess.run(
        [*argv, "--tokens", str(tokens)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2 and "has mode 644: others may read it" in ran.stderr, ran.stderr


@pytest.mark.parametrize("sdn", SDNS)
@pytest.mark.parametrize(
    ("words", "host"), [([], "127.0.0.1"), (["--ofp-listen-host=0.0.0.0"], "0.0.0.0")]
)
def test_openflow_listens_on_loopback_unless_the_command_line_says_otherwise(sdn, words, host):
    code = (
        "from rfabric.control import border, seam; import sys\n"
        "seam.prepare(seam.flavour()).patch(); conf = seam.framework().cfg.CONF\n"
        "conf(args=sys.argv[1:], project='x', default_config_files=[])\n"
        "border.keep_openflow_home({}); print(conf.ofp_listen_host)"
    )
    python = RYU_PYTHON if sdn == "ryu" else sys.executable
    env = os.environ | {"RFABRIC_SDN": sdn, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [python, "-c", code, *words], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == host, done.stderr


@WITHOUT_RYU
def test_ryu_manager_binds_openflow_to_loopback_alone(tmp_path):
    ofp, port = free_port(), free_port()
    manager = Path(RYU_PYTHON).parent / "ryu-manager"
    app = Path(__file__).parents[2] / "controller/ocs.py"
    argv = [str(manager), f"--ofp-tcp-listen-port={ofp}", str(app)]
    env = {"RFABRIC_REST_PORT": str(port), "PYTHONPATH": str(Path(__file__).parents[2])}
    with child(argv, tmp_path / "control.out", **env):
        until(lambda: listens(ofp), "ryu-manager to listen")
        assert listeners(ofp) == {"0100007F"}


def listeners(port):
    """The addresses on which this machine listens at a port, in the words of /proc/net/tcp."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        r[1].split(":")[0] for r in rows if r[3] == "0A" and int(r[1].split(":")[1], 16) == port
    }


# --- what is logged, told, counted ----------------------------------------------------------------


def test_every_order_leaves_a_line_that_says_who_what_and_in_which_epoch(caplog):
    caplog.set_level(logging.INFO, "rfabric.audit")
    with serving(border=border.Border({SECRET: "alice"})) as server:
        shown = {"Authorization": f"Bearer {SECRET}"}
        ask(server, "GET", "/epoch", headers=shown)
        circuits = other_circuits(SMALL).to_json()
        ask(server, "POST", "/plans", {"circuits": circuits}, shown)
        ask(server, "POST", "/plans/1/commit", None, shown)
        ask(server, "POST", "/plans/9/commit\x1b[31m".replace("\x1b", "%1b"), None, shown)
        ask(server, "DELETE", "/plans", None)
    audited = [record.fields for record in caplog.records if record.name == "rfabric.audit"]
    assert [(o["method"], o["status"], o["token"]) for o in audited] == [
        ("POST", 200, "alice"), ("POST", 200, "alice"), ("POST", 404, "alice"),
        ("DELETE", 401, None),
    ]  # fmt: skip
    assert [o.get("epoch") for o in audited] == [1, 1, None, None]
    assert audited[1]["state"] == "ACTIVE" and audited[0]["peer"].startswith("127.0.0.1:")
    assert 'token="alice"' in caplog.records[0].getMessage() and SECRET not in caplog.text


def test_json_lines_are_json_whatever_is_in_them():
    form = logs.JsonLines(lambda: 7)
    record = logging.LogRecord("a", logging.INFO, "f", 1, 'x "%s"\n', ("y\x00",), None)
    record.fields = {"epoch": 3, "peer": "é"}
    line = form.format(record)
    assert "\n" not in line
    about = json.loads(line)
    assert (about["active_epoch"], about["epoch"], about["message"]) == (7, 3, 'x "y\x00"\n')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", about["time"])
    with pytest.raises(RFabricError, match="RFABRIC_LOG=xml: choose one of text, json"):
        logs.write_json_lines(lambda: 0, {"RFABRIC_LOG": "xml"})


@contextlib.contextmanager
def reading(server, **headers):
    """The stream of events, as (kind, data) one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/events", headers=headers)
    reply = connection.getresponse()
    assert reply.status == 200 and reply.getheader("Content-Type") == "text/event-stream"
    try:
        yield reply, parsed(reply)
    finally:
        connection.close()


def parsed(reply):
    event = {}
    for line in iter(reply.readline, b""):
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key and line != b"\n":
            event[key] = value
        elif "data" in event:
            yield int(event["id"]), event["event"], json.loads(event["data"])
            event = {}


def test_a_rewire_is_told_state_by_state_with_its_times(server):
    with reading(server) as (_, events):
        client = Client(f"http://127.0.0.1:{server.port}")
        done = client.commit(client.plan_circuits(other_circuits(SMALL)).epoch)
        told = []
        while not told or told[-1][1] != "rewire":
            told.append(next(events))
        states = [about["state"] for _, kind, about in told if kind == "plan"]
        assert states == [
            "PLANNED", "PREPARED", "PROGRAMMING", "DARK", "LIGHTING", "VERIFYING", "ACTIVE",
        ]  # fmt: skip
        last = told[-1][2]
        assert (last["usable_s"], last["lost_bytes"]) == (done.usable, done.lost_bytes)
        server.served.switches.away.add("a1")
        kinds = next(events)
        assert kinds[1] == "switch"
        assert {k: kinds[2][k] for k in ("switch", "connected")} == {
            "switch": "a1", "connected": False,
        }  # fmt: skip
    numbers = [number for number, _, _ in told]
    assert numbers == sorted(numbers)
    with reading(server, **{"Last-Event-ID": str(numbers[2])}) as (_, events):
        assert next(events)[0] == numbers[3]  # goes on where it was


def test_a_rewire_that_fails_is_told_and_counted(server):
    client = Client(f"http://127.0.0.1:{server.port}")
    planned = client.plan_circuits(other_circuits(SMALL))
    server.served.switches.moods["a2"] = "refusing"
    assert ask(server, "POST", f"/plans/{planned.epoch}/commit")[0] == 500
    with reading(server, **{"Last-Event-ID": "0"}) as (_, events):
        kinds = [next(events) for _ in range(6)]
    assert kinds[-1][1] == "rewire" and kinds[-1][2]["state"] == "ABORTED"
    assert "a2 refused" in kinds[-1][2]["error"]
    assert 'rfabric_rewires_total{result="rolled_back"} 1' in ask(server, "GET", "/metrics")[1]


def test_a_reader_that_does_not_keep_up_is_dropped_and_nobody_waits():
    told = watch.Watch()
    slow, quick = told.read(), told.read()
    for number in range(watch.MAX_BEHIND + 1):
        told.tell("switch", {"switch": "a1"})
        assert quick.waiting.get_nowait().number == number + 1
    assert slow.dropped and not quick.dropped and told.readers == [quick]
    assert told.counted["dropped"] == 1 and slow.waiting.qsize() == watch.MAX_BEHIND
    assert len(told.recent) == watch.MAX_BEHIND == 256


def test_a_reader_that_reads_nothing_costs_a_commit_no_time(monkeypatch, server):
    monkeypatch.setattr(rest, "WRITE_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: server.core.watch.readers, "the reader to be there")
        for _ in range(40):  # far more than the buffers of the sockets hold
            for _ in range(watch.MAX_BEHIND // 2):
                server.core.watch.tell("switch", {"switch": "a1", "more": "x" * 4000})
            if not server.core.watch.readers:
                break
            time.sleep(0.05)
        until(lambda: not server.core.watch.readers, "the reader to be dropped")
    assert ask(server, "GET", "/epoch")[0] == 200


def test_readers_of_events_have_a_limit(server):
    readers = [server.core.watch.read() for _ in range(watch.MAX_READERS)]
    status, reply = ask(server, "GET", "/events")
    assert status == 429 and "events: 16 readers are there, the limit" in reply["error"]
    server.core.watch.leave(readers[0])
    with reading(server) as (reply, _):
        assert reply.status == 200


def test_a_port_that_goes_down_is_told():
    class Said:
        def __init__(self, **about):
            self.__dict__ = about

    of = Said(OFPPR_DELETE=1, OFPPS_LINK_DOWN=1)
    told, core = watch.Watch(), Served().core
    reader = told.read()
    for reason, state in ((2, 1), (2, 0), (1, 0)):
        datapath = Said(id=SMALL.node["a1"].dpid, ofproto=of)
        desc = Said(port_no=3, state=state)
        told.replugged(core, Said(datapath=datapath, desc=desc, reason=reason))
    events = [reader.waiting.get_nowait().about for _ in range(3)]
    assert [(e["switch"], e["port"], e["up"]) for e in events] == [
        ("a1", 3, False), ("a1", 3, True), ("a1", 3, False),
    ]  # fmt: skip


def test_metrics_are_what_prometheus_reads_and_what_happened(server):
    client = Client(f"http://127.0.0.1:{server.port}")
    done = client.commit(client.plan_circuits(other_circuits(SMALL)).epoch)
    ask(server, "GET", "/nothing")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/metrics")
    reply = connection.getresponse()
    assert reply.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    text = reply.read().decode()
    connection.close()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert values["rfabric_epoch"] == "1" and values["rfabric_ready"] == "1"
    assert values["rfabric_circuits"] == str(len(client.circuits()))
    assert values["rfabric_circuits_changed_total"] == str(done.circuits_changed)
    assert float(values["rfabric_dark_seconds_total"]) == done.dark_until - done.programmed
    assert float(values["rfabric_rewire_seconds_total"]) == done.usable - done.requested
    assert values['rfabric_http_requests_total{method="GET",status="404"}'] == "1"
    parser = pytest.importorskip("prometheus_client.parser")
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    assert families["rfabric_rewires"].type == "counter" and len(families) > 10
    assert sum(len(f.samples) for f in families.values()) == len(values)


# --- OpenAPI --------------------------------------------------------------------------------------


def test_the_document_has_every_path_method_key_and_limit(server):
    status, document = ask(server, "GET", "/openapi.json")
    assert status == 200 and document == json.loads(json.dumps(openapi.document()))
    there = {
        re.sub("{[a-z]+}", "X", path): {m.upper() for m in verbs if m != "parameters"}
        for path, verbs in document["paths"].items()
    }
    for pattern, verbs in views.PATHS.items():
        assert there[re.sub(r"\([^)]*\)", "X", pattern)] == set(verbs)
    for path in ("/health", "/metrics", "/events", "/openapi.json"):
        assert there[path] == {"GET"}
    schemas = document["components"]["schemas"]
    tables = {"Intent": schema.INTENT_KEYS, "Circuits": schema.CIRCUITS_KEYS}
    tables |= {"Demand": schema.DEMAND_KEYS, "Pairs": schema.PAIRS_KEYS}
    for name, (required, optional) in tables.items():
        assert schemas[name]["required"] == list(required)
        assert set(schemas[name]["properties"]) == {*required, *optional}
    assert schemas["Circuits"]["properties"]["time_dilation"]["maximum"] == 1e6
    names = [v["operationId"] for p in document["paths"].values() for k, v in p.items() if "op" in v
             or k != "parameters"]  # fmt: skip
    assert len(names) == len(set(names))
    known = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert known <= set(schemas)


# --- SONiC's tables and RFC 7951 ------------------------------------------------------------------

TABLE = "/ocs/a1/restconf/data/sonic-ocs:sonic-ocs/OCS_CROSS_CONNECT"


def listed(*names):
    rows = [{"cross_connect_id": name} for name in names]
    return {"sonic-ocs:OCS_CROSS_CONNECT": {"OCS_CROSS_CONNECT_LIST": rows}}


def patch(*edits):
    listed = [
        {"edit-id": str(i), "operation": operation, "target": f"/OCS_CROSS_CONNECT_LIST={name}"}
        for i, (operation, name) in enumerate(edits)
    ]
    return {"ietf-yang-patch:yang-patch": {"patch-id": "one", "edit": listed}}


def test_a_batch_of_cross_connects_is_one_commit_with_one_result(server):
    assert ask(server, "PUT", TABLE, listed())[1]["cross_connects"] == []
    status, done = ask(server, "PATCH", TABLE, listed("1A-2B", "2A-1B"))
    assert status == 200 and done["result"] == "ACTIVE" and done["circuits_changed"] == 1
    edits = [("delete", "1A-2B"), ("delete", "2A-1B"), ("create", "1A-3B"), ("create", "3A-1B")]
    edits += [("merge", "2A-4B"), ("merge", "4A-2B"), ("remove", "1A-4B")]
    epoch = server.core.epochs.active
    status, done = ask(server, "PATCH", TABLE, patch(*edits))
    assert done["ietf-yang-patch:yang-patch-status"] == {"patch-id": "one", "ok": [None]}
    assert done["epoch"] == server.core.epochs.active == epoch + 1
    assert {str(c) for c in server.core.epochs.circuits.of("a1")} == {"a1:1-a1:3", "a1:2-a1:4"}
    assert ask(server, "PATCH", TABLE, patch())[1]["result"] == "UNCHANGED"
    rows = ask(server, "GET", TABLE)[1]["sonic-ocs:OCS_CROSS_CONNECT"]["OCS_CROSS_CONNECT_LIST"]
    assert rows[0] == {"cross_connect_id": "1A-3B", "a_side": "1A", "b_side": "3B"}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (listed("1A-2B"), 400, "1A-2B lacks its way back, 2A-1B: the transceivers of a1 are dup"),
        (listed("1A-1B"), 400, "a port cannot be joined to itself"),
        (listed("1A-2B", "1A-2B"), 400, "cross-connect 1A-2B is listed twice"),
        (listed("1A-9B", "9A-1B"), 400, "no port '9B' at a1; there are 1A, 1B to 4A, 4B"),
        (listed("1B-2A"), 400, "'1B-2A' is not iA-jB, for example 1A-2B"),
        (listed("1A-2B", "2A-1B", "1A-3B", "3A-1B"), 400, "port a1:1 is already in circuit"),
        (
            patch(("merge", "1A-2B"), ("merge", "2A-1B")),
            400,
            "port a1:1 is already in circuit a1:1-a1:3; tear it down before a1:1-a1:2",
        ),
        (patch(("create", "1A-3B")), 409, "create 1A-3B: that cross-connect is there"),
        (patch(("delete", "1A-2B")), 409, "delete 1A-2B: there is no such cross-connect"),
        (patch(("delete", "1A-3B")), 400, "cross-connect 3A-1B lacks its way back"),
        (patch(("move", "1A-3B")), 400, "operation 'move' is not one of create, merge"),
        (patch(*[("remove", "1A-2B")] * 17), 400, "edit: 17 items; the limit is 16 edits"),
        ({"ietf-yang-patch:yang-patch": {"edit": [{"operation": "merge", "target": "/x"}]}}, 400,
         "target '/x' is not /OCS_CROSS_CONNECT_LIST=NAME"),
        ([], 400, "expected a JSON object, got list"),
    ],
)  # fmt: skip
def test_cross_connects_that_make_no_sense_are_refused_and_nothing_moves(
    server, body, status, text
):
    got, reply = ask(server, "PATCH", TABLE, body)
    assert got == status and text in reply["error"]
    error = reply["ietf-restconf:errors"]["error"][0]
    assert error["error-message"] == reply["error"] and error["error-type"] == "application"
    assert server.core.epochs.active == 0 and not server.core.epochs.under_way


def test_port_states_go_from_tuned_through_tuning_to_blocked(server):
    path = f"/ocs/a1/restconf/data/{sonic.STATES}"

    def ports():
        rows = ask(server, "GET", path)[1][sonic.STATES]["OCS_PORT"]["OCS_PORT_LIST"]
        return {r["simplex_port_id"]: (r["status"], r["target_simplex_port_id"]) for r in rows}

    assert ports()["1A"] == ("tuned", "3B") and ports()["3B"] == ("tuned", "1A")
    client = Client(f"http://127.0.0.1:{server.port}")
    planned = client.plan_circuits(other_circuits(SMALL), time_dilation=40)
    commit = threading.Thread(target=client.commit, args=(planned.epoch,))
    commit.start()
    until(lambda: server.core.epochs.under_way, "the rewire to begin")
    until(lambda: ports()["2A"] == ("tuning", "1B") or not commit.is_alive(), "tuning")
    assert commit.is_alive() and ports()["1A"] == ("tuning", "2B")
    commit.join()
    assert ports()["1A"] == ("tuned", "2B") and ports()["3A"] == ("blocked", "")
    server.served.switches.away.add("a1")
    assert ports()["1A"][0] == "failed"
    told = ask(server, "GET", "/ocs/a2/restconf/data/rfabric-ocs:optical-circuit-switch")[1]
    about = told["rfabric-ocs:optical-circuit-switch"]
    words = {port["connection-state"] for port in about["ports"]["port"]}
    assert about["name"] == "a2" and words <= {"CONNECTED", "DISCONNECTED"}


@pytest.mark.skipif(not SAMPLE.exists(), reason="no sample of SONiC's CONFIG_DB here")
def test_sonics_own_configuration_is_taken_as_it_is_and_comes_back():
    told = json.loads(SAMPLE.read_text())
    with serving(rfabric(pods=8, tors=8, gpus=1, planes=1)) as server:
        ports = server.core.fabric.ports
        wide = [n.name for n in server.core.fabric.ocses if len(ports[n.name]) >= 16]
        path = f"/ocs/{wide[0]}/config_db"
        status, done = ask(server, "PUT", path, told)
        assert status == 200 and done["result"] == "ACTIVE", done
        assert sorted(done["cross_connects"]) == sorted(told["OCS_CROSS_CONNECT"])
        again = ask(server, "GET", path)[1]
        assert again["OCS_CROSS_CONNECT"] == told["OCS_CROSS_CONNECT"]
        assert set(told["OCS_PORT"]) <= set(again["OCS_PORT"])
        assert ask(server, "PUT", path, again)[1]["result"] == "UNCHANGED"
        told["OCS_PORT"]["1A"]["config_status"] = "blocked"
        status, reply = ask(server, "PUT", path, told)
        assert status == 400 and "config_status 'blocked' cannot be set here" in reply["error"]


@given(st.sets(st.integers(1, 30), max_size=20), st.randoms())
def test_cross_connects_and_circuits_are_each_others_inverse(ports, rng):
    some = sorted(ports)
    rng.shuffle(some)
    pairs = zip(some[::2], some[1::2], strict=False)
    circuits = Circuits(frozenset(Circuit.of(Port("a1", a), Port("a1", b)) for a, b in pairs))
    names = sonic.names_of(circuits)
    rng.shuffle(names)
    assert sonic.circuits_of(names, "a1") == circuits and len(names) == 2 * len(circuits)


def test_the_command_line_connects_shows_and_disconnects(server, capsys):
    url = ["--url", f"http://127.0.0.1:{server.port}"]
    assert cli.main(["ocs", "disconnect", "a1", "1-3", *url]) == 0
    assert "a1: ACTIVE, epoch 1, 1 circuits changed; now 2A-4B, 4A-2B" in capsys.readouterr().out
    assert cli.main(["ocs", "connect", "a1", "1A-3B", "3A-1B", "--json", *url]) == 0
    assert json.loads(capsys.readouterr().out)["cross_connects"][0] == "1A-3B"
    assert cli.main(["ocs", "show", "a1", *url]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"1A\W+tuned\W+3B", shown) and "OCS a1" in shown
    assert cli.main(["ocs", "connect", "a1", "1A-2B", *url]) == 2
    assert "lacks its way back, 2A-1B" in capsys.readouterr().err
    assert cli.main(["ocs", "connect", *url]) == 2
    assert "name the OCS and cross-connects" in capsys.readouterr().err
    assert cli.main(["ocs", "show", "a9", *url]) == 2
    assert both_ways("1-2") == ["1A-2B", "2A-1B"] and both_ways("1A-2B") == ["1A-2B"]


# --- whatever is asked ----------------------------------------------------------------------------

ODD = [None, True, -1, 0, 1e300, -1e300, HUGE, "", "a1:1-2", "h1", [], {}, [[]], "x" * 999, 0.5]
ODD += ["\x00"]
BODIES = [
    ("POST", "/plans", PLAN),
    ("POST", "/plans", {**PLAN, "upcoming": [PLAN["demand"]], "also": [["a1:1-a1:2"]], "now_s": 1}),
    ("POST", "/plans", {"circuits": ["a1:1-a1:2"], "pairs": [["h1", "h2"]], "time_dilation": 2}),
    ("PUT", "/pairs", {"pairs": [["h1", "h5"]], "routing": "placed", "bytes": [[1.0]]}),
    ("PUT", "/ocs/a1/circuits", {"circuits": ["a1:1-a1:2"], "delay_s": 0.0, "in_flight": "drop"}),
    (
        "PUT",
        "/ocs/a1/config_db",
        {"OCS_CROSS_CONNECT": {"1A-2B": {"a_side": "1A"}}, "OCS_PORT": {}},
    ),
    ("PATCH", TABLE, listed("1A-2B", "2A-1B")),
    ("PATCH", TABLE, patch(("remove", "1A-2B"), ("remove", "2A-1B"))),
]


def places(data, at=()):
    """Every place in JSON data."""
    yield at
    if isinstance(data, dict | list):
        for key, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(part, (*at, key))


def with_odd(data, at, odd):
    if not at:
        return odd
    data = copy.deepcopy(data)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = odd
    return data


POLICIES = st.text(st.sampled_from("demandstcphoulwi,=:.1e9-/\x00"), max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_odd_value_anywhere_in_a_request_brings_a_500(data):
    served = Served()
    method, path, body = data.draw(st.sampled_from(BODIES))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.sampled_from(list(places(body))))
        body = with_odd(body, at, data.draw(st.one_of(st.sampled_from(ODD), POLICIES)))
    status = rest.answer(served, method, path, json.dumps(body).encode()).status
    assert status in (200, 400, 404, 409), (status, body)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=60),
    st.sampled_from([b"", b"GET /epoch HTTP/1.1\r\nHost: localhost\r\n", HEAD]),
    st.sampled_from([b"", b"Content-Length: ", b"Host: ", b"Authorization: Bearer ", b"\r\n"]),
)
def test_no_bytes_at_all_bring_a_500_or_stop_the_controller(server, noise, begin, middle):
    heard = said(server, begin + middle + noise + b"\r\n\r\n")
    assert b"HTTP/1.1 500" not in heard
    assert ask(server, "GET", "/epoch")[0] == 200


DOCUMENT = schemathesis.openapi.from_dict(openapi.document())


@DOCUMENT.exclude(path="/events").parametrize()
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_requests_drawn_from_the_document_get_the_answers_it_promises(case, server):
    # which hosts and ports there are is not in the document: what it allows may still be refused
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{server.port}", excluded_checks=[positive_data_acceptance]
    )


def test_random_policies_and_routings_are_bad_requests_at_worst():
    rng, served = random.Random(4), Served()
    words = ["demand", "static", "own", "rotor", "window=1e300s", "window=nan", "slot=-1s", "="]
    words += [",", "granularity=stage", "slot=0s", "ring", "/etc/passwd", "../x.py:y", "x.py"]
    words.append("1" * 500)
    for _ in range(150):
        text = ",".join(rng.choices(words, k=rng.randint(1, 4)))
        for body in (changed(policy=text), {"pairs": [["h1", "h2"]], "routing": text}):
            method, path = ("POST", "/plans") if "policy" in body else ("PUT", "/pairs")
            reply = rest.answer(served, method, path, json.dumps(body).encode())
            assert reply.status in (200, 400, 429), (text, reply)


def test_a_file_that_was_not_listed_is_not_run_whatever_its_name(server, tmp_path):
    run = f"open({str(tmp_path / 'ran')!r}, 'w')"
    (tmp_path / "a,b.py").write_text(f"{run}\nroutings = {{'x': print}}")
    for name in ("a,b.py", "a,b.py:x", "a\x00.py", "a" * 300 + ".py"):
        body = {"pairs": [["h1", "h2"]], "routing": str(tmp_path / name)}
        assert ask(server, "PUT", "/pairs", body)[0] == 400
        assert ask(server, "POST", "/plans", changed(policy=str(tmp_path / name)))[0] == 400
    assert not (tmp_path / "ran").exists()
