"""REST over fake switches: from a plan to its epoch, what is refused, what is said meanwhile."""

import threading
import urllib.error
import urllib.request

import pytest
from ground import SMALL, Served, ask, changed, other_circuits, with_demand

from rfabric.control.client import Client
from rfabric.control.epochs import UNDER_WAY
from rfabric.control.rest import answer
from rfabric.errors import RFabricError


@pytest.fixture
def served():
    return Served()


def test_rest_from_plan_to_epoch(served):
    status, plan = ask(
        served,
        "POST",
        "/plans",
        {"circuits": other_circuits(SMALL).to_json(), "pairs": [["h1", "h8"]]},
    )
    assert (
        status == 200
        and (plan["epoch"], plan["state"]) == (1, "PREPARED")
        and plan["least_window_s"] > 0
    )
    assert ask(served, "GET", "/epoch")[1]["epoch"] == 0
    status, done = ask(served, "POST", "/plans/1/commit", {})
    assert (
        status == 200
        and done["state"] == "ACTIVE"
        and done["usable_s"] >= done["dark_until_s"] > done["programmed_s"]
    )
    assert ask(served, "GET", "/plans/1")[1] == done == ask(served, "GET", "/plans")[1]["plans"][0]
    assert ask(served, "GET", "/epoch")[1]["epoch"] == 1
    assert ask(served, "GET", "/circuits")[1]["circuits"] == other_circuits(SMALL).to_json()
    assert ask(served, "POST", "/plans/1/commit")[0] == 409


def test_rest_rewires_one_ocs(served):
    status, done = ask(served, "PUT", "/ocs/a1/circuits", {"circuits": ["a1:1-a1:2"]})
    assert status == 200 and done["circuits"] == ["a1:1-a1:2"] and done["epoch"] == 1
    assert ask(served, "GET", "/ocs/a1/circuits")[1]["circuits"] == ["a1:1-a1:2"]
    assert (
        ask(served, "PUT", "/ocs/a1/circuits", {"circuits": ["a1:2-1"]})[1]["state"] == "UNCHANGED"
    )
    ports = {
        p["port"]: (p["state"], p["connected_to"], p["cable"])
        for p in ask(served, "GET", "/ocs/a1")[1]["ports"]
    }
    assert ports["a1:1"] == ("CONNECTED", "a1:2", "t1:3") and ports["a1:3"] == (
        "DISCONNECTED",
        None,
        "c1:1",
    )


ONE_ORDER = {  # each plans and commits the circuit a1:1-a1:2
    "/ocs/a1/circuits": {"circuits": ["a1:1-a1:2"]},
    "/ocs/a1/config_db": {"OCS_CROSS_CONNECT": {"1A-2B": {}, "2A-1B": {}}},
}


@pytest.mark.parametrize("path", ONE_ORDER)
def test_an_order_that_cannot_be_carried_out_leaves_no_plan_behind(served, path):
    served.switches.away.add("a1")
    status, reply = ask(served, "PUT", path, ONE_ORDER[path])
    assert status == 503 and "not connected: a1" in reply["error"]
    assert [p["state"] for p in ask(served, "GET", "/plans")[1]["plans"]] == ["ABORTED"]
    served.switches.away.clear()
    assert ask(served, "POST", "/plans/1/commit", {})[0] == 409
    assert ask(served, "PUT", path, ONE_ORDER[path])[0] == 200


