"""The verb `timeline`: what a compute scheduler makes of a job."""

import argparse
from functools import partial
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Needs
from ..report.compare import Row, Table, phase_text
from ..report.html import drawing
from ..report.timeline import Timeline, timeline_of_trace, write_perfetto, write_png
from ..rl import Workload, read_recipe
from ..schedulers.base import Scheduled
from ..schedulers.table import (
    DEFAULT_CIRCUITS,
    Policies,
    asked_network,
    parse_policies,
    scheduled,
    usual_traffic,
)
from ..schedulers.traffic import read_traffic
from ..schedulers.weave import ClusterBill, read_jobs
from ..schedulers.weave import run as run_jobs
from ..schedulers.weave.recipe_jobs import read_recipe_jobs, run_on_fabric
from ..schedulers.weave.traffic import is_shared
from ..study.asked import scheduled_on
from ..trace import is_trace
from ..units import SECONDS_PER_HOUR, show_size, show_time
from .arguments.parsing import refuse_typed
from .terminal import Talk, print_json, show_tables


def timeline(args: argparse.Namespace) -> None:
    """rfabric timeline: what each GPU computes over time."""
    asked = parse_policies(args.policy).scheduler if args.policy else ""
    if args.jobs:
        refuse_typed(args, ["--traffic"], "and --jobs are two things to schedule: give one")
    args.traffic = args.traffic or usual_traffic([asked], args.usual)
    with Talk(args.quiet) as talk:
        talk.tell(args.jobs or args.traffic, {"stage": "schedule"})
        document, drawn, tables = _asked(args, asked)
        if drawn and args.perfetto:
            write_perfetto(Path(args.perfetto), drawn)
        if drawn and args.png:
            talk.tell(args.png, {"stage": "draw"})
            drawing()  # says what is missing, where something is
            write_png(Path(args.png), drawn)
    if args.json:
        print_json(document)
        return
    show_tables(tables)
    for name in filter(None, (args.png, args.perfetto)):
        print(name)


def _asked(args: argparse.Namespace, asked: str) -> tuple[dict, Timeline | None, list[Table]]:
    """The document, the chart and the tables of what was asked for: jobs that arrive, jobs that
    share nodes, or one job.
    """
    if args.policy and (not asked or "+" in args.policy):
        raise RFabricError(
            f"timeline shows computing only: --policy {args.policy} must name a "
            "compute scheduler alone"
        )
    if args.jobs:
        return _arriving(args, asked or "weave")
    if args.topo and not asked_network(asked):
        raise RFabricError(
            f"--topo {args.topo}: computing is drawn without a fabric, unless the scheduler asks "
            "one: --policy orchestrrl,network=fabric"
        )
    if is_trace(args.traffic):
        raise RFabricError(f"{args.traffic} is a trace file, whose schedule is made; name a recipe")
    if is_shared(args.traffic):
        traffic = read_traffic(args.traffic, args.set, args.seed, asked)
        facts = traffic.trace.provenance
        drawn = timeline_of_trace(
            f"{traffic.name}, {facts['scheduler']}", traffic.trace, facts["gpus_per_server"]
        )
        head = {
            "traffic": traffic.name,
            "policy": facts["scheduler"],
            "seed": args.seed,
            "gpus": traffic.gpus,
        }
        return head | _times(drawn), drawn, [_pools(drawn, None)]
    w = read_recipe(args.traffic, args.set)
    made = _scheduled(w, args.topo, args.seed, asked)
    drawn = Timeline(
        f"{w.name}, {asked or 'as the recipe says'}",
        made.pools,
        made.spans,
        made.seconds,
        made.workload.steps,
    )
    return (
        _document(args, asked, made, drawn),
        drawn,
        [_phases(made), _pools(drawn, made.workload.usd_per_hour), _facts(made)],
    )


def _scheduled(w: Workload, topo: str, seed: int, scheduler: str) -> Scheduled:
    """The job, agreed with the fabric that is named."""
    if not topo:
        return scheduled(w, seed, scheduler)
    asks = Policies(scheduler, DEFAULT_CIRCUITS)
    return scheduled_on(w, seed, asks, partial(Needs.fabric, spec=topo))


def _arriving(args: argparse.Namespace, policy: str) -> tuple[dict, None, list[Table]]:
    """Days of jobs: what a policy for several jobs makes of them, on a fabric or without one."""
    if args.png or args.perfetto:
        raise RFabricError(
            "--jobs says what days of jobs cost; --png and --perfetto draw a recipe or a file "
            "of jobs: --traffic"
        )
    if args.topo:
        jobs, workloads = read_recipe_jobs(args.jobs, args.set)
        bill = run_on_fabric(jobs, workloads, args.topo, policy, args.seed)
    elif args.set:
        raise RFabricError(
            "--set changes a recipe, and --jobs reads recipes only with --topo FABRIC"
        )
    else:
        bill = run_jobs(read_jobs(args.jobs), policy, seed=args.seed)
    document = {
        "jobs": len(bill.stays),
        "fabric": args.topo or None,
        "policy": policy,
        "seed": args.seed,
        "hours": bill.hours,
        "usd": bill.dollars,
        "usd_per_hour": bill.dollars_per_hour,
        "slo_share": bill.attained,
        "rollout_idle_share": bill.idle("roll"),
        "training_idle_share": bill.idle("train"),
        "peak_rollout_nodes": bill.peak_roll,
        "peak_training_nodes": bill.peak_train,
        "placed": bill.kinds,
    }
    return document, None, [_bill(policy, bill)]


