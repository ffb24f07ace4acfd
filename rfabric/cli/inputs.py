"""The verbs around what goes into a run: `trace`, `topo`, `check`, `list`.

RFabricError for options that do not go together.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric, parse_fabric
from ..fabric.cost import bill
from ..fabric.formats import SUFFIXES, is_topology, written
from ..fabric.formats.drawings import graphviz
from ..fabric.shipped import load_topology
from ..files import kind_of, read_json
from ..report.compare import PHASE_NAMES, Row, Table, bill_table, fabric_table, phase_text
from ..report.folder import read_folder, write_text, writing
from ..report.html import drawing
from ..report.summary import check_summary
from ..rl import accounts, explain, read_recipe
from ..rl.account import Account, sources_of
from ..rl.sources import Source
from ..schedulers.traffic import read_traffic
from ..specs import escaped
from ..study.known import known
from ..trace import TRACE_SUFFIXES, Trace, is_trace, read_trace, write_trace
from ..units import show_between, show_size, show_time
from .arguments.parsing import refuse_typed
from .runs import with_format
from .terminal import MOST_ROWS, print_json, show_notes, show_tables

log = logging.getLogger(__name__)

TERMS = (
    "every second: generation is that of the replica that ends last, training that of the slowest "
    "rank in each pass. A network term is what its bytes add to all terms above it; what hides "
    "behind something else adds nothing."
)
LEAST_SHARE = 0.001  # of a phase, that is told from less


def trace(args: argparse.Namespace) -> None:
    """rfabric trace: what a recipe sends."""
    given = bool(args.format) or is_trace(args.traffic)
    if args.explain and given:
        why = "a trace file, which says nothing of what it was made from"
        raise RFabricError(f"--explain: {args.traffic} is {why}; give a recipe")
    traffic = read_traffic(args.traffic, with_format(args), args.seed)
    if args.output:
        with writing(args.output):
            write_trace(traffic.trace, args.output)
    items, phases, sources = [], [], {}
    if not given:
        workload = read_recipe(args.traffic, args.set)
        items = explain(workload, args.seed)
        phases = accounts(workload, args.seed) if args.explain else []
        sources = sources_of(workload, phases)
    groups = [] if args.explain else _groups(traffic.trace)
    if args.json:
        keys = {"phase": str, "item": str, "count": int, "seconds": float, "bytes": int, "why": str}
        entries = [
            {key: kind(getattr(item, key)) for key, kind in keys.items()} | _within(item)
            for item in items
        ]
        head = {"traffic": traffic.name, "seed": args.seed, "rows": len(traffic.trace)}
        print_json(head | {"items": entries, "flows": groups} | _every_second(phases, sources))
        return
    _show_trace(items, groups)
    show_tables([_terms_table(phases, list(sources)), _sources_table(sources)])
    if items and not args.quiet:
        show_notes(filter(None, [_residuals(items), TERMS if phases else ""]))
    if args.output:
        print(args.output)


def _every_second(phases: Sequence[Account], sources: Mapping[str, Source]) -> dict:
    """Phases, terms and sources for machines; empty where none are asked for."""
    if not phases:
        return {}
    terms = [
        {"phase": phase.phase, **asdict(term), "share": term.seconds / phase.seconds}
        for phase in phases
        for term in phase.terms
    ]
    return {
        "phases": [{"phase": phase.phase, "seconds": phase.seconds} for phase in phases],
        "terms": terms,
        "sources": {
            name: {"value": source.value, "basis": source.basis, "text": source.text}
            for name, source in sources.items()
        },
    }


def _terms_table(phases: Sequence[Account], numbered: Sequence[str]) -> Table:
    """Every term of every phase, and the sum that the plan has; sources by their place in
    `numbered`.
    """
    rows = []
    for phase in phases:
        name = PHASE_NAMES[phase.phase]
        for t in phase.terms:
            share, places = t.seconds / phase.seconds, map(numbered.index, t.sources)
            of = " ".join(str(1 + place) for place in places)
            rows.append(Row(name, (t.part, t.term, show_time(t.seconds), _share(share), of)))
        rows.append(Row(name, ("", "in all", show_time(phase.seconds), "100%", "")))
    columns = "phase", "part", "term", "seconds", "share", "sources"
    return Table("Every second, by the term that made it", columns, tuple(rows), words=(0, 1, 2, 5))


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= LEAST_SHARE else f"< {LEAST_SHARE:.1%}"


def _value(value: float | str | None) -> str:
    return value if isinstance(value, str) else "" if value is None else f"{value:g}"


def _sources_table(sources: Mapping[str, Source]) -> Table:
    rows = [
        (str(number), source.name, _value(source.value), source.basis, source.text)
        for number, source in enumerate(sources.values(), 1)
    ]
    columns = "", "number", "value", "basis", "source"
    return Table.of("Where their numbers are from", columns, rows, words=(0, 1, 3, 4))


def _within(item) -> dict:
    """Where eight measurements in ten would be, s, and by which residuals; empty where none
    speak.
    """
    if item.within is None:
        return {}
    (low, high), of = item.within, item.residuals
    said = {"residuals": f"{of.kind}, {of.basis}", "of": of.rows} if of else {}
    return {"low_s": low, "high_s": high, **said}


def _interval(item) -> str:
    return show_between(*item.within) if item.within else ""


def _residuals(items: Sequence) -> str:
    """Which residuals stand behind the intervals of a table."""
    used = dict.fromkeys(item.residuals for item in items if item.residuals)
    if not used:
        return ""
    words = ", ".join(f"{of.kind} ({of.basis}, {of.rows:,} rows)" for of in used)
    return (
        f"80 % within: where eight measurements in ten lie around this model, for {words}. "
        "Communication: the least that its bytes take at NIC rate; measured ones took longer. "
        "Step: all phases low, or all high."
    )


def _groups(sent: Trace) -> list[dict]:
    """Flows and bytes of each communication phase."""
    return [
        {
            "step": step,
            "phase": phase,
            "label": label,
            "flows": len(rows),
            "bytes": int(sent.total[rows].sum()),
        }
        for (step, phase, label), rows in sent.communication().items()
    ]


def _show_trace(items: Sequence, groups: Sequence[dict]) -> None:

    rows = [
        (
            PHASE_NAMES.get(i.phase, i.phase),
            i.item,
            f"{i.count:,}" if i.count else "",
            show_time(i.seconds) if i.seconds else "",
            _interval(i),
            show_size(i.bytes) if i.bytes else "",
            i.why,
        )
        for i in items
    ]
    columns = "phase", "item", "count", "seconds", "80 % within", "bytes", "why"
    sent = [
        (
            phase_text(f"{g['phase']}/{g['step']}"),
            g["label"],
            f"{g['flows']:,}",
            show_size(g["bytes"]),
        )
        for g in groups
    ]
    title = "Where seconds and bytes come from"
    tables = [Table.of(title, columns, rows, words=(0, 1, 6))]
    if sent:
        tables.append(
            Table.of(
                "What enters the fabric", ("phase", "label", "flows", "bytes"), sent, words=(0, 1)
            )
        )
    show_tables(tables, MOST_ROWS)


def topo(args: argparse.Namespace) -> None:
    """rfabric topo: what a fabric is made of."""
    if not args.output:
        refuse_typed(args, ["--write-as"], "is the format of a file: name it with --output")
    if args.json:
        refuse_typed(args, ["--dot"], "and --json are two forms of one answer: give one")
    fabric = parse_fabric(args.fabric + (f",format={args.format}" if args.format else ""))
    if args.output:
        write_text(Path(args.output), written(fabric, args.output, args.write_as))
    if args.png:
        _draw(fabric, Path(args.png))
    if args.json:
        print_json(fabric.to_json())
    elif args.dot:
        print(graphviz(fabric), end="")
    else:
        _show_fabric(fabric)
        for made in filter(None, (args.png, args.output)):
            print(made)


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


def check(args: argparse.Namespace) -> int:
    """One line a file; 2 when any is bad."""
    checked = [_verdict(name) for name in args.files]
    if args.json:
        print_json({"files": checked})
    else:
        for entry in checked:
            print(f"{entry['file']}: {'OK, ' if entry['ok'] else 'bad: '}{entry['detail']}")
    return 0 if all(entry["ok"] for entry in checked) else 2


def _verdict(name: str) -> dict:
    try:
        return {"file": name, "ok": True, "detail": _check_one(Path(name))}
    except RFabricError as error:
        return {"file": name, "ok": False, "detail": str(error)}


def _check_one(path: Path) -> str:
    """What the file is, if it is sound."""
    if path.is_dir() and is_trace(path):
        return _trace_file(path)
    if path.is_dir() and is_topology(path):
        return _network(path)
    if path.is_dir():
        return f"run folder of {len(read_folder(path)[0])} runs"
    if not path.is_file():
        raise RFabricError("there is no such file")
    kinds = dict.fromkeys(TRACE_SUFFIXES, _trace_file)
    kinds |= dict.fromkeys(set(SUFFIXES) - set(kinds), _network)
    kinds |= {".yaml": _recipe, ".yml": _recipe, ".json": _json_file, ".py": _topology}
    kind = kind_of(path)
    if kind != ".py" and is_topology(path):
        return _network(path)
    if kind not in (".yaml", ".yml", ".py") and is_trace(path):
        return _trace_file(path)
    if kind not in kinds:
        raise RFabricError(f"unknown suffix {kind!r}; known are {', '.join(kinds)}")
    return kinds[kind](path)


def _recipe(path: Path) -> str:
    workload = read_recipe(str(path))
    return f"recipe for {workload.gpus} GPUs"


def _trace_file(path: Path) -> str:
    rows = read_trace(path)
    return f"trace of {len(rows)} rows among {len(rows.hosts)} hosts"


def _network(path: Path) -> str:
    return _described(parse_fabric(escaped(path)))


def _topology(path: Path) -> str:
    built = {name: build() for name, build in load_topology(path).items()}
    return "topology: " + ", ".join(
        f"{n} ({len(f.hosts)} GPUs, {len(f.switches)} switches)" for n, f in built.items()
    )


def _json_file(path: Path) -> str:
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise RFabricError(f"no valid JSON: {error}") from error
    if isinstance(data, dict) and "runs" in data:
        return f"summary of {len(check_summary(data, path.name)['runs'])} runs"
    if isinstance(data, dict) and "nodes" in data:
        return _described(Fabric.from_json(data))
    raise RFabricError("neither a fabric (nodes, links) nor a summary (runs)")


def _described(fabric: Fabric) -> str:
    return f"fabric {fabric.name} of {len(fabric.hosts)} GPUs and {len(fabric.switches)} switches"


def list_(args: argparse.Namespace) -> None:
    """Everything of one kind, or of all, a line each."""
    kinds = known([args.kind] if args.kind else ())
    if args.json:
        print_json(kinds)
        return
    show_tables(
        Table(
            kind, ("", ""), tuple(Row(name, (what,)) for name, what in names.items()), words=(0, 1)
        )
        for kind, names in kinds.items()
    )
