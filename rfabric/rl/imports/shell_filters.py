"""Programs that only rewrite text: what they print is worked out here, and nothing is run.

What they are asked for beyond the few options that scripts of jobs use stays unknown.
"""

import posixpath
import re
from collections.abc import Callable
from itertools import groupby

from .arithmetic import whole_number
from .shell_decimals import by_awk, by_bc, by_python
from .shell_patterns import CLASSES

MOST_TURNS = 1_000  # of one while loop, or of what `seq` counts
_LONGEST = 10_000  # characters that a pattern is held against
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_ESCAPED = re.compile(r"\\(?:([abefnrtv])|0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|[uU]([0-9A-Fa-f]{1,8})"
                      r"|([\\'\"?]))")  # fmt: skip
_FORMAT = re.compile(r"%%|%[-+ #0]*(?:\*|\d{0,3})(?:\.\d{1,2})?[sdiuqbcfegxXo]")


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
    if name == "awk" and (made := by_awk(rest)) is not None:
        return made
    if name not in _OF_TEXT or text is None:
        return None
    return _OF_TEXT[name](rest, text)


def with_escapes(text: str) -> str:
    r"""`text` with its \n, \t, \x41, \101 and the like as what they stand for."""

    def meant(m: re.Match) -> str:
        letter, octal, short, long, plain = m.groups()
        if letter or plain:
            return _ESCAPES.get(letter, plain)
        number = int(octal, 8) % 256 if octal else int(short or long, 16)
        return chr(number) if 0 < number < 0x110000 else ""

    return _ESCAPED.sub(meant, text)


def formatted(words: list[str]) -> str:
    """What printf makes of a format and its words, the format again while words are left."""
    shape, rest = with_escapes(words[0]) if words else "", list(words[1:])

    def filled(m: re.Match) -> str:
        if m[0] == "%%":
            return "%"
        said = m[0].replace("*", (rest.pop(0) if rest else "0"), 1) if "*" in m[0] else m[0]
        return _as(said[:-1], said[-1], rest.pop(0) if rest else "")

    made = ""
    while True:
        before = len(rest)
        made += _FORMAT.sub(filled, shape)
        if not rest or len(rest) == before:
            return made


def _as(shape: str, kind: str, word: str) -> str:
    """A word as %5s, %d, %q and the like write it."""
    try:
        if kind in _WORDS:
            return f"{shape}s" % _WORDS[kind](word)
        if kind in "feg":
            return f"{shape}{kind}" % float(word or 0)
        return f"{shape}{kind.replace('u', 'd')}" % whole_number(word or "0")
    except (TypeError, ValueError):
        return word


_WORDS: dict[str, Callable[[str], str]] = {
    "s": str,
    "b": with_escapes,
    "c": lambda word: word[:1],
    "q": lambda word: re.sub(r"([^\w@%+=:,./-])", r"\\\1", word) or "''",
}


# --- of their words -------------------------------------------------------------------------------


def _folder_of(words: list[str], folder: str) -> str | None:
    if len(words) != 1 or words[0].startswith("-"):
        return None
    whole = words[0].rstrip("/") or words[0][:1]
    return posixpath.dirname(whole) or "."


def _path(words: list[str], folder: str) -> str | None:
    return posixpath.normpath(posixpath.join(folder, words[-1])) if words else None


def _last_part(words: list[str], folder: str) -> str | None:
    if not words or words[0].startswith("-"):
        return None
    name = posixpath.basename(words[0].rstrip("/")) or words[0][:1]
    return name.removesuffix(words[1]) if words[1:] and words[1] != name else name


def _sum(words: list[str], folder: str) -> str | None:
    value = whole_number(" ".join(words))
    return None if value is None else str(value)


def _counted(words: list[str], folder: str) -> str | None:
    """seq LAST, seq FIRST LAST, seq FIRST STEP LAST; -sSEPARATOR, or -s SEPARATOR, before them."""
    between = "\n"
    if words[:1] and words[0].startswith("-s"):
        between, words = (
            (words[0][2:], words[1:]) if words[0][2:] else ("".join(words[1:2]), words[2:])
        )
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
    "python3": by_python,
    "python": by_python,
}


# --- of what they read ----------------------------------------------------------------------------