def _bill(policy: str, bill: ClusterBill) -> Table:
    rows = (
        ("jobs", f"{len(bill.stays):,}"),
        ("hours", f"{bill.hours:,.1f}"),
        ("cost", f"{bill.dollars:,.0f} USD"),
        ("an hour", f"{bill.dollars_per_hour:,.2f} USD"),
        ("within their SLO", f"{bill.attained:.1%}"),
        ("rollout nodes idle", f"{bill.idle('roll'):.1%}"),
        ("training nodes idle", f"{bill.idle('train'):.1%}"),
        ("nodes at the peak", f"{bill.peak_roll} + {bill.peak_train}"),
    )
    return Table(f"Jobs under {policy}", ("", ""), tuple(Row(name, (text,)) for name, text in rows))


def _document(args: argparse.Namespace, policy: str, made: Scheduled, drawn: Timeline) -> dict:
    """What `--json` says of one job: GPU time alone, on a network without delay."""
    hourly = made.workload.usd_per_hour
    head = {
        "traffic": made.workload.name,
        "policy": policy,
        "seed": args.seed,
        "gpus": made.workload.gpus,
    }
    paid = {"usd_per_hour": hourly, "usd_per_step": _per_step(drawn, hourly)}
    phases = [
        {
            "phase": p.kind,
            "step": p.step,
            "start_s": p.start,
            "seconds": p.seconds,
            "window_s": p.window,
            "gpus": len(p.gpus),
        }
        for p in made.plan.phases
    ]
    spans = [
        {
            "pool": s.pool,
            "first_gpu": s.gpus[0],
            "gpus": len(s.gpus),
            "start_s": s.start,
            "seconds": s.seconds,
            "what": s.what,
            "step": s.step,
        }
        for s in drawn.spans
    ]
    return head | _times(drawn) | paid | {"facts": made.facts, "phases": phases, "spans": spans}


def _times(drawn: Timeline) -> dict:
    pools = {
        pool: {"gpus": len(gpus), "idle_share": drawn.idle(pool)}
        for pool, gpus in drawn.pools.items()
    }
    return {
        "steps": drawn.steps,
        "seconds": drawn.seconds,
        "step_s": drawn.seconds / drawn.steps,
        "pools": pools,
    }


def _per_step(drawn: Timeline, hourly: float | None) -> float | None:
    return None if hourly is None else hourly * drawn.seconds / drawn.steps / SECONDS_PER_HOUR


def _phases(made: Scheduled) -> Table:
    rows = [
        (
            phase_text(f"{p.kind}/{p.step}"),
            *map(show_time, (p.start, p.seconds, p.window)),
            f"{len(p.gpus)}",
        )
        for p in sorted(made.plan.phases, key=lambda p: (p.start, p.step))
    ]
    note = (
        "Window: how long the phase is predicted to keep its demand, for the fabric's controller."
    )
    return Table.of(
        "Phases, computing alone", ("phase", "start", "seconds", "window", "GPUs"), rows, note
    )


def _pools(drawn: Timeline, hourly: float | None) -> Table:
    """Bubbles by pool, and what a step costs."""
    rows = [
        Row(
            pool,
            (
                f"{len(gpus):,}",
                show_time(drawn.seconds / drawn.steps),
                f"{drawn.idle(pool):.1%}",
                "",
            ),
        )
        for pool, gpus in drawn.pools.items()
    ]
    cost = "–" if hourly is None else f"{_per_step(drawn, hourly):,.2f} USD"
    gpus = f"{len({g for gpus in drawn.pools.values() for g in gpus}):,}"
    rows.append(Row("all", (gpus, show_time(drawn.seconds / drawn.steps), "", cost)))
    return Table(drawn.name, ("pool", "GPUs", "a step", "idle", "GPUs cost a step"), tuple(rows))


def _facts(made: Scheduled) -> Table:
    rows = [_fact_row(key, value) for key, value in made.facts.items()]
    return Table("What the scheduler decided", ("", ""), tuple(rows), words=(0, 1))


def _fact_row(key: str, value: object) -> Row:
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return Row(key.removesuffix("_bytes").replace("_", " "), (show_size(value),))
    return Row(key.replace("_", " "), (_fact(value),))


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(part, (list, tuple)) for part in value)
        return ("; " if nested else ", ").join(map(_fact, value))
    if value is None or isinstance(value, (bool, str)):
        return "–" if value is None else str(value)
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
