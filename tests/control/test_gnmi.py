"""gNMI, as its clients speak it: pygnmi against a served controller over fake switches."""

import contextlib
import json
import re
import threading
import time
from types import SimpleNamespace

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
        ("127.0.0.1:65536", "write HOST:PORT"),
        (":9339", "write HOST:PORT"),
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


def test_two_gateways_do_not_share_a_port(server):
    client = Client(f"http://127.0.0.1:{server.port}")
    served, port = gateway.serve(client, "127.0.0.1:0")
    try:
        with pytest.raises(RFabricError, match="the address is taken"):
            gateway.serve(client, f"127.0.0.1:{port}")
    finally:
        served.stop(0)


# --- paths and subscriptions, without a wire ------------------------------------------------------


def path(*names, origin="", target="", **keys):
    """A path; the keys are those of its last element."""
    elems = [gnmi.PathElem(name=name) for name in names]
    if keys:
        elems[-1].key.update(keys)
    return gnmi.Path(elem=elems, origin=origin, target=target)


def with_ocses(*names):
    return SimpleNamespace(get=lambda _: {"ocs": [{"name": name} for name in names]})


@pytest.mark.parametrize(
    ("names", "prefix", "own", "found"),
    [
        (("a1", "a2"), "a1", "a2", "a1"), (("a1", "a2"), "", "a2", "a2"), (("a1",), "", "", "a1"),
        (("a1", "a2"), "", "", "the target names no OCS; there are a1, a2"),
        (("a1",), "a2", "", "no OCS 'a2'; there are a1"),
        ((), "", "", "the target names no OCS; there are none"),
    ],
)  # fmt: skip
def test_the_target_names_the_ocs_where_there_are_several(names, prefix, own, found):
    asked = with_ocses(*names), path(target=prefix), path(target=own)
    if found in names:
        assert gnmi_tree._ocs(*asked) == found
        assert found == own != prefix or gnmi_tree._ocs(*asked[:2]) == found
    else:
        with pytest.raises(gnmi_tree.Refused, match=found) as refused:
            gnmi_tree._ocs(*asked)
        assert refused.value.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("prefix", "own", "names"),
    [
        (path("a"), path("b"), ["a", "b"]),
        (path(origin="sonic-ocs"), path("sonic-ocs", "x"), ["sonic-ocs:sonic-ocs", "x"]),
        (path(), path("sonic-ocs", origin="sonic-ocs"), ["sonic-ocs:sonic-ocs"]),
        (path(), path("m:x", "y", origin="sonic-ocs"), ["m:x", "y"]),
        (path(), path("x", origin="openconfig"), ["x"]),
        (path(), path(origin="openconfig"), []),
        (path(), path(origin="rfabric-ocs"), ["rfabric-ocs:optical-circuit-switch"]),
        (path(origin="sonic-ocs-states"), path(), ["sonic-ocs-states:sonic-ocs-states"]),
    ],
)
def test_an_origin_is_the_module_of_the_first_name(prefix, own, names):
    assert [elem.name for elem in gnmi_tree._elems(prefix, own)] == names


def test_a_key_keeps_its_place_behind_an_origin():
    first, *_ = gnmi_tree._elems(path(), path("x", origin="sonic-ocs", k="v"))
    assert dict(first.key) == {"k": "v"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("m:a", "b"), 1), (("a", "b"), 1), (("a", "rows"), [{"id": 1}, {"id": 2}]),
        (("a", "c"), "no path /a/c$"), (("a", "b", "d"), "no path /a/b/d$"),
        (("x", "y"), "no path /x$"),
    ],
)  # fmt: skip
def test_a_path_leads_to_what_stands_there(asked, found):
    data = {"m:a": {"b": 1, "rows": [{"id": 1}, {"id": 2}]}}
    if isinstance(found, str):
        with pytest.raises(gnmi_tree.Refused, match=found):
            gnmi_tree._within(data, path(*asked).elem)
    else:
        assert gnmi_tree._within(data, path(*asked).elem) == found


