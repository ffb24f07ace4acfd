"""The variables of a shell that runs nothing: texts, arrays and tables, what of them a function
keeps to itself, and what another shell sees.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from .shell_text import Values

# Set in a shell, whatever the user has; their values say nothing of a job.
AMBIENT = {"HOME": "~", "PWD": ".", "USER": "user", "HOSTNAME": "localhost", "PATH": ""}
AMBIENT |= {"OPTIND": "1", "OSTYPE": "linux-gnu"}


class GappedArray(list[str]):
    """The elements of an array that has none at some numbers; `places`: the number of each."""

    def __init__(self, elements: Mapping[int, str]):
        self.places = sorted(elements)
        super().__init__(elements[at] for at in self.places)


def numbered(held: list[str]) -> dict[int, str]:
    """The elements of an array by their numbers."""
    places = held.places if isinstance(held, GappedArray) else range(len(held))
    return dict(zip(places, held, strict=True))


def array_of(elements: Mapping[int, str]) -> list[str]:
    """The array that has these elements.

    >>> array_of({1: "b", 0: "a"}), array_of({32: "4", 8: "2"}).places
    (['a', 'b'], [8, 32])
    """
    made = GappedArray(elements)
    return list(made) if made.places == [*range(len(made))] else made


class _Held(NamedTuple):
    """A variable as it stood before a function made one of the same name."""

    value: Values | None
    table: dict[str, str] | None
    whole: bool


@dataclass
class Variables:
    """`values`: texts and arrays by name; `tables`: what `declare -A` makes; `whole`: names whose
    values are worked out (`declare -i`); `exported`: names that programs see; `others`: names that
    stand for another (`declare -n`).
    """

    values: dict[str, Values] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)
    own: list[dict[str, _Held]] = field(default_factory=list)  # of each function being run

    def meant(self, name: str) -> str:
        """The name that `name` stands for."""
        for _ in range(len(self.others)):
            name = self.others.get(name, name)
        return name

    def forget(self, name: str) -> None:
        """Take a variable away."""
        self.values.pop(name, None)
        self.tables.pop(name, None)
        self.others.pop(name, None)
        self.whole.discard(name)

    def make_own(self, name: str) -> None:
        """`local NAME`: unset until it is given a value, and as it was when the function ends."""
        if self.own and name not in self.own[-1]:
            held = _Held(self.values.get(name), self.tables.get(name), name in self.whole)
            self.own[-1][name] = held
            self.forget(name)

    @contextmanager
    def function(self) -> Iterator[None]:
        """What is local while a function runs is gone when it ends."""
        self.own.append({})
        try:
            yield
        finally:
            for name, held in self.own.pop().items():
                self.forget(name)
                if held.value is not None:
                    self.values[name] = held.value
                if held.table is not None:
                    self.tables[name] = held.table
                self.whole |= {name} if held.whole else set()

    def copy(self) -> "Variables":
        """The variables of a shell in brackets: what it sets is its own."""
        return Variables(
            {
                k: array_of(numbered(v)) if isinstance(v, list) else v
                for k, v in self.values.items()
            },
            {name: dict(table) for name, table in self.tables.items()},
            set(self.whole),
            set(self.exported),
            dict(self.others),
            [dict(names) for names in self.own],
        )

    def seen_by_programs(self) -> "Variables":
        """The variables of a shell that is run as a program."""
        told = {k: v for k, v in self.values.items() if k in self.exported and isinstance(v, str)}
        return Variables(told, exported=set(told))
