"""Here-documents, `<<EOF` and the lines below it, taken out of a script before its tree is made.

The grammar loses the thread where a pipe, a file or another document stands behind `<<EOF`, and
keeps the tabs that `<<-` takes away. So each becomes `< MARK`, and its lines are empty ones:

    cat <<EOF | sort          cat < MARK | sort
    b                  ->
    a
    EOF
"""

import re
from dataclasses import dataclass

_MARK = "\ue008"  # a private character that no script holds, and which document it stands for
_MARKED = re.compile(rf"{_MARK}(\d+)")
_OPENING = re.compile(
    r"<<(?P<tabs>-?)[ \t]*(?P<end>(?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|<>()'\"\\])+)"
)
_RAW = re.compile(r"\$'(?:\\.|[^'\\])*'|'[^']*'", re.DOTALL)
_PASSED = re.compile(rf"{_RAW.pattern}|(?<![^\s;&|()])#[^\n]*|<<<", re.DOTALL)
_SUM = re.compile(r"\$\(\(|(?<![^\s;&|!(])\(\((?!\()")
# What opens a quote or bracket, what ends it, and what is read inside.
_IN_CODE = (
    ("${", "}", "value"), ("$(", ")", "code"), ("<(", ")", "code"), (">(", ")", "code"),
    ("(", ")", "code"), ('"', '"', "text"),
)  # fmt: skip
_INSIDE = {
    "sum": (("(", ")", "sum"), *_IN_CODE[:2]),
    "text": _IN_CODE[:2],
    "value": (*_IN_CODE[:2], _IN_CODE[-1]),
    "code": _IN_CODE,
}


@dataclass(frozen=True)
class Document:
    """The lines between <<EOF and EOF; `plain`: EOF is in quotes, and nothing in them expands."""

    text: str
    plain: bool


def without_documents(text: str, documents: list[Document]) -> str:
    """`text` with its here-documents taken out and put behind `documents`; its lines keep their
    numbers.

    >>> taken = []
    >>> without_documents("cat <<'E' | wc\\n$A\\nE\\ngo", taken).splitlines()[1:], taken
    (['', '', 'go'], [Document(text='$A\\n', plain=True)])
    """
    return _ScriptReader(text, documents).whole() if "<<" in text else text


def document_at(said: str, documents: list[Document]) -> Document | None:
    """The document that a redirect's word stands for."""
    marked = _MARKED.fullmatch(said)
    return documents[int(marked[1])] if marked else None


class _ScriptReader:
    """A script, read from the left; `open`: what ends each quote and bracket, and what it holds."""

    def __init__(self, text: str, documents: list[Document]) -> None:
        self.text, self.documents = text, documents
        self.at = 0
        self.made: list[str] = []
        self.open: list[tuple[str, str]] = []
        self.waiting: list[re.Match] = []  # documents whose lines come below this one

    def whole(self) -> str:
        while self.at < len(self.text):
            self._step()
        self._take_waiting()
        return "".join(self.made)

    def _keep(self, size: int) -> None:
        self.made.append(self.text[self.at : self.at + size])
        self.at += size

    def _step(self) -> None:
        end, kind = self.open[-1] if self.open else ("", "code")
        if self.text[self.at] == "\\":
            self._keep(2)
        elif end and self.text.startswith(end, self.at):
            self.open.pop()
            self._keep(len(end))
        elif not (kind == "code" and self._code()) and not self._opened(kind):
            self._keep(1)

    def _opened(self, kind: str) -> bool:
        """Whether a quote or bracket opens here; it is passed."""
        raw = _RAW.match(self.text, self.at) if ('"', "text") not in self.open else None
        if raw and kind == "value":
            self._keep(len(raw[0]))
            return True
        opening = _SUM.match(self.text, self.at)
        if opening and (kind == "code" or opening[0] == "$(("):
            return self._open("))", "sum", len(opening[0]))
        for sign, end, inside in _INSIDE[kind]:
            if self.text.startswith(sign, self.at):
                return self._open(end, inside, len(sign))
        return False

    def _open(self, end: str, inside: str, size: int) -> bool:
        self.open.append((end, inside))
        self._keep(size)
        return True

    def _code(self) -> bool:
        """Whether text without meaning here, <<EOF, or the end of its line stands here; it is
        passed.
        """
        if passed := _PASSED.match(self.text, self.at):
            self._keep(len(passed[0]))
            return True
        if opening := _OPENING.match(self.text, self.at):
            self.made.append(f"< {_MARK}{len(self.documents) + len(self.waiting)}")
            self.waiting.append(opening)
            self.at = opening.end()
            return True
        if self.text[self.at] != "\n":
            return False
        self._keep(1)
        self._take_waiting()
        return True

    def _take_waiting(self) -> None:
        for each in self.waiting:
            self._take(each)
        self.waiting = []

    def _take(self, opening: re.Match) -> None:
        """The lines below, up to the one that ends the document."""
        tabs = "\t" if opening["tabs"] else ""
        end = re.sub(r"\\(.)|['\"]", r"\1", opening["end"])
        lines: list[str] = []
        while self.at < len(self.text):
            stop = self.text.find("\n", self.at)
            line = self.text[self.at : stop] if stop >= 0 else self.text[self.at :]
            self.made.append("\n" if stop >= 0 else "")
            self.at += len(line) + 1
            line = line.lstrip(tabs) if tabs else line
            if line == end:
                break
            lines.append(f"{line}\n")
        self.documents.append(Document("".join(lines), end != opening["end"]))
