"""report.html: one page for people that needs nothing else: no network, no script but its own;
light or dark as the system is. What moves in it is in `page/`.
"""

import base64
import hashlib
import logging
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from ..errors import RFabricError
from ..optics import Demand
from ..trace import PhaseKey
from ..units import show_size, show_time
from . import compare
from .folder import write_text
from .money import money
from .page.logged import LoggedRun
from .page.logged import table as logged_table
from .summary import Run, exposed_of, labels

TEMPLATES = Path(__file__).parent
MOVING = TEMPLATES / "page"
MOST_ROWS = 40  # of a table beside a figure
SCRIPTS = "records.js", "lanes.js", "yours.js", "fabric.js", "reading.js", "choices.js", "clock.js"
CELLS = "cells.js", "choices.js"
log = logging.getLogger(__name__)


def drawing() -> ModuleType:
    """The module that draws; RFabricError where what it needs is not installed."""
    try:
        from . import figures
    except ImportError as error:
        library = (error.name or "matplotlib").partition(".")[0]
        raise RFabricError(f"drawing needs {library}; install rfabric[report]") from error
    return figures


def can_draw_page() -> bool:
    """Whether the libraries that draw a page are installed; a warning names those that are not."""
    if missing := _missing():
        log.warning("no report.html without %s: install rfabric[report]", missing)
    return not missing


def must_draw_page() -> None:
    """RFabricError where a library that draws a page is not installed; none is loaded for it."""
    if missing := _missing():
        raise RFabricError(f"drawing needs {missing}; install rfabric[report]")


def _missing() -> str:
    return " and ".join(name for name in ("matplotlib", "jinja2") if not find_spec(name))


def write_page(
    folder: Path, runs: Sequence[Run], summary: dict, prices: Sequence[float] = ()
) -> bool:
    """report.html, where the libraries that draw it are installed."""
    if can_draw_page():
        write_report(folder / "report.html", runs, summary, prices=prices)
        return True
    return False


def write_report(
    path: Path,
    runs: Sequence[Run],
    summary: dict,
    logged: LoggedRun | None = None,
    prices: Sequence[float] = (),
) -> None:
    """Write the page of these runs, and of a logged one beside them, to `path`."""
    write_text(path, page(runs, summary, logged, prices))


def title_of(runs: Iterable[Run]) -> str:
    """What was sent, on which fabrics: `grpo-64 on fat-tree, leaf-spine and rfabric`."""
    results = [run.result for run in runs]
    return f"{_listed(r.traffic or 'trace' for r in results)} on " + _listed(
        r.fabric.name for r in results
    )


def _listed(words: Iterable[str]) -> str:
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} and {last}" if others else last


def page(
    runs: Sequence[Run],
    summary: dict,
    logged: LoggedRun | None = None,
    prices: Sequence[float] = (),
) -> str:
    """The page as text; it tells money at these `prices` of an OCS port (USD), too.
    RFabricError when matplotlib or jinja2 is missing.
    """
    figures = drawing()
    from .page import records

    def draw(figure, name: str) -> str:
        return figures.framed(figure, name) if figure else ""

    first = runs[0].result
    names = labels(runs)
    distinct = {
        run.result.fabric.spec or run.result.fabric.name: (n, run)
        for n, run in zip(names, runs, strict=True)
    }
    demands = figures.demands(first.trace, first.fabric)
    clock = records.document(runs, summary, title_of(runs), logged, prices)
    return render_clock(
        "template.html",
        clock,
        summary,
        headline=headline(summary),
        kinds=kinds(runs),
        bound=any(map(compare.is_bound, summary["runs"])),
        provenance=first.trace.provenance,
        rewires=compare.rewires(summary),
        fidelity=compare.fidelity(summary),
        cost_sources=compare.cost_sources(runs),
        money=money(figures, runs, summary, prices),
        close_ups=draw(figures.close_ups(runs), "flows in flight"),
        in_flight=in_flight(runs),
        loads=loads(runs),
        demand=draw(figures.demand(*demands), "demand"),
        demands=demand_table(*demands),
        load=draw(figures.load(runs), "link load"),
        topologies=[
            (
                name,
                draw(figures.topology(run.result.fabric), "cables"),
                compare.fabric_table(run.result.fabric),
            )
            for name, run in distinct.values()
        ],
        circuits=[
            (n, draw(figures.circuits(r.result), "circuits"))
            for n, r in zip(names, runs, strict=True)
            if r.result.epochs
        ],
    )


def live_page(clock: dict, summary: dict, template: str = "live.html") -> str:
    """The page that follows a run, or a controller; `clock` is the document of its records so
    far.
    """
    moving = *SCRIPTS, "live.js"
    words = {"clock": clock, "summary": summary, "runs": summary["runs"]}
    return render_moving(template, moving, clock, title=clock["title"], **words)


