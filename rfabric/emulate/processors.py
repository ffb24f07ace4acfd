"""The processors of this host: who had them, who waited for one, and who gets which.

    datapath          one processor of its own, and the others' turn only when it sleeps
    all else of us    the other processors

The user-space datapath is one thread, and what it is kept from doing shows in the results at once.
With a processor of its own, two busy loops on a host of two processors made rings no longer that
took 3 to 7 % longer before (collectives of 64 GPUs on a leaf-spine).
"""

import contextlib
import os
import random
import time
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.1  # s for which processors are looked at before one is chosen
FREE = 0.1  # of that a processor may be at work and count as free


def prefer(pid: int, nice: int) -> None:
    """Give the processor to `pid` before others, as far as `nice` (-20 to 19) says.

    Where the kernel groups processes by session, a process's own value counts within its session
    alone, and the session has one of its own (sched(7), autogroup).
    """
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def idlest(processors: Collection[int], seconds: float = LOOK_S) -> int:
    """A free one of these `processors`, or the one that has most time to spare; which of several
    is left to chance, so that two runs that begin together seldom choose the same.
    """
    before = _spare_ticks()
    time.sleep(seconds)
    after = _spare_ticks()
    most = seconds * os.sysconf("SC_CLK_TCK")
    spare = {p: min((after[p] - before[p]) / most, 1 - FREE) for p in processors}
    return random.choice([p for p in processors if spare[p] == max(spare.values())])


def reserve(pid: int, processor: int, processors: Set[int], root: str = "/proc") -> None:
    """Leave `processor` to the main thread of `pid`; all other threads that `root` shows get the
    others of `processors`, and so do those that they will start.
    """
    for thread in Path(root).glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread.name), processors - {processor})
    os.sched_setaffinity(pid, [processor])


def _spare_ticks() -> dict[int, int]:
    """Of each processor, the ticks since boot in which it had nothing to do (proc(5))."""
    rows = [row.split() for row in Path("/proc/stat").read_text().splitlines()]
    return {
        int(row[0][3:]): int(row[4]) + int(row[5])
        for row in rows
        if row[0].startswith("cpu") and row[0] != "cpu"
    }


def cpu_ticks() -> tuple[int, ...]:
    """(user, nice, system, idle, iowait, irq, softirq, steal) of all processors since boot, in
    ticks (proc(5)).
    """
    return tuple(int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])


@dataclass(frozen=True)
class Processors:
    """Ticks of all processors since boot: in user mode, in the kernel, and in total, idle ones
    included. `own`: those of this world, whose processes are all that /proc shows.
    """

    user: int
    kernel: int
    own_user: int
    own_kernel: int
    total: int

    @classmethod
    def now(cls) -> "Processors":
        """As of now. Interrupts count for nobody: they are most of the cost of moving packets."""
        user, nice, system, *rest = cpu_ticks()
        own = list(_own_ticks())
        mine = sum(u for u, _ in own), sum(k for _, k in own)
        return cls(user + nice, system, *mine, user + nice + system + sum(rest))

    def foreign_since(self, before: "Processors") -> float:
        """The share of the processors that others have had since `before`."""
        others = (
            (self.user - before.user) - (self.own_user - before.own_user),
            (self.kernel - before.kernel) - (self.own_kernel - before.own_kernel),
        )
        return sum(max(0, ticks) for ticks in others) / max(self.total - before.total, 1)


def _own_ticks() -> Iterator[tuple[int, int]]:
    """(in user mode, in the kernel) of each visible process and its children that ended (proc(5),
    fields 14 to 17).
    """
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            user, kernel, *ended = map(int, file.read_text().rpartition(")")[2].split()[11:15])
            yield user + ended[0], kernel + ended[1]


def busy_and_stolen(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[float, float]:
    """(busy, stolen) shares of all processors between two looks."""
    spent = [b - a for a, b in zip(before, after, strict=True)]
    total = max(sum(spent), 1)
    return 1 - (spent[3] + spent[4]) / total, spent[7] / total


def steal_seconds() -> float:
    """s since boot in which a processor of this host, in the mean of all, was another machine's."""
    return cpu_ticks()[7] / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


def run_delay(pid: int) -> float:
    """s that the main thread of a process has been ready to run and did not; 0 where the kernel
    does not count it (proc_pid_schedstat(5), CONFIG_SCHED_INFO) or the process has gone.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) * 1e-9
    except OSError:
        return 0.0
