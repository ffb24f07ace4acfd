"""Who answers a scheduler's proposals.

    Cards          network cards alone: what a plan without a fabric takes for granted
    FabricNetwork  a fabric: the circuits that its policy would light by then, the delay of that
                   rewire, and what else is in flight, as `optics.planner` decides it; a controller
                   does the same when it is asked over REST

A fabric is asked before the run, so nothing it answers is a measurement of the run. Racks are what
it knows: every pair split evenly over equal ways, so what hashing collides is not foreseen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from ..optics import Circuits, Demand, Timing, arrival, intend, parse_policy
from ..rl import flows
from ..rl.lowering import NOTICE, PhaseLowering, trace_of_steps
from ..rl.phases import handover
from ..rl.plan import Phase
from ..rl.traffic import weight_levels
from ..rl.workload import Workload
from ..trace import Flows, PhaseKey, rack_demand
from . import DEFAULT_CIRCUITS
from .base import GENERATION, TRAINING, Answer, AnsweringNetwork, Scheduled

# Weight syncs of whole copies, packed by one sender a stage and loaded as they come: software takes
# them alike, so the network alone tells them apart.
ALIKE = ("flat", "tree", "rank0")
WORTH = 0.05  # share of its seconds that another weight sync, or start of it, must save: assumed
SAME = 1e-6  # s: starts that are done as soon as each other

# seconds from when a demand begins, its lead from now, until it has arrived beside those already in
# flight; RFabricError: it is refused
Ask = Callable[[Demand, Sequence[Demand]], float]


@dataclass(frozen=True, eq=False)
class Cards:
    """A network that nothing limits but the cards of a job's GPUs."""

    workload: Workload
    name: str = "network cards"

    def answer(self, sends: Flows, beside: Sequence[Flows] = (), lead: float = 0.0) -> Answer:
        """What the busiest card takes."""
        return Answer(flows.wire_seconds(self.workload, flows.join([sends, *beside])))


