"""The verb `circuits`: circuits, their completion times and bounds, stage by stage.

RFabricError for options that do not go together.
"""

import argparse
from pathlib import Path

from ..errors import RFabricError
from ..report.html import drawing
from ..report.planning import StageCircuits, circuits_table, picture, totals
from ..study.asked import prepared
from ..study.planning import stage_circuits
from ..study.run import Case, RunSettings
from ..trace import Traffic
from .asked import asked_of, settings_of
from .terminal import MOST_ROWS, Talk, print_json, show_notes, show_tables

Plans = list[tuple[Case, list[StageCircuits]]]


def circuits(args: argparse.Namespace) -> None:
    """rfabric circuits: which circuits each stage gets."""
    several = max(len(set(args.topo)), 1) * max(len(set(args.policy)), 1)
    if args.png and several > 1:
        raise RFabricError(
            f"--png draws one picture, {several} were asked for; give one --topo and one --policy"
        )
    args.topo = args.topo or ["rfabric"]
    asked, settings = asked_of(args), settings_of(args, "simulate", args.seed)
    with Talk(args.quiet) as talk:
        ready = prepared(asked, settings, talk.tell)
        cases = [Case(f, p) for f in ready.fabrics for p in dict.fromkeys(ready.circuits)]
        plans = [(case, _stages(case, ready.traffic, settings, talk)) for case in cases]
        if args.png:
            _draw(plans, Path(args.png))
    if args.json:
        print_json({
            "traffic": ready.traffic.name, "seed": args.seed, "routing": args.routing,
            "plans": _documents(plans),
        })  # fmt: skip
        return
    tables = [circuits_table(stages, case.fabric) for case, stages in plans]
    for (case, _), table in zip(plans, tables, strict=True):
        print(f"policy {case.policy}, routing {args.routing}")
        show_tables([table], MOST_ROWS)
    show_notes([] if args.quiet else [tables[0].note])
    if args.png:
        print(args.png)


def _stages(case: Case, traffic: Traffic, settings: RunSettings, talk: Talk) -> list[StageCircuits]:
    news = talk.of(f"{case.fabric_name} {case.policy}")
    return stage_circuits(case, traffic, settings, news)


def _documents(plans: Plans) -> list[dict]:
    return [
        {
            "fabric": case.fabric_name, "policy": case.policy, "total": totals(stages),
            "stages": [stage.to_json(case.fabric) for stage in stages],
        }
        for case, stages in plans
    ]  # fmt: skip


def _draw(plans: Plans, path: Path) -> None:
    case, stages = plans[0]
    if not stages:
        raise RFabricError("nothing is sent from rack to rack: no picture to draw")
    drawing().png(picture(stages, case.fabric), path)
