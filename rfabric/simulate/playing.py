"""Rounds in the flow-level world: which rows send in the present round, how long it lasts, and
which round comes next.

    row starts -> its share of what it has left -> clock of the round -> all shares sent -> turn to
    the next round with work

A round's clock starts with the first of its rows, and lasts what the busiest directed link needs
for the shares of those that have started. Rows for which it is the last round of a pass are waited
for, whatever the clock says. Rows that start later than their rounds find them again in the next
pass.
"""

from collections.abc import Iterator

import numpy as np

from ..fabric import Fabric
from ..fabric.cabling import cabling_of, host_numbers
from ..optics.circuits import Circuits, Demand
from ..optics.outlook import Load, Outlook, gain_later, gained
from ..optics.planner import Decision, cable_mask
from ..optics.policies import Policy
from ..optics.rewiring import NONE, Rewiring
from ..optics.rounds import Rounds, decompositions, direct
from ..routing.schemes import ECMP, Routing, Sent
from ..trace import Scene, Stage, Trace, waves
from ..trace.pairs import Pairs, PairWays
from .flows import Engine


class RunningRounds:
    """Rounds, the stages and rows that send in them, and how far they are: the present round
    `number`, and when it is over.

    weight: float64[rounds, rows]. until: s; None before a row of the round has started, inf while
    its last rows are waited for.
    """

    def __init__(
        self,
        fabric: Fabric,
        trace: Trace,
        pairs: Pairs,
        rounds: Rounds,
        stages: tuple[Stage, ...],
        rows: np.ndarray,
        left: np.ndarray,
        routing: Routing,
        others: np.ndarray,
    ):
        self.fabric, self.rounds, self.stages, self.rows = fabric, rounds, stages, rows
        host = host_numbers(fabric, trace.hosts)
        src, dst = (
            cabling_of(fabric).host_rack[host[ends[rows]]] for ends in (trace.src, trace.dst)
        )
        self.weight = rounds.weight[:, src, dst].astype(float)
        self.to_come = list(range(len(rounds.circuits)))  # of this pass, the present round first
        self.number, self.until = 0, None
        self.goal = np.full(len(rows), np.nan)  # what each row has left when its share is sent
        amounts = left * self.weight / self.weight.sum(axis=0)
        by_pair = (np.bincount(pairs.of[rows], sent, minlength=len(pairs.src)) for sent in amounts)
        self.ways = [
            RoundWays(fabric, pairs, lit, routing, sent, others)
            for lit, sent in zip(rounds.circuits, by_pair, strict=True)
        ]
        # of each round, as predicted
        self.seconds = [self._needed(k, sent) for k, sent in enumerate(amounts)]

    def _load(self, number: int, sent: np.ndarray) -> Load:
        some = sent > 0
        return self.ways[number].load(self.rows[some], sent[some], np.zeros(int(some.sum())))

    def _needed(self, number: int, sent: np.ndarray) -> float:
        """Seconds of the busiest directed link for these bytes of the rows in a round."""
        return float(Outlook.of_flows(self.fabric, [self._load(number, sent)]).alone[0])

    def lasts(self, turn: float, waves: int) -> float:
        """Seconds from the first byte to the last, as predicted, a turn taking `turn` s; each wave
        of rows needs all rounds.
        """
        return sum(self.seconds) + (len(self.seconds) - 1) * waves * turn

    def meets(self, others: np.ndarray, circuits: Circuits) -> bool:
        """Whether other rows in flight would cross a cable that some turn touches, the first, from
        `circuits`, among them.
        """
        every = [circuits, *self.rounds.circuits, self.rounds.circuits[0]]
        cables = np.any(
            [cable_mask(self.fabric, a, b) for a, b in zip(every, every[1:], strict=False)], axis=0
        )
        return (
            any(ways.crossing(others, cables).any() for ways in self.ways) if len(others) else False
        )

    # --- while it is on ---------------------------------------------------------------------------

    def stands(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` do not send in the present round, as a mask."""
        return np.isin(rows, self.rows[self.weight[self.number] == 0])

    def is_over(self, engine: Engine) -> bool:
        """Whether the present round has nothing more to send; its clock starts with its rows."""
        flying = np.isin(self.rows, engine.active())
        here = flying & (self.weight[self.number] > 0)
        if not here.any():
            if flying.any() or not self._unfinished(engine, self.number):
                return True
            self.turn(self.number)  # its next rows have not started: a pass begins with them
            return False
        if (here & np.isnan(self.goal)).any():
            self._start(engine, here)
        if engine.now < self.until:
            return False
        self.until = np.inf
        return not (here & (self.weight[self.to_come[1:]].sum(axis=0) == 0)).any()

    def _start(self, engine: Engine, here: np.ndarray) -> None:
        """Rows have started: their shares are set, and the clock."""
        left, new = engine.remaining(self.rows), here & np.isnan(self.goal)
        weight = self.weight[self.to_come]
        share = weight[0, new] / weight[:, new].sum(axis=0)
        self.goal[new] = left[new] * (1 - share)
        owed = np.where(here, left - self.goal, 0.0)
        self.until = engine.now + self._needed(self.number, np.maximum(owed, 0.0))

    def next_round(self, engine: Engine) -> int | None:
        """The round to turn to: in order, where rows have started; else where any are left; None
        where none are.
        """
        flying = np.isin(self.rows, engine.active())
        count = len(self.weight)
        new_pass = [(self.number + 1 + i) % count for i in range(count)]
        for order in (self.to_come[1:], new_pass):
            for number in order:
                if (flying & (self.weight[number] > 0)).any():
                    return number
        return next(
            (number for number in (self.number, *new_pass) if self._unfinished(engine, number)),
            None,
        )

    def turn(self, number: int) -> None:
        """On to a round of this pass, or, from it on, of a new one."""
        count, coming = len(self.weight), self.to_come[1:]
        new_pass = [(number + i) % count for i in range(count)]
        self.to_come = coming[coming.index(number) :] if number in coming else new_pass
        self.number, self.until = number, None
        self.goal[:] = np.nan

    def _unfinished(self, engine: Engine, number: int) -> bool:
        return bool((engine.remaining(self.rows[self.weight[number] > 0]) > 0).any())


class RoundWays(PairWays):
    """The ways in one round: pairs whose racks a circuit joins on its light path, what else is sent
    as `routing` places it.

    `sent`: bytes of each pair in this round, `others`: of those in flight beside it. Where several
    light paths join two racks, the heaviest pairs choose first, each the least loaded.
    """

    def __init__(
        self,
        fabric: Fabric,
        pairs: Pairs,
        circuits: Circuits,
        routing: Routing,
        sent: np.ndarray,
        others: np.ndarray,
    ):
        self.light = _lights_of(fabric, pairs, circuits, sent)
        rest = np.flatnonzero(((sent > 0) & (self.light < 0)) | (others > 0))
        if routing.scheme == "placed":
            placed = Sent(pairs.src[rest], pairs.dst[rest], (sent + others)[rest][None])
            routing = Routing("placed", placed) if len(rest) else ECMP
        super().__init__(fabric, pairs, circuits, routing)

    def _lay(self, pairs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        mine, rest = pairs[self.light[pairs] >= 0], pairs[self.light[pairs] < 0]
        if len(mine):
            ends = self.pairs.src[mine], self.pairs.dst[mine]
            yield (
                mine,
                *self.routes.ways.links_along(
                    *ends, self.light[mine][:, None], np.zeros(len(mine), bool)
                ),
            )
        if len(rest):
            yield from super()._lay(rest)


def _lights_of(fabric: Fabric, pairs: Pairs, circuits: Circuits, sent: np.ndarray) -> np.ndarray:
    """int64[pairs]: the light path of each pair that sends between racks which circuits join, -1
    for others.
    """
    src, dst, numbers = direct(fabric, circuits)
    load: dict[tuple[int, int], dict[int, float]] = {}
    for a, b, number in zip(src.tolist(), dst.tolist(), numbers.tolist(), strict=True):
        load.setdefault((a, b), {})[number] = 0.0
    lights = np.full(len(sent), -1, dtype=np.int64)
    rack, to = (cabling_of(fabric).host_rack[ends].tolist() for ends in (pairs.src, pairs.dst))
    for i in np.argsort(-sent, kind="stable")[: int((sent > 0).sum())].tolist():
        if paths := load.get((rack[i], to[i])):
            lights[i] = least = min(paths, key=paths.__getitem__)
            paths[least] += float(sent[i])
    return lights


def best_rounds(
    contract: Rewiring, policy: Policy, trace: Trace, pairs: Pairs, routing: Routing,
    scene: Scene, mine: set[Stage], ends: np.ndarray, decision: Decision, coming: list[Demand],
) -> RunningRounds | None:  # fmt: skip
    """The rounds for the stages `mine`, where all in flight is predicted to end sooner with them
    than by `decision`.

    ends: when each in the scene's line ends (s from now) if the decision is followed. None too
    where others in flight share racks with the rounds, or cables.
    """
    fabric, timing = contract.fabric, contract.timing
    playing, leads = np.array([s in mine for s in scene.line]), scene.begins.now
    stages, beside = (tuple(s for s in scene.line if (s in mine) == here) for here in (True, False))
    (rows, left), (rest, rest_left) = _together(scene, stages), _together(scene, beside)
    demand = trace.demand_of(fabric, rows, left=left)
    least = np.where(playing, leads + demand.floor, ends)
    if gained(ends, least) <= timing.guard or _share_racks(demand, trace.demand_of(fabric, rest)):
        return None
    others = np.bincount(pairs.of[rest], rest_left, minlength=len(pairs.src))
    made = [
        RunningRounds(fabric, trace, pairs, rounds, stages, rows, left, routing, others)
        for rounds in decompositions(fabric, policy, demand, contract.circuits)
    ]
    turn = fabric.reconfig_delay + timing.settle
    count = waves(trace, rows)
    dark = timing.takes(fabric)

    def then(running: RunningRounds) -> np.ndarray:
        """When each stage ends with these rounds; others in flight as if the round that suits them
        least were on.
        """
        wait = dark if running.rounds.circuits[0] != contract.circuits else 0.0
        done = np.maximum(leads, wait) + running.lasts(turn, count)
        if len(rest):
            loads = ([ways.load(*scene.open[s]) for s in beside] for ways in running.ways)
            done[~playing] = np.max([Outlook.of_flows(fabric, some).ends for some in loads], axis=0)
        return done

    best = min(made, key=lambda one: float(then(one).sum()), default=None)
    if best is None or best.meets(rest, contract.circuits):
        return None
    after = (
        Outlook.of_racks(fabric, circuits, coming)
        for circuits in (contract.circuits, best.rounds.circuits[-1])
    )
    later = min(
        gain_later(*after, np.array([d.lead for d in coming]), dark), 0.0
    )  # rounds must be worth it by themselves
    return best if gained(ends, then(best)) + later - decision.later > timing.guard else None


def _together(scene: Scene, some: tuple[Stage, ...]) -> tuple[np.ndarray, ...]:
    """The rows of some stages, and what each has left."""
    parts = [scene.open[s] for s in some]
    return np.concatenate([NONE, *(rows for rows, _ in parts)]), np.concatenate(
        [NONE, *(left for _, left in parts)]
    )


def _share_racks(some: Demand, others: Demand) -> bool:
    busy = [demand.sends | demand.receives for demand in (some, others)]
    return bool((busy[0] & busy[1]).any())
