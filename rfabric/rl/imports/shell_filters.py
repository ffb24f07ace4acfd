"""Programs that only rewrite text: what they print is worked out here, and nothing is run.

What they are asked for beyond the few options that scripts of jobs use stays unknown.
"""

import posixpath
import re
from collections.abc import Callable

from .arithmetic import whole_number

MOST_TURNS = 1_000  # of one while loop, or of what `seq` counts
_SAFE = re.compile(r"\^?[\w .:,=/@%-]*\$?")  # patterns that all kinds of regular expression share
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def printed(words: list[str], text: str | None, folder: str) -> str | None:
    """What a command prints, with the end of its last line; None where that is not known. `text`:
    what it is given to read; `folder`: where it stands.

    >>> printed(["tr", ",", " "], "a,b", "/"), printed(["cut", "-d:", "-f2"], "a:b", "/")
    ('a b', 'b\\n')
    """
    name, *rest = words
    rest = [word for word in rest if word != "--"]
    if name in _OF_WORDS:
        made = _OF_WORDS[name](rest, folder)
        return None if made is None else made + "\n"
    if name not in _OF_TEXT or text is None:
        return None
    return _OF_TEXT[name](rest, text)


def with_escapes(text: str) -> str:
    r"""`text` with its \n and \t as what they stand for."""
    return re.sub(r"\\([nt\\])", lambda m: _ESCAPES[m[1]], text)


def formatted(words: list[str]) -> str:
    """What printf makes of a format and its words, the format again while words are left."""
    shape, rest = words[0] if words else "", list(words[1:])

    def filled(m: re.Match) -> str:
        if m[0] == "%%":
            return "%"
        word = rest.pop(0) if rest else ""
        kind = m[0][-1]
        try:
            if kind in "sq":
                return m[0].replace("q", "s") % word
            return m[0] % (float(word or 0) if kind in "feg" else whole_number(word or "0"))
        except (TypeError, ValueError):
            return word

    made = ""
    while True:
        before = len(rest)
        made += re.sub(r"%%|%-?\d{0,3}(?:\.\d{1,2})?[sdiqfegxX]", filled, with_escapes(shape))
        if not rest or len(rest) == before:
            return made


# --- of their words -------------------------------------------------------------------------------


def _folder_of(words: list[str], folder: str) -> str | None:
    return (posixpath.dirname(words[-1]) or ".") if words else None


def _path(words: list[str], folder: str) -> str | None:
    return posixpath.normpath(posixpath.join(folder, words[-1])) if words else None


def _last_part(words: list[str], folder: str) -> str | None:
    if not words:
        return None
    return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if words[1:] else "")


def _sum(words: list[str], folder: str) -> str | None:
    value = whole_number(" ".join(words))
    return None if value is None else str(value)


def _counted(words: list[str], folder: str) -> str | None:
    """seq LAST, seq FIRST LAST, seq FIRST STEP LAST; -s SEPARATOR before them."""
    between = words[1] if words[:1] == ["-s"] and len(words) > 2 else "\n"
    words = words[2:] if words[:1] == ["-s"] else words
    if not all(re.fullmatch(r"-?\d{1,9}", word) for word in words) or not 0 < len(words) < 4:
        return None
    first, last = (int(words[0]) if len(words) > 1 else 1), int(words[-1])
    step = int(words[1]) if len(words) == 3 else 1
    if step == 0:
        return None
    counted = range(first, last + (1 if step > 0 else -1), step)
    return between.join(map(str, counted[: MOST_TURNS + 1]))


_OF_WORDS: dict[str, Callable[[list[str], str], str | None]] = {
    "pwd": lambda words, folder: folder,
    "dirname": _folder_of,
    "realpath": _path,
    "readlink": _path,
    "basename": _last_part,
    "expr": _sum,
    "seq": _counted,
}


# --- of what they read ----------------------------------------------------------------------------


def _translated(words: list[str], text: str) -> str | None:
    """tr OLD NEW, tr -d OLD."""
    sets = [_letters(word) for word in words if not re.fullmatch(r"-\w+", word)]
    if words[:1] == ["-d"] and len(sets) == 1 and sets[0]:
        return "".join(sign for sign in text if sign not in sets[0])
    if words[:1] == ["-s"] or len(sets) != 2 or not sets[0] or not sets[1]:
        return None
    new = sets[1].ljust(len(sets[0]), sets[1][-1])
    return text.translate(dict(zip(map(ord, sets[0]), new, strict=False)))


