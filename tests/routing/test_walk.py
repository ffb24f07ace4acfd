"""The packet walker: where a packet goes that switches lead on, and how it ends."""

import pytest

from rfabric.fabric import Port, fat_tree
from rfabric.routing import walk

FABRIC = fat_tree(pods=1, tors=2, gpus=2)
DOWN = {host: FABRIC.peer[FABRIC.ports[host][0]][1].number for host in FABRIC.hosts}


def up(rack):
    """The port of a rack by which it reaches its aggregation switch, and the port there."""
    ports = FABRIC.ports[rack]
    return next((p, FABRIC.peer[p][1]) for p in ports if FABRIC.peer[p][1].node.startswith("a"))


def test_a_packet_arrives_where_every_switch_leads_on():
    seen = []

    def leads(into):
        seen.append(into)
        return DOWN["h2"]

    assert walk(FABRIC, "h1", "h2", leads) == ""
    assert seen == [Port("t1", DOWN["h1"])]


@pytest.mark.parametrize("why", ["dropped", "asks the controller"])
def test_a_switch_that_leads_nowhere_is_named_with_why(why):
    assert walk(FABRIC, "h1", "h3", lambda into: why) == f"{why} at t1:{DOWN['h1']}"


def test_a_packet_at_the_wrong_host_and_one_that_goes_in_circles_are_told():
    there = walk(FABRIC, "h1", "h3", lambda into: DOWN["h2"])
    assert there == f"delivered to {FABRIC.ports['h2'][0]}"
    port, above = up("t1")
    back = {"t1": port.number, above.node: above.number}
    assert walk(FABRIC, "h1", "h3", lambda into: back[into.node]) == f"loop at {above}"
