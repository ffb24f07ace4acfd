"""The guard and the counters of a fabric that several machines carry: each machine's own looks at
its part and its processors, and any can fail the run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...fabric import Fabric
from ...report.result import Pace
from ...trace.packets import MTU
from ...units import show_time, transfer_seconds
from .. import calibrate
from ..guard import FOREIGN_S, LATE_LIMIT, HostLoad, judge
from ..lost import Lost
from ..network import fastest_line
from ..processors import Processors
from .far import FarWire
from .leader import Leader


class FarCounters:
    """As `counters.PortCounters`, of the ports of all machines."""

    def __init__(self, leader: Leader):
        self.leader = leader

    def read(self) -> tuple[np.ndarray, int]:
        """Each directed cable is counted where its port is."""
        answers = self.leader.ask("counters")
        frames = sum(np.array(one["frames"]) for one in answers)
        return frames, sum(one["dropped"] for one in answers)


class FarGuard:
    """As `guard.Guard`: samples and verdicts of all machines."""

    def __init__(self, leader: Leader, wire: FarWire, fabric: Fabric, scale: float, may_drop: bool):
        self.leader, self.wire, self.may_drop = leader, wire, may_drop
        self.packet_time = transfer_seconds(MTU, fastest_line(fabric) * scale)
        self.leader.ask("watch", may_drop=may_drop)
        self.foreign: dict[str, list[tuple[float, float]]] = {}  # (s, share) by kernel
        self._taken: dict[str, tuple[float, Processors, float]] = {}
        self.frames = np.zeros((2 * len(fabric.links), 2), np.int64)
        self.waited, self._each = 0.0, np.zeros(len(leader.agents))  # s, as of the last look
        self.sample()

    def sample(self) -> None:
        """Every machine looks once."""
        looks = self.leader.ask("look")
        self.frames = sum(np.array(look["frames"]) for look in looks)
        self.wire.bytes_received = sum(look["received"] for look in looks)
        waited = np.array([look["waited"] for look in looks])
        self.waited += float((waited - self._each).max())  # one that waits holds all up
        self._each = waited
        self._look_at_others([Processors(**look["processors"]) for look in looks])

    def _look_at_others(self, processors: Sequence[Processors]) -> None:
        """What others than worlds of this run took of each kernel's processors since the last
        look, where packets moved.
        """
        kernels = [agent.facts["boot_id"] for agent in self.leader.agents]
        now, moved = time.monotonic(), float(self.frames[:, 0].sum())
        for kernel in set(kernels):
            mine = [p for p, at in zip(processors, kernels, strict=True) if at == kernel]
            taken = together(
                [*mine, *([Processors.now()] if kernel == calibrate.boot_id() else [])]
            )
            then, before, bytes_then = self._taken.setdefault(kernel, (now, taken, moved))
            if now - then < FOREIGN_S:
                continue
            self._taken[kernel] = now, taken, moved
            if moved > bytes_then:
                share = now - then, taken.foreign_since(before)
                self.foreign.setdefault(kernel, []).append(share)

    def _load(self) -> HostLoad:
        """What is known here: the worst of the machines that others work on."""
        shares = [
            sum(s * share for s, share in some) / sum(s for s, _ in some)
            for some in self.foreign.values()
        ]
        return HostLoad(0.0, 0.0, 0, 0, 0, 0, max(shares, default=0.0))

    def opinion(
        self, late: np.ndarray, took: np.ndarray, bandwidth_scale: float,
        lost: Lost = Lost(),
    ) -> Pace:  # fmt: skip
        """As `Guard.opinion`, without asking the machines."""
        facts = self.packet_time, late, took, bandwidth_scale, self.may_drop, lost
        return judge([], self._load(), *facts)

    def verdict(
        self, late: np.ndarray, took: np.ndarray, bandwidth_scale: float,
        lost: Lost = Lost(),
    ) -> Pace:  # fmt: skip
        """The pace of the run: ours, and that of every machine, each of which can fail it."""
        ours = self.opinion(late, took, bandwidth_scale, lost)
        theirs = [
            Pace.from_json(one) for one in self.leader.ask("verdict", bandwidth=bandwidth_scale)
        ]
        lag = self.wire.lag()
        if lag > LATE_LIMIT:
            ours = replace(
                ours,
                reasons=(*ours.reasons, f"a machine started a flow {show_time(lag)} late, "
                f"the limit is {show_time(LATE_LIMIT)}"),
                advice=ours.advice or "let nothing else run beside it on any machine",
            )  # fmt: skip
        return merged(ours, dict(zip((a.name for a in self.leader.agents), theirs, strict=True)))


def together(worlds: Sequence[Processors]) -> Processors:
    """The processors of one kernel, of which several worlds of a run are its own."""
    own = {what: sum(getattr(w, what) for w in worlds) for what in ("own_user", "own_kernel")}
    return replace(worlds[0], **own)


def merged(ours: Pace, machines: Mapping[str, Pace]) -> Pace:
    """One verdict: the reasons of each machine carry its name."""
    named = tuple(f"{name}: {why}" for name, pace in machines.items() for why in pace.reasons)
    advice = [pace.advice for pace in (ours, *machines.values()) if pace.advice]
    return replace(
        ours,
        ok=not (ours.reasons or named),
        cpu=max([ours.cpu, *(pace.cpu for pace in machines.values())]),
        reasons=(*ours.reasons, *named),
        advice=advice[0] if advice else "",
        resent=ours.resent + sum(pace.resent for pace in machines.values()),
    )
