"""report.html: one page for people that needs nothing else: no network, no script but its own;
light or dark as the system is. What moves in it is in `page/`.
"""

import base64
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from ..errors import RFabricError
from ..optics import Demand
from ..trace import PhaseKey
from ..units import show_size, show_time
from . import compare
from .amounts import by_tier, demands
from .folder import write_text
from .money import drawn, money
from .page import pictures
from .page.logged import LoggedRun
from .page.logged import table as logged_table
from .summary import Run, exposed_of, labels

TEMPLATES = Path(__file__).parent
MOVING = TEMPLATES / "page"
MOST_ROWS = 40  # of a table beside a figure
MOST_PAIRS = 24  # that an epoch names
MOST_REWIRES = 200  # that a page names
MOVES = "records.js", "lanes.js", "yours.js", "fabric.js", "reading.js", "choices.js"
FOLLOWS = "said.js", "picture.js", *MOVES, "clock.js"
SCRIPTS = ("said.js", "picture.js", "front.js", "amounts.js", "times.js", *MOVES, "cabled.js",
           "clock.js")  # fmt: skip
STILL = "said.js", "picture.js", "front.js", "still.js"
CELLS = "said.js", "cells.js", "choices.js"
log = logging.getLogger(__name__)


def drawing() -> ModuleType:
    """The module that draws files; RFabricError where what it needs is not installed."""
    try:
        from . import figures
    except ImportError as error:
        library = (error.name or "matplotlib").partition(".")[0]
        raise RFabricError(f"drawing needs {library}; install rfabric[report]") from error
    return figures


def can_draw_page() -> bool:
    """Whether the library that makes a page is installed; a warning says so where it is not."""
    there = find_spec("jinja2") is not None
    if not there:
        log.warning("no report.html without jinja2: install rfabric[report]")
    return there


def must_draw_page() -> None:
    """RFabricError where the library that makes a page is not installed; it is not loaded."""
    if not find_spec("jinja2"):
        raise RFabricError("a page needs jinja2; install rfabric[report]")