ROW_AND_ROW = [{"id": 1, "n": "x"}, {"id": 2, "n": "x"}]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"id": "2"}, ROW_AND_ROW[1]), ({"id": "*"}, ROW_AND_ROW),
        ({"n": "x", "id": "*"}, ROW_AND_ROW), ({"n": "x"}, ROW_AND_ROW[0]),
        ({"id": "3"}, None), ({"id": "1", "n": "y"}, None), ({"other": "1"}, None),
    ],
)  # fmt: skip
def test_keys_choose_the_rows_of_a_list(keys, found):
    data = {"rows": ROW_AND_ROW, "b": 1}
    if found is None:
        said = "".join(f"[{k}={v}]" for k, v in sorted(keys.items()))
        with pytest.raises(gnmi_tree.Refused, match=re.escape(f"no path /rows{said}")):
            gnmi_tree._within(data, path("rows", **keys).elem)
    else:
        assert gnmi_tree._within(data, path("rows", **keys).elem) == found
    with pytest.raises(gnmi_tree.Refused):  # it is no list
        gnmi_tree._within(data, path("b", **keys).elem)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (path("sonic-ocs:sonic-ocs", "OCS_CROSS_CONNECT"), ""),
        (path("sonic-ocs", "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST"), ""),
        (path("sonic-ocs", "OCS_CROSS_CONNECT", "sonic-ocs:OCS_CROSS_CONNECT_LIST",
              cross_connect_id="1A-2B"), "1A-2B"),
        (path("sonic-ocs"), "/sonic-ocs cannot be set"), (path(), "cannot be set"),
        (path("sonic-ocs", "OCS_PORT"), "/sonic-ocs/OCS_PORT cannot be set"),
        (path("sonic-ocs", "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST", "a_side"), "cannot be"),
        (path("sonic-ocs", "OCS_CROSS_CONNECT", cross_connect_id="1A-2B"),
         "/sonic-ocs/OCS_CROSS_CONNECT.cross_connect_id=1A-2B. cannot be set"),
        (path("sonic-ocs", "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST", name="1A-2B"),
         "the key of OCS_CROSS_CONNECT_LIST is cross_connect_id, not name"),
    ],
)  # fmt: skip
def test_only_cross_connects_can_be_set(asked, named):
    if " " in named:
        with pytest.raises(gnmi_tree.Refused, match=named) as refused:
            gnmi_tree._key(path(), asked)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    else:
        assert gnmi_tree._key(path(), asked) == named


ONE = path("sonic-ocs", "OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_LIST", cross_connect_id="1A-2B")
WHOLE = path("sonic-ocs", "OCS_CROSS_CONNECT")


def update(where, value):
    data = json.dumps(value).encode()
    return gnmi.Update(path=where, val=gnmi.TypedValue(json_ietf_val=data))


def ordered(**words):
    """What a Set has the controller's client do."""
    done, client = [], with_ocses("a1", "a2")
    client.put_cross_connects = lambda ocs, rows: done.append((ocs, rows))
    client.edit_cross_connects = lambda ocs, edits: done.append((ocs, edits))
    gnmi_tree.order(client, gnmi.SetRequest(**words))
    (one,) = done
    return one


def test_a_set_is_one_order_for_one_ocs():
    row = {"cross_connect_id": "1A-2B", "a_side": "1A"}
    target = "/OCS_CROSS_CONNECT_LIST=1A-2B"
    merge = {"operation": "merge", "target": target, "value": {"OCS_CROSS_CONNECT_LIST": [row]}}
    prefix = path(target="a1")
    assert ordered(prefix=prefix, delete=[ONE]) == (
        "a1", [{"operation": "remove", "target": target}],
    )  # fmt: skip
    assert ordered(prefix=prefix, update=[update(ONE, {"a_side": "1A"})]) == ("a1", [merge])
    assert ordered(prefix=prefix, replace=[update(ONE, {"a_side": "1A"})] * 2) == (
        "a1", [merge] * 2,
    )  # fmt: skip
    assert ordered(prefix=prefix, update=[update(WHOLE, [row])]) == ("a1", [merge])
    rows = {"sonic-ocs:OCS_CROSS_CONNECT": {"OCS_CROSS_CONNECT_LIST": [row]}}
    for value in (rows, [row]):
        assert ordered(prefix=prefix, replace=[update(WHOLE, value)]) == ("a1", [row])
    own = path(*(elem.name for elem in WHOLE.elem), target="a2")
    assert ordered(replace=[update(own, [])]) == ("a2", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"replace": [update(WHOLE, []), update(WHOLE, [])]}, "goes alone in its Set"),
        ({"replace": [update(WHOLE, []), update(ONE, {})]}, "goes alone in its Set"),
        ({"replace": [update(WHOLE, [])], "delete": [ONE]}, "goes alone in its Set"),
        ({"replace": [update(WHOLE, [])], "update": [update(ONE, {})]}, "goes alone in its Set"),
        ({"delete": [path(target="a2")]}, "one Set changes one OCS"), ({}, "nothing to delete"),
        ({"update": [gnmi.Update(path=ONE)]}, "a value is JSON or JSON_IETF, not nothing"),
        ({"update": [gnmi.Update(path=ONE, val=gnmi.TypedValue(int_val=3))]}, "not int_val"),
    ],
)  # fmt: skip
def test_sets_that_make_no_sense_are_refused(words, said):
    with pytest.raises(gnmi_tree.Refused, match=said):
        ordered(prefix=path(target="a1"), **words)


