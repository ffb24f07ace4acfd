"""Seconds of the phases of logged steps: what RL frameworks print, or write as JSON lines or CSV.

    verl      step:3 - timing_s/gen:48.9 - timing_s/update_actor:37.4 - timing_s/step:141.0
    slime     perf 3: {'perf/rollout_time': 48.9, 'perf/train_time': 37.4}
    NeMo-RL   === Step 3/100 === and, below it,   - policy_training: 37.4s (26.4%)
    ROLL      {"time/step_generate": 48.9, "time/step_train": 37.4, "system/step": 3}
    AReaL     Train step 3/100 done. and, below it, │ timeperf/train_step │ 3.7400e+01 │

What TensorBoard, Weights & Biases and MLflow keep is read by `loggers`.

Names of timings are told from their last part, so that a metric goes by the same name in a console
log, a JSON line and a column. A phase is the sum of its parts: training holds the passes that score
responses, as the model's does. A timing that holds others (HOLDS) counts without them.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from ..errors import RFabricError
from ..files import NO_END, NOTHING, has_end, json_objects, lines_of, open_text, parse_json, twice
from .loggers import LoggedMetrics, as_told

# what timings of each phase are called, without prefixes such as `timing_s/` and ends such as _time
PHASES = {
    "generation": "gen generate generation rollout generate_sequences exposed_generation "
    "generate_async",
    "training": "update_actor update_critic update_policy train whole_train actor_train "
    "critic_train policy_training old_log_prob old_log_probs log_probs ref ref_log_prob "
    "ref_log_probs values adv reward policy_and_reference_logprobs ref_log_probs_values_reward "
    "train_step critic_train_step recompute_logp ref_logp teacher_logp critic_values "
    "compute_advantage",
    "weight_sync": "update_weights weight_sync sync_weights sync_rollout_weights model_update "
    "transfer_and_update_weights param_sync",
    "step": "step step_total total_step total_step_time",
    "waiting": "train_wait rollout_wait wait wait_for_enough_samples",
}
# verl's trainers that take responses from a queue call how long they wait for these `gen`; their
# metrics begin so, or name the whole of a generation beside it (verl 0.9.1: fully_async_trainer.py,
# trainer_separate_async.py, one_step_off_policy/ray_trainer.py)
QUEUES, WHOLE, WAITED = ("fully_async/", "separate_async/"), "generate_async", "rollout_wait"
LOGS = {  # what `read_step_log` reads
    "verl": "console or file of verl: `step:3 - timing_s/gen:48.9`",
    "slime": "console of slime: `perf 3: {'perf/rollout_time': 48.9}`",
    "nemo-rl": "console of NeMo-RL: `=== Step 3/100 ===`, then its timings",
    "roll": 'JSON lines of ROLL: `{"time/step_generate": 48.9}`',
    "areal": "console of AReaL, tables below `Train step 3/100 done`: `timeperf/train_step`",
    "steps-csv": ".csv: a step a row, columns such as `timing_s/gen` or `gen_s`",
    "tensorboard": "a file of events, or its folder",
    "wandb": ".wandb: an offline run, or its folder; an exported history is JSON lines or CSV",
    "mlflow": "a run's folder, or mlflow.db[/RUN]",
}
KNOWN = {name: phase for phase, names in PHASES.items() for name in names.split()}
# how a metric that is a time begins; a column of ours ends in _s instead
TIMINGS = re.compile(r"^(timing_s|timing/train|timing|timeperf|perf|time)/(step_(?!total|time))?")
# of AReaL: generation, or where that is asynchronous a wait for its queue; no log says which
EITHER = "timeperf/rollout"
ENDS = re.compile(r"(_time_s|_seconds|_time|_s)$")
STEP_KEYS = ("step", "_step", "global_step", "train/step", "system/step", "rollout/step", "Step")
LIST = re.compile(r"\s*\[\s*(\{|$)")
COLOUR = re.compile(r"\x1b?\[[0-9;]*m")
HOLDS = {  # timings within others of the same phase: verl's generation, slime's training
    **dict.fromkeys(("gen", "generate", "generation", "rollout", WHOLE), ("generate_sequences",)),
    "whole_train": ("actor_train", "critic_train", "log_probs", "ref_log_probs", "values"),
}
NUMBER = r"-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
VALUE = rf"(?:np\.float\d+\()?({NUMBER})\)?"  # numpy 2 prints its type
VERL = re.compile(r"\bstep:(\d+) - ")
PAIR = re.compile(rf"([\w/@.()-]+):{VALUE}(?= - |\s*$)")
DICT = re.compile(r"\b(?:perf|rollout|step|train) (\d+): \{")
QUOTED = re.compile(rf"['\"]([\w/@.-]+)['\"]: {VALUE}")
AREAL_STEP = re.compile(r"\bTrain step (\d+)/\d+ done")
AREAL = re.compile(rf"│\s*(timeperf/\w+)\s*│\s*({NUMBER})\s*(?=│)")
NEMO_STEP = re.compile(r"\bStep (\d+)/\d+")
NEMO = re.compile(rf"^(?:\s*\d+: )?\W*([\w /]+): ({NUMBER})s\b")  # behind srun's label
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


@dataclass(frozen=True)
class StepLog:
    """Seconds by phase of every logged step, in order; how many lines told nothing of time, and
    timings that belong to no phase; notes: what of a file could not be read. `numbers`: what the
    log calls the steps.
    """

    steps: tuple[dict[str, float], ...]
    dropped: int = 0
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    def tells(self, phase: str) -> bool:
        """Whether any step says the seconds of this phase."""
        return any(phase in step for step in self.steps)

    def seconds_of(self, number: int | None = None) -> dict[str, float]:
        """Seconds by phase of the step that the log calls `number`, or the means of all that tell
        the phase; RFabricError for a step that is not logged.
        """
        if number is None:
            names = dict.fromkeys(phase for step in self.steps for phase in step)
            return {p: fmean(step[p] for step in self.steps if p in step) for p in names}
        if number not in self.numbers:
            raise RFabricError(
                f"step {number} is not logged; the log has {len(self.numbers)} steps from "
                f"{self.numbers[0]} to {self.numbers[-1]}"
            )
        return self.steps[self.numbers.index(number)]


def read_step_log(path: str | Path, pipeline: str = "") -> StepLog:
    """The steps that a log tells of. `pipeline`: of the recipe, which says what AReaL's rollout is;
    '': it is left out. RFabricError, which begins with the path, for one that is no such log or
    says times that cannot be.
    """
    path, notes = Path(path), list[str]()
    try:
        told = as_told(path, notes)
        if told is None:
            _refuse_pickles(path)
            told = _told(path, notes)
        return replace(_collected(told, pipeline, notes), notes=tuple(notes))
    except RFabricError as error:
        raise RFabricError("; ".join((f"{path}: {error}", *notes))) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error


def _refuse_pickles(path: Path) -> None:
    if path.is_file():
        with open(path, "rb") as file:
            if file.read(4).startswith(PICKLES):
                raise RFabricError("is a pickle, which is never loaded; write the metrics as JSON "
                                   "lines")  # fmt: skip


def _collected(told: Iterable[LoggedMetrics], pipeline: str, notes: list[str]) -> StepLog:
    steps: dict[int, dict[str, float]] = {}
    dropped, unused, again = 0, {}, set[int]()
    either = {"": EITHER, "sync": "rollout"}.get(pipeline, WAITED)
    for where, number, metrics in told:
        times = {}
        for key, value in metrics.items():
            name = either if key == EITHER else _timing(key)
            if name is None:
                continue
            if not math.isfinite(value) or value < 0:
                raise RFabricError(
                    f"{where}: {key} is {value}, no time in seconds; remove the line"
                )
            if name in KNOWN:
                times[name] = value
            else:
                unused[key] = None
        if "gen" in times and any(key.startswith(QUEUES) for key in metrics):
            times[WAITED] = times.pop("gen")
        if times:
            known = steps.setdefault(number, {})
            again |= {number} if any(known.get(k, t) != t for k, t in times.items()) else set()
            known.update(times)
        else:
            dropped += 1
    if not steps:
        raise RFabricError(
            "has no time of a step; what can be read: console logs of verl, slime, NeMo-RL and "
            "AReaL, JSON lines, CSV with columns such as timing_s/gen or gen_s, TensorBoard, "
            "wandb, MLflow"
        )
    if again:
        notes.append(f"{len(again):,} steps are told again with other times: the last ones count")
    numbers = tuple(sorted(steps))
    told_of = tuple(_by_phase(steps[n]) for n in numbers)
    return StepLog(told_of, dropped, tuple(unused), numbers=numbers)


def _by_phase(parts: dict[str, float]) -> dict[str, float]:
    by_phase: dict[str, float] = {}
    if WHOLE in parts and "gen" in parts:
        parts = {WAITED if name == "gen" else name: value for name, value in parts.items()}
    within = {name for whole in parts for name in HOLDS.get(whole, ())}
    for name, seconds in parts.items():
        if name in within:
            continue
        by_phase[KNOWN[name]] = by_phase.get(KNOWN[name], 0.0) + seconds
    return by_phase


def _timing(key: str) -> str | None:
    """What a timing is called without what stands before and behind; None: no timing."""
    if TIMINGS.match(key):
        plain = TIMINGS.sub("", key).rpartition("/")[2]
        if key.startswith("perf/") and ENDS.sub("", plain) == "train":
            return "whole_train"  # of slime, which times its passes within it
        if key.startswith("perf/") and plain not in KNOWN and not ENDS.search(plain):
            return None  # throughput and the like
        key = plain
    elif "/" in key or not ENDS.search(key):
        return None
    return key if key in KNOWN else ENDS.sub("", key)


def _told(path: Path, notes: list[str]) -> Iterator[LoggedMetrics]:
    with open_text(path, newline=None) as file:
        lines = lines_of(file)
        first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
        every = _chained(first, lines)
        if first.lstrip().startswith("{"):
            yield from _json_lines(every)
        elif LIST.match(first):
            yield from _json_list("".join(every))
        elif mark := _mark(first):
            yield from _csv(every, mark)
        else:
            notes += [] if has_end(path) else [NO_END]
            yield from _console(every)


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _mark(first: str) -> str:
    """What divides the cells below such a header; '' of a line that is none."""
    for mark in (",", "\t", ";"):
        names = next(csv.reader([first], delimiter=mark), [])
        plain = mark == "," and " " not in first.strip()
        if len(names) > 1 and (plain or any(_timing(_column(name)) in KNOWN for name in names)):
            return mark
    return ""


def _column(name: str) -> str:
    """A column's metric: wandb's pages write `run - timing_s/gen`, and its extremes beside it."""
    return "" if name.endswith(("__MIN", "__MAX")) else name.rpartition(" - ")[2].strip()


def _csv(lines: Iterator[str], mark: str) -> Iterator[LoggedMetrics]:
    rows = csv.DictReader(lines, delimiter=mark)
    names = {name: _column(name) for name in rows.fieldnames or ()}
    double = twice(metric for metric in names.values() if metric and _timing(metric))
    if double:
        raise RFabricError(f"line 1: two columns give {double}; keep those of one run")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise RFabricError(f"line {number}: not as many cells as the header; correct the line")
        cells = {names[key]: cell for key, cell in row.items() if cell.strip()}
        yield f"line {number}", _step(cells, number), _numbers(cells, f"line {number}")


def _json_lines(lines: Iterator[str]) -> Iterator[LoggedMetrics]:
    return (_row(said, "line", number) for number, said in json_objects(lines))


def _json_list(text: str) -> Iterator[LoggedMetrics]:
    try:
        every = parse_json(text)
    except ValueError as error:
        raise RFabricError(f"no valid JSON, it may be cut short: {error}; write it again") from None
    for number, said in enumerate(every, 1):
        if not isinstance(said, dict):
            raise RFabricError(f"row {number}: is no object; every row is one step")
        yield _row(said, "row", number)


def _row(said: dict, what: str, number: int) -> LoggedMetrics:
    """What one object tells: a step."""
    inner = said.get("data") or said.get("metrics") or {}
    flat = said | inner if isinstance(inner, dict) else said
    return f"{what} {number}", _step(flat, number), _numbers(flat, f"{what} {number}")


def _step(cells: dict, line: int) -> int:
    """The step a row is of; its line, where it does not say."""
    step = next((cells[key] for key in STEP_KEYS if key in cells), line)
    try:
        return int(float(step))
    except (TypeError, ValueError, OverflowError):
        raise RFabricError(f"line {line}: step {step!r} is no number; correct it") from None


def _numbers(cells: dict, where: str) -> dict[str, float]:
    """What a row tells; nan is what it does not, as pandas fills its tables. RFabricError for a
    time that is no number.
    """
    numbers = {}
    for key, cell in cells.items():
        try:
            numbers[str(key)] = float(cell)
        except (TypeError, ValueError):
            text = cell.strip() if isinstance(cell, str) else ""
            if text.lower() not in NOTHING and _timing(str(key)) in KNOWN:
                raise RFabricError(
                    f"{where}: {key} is {text[:40]!r}, no number of seconds; write it as 1234.5"
                ) from None
    return {k: v for k, v in numbers.items() if k not in STEP_KEYS and not math.isnan(v)}


def _console(lines: Iterator[str]) -> Iterator[LoggedMetrics]:
    now = 0
    for number, line in enumerate(lines, 1):
        line = COLOUR.sub("", line.rstrip())
        if step := VERL.search(line):
            yield f"line {number}", int(step[1]), _pairs(PAIR, line[step.end() :])
        elif step := DICT.search(line):
            yield f"line {number}", int(step[1]), _pairs(QUOTED, line[step.end() :])
        elif step := AREAL_STEP.search(line) or NEMO_STEP.search(line):
            now = int(step[1])
        elif told := _pairs(AREAL, line):
            yield f"line {number}", now, told
        elif part := NEMO.search(line):
            name = part[1].strip().lower().replace(" ", "_").rpartition("/")[2]
            if name in KNOWN:
                yield f"line {number}", now, {f"timing/{name}": float(part[2])}


def _pairs(pattern: re.Pattern, text: str) -> dict[str, float]:
    return {key: float(value) for key, value in pattern.findall(text)}
