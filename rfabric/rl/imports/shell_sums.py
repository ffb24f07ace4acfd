"""The arithmetic of a shell's script: `$(( ))`, `(( ))`, subscripts; what it sets, it sets."""

import re
from abc import ABC, abstractmethod

import tree_sitter

from .arithmetic import assigned, whole_number
from .shell_text import Values, opaque_piece, readable, text_of, unknown_names, unset_piece


class ShellSums(ABC):
    """Expressions of whole numbers over the variables of a shell."""

    values: dict[str, Values]

    @abstractmethod
    def one(self, node: tree_sitter.Node | None) -> str:
        """A word as one text."""

    @abstractmethod
    def _value(self, name: str) -> str: ...

    @abstractmethod
    def _head(self, node: tree_sitter.Node) -> str: ...

    def _plain(self, text: str) -> str:
        """The variables of an arithmetic text replaced by their values."""
        return re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda m: self._value(m[1]) or "0", text)

    def _number(self, *nodes: tree_sitter.Node) -> int | None:
        """The value of an expression, whose assignments are carried out; what cannot be known is
        no longer known of the names that it sets.
        """
        text = "".join(self._arithmetic_text(node, names=False) for node in nodes)
        value = whole_number(text, self._counts, self._count)
        if value is None:
            self.values |= {name: opaque_piece(readable(text).strip()) for name in assigned(text)}
        return value

    def _counts(self, name: str) -> int | None:
        return whole_number(self._value(name) or "0", self._counts)

    def _count(self, name: str, value: int) -> None:
        self.values[name] = str(value)

    def _arithmetic_text(self, node: tree_sitter.Node, names: bool = True) -> str:
        """An arithmetic expression with its expansions replaced, and its names."""
        if node.type in ("simple_expansion", "expansion", "command_substitution", "string"):
            return f"({self.one(node)})" if self.one(node) else "0"
        if node.type == "subscript":
            return f"({self._head(node) or '0'})"
        plain = re.fullmatch(r"[A-Za-z_]\w*", text_of(node))
        if names and plain and node.type in ("variable_name", "word"):
            return f"({self._value(text_of(node)) or '0'})"
        if not node.children:
            return f" {text_of(node)} "
        return "".join(self._arithmetic_text(child, names) for child in node.children)

    def _arithmetic(self, node: tree_sitter.Node) -> str:
        value = self._number(*node.children[1:-1])
        if value is not None:
            return str(value)
        text = "".join(self._arithmetic_text(child) for child in node.children[1:-1])
        names = unknown_names(text)
        return unset_piece(names[0]) if names else opaque_piece(readable(text).strip())
