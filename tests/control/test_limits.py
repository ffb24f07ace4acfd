"""Limits of the controller met to the last unit, and what is said where little is known."""

import argparse
import errno
import http.client
import logging
import resource
import signal
import socket
import struct
import sys
import time
from types import SimpleNamespace

import pytest
from ground import SMALL, demand_of

from rfabric.control import border, flowmods, frames, launch, logs, openapi, rest, schema, sonic
from rfabric.control.app import FabricApp
from rfabric.control.client import Client
from rfabric.errors import RFabricError, RunError
from rfabric.trace import TraceBuilder, routing_of

# --- REST -----------------------------------------------------------------------------------------


def test_an_error_without_a_text_is_told_by_its_kind(monkeypatch):
    for error, said in (
        (http.client.ResponseNotReady(), "ResponseNotReady"),
        (ConnectionResetError(), "ConnectionResetError"),
        (OSError("no route"), "no route"),
    ):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(http.client.HTTPConnection, "request", fails)
        with pytest.raises(RunError, match=f"is gone: /epoch: {said}$"):
            Client("http://127.0.0.1:9").epoch()


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_only_who_is_reachable_without_tls_is_warned(tmp_path, caplog, host, warns):
    caplog.set_level(logging.WARNING)
    told = {"RFABRIC_REST_HOST": host, "RFABRIC_REST_TOKENS": str(tmp_path / "tokens")}
    border.from_environment(told)
    assert any("tokens cross the network readably" in line for line in caplog.messages) == warns


def test_the_size_of_a_body_is_read_to_the_last_byte():
    most = schema.MAX_BODY
    assert [schema.body_size(text) for text in ("0", "007", str(most))] == [0, 7, most]
    assert schema.body_size("0" * 18) == 0  # as many digits as are read
    for text in (str(most + 1), "0" * 19):
        with pytest.raises(schema.TooLargeError, match=f"the limit is {most}"):
            schema.body_size(text)
    for text in ("", "-1", "1e3", "\u0663"):
        with pytest.raises(RFabricError, match="must be a whole number of bytes"):
            schema.body_size(text)


def test_lists_may_stand_within_lists_as_deep_as_said():
    for depth in (1, schema.MAX_DEPTH):
        assert isinstance(schema.parse_json(b"[" * depth + b"]" * depth), list)
    with pytest.raises(RFabricError, match=f"nested deeper than {schema.MAX_DEPTH} lists"):
        schema.parse_json(b"[" * (schema.MAX_DEPTH + 1) + b"]" * (schema.MAX_DEPTH + 1))


def test_an_order_is_audited_with_the_begin_of_its_path_and_louder_if_it_failed(caplog):
    caplog.set_level(logging.INFO, "rfabric.audit")
    for status in (200, 399, 400, 500):
        logs.audit("peer", None, "POST", "/" + 400 * "x", status, {"epoch": 3, "more": 4})
    assert [r.levelname for r in caplog.records] == ["INFO", "INFO", "WARNING", "WARNING"]
    fields = caplog.records[0].fields
    assert fields["path"] == "/" + 299 * "x" and fields["token"] is None
    assert fields["epoch"] == 3 and "more" not in fields


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dpids", [[], [3, 4]])
def test_only_switches_that_went_of_a_fabric_that_is_known_are_told(known, dpids):
    told = []
    core = SimpleNamespace(gone=told.append) if known else None
    FabricApp._switches_went(SimpleNamespace(core=core), dpids)
    assert told == ([dpids] if known and dpids else [])


# --- OpenFlow and ARP -----------------------------------------------------------------------------