def _translated(words: list[str], text: str) -> str | None:
    """tr OLD NEW, tr -d OLD; tr -cd OLD: all but these."""
    sets = [_letters(word) for word in words if not re.fullmatch(r"-\w+", word)]
    if words[:1] == ["-d"] and len(sets) == 1 and sets[0]:
        return "".join(sign for sign in text if sign not in sets[0])
    if words[:1] in (["-cd"], ["-dc"]) and len(sets) == 1 and sets[0]:
        return "".join(sign for sign in text if sign in sets[0])
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
    """head or tail, -n N or -N; head -n -N, all but the last N; tail -n +N, from the N-th on."""
    said = re.fullmatch(r"(?:-n ?([-+]?)|-)?(\d+)", " ".join(words)) if words else None
    if words and said is None:
        return None
    sign, count = (said[1], int(said[2])) if said else ("", 10)
    lines = text.splitlines(keepends=True)
    if last:
        at = max(0, count - 1 if sign == "+" else len(lines) - count)
        return "".join(lines[at:])
    return "".join(lines[: max(0, len(lines) - count) if sign == "-" else count])


def _column(words: list[str], text: str) -> str | None:
    """awk '{print $N}', '{print NF}', 'NR==2 {print $N}', with -F SIGN."""
    program = re.fullmatch(
        r"(?:NR *== *(\d+))? *(?:\{ *print(?: +(\$?)(\d+|NF))? *;? *\})?",
        words[-1] if words else "",
    )
    sign = re.fullmatch(r"-F *(\S)|", " ".join(words[:-1]))
    if program is None or sign is None or not words[-1].strip():
        return None
    row, value, at = program.groups()
    lines = text.splitlines()
    lines = lines[int(row) - 1 : int(row)] if row else lines
    return "".join(f"{_field(line, line.split(sign[1]), value or '', at)}\n" for line in lines)


def _field(line: str, parts: list[str], value: str, at: str | None) -> str:
    """What awk prints of a line, cut in `parts`, for $0, $2, $NF, NF or a number."""
    if at is None or (value and at == "0"):
        return line
    if not value:
        return str(len(parts)) if at == "NF" else at
    return "".join(parts[-1:] if at == "NF" else parts[int(at) - 1 : int(at)])


def expression(said: str, extended: bool) -> re.Pattern | None:
    r"""The regular expression of grep and sed, basic (\(a\)\+) or extended ((a)+); None where it is
    none, or one whose longest match is not the first.
    """
    swap = {f"\\{sign}": sign for sign in "(){}+?|"} | {sign: f"\\{sign}" for sign in "(){}+?|"}
    part = re.compile(r"\[\^?\]?(?:\[:\w+:\]|[^\]])*\]|\\?.", re.DOTALL)
    made = said if extended else part.sub(lambda m: swap.get(m[0], m[0]), said)
    made = re.sub(r"\[:(\w+):\]", lambda m: CLASSES.get(m[1], m[0]), made)
    try:
        return None if "|" in made else re.compile(made)
    except re.error:
        return None


def finds(words: list[str], text: str | None) -> bool | None:
    """Whether grep, the command in `words`, finds anything in `text`; None where that is not known,
    or it is no grep.
    """
    if words[0] not in _GREPS or text is None:
        return None
    found = _found(words[1:], text, extended=words[0] == "egrep")
    return None if found is None else bool(found[1])


def _found(
    words: list[str], text: str, extended: bool = False
) -> tuple[set[str], list[re.Match | str]] | None:
    """The letters of grep's options, and what it finds: a match, or with -v a line, for each
    line.
    """
    letters = {letter for word in words if re.fullmatch(r"-\w+", word) for letter in word[1:]}
    patterns = [word for word in words if not re.fullmatch(r"-\w+", word)]
    if len(patterns) != 1 or letters - set("qcvioEFPe") or len(text) > _LONGEST:
        return None
    said = re.escape(patterns[0]) if "F" in letters else patterns[0]
    shape = expression(said, extended or bool(letters & set("EFP")))
    if shape is None:
        return None
    shape = re.compile(shape.pattern, re.IGNORECASE) if "i" in letters else shape
    lines = text.splitlines()
    if "v" in letters:
        return letters, [line for line in lines if not shape.search(line)]
    return letters, [m for line in lines if (m := shape.search(line))]


