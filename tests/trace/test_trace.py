from dataclasses import replace

import numpy as np
import pytest
from handmade import looped, small
from hypothesis import given
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree
from rfabric.routing.rows import numbered
from rfabric.trace import TraceBuilder, all_to_all, point_to_point, ring


def test_compute_only_follows_the_critical_path():
    ready, finish = small().compute_only()
    assert finish.tolist() == pytest.approx([12.5, 12.5, 12.5, 13.3, 3.0])
    assert ready.tolist() == pytest.approx([0, 12.5, 12.5, 12.5, 3.0])


def test_phases_rows_entries_and_demand():
    trace = small()
    training, sync = trace.phase_keys
    assert (str(training), str(sync)) == ("training/0", "weight_sync/1")
    assert trace.rows(training).tolist() == [0, 1, 2, 3] and trace.entries(training).tolist() == [0]
    assert trace.pairs() == [("h1", "h2"), ("h1", "h9"), ("h9", "h1")]
    demand = trace.demand(fat_tree(), training)
    assert demand.bytes[0, 2] == demand.bytes[2, 0] == 6.4e9 and demand.bytes.sum() == 12.8e9
    assert trace.demand(fat_tree(), sync).window == 0.25
    assert list(trace.communication()) == [
        (0, "training", "reduce-scatter"),
        (1, "weight_sync", "weights"),
    ]


def test_a_trace_must_fit_the_fabric():
    with pytest.raises(
        RFabricError,
        match="names 1 hosts that .* lacks, first h9; .* has 8 hosts, h1 to h8.*or name hosts",
    ):
        small().fit(fat_tree(pods=2, tors=2, gpus=2))


@given(st.integers(2, 40), st.sampled_from([1, 2, 4, 8]), st.floats(1, 1e12), st.integers(0, 1))
def test_ring_carries_the_closed_form_over_every_server_boundary(n, per_server, size, turn):
    flows = ring("all-reduce", range(n), size, per_server, turn)
    servers = -(-n // per_server)
    assert all(
        a // per_server != b // per_server for a, b in zip(flows.src, flows.dst, strict=True)
    )
    if servers > 1:
        assert sum(flows.size) / servers == pytest.approx(2 * (n - 1) / n * size)
        half = ring("reduce-scatter", range(n), size, per_server, turn)
        assert sum(half.size) == pytest.approx(sum(flows.size) / 2)
    else:
        assert not flows.src


def test_neighbouring_channels_run_opposite_ways():
    flows = ring("all-gather", range(16), 1e9, 8)
    pairs = list(zip(flows.src, flows.dst, strict=True))
    assert (0, 8) in pairs and (9, 1) in pairs and len(pairs) == 16


@given(st.integers(2, 24), st.sampled_from([1, 4, 8]))
def test_all_to_all_leaves_out_the_pairs_of_a_server(n, per_server):
    flows = all_to_all(range(n), 24.0, per_server)
    inside = sum(1 for a in range(n) for b in range(n) if a // per_server == b // per_server)
    assert len(flows.src) == n * n - inside and all(s == pytest.approx(24 / n) for s in flows.size)


def test_point_to_point_stays_on_nvlink_inside_a_server():
    assert point_to_point([(0, 1), (0, 8)], 5.0, 8) == ([0], [8], [5.0])


def test_unknown_ring_and_uneven_columns():
    with pytest.raises(RFabricError, match="no ring collective 'gossip'"):
        ring("gossip", range(4), 1, 1)
    with pytest.raises(RFabricError, match="1 sources, 2 destinations"):
        TraceBuilder(["h1", "h2"]).flows([0], [1, 1], 5)


@pytest.mark.parametrize("column", ["src", "dst", "after"])
@pytest.mark.parametrize("far", [-1, 99, 1 << 32])
def test_a_number_beyond_the_narrow_type_of_its_column_is_refused_and_not_cut(column, far):
    trace = small()
    numbers = getattr(trace, column).astype(np.int64)
    numbers[0] = far
    with pytest.raises(RFabricError, match=f"{column} names {far}, there are"):
        replace(trace, **{column: numbers})


def test_what_a_trace_lets_go_of_as_a_run_begins_is_worked_out_again():
    trace, fabric = small(), fat_tree()
    before = [column.tolist() for column in (*trace.sending(fabric), *trace.levels)]
    trace.settle()
    assert not {"levels", "_sending"} & set(vars(trace))
    assert [column.tolist() for column in (*trace.sending(fabric), *trace.levels)] == before


def test_what_a_trace_with_loops_has_worked_out_goes_once_it_is_played():
    trace = looped()
    before = [column.tolist() for column in trace.compute_only()]
    played = trace.folded()
    assert set(vars(trace)) - set(vars(looped())) == {"_plays"} and trace.folded() is played
    assert [column.tolist() for column in trace.compute_only()] == before


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_codes_in_runs_are_numbered_as_numpy_does(codes):
    codes = np.array(codes, np.int64)
    expected = np.unique(codes, return_inverse=True)
    assert all(map(np.array_equal, numbered(codes), expected))
