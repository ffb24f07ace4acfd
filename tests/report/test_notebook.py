"""What a notebook shows of a fabric, a result, a run, a comparison."""

import re
import sys
from xml.etree import ElementTree

import pytest

import rfabric
from rfabric.fabric import Fabric

SMALL = "rfabric,pods=2,tors=2,planes=1"
HOSTILE = "<script>alert(1)</script>&\"'"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    file = tmp_path_factory.mktemp("trace") / "mine.csv"
    file.write_text("id,src,dst,size_bytes,start_s\n0,h1,h9,4000000000,0\n")
    return rfabric.compare(["fat-tree,pods=2,tors=2", SMALL], file, "demand")


def parts(shown):
    """Its HTML as a tree: it is whole, and every tag is closed."""
    html = shown._repr_html_()
    return html, ElementTree.fromstring(html.replace("xlink:", "xlink-"))


def test_each_is_one_piece_of_whole_html_with_a_drawing_and_a_table(compared):
    for shown in (rfabric.fabric(SMALL), compared[1].result, compared[1], compared):
        html, tree = parts(shown)
        assert tree.tag == "div" and tree.find(".//table") is not None
        assert any(node.tag.endswith("svg") for node in tree.iter()), shown
        assert tree.find("p/code").text == repr(shown)
        assert not re.search(r'src=|href="(?!#)|url\((?!#)|@import', html)  # it fetches nothing


def test_the_figures_are_those_of_the_run(compared):
    for run in compared:
        assert f"{run.step_seconds:.3f} s" in parts(run)[0]
    cells = [cell.text for cell in parts(compared)[1].findall(".//tbody/tr")[0]]
    assert cells[0] == "step time" and len(cells) == 3
    for cell, run in zip(cells[1:], compared, strict=True):
        assert float(cell.split()[0]) * {"s": 1, "ms": 1e-3}[cell.split()[1]] == pytest.approx(
            run.step_seconds, rel=1e-3
        )


def test_a_hostile_name_is_text(tmp_path):
    small = rfabric.fabric(SMALL)
    fabric = Fabric(HOSTILE, small.nodes, small.links, small.reconfig_delay, spec=HOSTILE)
    file = tmp_path / "mine.csv"
    file.write_text("id,src,dst,size_bytes,phase\n0,h1,h9,4000000,<script>x</script>\n")
    runs = rfabric.compare([fabric, small], file, "static")
    for shown in (fabric, runs[0], runs[0].result, runs):
        html, tree = parts(shown)
        assert "<script" not in html and not [n for n in tree.iter() if n.tag == "script"]
        assert "&lt;script" in html


def test_a_large_fabric_is_drawn_in_a_page_that_a_notebook_can_hold():
    html = rfabric.fabric("rfabric", gpus=4096)._repr_html_()
    assert "nodes drawn" in html and len(html) < 2_000_000


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_without_what_draws_it_stays_a_line(compared, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    for name in [n for n in sys.modules if n.startswith("rfabric.report.figures")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("rfabric.report.figures", raising=False)
    for shown in (rfabric.fabric(SMALL), compared[0].result, compared[0], compared):
        assert shown._repr_html_() is None


def test_a_comparison_of_nothing_stays_a_line():
    assert rfabric.Comparison(())._repr_html_() is None