def test_flows_are_asked_for_of_all_tables_and_by_the_whole_cookie():
    """OpenFlow 1.3.5, 7.3.5.2: cookie and mask; a mask of no bits asks for all."""
    for cookie, asked in ((None, (0, 0)), (7, (7, 2**64 - 1)), (0, (0, 2**64 - 1))):
        request = flowmods.ask_flows(cookie)
        assert struct.unpack_from("!QQ", request, 32) == asked
        assert struct.unpack_from("!BBH", request) == (4, 18, len(request))
        assert struct.unpack_from("!H", request, 8) == (1,) and request[16] == 0xFF
    counted = flowmods.count_ports()
    assert struct.unpack_from("!BBH", counted) == (4, 18, len(counted))
    assert struct.unpack_from("!H", counted, 8) == (4,) and counted[16:20] == b"\xff" * 4


def test_frames_that_are_cut_short_say_nothing():
    mac, ip = bytes(range(6)), bytes([10, 0, 0, 1])
    arp = bytes(12) + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + ip + bytes(6) + ip
    packet = frames.parse(arp)
    assert len(arp) == 42 and packet.request and packet.src == packet.dst == "10.0.0.1"
    assert packet.src_mac == mac and frames.parse(arp[:41]) is None
    reply = arp[:20] + struct.pack("!H", 2) + arp[22:]
    assert not frames.parse(reply).request
    ipv4 = bytes(12) + struct.pack("!H", 0x0800) + bytes(12) + ip + bytes([10, 0, 0, 2])
    assert len(ipv4) == 34 and frames.parse(ipv4).dst == "10.0.0.2"
    assert frames.parse(ipv4[:33]) is None and frames.parse(b"\0" * 60) is None


# --- how it is started ----------------------------------------------------------------------------


def test_the_command_line_has_the_defaults_that_it_tells():
    parser = argparse.ArgumentParser()
    launch.control_options(parser)
    said = vars(parser.parse_args([]))
    assert (said.pop("ofp_port"), said.pop("ofp_host"), said.pop("port")) == (6653, "127.0.0.1", 0)
    assert not any(said.values())
    assert launch.command() == [sys.executable, "-m", "rfabric.control", "--ofp-port", "6653"]


