"""gNMI, as its clients speak it: pygnmi against a served controller over fake switches."""

import contextlib
import json
import threading

import pytest
import test_border
from test_border import SECRET, serving

pytest.importorskip("pygnmi", reason="pygnmi is not installed (rfabric[gnmi])")

import grpc
from pygnmi.client import gNMIclient, gNMIException
from pygnmi.spec.v080 import gnmi_pb2 as gnmi
from pygnmi.spec.v080 import gnmi_pb2_grpc as stubs

from rfabric import cli
from rfabric.control import border, gnmi_tree
from rfabric.control import gnmi as gateway
from rfabric.control.client import Client
from rfabric.errors import RFabricError

certificate = test_border.certificate  # a fixture
LIST = "sonic-ocs:sonic-ocs/OCS_CROSS_CONNECT/OCS_CROSS_CONNECT_LIST"


def connect(name):
    return f"{LIST}[cross_connect_id={name}]"


def sides(name):
    a, b = name.split("-")
    return {"a_side": a, "b_side": b}


@contextlib.contextmanager
def speaking(server, password="", tls="", **client):
    own = Client(f"http://127.0.0.1:{server.port}")
    served, port = gateway.serve(own, "127.0.0.1:0", tls)
    wire = client or {"insecure": True}
    try:
        with gNMIclient(("127.0.0.1", port), password=password, **wire) as speaker:
            yield speaker
    finally:
        served.stop(0)


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def client(server):
    with speaking(server) as client:
        yield client


@contextlib.contextmanager
def refused(code, text=""):
    """pygnmi's exceptions hold gRPC's."""
    with pytest.raises(gNMIException) as caught:
        yield
    assert caught.value.orig_exc.code() is getattr(grpc.StatusCode, code)
    assert text in caught.value.orig_exc.details()


def values(answer):
    return [update["val"] for note in answer["notification"] for update in note.get("update", [])]


def lit(server, ocs="a1"):
    return {str(c) for c in server.core.epochs.circuits.of(ocs)}


def test_capabilities_name_models_and_encodings(client):
    told = client.capabilities()
    assert {m["name"] for m in told["supported_models"]} == set(gnmi_tree.MODELS)
    assert told["supported_encodings"] == ["json", "json_ietf"] and told["gnmi_version"] == "0.8.0"


def test_get_answers_what_rest_answers(server, client):
    rest = Client(f"http://127.0.0.1:{server.port}")
    for name in gnmi_tree.DOCUMENTS["ALL"]:
        (told,) = values(client.get(path=[f"/{name}"], target="a1"))
        assert told == rest.ocs_document("a1", name)[name]
    assert values(client.get(path=[connect("1A-3B")], target="a1")) == [
        {"cross_connect_id": "1A-3B", "a_side": "1A", "b_side": "3B"}
    ]
    (rows,) = values(client.get(path=[connect("*")], target="a1"))
    assert [row["cross_connect_id"] for row in rows] == ["1A-3B", "2A-4B", "3A-1B", "4A-2B"]
    (whole,) = values(client.get(path=[], target="a2"))
    assert set(whole) == set(gnmi_tree.DOCUMENTS["ALL"])
    (some,) = values(client.get(path=[], target="a2", datatype="config"))
    assert set(some) == {"sonic-ocs:sonic-ocs"}
    assert values(client.get(path=["/sonic-ocs:sonic-ocs"], target="a1", datatype="state")) == []


