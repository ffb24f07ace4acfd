"""Requests as JSON: what is written is read back, and no JSON is a crash."""

import contextlib
import json
import math

from ground import SMALL, all_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.control import schema
from rfabric.errors import RFabricError
from rfabric.optics import Demand
from rfabric.routing.schemes import ECMP, Routing, Sent

AMOUNT = st.floats(0, 1e15)
RACKS = len(SMALL.racks)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(AMOUNT, min_size=RACKS, max_size=RACKS), min_size=RACKS, max_size=RACKS),
    st.one_of(st.just(math.inf), AMOUNT),
    st.text(max_size=5),
    st.tuples(AMOUNT, AMOUNT, AMOUNT),
    st.lists(st.integers(1, 9), max_size=3).map(tuple),
)
def test_a_demand_comes_back_from_its_json_as_it_was(rows, window, phase, times, follows):
    wanted = Demand(SMALL.racks, rows, window, phase, *times, follows)
    body = schema.parse_json(json.dumps(schema.demand_json(wanted)).encode())
    demand = schema.demand(body, SMALL, "demand")
    assert demand.bytes.tolist() == wanted.bytes.tolist()
    for name in ("racks", "window", "phase", "floor", "lead", "ahead", "follows"):
        assert getattr(demand, name) == getattr(wanted, name)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_pairs_and_what_they_send_come_back_from_their_json_as_they_were(data):
    chosen = data.draw(st.lists(st.sampled_from(all_pairs(SMALL)), min_size=1, unique=True))
    sent = data.draw(st.lists(AMOUNT, min_size=len(chosen), max_size=len(chosen)))
    ends = ([SMALL.host_index[pair[end]] for pair in chosen] for end in (0, 1))
    routing = Routing("placed", Sent(*ends, [sent]))
    body = schema.parse_json(json.dumps(schema.pairs_json(chosen, routing, SMALL)).encode())
    assert body["bytes"] == [sent]  # in the order of the pairs
    pairs, read = schema.pairs_request(body, SMALL)
    assert list(pairs) == chosen and read.scheme == "placed"
    assert read.sent.codes.tolist() == routing.sent.codes.tolist()
    assert read.sent.bytes.tolist() == routing.sent.bytes.tolist()
    stranger = next(pair for pair in all_pairs(SMALL) if pair not in chosen[:-1])
    more = schema.pairs_json([*chosen[:-1], stranger], routing, SMALL)["bytes"][0]
    assert more[-1] == (sent[-1] if stranger == chosen[-1] else 0.0)  # it knows nothing of others


def test_plans_and_routing_without_bytes_say_no_more_than_they_know():
    assert schema.pairs_json([("h1", "h2")], ECMP, SMALL) == {
        "pairs": [["h1", "h2"]], "routing": "ecmp",
    }  # fmt: skip
    assert schema.parse_json(b"") == {}


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["policy", "demand", "circuits", "pairs", "racks", "bytes"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_gets_past_the_schema_as_a_crash(data):
    with contextlib.suppress(RFabricError):
        schema.plan_request(data, SMALL)
