"""What the pictures of a page show, by kind a list of records, which its scripts draw.

    bars      step, exposed communication and cost, a bar a run     amounts.js
    demand    bytes from rack to rack (or pod to pod) by phase      amounts.js
    load      use of directed links by tier                         amounts.js
    front     step time against dollars                             front.js
    close_ups flows in flight of each communication phase           times.js
    circuits  light paths of each epoch, on a circle                cabled.js
    cables    pods with their cables                                cabled.js

A place `data-picture="bars" data-number="0"` of the page is filled with the first of bars. What is
too much for a page is summed up here: by pods, by bins, the longest, the first.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ...fabric import Fabric
from ...fabric.cabling import cabling_of
from ...optics import Circuits, Demand, RewireRecord
from ...trace import PhaseKey
from ...units import show_time
from ..amounts import MOST_RACKS, PART_COLOURS, TIER_NAMES, Panel, panels, readable
from ..compare import is_bound, on_front, phase_name, phase_text
from ..intervals import busy, merged, squeezed
from ..result import Result
from ..summary import Run, labels
from .lights import optical_ends, planes, racks_of
from .outline import outline

MOST_EPOCHS = 12  # whose circuits are drawn
MOST_COLUMNS = 6  # of close-ups: the longest phases
MOST_STEPS = 400  # points of a close-up
MOST_CUTS = 16  # bursts that one can tell apart
MOST_BANDS = 100  # rewires of a close-up: the longest
MOST_DOTS = 500  # links of a tier that are drawn one by one
BINS = 100
DIGITS = 5  # of the largest of some values
DOLLARS = "network_usd", "usd_per_step"


def bars(runs: Sequence[Run], ocs_port_usd: float | None = None) -> dict:
    """The panels of `amounts.panels`."""
    every = [_panel(panel) for panel in panels(runs, ocs_port_usd)]
    return {"labels": labels(runs), "panels": every, "colours": PART_COLOURS}


def _panel(panel: Panel) -> dict:
    return {
        "title": panel.title,
        "stacks": [list(stack.items()) for stack in panel.stacks],
        "texts": panel.texts,
        "ranges": panel.ranges,
        "parts": [list(each.items()) for each in panel.parts],
    }


def front(rows: Sequence[Mapping]) -> list[dict]:
    """Points of step time against dollars, of each whether it is on the front of either.

    rows: `label`, `fabric`, `policy`, `traffic`, `step_s`, and of DOLLARS what is known; where
    there are several seeds, `step_s_least` and `step_s_most` as well.
    """
    priced = {key: [row for row in rows if row.get(key) is not None] for key in DOLLARS}
    return [
        {
            "label": row["label"],
            "traffic": row["traffic"],
            "optical": row["policy"] != "ecmp",
            "bound": is_bound(row),
            "step_s": row["step_s"],
            "span_s": [row.get("step_s_least", row["step_s"]), row.get("step_s_most", 0.0)],
            "usd": [row.get(key) for key in DOLLARS],
            "front": [
                on_front(row, [r for r in some if r["traffic"] == row["traffic"]], key)
                for key, some in priced.items()
            ],
        }
        for row in rows
    ]


def close_ups(runs: Sequence[Run]) -> dict | None:
    """Flows in flight in the longest communication phases, a row per run: one axis of the seconds
    in which any is in flight; None where nothing is sent.
    """
    first = runs[0].result
    longest = {k: max(run.result.communication[k] for run in runs) for k in first.communication}
    kept = sorted(longest, key=lambda key: -longest[key])[:MOST_COLUMNS]
    columns = [key for key in longest if key in kept]
    if not columns:
        return None
    return {
        "labels": labels(runs),
        "of": len(longest),
        "columns": [
            {
                "title": [phase_name(phase, step), label],
                "phase": phase,
                "span_s": longest[step, phase, label],
            }
            for step, phase, label in columns
        ],
        "rows": [_row(run.result, {key: longest[key] for key in columns}) for run in runs],
    }


def _row(result: Result, spans: Mapping[tuple, float]) -> list[dict]:
    rows = result.trace.communication()
    return [_close_up(result, rows[key], key, span) for key, span in spans.items()]


def _close_up(result: Result, rows: np.ndarray, key: tuple, span: float) -> dict:
    """Flows in flight on a clock that runs while any is: from each of `time` on, s; where that was
    `cut`; `bands` of rewires: requested, programmed, usable, which epoch, how long it is dark, how
    many circuits change.
    """
    begin, end = result.start[rows], result.finish[rows]
    bursts = merged(begin, end)
    time, count = busy(begin, end, MOST_STEPS)
    cuts = squeezed(bursts[1:, 0], bursts) if len(bursts) <= MOST_CUTS else np.zeros(0)
    return {
        "time": _rounded(squeezed(time, bursts), span),
        "count": np.rint(count).astype(int).tolist(),
        "most": len(rows) if len(bursts) == 1 else 0,
        "cut": _rounded(cuts, span),
        "bands": _bands(result, bursts, span),
        "text": show_time(result.communication[key]),
    }


def _bands(result: Result, bursts: np.ndarray, span: float) -> list[list]:
    if not result.rewires:
        return []
    times = np.array([(r.requested, r.programmed, r.usable) for r in result.rewires])
    times = squeezed(times.ravel(), bursts).reshape(-1, 3)
    wide = times[:, 2] - times[:, 0]
    some = np.sort(np.argsort(-wide, kind="stable")[:MOST_BANDS])
    told = [(r.epoch, show_time(r.dark), r.circuits_changed) for r in result.rewires]
    return [[*_rounded(times[i], span), *told[i]] for i in some[wide[some] > 0].tolist()]


def _rounded(values: np.ndarray, largest: float) -> list[float]:
    """These values to some digits of the largest."""
    digits = DIGITS - int(np.ceil(np.log10(largest))) if largest > 0 else 0
    return np.round(values, digits).tolist()


def circuits(result: Result) -> dict | None:
    """The light paths of the first epochs: [rack, rack, plane], or [pod, pod, how many] where racks
    are too many; None without OCS, or with too many pods.
    """
    fabric = result.fabric
    if not fabric.ocses or not result.epochs or not readable(fabric):
        return None
    by_pod = len(fabric.racks) > MOST_RACKS
    join = _by_pod if by_pod else _by_rack
    drawn: dict[Circuits, list] = {}
    for _, lit in result.epochs[:MOST_EPOCHS]:
        if lit not in drawn:
            drawn[lit] = join(fabric, lit)
    return {
        "by_pod": by_pod,
        "names": [f"p{i + 1}" for i in range(fabric.pods)] if by_pod else fabric.racks,
        "pods": [] if by_pod else [fabric.node[rack].pod for rack in fabric.racks],
        "of": len(result.epochs),
        "epochs": [
            {
                "time_s": time,
                "circuits": len(lit),
                "title": _phase_of(result.rewires[i - 1]) if i else "at the start",
                "changed": result.rewires[i - 1].circuits_changed if i else None,
                "paths": drawn[lit],
            }
            for i, (time, lit) in enumerate(result.epochs[:MOST_EPOCHS])
        ],
    }


def _phase_of(rewire: RewireRecord) -> str:
    """The phase that a rewire was for; none of those that come with time, as a rotor's."""
    return phase_text(rewire.phase) if rewire.phase else ""


