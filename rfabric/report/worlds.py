"""The same run in several worlds: simulated, by ns-3's packets, by real ones, side by side.

Runs belong together that play the same traffic and seed on the same fabric under the same policy
and routing, wherever their folders are. Every run of packets knows what the fluid says of its
phases, so two worlds of packets are three.
"""

from collections.abc import Iterator, Mapping, Sequence

from .compare import Table

SAME = ("traffic", "fabric", "policy", "scheduler", "routing", "seed")
WORLDS = {"simulate": "simulated", "ns3": "ns-3 packets", "emulate": "real packets"}
STEP = "step"
WorldSeconds = dict[str, float]  # of a phase, by the engine of the world


def side_by_side(entries: Sequence[dict]) -> list[dict]:
    """{"label", "phase", "seconds": {engine: s}} of each communication phase, and of the step, of
    runs (entries of summary.json) that more than one world has played.
    """
    several = [some for some in _together(entries) if len(some) > 1]
    return [
        {"label": label, "phase": phase, "seconds": seconds}
        for label, some in zip(_labels(several), several, strict=True)
        for phase, seconds in _phases(some)
    ]


def table(entries: Sequence[dict]) -> Table:
    """The same as a table, with how much longer each world takes than the ones before it; without
    rows where no run was played in two.
    """
    rows = side_by_side(entries)
    engines = [engine for engine in WORLDS if any(engine in row["seconds"] for row in rows)]
    pairs = [(a, b) for i, b in enumerate(engines) for a in engines[:i]]
    lines = [
        (
            row["label"],
            row["phase"],
            *(_shown(row["seconds"], engine) for engine in engines),
            *(_difference(row["seconds"], a, b) for a, b in pairs),
        )
        for row in rows
    ]
    heads = (f"{_word(b)} to {_word(a)}" for a, b in pairs)
    columns = ("fabric", "communication phase", *(WORLDS[e] for e in engines), *heads)
    return Table.of("The same in several worlds", columns, lines, _NOTE, (0, 1))


_NOTE = (
    "Time with a flow of the phase in flight; the last columns say how much longer the one world "
    "takes than the other. Step: from the first instant to the last, computing included."
)


def _together(entries: Sequence[dict]) -> Iterator[Mapping[str, dict]]:
    """The runs of the same, by engine; of several runs of one engine the last."""
    runs: dict[tuple, dict[str, dict]] = {}
    for entry in entries:
        runs.setdefault(tuple(entry.get(key) for key in SAME), {})[entry["engine"]] = entry
    return iter(runs.values())


def _labels(several: Sequence[Mapping[str, dict]]) -> list[str]:
    """What tells runs apart: their labels, and where two are alike what else they differ in."""
    last = [some[[engine for engine in WORLDS if engine in some][-1]] for some in several]
    labels = [entry["label"] for entry in last]
    if len(set(labels)) == len(labels):
        return labels
    other = [key for key in SAME if key != "fabric" and len({one.get(key) for one in last}) > 1]
    words = ([one["label"], *(_word_of(one, key) for key in other)] for one in last)
    return [", ".join(dict.fromkeys(filter(None, some))) for some in words]


def _word_of(entry: dict, key: str) -> str:
    return f"seed {entry[key]}" if key == "seed" else entry.get(key) or ""


def _phases(runs: Mapping[str, dict]) -> Iterator[tuple[str, WorldSeconds]]:
    yield STEP, {engine: entry["step_s"] for engine, entry in runs.items()}
    phases: dict[str, WorldSeconds] = {}
    for engine, entry in runs.items():
        for name, phase in ((entry["fidelity"] or {}).get("phases", {})).items():
            of_world = phases.setdefault(name, {"simulate": phase["simulated_s"]})
            of_world[engine] = phase["emulated_s"]
    yield from phases.items()


def _shown(seconds: WorldSeconds, engine: str) -> str:
    if engine not in seconds:
        return "–"
    s = seconds[engine]
    return f"{s:,.3f} s" if s >= 1 else f"{s * 1e3:.3f} ms"


def _difference(seconds: WorldSeconds, one: str, other: str) -> str:
    if one not in seconds or other not in seconds or not seconds[one]:
        return "–"
    return f"{seconds[other] / seconds[one] - 1:+.1%}"


def _word(engine: str) -> str:
    return WORLDS[engine].partition(" ")[0]