def _letters(said: str) -> str:
    """The letters of a set of tr: a-z, [:upper:], \\n; none where it says more than is read
    here.
    """
    named = said.replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z")
    named = with_escapes(named.replace("[:digit:]", "0-9").replace("[:space:]", " \t\n\r"))
    if "[:" in named:
        return ""
    return re.sub(r"(\w)-(\w)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), named)


def _fields_of(words: list[str], text: str) -> str | None:
    """cut -dSIGN -fN."""
    said = "\n".join(words)  # a sign may be a blank
    asked = re.search(r"-f\n?(\d+)(?!\S)", said)
    sign = re.search(r"-d\n?(.)", said)
    if asked is None or re.search(r"-[bcs]|--", said):
        return None
    at = int(asked[1]) - 1
    parts = [line.split(sign[1] if sign else "\t") for line in text.splitlines()]
    return "".join((p[0] if len(p) == 1 else "".join(p[at : at + 1])) + "\n" for p in parts)


def _counts(words: list[str], text: str) -> str | None:
    """wc -l, wc -w, wc -c."""
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}
    return f"{counts[words[0]]}\n" if len(words) == 1 and words[0] in counts else None


def _lines(words: list[str], text: str, last: bool) -> str | None:
    """head or tail, -n N or -N."""
    said = re.fullmatch(r"(?:-n ?)?-?(\d+)", " ".join(words)) if words else None
    if words and said is None:
        return None
    count, lines = int(said[1]) if said else 10, text.splitlines(keepends=True)
    return "".join(lines[max(0, len(lines) - count) :] if last else lines[:count])


def _sum_of_text(words: list[str], text: str) -> str | None:
    """bc: one expression of whole numbers."""
    value = whole_number(re.sub(r"scale *= *0 *;", "", text).strip().replace("^", "**"))
    return None if value is None or words not in ([], ["-l"]) else f"{value}\n"


def _column(words: list[str], text: str) -> str | None:
    """awk '{print $N}', with -F SIGN."""
    program = re.fullmatch(r"\{ *print \$(\d+|NF) *;? *\}", words[-1] if words else "")
    sign = re.fullmatch(r"-F *(\S)|", " ".join(words[:-1]))
    if program is None or sign is None:
        return None
    rows = [line.split(sign[1]) for line in text.splitlines()]
    at = -1 if program[1] == "NF" else int(program[1]) - 1
    if at == -1 and program[1] == "0":
        return text
    return "".join((row[at] if -1 <= at < len(row) and row else "") + "\n" for row in rows)


def _lines_with(words: list[str], text: str) -> str | None:
    """grep WORD, where the word is no pattern beyond ^ and $."""
    pattern = words[-1] if words else ""
    if len(words) != 1 or not _SAFE.fullmatch(pattern.replace(".", "")) or "." in pattern:
        return None
    lines = (line for line in text.splitlines() if re.search(pattern, line))
    return "".join(f"{line}\n" for line in lines)


def _edited(words: list[str], text: str) -> str | None:
    """sed s/WORD/TEXT/g, where the word is no pattern beyond ^ and $."""
    said = re.fullmatch(r"s([/|,#])(.*?)\1(.*?)\1(g?)", words[-1] if words else "")
    if len(words) != 1 or said is None or not _SAFE.fullmatch(said[2]) or "." in said[2]:
        return None
    if re.search(r"[&\\]", said[3]):
        return None
    count = 0 if said[4] else 1
    lines = (re.sub(said[2], lambda m: said[3], line, count=count) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


_OF_TEXT: dict[str, Callable[[list[str], str], str | None]] = {
    "cat": lambda words, text: text if words in ([], ["-"]) else None,
    "tr": _translated,
    "cut": _fields_of,
    "wc": _counts,
    "head": lambda words, text: _lines(words, text, last=False),
    "tail": lambda words, text: _lines(words, text, last=True),
    "bc": _sum_of_text,
    "awk": _column,
    "grep": _lines_with,
    "sed": _edited,
    "tee": lambda words, text: text,
    "xargs": lambda words, text: " ".join(text.split()) + "\n" if not words else None,
}

FILTERS = frozenset(_OF_TEXT)