def _by_rack(fabric: Fabric, lit: Circuits) -> list:
    _, ends = optical_ends(fabric, lit)
    return np.column_stack((racks_of(fabric, ends).T, planes(fabric, ends[0]))).tolist()


def _by_pod(fabric: Fabric, lit: Circuits) -> list:
    _, ends = optical_ends(fabric, lit)
    pod, pods = np.array([node.pod for node in fabric.nodes]), fabric.pods
    low, high = np.sort(pod[cabling_of(fabric).node[ends]], axis=0)
    joined = np.bincount(low * pods + high, minlength=pods * pods)
    (some,) = np.nonzero(joined)
    return np.column_stack((some // pods, some % pods, joined[some])).tolist()


def demand(unit: str, by_phase: Sequence[tuple[PhaseKey, Demand]], of: int) -> dict | None:
    """Bytes from one to another, as `demands` tells them: [from, to, bytes]; None of none."""
    if not by_phase:
        return None
    return {
        "unit": unit,
        "names": by_phase[0][1].racks,
        "of": of,
        "phases": [
            {
                "title": phase_name(key.phase, key.step),
                "phase": key.phase,
                "sent": [column.tolist() for column in d.sent],
            }
            for key, d in by_phase
        ],
    }


def load(names: Sequence[str], tiers: Sequence[Mapping[str, np.ndarray]]) -> dict:
    """Use of the directed links of each tier, shares of 1: link by link, or beyond MOST_DOTS how
    many there are in each of BINS up to the `top`.

    tiers: of each run, as `by_tier` tells them.
    """
    every = dict.fromkeys(name for some in tiers for name in some)
    order = [t for t in TIER_NAMES if t in every] + [t for t in every if t not in TIER_NAMES]
    return {
        "labels": names,
        "tiers": order,
        "used": [[_used(some[t]) if t in some else None for t in order] for some in tiers],
    }


def _used(used: np.ndarray) -> dict:
    told = {"links": len(used), "mean": float(used.mean()), "highest": float(used.max())}
    if len(used) <= MOST_DOTS:
        return told | {"dots": np.round(used, 4).tolist()}
    top = max(1.0, told["highest"])
    count, _ = np.histogram(used, bins=BINS, range=(0, top))
    return told | {"top": top, "bins": count.tolist()}


def cables(fabric: Fabric) -> dict:
    """What `outline` draws: nodes as [name, kind, tier, pod, x, y], cables as [node, node, how high
    above both].
    """
    drawn = outline(fabric)
    number = {name: i for i, name in enumerate(drawn.at)}
    nodes = [
        [node.name, node.kind, node.tier, node.pod, *(round(v, 3) for v in drawn.at[name])]
        for name, node in ((name, fabric.node[name]) for name in drawn.at)
    ]
    raised = zip(drawn.cables, drawn.over, strict=True)
    links = [(fabric.links[cable], round(over, 3)) for cable, over in raised]
    return {
        "of": len(fabric.nodes),
        "nodes": nodes,
        "links": [[number[link.a.node], number[link.b.node], over] for link, over in links],
    }