def render_clock(template: str, clock: dict, summary: dict, **values) -> str:
    """A page with the clock in it; `clock` is the document of what moves."""
    words = {"clock": clock, "summary": summary, "runs": summary["runs"], "notes": notes(summary)}
    yours = clock["yours"]
    words["yours"] = yours and logged_table(yours, [run["label"] for run in clock["runs"]])
    return render_moving(template, SCRIPTS, clock, title=clock["title"], **words, **values)


def render_moving(template: str, moving: Sequence[str], document: dict, **values) -> str:
    """A page with D3 and these scripts of `page/`, which read `document`."""
    from .page import records

    scripts = _scripts(moving)
    hashes = " ".join(map(_hash, scripts))
    text = records.text(document)
    return render(template, records=text, scripts=scripts, hashes=hashes, **values)


def _scripts(names: Sequence[str]) -> list[str]:
    """D3, and the page's own files as one."""
    library, *own = [(MOVING / name).read_text(encoding="utf-8") for name in ("d3.min.js", *names)]
    return [library, '(() => {\n"use strict";\n' + "\n".join(own) + "})();\n"]


def _hash(script: str) -> str:
    """What the page's policy says of a script that may run: nothing else may, whatever a name
    holds.
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def notes(summary: dict) -> list[str]:
    """What a reader must know, each once; of real packets how many bytes were really lost."""
    texts = [note for entry in summary["runs"] for note in entry["notes"]]
    for entry in summary["runs"]:
        scale = entry["scale"]["bandwidth_scale"]
        if entry["lost_bytes"] and scale != 1:
            lost, real = show_size(entry["lost_bytes"]), show_size(entry["lost_bytes"] * scale)
            texts.append(
                f"{entry['label']}: {lost} lost stand for {real} of real packets, at bandwidth x "
                f"{scale:.3g}"
            )
    return list(dict.fromkeys(texts))


def in_flight(runs: Sequence[Run]) -> compare.Table:
    """Seconds with a flow in flight of the longest communication phases, a column a run."""
    seconds = [run.result.communication for run in runs]
    longest = sorted(seconds[0], key=lambda key: -max(s[key] for s in seconds))
    rows = [
        (
            compare.phase_text(f"{phase}/{step} {label}".strip()),
            *(show_time(s[step, phase, label]) for s in seconds),
        )
        for step, phase, label in longest[:MOST_ROWS]
    ]
    note = "" if len(longest) <= MOST_ROWS else f"The longest of {len(longest):,}."
    return compare.Table.of("", ("communication phase", *labels(runs)), rows, note)


def loads(runs: Sequence[Run]) -> compare.Table:
    """What the links of each tier carried, of what they could have while flows were in flight."""
    rows = [
        (name, tier, f"{len(used):,}", f"{used.mean():.1%}", f"{used.max():.1%}")
        for name, run in zip(labels(runs), runs, strict=True)
        for tier, used in drawing().by_tier(run.result).items()
    ]
    columns = "fabric", "tier", "directed links", "mean", "highest"
    return compare.Table.of("", columns, rows, words=(0, 1))


def demand_table(unit: str, by_phase: Sequence[tuple[PhaseKey, Demand]]) -> compare.Table:
    """What racks (or pods) send to each other, phase by phase: the pairs that send most."""
    pairs = [
        (sent, key, d.racks[a], d.racks[b])
        for key, d in by_phase
        for a, b, sent in zip(*(column.tolist() for column in d.sent), strict=True)
    ]
    pairs.sort(key=lambda pair: -pair[0])
    rows = [
        (compare.phase_text(str(key)), a, b, show_size(sent))
        for sent, key, a, b in pairs[:MOST_ROWS]
    ]
    note = "" if len(pairs) <= MOST_ROWS else f"The {MOST_ROWS} largest of {len(pairs):,}."
    columns = "phase", f"from {unit}", f"to {unit}", "sent"
    return compare.Table.of("", columns, rows, note, words=(0, 1, 2))


def kinds(runs: Sequence[Run]) -> set[str]:
    """Kinds and tiers of the nodes of all fabrics: what the captions may speak of."""
    nodes = [node for run in runs for node in run.result.fabric.nodes]
    return {node.kind for node in nodes} | {node.tier for node in nodes}


def render(template: str, **values) -> str:
    """A page from one of the templates beside this file. RFabricError where what draws it is not
    installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise RFabricError(f"the report needs {error.name}; install rfabric[report]") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, MOVING]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"size": show_size, "seconds": show_time}
    return environment.get_template(template).render(**values)


def headline(summary: dict) -> str:
    """One sentence: what each fabric makes the GPUs wait."""
    runs = summary["runs"]
    waits = [f"{show_time(exposed_of(r))} on {r['label']}" for r in runs]
    took, steps = show_time(runs[0]["step_s"]), max(r.get("steps", 1) for r in runs)
    when = f"In a step of {took}" if steps == 1 else f"In {steps} steps, {took} together,"
    return f"{when} the GPUs wait for the network {', '.join(waits)}."
