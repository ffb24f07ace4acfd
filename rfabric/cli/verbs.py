"""What each verb does: functions of the parsed arguments that return an exit code."""

import argparse
import gc
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import RFabricError
from ..fabric import Fabric, Needs, parse_fabric
from ..fabric.cost import bill
from ..fabric.imported import is_network
from ..fabric.match import equal_cost_fat_tree
from ..fabric.shipped import load_topology
from ..optics import Timing, parse_policy
from ..report.compare import PHASE_NAMES, Row, Table, at_size, bill_table, fabric_table, phase_text
from ..report.folder import new_folder, read_folder, sweep, write_folder, writing
from ..report.result import Scale
from ..report.summary import Run, check_summary, summary_of
from ..routing.schemes import one_way
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, parse_policies
from ..schedulers.traffic import read_traffic
from ..trace import TRACE_SUFFIXES, Trace, Traffic, read_trace, write_trace
from ..units import parse_time, show_rate, show_size, show_time
from .terminal import Talk, drawing, show_notes, show_runs, show_tables

log = logging.getLogger(__name__)

# --- runs ------------------------------------------------------------------------------------------------------------


def emulate(args: argparse.Namespace) -> None:
    _run(args, "emulate")


def simulate(args: argparse.Namespace) -> None:
    _run(args, "simulate")


def replay(args: argparse.Namespace) -> None:
    args.set = []
    if Path(args.traffic).suffix not in TRACE_SUFFIXES:
        raise RFabricError(
            f"{args.traffic} is no trace file ({', '.join(TRACE_SUFFIXES)}); for a recipe say simulate or emulate"
        )
    _run(args, args.engine)


def _run(args: argparse.Namespace, engine: str) -> None:
    if engine == "emulate":
        from ..emulate.sandbox import require

        one_way(args.routing)
        require()
    with Talk(args.quiet) as talk, _uncollected(engine == "simulate"):
        talk.tell(args.traffic, {"stage": "trace"})
        asked = [parse_policies(text) for text in dict.fromkeys(args.policy)] or [parse_policies(DEFAULT_CIRCUITS)]
        traffic = read_traffic(args.traffic, args.set, args.seed, one_scheduler(asked))
        talk.tell(args.traffic, {"stage": "fabric"})
        fabrics = _fabrics(args.topo, traffic)
        for fabric in fabrics:
            traffic.trace.fit(fabric)
        sweep(args.out)
        with new_folder(args.out) as folder:
            runs = _results(args, engine, fabrics, traffic, [policy.circuits for policy in asked], talk)
            talk.tell("report", {"stage": "write"})
            summary = summary_of(runs, args.command, folder.created)
            write_folder(folder.path, runs, summary, traffic.inputs)
            talk.tell("report", {"stage": "draw"})
            page = write_page(folder.path, runs, summary)
        larger = _larger(args, fabrics, talk) if engine == "emulate" and _is_default(args) else []
    if args.json:
        print_json(summary | {"folder": str(folder.final)} | ({"larger": larger} if larger else {}))
    else:
        show_runs(runs, summary, args.quiet)
        if larger:
            show_tables([at_size(larger)])
        print(folder.final / "report.html" if page else folder.final)


def one_scheduler(asked: Sequence[Policies]) -> str:
    """The compute scheduler of a run: its folder holds one trace."""
    found = list(dict.fromkeys(policy.scheduler for policy in asked))
    if len(found) > 1:
        names = " and ".join(name or "the recipe's own" for name in found)
        raise RFabricError(
            f"one run has one compute scheduler, not {names}; `rfabric compare` puts several side by side"
        )
    return found[0]


@contextmanager
def _uncollected(wanted: bool) -> Iterator[None]:
    """No search for cycles among what is made inside: a large fabric is millions of objects, and all of them stay."""
    before = gc.isenabled()
    if wanted:
        gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _results(
    args: argparse.Namespace, engine: str, fabrics: Sequence[Fabric], traffic: Traffic, policies: Sequence[str], talk
) -> list:
    """The runs of every fabric under every circuit policy; those of the emulator with their distance from the simulator."""
    from ..simulate.world import simulate

    cases = [(f, p) for f in fabrics for p in (policies if f.ocses else policies[:1])]
    for fabric, policy in cases:
        _follow(engine, policy, fabric)
    about = {
        "timing": Timing(in_flight=args.in_flight),
        "traffic": traffic.name,
        "seed": args.seed,
        "routing": args.routing,
    }
    played = "whole" if engine == "emulate" else args.repetitions
    simulated = [
        simulate(f, traffic.trace, p, repetitions=played, progress=talk.of(f"simulate {_short(f)}"), **about)
        for f, p in cases
    ]
    if engine == "simulate":
        return [Run(result) for result in simulated]

    from ..study.both import emulated

    about = {"timing": about["timing"], "scale": choose(args, simulated, talk), "out": args.out}
    return [emulated(r, traffic.trace, progress=talk.of(_short(r.fabric)), **about) for r in simulated]


