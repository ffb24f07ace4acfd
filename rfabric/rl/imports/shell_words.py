"""What words become: the variables of a shell that runs nothing, and their expansions."""

import re
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress

import tree_sitter

from ...errors import RFabricError
from .shell_expansions import ShellExpansions
from .shell_filters import with_escapes
from .shell_heredocs import Document
from .shell_patterns import here_pieces
from .shell_text import (
    EXPANDED,
    MARK,
    Script,
    blanks,
    brace_marked,
    braced,
    fields,
    is_all,
    is_joined,
    only_child,
    opaque_piece,
    readable,
    text_of,
    unescaped,
)
from .shell_variables import Variables
from .slurm import batch_variables
from .yaml_files import MOST_BYTES

_LITERAL = ("word", "number", "brace_expression")
_SPLIT = ("simple_expansion", "expansion", "command_substitution")
_CUT = "\ue009"  # a private character that no script holds: a word ends here


class ScriptEnd(Exception):
    """The script ends here; `status`: whether it says that it succeeded, None: as the command
    before it.
    """

    def __init__(self, status: bool | None = None) -> None:
        super().__init__()
        self.status = status


class FunctionEnd(ScriptEnd):
    """The function, or the sourced file, ends here."""


class LoopEnd(Exception):
    """`left` loops end here, the innermost first; with `again` the last of them goes on."""

    def __init__(self, left: int, again: bool) -> None:
        super().__init__()
        self.left, self.again = left, again