def test_the_python_of_the_framework_takes_over_where_it_is_another(monkeypatch):
    became, ran, environment = [], [], {}
    listener = SimpleNamespace(fileno=lambda: 7)
    monkeypatch.setattr(launch.os, "environ", environment)
    monkeypatch.setattr(launch, "listen", lambda use, host, port: listener)
    monkeypatch.setattr(launch.os, "execv", lambda *what: became.append(what))
    monkeypatch.setattr(launch.signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(launch, "run_apps", lambda *what: ran.append(what))
    monkeypatch.setattr(launch.seam, "interpreter", lambda: sys.executable)
    launch.run("mine.py", 7000, "::1", topo="fat-tree,k=4")
    assert not became and ran == [(["mine.py"], "::1", 7000)]  # one's own app, whatever the fabric
    monkeypatch.setattr(launch.seam, "interpreter", lambda: "/other/bin/python")
    launch.run("mine.py", 7000, "::1")
    words = ["-m", "rfabric.control", "mine.py", "--ofp-port", "7000", "--ofp-host", "::1"]
    assert became == [("/other/bin/python", ["/other/bin/python", *words])]
    assert environment[launch.LISTENER] == "7"


@pytest.mark.parametrize(
    ("ends", "code"), [(RFabricError("no such fabric"), 2), (KeyError("a"), 1), (None, 1)]
)
def test_how_it_ended_is_the_exit_code_and_to_be_told_to_stop_is_no_error(
    ends, code, monkeypatch, capsys
):
    codes, handlers = [], {}

    class Exited(BaseException):
        pass

    def exits(code):
        codes.append(code)
        raise Exited

    def runs(names, options, listener, doorman):
        assert options == ["--ofp-listen-host=::1", "--ofp-tcp-listen-port=7000"]
        assert (listener, doorman) == (("::1", 7000), None)
        if ends:
            raise ends

    hub = SimpleNamespace(patch=lambda: None)
    monkeypatch.setattr(launch, "_listener", lambda *where: where)
    monkeypatch.setattr(launch.seam, "prepare", lambda _: hub)
    monkeypatch.setattr(launch.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(launch, "_exit", exits)
    monkeypatch.setattr(launch, "_run", runs)
    with pytest.raises(Exited):
        launch.run_apps(["json"], "::1", 7000)
    assert codes == [code]
    assert ("rfabric: no such fabric" in capsys.readouterr().err) is (code == 2)
    for number in (signal.SIGTERM, signal.SIGINT):
        with pytest.raises(Exited):
            handlers[number](number, None)
    assert codes[1:] == [0, 0]


def test_a_hung_switch_is_given_up_after_fifteen_questions(monkeypatch):
    told = {}

    class Conf:
        def __call__(self, **what):
            told.update(what)

        def set_override(self, name, value):
            told[name] = value

    manager = SimpleNamespace(
        load_apps=lambda names: told.update(names=names), create_contexts=dict,
        instantiate_apps=lambda: ["a service"],
    )  # fmt: skip
    stack = SimpleNamespace(
        AppManager=SimpleNamespace(get_instance=lambda: manager), cfg=SimpleNamespace(CONF=Conf()),
        hub=SimpleNamespace(joinall=lambda services: told.update(services=services)),
        controller=SimpleNamespace(),
    )  # fmt: skip
    monkeypatch.setattr(launch.seam, "framework", lambda: stack)
    monkeypatch.setattr(launch.seam, "version", lambda: "ryu")
    monkeypatch.setattr(launch.logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(launch, "write_json_lines", lambda _: None)
    launch._run(["an app"], ["--x"], None, None)
    assert told["echo_request_interval"] == 1.0
    assert told["maximum_unreplied_echo_requests"] == 15
    assert (told["names"], told["args"], told["services"]) == (["an app"], ["--x"], ["a service"])


def test_an_app_is_a_file_or_a_module(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x = 1\n")
    for app in ("json", "os.path", str(plain)):
        assert launch._checked(app) == app
    for app in ("none.py", "no/such/app", "no_such_module", str(tmp_path)):
        with pytest.raises(RFabricError, match=f"controller app {app}: no such file or module"):
            launch._checked(app)


def test_openflow_may_have_any_port_that_tcp_has(monkeypatch):
    claimed = []
    monkeypatch.setattr(launch, "listen", lambda *what: claimed.append(what))
    for port in (1, 65535):
        launch._listener("::1", port)
    assert claimed == [("OpenFlow address", "::1", port) for port in (1, 65535)]


def test_bad_words_on_the_command_line_end_it_with_code_two(capsys):
    with pytest.raises(SystemExit) as ended:
        launch.main(["--topo", "nowhere"])
    assert ended.value.code == 2 and "rfabric: no fabric named 'nowhere'" in capsys.readouterr().err


# --- what is sent and told ------------------------------------------------------------------------


def test_who_is_refused_in_the_midst_of_sending_is_read_on_for_a_second_or_a_mebibyte():
    asked, shut, raw = [], [], SimpleNamespace(until=0.0)

    def read1(most):
        asked.append(most)
        return bytes(most)

    wire = SimpleNamespace(shutdown=shut.append)
    handler = SimpleNamespace(connection=wire, rfile=SimpleNamespace(raw=raw, read1=read1))
    rest.Handler._linger(handler)
    assert sum(asked) == 2**20 and shut == [socket.SHUT_WR]
    assert 0.5 < raw.until - time.monotonic() <= 1.0
    handler.rfile.read1 = lambda most: asked.append(most) or b""  # all of it has come
    asked.clear()
    rest.Handler._linger(handler)
    assert len(asked) == 1


def test_who_never_says_what_he_wants_is_left_and_the_log_alone_tells_it(
    monkeypatch, caplog, capfd
):
    monkeypatch.setattr(rest, "PATIENCE_S", 0.1)
    caplog.set_level(logging.DEBUG, "rfabric.control.rest")
    here, there = socket.socketpair()
    with here:
        here.sendall(b"GET /epo")
        with there:
            rest.Handler(there, ("192.0.2.7", 5), None)
        assert here.recv(100) == b""
    (said,) = [record.getMessage() for record in caplog.records]
    assert "192.0.2.7" in said and "timed out" in said and capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"policy": "demand", "sending": [0] * 10_001}, "sending: 10001 items; the limit is 10000"),
        ({"policy": "demand", "follows": [1] * 10_001}, "follows: 10001 items; .* is 10000 places"),
        ({"routing": "x" * 1001}, "routing: 'x.* has 1001 characters; the limit is 1000"),
        ({"routing": "placed", "bytes": [[1.0]] * 10_001}, "bytes: 10001 items; .* is 10000 rows"),
    ],
)
def test_limits_of_lists_and_names_are_told(body, text):
    pairs = [["h1", "h2"]]
    with pytest.raises(RFabricError, match=text):
        if "routing" in body:
            schema.pairs_request({"pairs": pairs, **body}, SMALL)
        demand = schema.demand_json(demand_of(SMALL))
        if "follows" in body:
            demand["follows"] = body.pop("follows")
        schema.plan_request({"demand": demand, **body}, SMALL)


