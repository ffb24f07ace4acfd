"""Text that others draw: Graphviz (`neato -Tsvg`) and Mermaid, as Markdown pages show it."""

from ...units import show_rate
from ..model import Fabric
from .base import TopologyFormat, joined_lines, never

SHAPES = {"host": "point", "eps": "box", "ocs": "diamond"}
MERMAID = {"host": "([{}])", "eps": "[{}]", "ocs": "{{{{{}}}}}"}


def graphviz(fabric: Fabric) -> str:
    """The cables as a Graphviz graph."""
    lines = [f'graph "{_quoted(fabric.name)}" {{']
    lines += [f"  {n.name} [shape={SHAPES[n.kind]}];" for n in fabric.nodes]
    lines += [
        f'  {k.a.node} -- {k.b.node} [tooltip="{k.a} - {k.b}, {show_rate(k.rate)}"];'
        for k in fabric.links
    ]
    return joined_lines([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _mermaid(fabric: Fabric) -> str:
    """Switches above, hosts below."""
    lines = ["graph BT"]
    lines += [f"  {n.name}{MERMAID[n.kind].format(n.name)}" for n in fabric.nodes]
    lines += [f'  {k.a.node} ---|"{show_rate(k.rate)}"| {k.b.node}' for k in fabric.links]
    return joined_lines(lines)


GRAPHVIZ = TopologyFormat(
    "graphviz", "the cables for Graphviz (written only)", (".dot", ".gv"), never, None, graphviz
)
MERMAID_TEXT = TopologyFormat(
    "mermaid", "the cables for Mermaid, as Markdown pages show it (written only)",
    (".mmd", ".mermaid"), never, None, _mermaid,
)  # fmt: skip