def test_one_set_is_one_commit(server, client):
    epoch = server.core.epochs.active
    gone, new = ("1A-3B", "3A-1B", "2A-4B", "4A-2B"), ("1A-2B", "2A-1B")
    done = client.set(
        delete=[connect(name) for name in gone],
        update=[(connect(name), sides(name)) for name in new],
        target="a1",
    )
    assert [one["op"] for one in done["response"]] == ["DELETE"] * 4 + ["UPDATE"] * 2
    assert lit(server) == {"a1:1-a1:2"} and server.core.epochs.active == epoch + 1
    rows = [{"cross_connect_id": n} | sides(n) for n in ("3A-4B", "4A-3B")]
    table = LIST.rpartition("/")[0]
    client.set(replace=[(table, {"OCS_CROSS_CONNECT_LIST": rows})], target="a1")
    assert lit(server) == {"a1:3-a1:4"}
    client.set(replace=[(table, {"OCS_CROSS_CONNECT_LIST": []})], target="a1")
    assert lit(server) == set()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"delete": [connect("1A-3B")]}, "3A-1B lacks its way back"),
        ({"delete": [LIST]}, "delete names a cross-connect"),
        ({"delete": ["/sonic-ocs-states:sonic-ocs-states/OCS_PORT"]}, "OCS_PORT cannot be set"),
        ({"update": [(connect("1A-2B"), {"a_side": "4A"})]}, "its a_side is 1A, not '4A'"),
        ({"update": [(connect("1A-2B"), {"colour": 1})]}, "unknown key 'colour'"),
        ({"update": [(connect("1A-2B"), 5)]}, "a cross-connect is an object"),
        ({"update": [(LIST, {})]}, "the table is an object with the list"),
        ({"update": [(f"{LIST}[name=1A-2B]", {})]}, "the key of OCS_CROSS_CONNECT_LIST is cross_c"),
        ({"replace": [(LIST, [])], "delete": [connect("1A-3B")]}, "goes alone in its Set"),
        ({"replace": [(LIST, [])], "update": [(connect("1A-2B"), {})]}, "goes alone in its Set"),
        ({}, "nothing to delete, replace or update"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_moves(server, client, words, text):
    before = lit(server)
    with refused("INVALID_ARGUMENT", text):
        client.set(**words, target="a1")
    assert lit(server) == before and server.core.epochs.active == 0


@pytest.mark.parametrize(
    ("path", "target", "text"),
    [
        ("/sonic-ocs:sonic-ocs", "a9", "no OCS 'a9'; there are a1, a2"),
        ("/sonic-ocs:sonic-ocs", "", "the target names no OCS; there are a1, a2"),
        ("/openconfig-interfaces:interfaces", "a1", "no path /interfaces; there are sonic-ocs:"),
        (connect("1A-4B"), "a1", "OCS_CROSS_CONNECT_LIST[cross_connect_id=1A-4B]"),
    ],
)
def test_what_is_not_there_is_said(client, path, target, text):
    with refused("NOT_FOUND", text):
        client.get(path=[path], target=target)


def asked(how, path=(), **more):
    elems = [gnmi.PathElem(name=name) for name in path]
    one = gnmi.Subscription(path=gnmi.Path(elem=elems), **more)
    return gnmi.SubscribeRequest(
        subscribe=gnmi.SubscriptionList(
            prefix=gnmi.Path(target="a1"), subscription=[one], mode=how, encoding=gnmi.JSON_IETF
        )
    )


@contextlib.contextmanager
def subscribed(server, *requests):
    served, port = gateway.serve(Client(f"http://127.0.0.1:{server.port}"), "127.0.0.1:0")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answers = stubs.gNMIStub(channel).Subscribe(iter(requests), timeout=20)
        try:
            yield answers
        finally:
            answers.cancel()
            served.stop(0)


def names_in(answer):
    (update,) = answer.update.update
    return [row["cross_connect_id"] for row in json.loads(update.val.json_ietf_val)]


def test_other_encodings_are_not_implemented(server):
    request = asked(gnmi.SubscriptionList.ONCE)
    request.subscribe.encoding = gnmi.PROTO
    said = pytest.raises(grpc.RpcError, match="encoding PROTO; there are JSON and JSON_IETF")
    with subscribed(server, request) as answers, said:
        next(answers)


ROWS = ("sonic-ocs", "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST")


def test_a_subscriber_hears_of_a_change_and_of_nothing_else(server):
    with subscribed(server, asked(gnmi.SubscriptionList.STREAM, ROWS)) as answers:
        assert names_in(next(answers)) == ["1A-3B", "2A-4B", "3A-1B", "4A-2B"]
        assert next(answers).sync_response
        rest = Client(f"http://127.0.0.1:{server.port}")
        later = threading.Timer(0.5, rest.cross_connect, ("disconnect", "a1", ["1-3"]))
        later.start()
        assert names_in(next(answers)) == ["2A-4B", "4A-2B"]
        later.join()


def test_samples_come_whether_anything_changed_or_not(server):
    every = {"mode": gnmi.SAMPLE, "sample_interval": 300_000_000}
    with subscribed(server, asked(gnmi.SubscriptionList.STREAM, ROWS, **every)) as answers:
        told = [next(answers) for _ in range(4)]
    assert told[1].sync_response
    assert names_in(told[0]) == names_in(told[2]) == names_in(told[3])


def test_once_ends_and_poll_answers_each_poll(server):
    with subscribed(server, asked(gnmi.SubscriptionList.ONCE, ROWS)) as answers:
        assert [a.sync_response for a in answers] == [False, True]
    poll = gnmi.SubscribeRequest(poll=gnmi.Poll())
    with subscribed(server, asked(gnmi.SubscriptionList.POLL, ROWS), poll, poll) as answers:
        assert [a.sync_response for a in answers] == [False, True] * 3
    with subscribed(server, poll) as answers, pytest.raises(grpc.RpcError, match="says to what"):
        next(answers)


def test_the_callers_token_is_what_counts():
    guarded = border.Border({SECRET: "me"})
    with serving(border=guarded) as server:
        with speaking(server, password=SECRET) as client:
            assert values(client.get(path=[connect("1A-3B")], target="a1"))
        unknown = refused("UNAUTHENTICATED", "a token is needed")
        with speaking(server, password="wrong-wrong-wrong-wrong") as client, unknown:
            client.get(path=[connect("1A-3B")], target="a1")


def test_a_controller_that_is_gone_is_unavailable(server):
    with speaking(server) as client:
        server.shutdown()
        server.server_close()
        with refused("UNAVAILABLE", "is gone"):
            client.get(path=["/"], target="a1")


def test_it_speaks_tls(server, certificate):
    cert, key = certificate
    tls = f"cert={cert},key={key}"
    trust = {"path_cert": str(cert), "override": "localhost"}
    with speaking(server, tls=tls, **trust) as client:
        assert values(client.get(path=[connect("1A-3B")], target="a1"))


@pytest.mark.parametrize(
    ("listen", "text"),
    [
        ("9339", "write HOST:PORT"),
        ("127.0.0.1:x", "write HOST:PORT"),
        ("127.0.0.1:70000", "write HOST:PORT"),
        ("0.0.0.0:9339", "add --tls"),
    ],
)
def test_addresses_that_cannot_be_are_refused(server, listen, text):
    with pytest.raises(RFabricError, match=text):
        gateway.serve(Client(f"http://127.0.0.1:{server.port}"), listen)


def test_others_reach_it_only_where_a_token_is_asked_for(server, certificate):
    tls = "cert={},key={}".format(*certificate)
    with pytest.raises(RFabricError, match="asks nobody for a token; start it with --tokens"):
        gateway.serve(Client(f"http://127.0.0.1:{server.port}"), "0.0.0.0:0", tls)
    with serving(border=border.Border({SECRET: "me"})) as guarded:
        own = Client(f"http://127.0.0.1:{guarded.port}", token=SECRET)
        served, port = gateway.serve(own, "0.0.0.0:0", tls)
        trust = {"path_cert": str(certificate[0]), "override": "localhost"}
        shown = refused("UNAUTHENTICATED", "a token is needed")
        with gNMIclient(("127.0.0.1", port), **trust) as client, shown:
            client.get(path=["/"], target="a1")
        served.stop(0)


def test_a_port_that_is_taken_is_refused(server):
    client = Client(f"http://127.0.0.1:{server.port}")
    with pytest.raises(RFabricError, match="the address is taken"):
        gateway.serve(client, f"127.0.0.1:{server.port}")


def test_the_verb_says_what_is_wrong(capsys):
    assert cli.main(["ocs", "gnmi", "a1"]) == 2
    assert "leave out 'a1'" in capsys.readouterr().err
    assert cli.main(["ocs", "gnmi", "--url", "http://127.0.0.1:9"]) == 1
    assert "is gone" in capsys.readouterr().err
