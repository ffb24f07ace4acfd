"""What a launch script would run, without running it: its commands in the values of its variables.

    script = read_script(Path("run.sh"), {"NNODES": "8"})
    script.commands        the words of each command reached, in order
    script.defaulted       variables left to the environment, with the script's own default
    script.notes           what could not be decided, and what was taken instead

The text is parsed by the grammar of tree-sitter-bash and walked: assignments, arrays, expansions
(defaults, prefixes, suffixes, slices, lengths), arithmetic, if, case, for, functions, `source` of
files near the script, `bash -c`. No command runs; of those that only rewrite text (echo, printf,
dirname, basename, pwd, seq, expr) the output is worked out. What stays unknown, a variable of the
environment or the output of a program, keeps its `$NAME` or `$(program)` in the text, and whoever
needs the value says so.
"""

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter
import tree_sitter_bash

from ...errors import RFabricError
from .arithmetic import whole_number
from .yaml_files import MOST_BYTES

MOST_STEPS = 200_000  # statements walked, loops and functions unrolled
DEPTH = 40  # functions, sourced files and `bash -c` inside one another
MOST_TURNS = 1_000  # of one while loop
# An unknown piece of text stands between these two: private characters that no script holds.
_OPEN, _CLOSE = "\ue000", "\ue001"
_UNSET, _OPAQUE = "\ue002", "\ue003"  # left to the environment, printed by a program
_MARK = re.compile(f"{_OPEN}([{_UNSET}{_OPAQUE}])([^{_CLOSE}]*){_CLOSE}")
# Set in a shell, whatever the user has; their values say nothing of a job.
_AMBIENT = {"HOME": "~", "PWD": ".", "USER": "user", "HOSTNAME": "localhost", "PATH": ""}


@dataclass(frozen=True)
class Command:
    """The words of a command and the line it begins on."""

    words: tuple[str, ...]
    line: int


@dataclass
class Script:
    """The commands a script reaches; `defaulted` and `unset`: variables it leaves to the
    environment, with and without a default of its own.
    """

    path: Path
    commands: list[Command] = field(default_factory=list)
    defaulted: dict[str, str] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)
    sourced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_script(path: Path, text: str, environment: Mapping[str, str] | None = None) -> Script:
    """Walk the script `text` of the file `path` under `environment`.

    RFabricError where a quote or bracket is opened and not closed, or its variables grow without
    end.
    """
    script = Script(path)
    walk = _Walk(script, dict(environment or {}))
    walk.text(text)
    return script


def readable(text: str) -> str:
    """`text` with its unknown pieces as a shell writes them: $NAME, $(program)."""
    return _MARK.sub(lambda m: f"${m[2]}", text)


def unknown_names(text: str) -> list[str]:
    """The variables of the environment that `text` depends on."""
    return [name for kind, name in _MARK.findall(text) if kind == _UNSET]


class _Exit(Exception):
    """The script ends here."""


class _Return(Exception):
    """The function, or the sourced file, ends here."""


def _left_open(root: tree_sitter.Node) -> int:
    """The line on which something is opened that the text does not close; 0 where all is closed.

    Elsewhere the grammar stumbles over what bash takes; only an error that reaches to the end of
    the text means that.
    """
    node, end = root, len((root.text or b"").rstrip())
    while node.has_error and node.children:
        if node.type == "ERROR" and node.end_byte >= end:
            return node.start_point[0] + 1
        last = next((c for c in reversed(node.children) if c.has_error or c.is_missing), None)
        if last is None or last.end_byte < end:
            return 0
        if last.is_missing:
            return node.start_point[0] + 1
        node = last
    return 0


def _parsed(text: str) -> tree_sitter.Node:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser.parse(text.encode("utf-8", "replace")).root_node


Values = str | list[str]


