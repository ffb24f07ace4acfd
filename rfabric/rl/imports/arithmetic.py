"""Whole-number arithmetic of a shell, worked out without running anything."""

import ast
import operator
import re
from collections.abc import Callable

LARGEST = 10**15  # no count of a job is larger
_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: int(a / b) if abs(a) < 2**52 else a // b,
    ast.Mod: lambda a, b: a - b * int(a / b),
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: lambda a, b: a << b if 0 <= b < 64 else LARGEST + 1,
    ast.RShift: lambda a, b: a >> b if b >= 0 else LARGEST + 1,
    ast.Pow: lambda a, b: a**b if 0 <= b < 64 and abs(a) <= LARGEST else LARGEST + 1,
}


def whole_number(text: str) -> int | None:
    """The value of a shell's arithmetic; None where it holds more than whole numbers.

    >>> whole_number("1024 * (2 + 7) / 10"), whole_number("3 > 2 ? 8 : 4"), whole_number("N + 1")
    (921, 8, None)
    """
    if len(text) > 10_000 or "#" in text:  # 16#ff: a base of its own
        return None
    choice = re.fullmatch(r"([^?]*)\?([^?:]*):([^?:]*)", text, re.DOTALL)
    if choice:
        condition = whole_number(choice[1])
        return None if condition is None else whole_number(choice[2] if condition else choice[3])
    python = re.sub(r"(?<!/)/(?!/)", "//", text.replace("&&", " and ").replace("||", " or "))
    python = re.sub(r"\b0+(?=[0-7]+\b)", "0o", python)
    try:
        return _worked_out(ast.parse(python.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _worked_out(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _worked_out(node.operand)
        value = -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.BoolOp):
        truths = [bool(_worked_out(each)) for each in node.values]
        value = int(all(truths) if isinstance(node.op, ast.And) else any(truths))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = _OPERATIONS[type(node.op)](_worked_out(node.left), _worked_out(node.right))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATIONS:
        sides = _worked_out(node.left), _worked_out(node.comparators[0])
        value = int(_OPERATIONS[type(node.ops[0])](*sides))
    else:
        raise ValueError("not whole-number arithmetic")
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return value
