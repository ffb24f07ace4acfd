"""The commands `rfabric ...` that pages and help show, as words for the parser."""

import re
import shlex
from collections.abc import Iterator
from itertools import dropwhile, groupby

ENDS = "|&;<>()"  # where the words of a command end: `>` and its file are none of them
BEFORE = re.compile(r"sudo|\w+=\S*")  # what may stand before its name


def commands(script: str) -> Iterator[list[str]]:
    """The words after `rfabric` of every command of a shell script, as the shell passes them on.

    Quotes close in the line in which they open, wherever that line names rfabric.
    """
    for line in script.replace("\\\n", " ").splitlines():
        if "rfabric " in line:
            yield from _commands_of_line(line)


def _commands_of_line(line: str) -> Iterator[list[str]]:
    tokens = shlex.shlex(re.sub(r" \d>", " >", line), posix=True, punctuation_chars=ENDS)
    tokens.whitespace_split = True
    for between, some in groupby(tokens, key=lambda t: bool(t) and set(t) <= set(ENDS)):
        name, *words = [*dropwhile(BEFORE.fullmatch, some)] or [""]
        if not between and name == "rfabric":
            yield words
        for word in (name, *words):  # "$(rfabric ...)"
            yield from commands(word.partition("$(")[2].rpartition(")")[0])
