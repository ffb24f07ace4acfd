"""Text that others draw: Graphviz (`neato -Tsvg`) and Mermaid, as Markdown pages show it."""

import re

from ...units import show_rate
from ..model import Fabric
from .base import TopologyFormat, joined_lines, never
from .dot_text import KEYWORDS

SHAPES = {"host": "point", "eps": "box", "ocs": "diamond"}
MERMAID = {"host": "([{}])", "eps": "[{}]", "ocs": "{{{{{}}}}}"}


def graphviz(fabric: Fabric) -> str:
    """The cables as a Graphviz graph: how to draw them, and all that they are."""
    lines = [f'graph "{_quoted(fabric.name)}" {{']
    lines += [f'  graph [reconfig_delay_s="{float(fabric.reconfig_delay)!r}"];']
    lines += [
        f"  {_id(n.name)} [shape={SHAPES[n.kind]}, kind={n.kind}, tier={_id(n.tier)}, "
        f"pod={n.pod}, plane={n.plane}];"
        for n in fabric.nodes
    ]
    lines += [
        f'  {_id(k.a.node)} -- {_id(k.b.node)} [tooltip="{k.a} - {k.b}, {show_rate(k.rate)}", '
        f'rate_bps="{float(k.rate)!r}", delay_s="{float(k.delay)!r}", cable={i}];'
        for i, k in enumerate(fabric.links)
    ]
    return joined_lines([*lines, "}"])


def _id(name: str) -> str:
    """A name as it may stand in DOT: `edge` is a word of its own there, and 2b two."""
    plain = re.fullmatch(r"[A-Za-z]\w*", name) and name.lower() not in KEYWORDS
    return name if plain else f'"{_quoted(name)}"'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _mermaid(fabric: Fabric) -> str:
    """Switches above, hosts below."""
    lines = ["graph BT"]
    lines += [f"  {n.name}{MERMAID[n.kind].format(n.name)}" for n in fabric.nodes]
    lines += [f'  {k.a.node} ---|"{show_rate(k.rate)}"| {k.b.node}' for k in fabric.links]
    return joined_lines(lines)


MERMAID_TEXT = TopologyFormat(
    "mermaid", "the cables for Mermaid, as Markdown pages show it (written only)",
    (".mmd", ".mermaid"), never, None, _mermaid,
)  # fmt: skip