def test_what_is_just_within_a_limit_is_taken():
    two = schema.Limit(2, unit="things")
    assert schema.a_list([1, 2], "x", two) == [1, 2] and schema.a_text("ab", "x", two) == "ab"
    for error in (lambda: schema.a_list([1] * 3, "x", two), lambda: schema.a_text("abc", "x", two)):
        with pytest.raises(RFabricError, match="the limit is 2"):
            error()
    assert schema._number(3600, "delay_s") == 3600.0 and schema._number(0, "delay_s") == 0.0
    whole = schema.pairs_request(
        {"pairs": [["h1", "h2"]], "routing": "placed", "bytes": [[1.0]] * 64}, SMALL
    )
    assert whole[1].sent.bytes.shape == (64, 1)
    assert schema.pairs_request({"pairs": [], "routing": "ecmp"}, SMALL)[0] == ()


def test_a_job_that_sends_nothing_asks_for_no_pairs():
    """As one on one server does."""
    b = TraceBuilder(SMALL.hosts)
    b.compute(0, 1.0, phase="training", label="forward")
    routing = routing_of("placed", SMALL, b.build())
    asked = schema.pairs_json([], routing, SMALL)
    assert schema.pairs_request(asked, SMALL)[0] == ()
    with pytest.raises(RFabricError, match="bytes must be rows of 1 numbers"):
        schema.pairs_request({"pairs": [["h1", "h2"]], "routing": "placed", "bytes": []}, SMALL)


def test_a_demand_follows_the_one_before_it_unless_it_says_otherwise():
    body = schema.demand_json(demand_of(SMALL))
    del body["follows"]
    assert schema.demand(body, SMALL, "demand").follows == (1,)


def test_long_values_are_cut_short_where_an_error_repeats_them():
    assert schema.short("x" * 198) == repr("x" * 198)  # 200 characters with its quotes
    assert schema.short("x" * 199) == f"'{'x' * 199}... (201 characters)"


