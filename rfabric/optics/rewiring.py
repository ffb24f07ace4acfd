"""The rewire contract as a state machine, which both worlds follow, each on its own clock.

    begin(stage)        a stage begins; it asks for its circuits, together with all stages that
                        began since the last decision
    asking              the stages to decide together; none while a rewire is under way
    open                the rows of stages that have begun and not finished
        stay            the circuits stay as they are
        wait            a stage has no path yet; it asks again when something in flight has ended
        unblock         nothing can move any more: the first stage without a path goes first
        take(decision)  the rewire is under way: which flows it stops, which ones it waits for
    quiet               it waits for no flow any more: the circuits may go dark
    done(times)         the new circuits are in force; a record says what the rewire took and how
                        long it kept flows waiting

    --in-flight   flows on circuits that change        flows that become ready meanwhile
    hold          stand still                          wait
    drain         finish first                         wait
    drop          go on, and lose what meets the dark  go on

A rewire concerns a flow whose path, before or after, crosses a cable that goes dark, and a flow
without a path, because routes change during the dark time. `drain` waits only for flows that use
these circuits now. A flow that will get a path over them stands still instead; otherwise the rewire
would wait for the very flow it helps. Flows of the stages that ask stand still too, so that no
stage drains for itself. Nothing here reads a clock, sends, or knows more of a row than its number.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from ..fabric import Fabric
from ..routing.rows import distinct
from .circuits import Circuits, Rewire
from .outlook import NEVER, Begins, Gain, Outlook, Prospect, ends_after, gain
from .planner import STAY, Decision, RewireRecord, Timing, cable_mask, refusal

NONE = np.zeros(0, np.int64)
MOST_BACK = 4  # earlier sets of circuits that are weighed again


@dataclass
class UnderWay:
    """A rewire from its request until it is usable: the stages it is for, the cables it darkens (a
    mask), the rows that stand still for it.
    """

    stages: tuple
    decision: Decision
    requested: float
    cables: np.ndarray
    waits_for: set[int] = field(default_factory=set)
    held: list[np.ndarray] = field(default_factory=list)

    @property
    def rows(self) -> np.ndarray:
        """All rows that stood still, or met the dark."""
        return distinct(np.concatenate((*self.held, NONE)))


class Rewiring:
    """The circuits in force, the stages that ask for others, and the rewire under way, with the
    `epochs` and `records` so far.
    """

    def __init__(self, fabric: Fabric, timing: Timing, circuits: Circuits):
        self.fabric, self.timing, self.circuits = fabric, timing, circuits
        self.epochs: list[tuple[float, Circuits]] = [(0.0, circuits)]
        self.records: list[RewireRecord] = []
        self.under_way: UnderWay | None = None
        # by stage that has begun: its rows with bytes that are not known to have finished
        self.begun: dict[Hashable, np.ndarray] = {}
        self.since: dict[Hashable, float] = {}  # s: when each of them began
        self.blocked: list[Hashable] = []  # stages that have no path until another ends
        self._beside: frozenset[Hashable] = frozenset()  # what was open when they were blocked
        self._asking: list[Hashable] = []
        self._first: dict[Hashable, np.ndarray] = {}  # a stage that goes first, and its rows
        self._went = 0  # epochs when one last did

    # --- intents ----------------------------------------------------------------------------------

    def begin(self, stage: Hashable, rows: np.ndarray, now: float, asks: bool = True) -> None:
        """A stage begins, whose `rows` send; if it `asks`, it waits for its circuits."""
        self.begun[stage], self.since[stage] = rows, now
        if asks:
            self._asking.append(stage)

    def open(self, finish: np.ndarray) -> dict[Hashable, np.ndarray]:
        """Unfinished rows with bytes, by stage that has begun; `finish`: s by row, nan or inf where
        a row has not finished.
        """
        left = {stage: rows[~np.isfinite(finish[rows])] for stage, rows in self.begun.items()}
        self.begun = {stage: rows for stage, rows in left.items() if len(rows)}
        return self.begun

    def seen(self, finish: np.ndarray) -> dict[Hashable, np.ndarray]:
        """What a decision sees of those `open`: all, or what goes first alone."""
        return self._first or self.open(finish)

    def unblock(self, lost: np.ndarray) -> bool:
        """Nothing can move any more, because rows that are ready have no path (`lost`): the first
        stage that has some asks again, for these as if they were alone, since all else waits for
        them or stands still too. False where none has, or where one did so under these circuits
        already and got no others: then the job can never end.
        """
        if not len(lost):
            return False
        stuck = {stage: np.intersect1d(rows, lost) for stage, rows in self.begun.items()}
        stage = next((stage for stage, rows in stuck.items() if len(rows)), None)
        if stage is None or self._went == len(self.epochs):
            return False
        self._first, self._went = {stage: stuck[stage]}, len(self.epochs)
        self.blocked = [one for one in self.blocked if one != stage]
        self._asking.append(stage)
        return True

    @property
    def asking(self) -> tuple:
        """The stages to be decided together now."""
        return () if self.under_way else tuple(self._asking)

    def stay(self) -> None:
        """The present circuits serve the stages that asked."""
        self._asking.clear()
        self._first = {}

    def wait(self) -> None:
        """The stages that asked have no path yet; they ask again when a stage has ended."""
        self.blocked, self._asking, self._beside = (
            [*self.blocked, *self._asking],
            [],
            frozenset(self.begun),
        )
        self._first = {}

    def ask_again(self, finish: np.ndarray) -> None:
        """Stages that had no path ask again if others have ended since."""
        if self.blocked and not self.under_way and not self._beside <= self.open(finish).keys():
            self._asking, self.blocked = [*self.blocked, *self._asking], []

    # --- the rewire -------------------------------------------------------------------------------

    @property
    def back(self) -> tuple[Circuits, ...]:
        """Circuits to return to: the last MOST_BACK sets other than the present one, latest first,
        and the set of the start.
        """
        latest = dict.fromkeys(circuits for _, circuits in reversed(self.epochs))
        every = [circuits for circuits in latest if circuits != self.circuits]
        start = [circuits for _, circuits in self.epochs[:1] if circuits in every[MOST_BACK:]]
        return *every[:MOST_BACK], *start

    def weigh(
        self,
        decision: Decision,
        also: Iterable[Circuits],
        prospect: Callable[[Circuits], Prospect],
        begins: Begins,
    ) -> Decision:
        """What gains most by the paths of every flow (`prospect`): the decision or one of `also`;
        failing these its next best, or to stay.

        A policy and its forecast see only racks, so a proposal may do harm, and they may not undo
        what did harm.
        """
        first = [*([decision.circuits] if decision.rewire else ()), *also]
        refused = decision
        for some in (first, *([circuits] for circuits in decision.others)):
            most, best = self._most(dict.fromkeys(some), prospect, begins)
            if most.seconds > self.timing.guard:
                rewire = Rewire.between(self.circuits, best)
                who = "back" if best in also else decision.why.partition(":")[0]
                return Decision(rewire, f"{who}: {rewire.size} circuits change", best, most.later)
            if refused.rewire:
                refused = Decision(STAY, refusal(most.seconds), self.circuits)
        return refused

    def _most(
        self, some: Iterable[Circuits], prospect: Callable[[Circuits], Prospect], begins: Begins
    ) -> tuple[Gain, Circuits]:
        """The largest gain among some sets of circuits, and the first set that has it."""
        most, best = None, self.circuits
        for circuits in some:
            gained = self._gain(circuits, prospect, begins, most.seconds if most else -NEVER)
            if most is None or gained.seconds > most.seconds:
                most, best = gained, circuits
        return most or Gain(0.0), best

    def _gain(
        self,
        wanted: Circuits,
        prospect: Callable[[Circuits], Prospect],
        begins: Begins,
        least: float,
    ) -> Gain:
        cables, dark = (
            cable_mask(self.fabric, self.circuits, wanted),
            self.timing.takes(self.fabric),
        )
        return gain(prospect(self.circuits), prospect(wanted), begins, cables, dark, least)

    def ends(
        self, decision: Decision, before: Outlook, after: Outlook, leads: np.ndarray
    ) -> np.ndarray:
        """Seconds until each stage ends, by the paths of its flows, if the decision is followed:
        float64[stages]; inf: never.
        """
        cables, dark = (
            cable_mask(self.fabric, self.circuits, decision.circuits),
            self.timing.takes(self.fabric),
        )
        return ends_after(before, after, leads, cables, dark)

    def take(self, decision: Decision, now: float, stages: tuple = ()) -> UnderWay:
        """Request the rewire for all stages that asked; if none did, it is a turn for `stages`."""
        stages, self._asking, self._first = tuple(self._asking) or stages, [], {}
        self.under_way = UnderWay(
            stages, decision, now, cable_mask(self.fabric, self.circuits, decision.circuits)
        )
        return self.under_way

    def concern(self, flying: np.ndarray, ready: np.ndarray, dark: bool = False) -> np.ndarray:
        """Which of the rows that the rewire concerns the world must stop now. `flying`: in flight
        on circuits that change; `ready`: in flight elsewhere, or about to be sent.
        """
        going = self.under_way
        if self.timing.in_flight == "drop" and not dark:
            return NONE
        if self.timing.in_flight == "drain":
            asked = np.concatenate([NONE, *(self.begun.get(s, NONE) for s in going.stages)])
            own = np.isin(flying, asked)
            going.waits_for |= set(flying[~own].tolist())
            flying = flying[own]
        going.held.append(np.concatenate((flying, ready)))
        return going.held[-1]

    def finished(self, row: int) -> None:
        """A row has finished; the rewire no longer waits for it."""
        if self.under_way:
            self.under_way.waits_for.discard(row)

    @property
    def quiet(self) -> bool:
        """Whether a rewire is under way and waits for no flow."""
        return self.under_way is not None and not self.under_way.waits_for

    def done(
        self,
        programmed: float,
        dark_until: float,
        usable: float,
        start: np.ndarray,
        lost: int = 0,
        epoch: int = 0,
    ) -> RewireRecord:
        """The new circuits are in force. `start`: s when each row was ready to send; nan or inf:
        not yet.
        """
        going, self.under_way = self.under_way, None
        self.circuits = going.decision.circuits
        halt = programmed if self.timing.in_flight == "drop" else going.requested
        since = max(float(np.fmin.reduce(start[going.rows], initial=np.inf)), halt)
        record = RewireRecord(
            epoch or len(self.records) + 1,
            str(going.stages[0]) if going.stages else "",
            going.requested,
            programmed,
            dark_until,
            usable,
            going.decision.rewire.size,
            lost,
            going.decision.why,
            max(usable - since, 0.0),
        )
        self.records.append(record)
        self.epochs.append((usable, self.circuits))
        return record
