"""The table of trace formats: how a file's format is told, and what each can do."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from handmade import looped, small, traces
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.fabric import fat_tree
from rfabric.trace import Loop, Trace, TraceBuilder, formats, is_trace, read_trace, write_trace
from rfabric.trace.formats import columns, csv_rows
from rfabric.trace.formats.base import TraceFormat

EXAMPLES = {
    "csv": b"\xef\xbb\xbf# by hand\nid,src,dst,size_bytes\na,h1,h2,5\n",
    "jsonl": b'\n{"src": "h1", "dst": "h2", "size_bytes": 5}\n',
    "htsim": b"# src dst bytes start_ns\n\n0 1 5 0 # the first\n",
    "htsim-matrix": b"Nodes 2\nConnections 1\n0->1 id 1 start 0 size 5\n",
    "ns3-flows": b"1\n0 1 3 100 5 2.0\n",
    "coflow": b"2 1\n1 0 1 0 1 1:5.0\n",
    "flow-sizes": b"bytes,percent\n0,0\n10,100\n",
    "chakra": b"\x07\n\x050.0.4",
    "chakra-json": b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}',
    "aicb": b"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8\n1\n",
    "aicb-csv": b"[rank0 ~ rank7]\ncomm_type,comm_group,comm_group_size,msg_size,stage\n",
    "nccl_inspector": b'{"header": {"id": "0xa"}, "metadata": {}, "coll_perf": {}}\n',
    "kineto": b'{"schemaVersion": 1, "traceEvents": [\n',
    "nsys": b"SQLite format 3\x00\x10\x00",
    "pcap": b"\xd4\xc3\xb2\xa1\x02\x00",
}


def two_hosts() -> Trace:
    b = TraceBuilder(["h1", "h2"])
    b.flows([0], [1], 5e6)
    return b.build()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_bytes_of_a_file_are_of_its_own_format_alone(name):
    assert set(EXAMPLES) == set(formats.FORMATS)
    assert [f.name for f in formats.FORMATS.values() if f.sniff(EXAMPLES[name])] == [name]
    assert not formats.FORMATS[name].sniff(b"") and not formats.FORMATS[name].sniff(b"\x00\xff\n")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(
    "said",
    [b"", b"\n \n", b"\xef\xbb\xbf", b"1", b"1 2", b"null", b'"x"', b"[]", b'[{"a": 1}]', b"{}"],
)
def test_no_format_stumbles_over_a_file_that_is_none_of_its_own(tmp_path, name, said):
    (path := tmp_path / "mine.dat").write_bytes(said)
    with pytest.raises(
        RFabricError, match=r"mine\.dat: (?!.*(no attribute|out of range|NoneType|Error\())"
    ):
        read_trace(path, format=name)


@pytest.mark.parametrize("form", [f for f in formats.FORMATS.values() if f.write])
def test_what_a_format_writes_it_knows_and_reads(tmp_path, form):
    write_trace(two_hosts(), path := tmp_path / f"t{form.suffixes[0]}")
    file = min(path.iterdir()) if form.folders else path
    assert form.sniff(file.read_bytes()) and form.read(path).size.tolist() == [5_000_000]


def test_formats_that_share_a_suffix_are_told_apart_by_the_first_bytes(tmp_path, monkeypatch):
    def read(path, scale: float = 1.0):
        b = TraceBuilder(["h1", "h2"])
        b.flows([0], [1], float(path.read_text().split()[1]) * scale)
        return b.build()

    other = TraceFormat("other", "of a test", (".csv",), lambda head: head[:5] == b"other", read)
    monkeypatch.setitem(formats.FORMATS, "other", other)
    (tmp_path / "t.csv").write_text("other 7")
    assert read_trace(tmp_path / "t.csv").size.tolist() == [7]
    assert read_trace(tmp_path / "t.csv", scale=2).size.tolist() == [14]
    with pytest.raises(RFabricError, match=r"t.csv: other has no setting 'scales'; it has scale"):
        read_trace(tmp_path / "t.csv", scales=2)
    (tmp_path / "t.csv").write_text("src,dst,size_bytes\nh1,h2,3\n")
    assert read_trace(tmp_path / "t.csv").size.tolist() == [3]
    (tmp_path / "t.csv").write_text("nobody's\n")
    with pytest.raises(RFabricError, match="holds no flow"):  # the first of the table says why not
        read_trace(tmp_path / "t.csv")


def test_what_no_format_takes_is_refused(tmp_path):
    with pytest.raises(RFabricError, match=r"t.csv: csv has no setting 'scale'; it has none"):
        read_trace(tmp_path / "t.csv", scale=2)
    with pytest.raises(RFabricError, match=r"no format 'pacp'; there are csv, "):
        read_trace(tmp_path / "t.csv", "pacp")
    with pytest.raises(RFabricError, match=r"t.htsim: a trace is written as .csv or .*.et"):
        write_trace(two_hosts(), tmp_path / "t.htsim")
    assert is_trace("none/at/all.flows") and not is_trace("grpo-64") and not is_trace("t.yaml")


# --- what is written is read ----------------------------------------------------------------------

COLUMNS = (
    "size", "start", "gap", "after_offsets", "after", "step", "phase", "label", "loop", "turn",
)  # fmt: skip


def same(again: Trace, trace: Trace) -> bool:
    """Whether two traces say the same; hosts may be numbered otherwise."""
    ends = [
        [(t.hosts[a], t.hosts[b]) for a, b in zip(t.src, t.dst, strict=True)]
        for t in (again, trace)
    ]
    columns = all(np.array_equal(getattr(again, c), getattr(trace, c)) for c in COLUMNS)
    return columns and ends[0] == ends[1] and again.windows == trace.windows


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize(
    "trace", [small(), looped(between=(1 / 3, 0.1), beside=(0.0, 1e-7))], ids=["rows", "loops"]
)
def test_files_round_trip(tmp_path, suffix, trace):
    write_trace(trace, path := tmp_path / f"t{suffix}")
    again = read_trace(path)
    assert same(again, trace) and again.loops == trace.loops
    said = {"source": path.name} | trace.provenance
    assert again.provenance == said and [p.name for p in tmp_path.iterdir()] == [path.name]


@settings(max_examples=25)
@given(traces())
def test_any_trace_round_trips(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    write_trace(trace, path)
    again = read_trace(path)
    assert same(again, trace) and again.loops == trace.loops and (again.total == trace.total).all()


def line_of(trace, row):
    """A row as CSV says it, by itself."""
    first = trace.loop >= 0, (trace.loop == trace.loop[row]), trace.turn == trace.turn[row]
    cells = [
        row,
        trace.hosts[trace.src[row]],
        trace.hosts[trace.dst[row]],
        trace.size[row],
        trace.start[row],
        " ".join(map(str, trace.waits_for(row))),
        trace.gap[row],
        trace.step[row],
        trace.phases[trace.phase[row]],
        trace.labels[trace.label[row]],
    ]
    if not trace.loops:
        return ",".join(map(str, cells))
    cells += [""] * 5
    if trace.loop[row] >= 0:
        loop, turn = trace.loops[trace.loop[row]], trace.turn[row]
        cells[10:12] = trace.loop[row], turn
        if row == np.flatnonzero(first[1])[0]:
            cells[12] = loop.repeat
        if row == np.flatnonzero(first[1] & first[2])[0]:
            cells[13:] = loop.between[turn], loop.beside[turn]
    return ",".join(map(str, cells))


@settings(max_examples=50)
@given(traces(), st.integers(1, 5))
def test_runs_of_like_rows_are_written_as_each_by_itself(tmp_path_factory, trace, most):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    with pytest.MonkeyPatch.context() as patch:  # blocks that cut runs
        patch.setattr(csv_rows, "blocks", lambda rows: columns.blocks(rows, most))
        write_trace(trace, path)
    written = [line for line in path.read_text().splitlines() if line[0].isdigit()]
    assert written == [line_of(trace, row) for row in range(len(trace))]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(OSError):
        write_trace(small(), tmp_path / "taken.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.csv"]


# --- what people write ----------------------------------------------------------------------------


@given(data=st.data())
def test_the_core_writes_the_lines_that_python_writes(data):
    rows = data.draw(st.integers(0, 50))
    drawn = [
        columns.Cells(columns.Words(words), np.array(which, np.int32))
        for words in data.draw(st.lists(st.lists(st.text(), min_size=1), min_size=1, max_size=4))
        for which in [
            data.draw(st.lists(st.integers(0, len(words) - 1), min_size=rows, max_size=rows))
        ]
    ]
    first = data.draw(st.integers(0, 1 << 62))
    core = columns.lines(first, *drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_core", lambda: None)
        assert columns.lines(first, *drawn) == core
    assert core.decode() == "".join(
        ",".join([str(first + row), *(cells.words.texts[cells.which[row]] for cells in drawn)])
        + "\n"
        for row in range(rows)
    )


ODD_NAMES = ("a,b", 'q"x', "ü漢", "#h", "s p", "=1+1", "z\u2028z", '"')


@pytest.mark.parametrize("core", [True, False])
def test_names_that_a_spreadsheet_trips_over_round_trip(tmp_path, monkeypatch, core):
    if not core:
        monkeypatch.setattr(columns, "_core", lambda: None)
    rows = [
        {"src": name, "dst": other, "size_bytes": 5, "phase": name, "label": other}
        for name, other in itertools.pairwise(ODD_NAMES)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trace = read_trace(tmp_path / "t.jsonl")
    write_trace(trace, tmp_path / "t.csv")
    again = read_trace(tmp_path / "t.csv")
    assert set(again.hosts) == set(ODD_NAMES) and same(again, trace)
    assert (again.phases, again.labels) == (trace.phases, trace.labels)


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize(
    "which, error",
    [
        ([0, -1], r"IndexError: column 1 has words -1 to 0 of 0 to 1$"),
        ([2, 0], r"IndexError: column 1 has words 0 to 2 of 0 to 1$"),
        ([0], r"ValueError: column 1 has 1 rows, the first has 2$"),
        ([0, 1, 0], r"ValueError: column 1 has 3 rows, the first has 2$"),
    ],
)
def test_rows_that_point_beside_a_column_are_refused_with_the_core_too(
    monkeypatch, which, error, core
):
    if not core:
        monkeypatch.setattr(columns, "_core", lambda: None)
    words = columns.Words(["a", "b"])
    drawn = [columns.Cells(words, np.array(rows)) for rows in ([0, 1], which)]
    with pytest.raises((IndexError, ValueError)) as told:
        columns.lines(0, *drawn)
    assert re.match(error, f"{told.type.__name__}: {told.value}")


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_negative_numbers_and_those_of_few_bits_are_written(dtype):
    column = columns.Cells.of(np.array([-5, 3, 3, -5], dtype))
    assert columns.lines(8, column) == b"8,-5\n9,3\n10,3\n11,-5\n"
    assert columns.lines(8, columns.Cells.of(np.array([], dtype))) == b""


@given(st.lists(st.sampled_from([0.0, -0.0, 0.1, 1e300, 5.0]) | st.floats(allow_nan=False)))
def test_each_number_of_a_column_is_written_as_python_writes_it(values):
    cells = columns.Cells.of(np.array(values))
    assert [float(text) for text in cells.texts] == values


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
        match=rf"32,769 {column}s, at most 32,768; let rows share "
        r"them",
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
        ("src;dst;size_bytes\nh1;h2;1\n", "between_s, beside_s; divide cells by commas"),
        ("src,dst,size_bytes\nh1,h2,-5\n", "size_bytes: '-5' must be finite and not negative"),
        ("src,dst,size_bytes\nh1,h1,5\n", "h1 sends to itself; leave it out, or give it 0"),
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
        ("t.jsonl", "[1, 2]\n", "line 1: is no object"),
        ("t.jsonl", "{oops\n", "line 1: no valid JSON, it may be cut short"),
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
            "line 1: no valid JSON, it may be cut short",
        ),
        ("t.jsonl", "[" * 100_000, "line 1: no valid JSON, it may be cut short"),
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


def test_a_hand_written_loop_needs_a_name_and_a_number(tmp_path):
    (tmp_path / "t.csv").write_text(
        "src,dst,size_bytes,loop,repeat\nh1,h2,1MB,mine,4\nh2,h1,1MB,mine,\nh1,h2,1MB,,\n"
    )
    trace = read_trace(tmp_path / "t.csv")
    assert trace.loops == (Loop(4, (0.0,)),) and trace.loop.tolist() == [0, 0, -1]
    (tmp_path / "t.csv").write_text(
        "src,dst,size_bytes,loop,turn,repeat,between_s,beside_s\n"
        "h1,h2,1,a,0,4,2ms,\nh1,h2,1,b,1,2,,1\nh1,h2,1,a,1,4,,\nh2,h1,1,b,,,,\nh1,h2,1,a,1,,1,0\n"
    )
    trace = read_trace(tmp_path / "t.csv")
    assert trace.loops == (Loop(4, (0.002, 1.0)), Loop(2, (0.0, 0.0), (0.0, 1.0)))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("h1,h2,5,,,3,,", "row 0: repeat without a loop; name its loop"),
        ("h1,h2,5,,1,,,", "row 0: turn without a loop"),
        ("h1,h2,5,a,,,,", "loop 'a': repeat is missing; say in one of its rows how often it runs"),
        ("h1,h2,5,a,,0,,", "loop 'a': repeat 0 must be 1 or more"),
        ("h1,h2,5,a,,2,-1,", "row 0: between_s: '-1' must be finite and not negative"),
        (
            "h1,h2,5,a,,2,,\nh1,h2,5,a,,3,,",
            ("row 1: repeat 3 differs from 2 of its loop 'a'; say it once"),
        ),
        (
            "h1,h2,5,a,0,2,1,\nh1,h2,5,a,0,2,2,",
            ("row 1: between_s 2.0 differs from 1.0 of its loop 'a'"),
        ),
        ("h1,h2,5,a,1,2,,", "loop 0: its rows have turns 1; it has 2, numbered from 0"),
        ("h1,h2,5,a,40000,2,,", "row 0: turn '40000' must lie between 0 and 32,767"),
        ("h1,h2,5,a,,two,,", "row 0: repeat 'two' is not a whole number"),
        ("h1,h2,5,a,,2,,never", "row 0: beside_s: 'never' is not a quantity"),
    ],
)
def test_bad_loops_name_the_row_and_the_way_out(tmp_path, rows, why):
    (tmp_path / "bad.csv").write_text(
        f"src,dst,size_bytes,loop,turn,repeat,between_s,beside_s\n{rows}\n"
    )
    with pytest.raises(RFabricError, match=f"bad.csv: .*{why}"):
        read_trace(tmp_path / "bad.csv")
