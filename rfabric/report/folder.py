"""The run folder: every input of a run beside every output, to be read, mailed or run again.

    runs/20250721-143005-9f3a/
        summary.json   report.html   trace.csv   trace-looped.csv   inputs/grpo-64.yaml
        emulate-rfabric/  fabric.json  flows.csv  links.csv  rewires.csv  circuits.json
                          timeline.json
                          simulated/    of a run of packets the simulation it is measured
                                        against: these files, and run.json with its summary
        live.jsonl        what the live page was told, where there was one
        not-kept/         runs that were refused, each with pace.json, why: no figures to use

Where pyarrow is installed, flows, links and the summary stand there as Parquet too; tables of more
than `tables.LONG` rows as Parquet alone, until `write_long` is asked for them.

timeline.json is for ui.perfetto.dev: computing, flows, circuits, dark time, load of cables.

trace.csv has the rows that were played, those of flows.csv. Where they stand for repetitions,
trace-looped.csv is the trace with its loops: the one to edit and to replay.

It is filled under a hidden name and renamed when complete: a folder one sees is whole. Columns are
the same for both worlds; `read_folder` gives back what `write_folder` was given, so a report can be
made again.
"""

import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..files import read_json, read_text, replacing
from ..folders import as_path
from ..optics import Circuits, RewireRecord
from ..trace import Trace, read_trace, write_trace
from ..trace.formats.columns import quoted
from . import parquet
from .perfetto import run_text
from .result import Folding, Pace, Result, Scale
from .summary import Run, labels, read_summary, row_of, run_summary
from .tables import csv_of, kept_as, read_csv, read_table, write_as_csv, write_csv, write_tables

REWIRE_COLUMNS = (
    "epoch", "phase", "requested_s", "programmed_s", "dark_until_s", "usable_s", "circuits_changed",
    "lost_bytes", "why", "hidden_s", "exposed_s",
)  # fmt: skip
NOT_KEPT = "not-kept"
LOOPED = "trace-looped.csv"
SIMULATED = "simulated"
SAME = 1e-9  # of a time: two files that differ by more tell of two runs
UNFINISHED = re.compile(
    r"\.(?:\d{8}-\d{6}-[0-9a-f]{4}|\d{3,}-.+)\.(\d+)\.part"
)  # a run, or a numbered cell of a comparison


@dataclass(frozen=True)
class RunFolder:
    """A folder being filled: write under `path`; afterwards it is found at `final`."""

    path: Path
    final: Path
    created: str


def new_name() -> str:
    """A name for a run folder: when, and four digits that tell it from others of that second."""
    return f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@contextmanager
def new_folder(out: str | Path, name: str = "") -> Iterator[RunFolder]:
    """A run folder under `out`, renamed into place when whole, else removed.

    Under sudo it becomes the caller's.
    """
    out, created = Path(out), datetime.now().astimezone()
    name = name or new_name()
    folder = RunFolder(
        out / f".{name}.{os.getpid()}.part", out / name, created.isoformat(timespec="seconds")
    )
    with writing(out):
        made = [p for p in (out, *out.parents) if not p.exists()]
    try:
        with writing(out):
            folder.path.mkdir(parents=True)
        yield folder
        with writing(out):
            give_to_caller([*made, folder.path, *folder.path.rglob("*")])
            os.rename(folder.path, folder.final)
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        for path in made:  # innermost first; one that holds a run stays
            with suppress(OSError):
                path.rmdir()


@contextmanager
def writing(where: str | Path) -> Iterator[None]:
    """Turns an OSError of what is written inside into an RFabricError that names the file, why, and
    the way out.
    """
    try:
        yield
    except OSError as error:
        name = error.filename or where
        raise RFabricError(
            f"cannot write {name}: {error.strerror or error}; choose another place, or make room"
        ) from error


def sweep(out: str | Path) -> list[Path]:
    """Remove the unfinished folders under `out` whose process is gone; says which."""
    abandoned = [
        p
        for p in Path(out).glob(".*.part")
        if (m := UNFINISHED.fullmatch(p.name)) and not _alive(int(m[1]))
    ]
    for path in abandoned:
        shutil.rmtree(path, ignore_errors=True)
    return abandoned


