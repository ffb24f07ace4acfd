"""Limits of the controller met to the last unit, and what is said where little is known."""

import http.client
import logging
import struct
from types import SimpleNamespace

import pytest

from rfabric.control import border, flowmods, frames, logs, schema
from rfabric.control.app import FabricApp
from rfabric.control.client import Client
from rfabric.errors import RFabricError, RunError

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
        logs.audit("peer", "", "POST", "/" + 400 * "x", status, {"epoch": 3, "more": 4})
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