def _lines_with(words: list[str], text: str, extended: bool = False) -> str | None:
    """grep PATTERN, with -o, -c, -v, -i, -q, -E, -F."""
    found = _found(words, text, extended)
    if found is None:
        return None
    letters, lines = found
    if "q" in letters or "c" in letters:
        return "" if "q" in letters else f"{len(lines)}\n"
    if "o" in letters and "v" not in letters:
        each = (one for m in lines if not isinstance(m, str) for one in m.re.finditer(m.string))
        return "".join(f"{one[0]}\n" for one in each if one[0])
    return "".join(f"{m if isinstance(m, str) else m.string}\n" for m in lines)


def _edited(words: list[str], text: str) -> str | None:
    """sed s/PATTERN/TEXT/g, with -E; sed -n 2p."""
    if words[:1] == ["-n"] and (line := re.fullmatch(r"(\d+)p", " ".join(words[1:]))):
        return "".join(text.splitlines(keepends=True)[int(line[1]) - 1 : int(line[1])])
    *options, said = [word for word in words if word != "-e"] or [""]
    part = r"((?:\\.|(?!\1)[^\\])*)"
    parts = re.fullmatch(rf"s([/|,#:@]){part}\1{part}\1(g?)", said)
    if parts is None or options not in ([], ["-E"], ["-r"]) or len(text) > _LONGEST:
        return None
    sign, old, new, every = parts.groups()
    shape = expression(old.replace(f"\\{sign}", sign), bool(options))
    if shape is None or re.search(r"\\[A-Za-z]", new):
        return None
    count = 0 if every else 1
    try:
        lines = [
            shape.sub(lambda m: _put_in(new, m), each, count=count) for each in text.splitlines()
        ]
    except IndexError:
        return None
    return "".join(f"{line}\n" for line in lines)


def _put_in(new: str, match: re.Match) -> str:
    r"""What sed puts in place of a match: & is all of it, \1 its first group."""
    return re.sub(
        r"\\(\d)|\\(.)|&", lambda m: match[int(m[1])] or "" if m[1] else m[2] or match[0], new
    )


def _sorted_lines(words: list[str], text: str) -> str | None:
    """sort, with -n, -r, -u."""
    letters = "".join(word[1:] for word in words if word[:1] == "-")
    if set(letters) - set("nru") or any(word[:1] != "-" for word in words):
        return None
    lines = text.splitlines()
    if "n" in letters and not all(re.fullmatch(r"-?\d{1,15}", line) for line in lines):
        return None
    numbers = {line: int(line) if "n" in letters else 0 for line in lines}
    lines.sort(key=lambda line: (numbers[line], line), reverse="r" in letters)
    return "".join(f"{line}\n" for line in (dict.fromkeys(lines) if "u" in letters else lines))


def _once(text: str) -> str:
    """Lines without those that are as the one before."""
    return "".join(f"{line}\n" for line, _ in groupby(text.splitlines()))


def _joined(words: list[str], text: str) -> str | None:
    """paste -sd SIGN."""
    said = re.fullmatch(r"-(?:s -?d|sd) ?(.)(?: -)?", " ".join(words))
    return None if said is None else said[1].join(text.splitlines()) + "\n"


_OF_TEXT: dict[str, Callable[[list[str], str], str | None]] = {
    "cat": lambda words, text: text if words in ([], ["-"]) else None,
    "tr": _translated,
    "cut": _fields_of,
    "wc": _counts,
    "head": lambda words, text: _lines(words, text, last=False),
    "tail": lambda words, text: _lines(words, text, last=True),
    "bc": by_bc,
    "awk": _column,
    "grep": _lines_with,
    "egrep": lambda words, text: _lines_with(words, text, extended=True),
    "sort": _sorted_lines,
    "uniq": lambda words, text: _once(text) if not words else None,
    "paste": _joined,
    "sed": _edited,
    "tee": lambda words, text: text,
    "xargs": lambda words, text: " ".join(text.split()) + "\n" if not words else None,
}

FILTERS = frozenset(_OF_TEXT)
_GREPS = ("grep", "egrep")