def write_folder(
    folder: Path, runs: Sequence[Run], summary: dict, inputs: Iterable[Path] = ()
) -> None:
    """Write trace, inputs, the files of each run and summary.json under `folder`. RFabricError for
    runs of several traces.
    """
    if len({id(run.result.trace) for run in runs}) != 1:
        raise RFabricError("a run folder holds the runs of one trace")
    with writing(folder):
        trace = runs[0].result.trace
        write_trace(trace, folder / "trace.csv")
        if trace.origin:
            write_trace(trace.origin.looped, folder / LOOPED)
        for name, path in _by_name(inputs).items():
            (folder / "inputs").mkdir(exist_ok=True)
            shutil.copyfile(path, folder / "inputs" / name)
        for name, run in zip(_names(runs), runs, strict=True):
            _write_run(folder / name, run.result)
            _write_simulated(folder / name / SIMULATED, run)
            write_refused(folder, run.refused)
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        if parquet.is_there():
            parquet.write_rows(folder / "summary.parquet", [row_of(r) for r in summary["runs"]])


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Each path once, by its name, numbered where another has it: two jobs may each have a
    `mine.yaml`.
    """
    named: dict[str, Path] = {}
    for path in dict.fromkeys(map(Path, paths)):
        others = (f"{path.stem}-{n}{path.suffix}" for n in count(2))
        named[next(name for name in chain([path.name], others) if name not in named)] = path
    return named


def write_refused(folder: Path, refused: Sequence[Result]) -> None:
    """Write what runs measured that were refused: under NOT_KEPT, each beside the reasons."""
    for result in refused:
        place = folder / NOT_KEPT
        place.mkdir(exist_ok=True)
        name = _slug(result.engine, f"{result.fabric.name}-{len(list(place.iterdir())) + 1}")
        _write_run(place / name, result)
        why = {"kept": False, "scale": result.scale.to_json(), "pace": result.pace.to_json()}
        why |= {"notes": result.notes}
        write_text(place / name / "pace.json", _json(why))
        give_to_caller([place, *place.rglob("*")])


def write_long(folder: Path, runs: Sequence[Run]) -> list[Path]:
    """Write as CSV what stands in this run folder as Parquet alone; returns what was written."""
    made = []
    for name, run in zip(_names(runs), runs, strict=True):
        every = [(folder / name, run.result)]
        every += [(folder / name / SIMULATED, run.simulated)] if run.simulated else []
        for place, result in every:
            for path in (path for path in csv_of(place) if not path.is_file()):
                with writing(path), replacing(path) as beside:
                    write_as_csv(beside, path.stem, result)
                made.append(path)
    give_to_caller(made)
    return made


def read_folder(folder: str | Path) -> tuple[list[Run], dict]:
    """The runs and the summary of a complete run folder. RFabricError where it is none, or
    incomplete.
    """
    folder = as_path(folder, "run folder")
    if not (folder / "summary.json").is_file():
        raise RFabricError(f"{folder} is no run folder: it has no summary.json")
    summary = read_summary(folder / "summary.json")
    trace = _read_played(folder, summary)
    names = [_slug(entry["engine"], entry["label"]) for entry in summary["runs"]]
    try:
        return [
            _read_run(folder / n, trace, e) for n, e in zip(names, summary["runs"], strict=True)
        ], summary
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise (
            error
            if isinstance(error, RFabricError)
            else RFabricError(f"{folder}: incomplete: {error}")
        ) from error


def _read_played(folder: Path, summary: dict) -> Trace:
    """The trace that was played, which knows the one with loops that it comes from."""
    name = LOOPED if (folder / LOOPED).is_file() else "trace.csv"
    trace = read_trace(folder / name)
    if trace.provenance.get("source") == name:  # said by the reader, not by who made it
        del trace.provenance["source"]
    how = summary["runs"][0].get("repetitions") if name == LOOPED else None
    return trace.played(how["played"]) if how else trace


def write_text(path: Path, text: str) -> None:
    """Write `text` beside `path`, then rename."""
    with writing(path), replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _names(runs: Sequence[Run]) -> list[str]:
    return [_slug(run.result.engine, label) for run, label in zip(runs, labels(runs), strict=True)]


def _slug(engine: str, label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=]+", "-", f"{engine}-{label}").strip("-.")


def _write_run(folder: Path, result: Result) -> None:
    folder.mkdir()
    write_text(folder / "fabric.json", fabric_text(result.fabric))
    lit = cache(lambda circuits: circuits.to_json())  # many epochs hold what others held
    held = cache(lambda circuits: _json(lit(circuits)).rstrip())
    epochs = (
        f'{{"time_s": {json.dumps(time)},\n"circuits": {held(circuits)}}}'
        for time, circuits in result.epochs
    )
    write_text(folder / "circuits.json", f'{{"epochs": [{_lines(epochs)}]}}\n')
    write_tables(folder, result)
    rewires = (map(quoted, r.to_json().values()) for r in result.rewires)
    lines = (f"{','.join(cells)}\n".encode() for cells in rewires)
    write_csv(folder / "rewires.csv", REWIRE_COLUMNS, lines)
    write_text(folder / "timeline.json", run_text(result, lit))


def _write_simulated(folder: Path, run: Run) -> None:
    if run.simulated:
        _write_run(folder, run.simulated)
        write_text(folder / "run.json", _json(run_summary(Run(run.simulated))))


def fabric_text(fabric: Fabric) -> str:
    """What `_json` makes of a fabric; the cables, of which there may be 100,000s, are put together
    from what few things they say.
    """
    ends = cabling_of(fabric).spelled(np.arange(2 * len(fabric.links)))

    @lru_cache(None, typed=True)
    def rest(rate: float, delay: float) -> str:
        return _json({"rate_bps": rate, "delay_s": delay})[1:].rstrip()

    cables = (
        f'{{"a": "{a}",\n"b": "{b}",\n{rest(link.rate, link.delay)}'
        for a, b, link in zip(ends[::2], ends[1::2], fabric.links, strict=True)
    )
    described = _json(fabric.described).removesuffix("}\n")
    return f'{described},\n"links": [{_lines(cables)}]}}\n'


def _json(data: Any) -> str:
    """One value a line, by the encoder in C: the one that indents takes ten times as long."""
    return json.dumps(data, separators=(",\n", ": ")) + "\n"


def _lines(parts: Iterable[str]) -> str:
    return ",\n".join(parts)


def _read_run(folder: Path, trace: Trace, entry: dict) -> Run:
    flows = read_table(folder, "flows", ("start_s", "finish_s", "sent_bytes", "received_bytes"))
    links = read_table(folder, "links", ("bytes",))
    rewires = read_csv(folder / "rewires.csv", REWIRE_COLUMNS)
    scale = entry["scale"]
    result = Result(
        engine=entry["engine"],
        fabric=Fabric.from_json(read_text(folder / "fabric.json")),
        policy=entry["policy"],
        trace=trace,
        traffic=entry["traffic"],
        seed=entry["seed"],
        start=np.array(flows["start_s"], dtype=float),
        finish=np.array(flows["finish_s"], dtype=float),
        sent=np.array(flows["sent_bytes"], dtype=np.int64),
        received=np.array(flows["received_bytes"], dtype=np.int64),
        link_bytes=np.array(links["bytes"], dtype=float),
        rewires=tuple(
            _rewire(row) for row in zip(*(rewires[c] for c in REWIRE_COLUMNS), strict=True)
        ),
        epochs=_epochs(folder / "circuits.json"),
        scale=Scale.from_json(scale),
        pace=Pace.from_json(entry["pace"]),
        notes=tuple(entry["notes"]),
        routing=entry.get("routing", "ecmp"),
        folding=_folding(entry.get("repetitions")),
        transport=entry.get("transport", "fluid"),
    )
    _check_agreement(folder, result, entry)
    return Run(result, entry["fidelity"], simulated=_read_simulated(folder / SIMULATED, trace))


def _read_simulated(folder: Path, trace: Trace) -> Result | None:
    """None in the folder of a simulation, and in one that an earlier version wrote."""
    if not folder.is_dir():
        return None
    return _read_run(folder, trace, read_json(folder / "run.json")).result


def _check_agreement(folder: Path, result: Result, entry: dict) -> None:
    """Refuse files of which one was cut, changed or put there later: they tell of two runs."""
    flows, links = (kept_as(folder, name).name for name in ("flows", "links"))
    counts = (
        (flows, len(result.start), len(result.trace), "the trace"),
        (links, len(result.link_bytes), 2 * len(result.fabric.links), "its fabric"),
        ("rewires.csv", len(result.rewires), len(entry["rewires"]), "summary.json"),
    )
    for name, rows, due, what in counts:
        if rows != due:
            raise RFabricError(f"{folder / name} has {rows} rows, {what} {due}")
    last, said = result.step_seconds, entry["step_s"]
    if not math.isclose(last, said, rel_tol=SAME):
        raise RFabricError(
            f"{folder}: the last flow of {flows} ends at {last:.9g} s, summary.json says "
            f"{said:.9g} s"
        )


def _folding(played: dict | None) -> Folding | None:
    return Folding.from_json(played["folding"]) if played and played["folding"] else None


def _rewire(cells: Sequence[str]) -> RewireRecord:
    epoch, phase, *times, changed, lost, why, _, exposed = cells
    return RewireRecord(
        int(epoch), phase, *map(float, times), int(changed), int(lost), why, float(exposed)
    )


def _epochs(path: Path) -> tuple[tuple[float, Circuits], ...]:
    try:
        epochs = read_json(path)["epochs"]
        return tuple((e["time_s"], Circuits.from_json(e["circuits"])) for e in epochs)
    except (RFabricError, KeyError, TypeError) as error:
        raise RFabricError(f"{path}: incomplete: {error}") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def give_to_caller(paths: Iterable[Path]) -> None:
    """Under sudo, what we made belongs to who called."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and uid.isdigit() and gid.isdigit():
        for path in paths:
            os.chown(path, int(uid), int(gid), follow_symlinks=False)