def test_the_document_says_what_must_be_there_and_what_numbers_may_be():
    document = openapi.document()
    schemas = document["components"]["schemas"]
    needed = {name: tuple(schemas[name]["required"]) for name in schemas}
    assert needed["Error"] == ("error",) and needed["ConfigDb"] == ("OCS_CROSS_CONNECT",)
    assert needed["CrossConnects"] == ("sonic-ocs:OCS_CROSS_CONNECT",)
    assert needed["YangPatch"] == (sonic.PATCH,)
    rows = schemas["CrossConnects"]["properties"]["sonic-ocs:OCS_CROSS_CONNECT"]
    assert rows["required"] == [sonic.LIST]
    row = rows["properties"][sonic.LIST]["items"]
    assert row["required"] == ["cross_connect_id"] and len(row["properties"]) == 3
    patch = schemas["YangPatch"]["properties"][sonic.PATCH]
    assert patch["required"] == ["edit"]
    assert patch["properties"]["edit"]["items"]["required"] == ["operation", "target"]
    pair = schemas["Pairs"]["properties"]["pairs"]["items"]
    assert (pair["minItems"], pair["maxItems"]) == (2, 2)
    assert schemas["Demand"]["properties"]["follows"]["items"]["minimum"] == 1
    paths = document["paths"]
    (epoch,) = paths["/plans/{epoch}"]["parameters"]
    assert epoch["schema"] == {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    bodies = {
        (path, method): one["requestBody"]["required"]
        for path, methods in paths.items()
        for method, one in methods.items()
        if "requestBody" in one
    }
    free = {path for (path, _), required in bodies.items() if not required}
    assert free == {"/plans/{epoch}/commit", "/plans/{epoch}/abort"}
    methods = {
        (path, m) for path, one in paths.items() for m in one if m in ("put", "post", "patch")
    }
    assert set(bodies) == methods


def test_the_document_says_what_is_answered():
    paths = openapi.document()["paths"]

    def answered(path, method="get"):
        return paths[path][method]["responses"]["200"]["content"]

    assert set(answered("/metrics")) == {"text/plain"}
    assert set(answered("/events")) == {"text/event-stream"}
    assert answered("/metrics")["text/plain"]["schema"] == {"type": "string"}
    plan = {"schema": {"$ref": "#/components/schemas/Plan"}}
    for path, method in (("/plans", "post"), ("/plans/{epoch}", "get"),
                         ("/plans/{epoch}/commit", "post")):  # fmt: skip
        assert answered(path, method)["application/json"] == plan
    assert answered("/plans")["application/json"] != plan
    assert answered("/epoch")["application/json"]["schema"]["required"] == ["epoch", "circuits"]
    table = next(p for p in paths if p.endswith("OCS_CROSS_CONNECT") and "patch" in paths[p])
    taken = {
        m: len(paths[table][m]["requestBody"]["content"]["application/json"]["schema"]["anyOf"])
        for m in ("put", "patch")
    }
    assert taken == {"put": 1, "patch": 2}
    assert all(name["name"] in ("ocs", "epoch") for p in paths.values() for name in
               p.get("parameters", ()))  # fmt: skip


def server_of(handle, listener=None):
    """The framework's, limited."""
    made = border._limited(lambda _, handle: SimpleNamespace(handle=handle, server=listener))
    return made(None, handle)


def test_who_waits_for_descriptors_goes_on_when_there_are_some(monkeypatch):
    slept, comes = [], [OSError(errno.EMFILE, "many"), OSError(errno.ENFILE, "all"), ("link", "a")]

    def accept():
        if isinstance(come := comes.pop(0), OSError):
            raise come
        return come

    hub = SimpleNamespace(sleep=slept.append)
    monkeypatch.setattr(border.seam, "framework", lambda: SimpleNamespace(hub=hub))
    door = server_of(None, SimpleNamespace(accept=accept)).server
    assert door.accept() == ("link", "a") and slept == [0, border.WITHOUT_S, border.WITHOUT_S]
    comes.append(OSError(errno.EBADF, "closed"))
    with pytest.raises(OSError, match="closed"):
        door.accept()


@pytest.mark.parametrize("may", [6, 7, 10**6, resource.RLIM_INFINITY])
def test_connections_beyond_what_fits_are_closed_until_there_is_room(may, monkeypatch, caplog):
    monkeypatch.setattr(border, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr("resource.getrlimit", lambda _: (may, may))
    inside, closed = [], []

    class Connection:
        def close(self):
            closed.append(self)

    def handle(connection, peer):
        """While it is served, one more comes."""
        inside.append(connection)
        if len(inside) < 5:
            serve(Connection(), len(inside))

    serve = server_of(handle).handle
    serve(Connection(), 0)
    assert len(inside) == 3 and len(closed) == 1
    assert [record.message for record in caplog.records] == [
        "3 connections to OpenFlow: further ones are closed"
    ]
    inside.clear()
    serve(Connection(), 0)
    assert len(inside) == 3  # those before have ended
