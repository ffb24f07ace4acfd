"""The commands with which a script takes apart what it is given: `read`, `mapfile`, `getopts`."""

import re

from .arithmetic import whole_number
from .shell_tests import ShellTests
from .shell_text import fields, known_text, read_fields

_OF_READ, _OF_MAPFILE = "adinNptu", "dnOsuCc"  # options that take a word


class ShellReads(ShellTests):
    """What they put into variables; None where there is nothing known to read."""

    option_at = (1, 1)  # of getopts: the argument, and the letter in it, that is next

    def read(self, words: list[str], line: int) -> bool | None:
        """`read NAMES`: the next line of what there is to read, cut at blanks or IFS; with -a an
        array of all. False at the end of it, where what is left is put all the same.
        """
        if self.input is None or (self.input and known_text(self.input) is None):
            return None
        options, names = options_of(words, _OF_READ)
        end = options.get("d", "\n")[:1] or "\0"
        text, ended, self.input = self.input.partition(end)
        if count := whole_number(options.get("n", "0")):
            text = text[:count]
        if "r" not in options:
            text = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
        between = self.values.get("IFS", " \t\n")
        between = between if isinstance(between, str) else " \t\n"
        if "a" in options:
            self.put(options["a"], fields(text, between))
        elif not names:
            self.put("REPLY", text)
        else:
            for name, each in zip(names, read_fields(text, between, len(names)), strict=True):
                self.put(name, each)
        return bool(ended)

    def mapfile(self, words: list[str], line: int) -> bool | None:
        """`mapfile -t NAME`: the lines of what there is to read; -n: so many, -s: without the
        first, -d: cut there.
        """
        if self.input is None:
            return None
        options, names = options_of(words, _OF_MAPFILE)
        end = options.get("d", "\n")[:1] or "\0"
        *whole, rest = self.input.split(end)
        lines = [each + end * ("t" not in options) for each in whole] + [rest] * bool(rest)
        first, count = (whole_number(options.get(letter, "0")) or 0 for letter in "sn")
        self.put(names[0] if names else "MAPFILE", lines[first : first + count if count else None])
        self.input = ""
        return True

    def getopts(self, words: list[str], line: int) -> bool:
        """`getopts LETTERS NAME`: the next option of the arguments; false where there is none."""
        letters, name, *given = words if len(words) > 1 else ("", "OPTARG")
        arguments, index = given or self.arguments, whole_number(self._value("OPTIND")) or 1
        word = arguments[index - 1] if 0 < index <= len(arguments) else ""
        self.state.forget("OPTARG")
        if word in ("", "-", "--") or word[0] != "-":
            self.state.values |= {name: "?", "OPTIND": str(index + (word == "--"))}
            return False
        at = (
            self.option_at[1] if self.option_at[0] == index and self.option_at[1] < len(word) else 1
        )
        letter, rest = word[at], word[at + 1 :]
        taken, wrong = self._argument(letters, letter, rest, arguments[index : index + 1])
        if wrong and letters[:1] == ":":
            taken = letter
        self.values[name] = ("?" if letters[:1] != ":" else wrong) if wrong else letter
        if taken is not None:
            self.values["OPTARG"] = taken
        takes = f"{letter}:" in letters
        more = bool(rest) and not takes
        self.option_at = (index, at + 1) if more else (index + 1, 1)
        both = takes and not rest and not wrong
        self.values["OPTIND"] = str(index if more else index + 1 + both)
        return True

    def _argument(
        self, letters: str, letter: str, rest: str, following: list[str]
    ) -> tuple[str | None, str]:
        """What an option is given, and what is wrong with it: ? of one not known, : of one that
        lacks its argument.
        """
        if letter == ":" or letter not in letters:
            return None, "?"
        if f"{letter}:" not in letters:
            return None, ""
        given = [rest] if rest else following
        return (given[0], "") if given else (None, ":")


def options_of(words: list[str], taking: str) -> tuple[dict[str, str], list[str]]:
    """The options before the names, each with its word where it is one of `taking`, and the names.

    >>> options_of(["-ra", "A", "-d,", "B"], "ad")
    ({'r': '', 'a': 'A', 'd': ','}, ['B'])
    """
    options: dict[str, str] = {}
    rest = list(words)
    while rest and re.fullmatch(r"-[^-].*", rest[0], re.DOTALL):
        letters = rest.pop(0)[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            options[letter] = ""
            if letter in taking:
                options[letter], letters = letters or (rest.pop(0) if rest else ""), ""
    return options, rest[1:] if rest[:1] == ["--"] else rest
