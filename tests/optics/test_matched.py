"""Matchings of maximum weight, by the compiled core and by the library, against networkx's."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric import native
from rfabric.optics import matched
from rfabric.optics.matched import by_core, by_library, heaviest

WAYS = [
    pytest.param(
        by_core, marks=pytest.mark.skipif(native.core() is None, reason="the core was not built")
    ),
    by_library,
]
WEIGHTS = st.sampled_from([0, 1, 5, 10**9])


def some_edges(vertices, share, most, seed):
    """Columns (end, other end, weight) of a part of all pairs, in any order and direction; there is
    one edge at least.
    """
    rng = np.random.default_rng(seed)
    ends = np.stack(np.triu_indices(vertices, 1))
    some = rng.random(ends.shape[1]) < share
    some[-1] = True
    one, other = rng.permutation(vertices)[rng.permutation(ends[:, some], axis=0)]
    order = rng.permutation(len(one))
    return one[order], other[order], rng.integers(0, most + 1, len(one))


def weight_by_peer(edges):
    graph = nx.Graph()
    graph.add_weighted_edges_from(zip(*(column.tolist() for column in edges), strict=True))
    return sum(graph.edges[pair]["weight"] for pair in nx.max_weight_matching(graph))


def is_heaviest(edges, best):
    ends = np.concatenate([column[best] for column in edges[:2]]).tolist()
    assert len(set(ends)) == len(ends) and (np.diff(best) > 0).all()
    return edges[2][best].sum() == weight_by_peer(edges)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=300, deadline=None)
@given(st.integers(2, 24), st.sampled_from([0.1, 0.4, 1.0]), WEIGHTS, st.integers(0, 2**32 - 1))
def test_no_matching_is_heavier(way, vertices, share, most, seed):
    edges = some_edges(vertices, share, most, seed)
    assert is_heaviest(edges, way(*edges))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([3, 5, 7]), min_size=1, max_size=5),
    st.sampled_from([0.02, 0.1, 0.3]),
    st.sampled_from([1, 9, 1000]),
    st.integers(0, 2**32 - 1),
)
def test_no_matching_is_heavier_where_heavy_rings_of_odd_length_are_lightly_joined(
    way, lengths, share, least, seed
):
    """Each ring is a blossom, and may be opened again; lighter edges between any two."""
    one, other, weight = some_edges(sum(lengths), share, 10, seed)
    weights = dict(
        zip(map(frozenset, zip(one.tolist(), other.tolist(), strict=True)), weight, strict=True)
    )
    for first, length in zip(np.cumsum([0, *lengths[:-1]]).tolist(), lengths, strict=True):
        ring = [*range(first, first + length), first]
        weights |= {frozenset(p): 10 * least for p in zip(ring[:-1], ring[1:], strict=True)}
    edges = (*np.array([sorted(ends) for ends in weights]).T, np.array([*weights.values()]))
    assert is_heaviest(edges, way(*edges))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=100, deadline=None)
@given(st.integers(3, 20), st.integers(1, 3), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_no_matching_is_heavier_where_all_want_the_same_few(way, vertices, hubs, dear, seed):
    """Prices of the few begin high and those of the others low."""
    one, other, weight = some_edges(vertices, 0.7, 100, seed)
    edges = one, other, np.where(np.minimum(one, other) < hubs, dear * weight, weight)
    assert is_heaviest(edges, way(*edges))


@pytest.mark.parametrize("way", WAYS)
def test_two_heavy_triangles_are_joined_by_the_light_edge_between_them(way):
    """Two edges of 20 and the one of 1: without that, two racks would be left alone."""
    edges = [(0, 1, 20), (0, 2, 20), (1, 2, 20), (2, 3, 1), (3, 4, 20), (3, 5, 20), (4, 5, 20)]
    assert way(*np.array(edges).T).tolist() == [0, 3, 6]


@pytest.mark.parametrize("way", WAYS)
def test_racks_are_left_alone_where_joining_all_would_weigh_less(way):
    edges = np.array([(0, 1, 4), (1, 2, 9), (2, 3, 4)])
    assert way(*edges.T).tolist() == [1]


@pytest.mark.skipif(native.core() is None, reason="the core was not built")
@settings(max_examples=5, deadline=None)
@given(st.sampled_from([2, 10**3, 10**9]), st.integers(0, 2**32 - 1))
def test_core_and_library_agree_where_every_two_of_a_hundred_racks_are_joined(most, seed):
    edges = some_edges(100, 1.0, most, seed)
    core, library = by_core(*edges), by_library(*edges)
    assert edges[2][core].sum() == edges[2][library].sum()


def test_amounts_of_bytes_need_not_be_whole_and_no_edge_is_a_matching():
    rows, columns = np.array([0, 1, 2]), np.array([1, 2, 3])
    assert heaviest(rows, columns, np.array([0.3, 0.7, 0.3])).tolist() == [1]
    assert heaviest(rows, columns, np.array([4e300, 7e300, 4e300])).tolist() == [0, 2]
    assert heaviest(rows[:0], columns[:0], np.zeros(0)).tolist() == []


def test_where_the_core_was_never_built_the_library_answers(monkeypatch):
    monkeypatch.setattr(matched, "_core", lambda: None)
    assert heaviest(np.array([0]), np.array([5]), np.array([2.0])).tolist() == [0]
