"""What a script asks: `[ ... ]`, `[[ ... ]]` and `test ...`.

Their words are read here one after the other, as a shell does, because the grammar's tree has its
own opinion of what `!` and `-a` bind to.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tree_sitter

from .arithmetic import whole_number
from .shell_patterns import CLASSES, literal, matches, pieces
from .shell_text import known_text, readable, text_of, unknown_names
from .shell_words import ShellWords

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-lt": int.__lt__,
    "-le": int.__le__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
}
_TEXTS = ("=", "==", "!=", "<", ">", "=~")
_OF_FILES = ("-f", "-d", "-e", "-r", "-x", "-s", "-L", "-w", "-h")
_OF_ONE = ("-z", "-n", "-v", "-t", "-p", "-S", "-o", *_OF_FILES)
_SIGNS = ("!", "(", ")", "&&", "||", "<", ">", "-a", "-o", "=", "==", "!=", "=~", *_NUMBERS)
_INNER = ("binary_expression", "unary_expression", "parenthesized_expression", "ERROR")
_MOST_TEXT = 1_000  # characters that a regular expression is held against


class _Word(NamedTuple):
    """A word of a test: what it becomes, what stands in the script, and whether it may be an
    operator.
    """

    text: str
    said: str
    bare: bool


class ShellTests(ShellWords):
    """Conditions; None where what decides cannot be known."""

    def tested(self, node: tree_sitter.Node) -> bool | None:
        """[ ... ] or [[ ... ]]."""
        double = node.children[0].type == "[["
        words = [word for child in node.children[1:-1] for word in self._test_words(child, double)]
        return self.holds(words, double, node)

    def test(self, words: list[str], node: tree_sitter.Node) -> bool | None:
        """`test WORDS`."""
        return self.holds([_Word(word, word, True) for word in words], False, node)

    def holds(self, words: list[_Word], double: bool, node: tree_sitter.Node) -> bool | None:
        """Whether the words of a test hold; variables of the environment that it asks for are
        told.
        """
        for word in words:
            for name in unknown_names(word.text):
                self.script.defaulted.setdefault(name, "")
        try:
            return _Test(self, words, double, node).whole()
        except (IndexError, ValueError):  # words that are no test
            return False

    def _test_words(self, node: tree_sitter.Node, double: bool) -> Iterator[_Word]:
        if node.type in _INNER:
            for run in _joined_runs(node.children):
                if len(run) > 1:
                    said = "".join(map(text_of, run))
                    yield _Word("".join(map(self.one, run)), said, False)
                else:
                    yield from self._test_words(run[0], double)
            return
        said = text_of(node)
        quoted = node.type in ("string", "raw_string", "ansi_c_string")
        bare = not quoted and (said in _SIGNS or said in _OF_ONE)
        if double or quoted or bare:
            yield _Word(said if bare else self.one(node), said, bare)
        else:
            for word in self.words(node):
                if known_text(word) != "":
                    yield _Word(word, said, False)

    def there(self, name: str, operator: str, node: tree_sitter.Node) -> bool:
        """Whether a file is there: those of the script's own folder are known, others are taken as
        absent, and that is said.
        """
        path = self.inside(name)
        if path is not None and path.exists():
            return path.is_dir() if operator == "-d" else operator not in ("-L", "-h")
        line = node.start_point[0] + 1
        self.script.absent.setdefault(readable(name), line)
        return False

    def inside(self, name: str) -> Path | None:
        """The path that `name` means where the script stands by now; None of one that is not below
        the script's own folder.
        """
        path = Path(posixpath.join(self.folder, name)).absolute()
        below = self.script.path.absolute().parent in path.parents and len(name) < _MOST_TEXT
        return path if below and name.isprintable() and max(map(len, path.parts)) < 256 else None

    def regular(self, said: str) -> str:
        """The regular expression behind =~: what stands in quotes is text."""
        made = ""
        for kind, piece in pieces(said):
            text = piece if kind in ("plain", "raw") else self._piece(kind, piece, quoted=False)
            made += re.escape(text) if kind in ("raw", "text", "ansi") else text
        return re.sub(r"\[:(\w+):\]", lambda m: CLASSES.get(m[1], m[0]), made)


def _joined_runs(nodes: list[tree_sitter.Node]) -> Iterator[list[tree_sitter.Node]]:
    """Nodes with nothing between them are one word: *"x"*."""
    run: list[tree_sitter.Node] = []
    for node in nodes:
        if run and (node.start_byte > run[-1].end_byte or not node.is_named or _is_sign(run[-1])):
            yield run
            run = []
        run.append(node)
    if run:
        yield run


def _is_sign(node: tree_sitter.Node) -> bool:
    return not node.is_named or node.type in ("test_operator", *_INNER)


@dataclass
class _Test:
    """The words of one test, read from the left."""

    shell: ShellTests
    words: list[_Word]
    double: bool
    node: tree_sitter.Node
    at: int = 0

    def whole(self) -> bool | None:
        """All of it; no words are no, and so is what a shell takes for a mistake."""
        status = self._any() if self.words else False
        return status if self.at == len(self.words) else False

    def _sign(self, *signs: str, ahead: int = 0) -> str:
        at = self.at + ahead
        word = self.words[at] if at < len(self.words) else None
        return word.text if word is not None and word.bare and word.text in signs else ""

    def _any(self) -> bool | None:
        status = self._every()
        while self._sign("||", "-o"):
            self.at += 1
            status = _not(_both(_not(status), _not(self._every())))
        return status

    def _every(self) -> bool | None:
        status = self._one()
        while self._sign("&&", "-a"):
            self.at += 1
            status = _both(status, self._one())
        return status

    def _one(self) -> bool | None:
        if not self.double and len(self.words) - self.at == 1:
            return self._not_empty()
        if self._sign(*_TEXTS, *_NUMBERS, ahead=1):
            return self._two()
        if self._sign("!"):
            self.at += 1
            return _not(self._one())
        if self._sign("("):
            self.at += 1
            status = self._any()
            self.at += 1
            return status
        if self._sign(*_OF_ONE):
            return self._unary()
        return self._not_empty()

    def _not_empty(self) -> bool | None:
        known = known_text(self.words[self.at].text)
        self.at += 1
        return None if known is None else known != ""

    def _unary(self) -> bool | None:
        operator, word = self.words[self.at].text, self.words[self.at + 1]
        self.at += 2
        if operator == "-v":
            return self.shell.is_variable(word.text)
        value = known_text(word.text)
        if value is None or operator not in ("-z", "-n", *_OF_FILES):
            return None
        if operator in ("-z", "-n"):
            return (value == "") == (operator == "-z")
        return self.shell.there(readable(word.text), operator, self.node)

    def _two(self) -> bool | None:
        left, operator, right = self.words[self.at : self.at + 3]
        self.at += 3
        one, other = known_text(left.text), known_text(right.text)
        if one is None or other is None:
            return None
        if operator.text in _NUMBERS:
            return self._counted(operator.text, left.text, right.text)
        if operator.text == "=~":
            return self._searched(one, self.shell.regular(right.said))
        if operator.text in ("<", ">"):
            return one < other if operator.text == "<" else one > other
        shape = self.shell.pattern(right.said) if self.double else literal(other)
        return matches(one, known_text(shape) or "") == (operator.text != "!=")

    def _counted(self, operator: str, left: str, right: str) -> bool | None:
        if self.double:  # expressions
            left, right = (self.shell.sum_of(known_text(each) or "0") for each in (left, right))
        numbers = [whole_number(known_text(each) or "0") for each in (left, right)]
        if numbers[0] is None or numbers[1] is None:
            return None
        return _NUMBERS[operator](numbers[0], numbers[1])

    def _searched(self, text: str, shape: str) -> bool | None:
        try:
            match = re.search(shape, text[:_MOST_TEXT])
        except re.error:
            return None
        groups = [match[0], *match.groups("")] if match is not None else []
        self.shell.values["BASH_REMATCH"] = groups
        return match is not None


def _not(status: bool | None) -> bool | None:
    return None if status is None else not status


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True
