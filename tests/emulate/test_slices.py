"""Fabrics cut for several machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric import fabric as load_fabric
from rfabric.emulate.machines.slices import ABOVE, sliced
from rfabric.errors import RFabricError

FABRICS = [
    "fat-tree,pods=2", "fat-tree", "leaf-spine", "rfabric", "rfabric,pods=2", "rail-optimized",
    "fat-tree,pods=8", "rfabric,pods=8", "topoopt", "mixnet", "rotor", "opus",
]  # fmt: skip


@given(st.sampled_from(FABRICS), st.integers(1, 5))
def test_every_cable_is_in_one_slice_or_a_tunnel_between_two(spec, machines):
    fabric = load_fabric(spec)
    try:
        slices = sliced(fabric, machines)
    except RFabricError as error:
        assert "name fewer machines" in str(error)
        return
    assert set(slices.place) == set(fabric.node)
    assert set(slices.place.values()) == set(range(machines))
    inside = [i for i in range(len(fabric.links)) if len(set(slices.ends(i))) == 1]
    between = [link for links in slices.between().values() for link in links]
    assert sorted([*inside, *between]) == list(range(len(fabric.links)))
    assert sorted(between) == list(slices.tunnels)
    for number in slices.tunnels:
        link = fabric.links[number]
        tiers = {fabric.node[link.a.node].tier, fabric.node[link.b.node].tier}
        assert "edge" in tiers and tiers & set(ABOVE)
    assert all(slices.nodes(m) & set(fabric.hosts) for m in range(machines))


@pytest.mark.parametrize("spec", ["rfabric", "rfabric,pods=8"])
def test_what_hangs_together_above_the_racks_is_on_one_machine(spec):
    fabric = load_fabric(spec)
    slices = sliced(fabric, 2)
    for link in fabric.links:
        ends = [fabric.node[link.a.node], fabric.node[link.b.node]]
        if any(node.kind == "ocs" for node in ends) and all(n.tier in ABOVE for n in ends):
            assert slices.place[ends[0].name] == slices.place[ends[1].name]


@pytest.mark.parametrize("spec", ["fat-tree", "leaf-spine", "rfabric"])
@pytest.mark.parametrize("machines", [2, 4])
def test_machines_have_equal_shares_of_the_hosts(spec, machines):
    fabric = load_fabric(spec)
    slices = sliced(fabric, machines)
    shares = [len(slices.nodes(m) & set(fabric.hosts)) for m in range(machines)]
    assert max(shares) == min(shares)


def test_more_machines_than_racks_are_refused_with_the_number_there_is():
    fabric = load_fabric("fat-tree,pods=2")
    with pytest.raises(RFabricError, match=f"leaves {len(fabric.racks)} parts with hosts"):
        sliced(fabric, len(fabric.racks) + 1)
