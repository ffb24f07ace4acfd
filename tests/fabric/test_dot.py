"""Graphviz's DOT: what the language allows, what people draw, and NVIDIA Air's topologies."""

from collections import Counter

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.fabric.formats.dot_text import drawing_of

AIR = r"""# as NVIDIA Air has them
graph "two leaves" {
  "leaf01" [function="leaf" os="cumulus-vx-5.9.1" memory="2048"]
  "leaf02" [function="leaf" os="cumulus-vx-5.9.1"]
  "spine01" [function="spine"]
  "server01" [function="host"]
  "server02" [function="host"]
  "oob-mgmt-switch" [function="oob-switch"]
  "oob-mgmt-server" [function="oob-server"]
  "server01":"eth1" -- "leaf01":"swp1" [left_mac="44:38:39:00:00:03"]
  "server02":"eth1" -- "leaf02":"swp1"
  // uplinks
  "leaf01":"swp51" -- "spine01":"swp1" [speed="100G"]
  "spine01":"swp1" -- "leaf01":"swp51"
  /* the other
     leaf */
  "leaf01":"swp52" -- "spine01":"swp2"; "leaf02":"swp51" -- "spine01":"swp3";
  "leaf01":"eth0" -- "oob-mgmt-switch":"swp3"
  "oob-mgmt-server":"eth1" -- "oob-mgmt-switch":"swp1"
}
"""


def read(tmp_path, text, name="net.dot"):
    (tmp_path / name).write_text(text)
    return parse_fabric(f"{tmp_path / name}")


def cables(fabric):
    names = fabric.parameters["names"]
    return Counter((*sorted((names[k.a.node], names[k.b.node])), k.rate) for k in fabric.links)


def test_a_topology_of_nvidia_air(tmp_path, caplog):
    fabric = read(tmp_path, AIR)
    assert cables(fabric) == {
        ("leaf01", "server01", 4e11): 1, ("leaf02", "server02", 4e11): 1,
        ("leaf01", "spine01", 1e11): 1, ("leaf01", "spine01", 4e11): 1,
        ("leaf02", "spine01", 4e11): 1,
    }  # fmt: skip
    tiers = {fabric.parameters["names"][n.name]: n.tier for n in fabric.switches}
    assert tiers == {"leaf01": "edge", "leaf02": "edge", "spine01": "aggregation"}
    assert "management network left out: 2 (oob-mgmt-server, oob-mgmt-switch)" in caplog.text
    assert "6 edges name 5 cables by their ports" in caplog.text


def test_defaults_subgraphs_rows_and_labels(tmp_path, caplog):
    """Eight hosts in two racks, each rack below both spines."""
    text = r"""
    strict graph { layout=neato; graph [splines=line]
      edge [speed="25G"]
      subgraph cluster_a { node [role=host]; color=red; t1 [role=leaf]; t1 -- {a1 a2 a3 a4} }
      subgraph { node [role=host]; {b1; b2 b3
        b4} -- t2 [speed="50Gbit/s", color="#ff0000"] }
      edge [speed=""]
      t1 -- s1 -- t2 [label="2x100G"]; t2 -- s2 -- t1 [label=<<b>400G</b>>, latency="2us"]
      t2 [role=leaf, label="leaf 2\n10.0.0.2"] s1 -- s2 [style=invis]
    }"""
    fabric = read(tmp_path, text)
    assert cables(fabric) == Counter(
        [(f"a{i}", "t1", 25e9) for i in (1, 2, 3, 4)]
        + [(f"b{i}", "leaf 2", 50e9) for i in (1, 2, 3, 4)]
        + [("s1", "t1", 1e11), ("leaf 2", "s1", 1e11)] * 2
        + [("s2", "t1", 4e11), ("leaf 2", "s2", 4e11)]
    )
    assert Counter(k.delay for k in fabric.links)[2e-6] == 2
    assert "edges not drawn left out: 1" in caplog.text
    assert "rates of 2 edges by their labels" in caplog.text


