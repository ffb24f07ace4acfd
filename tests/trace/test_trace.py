from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree
from rfabric.trace import (
    PhaseKey,
    TraceBuilder,
    all_to_all,
    point_to_point,
    read_trace,
    ring,
    write_trace,
)


def small():
    b = TraceBuilder(["h1", "h2", "h9"])
    work = b.compute(0, 12.5, phase="training", label="backward")
    sends = b.flows([0, 2], [2, 0], 6.4e9, after=[work], phase="training", label="reduce-scatter")
    b.compute(0, 0.8, after=sends, phase="training", label="optimizer")
    b.flows([0], [1], [1000.2], start=3.0, step=1, phase="weight_sync", label="weights")
    return b.build({PhaseKey(1, "weight_sync"): 0.25}, {"recipe": "by, hand", "seed": 3})


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(OSError):
        write_trace(small(), tmp_path / "taken.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.csv"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_files_round_trip(tmp_path, suffix):
    trace, path = small(), tmp_path / f"t{suffix}"
    write_trace(trace, path)
    again = read_trace(path)
    for name in (
        "src",
        "dst",
        "size",
        "start",
        "gap",
        "after_offsets",
        "after",
        "step",
        "phase",
        "label",
    ):
        assert np.array_equal(getattr(again, name), getattr(trace, name)), name
    assert (again.hosts, again.windows) == (trace.hosts, trace.windows)
    assert again.provenance["recipe"] == "by, hand" and again.provenance["source"] == f"t{suffix}"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_hand_written_csv_needs_three_columns_only(tmp_path):
    (tmp_path / "t.csv").write_text("src,dst,size_bytes\nh1,h2,64MB\nh2,h10,1 GiB\n")
    trace = read_trace(tmp_path / "t.csv")
    assert trace.size.tolist() == [64_000_000, 2**30] and trace.hosts == ("h1", "h2", "h10")


def test_a_mark_before_the_header_and_digits_of_other_scripts_in_names_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffsrc,dst,size_bytes\nh1,²,5\n²,h2,5\n", encoding="utf-8")
    assert sorted(read_trace(tmp_path / "t.csv").hosts) == ["h1", "h2", "²"]


@pytest.mark.parametrize("column", ["phase", "label"])
def test_more_names_than_can_be_told_apart_are_refused(tmp_path, column):
    rows = "".join(f"h1,h2,1,n{i}\n" for i in range(2**15 + 1))
    (tmp_path / "t.csv").write_text(f"src,dst,size_bytes,{column}\n{rows}")
    with pytest.raises(
        RFabricError,
        match=(
            rf"32,769 {column}s, at most 32,768; let rows share "
            r"them"
        ),
    ):
        read_trace(tmp_path / "t.csv")


def test_htsim_text(tmp_path):
    (tmp_path / "t.htsim").write_text("# src dst bytes start_ns\n0 5 1500 2000000\n5 0 3000 0\n")
    trace = read_trace(tmp_path / "t.htsim")
    assert (
        trace.hosts == ("h1", "h6")
        and trace.start.tolist() == pytest.approx([0.002, 0])
        and len(trace) == 2
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("src,dst,size_bytes,colour\nh1,h2,1,red\n", "unknown columns 'colour'"),
        ("src,dst,size_bytes\nh1,h2,-5\n", "size_bytes: '-5' must be finite and not negative"),
        ("src,dst,size_bytes\nh1,h1,5\n", "h1 sends to itself"),
        ("src,dst,size_bytes\nh1,,5\n", "row 0: dst is missing"),
        ("src,dst,size_bytes\nh1,h2,\n", "row 0: size_bytes is missing"),
        ("src,dst,size_bytes\nh1,h2,lots\n", "'lots' is not a quantity"),
        ("id,src,dst,size_bytes\na,h1,h2,1\na,h1,h2,1\n", "1 ids stand twice"),
        ("id,src,dst,size_bytes,after\na,h1,h2,1,b\n", "waits for 'b', which is no id"),
        (
            "id,src,dst,size_bytes,after\na,h1,h2,1,b\nb,h2,h1,1,a\n",
            ("waits for itself: its `after` form a cycle"),
        ),
        ("src,dst,size_bytes,step\nh1,h2,1,one\n", "step 'one' is not a whole number"),
        ("# rfabric-trace 9\nsrc,dst,size_bytes\nh1,h2,1\n", "trace version '9'"),
        ("# provenance: {oops\nsrc,dst,size_bytes\nh1,h2,1\n", "not a valid csv file"),
        ("src,dst,size_bytes\n", "holds no flow"),
        ("src,dst,size_bytes\nh1,h2,1,2,3\n", "record 1: 5 cells, the header has 3"),
        (
            "src,dst,size_bytes,size_bytes\nh1,h2,1,2\n",
            ("column 'size_bytes' stands twice in the header"),
        ),
    ],
)
def test_bad_csv_names_the_row_and_the_way_out(tmp_path, text, why):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(RFabricError, match=f"bad.csv: .*{why}"):
        read_trace(tmp_path / "bad.csv")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("t.txt", "0 1 5\n", "line 1: '0 1 5' is not `src dst bytes start_ns`"),
        ("t.txt", "0 1 -5 0\n", "four whole numbers"),
        ("t.jsonl", "[1, 2]\n", "record 1 is not an object"),
        ("t.jsonl", "{oops\n", "not a valid jsonl file"),
        (
            "t.jsonl",
            '{"src": "h1", "dst": "h2", "size_bytes": 1, "step": 1.7}\n',
            "step 1.7 is not a whole number",
        ),
        (
            "t.jsonl",
            ('{"src": "h1", "dst": "h2", "size_bytes": 1, "loop": 0, "repeat": true}\n'),
            "repeat True is not",
        ),
        (
            "t.jsonl",
            ('{"src": "h1", "dst": "h2", "size_bytes": ') + "1" * 5000 + "}\n",
            "not a valid jsonl file",
        ),
        ("t.jsonl", "[" * 100_000, "not a valid jsonl file"),
        ("t.txt", "0 1 5 " + "9" * 5000, "not a valid txt file"),
        ("t.parquet", "", "unknown trace suffix '.parquet'"),
    ],
)
def test_bad_files(tmp_path, name, text, why):
    (tmp_path / name).write_text(text)
    with pytest.raises(RFabricError, match=why):
        read_trace(tmp_path / name)


