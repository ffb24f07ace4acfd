"""What words become: the variables of a shell that runs nothing, and their expansions."""

import re
from abc import abstractmethod
from collections.abc import Sequence

import tree_sitter

from ...errors import RFabricError
from .arithmetic import whole_number
from .shell_sums import ShellSums
from .shell_text import (
    MARK,
    Script,
    array_name,
    brace_marked,
    braced,
    is_all,
    is_joined,
    known_text,
    only_child,
    opaque_piece,
    parsed,
    readable,
    rewritten,
    text_of,
    unescaped,
    unset_piece,
)
from .slurm import batch_variables
from .yaml_files import MOST_BYTES

# Set in a shell, whatever the user has; their values say nothing of a job.
_AMBIENT = {"HOME": "~", "PWD": ".", "USER": "user", "HOSTNAME": "localhost", "PATH": ""}
_AMBIENT["OPTIND"] = "1"
_LITERAL = ("word", "number", "brace_expression")
_NAMES = ("variable_name", "subscript", "special_variable_name")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")


class ScriptEnd(Exception):
    """The script ends here."""


class FunctionEnd(Exception):
    """The function, or the sourced file, ends here; `status`: whether it says that it succeeded."""

    def __init__(self, status: bool | None = None) -> None:
        super().__init__()
        self.status = status


class LoopEnd(Exception):
    """`left` loops end here, the innermost first; with `again` the last of them goes on."""

    def __init__(self, left: int, again: bool) -> None:
        super().__init__()
        self.left, self.again = left, again


