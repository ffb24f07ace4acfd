"""The arithmetic of a shell's script: `$(( ))`, `(( ))`, subscripts; what it sets, it sets."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

import tree_sitter

from .arithmetic import assigned, whole_number
from .shell_text import Values, opaque_piece, readable, text_of, unknown_names, unset_piece
from .shell_variables import Variables

_EXPANDED = (
    "simple_expansion",
    "expansion",
    "command_substitution",
    "arithmetic_expansion",
    "string",
)


@dataclass
class ShellCell:
    """An element of an array or table while an expression is worked out."""

    name: str
    key: str | int | None
    value: str
    node: tree_sitter.Node


class ShellSums(ABC):
    """Expressions of whole numbers over the variables of a shell."""

    state: Variables
    cells: dict[str, ShellCell]  # by the name that stands for it in an expression

    @property
    def values(self) -> dict[str, Values]:
        """Texts and arrays by name."""
        return self.state.values

    @property
    def tables(self) -> dict[str, dict[str, str]]:
        """What `declare -A` makes, by name."""
        return self.state.tables

    @abstractmethod
    def one(self, node: tree_sitter.Node | None) -> str:
        """A word as one text."""

    @abstractmethod
    def _value(self, name: str) -> str: ...

    @abstractmethod
    def _head(self, node: tree_sitter.Node) -> str: ...

    @abstractmethod
    def _key(self, head: tree_sitter.Node) -> tuple[str, str | int | None]: ...

    @abstractmethod
    def _put_element(
        self, name: str, key: str | int | None, value: str, node: tree_sitter.Node
    ) -> None: ...

    def put(self, name: str, value: Values) -> None:
        """Set a variable; one of whole numbers to what an expression comes to."""
        name = self.state.meant(name)
        if name in self.state.whole and isinstance(value, str):
            value = self.sum_of(value)
        self.values[name] = value

    def sum_of(self, text: str) -> str:
        """The value of an expression; a piece that says what it needs where that is not known."""
        value = self._worked_out(text)
        if value is not None:
            return str(value)
        names = unknown_names(text) or unknown_names(self._with_values(text))
        return unset_piece(names[0]) if names else opaque_piece(readable(text).strip())

    def _with_values(self, text: str) -> str:
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: self._value(m[0]), text)

    def _worked_out(self, text: str) -> int | None:
        """The value of an expression, whose assignments are carried out; what cannot be known is
        no longer known of the names that it sets.
        """
        text = re.sub(r"\b(\d+#)\s+(\w)", r"\1\2", text)  # 10#$N
        value = whole_number(text, self._counts, self._count)
        if value is None:
            for name in assigned(text):
                self._set(name, opaque_piece(readable(text).strip()))
        return value

    def _number(self, *nodes: tree_sitter.Node) -> int | None:
        """The value of an expression of the script."""
        return self._worked_out("".join(map(self._arithmetic_text, nodes)))

    def _counts(self, name: str) -> int | None:
        return whole_number(self._value(name) or "0", self._counts)

    def _count(self, name: str, value: int) -> None:
        self._set(name, str(value))

    def _set(self, name: str, value: str) -> None:
        cell = self.cells.get(name)
        if cell is None:
            self.values[self.state.meant(name)] = value
            return
        cell.value = value
        self._put_element(cell.name, cell.key, cell.value, cell.node)

    def _arithmetic_text(self, node: tree_sitter.Node) -> str:
        """An arithmetic expression with its expansions replaced; names stay."""
        if node.type in _EXPANDED:
            text = self.one(node)  # as it stands: $A * 2 of 1+1 is 1+1*2
            return f" {text} " if text.strip() else " 0 "
        if node.type == "subscript":
            return self._cell(node)
        if node.type == "number" and node.children:  # 10#${N}, whose base is no node
            base, digits = text_of(node).partition("#")[0], self.one(node.children[0])
            return f" {base}#{digits.strip()} "
        if not node.children:
            return f" {text_of(node)} "
        return "".join(map(self._arithmetic_text, node.children))

    def _cell(self, node: tree_sitter.Node) -> str:
        """A name that stands for NAME[index], so that an expression can set it."""
        name = f"_cell_{len(self.cells)}"
        self.cells[name] = ShellCell(*self._key(node), self._head(node), node)
        return f" {name} "

    def _arithmetic(self, node: tree_sitter.Node) -> str:
        return self.sum_of("".join(map(self._arithmetic_text, node.children[1:-1])))
