"""The verbs around this machine: `doctor`, `selftest`, `drill`, `control`, `clean`, `bench`.

RFabricError for what is not there.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RFabricError
from ..report.compare import Row, Table
from ..report.folder import sweep, writing
from ..units import parse_time, show_size
from .terminal import Talk, print_json, show_notes, show_tables

if TYPE_CHECKING:
    from ..control.client import Client


def doctor(args: argparse.Namespace) -> None:
    """What the host is, and where emulation is possible how many packet-hops a second it moves."""
    from ..emulate.calibrate import probe_host
    from ..emulate.world import calibrate

    facts = asdict(probe_host()) | {"packet_hops_per_s": None, "cannot_emulate": ""}
    facts |= {"defaults_of": args.defaults}
    try:
        with Talk(args.quiet) as talk:
            facts["packet_hops_per_s"] = calibrate(progress=talk.of("calibrate"), out=args.out)
    except RFabricError as error:
        facts["cannot_emulate"] = str(error)
    if args.json:
        print_json(facts)
    else:
        rows = [
            Row(key.removesuffix("_bytes").replace("_", " "), (_fact(key, value),))
            for key, value in facts.items()
        ]
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
    return (
        "–" if value in (None, "") else f"{value:,.0f}" if isinstance(value, float) else str(value)
    )


def selftest(args: argparse.Namespace) -> int:
    """Patterns of known seconds with real packets; 1 where a bound is broken."""
    from ..emulate.sandbox import require
    from ..study import selftest as tests

    tests.fabrics(args.hosts)
    tests.parts(args.only)
    require()
    with Talk(args.quiet) as talk:
        patience = args.patience or 0.0
        measured = tests.selftest(args.hosts, args.only, args.out, talk.tell, patience)
    faults = tests.faults(measured)
    if args.json:
        rows = [m.to_json() for m in measured]
        print_json({"selftest": rows, "errors": tests.summary(measured), "faults": faults})
    else:
        show_tables([tests.table(measured)])
        print(tests.in_words(measured))
        show_notes(faults)
    return 1 if faults else 0


def agent(_args: argparse.Namespace) -> int:
    """rfabric agent: a machine's part of an emulation, led through stdin and stdout."""
    from ..emulate.machines.serve import serve

    return serve()


def drill(args: argparse.Namespace) -> int:
    """Faults against a live emulation, or a soak; 1 where a promise is broken, or something
    grows.
    """
    from ..emulate.sandbox import require
    from ..study import drill as drills

    drills.fabric(args.hosts)
    drills.faults(args.only)
    require()
    return _soak(args) if args.soak else _drill(args)


def _drill(args: argparse.Namespace) -> int:
    from ..study import drill as drills

    with Talk(args.quiet) as talk:
        drilled = drills.drill(args.hosts, args.only, args.out, talk.tell)
    if args.json:
        print_json({"drills": [one.to_json() for one in drilled]})
    else:
        show_tables([drills.table(drilled)])
    return 1 if any(one.broken for one in drilled) else 0


def _soak(args: argparse.Namespace) -> int:
    from ..study import drill as drills

    if args.only:
        raise RFabricError("--only names faults, and a soak has none; leave out one of the two")
    with Talk(args.quiet) as talk:
        soaked = drills.soak(args.hosts, args.soak, args.out, talk.tell)
    grown = soaked.grown()
    if args.json:
        print_json(soaked.to_json() | {"grown": [asdict(one) | {"ok": one.ok} for one in grown]})
    else:
        show_tables([drills.growth(grown)])
        print(
            f"{soaked.rewires[-1]} rewires, {soaked.rolled_back} of them rolled back before, "
            f"{soaked.packets_lost} of {soaked.packets_sent} packets lost"
        )
    return 0 if all(one.ok for one in grown) else 1


def shell(args: argparse.Namespace) -> int:
    """rfabric shell: a prompt on a fabric that is up."""
    from .prompt import prompt

    return prompt(args)


def control(args: argparse.Namespace) -> None:
    """rfabric control: the controller of a fabric."""
    from ..control.launch import ENVIRONMENT, run

    settings = {name: getattr(args, name) for name in ENVIRONMENT}
    settings["live"] = "" if args.live is None else _followed(args.live, args.command)
    run(args.app, args.ofp_port, args.ofp_host, **settings)


def _followed(port: int, command: str) -> str:
    """The pipe to a live page of the controller that comes; its address goes to stderr."""
    from ..report.controller import begin

    address, pipe = begin(port, command)
    print(f"rfabric: live, until the controller ends: {address}", file=sys.stderr, flush=True)
    return str(pipe)