def test_arrows_both_ways_are_one_cable(tmp_path, caplog):
    text = "digraph g { h1 -> t1 -> h1; h2 -> t1; t1 -> h2; t1 -> s -> t1 [speed=1T] }"
    assert cables(read(tmp_path, text)) == {
        ("h1", "t1", 4e11): 1, ("h2", "t1", 4e11): 1, ("s", "t1", 1e12): 1
    }  # fmt: skip
    assert "6 edges of one direction are 3 cables" in caplog.text


def test_names_are_as_dot_has_them():
    drawn = drawing_of(
        'GRAPH { "a\\"b" -- "c" + "d" -- -.5 -- <x <b>y</b>>; "node" -- "k\\\nl":p1:n; e_1 [x]}'
    )
    assert list(drawn.nodes) == ['a"b', "cd", "-.5", "<x <b>y</b>>", "node", "kl", "e_1"]
    assert drawn.edges[-1].b == ("kl", "p1") and drawn.nodes["e_1"] == {"x": "true"}


def test_parallel_edges_are_cables_but_not_of_a_strict_graph(tmp_path):
    text = "graph { h1 -- t1; h2 -- t1:n; t1 -- s1; t1 -- s1; s1 -- t1 }"
    assert cables(read(tmp_path, text))["s1", "t1", 4e11] == 3
    assert cables(read(tmp_path, f"strict {text}"))["s1", "t1", 4e11] == 1


def test_the_text_is_known_without_its_suffix(tmp_path):
    head = "/* one *//* two */ // three\n# four\n"
    assert len(read(tmp_path, f"{head}graph{{h1--t1;h2--t1}}", "drawing.txt").hosts) == 2


BAD = {
    "cut.dot": (AIR[:-3], "line 19: the graph has no end; is the file whole"),
    "quote.dot": ('graph { "a -- b }', "line 1: a quote without its end is no DOT; is the file"),
    "html.dot": ("graph { a [label=<b] }", "line 1: a < without its >"),
    "dash.dot": ("graph { leaf-1 -- h1 }", "line 1: '-1' follows a name; quote names as a whole"),
    "arrow.dot": ("graph { a -> b }", "line 1: '->' stands where -> in a digraph, -- in a graph"),
    "two.dot": ("graph { h1 -- t1 }\ngraph { }", "line 2: 'graph' stands where no more than one"),
    "word.dot": ("graph { node -- b }", "'--' stands where \\[ is expected"),
    "equal.dot": ("graph { a [x=] }", "']' stands where a name is expected"),
    "char.dot": ("graph { a -- b ! }", r"line 1: '! }' is no DOT"),
    "deep.dot": ("graph " + "{" * 5000, "subgraphs stand within subgraphs, more than 100 deep"),
    "many.dot": ("graph { " + " -- ".join(
        "{" + " ".join(f"{side}{i}" for i in range(1001)) + "}" for side in "ab"
    ), "line 1: more than 1,000,000 edges"),
    "loop.dot": ("graph { h1 -- t1; t1 -- t1 }", "t1 is joined to itself"),
    "differ.dot": ('graph { a:p -- t:q [speed="1G"];\n t:q -- a:p [speed="2G"] }',
                   "line 2, edge t - a: speed '2G', but '1G' in line 1, of the same cable"),
    "slow.dot": ('graph { h1 -- t1 [speed="fast"] }', "line 1, edge h1 - t1 speed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_dot_is_one_clear_error(name, tmp_path, capsys):
    text, why = BAD[name]
    with pytest.raises(RFabricError, match=why):
        read(tmp_path, text, name)
    assert main(["topo", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_long_beginning_that_is_no_graph_is_soon_passed_over(tmp_path):
    """Comments could be told apart in more ways than there are atoms."""
    with pytest.raises(RFabricError):
        read(tmp_path, "/**/" * 10_000 + " \t" * 10_000 + "x", "odd.bin")
