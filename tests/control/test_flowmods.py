"""OpenFlow messages: packed as Ryu or os-ken pack them, and read back by fake switches."""

import pytest

from rfabric.control import flowmods, seam
from rfabric.control.fake import apply, decode
from rfabric.fabric import host_ip
from rfabric.routing import Rule

RULES = [
    Rule("a1", ("port", 3), 7, 100),
    Rule("t1", ("to", "h2"), 2, 300),
    Rule("t1", ("pair", "h1", "h70000"), 40, 200),
]


def address(host):
    return host_ip(int(host[1:]) - 1)


def by_the_framework(rule, command, cookie):
    """The same flow-mod, made by Ryu's or os-ken's own classes."""
    of, make = seam.offline(), seam.parser
    kind, *values = rule.match
    match = {
        "port": lambda: {"in_port": values[0]},
        "to": lambda: {"eth_type": 0x800, "ipv4_dst": address(values[0])},
    }
    match["pair"] = lambda: {
        "eth_type": 0x800,
        "ipv4_src": address(values[0]),
        "ipv4_dst": address(values[1]),
    }
    act = [
        make.OFPInstructionActions(of.ofproto.OFPIT_APPLY_ACTIONS, [make.OFPActionOutput(rule.out)])
    ]
    instructions = act if command == flowmods.ADD else []
    anywhere = {"out_port": of.ofproto.OFPP_ANY, "out_group": of.ofproto.OFPG_ANY}
    fields = make.OFPMatch(**match[kind]())
    mod = make.OFPFlowMod(
        of,
        cookie=cookie,
        command=command,
        priority=rule.priority,
        match=fields,
        instructions=instructions,
        **anywhere,
    )
    return seam.wire(mod)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_flow_mods_are_the_bytes_the_framework_makes(rule):
    assert flowmods.add(rule, address, epoch=5) == by_the_framework(rule, flowmods.ADD, 5)
    assert flowmods.delete(rule, address) == by_the_framework(rule, flowmods.DELETE_STRICT, 0)


def test_the_other_messages_say_to_the_framework_what_they_should():
    ofproto = seam.ofproto
    miss, arp, unknown = map(seam.decode, flowmods.base("eps", 3))
    assert (miss.priority, miss.instructions, len(miss.match.items())) == (0, [], 0)
    for message, kind in ((arp, 0x0806), (unknown, 0x0800)):
        action = message.instructions[0].actions[0]
        assert message.match["eth_type"] == kind
        assert (action.port, action.max_len) == (ofproto.OFPP_CONTROLLER, ofproto.OFPCML_NO_BUFFER)
    assert len(flowmods.base("ocs")) == 1
    dropped = seam.decode(flowmods.unreachable("h1", "h2", address))
    assert (dropped.instructions, dropped.hard_timeout, dropped.match["ipv4_dst"]) == (
        [],
        1,
        "10.0.0.2",
    )
    wiped = seam.decode(flowmods.delete_all())
    assert (wiped.command, wiped.table_id) == (ofproto.OFPFC_DELETE, ofproto.OFPTT_ALL)
    asked = seam.parser.OFPPortStatsRequest(seam.offline(), 0, ofproto.OFPP_ANY)
    assert flowmods.count_ports() == seam.wire(asked)


@pytest.mark.parametrize("asked", [{}, {"cookie": 7}, {"cookie": 0}, {"port": 3}], ids=str)
def test_flows_are_asked_for_as_the_framework_does(asked):
    make, of = seam.parser, seam.ofproto
    match = make.OFPMatch(**({"in_port": asked["port"]} if "port" in asked else {}))
    cookie, mask = asked.get("cookie", 0), (1 << 64) - 1 if "cookie" in asked else 0
    request = make.OFPFlowStatsRequest(
        seam.offline(), 0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, cookie, mask, match
    )
    wire = flowmods.ask_flows(**asked)
    assert wire == seam.wire(request)
    entries = {
        (cookie, port): flowmods.Entry(100, (("in_port", port),), 9, cookie)
        for cookie in (0, 7) for port in (3, 4)
    }  # fmt: skip
    told = {key for key, entry in entries.items() if flowmods.asks_for(wire, entry)}
    want = (asked.get("cookie"), asked.get("port"))
    assert told == {k for k in entries if all(w in (None, v) for w, v in zip(want, k, strict=True))}


def test_roles_and_strikes_are_the_bytes_the_framework_makes():
    role = seam.parser.OFPRoleRequest(seam.offline(), seam.ofproto.OFPCR_ROLE_MASTER, 5)
    assert flowmods.role(flowmods.MASTER, 5) == seam.wire(role)
    for rule in RULES:
        _, entry = decode(flowmods.add(rule, address, epoch=9))
        command, struck = decode(flowmods.strike(entry))
        assert command == flowmods.DELETE_STRICT and struck.key == entry.key
        assert flowmods.strike(entry) == flowmods.delete(rule, address)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_a_flow_as_the_framework_tells_it_is_the_entry_that_was_sent(rule):
    wire = flowmods.add(rule, address, epoch=9)
    assert flowmods.entry_of(seam.decode(wire)) == decode(wire)[1]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.match[0])
def test_fake_switches_read_what_was_packed(rule):
    kind, entry = decode(flowmods.add(rule, address, epoch=9))
    assert (kind, entry.priority, entry.out, entry.cookie) == (
        flowmods.ADD,
        rule.priority,
        rule.out,
        9,
    )
    expected = {"port": {"in_port": 3}, "to": {"eth_type": 2048, "dst": "10.0.0.2"}}
    expected["pair"] = {"eth_type": 2048, "src": "10.0.0.1", "dst": "10.1.17.112"}
    assert dict(entry.match) == expected[rule.match[0]]
    with pytest.raises(ValueError, match="not one OpenFlow 1.3 flow-mod"):
        decode(flowmods.add(rule, address) + b"x")


def test_wiping_a_switch_leaves_no_entry_not_even_the_one_that_matches_all():
    table = {}
    for wire in flowmods.base("eps", 3):
        apply(table, wire)
    assert any(not entry.match for entry in table.values())
    apply(table, flowmods.delete_all())
    assert not table
