"""What a script is as text: its tree, the commands it reaches, and pieces that nobody here knows.

An unknown piece, a variable of the environment or what a program prints, stands in a text between
two private characters, so that it can be told from what is known and shown as a shell writes it.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import tree_sitter
import tree_sitter_bash

from ...errors import RFabricError

# An unknown piece of text stands between these two: private characters that no script holds.
_OPEN, _CLOSE = "\ue000", "\ue001"
_UNSET, _OPAQUE = "\ue002", "\ue003"  # left to the environment, printed by a program
_WHOLE = "\ue007"  # an unknown piece while its text is cut
MARK = re.compile(f"{_OPEN}([{_UNSET}{_OPAQUE}])([^{_CLOSE}]*){_CLOSE}")
Values = str | list[str]


@dataclass(frozen=True)
class Command:
    """The words of a command and the line it begins on; `environment`: variables that one sees
    which is given a config file, or asks for them (`${oc.env:NAME}`).
    """

    words: tuple[str, ...]
    line: int
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass
class Script:
    """The commands a script reaches; `defaulted`: variables that it leaves to the environment, with
    a default of its own; `absent`: files that it asks for and that are not in its folder, by the
    line that asks; `written`: the text of files that it makes, by path; `beside`: commands behind a
    condition that does not hold as far as is known.
    """

    path: Path
    commands: list[Command] = field(default_factory=list)
    defaulted: dict[str, str] = field(default_factory=dict)
    sourced: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: dict[str, int] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    beside: list[Command] = field(default_factory=list)


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


@functools.cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parsed(text: str) -> tree_sitter.Node:
    """The tree of a script, by the grammar of tree-sitter-bash.

    To it, of a line `A=1 B=2` the end is none, and what follows would see A and B alone: such a
    line is given a semicolon. What it takes for the end of a word is written otherwise first: the
    second $ of $A/b/$C/d, that of $A\\$b, and a=`b` before a semicolon, a bracket or /c.
    """
    source = text.encode("utf-8", "replace")
    root = _parser().parse(source).root_node
    for ways in (_cut_words, _ends_of_assignments):
        made: set[tuple[int, bytes]] = (
            set()
        )  # by what stands behind: a torn text is not mended by trying again
        while changes := [c for c in sorted(ways(root, source)) if _key(c, source) not in made]:
            made |= {_key(change, source) for change in changes}
            for start, end, instead in reversed(changes):
                source = source[:start] + instead + source[end:]
            root = _parser().parse(source).root_node
    return root


_Amendment = tuple[int, int, bytes]  # from, to, and what is to stand there


def _key(change: _Amendment, source: bytes) -> tuple[int, bytes]:
    """What a change puts, and how much of the text stands behind it."""
    return len(source) - change[1], change[2]


_NAMED, _LETTER = re.compile(rb"[A-Za-z_]\w*|\d"), re.compile(rb"[\w.})'\"=:/,-]")
_LISTS = ("command", "array", "for_statement")  # of words, of which each stands by itself


def _cut_words(root: tree_sitter.Node, source: bytes) -> Iterator[_Amendment]:
    """What bash reads as one word and the grammar as two; $1b is $1 and a letter."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += [child for child in node.children if re.search(rb"[$`]", child.text or b"")]
        start, end, text = node.start_byte, node.end_byte, node.text or b""
        alone = node.type == "$" and node.parent is not None and node.parent.type == "concatenation"
        if alone and (name := _NAMED.match(source, end)):
            yield end, name.end(), b"{" + name[0] + b"}"
        elif node.type == "word" and text[:2] == b"\\$" and _LETTER.match(source, start - 1):
            yield start, start + 2, b"'$'"
        elif node.type == "simple_expansion" and re.match(rb"\$\d\w", text):
            yield start + 1, start + 2, b"{" + text[1:2] + b"}"
        elif _is_torn_off(node) and _LETTER.match(source, start - 1):
            yield from ((start, start + 1, b"$("), (end - 1, end, b")"))


def _is_torn_off(node: tree_sitter.Node) -> bool:
    """Whether the `command` of a word, or what begins with it, stands beside the rest of it."""
    text, parent = node.text or b"", node.parent
    if parent and parent.type == "concatenation" and parent.start_byte == node.start_byte:
        parent = parent.parent
    plain = text.startswith(b"`") and b"\\" not in text
    return node.type == "command_substitution" and plain and bool(parent and parent.type in _LISTS)


def _ends_of_assignments(root: tree_sitter.Node, source: bytes) -> Iterator[_Amendment]:
    """Where a line ends between the assignments before a command, and it."""
    waiting = [root]
    while waiting:
        node = waiting.pop(0)
        waiting += [child for child in node.children if b"=" in (child.text or b"")]
        if node.type != "command" or node.children[0].type != "variable_assignment":
            continue
        for one, other in pairwise(node.children):
            between = source[one.end_byte : other.start_byte].replace(b"\\\n", b"")
            if one.type == "variable_assignment" and b"\n" in between:
                yield one.end_byte, one.end_byte, b";"
                break


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


def fields(text: str, between: str) -> list[str]:
    """The words of a text without quotes, cut at the characters of `between` (IFS); unknown pieces
    stay whole.

    >>> fields(" a  b ", " "), fields("a::b:", ": ")
    (['a', 'b'], ['a', '', 'b'])
    """
    blanks = "".join(sign for sign in between if sign.isspace())
    signs = "".join(sign for sign in between if not sign.isspace())
    whole = MARK.findall(text)
    rest = MARK.sub(_WHOLE, text).strip(blanks) if blanks else MARK.sub(_WHOLE, text)
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    cut = f"{blank}*[{re.escape(signs)}]{blank}*|{blank}+" if signs else f"{blank}+"
    words = re.split(cut, rest) if rest else []
    if words and not words[-1]:
        words.pop()
    held = iter(whole)
    return [
        re.sub(_WHOLE, lambda m: "{}{}{}{}".format(_OPEN, *next(held), _CLOSE), w) for w in words
    ]


def unescaped(text: bytes) -> str:
    """The text between double quotes, where a backslash guards only a few characters."""
    joined = text.decode("utf-8", "replace").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", joined)


def blanks(node: tree_sitter.Node) -> str:
    """The blanks before an expansion, which the grammar takes for a part of it: "$A $B"."""
    text = text_of(node)
    return text[: len(text) - len(text.lstrip())]


def only_child(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """The expansion that is all a quoted text holds."""
    inner = node.named_children
    whole = len(inner) == 1 and len(node.text or b"") == len(inner[0].text or b"") + 2
    expands = whole and inner[0].type in ("expansion", "simple_expansion")
    return inner[0] if expands and not blanks(inner[0]) else None


def is_all(node: tree_sitter.Node) -> bool:
    """Whether an expansion stands for all words of an array or of the arguments."""
    if node.type == "simple_expansion":
        return text_of(node).lstrip() in ("$@", "$*")
    if len(node.children) > 1 and node.children[1].type == "#":
        return False
    return bool(re.match(r"\$\{(!\w+[@*]\}|!?\w+\[[@*]\]|[@*])", text_of(node)))


def is_joined(node: tree_sitter.Node) -> bool:
    """Whether the words of an array or of the arguments become one where they are in quotes."""
    return bool(re.match(r"\$\*|\$\{(!\w+\*\}|!?\w+\[\*\]|\*)", text_of(node)))


def array_name(node: tree_sitter.Node) -> str | None:
    """The array that an expansion such as ${name[@]} is of."""
    subscript = next((c for c in node.named_children if c.type == "subscript"), None)
    return text_of(subscript.named_children[0]) if subscript is not None else None


def read_fields(text: str, between: str, count: int) -> list[str]:
    """What `read` gives `count` names of a line: the last of them has what is left.

    >>> read_fields("a b c d", " ", 2), read_fields("k=v=w", "=", 2), read_fields("a", " ", 2)
    (['a', 'b c d'], ['k', 'v=w'], ['a', ''])
    """
    blanks = "".join(sign for sign in between if sign.isspace())
    signs = "".join(sign for sign in between if not sign.isspace())
    rest, cut = text.strip(blanks), []
    while rest and len(cut) < count - 1:
        end = next((at for at, sign in enumerate(rest) if sign in between), len(rest))
        cut.append(rest[:end])
        rest = rest[end:].lstrip(blanks)
        rest = rest[1:].lstrip(blanks) if rest[:1] and rest[0] in signs else rest
    return [*cut, rest, *[""] * count][:count]


# --- braces ---------------------------------------------------------------------------------------

# Braces and commas that stand in no quotes and no value: private characters that no script holds.
_BRACES = {"{": "\ue004", ",": "\ue005", "}": "\ue006"}
EXPANDED = "\ue00a"  # what follows is a value, which stands there only once braces have been seen
_PLAIN = {ord(mark): sign for sign, mark in _BRACES.items()} | {ord(EXPANDED): None}
_LEFT, _COMMA, _RIGHT = _BRACES.values()
_RUN = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")
MOST_WORDS = 10_000  # that the braces of one word make


def brace_marked(text: str) -> str:
    """`text` as it stands in a script, without its backslashes, its braces and commas marked."""
    joined = text.replace("\\\n", "")
    return re.sub(r"\\(.)|([{},])", lambda m: m[1] or _BRACES[m[2]], joined, flags=re.DOTALL)


def braced(marked: str) -> list[str]:
    """The words that the braces of one make: x{a,b}, {1..8..2}; braces of no list are text.

    >>> braced(brace_marked("n={1..3}")), braced(brace_marked("{a,b}{1,2}"))
    (['n=1', 'n=2', 'n=3'], ['a1', 'a2', 'b1', 'b2'])
    """
    return [word.translate(_PLAIN) for word in _braced(marked)]


def _braced(text: str) -> list[str]:
    start = text.find(_LEFT)
    cuts = _cuts(text, start)
    if start < 0:
        return [text]
    inner = text[start + 1 : cuts[-1]] if cuts else ""
    run = _RUN.fullmatch(inner)
    if len(cuts) < 2 and not run:
        return [text[: start + 1] + rest for rest in _braced(text[start + 1 :])]
    pieces = [text[a + 1 : b] for a, b in zip([start, *cuts], cuts, strict=False)]
    ways = _run(run) if run else [way for piece in pieces for way in _braced(piece)]
    ends = _braced(text[cuts[-1] + 1 :])
    if len(ways) * len(ends) > MOST_WORDS:
        raise RFabricError(
            f"braces make more than {MOST_WORDS:,} words of one; that is no job's file"
        )
    return [text[:start] + way + end for way in ways for end in ends]


def _cuts(text: str, start: int) -> list[int]:
    """Where the commas of the brace at `start` are, and its end last; none where it has no end."""
    cuts, depth = [], 0
    for at in range(start, len(text)) if start >= 0 else ():
        depth += {_LEFT: 1, _RIGHT: -1}.get(text[at], 0)
        if depth == 0 or (depth == 1 and text[at] == _COMMA):
            cuts.append(at)
        if depth == 0:
            return cuts
    return []


def _run(match: re.Match) -> list[str]:
    """The words of {1..8}, {8..1..2}, {01..10} and {a..e}."""
    first, last, step = match.groups()
    if first.isalpha() != last.isalpha():
        return [f"{_LEFT}{match[0]}{_RIGHT}"]
    a, b = (ord(first), ord(last)) if first.isalpha() else (int(first), int(last))
    by = abs(int(step or 1)) or 1
    counted = range(a, b + 1, by) if b >= a else range(a, b - 1, -by)
    padded = any(re.match(r"-?0\d", end) for end in (first, last))
    wide = max(len(first), len(last)) if padded else 0
    named = counted[: MOST_WORDS + 1]
    return [chr(n) if first.isalpha() else f"{n:0{wide}d}" for n in named]
