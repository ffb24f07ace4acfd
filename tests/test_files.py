"""What is written takes the place of a file, and of nothing else."""

import os
from pathlib import Path
from threading import Thread

import pytest

from rfabric.cli import main
from rfabric.files import replacing
from rfabric.trace import read_trace, write_trace
from rfabric.trace.builder import TraceBuilder


def test_a_link_stays_a_link_and_what_it_names_is_written(tmp_path):
    """Root's `-o /dev/null` would else leave every program of the machine a file there."""
    (tmp_path / "target").write_text("old")
    for name, target in ({"link": "target", "dangling": "new", "nowhere": "/dev/null"}).items():
        link = tmp_path / name
        link.symlink_to(target)
        with replacing(link) as beside:
            beside.write_text("said")
        assert link.is_symlink() and os.readlink(link) == target
    assert (tmp_path / "target").read_text() == (tmp_path / "new").read_text() == "said"
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "words",
    (
        ["topo", "fat-tree", "--write-as", "graphml", "-o"],
        ["topo", "fat-tree", "--png"],
        ["man", "-o"],
    ),
)
def test_verbs_write_to_a_pipe_that_stays_one(words, tmp_path, capsys):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main([*words, str(pipe)]) == 0, capsys.readouterr().err
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
    reader.join(10)
    assert len(read[0]) > 1000


def test_a_trace_is_written_through_a_link(tmp_path):
    rows = TraceBuilder(["h1", "h2"])
    rows.flows([0], [1], 1e6)
    link = tmp_path / "link.csv"
    link.symlink_to("kept.csv")
    write_trace(rows.build(), link)
    assert link.is_symlink() and len(read_trace(tmp_path / "kept.csv")) == 1


def test_an_error_leaves_the_old_file_or_folder_and_nothing_beside(tmp_path):
    (tmp_path / "file").write_text("old")
    for name, begin in {"file": Path.touch, "folder": Path.mkdir}.items():
        with pytest.raises(OSError), replacing(tmp_path / name) as beside:
            begin(beside)
            raise OSError("the disk is full")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