class _Walk:
    """The state of a shell that runs nothing."""

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        self.script = script
        self.values: dict[str, Values] = dict(environment)
        self.functions: dict[str, tree_sitter.Node] = {}
        self.arguments: list[str] = []
        self.file = script.path
        self.folder = str(script.path.parent)
        self.depth = self.steps = self.grown = 0
        self.printed: list[str] | None = None  # what a command substitution has written so far
        self.kinds: dict[str, Callable[[tree_sitter.Node], bool | None]] = {
            "variable_assignment": self._assignment,
            "variable_assignments": self._each,
            "declaration_command": self._each_assignment,
            "command": self._command,
            "list": self._and_or,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "test_command": self._test,
            "if_statement": self._if,
            "case_statement": self._case,
            "for_statement": self._for,
            "c_style_for_statement": self._counted,
            "while_statement": self._while,
            "function_definition": self._define,
            "redirected_statement": self._redirected,
            "compound_statement": self._compound,
            "subshell": self._each,
            "program": self._each,
            "do_group": self._each,
        }

    # --- statements: each gives whether it succeeded, None where that cannot be known

    def text(self, text: str) -> bool | None:
        """Walk the commands of `text`."""
        root = _parsed(text.replace("\0", "").replace("\r\n", "\n"))
        if (line := _left_open(root)) and not self.depth:
            raise RFabricError(
                f"{self.script.path}: line {line}: a quote or bracket is opened and not closed"
            )
        try:
            return self.statement(root)
        except (_Exit, _Return):
            return None

    def statement(self, node: tree_sitter.Node) -> bool | None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise RFabricError(
                f"{self.script.path}: its loops and functions make more than {MOST_STEPS:,} "
                "commands; give the job's own launch script"
            )
        walk = self.kinds.get(node.type)
        if walk is None:
            return self._each(node) if node.type == "ERROR" else None
        return walk(node)

    def _each(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        for child in node.named_children:
            if child.type != "comment":
                status = self.statement(child)
        return status

    def _each_assignment(self, node: tree_sitter.Node) -> bool:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assignment(child)
        return True

    def _assignment(self, node: tree_sitter.Node) -> bool:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return True
        more = any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            self._element(target, self.one(value) if value else "")
            return True
        name = _text(target)
        new: Values = self._array(value) if value and value.type == "array" else self.one(value)
        self.values[name] = _joined_values(self.values.get(name), new) if more else new
        return True

    def _element(self, target: tree_sitter.Node, value: str) -> None:
        name, index = (_text(child) for child in target.named_children[:2])
        held = self.values.setdefault(name, [])
        if isinstance(held, list) and index.isdigit() and int(index) <= len(held) < MOST_STEPS:
            held[int(index) : int(index) + 1] = [value]

    def _array(self, node: tree_sitter.Node) -> list[str]:
        return [word for child in node.named_children for word in self.words(child)]

    def _command(self, node: tree_sitter.Node) -> bool | None:
        name = node.child_by_field_name("name")
        if name is None:
            return self._each_assignment(node)
        words = [*self.words(name.named_children[0] if name.named_children else name)]
        for child in node.children_by_field_name("argument"):
            words += self.words(child)
        return self.call(words, node.start_point[0] + 1) if words else True

    def call(self, words: list[str], line: int) -> bool | None:
        """What a command does to the shell, or that it would be run."""
        name, *arguments = words
        if name in self.functions:
            return self._inside(lambda: self.statement(self.functions[name]), arguments)
        if name in _BUILTINS:
            return _BUILTINS[name](self, arguments, line)
        if name in ("bash", "sh") and "-c" in arguments[:-1]:
            text = arguments[arguments.index("-c") + 1]
            return self._inside(lambda: self.text(text), [])
        printed = _printed(name, arguments, self)
        if printed is not None and self.printed is not None:
            self.printed.append(printed)
            return True
        if self.printed is not None:  # asked for its output: not the job
            self.printed.append(_opaque(name))
            return None
        self.script.commands.append(Command(tuple(words), line))
        return None

    def _inside(self, walk: Callable[[], bool | None], arguments: list[str]) -> bool | None:
        if self.depth >= DEPTH:
            raise RFabricError(
                f"{self.script.path}: its functions and sourced files call one another more "
                f"than {DEPTH} deep"
            )
        outer, self.arguments, self.depth = self.arguments, arguments, self.depth + 1
        try:
            return walk()
        except _Return:
            return None
        finally:
            self.arguments, self.depth = outer, self.depth - 1

    def _and_or(self, node: tree_sitter.Node) -> bool | None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((c.type for c in node.children if c.type in ("&&", "||")), ";")
        before = len(self.printed or ())
        status = self.statement(left)
        if status is None and operator != ";":
            # A job's programs run and succeed; one that only asks (`$(probe && echo a || echo b)`)
            # is taken to find nothing.
            status = self.printed is None
            del (self.printed or [])[before:]
        if operator == ";" or status == (operator == "&&"):
            return self.statement(right)
        return status

    def _pipeline(self, node: tree_sitter.Node) -> None:
        """Each part is reached; what the last prints depends on programs."""
        outer, self.printed = self.printed, [] if self.printed is not None else None
        for child in node.named_children:
            self.statement(child)
        self.printed = outer
        if outer is not None:
            outer.append(_opaque(_text(node).split()[0]))

    def _negated(self, node: tree_sitter.Node) -> bool | None:
        status = self.statement(node.named_children[-1])
        return None if status is None else not status

    def _redirected(self, node: tree_sitter.Node) -> bool | None:
        body = node.child_by_field_name("body")
        redirects = node.children_by_field_name("redirect")
        quiet = any(re.match(r"(1?>|&>)", _text(redirect)) for redirect in redirects)
        outer, self.printed = (
            self.printed,
            [] if quiet and self.printed is not None else self.printed,
        )
        try:
            return self.statement(body) if body else None
        finally:
            self.printed = outer

    def _compound(self, node: tree_sitter.Node) -> bool | None:
        if node.children and node.children[0].type == "((":
            return self._worked(node.named_children[0]) if node.named_children else None
        return self._each(node)

    def _worked(self, node: tree_sitter.Node) -> bool | None:
        """An arithmetic command: (( i < 3 )), (( i++ )), (( i = 3 ))."""
        setting = re.fullmatch(r"\s*(\w+)\s*(\+\+|--|[-+*/]?=(?!=))\s*(.*)", _text(node), re.DOTALL)
        if not setting:
            value = self._number(node)
            return None if value is None else value != 0
        name, sign, rest = setting[1], setting[2], self._plain(setting[3])
        sum_ = {"++": f"{self._value(name)} + 1", "--": f"{self._value(name)} - 1", "=": rest}
        value = whole_number(sum_.get(sign, f"{self._value(name)} {sign[0]} ({rest})"))
        self.values[name] = _opaque(_text(node)) if value is None else str(value)
        return None if value is None else value != 0

    def _counted(self, node: tree_sitter.Node) -> bool:
        """for ((i=0; i<N; i++))."""
        first, condition, update = (
            node.child_by_field_name(part) for part in ("initializer", "condition", "update")
        )
        if first is not None:
            self._worked(first)
        for _ in range(MOST_TURNS):
            if condition is None or not self._worked(condition):
                return True
            self.statement(node.child_by_field_name("body"))
            if update is not None:
                self._worked(update)
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _if(self, node: tree_sitter.Node) -> bool | None:
        status = self._condition(node)
        if status:
            return self._bodies(node)
        for child in node.named_children:
            if child.type == "elif_clause" and self._condition(child):
                return self._bodies(child)
            if child.type == "else_clause":
                return self._each(child)
        return True

    def _condition(self, node: tree_sitter.Node) -> bool:
        """Whether the condition of an if or elif holds; one that cannot be known does not."""
        status: bool | None = True
        for child in node.children_by_field_name("condition") or _before_then(node):
            if child.is_named:
                status = self.statement(child)
        if status is None:
            text = " ".join(_text(n) for n in _before_then(node))
            self._note(node, f"whether {text[:80]} holds cannot be known; taken as no")
        return bool(status)

    def _bodies(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        after = False
        for child in node.children:
            after = after or child.type == "then"
            if after and child.is_named and child.type not in ("elif_clause", "else_clause"):
                status = self.statement(child) if child.type != "comment" else status
        return status

    def _case(self, node: tree_sitter.Node) -> bool | None:
        value = node.child_by_field_name("value")
        subject = self.one(value) if value else ""
        known = _known(subject)
        if known is None:
            self._note(node, f"case {readable(subject)} cannot be known; its default was taken")
        for item in node.named_children:
            if item.type == "case_item" and self._matches(item, known):
                patterns = item.children_by_field_name("value")
                for child in item.named_children:
                    if child not in patterns and child.type != "comment":
                        self.statement(child)
                return True
        return True

    def _matches(self, item: tree_sitter.Node, subject: str | None) -> bool:
        patterns = [
            self.one(node) if node.type != "extglob_pattern" else _text(node)
            for node in item.children_by_field_name("value")
        ]
        if subject is None:
            return "*" in patterns
        return any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns)

    def _for(self, node: tree_sitter.Node) -> bool:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        turns = [w for child in node.children_by_field_name("value") for w in self.words(child)]
        for turn in turns:
            self.values[_text(variable)] = turn
            self.statement(body)
        return True

    def _while(self, node: tree_sitter.Node) -> bool:
        condition = node.children_by_field_name("condition")
        until = node.children[0].type == "until"
        for _ in range(MOST_TURNS):
            status: bool | None = True
            for child in condition:
                status = self.statement(child) if child.is_named else status
            if status is None or status == until:
                return True
            self.statement(node.child_by_field_name("body"))
        self._note(node, f"a loop was left after {MOST_TURNS} turns")
        return True

    def _define(self, node: tree_sitter.Node) -> bool:
        self.functions[_text(node.child_by_field_name("name"))] = node.child_by_field_name("body")
        return True

    def _note(self, node: tree_sitter.Node, text: str) -> None:
        said = f"line {node.start_point[0] + 1}: {readable(text)}"
        if said not in self.script.notes:
            self.script.notes.append(said)

    # --- words

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
            return _text(node)[1:-1]
        if kind == "ansi_c_string":
            return _text(node)[2:-1].replace("\\n", "\n").replace("\\t", "\t")
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
            return self._value(_text(node))
        return re.sub(r"\\(.)", r"\1", _text(node).replace("\\\n", ""), flags=re.DOTALL)

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

    def _value(self, name: str, ask: bool = True) -> str:
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
            return "0" if name == "?" else _opaque(name)
        if name not in self.values:
            if name in _AMBIENT:
                return self.folder if name == "PWD" else _AMBIENT[name]
            if ask:
                self.script.unset.add(name)
            return _unset(name)
        value = self.values[name]
        return (value[0] if value else "") if isinstance(value, list) else value

    def _all(self, node: tree_sitter.Node) -> list[str]:
        """The words of "$@" and "${array[@]}"."""
        if node.type == "simple_expansion":
            return list(self.arguments)
        name = _array_name(node)
        if name is None:
            return list(self.arguments)
        value = self.values.get(name)
        if value is None:
            default = self._default_of(node)
            return default.split() if default else []
        words = value if isinstance(value, list) else [value]
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
            return _opaque(_text(node)[1:])
        if node.children[1].type == "#":
            return self._length(head)
        if node.children[1].type == "!":
            return self._value(self._value(_text(head)))
        operator, rest = self._operator(node)
        if operator is None:
            return self._head(head)
        if operator in _DEFAULTS:
            return self._defaulted(head, operator, rest)
        return _rewritten(self._head(head), operator, [self.one(r) for r in rest], _text(node))

    def _operator(self, node: tree_sitter.Node) -> tuple[str | None, list[tree_sitter.Node]]:
        children = node.children[1:-1] if len(node.children) > 2 else []
        for i, child in enumerate(children):
            if not child.is_named and i > 0:
                return child.type, children[i + 1 :]
        return None, []

    def _head(self, head: tree_sitter.Node) -> str:
        if head.type != "subscript":
            return self._value(_text(head))
        name, index = (_text(child) for child in head.named_children[:2])
        if name == "BASH_SOURCE":
            return str(self.file)
        value = self.values.get(name)
        at = whole_number(self._plain(index))
        if isinstance(value, list) and at is not None and -len(value) <= at < len(value):
            return value[at]
        return self._value(name) if at == 0 and isinstance(value, str) else ""

    def _length(self, head: tree_sitter.Node) -> str:
        name = _text(head.named_children[0]) if head.type == "subscript" else _text(head)
        value = self.values.get(name, "")
        if isinstance(value, str):
            return _opaque(name) if _MARK.search(value) else str(len(value))
        return str(len(value) if head.type == "subscript" else len(value[0]) if value else 0)

    def _defaulted(self, head: tree_sitter.Node, operator: str, rest: list) -> str:
        name = _text(head)
        value = self._head(head) if self._is_set(head) else None
        empty = value is None or (operator[0] == ":" and (_known(value) == ""))
        if operator.endswith("+"):
            return "" if empty else self._joined(rest)
        if not empty:
            return value or ""
        if operator.endswith("?"):
            self.script.unset.add(name)
            return _unset(name)
        default = self._joined(rest)
        if value is None and head.type == "variable_name":
            self.script.defaulted.setdefault(name, readable(default))
            self.script.unset.discard(name)
        if operator.endswith("="):
            self.values[name] = default
        return default

    def _is_set(self, head: tree_sitter.Node) -> bool:
        name = _text(head.named_children[0]) if head.type == "subscript" else _text(head)
        if name.isdigit():
            return int(name) <= len(self.arguments)
        return name in self.values or name in _AMBIENT or name in ("@", "*", "#", "BASH_SOURCE")

    def _joined(self, nodes: Sequence[tree_sitter.Node]) -> str:
        """Pieces as one text, with the blanks that stand between them."""
        whole = "".join(map(_text, nodes))
        if whole.startswith("$((") and whole.endswith("))"):
            # The grammar takes the arithmetic of ${A:-$((1 + 2))} for a subshell.
            whole = _text(nodes[0].parent)
            start = whole.index("$((")
            again = _parsed(f"A={whole[start:-1]}").named_children[0].child_by_field_name("value")
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
        except (_Exit, _Return):
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
        if node.type in ("variable_name", "word") and re.fullmatch(r"[A-Za-z_]\w*", _text(node)):
            return f"({self._value(_text(node)) or '0'})"
        if not node.children:
            return f" {_text(node)} "
        return "".join(self._arithmetic_text(child) for child in node.children)

    def _arithmetic(self, node: tree_sitter.Node) -> str:
        text = "".join(self._arithmetic_text(child) for child in node.children[1:-1])
        value = whole_number(text)
        if value is not None:
            return str(value)
        names = unknown_names(text)
        return _unset(names[0]) if names else _opaque(readable(text).strip())

    # --- tests

    def _test(self, node: tree_sitter.Node) -> bool | None:
        inner = [child for child in node.children[1:-1] if child.is_named or child.type == "!"]
        if not inner:
            return False
        if node.children[0].type == "((":
            return self._worked(inner[0])
        return self._true(inner[-1]) if inner[0].type != "!" else _not(self._true(inner[-1]))

    def _true(self, node: tree_sitter.Node) -> bool | None:
        if node.type == "parenthesized_expression":
            return self._true(node.named_children[0])
        if node.type == "unary_expression":
            return self._unary(node)
        if node.type == "binary_expression":
            return self._binary(node)
        known = _known(self.one(node))
        return None if known is None else known != ""

    def _unary(self, node: tree_sitter.Node) -> bool | None:
        operator = _text(node.children[0])
        if operator == "!":
            return _not(self._true(node.children[-1]))
        if operator == "-v":
            return _text(node.children[-1]) in self.values
        value = _known(self.one(node.children[-1]))
        if value is None:
            return None
        if operator in ("-z", "-n"):
            return (value == "") == (operator == "-z")
        # Files of the machine the job runs on: not there, and so the script's own default is taken.
        return False if operator in ("-f", "-d", "-e", "-r", "-x", "-s", "-L", "-w") else None

    def _binary(self, node: tree_sitter.Node) -> bool | None:
        operator = _text(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator in ("&&", "-a"):
            return _both(self._true(left), self._true(right))
        if operator in ("||", "-o"):
            return _not(_both(_not(self._true(left)), _not(self._true(right))))
        return _compared(operator, _known(self.one(left)), _known(self.one(right)), right)

    # --- what the shell itself does

    def source(self, words: list[str], line: int) -> bool | None:
        """`source FILE`: walked where it stands near the script."""
        if not words:
            return False
        file = nearby(readable(words[0]), self.script.path)
        self.script.sourced.append(readable(words[0]))
        if file is None:
            self.script.notes.append(
                f"line {line}: source {readable(words[0])}: not found beside the script; left out"
            )
            return True
        outer, self.file = self.file, file
        try:
            text = file.read_bytes()[:MOST_BYTES].decode("utf-8", "replace")
            return self._inside(lambda: self.text(text), words[1:] or self.arguments)
        finally:
            self.file = outer

    def change_folder(self, words: list[str], line: int) -> bool:
        target = words[-1] if words else "~"
        self.folder = posixpath.normpath(posixpath.join(self.folder, target))
        return True

    def echo(self, words: list[str], line: int) -> bool:
        if self.printed is not None:
            self.printed.append(" ".join(w for w in words if w not in ("-n", "-e")))
        return True

    def set(self, words: list[str], line: int) -> bool:
        if "--" in words:
            self.arguments = words[words.index("--") + 1 :]
        return True

    def printf(self, words: list[str], line: int) -> bool:
        if words[:1] == ["-v"] and len(words) > 2:
            self.values[words[1]] = _formatted(words[2:])
        elif self.printed is not None:
            self.printed.append(_formatted(words))
        return True

    def shift(self, words: list[str], line: int) -> bool:
        self.arguments = self.arguments[int(words[0]) if words and words[0].isdigit() else 1 :]
        return True

    def unset(self, words: list[str], line: int) -> bool:
        for word in words:
            self.values.pop(word, None)
        return True

    def exit(self, words: list[str], line: int) -> bool:
        """A script that gives up for want of something goes on here, and that is said."""
        if words[:1] not in ([], ["0"]):
            self.script.notes.append(
                f"line {line}: the script would stop here with exit {words[0]}"
            )
            return True
        raise _Exit

    def leave(self, words: list[str], line: int) -> bool:
        raise _Return

    def evaluate(self, words: list[str], line: int) -> bool | None:
        return self._inside(lambda: self.text(" ".join(words)), self.arguments)


_NAMES = ("variable_name", "subscript", "special_variable_name")
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")
_BUILTINS: dict[str, Callable[[_Walk, list[str], int], bool | None]] = {
    "source": _Walk.source,
    ".": _Walk.source,
    "cd": _Walk.change_folder,
    "echo": _Walk.echo,
    "printf": _Walk.printf,
    "set": _Walk.set,
    "shift": _Walk.shift,
    "unset": _Walk.unset,
    "exit": _Walk.exit,
    "return": _Walk.leave,
    "eval": _Walk.evaluate,
    ":": lambda walk, words, line: True,
    "true": lambda walk, words, line: True,
    "false": lambda walk, words, line: False,
}


def nearby(name: str, script: Path) -> Path | None:
    """The file that `name` means, looked for beside the script and in the folders above it, where
    a repository keeps it; None where it is not there.
    """
    parts = [part for part in re.split(r"/+", name) if part not in ("", ".", "..")]
    if not parts or not name.isprintable() or len(name) > 1_000 or max(map(len, parts)) > 255:
        return None
    folders = [script.resolve().parent, *script.resolve().parents[1:5]]
    for first in range(len(parts)):
        tail = Path(*parts[first:])
        for folder in folders:
            if (file := folder / tail).is_file():
                return file
    return None


def _text(node: tree_sitter.Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def _unset(name: str) -> str:
    return f"{_OPEN}{_UNSET}{name}{_CLOSE}"


def _opaque(program: str) -> str:
    return f"{_OPEN}{_OPAQUE}({program}){_CLOSE}"


def _known(text: str) -> str | None:
    """A text as a test sees it: a variable nobody set is empty, a program's output is unknown."""
    if any(kind == _OPAQUE for kind, _ in _MARK.findall(text)):
        return None
    return _MARK.sub("", text)


def _not(status: bool | None) -> bool | None:
    return None if status is None else not status


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}


def _compared(
    operator: str, one: str | None, other: str | None, right: tree_sitter.Node
) -> bool | None:
    if one is None or other is None:
        return None
    if operator in ("=", "==", "!="):
        quoted = right.type in ("string", "raw_string")
        same = one == other if quoted else fnmatch.fnmatchcase(one, other)
        return same == (operator != "!=")
    if operator == "=~":
        try:
            return bool(re.search(other, one[:1000]))
        except re.error:
            return None
    if operator in ("<", ">"):
        return one < other if operator == "<" else one > other
    a, b = whole_number(one or "0"), whole_number(other or "0")
    return None if a is None or b is None or operator not in _NUMBERS else _NUMBERS[operator](a, b)


def _before_then(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    for child in node.children[1:]:
        if child.type in ("then", ";"):
            return
        yield child


def _only_child(node: tree_sitter.Node) -> tree_sitter.Node | None:
    inner = node.named_children
    whole = len(inner) == 1 and len(node.text or b"") == len(inner[0].text or b"") + 2
    return inner[0] if whole and inner[0].type in ("expansion", "simple_expansion") else None


def _is_all(node: tree_sitter.Node) -> bool:
    """Whether an expansion stands for all words of an array or of the arguments."""
    if node.type == "simple_expansion":
        return _text(node) in ("$@", "$*")
    if len(node.children) > 1 and node.children[1].type in ("#", "!"):
        return False
    return bool(re.match(r"\$\{(\w+\[[@*]\]|[@*])", _text(node)))


def _array_name(node: tree_sitter.Node) -> str | None:
    subscript = next((c for c in node.named_children if c.type == "subscript"), None)
    return _text(subscript.named_children[0]) if subscript is not None else None


def _sliced(node: tree_sitter.Node, words: list[str]) -> list[str]:
    numbers = re.findall(r":\s*(-?\d+)", _text(node))
    start = int(numbers[0]) if numbers else 0
    return words[start : start + int(numbers[1])] if len(numbers) > 1 else words[start:]


def _joined_values(held: Values | None, new: Values) -> Values:
    if isinstance(held, list):
        return held + (new if isinstance(new, list) else [new])
    if isinstance(new, list):
        return ([held] if held else []) + new
    return (held or "") + new


def _unquoted(text: bytes) -> str:
    """The text between double quotes, where a backslash guards only a few characters."""
    joined = text.decode("utf-8", "replace").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", joined)


def _rewritten(value: str, operator: str, rest: list[str], whole: str) -> str:
    """A value cut or replaced as ${name%pattern} and its like say."""
    if _MARK.search(value):
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
    return _opaque(whole.strip("${}"))


def _cut(value: str, operator: str, pattern: str) -> str:
    """`value` without the shortest (one sign) or longest (two) end or beginning that matches."""
    lengths = range(len(value) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        from_end = operator[0] == "%"
        piece = value[len(value) - length :] if from_end else value[:length]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[: len(value) - length] if from_end else value[length:]
    return value


def _formatted(words: list[str]) -> str:
    """What printf makes of a format and its words."""
    rest = list(words[1:])
    made = re.sub(r"%[sdi]", lambda m: rest.pop(0) if rest else "", words[0] if words else "")
    return made.replace("\\n", "\n")


def _printed(name: str, words: list[str], walk: _Walk) -> str | None:
    """What a command prints that only rewrites its words; None of all others."""
    words = [word for word in words if word != "--"]
    if name == "pwd":
        return walk.folder
    if name == "dirname" and words:
        return posixpath.dirname(words[-1]) or "."
    if name in ("realpath", "readlink") and words:
        return posixpath.normpath(posixpath.join(walk.folder, words[-1]))
    if name == "basename" and words:
        return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if words[1:] else "")
    if name == "expr":
        value = whole_number(" ".join(words))
        return None if value is None else str(value)
    if name == "seq" and all(word.isdigit() for word in words) and 0 < len(words) < 3:
        first, last = (1, int(words[0])) if len(words) == 1 else map(int, words)
        return "\n".join(map(str, range(first, min(last, first + MOST_TURNS) + 1)))
    return None