def _follow(engine: str, policy: str, fabric: Fabric) -> None:
    """RFabricError where a policy is none, or not one that can be emulated, before anything is simulated."""
    parse_policy(policy, fabric)
    if engine == "emulate":
        from ..emulate.world import emulatable

        emulatable(fabric, policy)


def choose(args: argparse.Namespace, simulated: Sequence, talk) -> Scale:
    """The scale that was asked for, or what the calibrated host can carry; what is left open fills in from the rest."""
    from ..emulate.scale import choose_sample, choose_scale
    from ..emulate.world import calibrate

    sample = args.sample or choose_sample(simulated)
    if args.bandwidth_scale and args.time_dilation:
        return Scale(args.bandwidth_scale, args.time_dilation, sample)
    chosen = choose_scale(simulated, calibrate(progress=talk.of("calibrate"), out=args.out), sample=sample)
    if args.time_dilation:  # the same shaped rates
        return replace(
            chosen, bandwidth=chosen.bandwidth * args.time_dilation / chosen.dilation, dilation=args.time_dilation
        )
    return replace(chosen, bandwidth=args.bandwidth_scale) if args.bandwidth_scale else chosen


def _fabrics(specs: Sequence[str], traffic: Traffic) -> list[Fabric]:
    """The fabrics that were asked for, or the default ones."""
    return [traffic.needs.fabric(spec) for spec in dict.fromkeys(specs) or default_fabrics(traffic.needs)]


def default_fabrics(needs: Needs) -> tuple[str, ...]:
    """Fat-Tree, a Fat-Tree of about rfabric's cost, leaf-spine, and rfabric."""
    return "fat-tree", equal_cost_fat_tree(needs.fabric("rfabric"))[0].spec, "leaf-spine", "rfabric"


def _is_default(args: argparse.Namespace) -> bool:
    """Whether a run is the default job on the default fabrics."""
    return args.traffic == args.usual and not (args.topo or args.policy or args.set)


LARGER = ("grpo-1024-235b", "grpo-4096-235b")  # what the default job stands for: beyond packets, so simulated


def _larger(args: argparse.Namespace, fabrics: Sequence[Fabric], talk: Talk) -> list[dict]:
    """The same fabrics at the sizes of LARGER, simulated: one entry a recipe and fabric, cost included."""
    from ..study.grid import Grid, entries_of, run

    grid = Grid(tuple(map(_short, fabrics)), (DEFAULT_CIRCUITS,), LARGER, (args.seed,))
    with TemporaryDirectory() as folder:
        return entries_of(run(grid, Path(folder), progress=lambda news: talk.tell("at size", news)))


def _short(fabric: Fabric) -> str:
    return fabric.spec or fabric.name


def write_page(folder: Path, runs: Sequence, summary: dict) -> bool:
    """report.html, where the libraries that draw it are installed."""
    if not can_draw_page():
        return False
    from ..report.html import write_report

    write_report(folder / "report.html", runs, summary)
    return True


def can_draw_page() -> bool:
    """Whether the libraries that draw a page are installed; a warning names those that are not."""
    missing = [name for name in ("matplotlib", "jinja2") if not find_spec(name)]
    if missing:
        log.warning("no report.html without %s: install rfabric[report]", " and ".join(missing))
    return not missing


# --- traces and fabrics ----------------------------------------------------------------------------------------------


