"""argparse as this command line wants it: one-line errors with hints, and what a word may be.

ArgumentTypeError, which argparse tells, for what is none of that.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from ...errors import RFabricError, meant
from ...units import parse_time


class Parser(argparse.ArgumentParser):
    """argparse, with one-line errors that say what may have been meant."""

    def __init__(self, **settings):
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings
        )

    def takes(
        self, words: str, what: str, read: Callable | None = None, several: bool = False, **more
    ) -> None:
        """Add an option (`--hosts N`), a flag (`--copper`) or a word (`log LOG`), with its help.

        read: makes the value of the text; several: it may be given again, all go into a list;
        more: as argparse has it. Where it is not given, a text is empty, any other value None.
        """
        names = words.split()
        if not names[-1].startswith("-"):
            more["metavar"] = names.pop()
        elif "choices" not in more:
            more.setdefault("action", "store_true")
        if several:
            more = {"action": "append", "default": []} | more
        elif read is None and "action" not in more:
            more.setdefault("default", "")
        if read is not None:
            more["type"] = read
        self.add_argument(*names, help=what, **more)

    def error(self, message: str) -> NoReturn:
        """Raise the error, with where to read on."""
        raise RFabricError(f"{message}; see `{self.prog} --help`")

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:  # type: ignore[override]
        """Words to settings; what is left over is the verb's error."""
        settings, rest = self.parse_known_args(args, namespace)
        if rest:
            self.verb_parser(settings).error(
                f"unknown argument {rest[0]}{self.verb_parser(settings).hint(rest[0])}"
            )
        return settings

    def verb_parser(self, settings: argparse.Namespace) -> "Parser":
        """The parser of the verb that was said; this one where none was."""
        return self.by_word().get(getattr(settings, "verb", None), self)

    def by_word(self) -> dict[str, "Parser"]:
        """The parsers of the verbs, by every word that one may be called by."""
        every = (a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return next(every, {})

    def verbs(self) -> dict[str, "Parser"]:
        """The parsers of the verbs by name, without names of before."""
        return {
            name: verb
            for name, verb in self.by_word().items()
            if verb.get_default("verb_name") == name
        }

    def hint(self, word: str) -> str:
        """What may have been meant by an unknown option."""
        options = [o for a in self._actions for o in a.option_strings]
        return meant(word.partition("=")[0], options) if word.startswith("-") else ""

    def _get_values(self, action, arg_strings):
        """A word that is empty, as of a shell's variable that is not set, means no default."""
        if "" in arg_strings and not isinstance(action, Verbs):
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise RFabricError(
                f"argument {name}: the word is empty; say what is meant, or leave it out"
            )
        return super()._get_values(action, arg_strings)

    def _check_value(self, action, value) -> None:
        if action.choices is not None and value not in action.choices:
            name = (action.metavar or action.dest).lower()
            choices = ", ".join(map(str, action.choices))
            raise RFabricError(
                f"no {name} {value!r}{meant(str(value), action.choices)}; there are {choices}"
            )


class EachKeyOnce(argparse._AppendAction):
    """Appends KEY=VALUE; an error where the key was given before: two values make no two runs."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Append `values`, one word."""
        key = values.partition("=")[0].strip()
        for word in getattr(namespace, self.dest, None) or []:
            if word.partition("=")[0].strip() == key:
                parser.error(
                    f"{option_string} sets {key} twice, {word} and {values}; keep one, or compare "
                    "recipes of your own, --traffic FILE.yaml"
                )
        super().__call__(parser, namespace, values, option_string)


MOST_SEEDS = 1_000_000  # of one grid: its cells are all named before the first is run
LARGEST_SEED = 2**63 - 1 - MOST_SEEDS  # the last of them has room in 64 bits, too
Verbs = argparse._SubParsersAction  # what the verbs are added to


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)


def seed(text: str) -> int:
    """A whole number that a column of 64 bits can hold."""
    if (number := whole(text)) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} must be {LARGEST_SEED} at most")
    return number


def seeds(text: str) -> int:
    """How many seeds, above 0: each is a run."""
    if (number := count(text)) > MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be {MOST_SEEDS} at most; go on from another --seed"
        )
    return number


def count(text: str) -> int:
    """A whole number above 0."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number above 0")
    return number


ENGINES = ("simulate", "ns3", "emulate")


def engines(text: str) -> tuple[str, ...]:
    """Some of ENGINES, each once, the fastest first."""
    said = text.split(",")
    for word in said:
        if word not in ENGINES:
            raise argparse.ArgumentTypeError(
                f"no engine {word!r}{meant(word, ENGINES)}; there are {', '.join(ENGINES)}"
            )
    return tuple(word for word in ENGINES if word in said)


def shard(text: str) -> tuple[int, int]:
    """`I/N`: the I-th of N parts, from 1."""
    i, slash, n = text.partition("/")
    if not slash or not 1 <= whole(i) <= whole(n):
        raise argparse.ArgumentTypeError(f"{text!r} must be I/N, such as 3/16, I from 1 to N")
    return int(i), int(n)


def share(text: str) -> float:
    """A part of a whole, as `1%`."""
    number, percent, rest = text.partition("%")
    if not percent or rest:
        raise argparse.ArgumentTypeError(f"{text!r} must be a percentage, such as 1%")
    return positive(number) / 100


def file(text: str) -> str:
    """A file that can be written, known before the work begins and not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"cannot write {text}: there is no folder {path.parent}; make it first"
        )
    return text


def port(text: str) -> int:
    """A port number of TCP."""
    number = whole(text)
    if not 0 < number < 65536:
        raise argparse.ArgumentTypeError(f"port {text} must lie between 1 and 65535")
    return number


def seconds(text: str) -> float:
    """Seconds, as a bare number."""
    if (value := _finite(text)) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def money(text: str) -> float:
    """US dollars."""
    if (value := _finite(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, 0 or more")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    if (value := _finite(text)) <= 0:
        raise argparse.ArgumentTypeError(f"scale {text!r} must be a number above 0")
    return value


def _finite(text: str) -> float:
    """The number that a text is; -1 where it is none, or an infinite one."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if math.isfinite(value) else -1.0


def time(text: str) -> float:
    """Seconds, from a text with its unit."""
    try:
        value = parse_time(text, "TIME")
    except RFabricError as error:  # argparse names the option
        raise argparse.ArgumentTypeError(re.sub(r"\bTIME(: |=)", "", str(error))) from None
    if not value:
        raise argparse.ArgumentTypeError("0 is no time; write for example 200ms")
    return value


def refuse_typed(args: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """RFabricError for the first of these options that was typed, where it counts for nothing."""
    if typed := next((one for one in args.typed if one in options), None):
        raise RFabricError(f"{typed} {why}")
