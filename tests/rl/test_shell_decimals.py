"""Sums that scripts leave to bc, Python and awk."""

from pathlib import Path

import pytest

from rfabric.rl.imports.shell import read_script
from rfabric.rl.imports.shell_decimals import by_awk, by_bc, by_python
from rfabric.rl.imports.shell_text import readable


@pytest.mark.parametrize(
    ("words", "text", "printed"),
    [
        ([], "7/2", "3"), (["-l"], "7/2", "3.50000000000000000000"), ([], "-7/2", "-3"),
        ([], "2.50*2", "5.00"), ([], "scale=2; 1/8", ".12"), ([], "5%3", "2"), ([], "010+1", "11"),
        (["-l"], "1 > 2", "0"), ([], "3>2 && 1<2", "1"), ([], "0/5", "0"), ([], "1-1.5", "-.5"),
        ([], "-2^2", None), ([], "5.5%2", None), ([], "x=3; x*2", None), ([], "1/0", None),
        (["-s"], "1", None), ([], "9^99", None), ([], "s(1)", None), ([], "", None),
    ],
)  # fmt: skip
def test_bc_prints_decimals(words, text, printed):
    assert by_bc(words, text) == (None if printed is None else f"{printed}\n")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("print(8*2)", "16"), ("print(7/2)", "3.5"), ("print(int(8*0.9), -7//2)", "7 -4"),
        ("n = 3; m = n**2\nprint(max(n, m) if n > 2 else 0)", "9"),
        ("import math; print(math.ceil(7/2))", "4"),
        ("import os; print(2)", None), ("print('a')", None), ("print(n)", None), ("8*2", None),
        ("print(2**99)", None), ("print(1, sep='')", None), ("print(8*", None), ("", None),
        ("print(__import__('os'))", None), ("print((lambda: 3)())", None),
    ],
)  # fmt: skip
def test_python_prints_numbers(text, printed):
    assert by_python(["-c", text], "/") == printed
    assert by_python([text], "/") is None


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["BEGIN{print 7/2}"], "3.5\n"), (["BEGIN {print int(7/2);}"], "3\n"),
        (["-v", "n=4", "BEGIN{print n^2}"], "16\n"), (['BEGIN{printf "%d", 9/2}'], "4"),
        (['BEGIN{printf("%.1f\\n", 9/2)}'], "4.5\n"), (["BEGIN{print -7%3}"], "-1\n"),
        (["BEGIN{print 7 8}"], None), (["BEGIN{print n}"], None), (["{print 7}"], None),
        (["BEGIN{print 7//2}"], None), (["-f", "x", "BEGIN{print 1}"], None), ([], None),
    ],
)  # fmt: skip
def test_awk_prints_what_reads_nothing(words, printed):
    assert by_awk(words) == printed


def test_a_count_that_python_works_out_is_read():
    text = 'N=$(python3 -c "print(8*2)"); M=$(python3 -c "print($N // 3)"); go $N $M\n'
    (command,) = read_script(Path("/nowhere/run.sh"), text).commands
    assert list(map(readable, command.words)) == ["go", "16", "5"]
