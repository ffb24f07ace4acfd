"""The table of trace formats: how a file's format is told, and what each can do."""

import pytest

from rfabric.errors import RFabricError
from rfabric.trace import Trace, TraceBuilder, formats, is_trace, read_trace, write_trace
from rfabric.trace.formats.base import TraceFormat

EXAMPLES = {
    "csv": b"\xef\xbb\xbf# by hand\nid,src,dst,size_bytes\na,h1,h2,5\n",
    "jsonl": b'\n{"src": "h1", "dst": "h2", "size_bytes": 5}\n',
    "htsim": b"# src dst bytes start_ns\n\n0 1 5 0 # the first\n",
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


@pytest.mark.parametrize("form", [f for f in formats.FORMATS.values() if f.write])
def test_what_a_format_writes_it_knows_and_reads(tmp_path, form):
    write_trace(two_hosts(), path := tmp_path / f"t{form.suffixes[0]}")
    assert form.sniff(path.read_bytes()) and form.read(path).size.tolist() == [5_000_000]


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
    with pytest.raises(RFabricError, match=r"t.htsim: a trace is written as .csv or .jsonl"):
        write_trace(two_hosts(), tmp_path / "t.htsim")
    assert is_trace("none/at/all.flows") and not is_trace("grpo-64") and not is_trace("t.yaml")
