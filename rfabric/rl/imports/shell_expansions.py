"""What `$name` and `${name...}` become: defaults, slices, what is cut off or replaced, elements of
arrays and tables.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import tree_sitter

from .arithmetic import whole_number
from .shell_filters import with_escapes
from .shell_patterns import cut, halves, literal, pieces, replaced
from .shell_sums import ShellSums
from .shell_text import (
    MARK,
    Script,
    array_name,
    is_all,
    known_text,
    opaque_piece,
    parsed,
    readable,
    text_of,
    unset_piece,
)
from .shell_variables import AMBIENT, GappedArray, array_of, numbered

_NAMES = ("variable_name", "subscript", "special_variable_name")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")
_TAKING, _QUOTED = (":-", "-", ":+", "+"), ("string", "raw_string")
_MOST_ELEMENTS = 200_000  # of an array
_OF_THE_SHELL = ("!", "$", "-", "_", "RANDOM", "SECONDS", "EPOCHSECONDS", "LINENO")


class ShellExpansions(ShellSums):
    """The values of a shell that runs nothing, as its script asks for them."""

    script: Script
    arguments: list[str]
    program: Path
    file: Path
    folder: str
    code: int  # of the last command, what $? says

    @abstractmethod
    def _note(self, node: tree_sitter.Node, text: str) -> None: ...

    # --- variables, arguments, elements -----------------------------------------------------------

    def _value(self, name: str) -> str:
        """The text of a variable; one that nobody set keeps its name."""
        if name in self.cells:
            return self.cells[name].value
        if name.isdigit():
            index = int(name)
            if index == 0:
                return str(self.program)
            return self.arguments[index - 1] if index <= len(self.arguments) else ""
        if name in ("@", "*"):
            return " ".join(self.arguments)
        if name == "#":
            return str(len(self.arguments))
        if name == "BASH_SOURCE":
            return str(self.file)
        if name == "?":
            return str(self.code)
        name = self.state.meant(name)
        if name not in self.values:
            if name in AMBIENT:
                return self.folder if name == "PWD" else AMBIENT[name]
            return opaque_piece(name) if name in _OF_THE_SHELL else unset_piece(name)
        value = self.values[name]
        if isinstance(value, GappedArray):
            return self._element(name, 0) or ""
        return (value[0] if value else "") if isinstance(value, list) else value

    def _key(self, head: tree_sitter.Node) -> tuple[str, str | int | None]:
        """The array or table of NAME[index], and where in it; None where that is not known."""
        name, index = self.state.meant(text_of(head.named_children[0])), head.named_children[1]
        if name in self.tables:
            return name, self.one(index)
        at = self._number(index)
        held = self.values.get(name)
        if at is None or at >= 0 or not isinstance(held, list):
            return name, at
        return name, at + max(numbered(held), default=-1) + 1

    def _element(self, name: str, key: str | int | None) -> str | None:
        """What stands there; None where nothing does."""
        if name in self.tables:
            return self.tables[name].get(str(key))
        held = self.values.get(name)
        if isinstance(held, str):
            return held if key == 0 else None
        if isinstance(held, GappedArray):
            return numbered(held).get(key) if isinstance(key, int) else None
        inside = held is not None and isinstance(key, int) and 0 <= key < len(held)
        return held[key] if inside else None  # type: ignore[index]

    def _may_be_there(self, name: str, key: str | int | None) -> bool:
        """Whether what is asked for may be any element, as its key or another is not known."""
        if name not in self.tables:
            return key is None and bool(self.values.get(name))
        table = self.tables[name]
        return bool(table) and any(MARK.search(one) for one in (str(key), *table))

    def _put_element(
        self, name: str, key: str | int | None, value: str, node: tree_sitter.Node
    ) -> None:
        if name in self.tables:
            self.tables[name][str(key)] = value
            return
        held = self.values.setdefault(name, [])
        if isinstance(held, str):
            held = self.values[name] = [held]
        if not isinstance(key, int) or not 0 <= key < _MOST_ELEMENTS:
            self._note(node, f"which element of {name} is set cannot be known; left out")
            return
        if key > len(held) or isinstance(held, GappedArray):
            self.values[name] = array_of(numbered(held) | {key: value})
        else:
            held[key : key + 1] = [value]

    def _head(self, head: tree_sitter.Node) -> str:
        if head.type != "subscript":
            return self._value(text_of(head))
        name, key = self._key(head)
        if name == "BASH_SOURCE":
            return str(self.file)
        element = self._element(name, key)
        if element is None and name not in self.values and name not in self.tables:
            return unset_piece(name)
        if element is None and self._may_be_there(name, key):
            return opaque_piece(readable(text_of(head)))
        return element or ""

    def _is_set(self, head: tree_sitter.Node) -> bool:
        if head.type == "subscript":
            name, key = self._key(head)
            there = self._element(name, key) is not None or self._may_be_there(name, key)
            return there or name == "BASH_SOURCE"
        name = self.state.meant(text_of(head))
        if name.isdigit():
            return int(name) <= len(self.arguments)
        return name in self.values or name in AMBIENT or name in ("@", "*", "#", "BASH_SOURCE")

    def _length(self, head: tree_sitter.Node) -> str:
        name = text_of(head.named_children[0]) if head.type == "subscript" else text_of(head)
        if name in ("@", "*"):
            return str(len(self.arguments))
        name = self.state.meant(name)
        whole = head.type == "subscript" and text_of(head.named_children[1]) in ("@", "*")
        if whole:
            held = self.tables.get(name, self.values.get(name, ""))
            unknown = next((word for word in held if MARK.fullmatch(word)), "")
            if unknown:  # it may be any number of words
                return unknown
            return str(int(bool(held)) if isinstance(held, str) else len(held))
        value = self._head(head) if self._is_set(head) else ""
        return opaque_piece(name) if MARK.search(value) else str(len(value))

    def _between(self) -> str:
        """What "${array[*]}" puts between its words."""
        between = self.values.get("IFS", " ")
        return between[:1] if isinstance(between, str) else " "

    def is_variable(self, said: str) -> bool:
        """Whether NAME, or NAME[KEY], is set."""
        name, _, key = said.rstrip("]").partition("[")
        name = self.state.meant(name)
        if key:
            return (
                self._element(name, key if name in self.tables else whole_number(key)) is not None
            )
        return name in self.values or name in self.tables

    # --- expansions -------------------------------------------------------------------------------

    def _all(self, node: tree_sitter.Node) -> list[str]:
        """The words of "$@" and "${array[@]}"."""
        if node.type == "simple_expansion":
            return list(self.arguments)
        if beginning := re.fullmatch(r"\$\{!(\w+)[@*]\}", text_of(node)):
            return self._names_with(beginning[1], node)
        words = self._all_of(node)
        if words is None or (not words and self._operator(node)[0] in _DEFAULTS):
            return self._in_place_of_all(node)
        if array_name(node) is None:
            return self._some([str(self.program), *words], node, 1)
        return self._some(words, node, 0)

    def _all_of(self, node: tree_sitter.Node) -> list[str] | None:
        """The words of an array or table, or its keys, or the arguments; None where it is not
        there.
        """
        name = array_name(node)
        if name is None:
            return self.arguments
        name, keys = self.state.meant(name), node.children[1].type == "!"
        table, held = self.tables.get(name), self.values.get(name)
        if table is not None:
            return list(table if keys else table.values())
        words = [held] if isinstance(held, str) else held
        return list(map(str, numbered(words))) if keys and words is not None else words

    def _names_with(self, beginning: str, node: tree_sitter.Node) -> list[str]:
        """The variables of ${!beginning*}."""
        self._note(node, f"{text_of(node)}: those that only the environment sets are not known; "
                   "say --env NAME=VALUE")  # fmt: skip
        return sorted(n for n in {*self.values, *self.tables} if n.startswith(beginning))

    def _in_place_of_all(self, node: tree_sitter.Node) -> list[str]:
        """What ${array[@]:-words} says of an array that is not there."""
        operator, rest = self._operator(node)
        default = self._joined(rest) if operator in (":-", "-", ":=", "=") else ""
        return default.split() if default else []

    def _some(self, words: list[str], node: tree_sitter.Node, first: int) -> list[str]:
        """What the operator of an expansion leaves of `words`, counted from its `first`."""
        operator, rest = self._operator(node)
        if operator == ":":
            bounds = self._bounds(rest, len(words))
            return words[slice(*bounds)] if bounds else [opaque_piece(readable(text_of(node)))]
        words = words[first:]
        if operator in (":+", "+"):
            return [self._joined(rest)] if words else []
        if operator is None or operator in _DEFAULTS:
            return words
        return [self._rewritten(word, operator, node) for word in words]

    def _bounds(self, rest: list[tree_sitter.Node], size: int) -> tuple[int, int] | None:
        """Where a slice `:start:length` of `size` words or letters begins and ends; None where that
        is not known.
        """
        numbers = [self._number(each) for each in rest if each.is_named]
        if None in numbers:
            return None
        known = [each for each in numbers if each is not None]
        start, *length = [0, *known] if rest and rest[0].type == ":" else known or [0]
        start = start if start >= 0 else max(0, size + start)
        if not length:
            return start, size
        return start, start + length[0] if length[0] >= 0 else size + length[0]

    def _expansion(self, node: tree_sitter.Node) -> str:
        """${name}, with whatever operator follows it."""
        head = next((c for c in node.children if c.type in _NAMES), None)
        if head is None:
            if text_of(node) == "${!#}":
                return self.arguments[-1] if self.arguments else str(self.program)
            counted = text_of(node) == "${#}"
            return str(len(self.arguments)) if counted else opaque_piece(text_of(node)[1:])
        if node.children[1].type == "#":
            return self._length(head)
        if node.children[1].type == "!":
            return self._of_other(node, head)
        operator, rest = self._operator(node)
        if operator is None:
            return self._head(head)
        if operator in _DEFAULTS:
            return self._defaulted(head, operator, rest)
        value = self._head(head)
        if operator == ":" and not MARK.search(value):
            bounds = self._bounds(rest, len(value))
            return value[slice(*bounds)] if bounds else opaque_piece(readable(text_of(node)))
        return self._rewritten(value, operator, node)

    def _of_other(self, node: tree_sitter.Node, head: tree_sitter.Node) -> str:
        """${!name...}: the variable, or element, that `name` names."""
        other = text_of(head) if head.type == "variable_name" else ""
        if other in self.state.others:
            return self.state.others[other]
        again = text_of(node).replace(f"!{text_of(head)}", self._head(head), 1)
        inner = parsed(f"A={again}").named_children
        value = inner[0].child_by_field_name("value") if inner else None
        return self.one(value) if value and value.type == "expansion" else opaque_piece(again[1:])

    def _operator(self, node: tree_sitter.Node) -> tuple[str | None, list[tree_sitter.Node]]:
        children = node.children[1:-1] if len(node.children) > 2 else []
        for i, child in enumerate(children):
            if not child.is_named and i > 0:
                return child.type, children[i + 1 :]
        return None, []

    def _defaulted(self, head: tree_sitter.Node, operator: str, rest: list) -> str:
        name = text_of(head)
        value = self._head(head) if self._is_set(head) else None
        empty = value is None or (operator[0] == ":" and (known_text(value) == ""))
        if value is None and head.type == "variable_name" and not operator.endswith("?"):
            self.script.defaulted.setdefault(name, "")
        if operator.endswith("+"):
            return "" if empty else self._joined(rest)
        if not empty:
            return value or ""
        if operator.endswith("?"):
            return unset_piece(name)
        default = self._joined(rest)
        if value is None and head.type == "variable_name":
            self.script.defaulted[name] = self.script.defaulted[name] or readable(default)
        if operator.endswith("="):
            self.put(name, default)
        return default

    def taken_default(self, node: tree_sitter.Node) -> tree_sitter.Node | None:
        """The text in quotes that stands for ${A:+"$A"} or ${A:-"a b"}, where it does: it is cut
        into no words.
        """
        operator, rest = self._operator(node)
        if operator not in _TAKING or len(rest) != 1 or rest[0].type not in _QUOTED:
            return None
        head = next((c for c in node.children if c.type in _NAMES), None)
        if head is None:
            return None
        if is_all(node):
            there = bool(self._all_of(node))
        else:
            there = self._is_set(head) and (
                operator[0] != ":" or known_text(self._head(head)) != ""
            )
        return rest[0] if there == operator.endswith("+") else None

    def _joined(self, nodes: Sequence[tree_sitter.Node]) -> str:
        """Pieces as one text, with the blanks that stand between them."""
        whole = "".join(map(text_of, nodes))
        if whole.startswith("$((") and whole.endswith("))"):
            # The grammar takes the arithmetic of ${A:-$((1 + 2))} for a subshell.
            whole = text_of(nodes[0].parent)
            start = whole.index("$((")
            again = parsed(f"A={whole[start:-1]}").named_children[0].child_by_field_name("value")
            if again is not None and again.type == "arithmetic_expansion":
                return self._arithmetic(again)
        text, at = "", None
        for node in nodes:
            text += " " if at is not None and node.start_byte > at else ""
            text += self.one(node)
            at = node.end_byte
        return text

    # --- what is cut off, replaced, written otherwise ---------------------------------------------

    def _rewritten(self, value: str, operator: str, node: tree_sitter.Node) -> str:
        """A value cut or replaced as ${name%pattern} and its like say."""
        if MARK.search(value):
            return value
        sign = next(c for c in node.children[2:] if not c.is_named)
        said = text_of(node).encode()[sign.end_byte - node.start_byte : -1].decode()
        if operator in ("%", "%%", "#", "##"):
            return cut(value, operator, self.pattern(said))
        if operator in ("/", "//", "/#", "/%"):
            old, new = halves(said)
            return replaced(value, operator, self.pattern(old), self._plain_text(new))
        if operator in _CASES and not said:
            return _CASES[operator](value)
        if operator == "@" and said in _WRITTEN:
            return _WRITTEN[said](value)
        return opaque_piece(value + operator + said)

    def pattern(self, said: str) -> str:
        """A pattern of the script: its values put in, what stands in quotes guarded."""
        return "".join(
            piece if kind == "plain" else self._piece(kind, piece, quoted=True)
            for kind, piece in pieces(said)
        )

    def _plain_text(self, said: str) -> str:
        return "".join(self._piece(kind, piece, quoted=False) for kind, piece in pieces(said))

    def _piece(self, kind: str, piece: str, quoted: bool) -> str:
        if kind in ("text", "value"):
            inner = parsed(f"A={piece}").named_children[0].child_by_field_name("value")
            text = self.one(inner) if inner is not None else piece
        else:
            text = with_escapes(piece) if kind == "ansi" else piece
        return literal(text) if quoted and kind != "value" else text


_CASES = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}
_WRITTEN = {
    "U": str.upper,
    "L": str.lower,
    "u": _CASES["^"],
    "Q": lambda text: "'" + re.sub("'", r"'\\''", text) + "'",
}
