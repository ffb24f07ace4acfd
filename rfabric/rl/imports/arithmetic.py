"""Whole-number arithmetic of a shell, worked out without running anything.

1024 * (2 + 7) / 10     16#ff     n++     n += 2, m = n     n > 4 ? 8 : 4
"""

import operator
import re
from collections.abc import Callable

LARGEST = 10**15  # no count of a job is larger
MOST_TEXT = 10_000  # characters of an expression
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+#[0-9a-zA-Z@_]+|0[xX][0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|\+\+|--|<<=|>>=|&&|\|\||<<|>>|[-+*/%<>=!&|^]=|[-+*/%<>=!~&|^?:,()]))"
)
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")
LEVELS = (  # operators of two sides, those that bind least first
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_, "^": operator.xor, "&": operator.and_, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "+": operator.add,
    "-": operator.sub, "*": operator.mul,
    "/": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "<<": lambda a, b: a << b if 0 <= b < 64 else LARGEST + 1,
    ">>": lambda a, b: a >> b if b >= 0 else LARGEST + 1,
    "**": lambda a, b: a**b if 0 <= b < 64 else LARGEST + 1,
}  # fmt: skip
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@_"
ASSIGNED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
Get = Callable[[str], int | None]
Put = Callable[[str, int], None]


def whole_number(text: str, get: Get | None = None, put: Put | None = None) -> int | None:
    """The value of a shell's arithmetic; None where it holds more than whole numbers. get: what a
    name stands for, None: nobody knows; put: keeps what a name is set to.

    >>> whole_number("1024 * (2 + 7) / 10"), whole_number("3 > 2 ? 8 : 4"), whole_number("N + 1")
    (921, 8, None)
    >>> values = {"n": 3}
    >>> whole_number("m = n++, n * 2", values.get, values.__setitem__), values
    (8, {'n': 4, 'm': 3})
    """
    try:
        return _ExpressionReader(text, get, put).whole()
    except (ValueError, ZeroDivisionError, RecursionError):
        return None


def assigned(text: str) -> list[str]:
    """The names that an arithmetic text sets."""
    return [one or other for one, other in ASSIGNED.findall(text)]


class _ExpressionReader:
    """One expression, read from the left; `live`: whether what is read counts, or is the side of
    `&&`, `||` or `?:` that is not taken.
    """

    def __init__(self, text: str, get: Get | None, put: Put | None):
        self.tokens, self.at, self.live = _tokens(text), 0, True
        self.get, self.put = get, put

    def whole(self) -> int:
        value = self._list() if self.tokens else 0
        if self.at < len(self.tokens):
            raise ValueError("more than one expression")
        return value

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ("", "")

    def _take(self, *signs: str) -> str:
        """The sign that stands here, where it is one of these."""
        kind, text = self._peek()
        if kind != "sign" or text not in signs:
            return ""
        self.at += 1
        return text

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ValueError(f"{sign} is missing")

    def _list(self) -> int:
        value = self._assignment()
        while self._take(","):
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        kind, name = self._peek()
        other, sign = self._peek(1)
        if kind != "name" or other != "sign" or sign not in ASSIGNMENTS:
            return self._choice()
        self.at += 2
        if sign == "=":
            return self._set(name, self._assignment())
        before = self._of(name)  # as it was before the right side is worked out
        return self._set(name, self._two(sign[:-1], before, self._assignment()))

    def _choice(self) -> int:
        condition, live = self._sides(0), self.live
        if not self._take("?"):
            return condition
        self.live = live and condition != 0
        one = self._list()
        self._expect(":")
        self.live = live and condition == 0
        other = self._assignment()
        self.live = live
        return one if condition else other

    def _sides(self, level: int) -> int:
        if level == len(LEVELS):
            return self._power()
        left = self._sides(level + 1)
        while sign := self._take(*LEVELS[level]):
            if sign in ("&&", "||"):
                live = self.live
                self.live = live and bool(left) == (sign == "&&")
                right = self._sides(level + 1)
                self.live = live
                left = int(bool(left and right) if sign == "&&" else bool(left or right))
            else:
                left = self._two(sign, left, self._sides(level + 1))
        return left

    def _power(self) -> int:
        base = self._signed()
        return self._two("**", base, self._power()) if self._take("**") else base

    def _signed(self) -> int:
        sign = self._take("!", "~", "-", "+", "++", "--")
        if not sign:
            return self._single()
        if sign in ("++", "--") and self._peek()[0] == "name":
            name = self._peek()[1]
            self.at += 1
            return self._set(name, self._of(name) + (1 if sign == "++" else -1))
        value = self._signed()  # --3 is 3
        return {"!": int(not value), "~": ~value, "-": -value}.get(sign, value)

    def _single(self) -> int:
        kind, text = self._peek()
        self.at += 1
        if kind == "number":
            return _number(text)
        if kind == "name":
            value = self._of(text)
            if sign := self._take("++", "--"):
                self._set(text, value + (1 if sign == "++" else -1))
            return value
        if text != "(":
            raise ValueError("a number is missing")
        value = self._list()
        self._expect(")")
        return value

    def _of(self, name: str) -> int:
        if not self.live:
            return 0
        value = self.get(name) if self.get else None
        if value is None:
            raise ValueError(f"{name} is not known")
        return value

    def _set(self, name: str, value: int) -> int:
        if self.live:
            if self.put is None:
                raise ValueError("nothing is set here")
            self.put(name, value)
        return value

    def _two(self, sign: str, left: int, right: int) -> int:
        if not self.live:
            return 0
        value = int(OPERATIONS[sign](left, right))
        if abs(value) > LARGEST:
            raise ValueError("too large")
        return value


def _tokens(text: str) -> list[tuple[str, str]]:
    if len(text) > MOST_TEXT:
        raise ValueError("too long")
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text[at]!r} is no arithmetic")
        tokens.append((token.lastgroup or "", token[token.lastgroup or 0]))
        at = token.end()
    return tokens


def _number(text: str) -> int:
    base, mark, digits = text.partition("#")
    if mark:
        value = _in_base(int(base), digits)
    elif text.lower().startswith("0x"):
        value = int(text, 16)
    else:
        value = int(text, 8 if len(text) > 1 and text.startswith("0") else 10)
    if value > LARGEST:
        raise ValueError("too large")
    return value


def _in_base(base: int, digits: str) -> int:
    """base#digits: up to base 36 letters of either case are alike, beyond it capitals come later.

    >>> _in_base(16, "Ff"), _in_base(64, "Z"), _in_base(64, "10")
    (255, 61, 64)
    """
    if not 2 <= base <= len(_DIGITS):
        raise ValueError(f"there are no digits of base {base}")
    value = 0
    for digit in digits.lower() if base <= 36 else digits:
        at = _DIGITS.index(digit)
        if at >= base:
            raise ValueError(f"{digit} is no digit of base {base}")
        value = value * base + at
    return value
