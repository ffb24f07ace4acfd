"""Several RL jobs that share two pools of GPUs: what each needs, what nodes cost and hold, and how
jobs are read.

    rollout pool    |  roll j  |......... waits .........|  roll j  |       a node: 8 H20, 14.80 $/h
    training pool   |. waits ..|  train j  |  sync  |....              a node: 8 H800, 42.24 $/h

Durations are those of one iteration on the nodes that the job asks for (s), conservative: with
every response at its longest. Memory is host memory on each node that keeps the job resident
(bytes). An SLO of 1.5 lets an iteration take 1.5 times what it takes alone. A file of jobs is a
CSV; `COLUMNS` names its columns, units in the names.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from ...compute.gpus import GPUS
from ...errors import RFabricError
from ...files import read_text, twice

# Weave (OSDI'26; RollMux, arXiv 2512.11306): nodes hold 1 to 2 TB, which keeps two to five jobs
# resident; the middle.
NODE_MEMORY_BYTES = 1.5e12
LONGEST_S = 1e7  # a phase beyond 115 days is a unit mistaken
MOST_NODES = 10_000


@dataclass(frozen=True)
class Footprint:
    """Host memory (bytes) that keeps a phase resident on a node of 8 GPUs, and its warm and cold
    starts (s).
    """

    roll_bytes: float
    train_bytes: float
    roll_warm: float
    train_warm: float
    roll_cold: float
    train_cold: float


# Weave, Table 2 and Fig. 4, by size of the model: 7.6, 14.8, 32.8 and 70.6 G parameters.
FOOTPRINTS = {
    "7B": Footprint(275.7e9, 240.0e9, 0.9, 4.1, 38.8, 32.7),
    "14B": Footprint(445.4e9, 456.1e9, 1.8, 4.7, 60.4, 59.0),
    "32B": Footprint(490.3e9, 520.4e9, 1.7, 5.9, 81.7, 81.2),
    "70B": Footprint(391.2e9, 458.7e9, 1.9, 5.4, 135.8, 116.0),
}
PARAMETERS = {"7B": 7.6e9, "14B": 14.8e9, "32B": 32.8e9, "70B": 70.6e9}


def footprint(parameters: float) -> Footprint:
    """What was measured for the model whose size is nearest, as a ratio."""
    return FOOTPRINTS[
        min(PARAMETERS, key=lambda size: abs(math.log(PARAMETERS[size] / parameters)))
    ]


@dataclass(frozen=True)
class Profile:
    """What one iteration takes (s) on how many nodes, and the host memory (bytes a node) that keeps
    it resident.

    roll_switch, train_switch: seconds to bring the job back onto a node that it shares (warm, from
    host memory).
    """

    roll: float
    train: float
    sync: float = 0.0
    roll_nodes: int = 1
    train_nodes: int = 1
    roll_bytes: float = 0.0
    train_bytes: float = 0.0
    roll_switch: float = 0.0
    train_switch: float = 0.0

    @cached_property
    def solo(self) -> float:
        """Seconds of an iteration with nobody beside it."""
        return self.roll + self.train + self.sync

    def trained_on(self, nodes: int) -> float:
        """Seconds that training and sync hold `nodes` training nodes: data parallelism follows
        them.
        """
        return (self.train + self.sync) * self.train_nodes / nodes


@dataclass(frozen=True)
class Job:
    """A job: `iterations` of its profile from `arrival` (s) on, none slower than `slo` times solo.

    drift: what its rollouts take at its begin and at its end, as shares of the profile; it changes
    evenly. alone: its profile with nobody beside it, where it stands elsewhere than it would then;
    its SLO counts from that.

    RFabricError, naming the job, for figures out of bounds.
    """

    name: str
    profile: Profile
    slo: float = 2.0
    arrival: float = 0.0
    iterations: float = 1.0
    drift: tuple[float, float] = (1.0, 1.0)
    alone: Profile | None = None

    def __post_init__(self):
        p = self.profile
        for name in ("roll", "train"):
            _check(self.name, name, getattr(p, name), 0, LONGEST_S, "s", open_below=True)
        for name in ("sync", "roll_switch", "train_switch"):
            _check(self.name, name, getattr(p, name), 0, LONGEST_S, "s")
        for name in ("roll_nodes", "train_nodes"):
            _whole(self.name, name, getattr(p, name))
        for name in ("roll_bytes", "train_bytes"):
            _check(self.name, name, getattr(p, name), 0, 1e18, "bytes")
        _check(self.name, "arrival", self.arrival, 0, 1e10, "s")
        _check(self.name, "iterations", self.iterations, 0, 1e9, "iterations", open_below=True)
        for share in self.drift:
            _check(self.name, "drift", share, 0, 1, "of its profile", open_below=True)
        if not 1 <= self.slo < math.inf:
            raise RFabricError(
                f"job {self.name}: slo {self.slo:g} cannot be met even alone, as an iteration "
                f"alone takes {p.solo:.4g} s; give an slo of 1 or more"
            )

    @property
    def by_itself(self) -> Profile:
        """Its profile with nobody beside it."""
        return self.alone or self.profile

    @cached_property
    def longest(self) -> float:
        """The seconds that an iteration may take."""
        return self.slo * self.by_itself.solo

    @property
    def seconds(self) -> float:
        """How long the job takes alone, at its profile."""
        return self.iterations * self.by_itself.solo


@dataclass(frozen=True)
class Pools:
    """The two pools: GPUs, dollars an hour and host memory (bytes) of a node; how many nodes there
    are at most.

    RFabricError for unknown GPUs, no nodes, or figures that are not above 0.
    """

    roll_gpu: str = "H20"
    train_gpu: str = "H800"
    gpus_per_node: int = 8
    roll_dollars: float = GPUS["H20"].usd_per_hour
    train_dollars: float = GPUS["H800"].usd_per_hour
    roll_memory: float = NODE_MEMORY_BYTES
    train_memory: float = NODE_MEMORY_BYTES
    roll_nodes: int = MOST_NODES
    train_nodes: int = MOST_NODES

    def __post_init__(self):
        for kind in ("roll", "train"):
            pool = {"roll": "rollout", "train": "training"}[kind]
            if getattr(self, f"{kind}_gpu") not in GPUS:
                raise RFabricError(
                    f"{pool} pool: no GPU {getattr(self, f'{kind}_gpu')!r}; "
                    f"there are {', '.join(GPUS)}"
                )
            if not 1 <= getattr(self, f"{kind}_nodes") <= MOST_NODES or self.gpus_per_node < 1:
                nodes = getattr(self, f"{kind}_nodes")
                raise RFabricError(
                    f"{pool} pool: {nodes} nodes of {self.gpus_per_node} GPUs hold no job; "
                    f"give 1 to {MOST_NODES:,} nodes of 1 GPU or more"
                )
            for what in ("dollars", "memory"):
                if not 0 < getattr(self, f"{kind}_{what}") < math.inf:
                    raise RFabricError(
                        f"{pool} pool: {what} of {getattr(self, f'{kind}_{what}')} must be above 0"
                    )

    @cached_property
    def roll_price(self) -> float:
        """Dollars an hour of a rollout node."""
        return self.gpus_per_node * self.roll_dollars

    @cached_property
    def train_price(self) -> float:
        """Dollars an hour of a training node."""
        return self.gpus_per_node * self.train_dollars

    def price(self, roll_nodes: int, train_nodes: int) -> float:
        """Dollars an hour of so many nodes."""
        return roll_nodes * self.roll_price + train_nodes * self.train_price

    def admit(self, job: Job) -> Job:
        """`job`, if it fits the pools when it is alone there; else an RFabricError naming what it
        lacks.
        """
        for kind, pool in (("roll", "rollout"), ("train", "training")):
            needs, has = getattr(job.profile, f"{kind}_bytes"), getattr(self, f"{kind}_memory")
            if needs >= has:
                raise RFabricError(
                    f"job {job.name}: its {pool} phase keeps {needs / 1e9:.4g} GB resident on "
                    f"a node, a {pool} node holds {has / 1e9:.4g} GB; spread it over more "
                    "nodes or give larger ones"
                )
            needs, has = getattr(job.profile, f"{kind}_nodes"), getattr(self, f"{kind}_nodes")
            if needs > has:
                raise RFabricError(
                    f"job {job.name}: asks for {needs} {pool} nodes, the {pool} pool has {has}"
                )
        return job


# field of Profile or Job, factor to bytes and seconds (None: text), whether it may be left out
Column = tuple[str, float | None, bool]
COLUMNS: dict[str, Column] = {
    "name": ("name", None, False),
    "roll_s": ("roll", 1.0, False),
    "train_s": ("train", 1.0, False),
    "sync_s": ("sync", 1.0, True),
    "roll_nodes": ("roll_nodes", 1, True),
    "train_nodes": ("train_nodes", 1, True),
    "roll_memory_gb": ("roll_bytes", 1e9, True),
    "train_memory_gb": ("train_bytes", 1e9, True),
    "roll_switch_s": ("roll_switch", 1.0, True),
    "train_switch_s": ("train_switch", 1.0, True),
    "slo": ("slo", 1.0, True),
    "arrival_s": ("arrival", 1.0, True),
    "iterations": ("iterations", 1.0, True),
}
OTHER_KIND = {  # columns of the other kind of CSV, and when that is read
    "recipe": "; recipes are read with a fabric: --topo FABRIC",
    "roll_s": "; seconds of phases are read without --topo, whose fabric says them of recipes",
}
_OF_PROFILE = {f.name for f in fields(Profile)}


def read_jobs(path: str | Path) -> list[Job]:
    """The jobs of a CSV with the columns of `COLUMNS`, by arrival; a cell left empty takes the
    default.

    RFabricError for a file that cannot be read, other columns, names that stand twice, bad figures.
    """
    jobs = [_job(name, row) for name, row in rows_of(path, COLUMNS).items()]
    return sorted(jobs, key=lambda job: job.arrival)


def rows_of(path: str | Path, columns: Mapping[str, Column]) -> dict[str, dict[str, str]]:
    """The rows of a CSV of jobs with these columns, by name. RFabricError as `read_jobs`."""
    try:
        lines = read_text(path).splitlines(keepends=True)
        reader = csv.DictReader((line for line in lines if not line.startswith("#")), strict=True)
        rows, named = list(reader), list(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise RFabricError(f"jobs {path}: cannot be read: {error}") from error
    if twice(named):
        raise RFabricError(f"jobs {path}: column {twice(named)!r} stands twice; keep one")
    unknown = [column for column in named if column not in columns]
    missing = [
        name for name, (_, _, optional) in columns.items() if not optional and name not in named
    ]
    if unknown or missing:
        what = f"unknown column {unknown[0]!r}" if unknown else f"column {missing[0]!r} is missing"
        other = next((OTHER_KIND[column] for column in unknown if column in OTHER_KIND), "")
        raise RFabricError(f"jobs {path}: {what}; the columns are {', '.join(columns)}{other}")
    jobs: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows, 1):
        name = (row.get("name") or "").strip()
        if not name:
            raise RFabricError(f"jobs {path}: row {number} has no name")
        if name in jobs:
            raise RFabricError(f"jobs {path}: job {name} stands twice; give each its own name")
        jobs[name] = row
    if not jobs:
        raise RFabricError(f"jobs {path}: holds no jobs; write one a row below the line of columns")
    return jobs


def figures_of(
    name: str, row: Mapping[str, str], columns: Mapping[str, Column]
) -> dict[str, float]:
    """The figures of a row by field, in bytes and seconds; those left empty left out."""
    values = {}
    for column, (field, factor, optional) in columns.items():
        text = (row.get(column) or "").strip()
        if factor is None or (not text and optional):
            continue
        values[field] = _number(name, column, text) * factor
    return values


def _job(name: str, row: Mapping[str, str]) -> Job:
    values = figures_of(name, row, COLUMNS)
    profile = Profile(**{k: v for k, v in values.items() if k in _OF_PROFILE})
    return Job(name, profile, **{k: v for k, v in values.items() if k not in _OF_PROFILE})


def _number(job: str, column: str, text: str) -> float:
    if not text:
        raise RFabricError(f"job {job}: {column} is missing; its profile must say it")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RFabricError(f"job {job}: {column} {text!r} is no number; write one without a unit")
    return int(value) if column.endswith("_nodes") and value == int(value) else value


def _check(
    job: str, name: str, value: float, low: float, high: float, unit: str, open_below: bool = False
) -> None:
    if not (low < value or (value == low and not open_below)) or not value <= high:
        limit = f"above {low:g}" if open_below else f"{low:g} or more"
        raise RFabricError(
            f"job {job}: {name} of {value:g} {unit} must be {limit} and {high:g} at most"
        )


def _whole(job: str, name: str, value: int) -> None:
    if not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise RFabricError(
            f"job {job}: {name} of {value} must be a whole number, 1 to {MOST_NODES:,}"
        )
