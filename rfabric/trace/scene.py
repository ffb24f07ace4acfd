"""What is decided at one instant: the stages that ask, what sends and what comes, as racks know it
and as flows do.

    in line    those that send, those that ask, those to come

Both worlds make a `Scene` of what they know as stages ask; what a policy sees of it
(`Demands.told`) and what its answer is weighed by (`Demands.prospect`) are made here, once.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..fabric import Fabric
from ..optics import Circuits, Demand, completion
from ..optics.circuits import together
from ..optics.outlook import Begins, Load, Prospect
from .model import Trace
from .pairs import PairWays
from .stages import Stage, stage_demand


@dataclass(frozen=True)
class Scene:
    """Who asks, and, by stage, the rows that still send and the bytes each has left; who comes; the
    circuits; `now`, s; and when each began that has, s.
    """

    asking: tuple[Stage, ...]
    open: dict[Stage, tuple[np.ndarray, np.ndarray]]
    coming: tuple[Stage, ...]
    circuits: Circuits
    now: float
    since: dict[Stage, float] = field(default_factory=dict)

    @property
    def sending(self) -> tuple[Stage, ...]:
        """Those that began before."""
        return tuple(stage for stage in self.open if stage not in self.asking)

    @property
    def line(self) -> tuple[Stage, ...]:
        """Those that have something to send now."""
        return self.sending + tuple(stage for stage in self.asking if stage in self.open)

    @cached_property
    def begins(self) -> Begins:
        """When each of the line, and each to come, sends its first byte."""
        places = {stage.number: i for i, stage in enumerate((*self.line, *self.coming))}
        leads = [self.lead(stage) for stage in self.line]
        follows = tuple(tuple(places[k] for k in s.follows if k in places) for s in self.coming)
        ahead = [
            self.ahead(s, bool(before)) for s, before in zip(self.coming, follows, strict=True)
        ]
        return Begins(*map(np.array, (leads, ahead, [s.lead for s in self.coming])), follows)

    def lead(self, stage: Stage) -> float:
        """Seconds from now until a stage that has begun, or does now, sends its first byte."""
        return max(self.since.get(stage, self.now) + stage.lead - self.now, 0.0)

    def ahead(self, stage: Stage, follows: bool) -> float:
        """Seconds until a stage to come begins, after what it follows in line; else from now, at
        least.
        """
        return stage.gap if follows else max(stage.begin - self.now, 0.0)

    def fits(self, other: "Scene") -> bool:
        """Whether a plan for this one will do: the same stages ask, and nobody sends whom it did
        not count with.
        """
        same = self.asking == other.asking and self.circuits == other.circuits
        return same and other.open.keys() <= self.open.keys()

    def drift(self, other: "Scene", source: np.ndarray) -> float:
        """Bytes, of the sender with the most, that those who began before have more or fewer left
        here than in `other`. source: int64[rows of the trace], who sends each.
        """
        apart = np.zeros(int(source.max(initial=-1)) + 1)
        for scene, sign in ((self, 1.0), (other, -1.0)):
            for stage in scene.sending:
                rows, left = scene.open[stage]
                np.add.at(apart, source[rows], sign * left)
        return float(np.abs(apart).max(initial=0.0))


class Demands:
    """What the stages of a trace send."""

    def __init__(self, trace: Trace, fabric: Fabric):
        self.trace, self.fabric = trace, fabric
        self._whole: dict[Stage, Demand] = {}

    def whole(self, stage: Stage) -> Demand:
        """What a stage sends in all, as it begins."""
        if stage not in self._whole:
            self._whole[stage] = stage_demand(self.trace, self.fabric, stage)
        return self._whole[stage]

    def told(self, scene: Scene) -> tuple[Demand, list[Demand], list[Demand]]:
        """What a policy sees, rack to rack: what all who ask are about to send, what others still
        send, and what comes.
        """
        sending = [
            replace(stage_demand(self.trace, self.fabric, s, *scene.open[s]), lead=scene.lead(s))
            for s in scene.sending
        ]
        places = {s.number: i for i, s in enumerate(scene.sending)}
        places |= dict.fromkeys((s.number for s in scene.asking), len(sending))
        places |= {s.number: len(sending) + 1 + i for i, s in enumerate(scene.coming)}
        coming = []
        for stage in scene.coming:
            follows = tuple(
                sorted({places[stage.number] - places[k] for k in stage.follows if k in places})
            )
            ahead = scene.ahead(stage, bool(follows))
            coming.append(replace(self.whole(stage), ahead=ahead, follows=follows))
        asking = [replace(self._asked(scene, s), lead=scene.lead(s)) for s in scene.asking]
        return self._lasting(together(asking), scene.circuits), sending, coming

    def _asked(self, scene: Scene, stage: Stage) -> Demand:
        """What a stage that asks will send; of one that asks again, what is left of it."""
        rows, left = scene.open.get(stage, (stage.rows, None))
        if left is None or len(rows) == np.count_nonzero(self.trace.size[stage.rows]):
            return self.whole(stage)
        return stage_demand(self.trace, self.fabric, stage, rows, left)

    def _lasting(self, asked: Demand, circuits: Circuits) -> Demand:
        """A demand that stays as long as its bytes take on the circuits as they are, if that is
        longer than what was foreseen on network cards alone.
        """
        takes = completion(self.fabric, circuits, asked) if np.isfinite(asked.window) else 0.0
        return replace(asked, window=max(asked.window, takes))

    def prospect(self, scene: Scene, ways: PairWays) -> Prospect:
        """What the line and those to come may expect of `ways`, by the ways of every flow."""
        now = [self._load(s, ways, *scene.open[s]) for s in scene.line]
        return Prospect.of_flows(
            self.fabric, now, lambda: [self._whole_load(s, ways) for s in scene.coming]
        )

    def _whole_load(self, stage: Stage, ways: PairWays) -> Load:
        """What a stage sends in all, flow by flow."""
        rows = stage.rows[self.trace.size[stage.rows] > 0]
        return self._load(stage, ways, rows, self.trace.total[rows].astype(float))

    def _load(self, stage: Stage, ways: PairWays, rows: np.ndarray, left: np.ndarray) -> Load:
        """Of one label, those that wait for others of the stage send after them: a kind is a wave
        of a label.
        """
        every = len(rows) == len(stage.rows)
        wave = stage.waves if every else stage.waves[np.searchsorted(stage.rows, rows)]
        return ways.load(rows, left, self.trace.label[rows].astype(np.int64) << 32 | wave)
