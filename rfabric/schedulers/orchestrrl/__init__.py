"""OrchestrRL's compute scheduler (arXiv 2601.01209): replicas are cut anew and responses move while
a step generates.

    seat (a server)  |tp2 ######### |tp2 ####### |..switch..| tp8 ##### |  planner, every `period`
                     |tp2 ####### --kv--> another replica, of any seat     balancer, every `balance`
                     |tp2 ##########|tp2 ####### |..........|

The planner goes by a forecast of how long responses will be, never by how long they turn out to be
(`replanning`), but where `forecast=oracle` asks for just that. A plan is followed where it shortens
the longest server by more than `hysteresis`, every switch and move paid for. A response that goes
to another server takes its KV along, or its context is computed again there, whichever is done
sooner. Where a network is asked (`negotiation`), what is moved, what is computed again and what
stays is decided on its answers.

In the trace each round of a plan is a phase of its own, migration-1, migration-2, ...: its KV is a
demand with a window, so the fabric's circuits are chosen for it as for any phase, and nothing that
was moved computes before it has arrived. The balancer's moves are phase `balancing`. A cut stays
within a server, where weights and KV change hands over NVLink: no fabric carries that. Every step
begins with the same cut, so that weight sync knows its replicas; a server cut otherwise at the end
of a step goes back first.

Single-turn responses; pipelines sync, one-step-off and bounded-staleness. Where the paper is
silent, constants are settings.
"""

from collections import Counter
from collections.abc import Sequence

from ...errors import RFabricError
from ...rl.lowering import trace_of_steps
from ...rl.phases import responses
from ...rl.workload import Workload
from ..base import (
    GENERATION,
    AnsweringNetwork,
    Scheduled,
    Settings,
    refuse_cpu_servers,
    refuse_unlike_replicas,
    settings_of,
)
from ..forecasts import BEFORE, FORESEEING, KNOWN, foreseen
from ..networks import agreed_start, agreed_sync
from .generation import StepOutcome, generate
from .outlook import forecast
from .seats import Seats, Tuning, engines_of, seat_gpus, start_cut, with_replicas_of
from .segments import lasts, lowered, plan_of, rounds, segment_spans

__all__ = ["Tuning", "engines_of", "orchestrate", "schedule", "seat_gpus"]

HISTORY = 4  # steps whose lengths are known before the first, whatever is forecast


def schedule(
    w: Workload, seed: int, settings: Settings, network: AnsweringNetwork | None = None
) -> Scheduled:
    """Replicas replanned while they generate, responses moved (arXiv 2601.01209)."""
    return orchestrate(w, seed, settings_of("orchestrrl", Tuning(), settings), network)


def orchestrate(
    w: Workload, seed: int, tuning: Tuning, network: AnsweringNetwork | None = None
) -> Scheduled:
    """The same with a Tuning; `period_s` inf: no planner, servers stay cut as the recipe says.

    network: who answers what is proposed, moves (`negotiation`), weight sync (`agreed_sync`) and
    when it begins (`agreed_start`).
    """
    _check(w)
    seats = Seats(w, engines_of(w), tuning, network)
    how, foresees = tuning.forecast, tuning.forecast in FORESEEING
    before = range(BEFORE + HISTORY, BEFORE + HISTORY + (KNOWN if foresees else 0))
    history = [responses(w, seed, n)[1] for n in (*range(BEFORE, BEFORE + HISTORY), *before)]
    prompts, outputs = responses(w, seed, 0)
    expected = forecast(history, w.generation.max_response, how)
    first = start_cut(seats, expected, prompts, outputs if how == "oracle" else None)
    earlier = generate(seats, seed, history[:HISTORY], first, before)
    runs = generate(seats, seed, history, first, range(w.steps))
    w = with_replicas_of(w, seats.engines.cuts[first].gpus)
    w, agreed = agreed_sync(w, network) if network else (w, {})
    steps = tuple(run.step for run in runs)
    plan = plan_of(w, steps)
    trace = trace_of_steps(w, steps, plan, seed, {GENERATION: lowered})
    facts = _facts(seats, runs, first) | agreed
    made = Scheduled(w, steps, plan, trace, segment_spans(w, steps, plan), facts)
    made = foreseen(made, [run.step for run in earlier], how, lasts) if foresees else made
    if not network:
        return made
    return agreed_start(made, seed, network, lambda n: rounds(made, n), {GENERATION: lowered})


def _check(w: Workload) -> None:
    g = w.generation
    if w.pipeline == "async":
        raise RFabricError(
            "scheduler orchestrrl plans steps that end; pipeline async has none: use sync, "
            "one-step-off or bounded-staleness"
        )
    if g.turns > 1:
        raise RFabricError(
            "scheduler orchestrrl plans single-turn responses; "
            f"generation.turns is {g.turns}: use 1"
        )
    refuse_unlike_replicas("orchestrrl", w)
    refuse_cpu_servers("orchestrrl", w)
    if g.tp > w.gpus_per_server:
        raise RFabricError(
            f"scheduler orchestrrl cuts servers; generation.tp {g.tp} is wider than one of "
            f"{w.gpus_per_server} GPUs: use {w.gpus_per_server} at most"
        )


def _facts(seats: Seats, runs: Sequence[StepOutcome], first: int) -> dict:
    """What was decided, over all steps."""
    counts = {key: sum(run.counts[key] for run in runs) for key in runs[0].counts}
    kv = sum(m.size for run in runs for s in run.step.generated.segments for m in s.arrivals)
    refusal = next((run.refusal for run in runs if run.refusal), "")
    last = [dict(Counter(str(seats.engines.cuts[c]) for c in sorted(run.cuts))) for run in runs]
    return {
        "first_cut": str(seats.engines.cuts[first]),
        "last_cuts": last,
        "kv_bytes": round(kv),
        **counts,
        **({"refusal": refusal} if refusal else {}),
    }
