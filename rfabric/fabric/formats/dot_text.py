"""The language of Graphviz, DOT, as nodes and edges; what they mean is in `dot`.

    [strict] graph|digraph NAME { ... }      // to the end of a line, /* between */, # a whole line
    a;  "b c" [role=leaf];  node [role=host];          nodes, and what those after it say
    a:p1 -- b:p2 -- {c d} [speed="100G"];              edges in a row, each to all of a subgraph
    subgraph NAME { edge [speed="400G"]; ... }         defaults hold until its end

100G without quotes is one name, which Graphviz splits into two with a warning. RFabricError names
the line of what is not so.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...errors import RFabricError
from ..network import MOST_NODES

TOKEN = re.compile(
    r"""(?P<gap>\s+|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|^)\#[^\n]*)
    |(?P<quoted>"(?:\\.|[^"\\])*")
    |(?P<edge>--|->)
    |(?P<word>[^\W\d]\w*|-?(?:\.\d+|\d+(?:\.\d*)?)\w*)
    |(?P<sign>[{}\[\];,=:+])""",
    re.X | re.S,
)
KEYWORDS = ("strict", "graph", "digraph", "subgraph", "node", "edge")
COMPASS = ("n", "ne", "e", "se", "s", "sw", "w", "nw", "c", "_")  # where a line meets its node
DEEPEST = 100  # subgraphs within subgraphs


class Token(NamedTuple):
    """kind: `word`, `quoted` or `html`, which are names; `sign`, `edge`, or `end`."""

    kind: str
    text: str
    line: int


class End(NamedTuple):
    """One end of an edge: a node, and the port, '' where none is named."""

    node: str
    port: str = ""


class DrawnEdge(NamedTuple):
    """Two ends, what is said of the edge, and its line."""

    a: End
    b: End
    said: dict[str, str]
    line: int


@dataclass
class Drawing:
    """What a file says; `graph`: of the whole."""

    directed: bool = False
    strict: bool = False
    graph: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[DrawnEdge] = field(default_factory=list)


@dataclass(frozen=True)
class _Scope:
    """What nodes and edges say by default, the graph's own attributes, and the nodes named in it:
    of one subgraph, or of the whole.
    """

    node: dict[str, str] = field(default_factory=dict)
    edge: dict[str, str] = field(default_factory=dict)
    graph: dict[str, str] = field(default_factory=dict)
    named: dict[str, None] = field(default_factory=dict)


def drawing_of(text: str) -> Drawing:
    """The one graph that a text holds."""
    return _Grammar(list(_tokens(text))).drawing()


def _tokens(text: str) -> Iterator[Token]:
    at, line, glued = 0, 1, False
    while at < len(text):
        match, kind = TOKEN.match(text, at), "html"
        if match is not None:
            end, kind = match.end(), str(match.lastgroup)
        elif text[at] == "<":
            end = _html_end(text, at, line)
        else:
            what = "a quote without its end" if text[at] == '"' else repr(text[at : at + 20])
            raise RFabricError(f"line {line}: {what} is no DOT; is the file whole?")
        word, name = text[at:end], kind in ("word", "quoted", "html")
        if name and glued:
            raise RFabricError(f"line {line}: {word[:20]!r} follows a name; quote names as a whole")
        if kind != "gap":
            yield Token(kind, _unquoted(word) if kind == "quoted" else word, line)
        at, line, glued = end, line + word.count("\n"), name
    yield Token("end", "", line)


def _html_end(text: str, at: int, line: int) -> int:
    """Where the `<...>` that begins here ends, which may hold others."""
    depth = 0
    for match in re.compile("[<>]").finditer(text, at):
        depth += 1 if match[0] == "<" else -1
        if not depth:
            return match.end()
    raise RFabricError(f"line {line}: a < without its >; is the file whole?")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("\\\n", "").replace('\\"', '"')


class _Grammar:
    def __init__(self, tokens: list[Token]):
        self.tokens, self.at, self.drawn = tokens, 0, Drawing()

    def drawing(self) -> Drawing:
        """[strict] graph NAME { ... }, and nothing behind it."""
        self.drawn.strict = self._keyword("strict")
        self.drawn.directed = self._keyword("digraph")
        if not self.drawn.directed and not self._keyword("graph"):
            self._refuse("`graph` or `digraph`")
        if self._is_name():
            self._name()
        scope = _Scope(graph=self.drawn.graph)
        self._body(scope, 0)
        if self._next().kind != "end":
            self._refuse("no more than one graph")
        return self.drawn

    def _body(self, scope: _Scope, depth: int) -> None:
        if depth > DEEPEST:
            raise RFabricError(f"subgraphs stand within subgraphs, more than {DEEPEST} deep")
        self._sign("{")
        while not self._take("}"):
            if not self._take(";"):
                self._statement(scope, depth)

    def _statement(self, scope: _Scope, depth: int) -> None:
        line = self._next().line
        for kind in ("graph", "node", "edge"):
            if self._keyword(kind):
                getattr(scope, kind).update(self._attributes())
                return
        if self._is_name() and self._next(1)[:2] == ("sign", "="):
            key = self._name()
            self._sign("=")
            scope.graph[key] = self._name()
            return
        rows = [self._ends(scope, depth)]
        while self._next().kind == "edge":
            if self._next().text != ("->" if self.drawn.directed else "--"):
                self._refuse("-> in a digraph, -- in a graph")
            self.at += 1
            rows.append(self._ends(scope, depth))
        said = self._attributes() if self._next()[:2] == ("sign", "[") else {}
        if len(rows) == 1:
            for end in rows[0]:
                self.drawn.nodes[end.node] |= said
        for some, others in zip(rows, rows[1:], strict=False):
            if len(self.drawn.edges) + len(some) * len(others) > MOST_NODES:
                raise RFabricError(f"line {line}: more than {MOST_NODES:,} edges")
            self.drawn.edges += [
                DrawnEdge(a, b, scope.edge | said, line) for a in some for b in others
            ]

    def _ends(self, scope: _Scope, depth: int) -> list[End]:
        """A node with its port, or all nodes of a subgraph."""
        if self._keyword("subgraph") or self._next()[:2] == ("sign", "{"):
            if self._is_name():
                self._name()
            inner = replace(scope, node={**scope.node}, edge={**scope.edge}, graph={}, named={})
            self._body(inner, depth + 1)
            scope.named.update(inner.named)
            return [End(name) for name in inner.named]
        name, ports = self._name(), []
        while self._take(":"):
            ports.append(self._name())
        self.drawn.nodes.setdefault(name, {**scope.node})
        scope.named[name] = None
        return [End(name, next((port for port in ports if port not in COMPASS), ""))]

    def _attributes(self) -> dict[str, str]:
        """What stands in [ ], any number of them."""
        said: dict[str, str] = {}
        if self._next()[:2] != ("sign", "["):
            self._refuse("[")
        while self._take("["):
            while not self._take("]"):
                if not self._take(",") and not self._take(";"):
                    key = self._name()
                    said[key] = self._name() if self._take("=") else "true"
        return said

    def _name(self) -> str:
        """A name; of quoted ones several with + between."""
        if not self._is_name():
            self._refuse("a name")
        token = self._next()
        self.at += 1
        text = token.text
        while token.kind == "quoted" and self._take("+"):
            text += self._next().text
            self.at += 1
        return text

    def _is_name(self) -> bool:
        token = self._next()
        keyword = token.kind == "word" and token.text.lower() in KEYWORDS
        return token.kind in ("word", "quoted", "html") and not keyword

    def _keyword(self, word: str) -> bool:
        token = self._next()
        found = token.kind == "word" and token.text.lower() == word
        self.at += found
        return found

    def _take(self, sign: str) -> bool:
        found = self._next()[:2] == ("sign", sign)
        self.at += found
        return found

    def _sign(self, sign: str) -> None:
        if not self._take(sign):
            self._refuse(sign)

    def _next(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def _refuse(self, wanted: str) -> None:
        token = self._next()
        if token.kind == "end":
            raise RFabricError(f"line {token.line}: the graph has no end; is the file whole?")
        raise RFabricError(
            f"line {token.line}: {token.text[:20]!r} stands where {wanted} is expected"
        )
