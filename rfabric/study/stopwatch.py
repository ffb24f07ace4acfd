"""What the parts of a program cost, one inside another: each CPU second and each byte of memory
counts for the innermost part that is under way.

    watch = Stopwatch()
    with watch.part("simulate"), watch.within({"core": [(CompiledEngine, "run")]}):
        ...
    watch.costs["core"].cpu_s

It counts for the whole process, which should do nothing beside. Memory is the kernel's record of
the highest resident set (`VmHWM`), set back as a part begins: Linux alone has it.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RFabricError

SET_BACK = Path("/proc/self/clear_refs")
PEAK = "5"  # what is written there to set back the highest resident set (proc(5))
Callee = tuple[Any, str]  # a class or module, and the name of what is called there


@dataclass
class Cost:
    """Of a part: CPU seconds in all, and bytes by which memory rose at the most, in one turn of it,
    above what it began with.
    """

    cpu_s: float = 0.0
    peak_bytes: int = 0


class Stopwatch:
    """Costs by the name of the part; a part may come again, and others may lie inside it.

    RFabricError where the kernel does not set back its record of memory.
    """

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.highest = 0  # bytes that the process had at the most
        self._open: list[tuple[str, int]] = []  # parts under way, and the memory each began with
        self._since = time.process_time()
        _set_back()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What happens inside counts for the part `name`."""
        self._count()
        before = resident_bytes()
        self._open.append((name, before))
        _set_back()
        try:
            yield
        finally:
            self._count()
            self._open.pop()
            self._pass_on(resident_bytes() - before)
            _set_back()
            self._since = time.process_time()

    @contextmanager
    def within(self, parts: Mapping[str, Sequence[Callee]]) -> Iterator[None]:
        """As long as this lasts, each call of one of these counts for its part."""
        usual = [(*called, getattr(*called)) for calls in parts.values() for called in calls]
        try:
            for name, calls in parts.items():
                for owner, call in calls:
                    setattr(owner, call, self._counted(name, getattr(owner, call)))
            yield
        finally:
            for owner, call, function in usual:
                setattr(owner, call, function)

    def _counted(self, name: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def counted(*arguments, **settings):
            with self.part(name):
                return function(*arguments, **settings)

        return counted

    def _count(self) -> None:
        """Give the innermost part what has been used since it was last asked."""
        now, peak = time.process_time(), peak_bytes()
        self.highest = max(self.highest, peak)
        if self._open:
            name, before = self._open[-1]
            cost = self.costs.setdefault(name, Cost())
            cost.cpu_s += now - self._since
            cost.peak_bytes = max(cost.peak_bytes, peak - before)
        self._since = time.process_time()  # reading memory is nobody's

    def _pass_on(self, left: int) -> None:
        """What an inner part leaves behind is not of the part around it."""
        if self._open:
            name, before = self._open[-1]
            self._open[-1] = name, before + left


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most it has had since the record was set back."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def _set_back() -> None:
    try:
        SET_BACK.write_text(PEAK)
    except OSError as error:
        raise RFabricError(
            f"memory is measured by what Linux records, and {SET_BACK} cannot be written: "
            f"{error.strerror}; measure where it can"
        ) from error