def write_page(
    folder: Path, runs: Sequence[Run], summary: dict, prices: Sequence[float] = ()
) -> bool:
    """report.html, where the library that makes it is installed."""
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
    RFabricError when jinja2 is missing.
    """
    from .page import records

    first = runs[0].result
    names = labels(runs)
    sent = demands(first.trace, first.fabric)
    tiers = [by_tier(run.result) for run in runs]
    told = money(runs, summary, prices)
    distinct = {
        run.result.fabric.spec or run.result.fabric.name: (name, run.result)
        for name, run in zip(names, runs, strict=True)
    }
    lit = {name: pictures.circuits(run.result) for name, run in zip(names, runs, strict=True)}
    lit = {name: one for name, one in lit.items() if one}
    clock = records.document(runs, summary, title_of(runs), logged, prices)
    clock["pictures"] = drawn(told) | {
        "close_ups": [pictures.close_ups(runs)],
        "circuits": list(lit.values()),
        "demand": [pictures.demand(*sent)],
        "load": [pictures.load(names, tiers)],
        "cables": [pictures.cables(result.fabric) for _, result in distinct.values()],
    }
    return render_clock(
        "template.html",
        clock,
        summary,
        headline=headline(summary),
        kinds=kinds(runs),
        bound=any(map(compare.is_bound, summary["runs"])),
        provenance=first.trace.provenance,
        rewires=first_rows(compare.rewires(summary), MOST_REWIRES),
        fidelity=compare.fidelity(summary),
        cost_sources=compare.cost_sources(runs),
        money=told,
        in_flight=in_flight(runs),
        loads=loads(names, tiers),
        demands=demand_table(*sent),
        circuits=[(name, circuits_table(one)) for name, one in lit.items()],
        fabrics=[(name, compare.fabric_table(result.fabric)) for name, result in distinct.values()],
    )


def live_page(clock: dict, summary: dict, template: str = "live.html") -> str:
    """The page that follows a run, or a controller; `clock` is the document of its records so
    far.
    """
    moving = *FOLLOWS, "live.js"
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
            compare.phase_name(phase, step, label),
            *(show_time(s[step, phase, label]) for s in seconds),
        )
        for step, phase, label in longest[:MOST_ROWS]
    ]
    note = "" if len(longest) <= MOST_ROWS else f"The longest of {len(longest):,}."
    return compare.Table.of("", ("communication phase", *labels(runs)), rows, note)


def loads(names: Sequence[str], tiers: Sequence[Mapping[str, np.ndarray]]) -> compare.Table:
    """What the links of each tier carried, of what they could have while flows were in flight."""
    rows = [
        (name, tier, f"{len(used):,}", f"{used.mean():.1%}", f"{used.max():.1%}")
        for name, some in zip(names, tiers, strict=True)
        for tier, used in some.items()
    ]
    columns = "fabric", "tier", "directed links", "mean", "highest"
    return compare.Table.of("", columns, rows, words=(0, 1))


def demand_table(unit: str, by_phase: Sequence[tuple[PhaseKey, Demand]], of: int) -> compare.Table:
    """What racks (or pods) send to each other in these of the phases that send any: the pairs that
    send most.
    """
    pairs = [
        (sent, key, d.racks[a], d.racks[b])
        for key, d in by_phase
        for a, b, sent in zip(*(column.tolist() for column in d.sent), strict=True)
    ]
    pairs.sort(key=lambda pair: -pair[0])
    rows = [
        (compare.phase_name(key.phase, key.step), a, b, show_size(sent))
        for sent, key, a, b in pairs[:MOST_ROWS]
    ]
    notes = [f"The {MOST_ROWS} largest of {len(pairs):,}."] if len(pairs) > MOST_ROWS else []
    if of > len(by_phase):
        notes.append(f"Of the first {len(by_phase)} of {of:,} phases that send any.")
    columns = "phase", f"from {unit}", f"to {unit}", "sent"
    return compare.Table.of("", columns, rows, " ".join(notes), words=(0, 1, 2))


def first_rows(table: compare.Table, most: int) -> compare.Table:
    """The first rows of a table, and of how many they are."""
    if len(table.rows) <= most:
        return table
    note = f"{table.note} The first {most} of {len(table.rows):,}; all stand in rewires.csv."
    return replace(table, rows=table.rows[:most], note=note)


def circuits_table(lit: dict) -> compare.Table:
    """What `pictures.circuits` tells: of each epoch its circuits, and how many light paths join
    which racks (or pods).
    """
    rows = [
        (
            f"{i} {epoch['title']}".rstrip(),
            f"{epoch['time_s']:.6f} s",
            f"{epoch['circuits']:,}",
            "–" if epoch["changed"] is None else f"{epoch['changed']:,}",
            _joined(lit, epoch["paths"]),
        )
        for i, epoch in enumerate(lit["epochs"])
    ]
    more = "" if lit["of"] == len(rows) else f"The first {len(rows)} of {lit['of']:,}."
    columns = "epoch", "from", "circuits", "changed", "light paths"
    return compare.Table.of("", columns, rows, more, words=(0, 4))


def _joined(lit: dict, paths: Sequence[Sequence[int]]) -> str:
    """`t1–t2 x 2, t1–t5`, of each pair how many."""
    pairs: Counter[tuple[int, int]] = Counter()
    for a, b, count in paths:
        pairs[a, b] += count if lit["by_pod"] else 1
    names = lit["names"]
    said = [
        f"{names[a]}–{names[b]}" + (f" x {count:,}" if count > 1 else "")
        for (a, b), count in pairs.items()
    ]
    more = f", and of {len(said) - MOST_PAIRS:,} pairs more" if len(said) > MOST_PAIRS else ""
    return ", ".join(said[:MOST_PAIRS]) + more if said else "none"


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
