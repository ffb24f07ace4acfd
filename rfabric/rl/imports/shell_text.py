"""What a script is as text: its tree, the commands it reaches, and pieces that nobody here knows.

An unknown piece, a variable of the environment or what a program prints, stands in a text between
two private characters, so that it can be told from what is known and shown as a shell writes it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter
import tree_sitter_bash

# An unknown piece of text stands between these two: private characters that no script holds.
_OPEN, _CLOSE = "\ue000", "\ue001"
_UNSET, _OPAQUE = "\ue002", "\ue003"  # left to the environment, printed by a program
MARK = re.compile(f"{_OPEN}([{_UNSET}{_OPAQUE}])([^{_CLOSE}]*){_CLOSE}")
Values = str | list[str]


@dataclass(frozen=True)
class Command:
    """The words of a command and the line it begins on."""

    words: tuple[str, ...]
    line: int


@dataclass
class Script:
    """The commands a script reaches; `defaulted`: variables that it leaves to the environment, with
    a default of its own.
    """

    path: Path
    commands: list[Command] = field(default_factory=list)
    defaulted: dict[str, str] = field(default_factory=dict)
    sourced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def readable(text: str) -> str:
    """`text` with its unknown pieces as a shell writes them: $NAME, $(program)."""
    return MARK.sub(lambda m: f"${m[2]}", text)


def unknown_names(text: str) -> list[str]:
    """The variables of the environment that `text` depends on."""
    return [name for kind, name in MARK.findall(text) if kind == _UNSET]


def left_open(root: tree_sitter.Node) -> int:
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


def parsed(text: str) -> tree_sitter.Node:
    """The tree of a script, by the grammar of tree-sitter-bash."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser.parse(text.encode("utf-8", "replace")).root_node


def text_of(node: tree_sitter.Node | None) -> str:
    """What stands in the script where `node` does."""
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def unset_piece(name: str) -> str:
    """A variable that is left to the environment, as a piece of a text."""
    return f"{_OPEN}{_UNSET}{name}{_CLOSE}"


def opaque_piece(program: str) -> str:
    """What a program would print, as a piece of a text."""
    return f"{_OPEN}{_OPAQUE}({program}){_CLOSE}"


def known_text(text: str) -> str | None:
    """A text as a test sees it: a variable nobody set is empty, a program's output is unknown."""
    if any(kind == _OPAQUE for kind, _ in MARK.findall(text)):
        return None
    return MARK.sub("", text)