@dataclass(frozen=True, eq=False)
class FabricNetwork:
    """A fabric that is asked: flows between GPUs become demand between its racks.

    seats: the number of the host of each GPU; none: GPU i, from 0, is h(i+1).
    """

    fabric: Fabric
    ask: Ask
    seats: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The fabric, as it was asked for."""
        return self.fabric.spec or self.fabric.name

    def answer(self, sends: Flows, beside: Sequence[Flows] = (), lead: float = 0.0) -> Answer:
        """As it is foreseen; a plan that the fabric refuses is an answer, not an error."""
        if not len(sends.src):
            return Answer(0.0)
        demands = [self.demand(some) for some in (sends, *beside)]
        try:
            return Answer(self.ask(replace(demands[0], lead=lead), demands[1:]))
        except RunError:  # nobody is there to answer
            raise
        except RFabricError as error:
            return Answer(float("inf"), str(error))

    def demand(self, sends: Flows) -> Demand:
        """Rack to rack bytes of flows between GPUs; RFabricError for one that the fabric lacks."""
        src, dst = (np.array(ends, np.int64) for ends in (sends.src, sends.dst))
        if self.seats:
            seats = np.array(self.seats, np.int64)
            return rack_demand(self.fabric, seats[src], seats[dst], np.array(sends.size, float))
        last = int(max(src.max(initial=0), dst.max(initial=0)))
        hosts = self.fabric.host_index
        if f"h{last + 1}" not in hosts:
            raise RFabricError(
                f"the job has GPU h{last + 1}, which {self.name} lacks; it has {len(hosts)} hosts: "
                "give it more, or a smaller job"
            )
        index = np.array([hosts[f"h{gpu + 1}"] for gpu in range(last + 1)])
        return rack_demand(self.fabric, index[src], index[dst], np.array(sends.size, float))


def foreseen(
    fabric: Fabric, policy: str = DEFAULT_CIRCUITS, timing: Timing = Timing()
) -> FabricNetwork:
    """A fabric under a circuit policy, from circuits that suit all racks alike (`static`).
    RFabricError for circuits that turn within a stage.
    """
    asked = parse_policy(policy, fabric)
    if fabric.ocses and asked.granularity in ("time-slotted", "intra-collective"):
        raise RFabricError(
            f"policy {policy}: circuits that turn by {asked.granularity} are not foreseen stage by "
            "stage, so nothing can be negotiated over them; leave network=fabric out, or choose "
            "another policy"
        )
    static = parse_policy("static", fabric)
    lit = static.decide(Demand.none(fabric.racks), Circuits(), 0.0) if fabric.ocses else Circuits()

    def ask(demand: Demand, sending: Sequence[Demand]) -> float:
        decision = intend(fabric, asked, demand, lit, 0.0, timing=timing, sending=sending)
        at = arrival(fabric, lit, decision, demand, sending, timing.takes(fabric))
        return max(at - demand.lead, 0.0)

    return FabricNetwork(fabric, ask)


def agreed_sync(w: Workload, network: AnsweringNetwork) -> tuple[Workload, dict]:
    """The job with the weight sync that the network is done with soonest, and what it answered.

    The recipe's own stays where none saves more than WORTH of it, or software would not take
    another alike. RFabricError where the network refuses every one of them.
    """
    if w.colocated:
        return w, {}
    own = w.weight_sync.strategy
    names = (own, *ALIKE) if own in ALIKE else (own,)
    jobs = {name: replace(w, weight_sync=replace(w.weight_sync, strategy=name)) for name in names}
    asked = {name: [network.answer(level) for level in _levels(job)] for name, job in jobs.items()}
    seconds = {name: _seconds(jobs[name], answers) for name, answers in asked.items()}
    best = min(seconds, key=seconds.__getitem__)
    if seconds[best] == float("inf"):
        why = next(answer.why for answer in asked[own] if answer.refused)
        raise RFabricError(f"{network.name} refuses every weight sync of {', '.join(jobs)}: {why}")
    if not seconds[best] < (1 - WORTH) * seconds[own]:
        best = own
    told = {name: None if s == float("inf") else s for name, s in seconds.items()}
    return w if best == own else jobs[best], {"weight_sync": best, "weight_sync_s": told}


def _levels(w: Workload) -> list[Flows]:
    """What a weight sync sends between servers, level by level."""
    levels = (flows.leaving(w, level.flows) for level in weight_levels(w))
    return [level for level in levels if len(level.src)]


def _seconds(w: Workload, answers: Sequence[Answer]) -> float:
    """Of a weight sync: its software, and its levels one after the other."""
    return sum(handover(w).values()) + sum(answer.seconds for answer in answers)


# --- when it begins -------------------------------------------------------------------------------

# What else a step sends while it generates: by its number, phases of the plan and their flows.
RoundsOfStep = Callable[[int], Sequence[tuple[Phase, Flows]]]


@dataclass(frozen=True)
class Start:
    """A proposal: weights leave at `at` (s of the plan) and take `seconds`; generation, which they
    leave beside, ends `late` s later for them.
    """

    at: float
    seconds: float
    late: float = 0.0

    def done(self, generated: float) -> float:
        """When weights are there and generation, planned to end at `generated`, has ended."""
        return max(generated + self.late, self.at + self.seconds)


def agreed_start(
    made: Scheduled,
    seed: int,
    network: AnsweringNetwork,
    rounds: RoundsOfStep = lambda _: (),
    parts: Mapping[str, PhaseLowering] | None = None,
) -> Scheduled:
    """The job whose weights leave when the network has them there soonest: of those starts the
    latest, as they wait in memory that replicas have other uses for. Loading them waits for
    generation whenever they leave.

    Where a weight sync waits for training alone nothing can be agreed: it begins then. parts: as of
    `trace_of_steps`.
    """
    phases = {PhaseKey(p.step, p.kind): p for p in made.plan.phases}
    holds, ahead = dict[int, float](), dict[str, float]()
    for step in made.steps if made.workload.pipeline == "one-step-off" else ():
        trained = phases[PhaseKey(step.number, TRAINING)]
        beside = phases.get(PhaseKey(step.number + 1, GENERATION))
        if beside is None:
            continue
        ends = [p.start + made.trace.windows[PhaseKey(p.step, p.kind)] for p in (trained, beside)]
        start = _soonest(made.workload, network, *ends, rounds(step.number + 1))
        ahead[str(step.number)] = round(max(ends[1] - start.at, 0.0), 6)
        if start.at < ends[1]:
            # replicas that are done sooner than forecast say so: nothing waits for longer
            holds[step.number] = min(start.at - beside.start, beside.seconds)
    facts = made.facts | ({"weight_sync_ahead_s": ahead} if ahead else {})
    if not holds:
        return replace(made, facts=facts)
    trace = trace_of_steps(made.workload, made.steps, made.plan, seed, parts, holds)
    trace = replace(trace, windows=made.trace.windows, paces=made.trace.paces)
    return replace(made, trace=trace, facts=facts)


def _soonest(
    w: Workload, network: AnsweringNetwork, trained: float, generated: float, rounds: Sequence
) -> Start:
    """Of the starts as generation ends, as soon as they are trained and circuits can follow, and
    so late that weights arrive as generation ends.
    """
    after, first = Start(max(generated, trained), _takes(w, network)), trained + NOTICE
    if generated <= first:
        return after
    ask = _proposing(w, network, generated, rounds)
    seconds = ask(max(generated - after.seconds, first)).seconds
    starts = [after, ask(first), ask(max(generated - seconds, first))]
    best = min(start.done(generated) for start in starts)
    if not best < after.done(generated) - WORTH * after.seconds:
        return after
    as_soon = (start for start in starts if start.done(generated) <= best + SAME)
    return max(as_soon, key=lambda start: start.at)


def _proposing(
    w: Workload, network: AnsweringNetwork, generated: float, rounds: Sequence
) -> Callable[[float], Start]:
    """What the network answers to weights that leave at a time, of which it has notice, beside the
    KV that moves by then.
    """
    alone = _takes(w, network)

    def ask(at: float) -> Start:
        until = min(at + alone, generated)
        kv = [sent for p, sent in rounds if p.start < until and p.start + p.window > at]
        late = sum(_later(network, one, _levels(w)) for one in kv)
        return Start(at, _takes(w, network, kv, NOTICE), late)

    return ask


def _takes(
    w: Workload, network: AnsweringNetwork, beside: Sequence[Flows] = (), lead: float = 0.0
) -> float:
    """Seconds of all levels of a weight sync that begins `lead` s from now; inf where one is
    refused.
    """
    first, *others = _levels(w) or [flows.NONE]
    began = network.answer(first, beside, lead).seconds
    return began + sum(network.answer(level, beside).seconds for level in others)


def _later(network: AnsweringNetwork, sent: Flows, weights: Sequence[Flows]) -> float:
    """Seconds by which flows are later beside the levels of a weight sync."""
    alone = network.answer(sent).seconds
    if alone == float("inf"):
        return 0.0
    return max((network.answer(sent, [level]).seconds - alone for level in weights), default=0.0)
