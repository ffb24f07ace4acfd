"""What verbs print: of traces with thousands of phases, and for machines."""

import json
import math

import pytest

from rfabric.cli import terminal
from rfabric.cli.terminal import LAST_ROWS, MOST_LINES, MOST_ROWS, Talk, show_tables
from rfabric.report.compare import Table


def test_of_a_long_table_the_first_rows_and_the_last_are_shown(capsys):
    rows = [(f"row{i}", str(i)) for i in range(MOST_ROWS + 50)]
    show_tables([Table.of("many", ("", "n"), rows)], MOST_ROWS)
    lines = capsys.readouterr().out.split("\n")
    shown = [line.split()[0] for line in lines if line.startswith("row")]
    first = MOST_ROWS - LAST_ROWS
    assert shown == [name for name, _ in (*rows[:first], *rows[-LAST_ROWS:])]
    assert any(line.startswith("... 50 more rows") for line in lines)
    for cut, most in ((rows[:MOST_ROWS], MOST_ROWS), (rows, None)):
        show_tables([Table.of("all", ("", "n"), cut)], most)
        assert "more rows" not in (text := capsys.readouterr().out)
        assert text.count("row") == len(cut)


def test_lines_of_progress_are_no_more_than_somebody_reads(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: 1e3 + len(told) * 1e-3)
    told = []
    with Talk() as talk:
        for i in range(5000):
            told.append(i)
            talk.tell("fat-tree", {"stage": "run", "phase": f"p{i}/0"})
        talk.tell("fat-tree", {"stage": "check"})
    lines = capsys.readouterr().err.splitlines()
    # then for five simulated seconds; and what is not about a phase is always told
    assert 20 <= len(lines) - MOST_LINES <= 30
    assert lines[99].endswith("p99/0") and lines[-1].endswith("check")


def test_what_is_no_number_is_null_for_machines(capsys):
    told = {"a": [math.nan, 1.5, (math.inf, "x")], "b": {"c": -math.inf, "d": None, "e": True}}
    terminal.print_json(told)
    expected = {"a": [None, 1.5, [None, "x"]], "b": {"c": None, "d": None, "e": True}}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == expected
