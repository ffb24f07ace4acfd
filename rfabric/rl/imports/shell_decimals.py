"""Sums that scripts leave to other programs, worked out without running any.

echo "scale=2; 7 / 2" | bc        python3 -c "print(int(8 * 0.5))"        awk 'BEGIN {print 2^3}'
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import Any

from .arithmetic import LARGEST, MOST_TEXT

_DIGITS = 60  # that decimals are worked out with
_LIBRARY_SCALE = 20  # digits behind the point of `bc -l`
_IMPOSSIBLE = (ValueError, ArithmeticError, SyntaxError, TypeError, KeyError, RecursionError)
_BC = re.compile(r"[\d.+\-*/%^()<>=!&|\s]+")
_AWK = re.compile(r"\s*BEGIN\s*\{\s*(printf?)\b\s*(.*?)\s*;?\s*\}\s*", re.S)
_AWK_FORMAT = re.compile(r'"(%(?:\.\d)?[dfs])(?:\\n)?"\s*,\s*(.*)', re.S)
_Two = Mapping[type, Callable[[Any, Any], Any]]
_COMPARED: _Two = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_PYTHON: _Two = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # fmt: skip
_CALLED: Mapping[str, Callable] = {
    "int": int, "float": float, "round": round, "max": max, "min": min, "abs": abs,
    "math.ceil": math.ceil, "math.floor": math.floor, "math.sqrt": math.sqrt,
    "math.log2": math.log2,
}  # fmt: skip


def by_bc(words: list[str], text: str) -> str | None:
    """What bc prints of one expression; None where that is not known.

    >>> by_bc([], "7 / 2"), by_bc(["-l"], "1.5 > 1"), by_bc([], "scale=2; 1 / 8")
    ('3\\n', '1\\n', '.12\\n')
    """
    set_scale, semicolon, rest = text.strip().partition(";")
    said = re.fullmatch(r"scale\s*=\s*(\d{1,2})\s*", set_scale)
    expression = rest.strip() if said and semicolon else text.strip()
    library = words in (["-l"], ["-lq"], ["-ql"])
    if not (library or words in ([], ["-q"])) or not _BC.fullmatch(expression):
        return None
    if re.search(r"-\s*[\d.]+\s*\^", expression):  # whose sign binds first, unlike Python's
        return None
    scale = int(said[1]) if said else _LIBRARY_SCALE if library else 0
    plain = re.sub(r"(?<![\d.])0+(?=\d)", "", " ".join(expression.split())).replace("^", "**")
    plain = re.sub(r"!(?!=)", " not ", plain.replace("&&", " and ").replace("||", " or "))
    with localcontext(prec=_DIGITS):
        value = _worked_out(plain.strip(), _of_bc(scale), lambda text: Decimal(text))
    return None if value is None else f"{_shown_by_bc(Decimal(value))}\n"


def _of_bc(scale: int) -> _Two:
    def cut(value: Decimal, digits: int) -> Decimal:
        return value.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN)

    def times(a: Decimal, b: Decimal) -> Decimal:
        own = [-int(n.as_tuple().exponent) for n in (a, b)]
        return cut(a * b, min(sum(own), max(scale, *own)))

    def rest(a: Decimal, b: Decimal) -> Decimal:
        if scale or a % 1 or b % 1:
            raise ValueError("the rest of decimals")
        return a % b

    def power(a: Decimal, b: Decimal) -> Decimal:
        if a % 1 or b % 1 or b < 0:
            raise ValueError("a power of decimals")
        return a ** int(b)

    return {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: times, ast.Mod: rest,
        ast.Div: lambda a, b: cut(a / b, scale), ast.Pow: power,
    }  # fmt: skip


def _shown_by_bc(value: Decimal) -> str:
    """Without the zero before the point."""
    return re.sub(r"^(-?)0(?=\.)", r"\1", f"{value:f}") if value else "0"


def by_python(words: list[str], folder: str) -> str | None:
    """What `python3 -c TEXT` prints, of assignments and one print of numbers; None where it does
    more.

    >>> by_python(["-c", "import math; n = 7; print(math.ceil(n / 2), 2 * n)"], "/")
    '4 14'
    """
    if len(words) != 2 or words[0] != "-c" or len(words[1]) > MOST_TEXT:
        return None
    try:
        *before, last = ast.parse(words[1].strip()).body
        names: dict[str, Any] = {}
        for line in before:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                names[line.targets[0].id] = _value(line.value, _PYTHON, names)
            elif not isinstance(line, ast.Import) or [n.name for n in line.names] != ["math"]:
                return None
        call = last.value if isinstance(last, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "print" or call.keywords:
            return None
        return " ".join(str(_value(one, _PYTHON, names)) for one in call.args)
    except _IMPOSSIBLE:
        return None


def by_awk(words: list[str]) -> str | None:
    """What awk prints of a program that reads nothing; None where it does more.

    >>> by_awk(["-v", "n=4", "BEGIN {print n * 2}"]), by_awk(['BEGIN{printf "%d", 7 / 2}'])
    ('8\\n', '3')
    """
    *given, program = words or [""]
    names = re.findall(r"-v (\w+)=(-?[\d.]+)(?: |$)", " ".join(given))
    said = _AWK.fullmatch(program)
    if said is None or len(given) != 2 * len(names) or len(program) > MOST_TEXT:
        return None
    form, expression = None, said[2]
    if said[1] == "printf":
        inner = re.fullmatch(r"\((.*)\)", expression, re.S)
        asked = _AWK_FORMAT.fullmatch(inner[1].strip() if inner else expression)
        if asked is None:
            return None
        form, expression = asked.groups()
    held = {name: float(text) for name, text in names}
    plain = expression.replace("^", "**")
    value = (
        None if "//" in plain else _worked_out(plain, _PYTHON | {ast.Mod: math.fmod}, float, held)
    )
    if value is None:
        return None
    if form is None:
        return f"{_shown_by_awk(value)}\n"
    end = "\n" if '\\n"' in program else ""
    return (form % (_shown_by_awk(value) if form == "%s" else value)) + end


def _shown_by_awk(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _worked_out(
    text: str, two: _Two, number: Callable[[str], Any], names: Mapping[str, Any] = {}
) -> Any:
    """The value of an expression; None where it is none that is known here."""
    if len(text) > MOST_TEXT:
        return None
    try:
        parsed = ast.parse(text, mode="eval").body
        return _value(parsed, two, names, lambda node: number(ast.get_source_segment(text, node)))
    except _IMPOSSIBLE:
        return None


def _value(
    node: ast.expr,
    two: _Two,
    names: Mapping[str, Any],
    number: Callable[[ast.Constant], Any] = lambda node: node.value,
) -> Any:
    """ValueError and the like for what is no number, or too large."""

    def of(part: ast.expr) -> Any:
        return _value(part, two, names, number)

    value: Any = None
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = number(node)
    elif isinstance(node, ast.Name):
        value = names[node.id]
    elif isinstance(node, ast.BinOp):
        left, right = of(node.left), of(node.right)
        if isinstance(node.op, ast.Pow) and not 0 <= right <= 64:
            raise ValueError("too large")
        value = two[type(node.op)](left, right)
    elif isinstance(node, ast.UnaryOp):
        one = of(node.operand)
        signed: dict[type, Any] = {ast.USub: -one, ast.UAdd: one, ast.Not: int(not one)}
        value = signed[type(node.op)]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        value = _COMPARED[type(node.ops[0])](of(node.left), of(node.comparators[0]))
        value = value if two is _PYTHON else int(value)
    elif isinstance(node, ast.BoolOp):
        every = [bool(of(one)) for one in node.values]
        value = int(all(every) if isinstance(node.op, ast.And) else any(every))
    elif isinstance(node, ast.IfExp):
        value = of(node.body) if of(node.test) else of(node.orelse)
    elif isinstance(node, ast.Call) and not node.keywords:
        value = _CALLED[ast.unparse(node.func)](*map(of, node.args))
    if value is None or abs(value) > LARGEST:
        raise ValueError("no number that is known")
    return value