def trace(args: argparse.Namespace) -> None:
    if args.explain and Path(args.traffic).suffix in TRACE_SUFFIXES:
        why = "a trace file, which says nothing of what it was made from"
        raise RFabricError(f"--explain: {args.traffic} is {why}; give a recipe")
    traffic = read_traffic(args.traffic, args.set, args.seed)
    if args.output:
        with writing(args.output):
            write_trace(traffic.trace, args.output)
    items = []
    if Path(args.traffic).suffix not in TRACE_SUFFIXES:
        from ..rl import explain, read_recipe

        items = explain(read_recipe(args.traffic, args.set), args.seed)
    groups = [] if args.explain else _groups(traffic.trace)
    if args.json:
        keys = {"phase": str, "item": str, "count": int, "seconds": float, "bytes": int, "why": str}
        found = [{key: kind(getattr(item, key)) for key, kind in keys.items()} for item in items]
        head = {"traffic": traffic.name, "seed": args.seed, "rows": len(traffic.trace)}
        print_json(head | {"items": found, "flows": groups})
        return
    _show_trace(items, groups)
    if args.output:
        print(args.output)


def _groups(found: Trace) -> list[dict]:
    """Flows and bytes of each communication phase."""
    return [
        {"step": step, "phase": phase, "label": label, "flows": len(rows), "bytes": int(found.total[rows].sum())}
        for (step, phase, label), rows in found.communication().items()
    ]


def _show_trace(items: Sequence, groups: Sequence[dict]) -> None:

    rows = [
        Row(
            PHASE_NAMES.get(i.phase, i.phase),
            (
                i.item,
                f"{i.count:,}" if i.count else "",
                show_time(i.seconds) if i.seconds else "",
                show_size(i.bytes) if i.bytes else "",
                i.why,
            ),
        )
        for i in items
    ]
    columns = "phase", "item", "count", "seconds", "bytes", "why"
    sent = [
        Row(phase_text(f"{g['phase']}/{g['step']}"), (g["label"], f"{g['flows']:,}", show_size(g["bytes"])))
        for g in groups
    ]
    tables = [Table("Where seconds and bytes come from", columns, tuple(rows), words=(0, 1, 5))]
    if sent:
        tables.append(Table("What enters the fabric", ("phase", "label", "flows", "bytes"), tuple(sent), words=(0, 1)))
    show_tables(tables)


def topo(args: argparse.Namespace) -> None:
    fabric = parse_fabric(args.fabric)
    if args.png:
        _draw(fabric, Path(args.png))
    if args.json:
        print_json(fabric.to_json())
    elif args.dot:
        print(_dot(fabric))
    else:
        _show_fabric(fabric)
        if args.png:
            print(args.png)


def _show_fabric(fabric: Fabric) -> None:

    tables = [fabric_table(fabric)]
    try:
        tables.append(bill_table("Cost of the network", bill(fabric)))
    except RFabricError as error:
        log.warning("no cost: %s", error)
    show_tables(tables)


def _draw(fabric: Fabric, path: Path) -> None:
    figures = drawing()
    figures.png(figures.topology(fabric, figures.PRINT), path)


def _dot(fabric: Fabric) -> str:
    """The cables as a Graphviz graph."""

    shapes = {"host": "point", "eps": "box", "ocs": "diamond"}
    lines = [f'graph "{fabric.name}" {{']
    lines += [f"  {n.name} [shape={shapes[n.kind]}];" for n in fabric.nodes]
    lines += [f'  {k.a.node} -- {k.b.node} [tooltip="{k.a} - {k.b}, {show_rate(k.rate)}"];' for k in fabric.links]
    return "\n".join([*lines, "}"])


# --- checks ----------------------------------------------------------------------------------------------------------


def check(args: argparse.Namespace) -> int:
    """One line a file; 2 when any is bad."""
    found = []
    for name in args.files:
        try:
            found.append({"file": name, "ok": True, "detail": _check_one(Path(name))})
        except RFabricError as error:
            found.append({"file": name, "ok": False, "detail": str(error)})
    if args.json:
        print_json({"files": found})
    else:
        for entry in found:
            print(f"{entry['file']}: {'OK, ' if entry['ok'] else 'bad: '}{entry['detail']}")
    return 0 if all(entry["ok"] for entry in found) else 2


def _check_one(path: Path) -> str:
    """What the file is, if it is sound."""
    if path.is_dir():
        return f"run folder of {len(read_folder(path)[0])} runs"
    if not path.is_file():
        raise RFabricError("there is no such file")
    kinds = {".yaml": _recipe, ".yml": _recipe, ".json": _json_file, ".py": _topology}
    kinds |= dict.fromkeys(TRACE_SUFFIXES, _trace_file)
    if path.suffix not in kinds:
        raise RFabricError(f"unknown suffix {path.suffix!r}; known are {', '.join(kinds)}")
    return kinds[path.suffix](path)