def ocs(args: argparse.Namespace) -> None:
    """rfabric ocs: show the cross-connects of a running controller's OCS, make or remove some."""
    from ..control.client import Client, token_of

    client = Client(args.url, token=token_of(args.tokens), ca=args.ca)
    if args.order == "gnmi":
        _serve_gnmi(client, args)
        return
    if args.order != "show" and not (args.ocs and args.connects):
        raise RFabricError(f"ocs {args.order}: name the OCS and cross-connects: a1 1A-2B 2A-1B")
    if args.order == "show":
        names = [args.ocs] if args.ocs else [one["name"] for one in client.get("/ocs")["ocs"]]
        answer = {name: client.optical_ports(name) for name in names}
    else:
        answer = client.cross_connect(args.order, args.ocs, args.connects)
    if args.json:
        print_json(answer)
    elif args.order == "show":
        show_tables([_ports_table(name, ports) for name, ports in answer.items()])
    else:
        print(f"{args.ocs}: {answer['result']}, epoch {answer['epoch']}, "
              f"{answer['circuits_changed']} circuits changed; now "
              f"{', '.join(answer['cross_connects']) or 'nothing is connected'}")  # fmt: skip


def _serve_gnmi(client: "Client", args: argparse.Namespace) -> None:
    try:
        from ..control.gnmi import serve
    except ImportError as error:
        raise RFabricError(f"gNMI needs {error.name}; install rfabric[gnmi]") from error
    if args.ocs:
        raise RFabricError(f"ocs gnmi serves every OCS; leave out {args.ocs!r}")
    client.health()  # that it is there
    server, port = serve(client, args.listen, args.tls)
    where = f"{args.listen.rpartition(':')[0]}:{port}"
    print_json({"gnmi": where, "controller": client.url}) if args.json else print(
        f"gNMI on {where}, for the controller at {client.url}; Ctrl-C ends it", flush=True
    )
    server.wait_for_termination()


def _ports_table(ocs: str, ports: list[dict]) -> Table:
    rows = [
        (port["simplex_port_id"], port["status"], port["target_simplex_port_id"] or "–")
        for port in ports
    ]
    return Table.of(f"OCS {ocs}", ("port", "status", "joined to"), rows, words=(0, 1, 2))


def clean(args: argparse.Namespace) -> None:
    """rfabric clean: remove what broken runs left."""
    from ..emulate.world import sweep as end_emulations

    cleaned = end_emulations(args.out, args.run_id)
    if args.run_id and not cleaned:
        raise RFabricError(
            f"no run {args.run_id!r} in {args.out}; name its folder's parent with --out"
        )
    cleaned += [path.name for path in sweep(args.out)] if not args.run_id else []
    if args.json:
        print_json({"cleaned": cleaned})
    elif not args.quiet:
        print(f"cleaned: {', '.join(cleaned)}" if cleaned else "nothing to clean")


def bench(args: argparse.Namespace) -> None:
    """CPU time of flow engine, planning and whole runs on their benchmarks, beside SimGrid and
    networkx where these are installed.
    """
    from ..simulate import bench as measured
    from ..study import curve
    from ..study import planning_bench as planned

    patience = parse_time(args.patience, "--patience")
    wanted = args.case or [*planned.CASES, *measured.CASES, curve.PREFIX]
    plans = [case for case in wanted if case.startswith("planning-")]
    sizes = curve.sizes_of(filter(curve.is_case, wanted), args.up_to)
    engine = [case for case in wanted if case not in plans and not curve.is_case(case)]
    with Talk(args.quiet) as talk:
        count = len(plans) + len(engine) + len(sizes)
        planning = planned.measure(plans, peer=patience > 0, progress=_counted(talk, count, 0))
        rows = measured.measure(
            engine, peer_patience_s=patience, progress=_counted(talk, count, len(plans))
        )
        points = curve.measure(sizes, _counted(talk, count, count - len(sizes)))
    folder = Path(args.out)
    with writing(args.out):
        measured.write(rows, folder, args.command, curve.tables(points))
        if points:
            curve.write(points, folder)
    if args.json:
        document = {"bench": list(map(asdict, rows)), "planning": planned.to_json(planning)}
        grown = {"curve": [point.to_json() for point in points]}
        print_json({"machine": measured.machine()} | document | grown)
        return
    tables = [*measured.tables(rows), planned.table(planning), *curve.tables(points)]
    show_tables(tables)
    show_notes(table.note for table in tables if table.rows and table.note and not args.quiet)
    print(folder / "engine.md")


def _counted(talk: Talk, count: int, before: int) -> Callable[[str], None]:
    """Tells which case is under way, and how many of all are done: `before`, and those that it was
    called for (a case may be told of several times, as `CASE, DETAIL`).
    """
    begun: list[str] = []

    def tell(text: str) -> None:
        case = text.partition(",")[0]
        if case not in begun:
            begun.append(case)
        done = before + len(begun) - 1
        talk.tell("bench", {"stage": text, "done": done, "of": count})

    return tell