class ShellWords(ShellSums):
    """The state of a shell that runs nothing, and what its words become."""

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        self.script = script
        self.values = dict(environment)
        self.tables: dict[str, dict[str, str]] = {}  # declare -A
        self.functions: dict[str, tree_sitter.Node] = {}
        self.arguments: list[str] = []
        self.file = script.path
        self.folder = str(script.path.parent)
        self.depth = self.steps = self.grown = self.loops = 0
        self.printed: list[str] | None = None  # what a command substitution has written so far

    @abstractmethod
    def statement(self, node: tree_sitter.Node) -> bool | None:
        """Walk a command; whether it succeeded, None where that cannot be known."""

    def words(self, node: tree_sitter.Node) -> list[str]:
        """The words a node becomes: an array spreads, a text without quotes splits at blanks."""
        if node.type == "string":
            spread = only_child(node)
            if spread is not None and is_all(spread) and not is_joined(spread):
                return self._all(spread)
            return [self.one(node)]
        if node.type in ("expansion", "simple_expansion"):
            if is_all(node):
                return [w for word in self._all(node) for w in word.split()]
            return self.one(node).split()
        if node.type in ("concatenation", "brace_expression"):
            return self._braced(node)
        if node.type == "command_substitution":
            return self.one(node).split()
        return [self.one(node)]

    def _braced(self, node: tree_sitter.Node) -> list[str]:
        """The words that braces make of one, {a,b} and {1..4}; in quotes and values they are
        text.
        """
        parts = node.children if node.type == "concatenation" else [node]
        marked = "".join(
            brace_marked(text_of(part)) if part.type in _LITERAL else self.one(part)
            for part in parts
        )
        words = braced(marked)
        self.grown += sum(map(len, words))
        return words

    def one(self, node: tree_sitter.Node | None) -> str:
        """The text a node becomes, as one word."""
        if node is None:
            return ""
        text = self._one(node)
        self.grown += len(text)
        if len(text) > MOST_BYTES or self.grown > 50 * MOST_BYTES:
            raise RFabricError(
                f"{self.script.path}: its variables grow beyond {MOST_BYTES:,} characters; that "
                "is no job's file"
            )
        return text

    def _one(self, node: tree_sitter.Node) -> str:
        kind = node.type
        if kind == "raw_string":
            return text_of(node)[1:-1]
        if kind == "ansi_c_string":
            return text_of(node)[2:-1].replace("\\n", "\n").replace("\\t", "\t")
        if kind in ("string", "translated_string"):
            return self._string(node)
        if kind == "concatenation":
            return "".join(self.one(child) for child in node.children)
        if kind in ("simple_expansion", "expansion"):
            return self._between().join(self._all(node)) if is_all(node) else self._expansion(node)
        if kind == "arithmetic_expansion":
            return self._arithmetic(node)
        if kind == "command_substitution":
            return self._substitution(node)
        if kind == "array":
            return " ".join(self._array(node))
        if kind in ("variable_name", "special_variable_name") and node.parent.type in (
            "simple_expansion",
            "expansion",
        ):
            return self._value(text_of(node))
        return re.sub(r"\\(.)", r"\1", text_of(node).replace("\\\n", ""), flags=re.DOTALL)

    def _string(self, node: tree_sitter.Node) -> str:
        """A quoted text; blanks between its parts are not in the tree."""
        source, start = node.text or b"", node.start_byte
        parts, at = [], start + 1
        for child in node.named_children:
            parts.append(unescaped(source[at - start : child.start_byte - start]))
            raw = child.type == "string_content"
            parts.append(unescaped(child.text or b"") if raw else self.one(child))
            at = child.end_byte
        parts.append(unescaped(source[at - start : len(source) - 1]))
        return "".join(parts)

    def here_text(self, redirect: tree_sitter.Node) -> str:
        """What stands between <<EOF and EOF; its variables stay as they are where EOF is quoted."""
        parts = {child.type: child for child in redirect.children}
        body = parts.get("heredoc_body")
        if body is None:
            return ""
        if re.search(r"['\"\\]", text_of(parts.get("heredoc_start"))):
            return text_of(body)
        source, at, text = body.text or b"", body.start_byte, ""
        for child in (c for c in body.named_children if c.type != "heredoc_content"):
            text += unescaped(source[at - body.start_byte : child.start_byte - body.start_byte])
            text, at = text + self.one(child), child.end_byte
        return text + unescaped(source[at - body.start_byte :])

    def told_by_slurm(self, options: str) -> None:
        """Set what Slurm would tell a job with these options of sbatch; what is set already
        stays.
        """
        self.values = batch_variables(options) | self.values

    def _value(self, name: str) -> str:
        """The text of a variable; one that nobody set keeps its name."""
        if name.isdigit():
            index = int(name)
            if index == 0:
                return str(self.file)
            return self.arguments[index - 1] if index <= len(self.arguments) else ""
        if name in ("@", "*"):
            return " ".join(self.arguments)
        if name == "#":
            return str(len(self.arguments))
        if name in ("BASH_SOURCE", "0"):
            return str(self.file)
        if name in ("?", "!", "$", "-", "_", "RANDOM", "SECONDS", "EPOCHSECONDS"):
            return "0" if name == "?" else opaque_piece(name)
        if name not in self.values:
            if name in _AMBIENT:
                return self.folder if name == "PWD" else _AMBIENT[name]
            return unset_piece(name)
        value = self.values[name]
        return (value[0] if value else "") if isinstance(value, list) else value

    def _all(self, node: tree_sitter.Node) -> list[str]:
        """The words of "$@" and "${array[@]}"."""
        if node.type == "simple_expansion":
            return list(self.arguments)
        name = array_name(node)
        if name is None:
            return list(self.arguments)
        keys = node.children[1].type == "!"
        if name in self.tables:
            return list(self.tables[name] if keys else self.tables[name].values())
        value = self.values.get(name)
        if value is None:
            default = self._default_of(node)
            return default.split() if default else []
        words = value if isinstance(value, list) else [value]
        if keys:
            return [str(index) for index in range(len(words))]
        operator, rest = self._operator(node)
        if operator is None or operator in _DEFAULTS:
            return list(words)
        if operator == ":":
            start, end = self._bounds(rest, len(words))
            return list(words[start:end])
        return [rewritten(word, operator, [self.one(r) for r in rest]) for word in words]

    def _bounds(self, rest: list[tree_sitter.Node], size: int) -> tuple[int, int]:
        """Where a slice `:start:length` of `size` words or letters begins and ends."""
        start, *length = [self._number(each) or 0 for each in rest if each.is_named] or [0]
        start = start if start >= 0 else max(0, size + start)
        if not length:
            return start, size
        return start, start + length[0] if length[0] >= 0 else size + length[0]

    def _between(self) -> str:
        """What "${array[*]}" puts between its words."""
        between = self.values.get("IFS", " ")
        return between[:1] if isinstance(between, str) else " "

    def _default_of(self, node: tree_sitter.Node) -> str:
        operator, rest = self._operator(node)
        return self._joined(rest) if operator in (":-", "-", ":=", "=") else ""

    def _expansion(self, node: tree_sitter.Node) -> str:
        """${name}, with whatever operator follows it."""
        head = next((c for c in node.children if c.type in _NAMES), None)
        if head is None:
            return opaque_piece(text_of(node)[1:])
        if node.children[1].type == "#":
            return self._length(head)
        if node.children[1].type == "!":
            return self._value(self._value(text_of(head)))
        operator, rest = self._operator(node)
        if operator is None:
            return self._head(head)
        if operator in _DEFAULTS:
            return self._defaulted(head, operator, rest)
        value = self._head(head)
        if operator == ":" and not MARK.search(value):
            start, end = self._bounds(rest, len(value))
            return value[start:end]
        return rewritten(value, operator, [self.one(r) for r in rest])

    def _operator(self, node: tree_sitter.Node) -> tuple[str | None, list[tree_sitter.Node]]:
        children = node.children[1:-1] if len(node.children) > 2 else []
        for i, child in enumerate(children):
            if not child.is_named and i > 0:
                return child.type, children[i + 1 :]
        return None, []

    def _head(self, head: tree_sitter.Node) -> str:
        if head.type != "subscript":
            return self._value(text_of(head))
        name, index = (text_of(child) for child in head.named_children[:2])
        if name == "BASH_SOURCE":
            return str(self.file)
        if name in self.tables:
            return self.tables[name].get(self.one(head.named_children[1]), "")
        value = self.values.get(name)
        at = whole_number(self._plain(index))
        if isinstance(value, list) and at is not None and -len(value) <= at < len(value):
            return value[at]
        return self._value(name) if at == 0 and isinstance(value, str) else ""

    def _length(self, head: tree_sitter.Node) -> str:
        name = text_of(head.named_children[0]) if head.type == "subscript" else text_of(head)
        value = self.values.get(name, "")
        if isinstance(value, str):
            return opaque_piece(name) if MARK.search(value) else str(len(value))
        return str(len(value) if head.type == "subscript" else len(value[0]) if value else 0)

    def _defaulted(self, head: tree_sitter.Node, operator: str, rest: list) -> str:
        name = text_of(head)
        value = self._head(head) if self._is_set(head) else None
        empty = value is None or (operator[0] == ":" and (known_text(value) == ""))
        if operator.endswith("+"):
            return "" if empty else self._joined(rest)
        if not empty:
            return value or ""
        if operator.endswith("?"):
            return unset_piece(name)
        default = self._joined(rest)
        if value is None and head.type == "variable_name":
            self.script.defaulted.setdefault(name, readable(default))
        if operator.endswith("="):
            self.values[name] = default
        return default

    def _is_set(self, head: tree_sitter.Node) -> bool:
        if head.type == "subscript":
            name, key = text_of(head.named_children[0]), self.one(head.named_children[1])
            held, at = self.values.get(name, []), whole_number(self._plain(key))
            if name in self.tables:
                return key in self.tables[name]
            count = len(held) if isinstance(held, list) else 1
            return name == "BASH_SOURCE" or (at is not None and -count <= at < count)
        name = text_of(head)
        if name.isdigit():
            return int(name) <= len(self.arguments)
        return name in self.values or name in _AMBIENT or name in ("@", "*", "#", "BASH_SOURCE")

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

    def _substitution(self, node: tree_sitter.Node) -> str:
        outer, self.printed = self.printed, []
        try:
            self.apart(node)
        finally:
            printed, self.printed = self.printed, outer
        return "\n".join(printed).rstrip("\n")

    def apart(self, node: tree_sitter.Node) -> bool | None:
        """Walk ( ... ) or $( ... ), a shell of its own: what it sets is gone when it ends."""
        values = {k: list(v) if isinstance(v, list) else v for k, v in self.values.items()}
        tables = {name: dict(table) for name, table in self.tables.items()}
        folder, loops, arguments = self.folder, self.loops, self.arguments
        self.loops, status = 0, True
        try:
            for child in node.named_children:
                if child.type != "comment":
                    status = self.statement(child)
            return status
        except FunctionEnd as end:
            return end.status
        except ScriptEnd:
            return None
        finally:
            self.values, self.tables = values, tables
            self.folder, self.loops, self.arguments = folder, loops, arguments

    def _array(self, node: tree_sitter.Node) -> list[str]:
        children = [child for child in node.named_children if child.type != "comment"]
        return [word for child in children for word in self.words(child)]

    def _note(self, node: tree_sitter.Node, text: str) -> None:
        said = f"line {node.start_point[0] + 1}: {readable(text)}"
        if said not in self.script.notes:
            self.script.notes.append(said)