def test_rest_shows_fabric_switches_pairs_and_ports(served):
    assert ask(served, "GET", "/fabric")[1] == SMALL.to_json()
    assert ask(served, "PUT", "/pairs", {"pairs": [["h1", "h8"]]})[1]["pairs"] == 1
    assert ask(served, "GET", "/pairs/")[1] == {
        "pairs": [("h1", "h8")],
        "routed": [("h1", "h8"), ("h8", "h1")],
    }
    shown = ask(served, "GET", "/switches")[1]["switches"]
    assert [s["name"] for s in shown] == [n.name for n in SMALL.switches] and all(
        s["programmed"] for s in shown
    )
    assert len(ask(served, "GET", "/ocs")[1]["ocs"]) == len(SMALL.ocses)
    assert ask(served, "GET", "/health")[1]["ready"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        (
            "POST",
            "/plans",
            changed(polcy="x"),
            400,
            "unknown key 'polcy'; it takes policy, demand, pairs",
        ),
        ("POST", "/plans", {"policy": "demand"}, 400, "'demand' is missing"),
        (
            "POST",
            "/plans",
            changed(policy="best"),
            400,
            "no policy named 'best'; there are own, static, demand, phase",
        ),
        (
            "POST",
            "/plans",
            changed(pairs=[["h1", "h99"]]),
            400,
            "'h99' is not a host of rfabric; there are h1 to h8",
        ),
        ("POST", "/plans", changed(pairs=[["h1", "h1"]]), 400, "must be two different hosts"),
        ("POST", "/plans", changed(time_dilation=0.5), 400, "time_dilation 0.5 must be 1 or more"),
        (
            "POST",
            "/plans",
            changed(in_flight="keep"),
            400,
            "in_flight 'keep' is not one of hold, drain, drop",
        ),
        (
            "POST",
            "/plans",
            changed(now_s=-1),
            400,
            "now_s: -1 must be a number, finite and not negative",
        ),
        ("POST", "/plans", changed(upcoming=[{}]), 400, r"upcoming\[0\]: 'racks' is missing"),
        (
            "POST",
            "/plans",
            with_demand(racks=["t1"]),
            400,
            "demand.racks must be the fabric's racks in order: t1, t2",
        ),
        (
            "POST",
            "/plans",
            with_demand(bytes=[[0]]),
            400,
            "demand.bytes must be 4 rows of 4 numbers",
        ),
        (
            "POST",
            "/plans",
            with_demand(bytes=[["1GB"] * 4] * 4),
            400,
            "demand.bytes: '1GB' must be a number",
        ),
        (
            "POST",
            "/plans",
            with_demand(lead_s=10**400),
            400,
            r"demand.lead_s: 10+... \(401 characters\) is above the limit, 1e\+15 s",
        ),
        (
            "POST",
            "/plans",
            changed(upcoming=[with_demand(follows=[1.5])["demand"]]),
            400,
            (r"upcoming\[0\].follows: 1.5 must be a whole number of places"),
        ),
        (
            "POST",
            "/plans",
            with_demand(follows=[0]),
            400,
            "demand follows what stands 0 places before it: at least 1, or none",
        ),
        (
            "POST",
            "/plans",
            with_demand(window="1s"),
            400,
            "unknown key 'window'; it takes racks, bytes, window_s, phase",
        ),
        ("POST", "/plans", {"circuits": "a1:1-2"}, 400, "circuits: expected a JSON array, got str"),
        (
            "POST",
            "/plans",
            {"circuits": ["a1:1-2", "a1:2-3"]},
            400,
            "port a1:2 is already in circuit a1:1-a1:2; tear it",
        ),
        (
            "POST",
            "/plans",
            {"circuits": ["a1:1-2", "a1:2-1"]},
            400,
            "circuit a1:1-a1:2 is listed twice",
        ),
        ("POST", "/plans", {"circuits": ["t1:1-2"]}, 400, "t1 is not an OCS of rfabric"),
        ("POST", "/plans", {"circuits": ["a1:1-99"]}, 400, "no cable at a1:99; a1 has 4"),
        ("POST", "/plans", [], 400, "expected a JSON object, got list"),
        (
            "PUT",
            "/ocs/a1/circuits",
            {"circuits": ["a2:1-2"]},
            400,
            "circuit a2:1-a2:2 is not on a1; PUT it to /ocs/a2",
        ),
        (
            "PUT",
            "/ocs/a9/circuits",
            {"circuits": []},
            404,
            "no OCS 'a9' in rfabric; there are a1, a2",
        ),
        ("GET", "/ocs/t1", None, 404, "no OCS 't1'"),
        ("PUT", "/pairs", {"pairs": [["h1"]]}, 400, "must be two different hosts"),
        (
            "POST",
            "/plans/1/commit",
            None,
            404,
            "no plan 1; none was made yet: POST /plans makes one",
        ),
        ("POST", "/plans/1/abort", {"now": 1}, 400, "unknown key 'now'; it takes none"),
        ("DELETE", "/plans", None, 405, "/plans takes GET or POST, not DELETE"),
        ("GET", "/nothing", None, 404, "no path /nothing; there are /health, /epoch"),
    ],
)
def test_bad_requests_are_named_and_change_nothing(served, method, path, body, status, text):
    got, reply = ask(served, method, path, body)
    assert got == status
    with pytest.raises(RFabricError, match=text):
        raise RFabricError(reply["error"])
    assert not served.core.epochs.plans


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"circuits": NaN}', b'{"circuits": [1]}', b"null", b"[" * 100_000]
)
def test_broken_bodies_are_bad_requests(served, body):
    assert answer(served, "POST", "/plans", body).status == 400


def test_rest_before_the_fabric_is_known():
    class Waiting:
        core = None

        def health(self):
            return {"ready": False, "trouble": "the fabric rfabric still lacks c1"}

    assert ask(Waiting(), "GET", "/circuits") == (
        503,
        {"error": "the fabric is not known yet: the fabric rfabric still lacks c1"},
    )


def test_a_web_page_cannot_ask(server):
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.server_address[1]}/epoch",
        headers={"Origin": "http://evil.example"},
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(asked, timeout=5)


def test_what_is_asked_while_it_is_dark_is_answered_at_once(server):
    client = Client(f"http://127.0.0.1:{server.server_address[1]}")
    planned = client.plan_circuits(other_circuits(SMALL), time_dilation=40)
    commit = threading.Thread(target=client.commit, args=(planned.epoch,))
    commit.start()
    while not (busy := client.get("/epoch")["under_way"]):
        assert commit.is_alive()
    assert busy["epoch"] == planned.epoch and busy["state"] in UNDER_WAY and commit.is_alive()
    words = {p["state"] for o in client.get("/ocs")["ocs"] for p in o["ports"]}
    assert "PENDING_CONNECTION" in words and commit.is_alive()
    with pytest.raises(RFabricError, match=f"plan {planned.epoch} is ACTIVE"):
        client.commit(planned.epoch)  # waits for its turn, then finds the work done
    commit.join()
