"""Patterns of a shell, `*.sh`, `[!0-9]?`, `+(a|b)`: what matches, is cut off, is replaced.

What stands in quotes in a script is no pattern: `pieces` tells it apart, and `literal` guards it.
"""

import re
from collections.abc import Iterator

CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "digit": "0-9", "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_REPEATS = {"?": "?", "*": "*", "+": "+", "@": "", "!": ""}
_SET = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|\\.|[^\]])*)\]", re.DOTALL)
_SPECIAL = re.compile(r"([\\*?\[\]()|+@!])")
_QUOTED = re.compile(
    r"\$'(?P<ansi>(?:\\.|[^'\\])*)'|'(?P<raw>[^']*)'|\\(?P<guarded>.)|(?P<text>\"(?:\\.|[^\"\\])*\")",
    re.DOTALL,
)
_GUARDED = re.compile(r"\\([$`\\]|\n)")
_NAMED = re.compile(r"\$(?:\w+|[@*#?])")
_CLOSING = {"${": ("{", "}"), "$(": ("(", ")")}


def literal(text: str) -> str:
    """A pattern that matches `text` alone."""
    return _SPECIAL.sub(r"\\\1", text)


def matches(text: str, pattern: str) -> bool:
    """Whether all of `text` is as `pattern` says; what is no pattern is a text.

    >>> matches("qwen3-30b", "qwen[23]-*"), matches("b", "[!b]"), matches("aab", "+(a)b")
    (True, False, True)
    """
    return _compiled(pattern).fullmatch(text) is not None


def cut(value: str, operator: str, pattern: str) -> str:
    """`value` without the shortest (one sign) or longest (two) end or beginning that matches."""
    shape, size = _compiled(pattern), len(value)
    lengths = range(size + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        from_end = operator[0] == "%"
        if shape.fullmatch(value[size - length :] if from_end else value[:length]):
            return value[: size - length] if from_end else value[length:]
    return value


def replaced(value: str, operator: str, old: str, new: str) -> str:
    """`value` with what matches `old` replaced once (/), wherever it stands (//), where it begins
    with it (/#) or ends with it (/%).

    >>> replaced("a-b_c", "//", "[-_]", "."), replaced("a1b2", "/", "[0-9]*", "")
    ('a.b.c', 'a')
    """
    if not old:
        return {"/#": new + value, "/%": value + new}.get(operator, value)
    shape = _regex(old)
    shape = {"/#": rf"\A(?:{shape})", "/%": rf"(?:{shape})\Z"}.get(operator, shape)
    try:
        return re.sub(shape, lambda m: new, value, count=int(operator != "//"), flags=re.DOTALL)
    except re.error:
        return value


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """`text` of a script in parts: ("raw", ...) in quotes or behind a backslash, ("ansi", ...) in
    $'', ("text", ...) in double quotes, ("value", ...) an expansion, ("plain", ...) one character
    of any other.
    """
    at = 0
    while at < len(text):
        quoted = _QUOTED.match(text, at)
        if quoted is not None:
            kind = quoted.lastgroup or ""
            yield "raw" if kind == "guarded" else kind, quoted[kind]
            at = quoted.end()
        elif end := _expansion_end(text, at):
            yield "value", text[at:end]
            at = end
        else:
            yield "plain", text[at]
            at += 1


def here_pieces(text: str) -> Iterator[tuple[str, str]]:
    """The lines below <<EOF in parts: ("value", ...) an expansion, ("plain", ...) a character, of
    which quotes are some.
    """
    at = 0
    while at < len(text):
        guarded = _GUARDED.match(text, at)
        end = guarded.end() if guarded else _expansion_end(text, at)
        end = end or at + 1
        if guarded:
            yield "plain", guarded[1].strip("\n")
        else:
            yield "value" if end > at + 1 else "plain", text[at:end]
        at = end


def halves(text: str) -> tuple[str, str]:
    """The pattern and the replacement of ${name/pattern/replacement}, as the script has them."""
    at = 0
    for kind, piece in pieces(text):
        if (kind, piece) == ("plain", "/"):
            return text[:at], text[at + 1 :]
        at += len(piece) + {"raw": 2 if text[at] == "'" else 1, "ansi": 3}.get(kind, 0)
    return text, ""


def split_ways(text: str) -> list[str]:
    """The patterns of a case as the script has them: a|"b c"|+(d|e)."""
    ways, depth = [""], 0
    for kind, piece in pieces(text):
        plain = kind == "plain"
        depth += (plain and piece == "(") - (plain and piece == ")")
        if plain and piece == "|" and depth == 0:
            ways.append("")
        else:
            raw = f"\\{piece}" if len(piece) == 1 else f"'{piece}'"
            ways[-1] += {"raw": raw, "ansi": f"$'{piece}'"}.get(kind, piece)
    return [way.strip() for way in ways]


def _expansion_end(text: str, at: int) -> int:
    """Where the expansion that begins at `at` ends; 0 where none begins."""
    if name := _NAMED.match(text, at):
        return name.end()
    opening, closing = _CLOSING.get(text[at : at + 2], ("", ""))
    depth = 0
    for end in range(at + 1, len(text)) if opening else ():
        depth += (text[end] == opening) - (text[end] == closing)
        if depth == 0:
            return end + 1
    return 0


def _compiled(pattern: str) -> re.Pattern:
    try:
        return re.compile(_regex(pattern), re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def _regex(pattern: str) -> str:
    made, at = "", 0
    while at < len(pattern):
        sign, bracket = pattern[at], _SET.match(pattern, at)
        end = _group_end(pattern, at + 1) if sign in _REPEATS else 0
        if end:
            made += _group(sign, pattern[at + 2 : end])
            at = end
        elif sign == "\\" and at + 1 < len(pattern):
            made, at = made + re.escape(pattern[at + 1]), at + 1
        elif bracket is not None:
            made, at = made + _set(bracket), bracket.end() - 1
        else:
            made += {"*": ".*", "?": "."}.get(sign, re.escape(sign))
        at += 1
    return made


def _group(sign: str, inside: str) -> str:
    """+(a|b) and its like."""
    ways = "|".join(map(_regex, _ways(inside)))
    return rf"(?:(?!(?:{ways})\Z).*)" if sign == "!" else f"(?:{ways}){_REPEATS[sign]}"


def _group_end(pattern: str, at: int) -> int:
    """Where the bracket that opens at `at` is closed; 0 where none opens, or none closes."""
    depth = 0
    for end in range(at, len(pattern)):
        depth += (pattern[end] == "(") - (pattern[end] == ")")
        if depth == 0:
            return end if end > at else 0
    return 0


def _ways(inside: str) -> list[str]:
    """The parts between the bars of a|b|(c|d)."""
    ways, depth = [""], 0
    for sign in inside:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            ways.append("")
        else:
            ways[-1] += sign
    return ways


def _set(bracket: re.Match) -> str:
    """[!a-z] as a regular expression has it."""
    names = re.sub(r"\[:(\w+):\]", lambda m: CLASSES.get(m[1], ""), bracket[2])
    inside = re.sub(r"([\[&~|]|^\])", r"\\\1", names) if names == bracket[2] else names
    return f"[{'^' if bracket[1] else ''}{inside}]"
