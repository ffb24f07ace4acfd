"""The REST client, by itself and over a socket: whom it calls, what it says, what it makes of the
answers.
"""

import http.client
import io
import json
import math
import ssl
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from ground import SMALL, all_pairs, inside_pods, other_circuits

from rfabric.control import client as module
from rfabric.control.client import Client, RefusedError, token_of
from rfabric.errors import RFabricError, RunError
from rfabric.optics import Circuits
from rfabric.routing.schemes import Routing, Sent


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080", "ftp://localhost", "http://", "//localhost:8080", "http://h:8080/epoch",
        "http://h:0", "http://h:65536", "http://h:x",
    ],
)  # fmt: skip
def test_an_address_is_a_host_and_a_port_that_tcp_has(url):
    with pytest.raises(RFabricError, match=r"write http://HOST:PORT or https://HOST:PORT"):
        Client(url)


@pytest.mark.parametrize(
    ("url", "kind", "port"),
    [
        ("http://h", http.client.HTTPConnection, 80),
        ("http://h:1/", http.client.HTTPConnection, 1),
        ("https://h", http.client.HTTPSConnection, 443),
        ("https://h:65535", http.client.HTTPSConnection, 65535),
    ],
)
def test_where_no_port_is_named_it_is_that_of_the_scheme(url, kind, port, monkeypatch):
    trusted = []
    real = ssl.create_default_context
    monkeypatch.setattr(
        module.ssl, "create_default_context", lambda cafile: trusted.append(cafile) or real()
    )
    made = Client(url, timeout=7.0)._connection(urlsplit(url))
    assert type(made) is kind and (made.host, made.port, made.timeout) == ("h", port, 7.0)
    assert trusted == ([None] if url.startswith("https") else [])
    if trusted:
        Client(url, ca="signed.pem")._connection(urlsplit(url))
        assert trusted[1] == "signed.pem"


def answering(monkeypatch, status, body):
    """What a controller is sent that always says this."""
    heard = []

    class Connection:
        def __init__(self, *where, **more):
            pass

        def request(self, *what):
            heard.append(what)

        def getresponse(self):
            return SimpleNamespace(status=status, read=io.BytesIO(json.dumps(body).encode()).read)

        def close(self):
            heard.append("closed")

    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    return heard


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RefusedError), (404, RefusedError), (499, RefusedError), (500, RunError),
     (503, RunError), (201, RefusedError)],
)  # fmt: skip
def test_what_is_refused_is_told_from_what_went_wrong(status, kind, monkeypatch):
    answering(monkeypatch, status, {"error": "so it is"})
    with pytest.raises(kind, match=r"^controller: so it is$") as caught:
        Client().epoch()
    assert isinstance(caught.value, RunError) is (kind is RunError)
    assert getattr(caught.value, "status", 500) == (status if kind is RefusedError else 500)
    answering(monkeypatch, status, {})
    with pytest.raises(kind, match=f"^controller: status {status}$"):
        Client().epoch()


def test_only_what_has_a_body_sends_one(monkeypatch):
    heard = answering(monkeypatch, 200, {"epoch": 3})
    assert Client(token="abc").epoch() == 3
    Client().put("/pairs", {})
    (_, _, none, shown), _, (_, _, body, plain), _ = heard
    assert (none, body) == (None, b"{}") and heard[1] == heard[3] == "closed"
    assert shown["Authorization"] == "Bearer abc" and "Authorization" not in plain


def test_a_fabric_is_asked_for_where_a_routing_needs_one_that_is_not_there(monkeypatch):
    asked, put = [], []
    monkeypatch.setattr(Client, "fabric", lambda self: asked.append(1) or SMALL)
    monkeypatch.setattr(Client, "put", lambda self, path, body: put.append((path, body)))
    pairs = all_pairs(SMALL)[:2]
    ends = ([SMALL.host_index[pair[end]] for pair in pairs] for end in (0, 1))
    placed = Routing("placed", Sent(*ends, [[3.0, 4.0]]))
    Client().put_pairs(pairs)
    Client().put_pairs(pairs, placed, SMALL)
    assert not asked
    Client().put_pairs(pairs, placed)
    assert asked == [1] and put[1] == put[2] and put[1][1]["bytes"] == [[3.0, 4.0]]
    assert "bytes" not in put[0][1]


