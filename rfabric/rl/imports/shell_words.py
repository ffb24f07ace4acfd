"""What words become: the variables of a shell that runs nothing, and their expansions."""

import fnmatch
import re
from abc import abstractmethod
from collections.abc import Sequence

import tree_sitter

from ...errors import RFabricError
from .arithmetic import whole_number
from .shell_text import (
    MARK,
    Script,
    Values,
    known_text,
    opaque_piece,
    parsed,
    readable,
    text_of,
    unknown_names,
    unset_piece,
)
from .slurm import batch_variables
from .yaml_files import MOST_BYTES

# Set in a shell, whatever the user has; their values say nothing of a job.
_AMBIENT = {"HOME": "~", "PWD": ".", "USER": "user", "HOSTNAME": "localhost", "PATH": ""}
_NAMES = ("variable_name", "subscript", "special_variable_name")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")


class ScriptEnd(Exception):
    """The script ends here."""


class FunctionEnd(Exception):
    """The function, or the sourced file, ends here."""


class ShellWords:
    """The state of a shell that runs nothing, and what its words become."""

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        self.script = script
        self.values: dict[str, Values] = dict(environment)
        self.tables: dict[str, dict[str, str]] = {}  # declare -A
        self.functions: dict[str, tree_sitter.Node] = {}
        self.arguments: list[str] = []
        self.file = script.path
        self.folder = str(script.path.parent)
        self.depth = self.steps = self.grown = 0
        self.printed: list[str] | None = None  # what a command substitution has written so far

    @abstractmethod
    def statement(self, node: tree_sitter.Node) -> bool | None:
        """Walk a command; whether it succeeded, None where that cannot be known."""

    def words(self, node: tree_sitter.Node) -> list[str]:
        """The words a node becomes: an array spreads, a text without quotes splits at blanks."""
        if node.type == "string":
            spread = _only_child(node)
            if spread is not None and _is_all(spread):
                return self._all(spread)
            return [self.one(node)]
        if node.type in ("expansion", "simple_expansion"):
            if _is_all(node):
                return [w for word in self._all(node) for w in word.split()]
            return self.one(node).split()
        if node.type == "concatenation":
            return [self.one(node)]
        if node.type == "command_substitution":
            return self.one(node).split()
        return [self.one(node)]

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
            return self._between().join(self._all(node)) if _is_all(node) else self._expansion(node)
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
            parts.append(_unquoted(source[at - start : child.start_byte - start]))
            raw = child.type == "string_content"
            parts.append(_unquoted(child.text or b"") if raw else self.one(child))
            at = child.end_byte
        parts.append(_unquoted(source[at - start : len(source) - 1]))
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
            text += _unquoted(source[at - body.start_byte : child.start_byte - body.start_byte])
            text, at = text + self.one(child), child.end_byte
        return text + _unquoted(source[at - body.start_byte :])

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
        name = _array_name(node)
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
        return _sliced(node, words) if ":" in [c.type for c in node.children] else list(words)

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
        return _rewritten(self._head(head), operator, [self.one(r) for r in rest], text_of(node))

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
        name = text_of(head.named_children[0]) if head.type == "subscript" else text_of(head)
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
        folder = self.folder
        try:
            for child in node.named_children:
                self.statement(child)
        except (ScriptEnd, FunctionEnd):
            pass
        finally:
            printed, self.printed, self.folder = self.printed, outer, folder
        return "\n".join(printed).rstrip("\n")

    def _plain(self, text: str) -> str:
        """The variables of an arithmetic text replaced by their values."""
        return re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda m: self._value(m[1]) or "0", text)

    def _number(self, node: tree_sitter.Node) -> int | None:
        return whole_number(self._arithmetic_text(node))

    def _arithmetic_text(self, node: tree_sitter.Node) -> str:
        """An arithmetic expression with its expansions and names replaced."""
        if node.type in ("simple_expansion", "expansion", "command_substitution", "string"):
            return f"({self.one(node)})" if self.one(node) else "0"
        if node.type in ("variable_name", "word") and re.fullmatch(r"[A-Za-z_]\w*", text_of(node)):
            return f"({self._value(text_of(node)) or '0'})"
        if not node.children:
            return f" {text_of(node)} "
        return "".join(self._arithmetic_text(child) for child in node.children)

    def _arithmetic(self, node: tree_sitter.Node) -> str:
        text = "".join(self._arithmetic_text(child) for child in node.children[1:-1])
        value = whole_number(text)
        if value is not None:
            return str(value)
        names = unknown_names(text)
        return unset_piece(names[0]) if names else opaque_piece(readable(text).strip())

    def _array(self, node: tree_sitter.Node) -> list[str]:
        return [word for child in node.named_children for word in self.words(child)]

    def _note(self, node: tree_sitter.Node, text: str) -> None:
        said = f"line {node.start_point[0] + 1}: {readable(text)}"
        if said not in self.script.notes:
            self.script.notes.append(said)


def _only_child(node: tree_sitter.Node) -> tree_sitter.Node | None:
    inner = node.named_children
    whole = len(inner) == 1 and len(node.text or b"") == len(inner[0].text or b"") + 2
    return inner[0] if whole and inner[0].type in ("expansion", "simple_expansion") else None


def _is_all(node: tree_sitter.Node) -> bool:
    """Whether an expansion stands for all words of an array or of the arguments."""
    if node.type == "simple_expansion":
        return text_of(node) in ("$@", "$*")
    if len(node.children) > 1 and node.children[1].type == "#":
        return False
    return bool(re.match(r"\$\{(!?\w+\[[@*]\]|[@*])", text_of(node)))


def _array_name(node: tree_sitter.Node) -> str | None:
    subscript = next((c for c in node.named_children if c.type == "subscript"), None)
    return text_of(subscript.named_children[0]) if subscript is not None else None


def _sliced(node: tree_sitter.Node, words: list[str]) -> list[str]:
    numbers = re.findall(r":\s*(-?\d+)", text_of(node))
    start = int(numbers[0]) if numbers else 0
    return words[start : start + int(numbers[1])] if len(numbers) > 1 else words[start:]


def _unquoted(text: bytes) -> str:
    """The text between double quotes, where a backslash guards only a few characters."""
    joined = text.decode("utf-8", "replace").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", joined)


def _rewritten(value: str, operator: str, rest: list[str], whole: str) -> str:
    """A value cut or replaced as ${name%pattern} and its like say."""
    if MARK.search(value):
        return value
    pattern = "".join(rest)
    if operator in ("%", "%%", "#", "##"):
        return _cut(value, operator, pattern)
    if operator in ("/", "//") and rest:
        old, new = rest[0], rest[-1] if len(rest) > 1 and rest[-1] != "/" else ""
        return value.replace(old, new, 1 if operator == "/" else -1)
    if operator in ("^^", "^"):
        return value.upper() if operator == "^^" else value[:1].upper() + value[1:]
    if operator in (",,", ","):
        return value.lower() if operator == ",," else value[:1].lower() + value[1:]
    numbers = re.findall(r":\s*(-?\d+)", whole)
    if operator == ":" and numbers:
        start = int(numbers[0])
        return value[start : start + int(numbers[1])] if len(numbers) > 1 else value[start:]
    return opaque_piece(whole.strip("${}"))


def _cut(value: str, operator: str, pattern: str) -> str:
    """`value` without the shortest (one sign) or longest (two) end or beginning that matches."""
    lengths = range(len(value) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        from_end = operator[0] == "%"
        piece = value[len(value) - length :] if from_end else value[:length]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[: len(value) - length] if from_end else value[length:]
    return value
