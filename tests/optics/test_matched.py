"""Matchings of maximum weight, by each way to them, and that parts of a graph are matched each by
itself.
"""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.optics import fractional
from rfabric.optics.fractional import across, by_halves, by_library, matched, sides
from rfabric.optics.matched import JoinedParts


def some_edges(vertices, share, heaviest, seed):
    """Rows (end, higher end, weight) of a part of all pairs, in their order; the last vertex has
    an edge.
    """
    rng = np.random.default_rng(seed)
    low, high = np.triu_indices(vertices, 1)
    some = rng.random(len(low)) < share
    some[-1] = True
    weight = rng.integers(0, heaviest + 1, some.sum())
    return np.stack((low[some], high[some], weight), axis=1)


def heaviest_by_peer(edges):
    graph = nx.Graph()
    graph.add_weighted_edges_from(edges.tolist())
    return sum(graph.edges[pair]["weight"] for pair in nx.max_weight_matching(graph))


def is_heaviest(edges, best):
    ends = edges[best, :2].ravel().tolist()
    assert len(set(ends)) == len(ends) and (np.diff(best) > 0).all()
    return edges[best, 2].sum() == heaviest_by_peer(edges)


@pytest.mark.parametrize("way", [by_library, by_halves])
@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 20),
    st.sampled_from([0.1, 0.4, 1.0]),
    st.sampled_from([1, 5, 10**9]),
    st.integers(0, 2**32 - 1),
)
def test_no_matching_is_heavier(way, vertices, share, heaviest, seed):
    edges = some_edges(vertices, share, heaviest, seed)
    assert is_heaviest(edges, way(edges))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([3, 5, 7]), min_size=1, max_size=5),
    st.sampled_from([0.02, 0.1, 0.3]),
    st.sampled_from([1, 9, 1000]),
    st.integers(0, 2**32 - 1),
)
def test_no_matching_is_heavier_where_heavy_rings_of_odd_length_are_lightly_joined(
    lengths, share, least, seed
):
    """Each ring as heavy as may be, so that it is halves, and lighter edges between any two."""
    edges = some_edges(sum(lengths), share, 10, seed)
    weights = {(low, high): weight for low, high, weight in edges.tolist()}
    for first, length in zip(np.cumsum([0, *lengths[:-1]]).tolist(), lengths, strict=True):
        ring = [*range(first, first + length), first]
        weights |= {(min(p), max(p)): 10 * least for p in zip(ring[:-1], ring[1:], strict=True)}
    edges = np.array([(*ends, weight) for ends, weight in sorted(weights.items())])
    assert is_heaviest(edges, by_halves(edges))


def test_two_triangles_of_halves_become_whole_by_the_light_edge_between_them():
    """A half of each heavy edge weighs 60, two heavy ones 40; the light one comes on top."""
    edges = [(0, 1, 20), (0, 2, 20), (1, 2, 20), (2, 3, 1), (3, 4, 20), (3, 5, 20), (4, 5, 20)]
    assert by_halves(np.array(edges)).tolist() == [0, 3, 6]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([0.1, 0.4, 1.0]),
    st.sampled_from([1, 5, 10**9]),
    st.integers(0, 2**32 - 1),
)
def test_no_matching_is_heavier_between_two_sides(one, other, share, heaviest, seed):
    edges = some_edges(one + other, share, heaviest, seed)
    edges = edges[(edges[:, 0] < one) & (edges[:, 1] >= one)]
    side = sides(edges) if len(edges) else None
    assert side is None or (side[edges[:, 0]] != side[edges[:, 1]]).all()
    assert (side is None) == (not len(edges))
    assert side is None or is_heaviest(edges, across(edges, side))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.sampled_from([0.1, 0.2, 0.4]), st.integers(0, 2**32 - 1))
def test_there_are_two_sides_where_no_ring_is_odd(vertices, share, seed):
    edges = some_edges(vertices, share, 5, seed)
    graph = nx.Graph(edges[:, :2].tolist())
    assert (sides(edges) is not None) == nx.is_bipartite(graph)


@pytest.mark.parametrize(
    ("racks", "share", "way"),
    [
        (40, 1.0, "by_library"),
        (60, 1.0, "by_halves"),
        (60, 0.5, "across"),
        (400, 0.02, "by_library"),
    ],
)
@pytest.mark.parametrize("heaviest", [3, 10**9])
def test_each_way_is_taken_where_it_is_sooner(racks, share, way, heaviest, monkeypatch):
    edges = some_edges(racks, share, heaviest, 7)
    if way == "across":
        edges = some_edges(2 * racks, share, heaviest, 7)
        edges = edges[(edges[:, 0] < racks) & (edges[:, 1] >= racks)]
    taken = []

    def noting(name, call):
        return lambda *asked: (taken.append(name), call(*asked))[1]

    for name in ("by_library", "by_halves", "across"):
        monkeypatch.setattr(fractional, name, noting(name, getattr(fractional, name)))
    best = matched(edges)
    assert taken[0] == way
    assert edges[best, 2].sum() == edges[by_library(edges), 2].sum()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_parts_are_matched_each_by_itself(parts, racks, seed):
    """Copies of one part, side by side."""
    edges = some_edges(racks, 0.5, 9, seed) + [0, 0, 1]
    far = racks * np.arange(parts)[:, None]
    low, high = ((edges[:, end] + far).ravel() for end in (0, 1))
    weight = np.tile(edges[:, 2].astype(float), parts)
    best = JoinedParts(parts * racks, low, high).matching(weight)
    assert weight[best].sum() == parts * heaviest_by_peer(edges)
    ends = np.concatenate((low[best], high[best])).tolist()
    assert len(set(ends)) == len(ends) and (np.diff(best) > 0).all()