@pytest.mark.parametrize(("said", "seconds"), [(None, math.inf), (0.0, 0.0), (2.5, 2.5)])
def test_what_has_no_way_never_arrives(said, seconds, monkeypatch):
    plan = {
        "epoch": 1, "state": "PREPARED", "why": "", "least_window_s": 0.1, "later_s": 0.0,
        "wait": False, "others": [], "completion_s": said, "circuits_down": [], "circuits_up": [],
    }  # fmt: skip
    answering(monkeypatch, 200, plan)
    assert Client().plan_circuits(Circuits()).completion == seconds


@pytest.mark.parametrize(
    ("trouble", "said"), [("", "waiting for a1, a2"), ("a1 is odd", "a1 is odd")]
)
def test_who_waits_in_vain_is_told_for_what(trouble, said, monkeypatch):
    health = {"ready": False, "trouble": trouble, "waiting_for": ["a1", "a2"]}
    monkeypatch.setattr(Client, "health", lambda self: health)
    with pytest.raises(RunError, match=f"is not ready after 0.1 s: {said}$"):
        Client().wait_ready(0.1)
    health["ready"] = True
    checked = []
    assert Client().wait_ready(20.0, lambda: checked.append(1)) is health and checked == [1]


def test_a_token_is_read_of_the_file_that_is_named_or_else_of_the_environments(
    tmp_path, monkeypatch
):
    for name in ("named", "around"):
        (tmp_path / name).write_text(f"me {name}-{'x' * 20}\nother {'y' * 20}\n")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("RFABRIC_REST_TOKENS", str(tmp_path / "around"))
    assert token_of(str(tmp_path / "named")).startswith("named-")
    assert token_of().startswith("around-")
    monkeypatch.delenv("RFABRIC_REST_TOKENS")
    assert token_of() == ""


# --- over a socket --------------------------------------------------------------------------------


def test_the_client_drives_a_rewire(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    assert client.wait_ready(5)["ready"] and client.fabric() == SMALL and client.epoch() == 0
    client.put_pairs(all_pairs(SMALL))
    demand = inside_pods(phase="training")
    planned = client.plan(
        "demand",
        demand,
        all_pairs(SMALL),
        1.0,
        upcoming=[demand],
        time_dilation=2,
        in_flight="drain",
    )
    assert planned.rewire and planned.why.startswith("demand:") and planned.state == "PREPARED"
    done = client.commit(planned.epoch)
    assert done.circuits_changed == planned.rewire.size and done.usable - done.programmed >= 0.02
    assert client.circuits() == server.served.core.epochs.circuits and client.epoch() == 1
    again = client.plan("demand", demand, all_pairs(SMALL))
    assert not again.rewire and again.state == "UNCHANGED"
    other = client.plan_circuits(Circuits())
    assert client.abort(other.epoch)["state"] == "ABORTED" and len(client.plans()) == 2


def test_the_client_tells_bad_input_from_a_broken_run(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    with pytest.raises(RFabricError, match="controller: no plan 7") as error:
        client.commit(7)
    assert not isinstance(error.value, RunError)
    planned = client.plan_circuits(other_circuits(SMALL))
    server.served.switches.moods["a2"] = "refusing"
    with pytest.raises(
        RunError, match="plan 1 failed: tearing down circuits: a2 refused: FLOW_MOD_FAILED"
    ):
        client.commit(planned.epoch)
    with pytest.raises(RunError, match="is not ready after 0.2 s: waiting for a2"):
        client.wait_ready(0.2)
    gone = Client("http://127.0.0.1:9", timeout=1)
    with pytest.raises(RunError, match="the controller at http://127.0.0.1:9 is gone"):
        gone.epoch()
    with pytest.raises(RFabricError, match="write http://HOST:PORT"):
        Client("localhost:8080")