class ShellWords(ShellExpansions):
    """The state of a shell that runs nothing, and what its words become."""

    def __init__(self, script: Script, environment: dict[str, str]) -> None:
        self.script = script
        numbered = {int(name): text for name, text in environment.items() if name.isdigit()}
        named = {name: text for name, text in environment.items() if not name.isdigit()}
        self.state = Variables(dict(named), exported=set(named))
        self.arguments = [numbered.get(i, "") for i in range(1, max(numbered, default=0) + 1)]
        self.cells = {}
        self.functions: dict[str, tree_sitter.Node] = {}
        self.program = self.file = script.path  # $0, and the file that is walked
        self.folder = str(script.path.parent)
        self.depth = self.steps = self.grown = self.loops = 0
        self.status: bool | None = True
        self.substituted: bool | None = True  # whether the last $(...) succeeded
        self.code = self.said = 0  # what $? is, what `return N` or `exit N` has just said
        self.shells = 0  # ( ... ) and $( ... ) around what is walked
        self.traps: dict[str, str] = {}
        self.input: str | None = None  # what `read` and its like would take
        self.asked = self.exports_all = False  # only the output counts; `set -a`
        self.documents: list[Document] = []  # what stands below each <<EOF
        self.written = script.written
        self.printed: list[str] | None = None  # what a command substitution has written so far

    @abstractmethod
    def text(self, text: str) -> bool | None:
        """Walk the commands of `text`."""

    @abstractmethod
    def file_text(self, name: str) -> str | None:
        """What is in a file that the script has made, or that stands near it; None of others."""

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
            if (quoted := self.taken_default(node)) is not None:
                return self.words(quoted)
            if is_all(node):
                return [w for word in self._all(node) for w in self._fields(word)]
            return self._fields(self.one(node))
        if node.type in ("concatenation", "brace_expression"):
            return self._braced(node)
        if node.type == "command_substitution":
            return self._fields(self.one(node))
        return [self.one(node)]

    def _fields(self, text: str) -> list[str]:
        """The words of a value without quotes."""
        between = self.values.get("IFS", " \t\n")
        return fields(text, between if isinstance(between, str) else " \t\n")

    def told_by_slurm(self, options: str) -> None:
        """Set what Slurm would tell a job with these options of sbatch; what is set already
        stays.
        """
        told = {k: v for k, v in batch_variables(options).items() if k not in self.values}
        self.state.values |= told
        self.state.exported |= set(told)

    def _braced(self, node: tree_sitter.Node) -> list[str]:
        """The words that braces make of one, {a,b} and {1..4}; in quotes and values they are
        text. Values without quotes are cut at blanks: k=$A, and gone where they are empty: $A$B.
        """
        parts = node.children if node.type == "concatenation" else [node]
        bare = all(part.type in _SPLIT for part in parts)
        words = [
            word
            for whole in braced("".join(map(self._part_marked, parts)))
            for word in (filter(None, whole.split(_CUT)) if bare or _CUT in whole else [whole])
        ]
        self.grown += sum(map(len, words))
        return words

    def _part_marked(self, node: tree_sitter.Node) -> str:
        """A part of a word, marked where braces do not see it: {1..$N} counts nothing."""
        return ("" if node.type in _LITERAL else EXPANDED) + self._part(node)

    def _part(self, node: tree_sitter.Node) -> str:
        """A part of a word, its braces marked, and where the word is cut in it."""
        if node.type in _LITERAL:
            return brace_marked(text_of(node))
        spread = only_child(node) if node.type == "string" else None
        if spread is not None and is_all(spread) and not is_joined(spread):
            return _CUT.join(self._all(spread))
        if node.type not in _SPLIT:
            return self.one(node)
        text = self.one(node)
        first, last = (
            _CUT * (not self._fields(sign)) for sign in (text[:1] or "-", text[-1:] or "-")
        )
        return first + _CUT.join(self._fields(text)) + last

    def one(self, node: tree_sitter.Node | None) -> str:
        """The text a node becomes, as one word. RFabricError where it grows too long."""
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
            return with_escapes(text_of(node)[2:-1])
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
        if kind == "process_substitution":
            return self._as_file(node)
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
            parts.append(unescaped(child.text or b"") if raw else blanks(child) + self.one(child))
            at = child.end_byte
        parts.append(unescaped(source[at - start : len(source) - 1]))
        return "".join(parts)

    def here_text(self, document: Document) -> str:
        """What stands between <<EOF and EOF; its variables stay as they are where EOF is quoted."""
        if document.plain:
            return document.text
        return "".join(
            piece if kind == "plain" else self._piece(kind, piece, quoted=False)
            for kind, piece in here_pieces(document.text)
        )

    def _substitution(self, node: tree_sitter.Node) -> str:
        outer, self.asked = self.asked, True
        try:
            return self.output(lambda: self._substitute(node)).rstrip("\n")
        finally:
            self.asked = outer

    def _as_file(self, node: tree_sitter.Node) -> str:
        """<(commands): the name of a file that holds what they print, where that is known."""
        name, text = f"/dev/fd/{node.start_byte}", self._substitution(node) + "\n"
        if not text_of(node).startswith("<(") or MARK.search(text):
            return text_of(node)
        self.written[name] = text
        return name

    def _substitute(self, node: tree_sitter.Node) -> None:
        file = node.named_children[0] if len(node.named_children) == 1 else None
        if file is None or file.type != "file_redirect":
            self.substituted = self.apart(node)
        elif self.printed is not None:  # $(< FILE)
            name = self.one(file.named_children[-1])
            text = self.file_text(name)
            self.printed.append(opaque_piece(f"< {name}") if text is None else text)

    def output(self, walk: Callable[[], object]) -> str:
        """What the commands of `walk` print."""
        outer, self.printed = self.printed, []
        try:
            walk()
        finally:
            printed, self.printed = self.printed, outer
        return "".join(printed)

    def apart(self, node: tree_sitter.Node) -> bool | None:
        """Walk ( ... ) or $( ... ), a shell of its own: what it sets is gone when it ends."""
        self.shells += 1
        try:
            return self.in_other_shell(lambda: self._last_of(node), self.state.copy())
        finally:
            self.shells -= 1

    def _last_of(self, node: tree_sitter.Node) -> bool | None:
        status: bool | None = True
        for child in node.named_children:
            if child.type != "comment":
                status = self.statement(child)
        return status

    def in_other_shell(self, walk: Callable[[], bool | None], state: Variables) -> bool | None:
        """Walk what a shell of its own would do, with these variables."""
        kept = self.state, self.folder, self.loops, self.arguments, self.traps
        self.state, self.loops, self.traps = state, 0, {}
        try:
            return self.to_its_end(walk)
        finally:
            self.state, self.folder, self.loops, self.arguments, self.traps = kept

    def to_its_end(self, walk: Callable[[], bool | None]) -> bool | None:
        """Walk what a shell does, and then what it has been told to do at its exit."""
        try:
            status = walk()
        except ScriptEnd as end:
            status = end.status
        if at_exit := self.traps.pop("EXIT", ""):
            code = self.said
            with suppress(ScriptEnd):
                self.text(at_exit)
            self.said = code
        return status

    def _array(self, node: tree_sitter.Node) -> list[str]:
        children = [child for child in node.named_children if child.type != "comment"]
        return [word for child in children for word in self.words(child)]

    def _note(self, node: tree_sitter.Node, text: str) -> None:
        said = f"line {node.start_point[0] + 1}: {readable(text)}"
        if said not in self.script.notes:
            self.script.notes.append(said)
