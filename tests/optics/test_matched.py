"""Matchings of maximum weight, and that parts of a graph are matched each by itself."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.optics.matched import JoinedParts, matched


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


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 20),
    st.sampled_from([0.1, 0.4, 1.0]),
    st.sampled_from([1, 5, 10**9]),
    st.integers(0, 2**32 - 1),
)
def test_no_matching_is_heavier(vertices, share, heaviest, seed):
    edges = some_edges(vertices, share, heaviest, seed)
    best = matched(edges)
    ends = edges[best, :2].ravel().tolist()
    assert len(set(ends)) == len(ends) and (np.diff(best) > 0).all()
    assert edges[best, 2].sum() == heaviest_by_peer(edges)


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
