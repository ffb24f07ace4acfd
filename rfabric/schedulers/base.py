"""What a compute scheduler is, `Scheduler`, and all that one of your own is made from.

steps    drawn responses and how long their parts take (rl.phases.Step)
plan     which GPUs compute what from when to when (rl.plan.Plan)
trace    what that sends (Trace)
spans    the same computing, GPU by GPU, to be drawn
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..errors import RFabricError
from ..rl.lowering import trace_of_steps
from ..rl.padding import balance
from ..rl.phases import Generated, Step, steady_time, step_of
from ..rl.plan import Plan, plan_of_steps
from ..rl.timing import replica_time
from ..rl.workload import Workload
from ..specs import Spec, as_written, field_values
from ..trace import Flows, Span, Trace

__all__ = [
    "GENERATION", "TRAINING", "Answer", "AnsweringNetwork", "Flows", "Generated", "Plan",
    "Scheduled", "Scheduler", "Settings", "Span", "Step", "Trace", "Workload", "as_it_stands",
    "balance", "of_steps", "plan_of_steps", "refuse_cpu_servers", "refuse_dropped",
    "refuse_settings", "refuse_unlike_replicas", "replica_time", "settings_of", "spans_of",
    "steady_time", "step_of", "trace_of_steps",
]  # fmt: skip
GENERATION, TRAINING = "generation", "training"  # the pools of GPUs
Settings = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Scheduled:
    """What a scheduler made of a job: the job as it runs, its steps, plan and trace; `spans` draw
    it.

    facts: what it decided, for people and `--json`; keys carry their units.
    """

    workload: Workload
    steps: tuple[Step, ...]
    plan: Plan
    trace: Trace
    spans: tuple[Span, ...]
    facts: dict = field(default_factory=dict)

    @property
    def pools(self) -> dict[str, tuple[int, ...]]:
        """The GPUs of each pool."""
        w = self.workload
        every = {
            TRAINING: range(w.cluster.training_gpus),
            GENERATION: range(w.first_generation_gpu, w.gpus),
        }
        return {
            name: tuple(gpus)
            for name, gpus in every.items()
            if not (w.colocated and name == GENERATION)
        }

    @property
    def seconds(self) -> float:
        """When the last phase or span ends."""
        return max(self.plan.seconds, max((s.start + s.seconds for s in self.spans), default=0.0))


@dataclass(frozen=True)
class Answer:
    """What a network says to a proposal: `seconds` until the last byte has arrived, inf where it
    refuses to carry it, and then why.

    RFabricError for seconds that are no number or negative.
    """

    seconds: float
    why: str = ""

    def __post_init__(self):
        if not self.seconds >= 0:
            raise RFabricError(
                f"a network forecast {self.seconds!r} s for a proposal; it must be 0 or more, inf "
                "for a refusal"
            )

    @property
    def refused(self) -> bool:
        """Whether the network will not carry it at all."""
        return self.seconds == float("inf")


class AnsweringNetwork(Protocol):
    """Who answers the proposals of a scheduler, before anything is sent: a fabric, a controller, or
    network cards alone.
    """

    @property
    def name(self) -> str:
        """What facts and errors call it."""
        ...

    def answer(self, sends: Flows, beside: Sequence[Flows] = (), lead: float = 0.0) -> Answer:
        """How long these flows between GPUs will take when they begin `lead` s from now, `beside`
        others that are in flight; nothing is changed by asking.
        """
        ...


class Scheduler(Protocol):
    """Who computes what when: a function, which `schedulers` of a FILE.py holds by name.

        def mine(w: Workload, seed: int, settings: Settings) -> Scheduled: ...

        schedulers = {"mine": mine}          # --policy FILE.py:mine,KEY=VALUE

    It reads its own settings, as they were written (`settings_of`, `refuse_settings`), draws steps
    with `step_of` and gives them to `of_steps`, which makes plan, trace and spans; whoever orders
    the computing anew makes these as well. The same job, seed and settings give the same answer.
    """

    def __call__(self, w: Workload, seed: int, settings: Settings, /) -> Scheduled: ...


def as_it_stands(w: Workload, seed: int) -> Scheduled:
    """The recipe's own pipeline and placement, replicas as it says."""
    return of_steps(w, [step_of(w, seed, n) for n in range(w.steps)], seed)


def of_steps(w: Workload, steps: Sequence[Step], seed: int, facts: dict | None = None) -> Scheduled:
    """Steps that are already drawn, in the pipeline of the workload, every replica as the recipe
    says.
    """
    plan = plan_of_steps(w, steps)
    return Scheduled(
        w,
        tuple(steps),
        plan,
        trace_of_steps(w, steps, plan, seed),
        spans_of(w, steps, plan),
        facts or {},
    )


def spans_of(w: Workload, steps: Sequence[Step], plan: Plan) -> tuple[Span, ...]:
    """Each replica while it generates, the training GPUs while they train, both while weights
    change hands.
    """
    spans = []
    for phase in plan.phases:
        pool = TRAINING if w.colocated or phase.kind == TRAINING else GENERATION
        if phase.kind == GENERATION:
            times = zip(w.decoding, steps[phase.step].generated.times, strict=True)
            spans += [
                Span(pool, tuple(r), phase.start, t.seconds, GENERATION, phase.step)
                for r, t in times
            ]
        else:
            spans.append(Span(pool, phase.gpus, phase.start, phase.seconds, phase.kind, phase.step))
    return tuple(spans)


def refuse_settings(name: str, settings: Settings, *known: str) -> None:
    """RFabricError for a setting that the scheduler does not know."""
    Spec(name, settings, "scheduler").values(dict.fromkeys(known, as_written))


def refuse_unlike_replicas(name: str, w: Workload) -> None:
    """RFabricError where experts are dealt to more GPUs than tp, or replicas read prompts for
    others: the scheduler knows replicas of one kind.
    """
    g = w.generation
    if w.prefilling:
        raise RFabricError(
            f"scheduler {name} knows replicas that read their own prompts; use "
            "generation.prefill_gpus=0, or a plain scheduler such as sync"
        )
    if g.ffn_gpus:
        raise RFabricError(
            f"scheduler {name} knows replicas whose GPUs all attend; use generation.ffn_gpus=0, or "
            "a plain scheduler such as sync"
        )
    if g.gpus > g.tp:
        raise RFabricError(
            f"scheduler {name} knows replicas of tp GPUs; generation.ep {g.ep} makes them "
            f"{g.gpus} wide: use generation.ep=1, or a plain scheduler such as sync"
        )


def refuse_cpu_servers(name: str, w: Workload) -> None:
    """RFabricError where environments or rewards stand on CPU servers, for a scheduler that lowers
    generation its own way.
    """
    if w.environments.servers:
        raise RFabricError(
            f"scheduler {name} sends nothing to the {w.environments.servers} CPU servers of "
            "environments.servers; use 0, or a plain scheduler such as sync"
        )


def refuse_dropped(name: str, w: Workload) -> None:
    """RFabricError where responses are dropped, for a scheduler that chooses itself which are."""
    if (g := w.generation).rolled_out > g.batch:
        raise RFabricError(
            f"scheduler {name} chooses what is trained on, of responses to generation.batch "
            f"{g.batch} prompts; leave out generation.prompts {g.prompts}, or use a plain "
            "scheduler such as sync"
        )


def settings_of(name: str, made, settings: Settings):
    """The dataclass `made` with `settings` put over it, read by its fields (`specs.by_fields`).

    The setting of a field `period_s` is called `period` and carries its unit.
    """
    return replace(made, **field_values(made, Spec(name, settings, "scheduler")))