@pytest.mark.parametrize(
    ("shown", "token"),
    [
        ({"authorization": "Bearer abc "}, "abc"), ({"authorization": "bearer abc"}, "abc"),
        ({"authorization": "Basic abc"}, ""), ({"password": "def"}, "def"), ({}, ""),
        ({"authorization": "Basic abc", "password": "def"}, "def"),
    ],
)  # fmt: skip
def test_a_token_is_a_bearers_or_gnmis_password(shown, token):
    context = SimpleNamespace(invocation_metadata=shown.items)
    assert gateway._token(context) == token
    answer = gateway.Service(Client(token="own"))._answered(context, lambda client: client.token)
    assert answer == (token or "own")


@pytest.mark.parametrize("ca", [True, False])
def test_clients_show_certificates_where_their_signer_is_named(ca, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(gateway, "read_tls", lambda *_: None)
    monkeypatch.setattr(gateway.grpc, "ssl_server_credentials", lambda *what: made.append(what))
    words = []
    for name in ("cert", "key", "ca")[: 3 if ca else 2]:
        (tmp_path / name).write_bytes(name.encode())
        words.append(f"{name}={tmp_path / name}")
    gateway._credentials(",".join(words))
    assert made == [([(b"key", b"cert")], b"ca" if ca else None, ca)]


def subscription(monkeypatch, values, **one):
    """A subscription to one path, on which these values stand one after the other."""
    told = iter(values)

    class Look:
        def __init__(self, *_):
            pass

        def value(self):
            return next(told)

        def notification(self, value):
            return gnmi.Notification(timestamp=value)

    monkeypatch.setattr(gateway, "Look", Look)
    asked = gnmi.SubscriptionList(subscription=[gnmi.Subscription(**one)])
    return gateway._Subscription(None, asked)


def stamps(answers):
    return [a.update.timestamp if a.HasField("update") else "sync" for a in answers]


def test_what_is_told_on_change_is_told_when_it_changes(monkeypatch):
    told = subscription(monkeypatch, [1, 1, 2, 2])
    assert stamps(told.all()) == [1, "sync"]
    assert [stamps(told.due(told.next[0])) for _ in range(3)] == [[], [2], []]


@pytest.mark.parametrize(("redundant", "again"), [(False, [1]), (True, [])])
def test_samples_are_told_when_their_time_has_come(redundant, again, monkeypatch):
    asked_at = time.monotonic()
    told = subscription(
        monkeypatch, [1, 1, 3, 3], mode=gnmi.SAMPLE, sample_interval=2_000_000_000,
        suppress_redundant=redundant,
    )  # fmt: skip
    told.all()
    (begin,) = told.next
    assert asked_at + 2.0 <= begin <= time.monotonic() + 2.0
    assert told.every == [2.0] and stamps(told.due(begin - 0.1)) == []
    assert stamps(told.due(begin)) == again and told.next == [begin + 2.0]
    assert stamps(told.due(begin + 1.9)) == [] and stamps(told.due(begin + 2.5)) == [3]


def test_nobody_is_told_more_often_than_the_controller_is_asked(monkeypatch):
    told = subscription(monkeypatch, [], mode=gnmi.SAMPLE, sample_interval=1)
    assert told.every == [gateway.POLL_S]


def test_the_verb_says_what_is_wrong(capsys):
    assert cli.main(["ocs", "gnmi", "a1"]) == 2
    assert "leave out 'a1'" in capsys.readouterr().err
    assert cli.main(["ocs", "gnmi", "--url", "http://127.0.0.1:9"]) == 1
    assert "is gone" in capsys.readouterr().err