def test_missing_file_and_binary(tmp_path):
    with pytest.raises(RFabricError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RFabricError, match="cannot be read"):
        read_trace(tmp_path / "b.csv")


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
        match=("names 1 hosts that .* lacks, first h9; the fabric has 8 hosts, h1 to h8"),
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


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "src,dst,size_bytes\nh1,h5,1e300\n", "more than 1e"),
        ("t.csv", "src,dst,size_bytes,start_s\nh1,h5,1,1e308\n", "at most 1e"),
        (
            "t.csv",
            "src,dst,size_bytes,step\nh1,h5,1,99999999999\n",
            ("step '99999999999' must lie between"),
        ),
        (
            "t.csv",
            "# provenance: [1]\nsrc,dst,size_bytes\nh1,h5,1\n",
            ("provenance .* is not an object"),
        ),
        (
            "t.jsonl",
            ('{"rfabric-trace": 1, "windows": [1]}\n{"src": "h1", "dst": "h5", "size_bytes": 1}\n'),
            "windows",
        ),
    ],
)
def test_figures_beyond_all_measure_and_broken_heads_are_refused(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(RFabricError, match=said):
        read_trace(tmp_path / name)


def test_the_shipped_trace_reads_and_fits_the_default_fabric():
    trace = read_trace(Path(__file__).parents[2] / "traffic" / "ring.csv").fit(fat_tree())
    assert len(trace) == 9 and trace.size.sum() == 48e9 and len(trace.communication()) == 2