def _recipe(path: Path) -> str:
    from ..rl import read_recipe

    workload = read_recipe(str(path))
    return f"recipe for {workload.gpus} GPUs"


def _trace_file(path: Path) -> str:
    if path.suffix == ".csv" and is_network(str(path)):
        return _described(parse_fabric(str(path)))
    found = read_trace(path)
    return f"trace of {len(found)} rows among {len(found.hosts)} hosts"


def _topology(path: Path) -> str:

    built = {name: build() for name, build in load_topology(path).items()}
    return "topology: " + ", ".join(f"{n} ({len(f.hosts)} GPUs, {len(f.switches)} switches)" for n, f in built.items())


def _json_file(path: Path) -> str:

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RFabricError(f"no valid JSON: {error}") from error
    if isinstance(data, dict) and "runs" in data:
        return f"summary of {len(check_summary(data, path.name)['runs'])} runs"
    if isinstance(data, dict) and "nodes" in data:
        return _described(Fabric.from_json(data))
    raise RFabricError("neither a fabric (nodes, links) nor a summary (runs)")


def _described(fabric: Fabric) -> str:
    return f"fabric {fabric.name} of {len(fabric.hosts)} GPUs and {len(fabric.switches)} switches"


# --- the host --------------------------------------------------------------------------------------------------------


def doctor(args: argparse.Namespace) -> None:
    """What the host is, and where emulation is possible how many packet-hops a second it moves."""
    from ..emulate.calibrate import probe_host
    from ..emulate.world import calibrate

    facts = asdict(probe_host()) | {"packet_hops_per_s": None, "cannot_emulate": ""}
    try:
        with Talk(args.quiet) as talk:
            facts["packet_hops_per_s"] = calibrate(progress=talk.of("calibrate"), out=args.out)
    except RFabricError as error:
        facts["cannot_emulate"] = str(error)
    if args.json:
        print_json(facts)
    else:
        rows = [Row(key.removesuffix("_bytes").replace("_", " "), (_fact(key, value),)) for key, value in facts.items()]
        show_tables([Table("This host", ("", ""), tuple(rows), words=(0, 1))])


def _fact(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text or 'missing'}" for key, text in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if name.endswith("_bytes"):
        return show_size(value)
    return "–" if value in (None, "") else f"{value:,.0f}" if isinstance(value, float) else str(value)


def control(args: argparse.Namespace) -> None:
    from ..control.launch import run

    run(args.topo, args.host, args.port, args.sdn, args.ofp_port, args.app)


def clean(args: argparse.Namespace) -> None:
    from ..emulate.world import sweep as end_emulations

    found = end_emulations(args.out, args.run_id)
    if args.run_id and not found:
        raise RFabricError(f"no run {args.run_id!r} in {args.out}; name its folder's parent with --out")
    found += [path.name for path in sweep(args.out)] if not args.run_id else []
    if args.json:
        print_json({"cleaned": found})
    elif not args.quiet:
        print(f"cleaned: {', '.join(found)}" if found else "nothing to clean")


def bench(args: argparse.Namespace) -> None:
    """CPU time of flow engine and planning on their benchmarks, beside SimGrid where that is installed and networkx."""
    from ..simulate import bench as measured
    from ..study import planning_bench as planned

    patience = parse_time(args.patience, "--patience")
    wanted = args.case or [*measured.CASES, *planned.CASES]
    with Talk(args.quiet) as talk:
        tell = partial(_tell_stage, talk)
        plans = planned.measure(
            [case for case in wanted if case.startswith("planning-")], peer=patience > 0, progress=tell
        )
        rest = [case for case in wanted if not case.startswith("planning-")]
        rows = measured.measure(rest, peer_patience_s=patience, progress=tell)
    folder = Path(args.out)
    with writing(args.out):
        measured.write(rows, folder, args.command)
    if args.json:
        rows = [asdict(row) for row in rows]
        print_json({"machine": measured.machine(), "bench": rows, "planning": planned.to_json(plans)})
        return
    found = [*measured.tables(rows), planned.table(plans)]
    show_tables(found)
    show_notes(table.note for table in found if table.note and not args.quiet)
    print(folder / "engine.md")


def _tell_stage(talk: Talk, text: str) -> None:
    talk.tell("bench", {"stage": text})


def print_json(document: dict) -> None:
    print(json.dumps(document, indent=2))
