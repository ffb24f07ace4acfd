"""The verb `circuits`: circuits, their completion times and bounds, stage by stage."""

import argparse
import json
from functools import partial
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Needs
from ..optics import Timing
from ..report.html import drawing
from ..report.planning import circuits_table, picture, totals
from ..schedulers.table import usual_traffic
from ..schedulers.traffic import read_traffic
from ..study.negotiation import one_network
from ..study.planning import stage_circuits
from ..study.run import asked_policies, one_scheduler
from .terminal import Talk, show_notes, show_tables


def circuits(args: argparse.Namespace) -> None:
    """rfabric circuits: which circuits each stage gets."""
    several = max(len(set(args.topo)), 1) * max(len(set(args.policy)), 1)
    if args.png and several > 1:
        raise RFabricError(
            f"--png draws one picture, {several} were asked for; give one --topo and one --policy"
        )
    policies = asked_policies(args.policy)
    args.traffic = args.traffic or usual_traffic((p.scheduler for p in policies), args.usual)
    with Talk(args.quiet) as talk:
        talk.tell(args.traffic, {"stage": "trace"})
        timing, specs = Timing(in_flight=args.in_flight), dict.fromkeys(args.topo or ["rfabric"])
        network = one_network(
            one_scheduler(policies),
            [partial(Needs.fabric, spec=spec) for spec in specs],
            [asked.circuits for asked in policies],
            timing,
        )
        traffic = read_traffic(args.traffic, args.set, args.seed, one_scheduler(policies), network)
        plans = []
        for fabric in map(traffic.needs.fabric, specs):
            traffic.trace.fit(fabric)
            for policy in dict.fromkeys(asked.circuits for asked in policies):
                name = f"{fabric.spec or fabric.name} {policy}"
                stages = stage_circuits(
                    fabric,
                    traffic.trace,
                    policy,
                    routing=args.routing,
                    timing=timing,
                    repetitions=args.repetitions,
                    progress=talk.of(name),
                )
                plans.append((fabric, policy, stages))
        if args.png:
            _draw(plans, Path(args.png))
    if args.json:
        print(
            json.dumps(
                {
                    "traffic": traffic.name,
                    "seed": args.seed,
                    "routing": args.routing,
                    "plans": _documents(plans),
                },
                indent=1,
            )
        )
        return
    tables = [circuits_table(stages, fabric) for fabric, _, stages in plans]
    for (_, policy, _), table in zip(plans, tables, strict=True):
        print(f"policy {policy}, routing {args.routing}")
        show_tables([table])
    show_notes([] if args.quiet else [tables[0].note])
    if args.png:
        print(args.png)


def _documents(plans: list) -> list[dict]:
    return [
        {
            "fabric": fabric.spec or fabric.name, "policy": policy, "total": totals(stages),
            "stages": [stage.to_json(fabric) for stage in stages],
        }
        for fabric, policy, stages in plans
    ]  # fmt: skip


def _draw(plans: list, path: Path) -> None:
    fabric, _, stages = plans[0]
    if not stages:
        raise RFabricError("nothing is sent from rack to rack: no picture to draw")
    drawing().png(picture(stages, fabric), path)
