"""summary.json: one document that says what came out, for programs (`--json`) and for the report.

    {"command", "created", "versions", "runs": [{fabric, policy, engine, traffic, seed, gpus,
    step_s, exposed_s, steps,
      phases: {generation|training|weight_sync: {seconds, comm_s, exposed_s, bytes, within_s}},
      rewires: [{epoch, requested_s, programmed_s, dark_until_s, usable_s, circuits_changed,
      lost_bytes}], dark_s, lost_bytes, scale, fidelity, pace, cost}]}

`step_s` spans all `steps` of a trace, and so does `exposed_s`, what communication adds to it;
phases of one name add up over them, also where they overlap; `step_within_s` and
`within_s` say between what measurements lie about predictions of their kinds (`report/within`).
Keys are never renamed, only added.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np

from .. import __version__
from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cabling import cabling_of
from ..fabric.cost import Bill, bill, with_price
from ..fabric.dollars import CpuServers, Gpus, StepCost, step_cost
from ..files import read_json
from ..plugins import digests
from ..units import show_rate, show_time
from .result import Result
from .within import phases_within, step_within

VERSION = 1
KEYS = ("version", "created", "command", "versions", "runs")
RUN_KEYS = (
    "fabric",
    "policy",
    "engine",
    "traffic",
    "seed",
    "gpus",
    "step_s",
    "phases",
    "rewires",
    "dark_s",
    "lost_bytes",
    "scale",
    "fidelity",
    "pace",
    "cost",
)

ROW_COLUMNS = (
    "label",
    "fabric",
    "policy",
    "scheduler",
    "routing",
    "engine",
    "traffic",
    "seed",
    "gpus",
    "step_s",
)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One result and, where it was emulated, its distance from the simulation of the same trace
    (`result.fidelity`).

    refused:   what was measured before, in runs that did not keep pace: no figures to use
    simulated: of a run of packets the simulation that `fidelity` is the distance from
    """

    result: Result
    fidelity: dict | None = None
    refused: tuple[Result, ...] = field(default=(), kw_only=True)
    simulated: Result | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return repr(self.result)


def summary_of(
    runs: Sequence[Run], command: str, created: str, versions: dict | None = None
) -> dict:
    """The document of these runs; `created` is ISO 8601."""
    known = host_versions() | (versions or {})
    for run in runs:
        known |= run.result.versions | _files(run.result)
    return {
        "version": VERSION,
        "created": created,
        "command": command,
        "versions": known,
        "runs": [
            run_summary(run) | {"label": label}
            for run, label in zip(runs, labels(runs), strict=True)
        ],
    }


def _files(result: Result) -> dict[str, str]:
    """The plug-ins that took part, each with the SHA-256 of its file."""
    scheduler = result.trace.provenance.get("scheduler", "")
    return digests(result.fabric.spec, result.policy, result.routing, scheduler)


def run_summary(run: Run) -> dict:
    """What one run came to."""
    result = run.result
    return {
        "fabric": result.fabric.spec or result.fabric.name,
        "policy": result.policy,
        "scheduler": result.trace.provenance.get("scheduler", ""),
        "routing": result.routing,
        "engine": result.engine,
        "transport": result.transport,
        "traffic": result.traffic,
        "seed": result.seed,
        "gpus": len(result.fabric.hosts),
        "nic_bps": nic_rates(result.fabric),
        "step_s": result.step_seconds,
        "exposed_s": result.exposed_seconds,
        "step_within_s": step_within(result),
        "steps": steps_of(result),
        "phases": _phases(result),
        "rewires": [r.to_json() for r in result.rewires],
        "dark_s": result.dark_seconds,
        "lost_bytes": result.lost_bytes,
        "scale": result.scale.to_json(),
        "fidelity": run.fidelity,
        "pace": result.pace.to_json(),
        "cost": cost(result),
        "notes": list(result.notes),
        "repetitions": played_of(result),
    }


def _phases(result: Result) -> dict[str, dict]:
    """The sums of each phase name, with their intervals."""
    within = phases_within(result)
    return {
        name: sums | {"within_s": within.get(name)} for name, sums in phase_sums(result).items()
    }


def played_of(result: Result) -> dict | None:
    """How the loops of its trace were played, and where folded by how much that may be off; None of
    a trace without loops.
    """
    origin = result.trace.origin
    if origin is None:
        return None
    return {"played": origin.how, "folding": result.folding and result.folding.to_json()}


def nic_rates(fabric: Fabric) -> list[float]:
    """bit/s of the NICs of a GPU, each rate once: of the hosts' cables, or where a server stands
    above, a share of its.
    """
    c = cabling_of(fabric)
    end, other = c.node, c.node[np.arange(len(c.node)) ^ 1]
    host, server = (np.array([n.tier == tier for n in fabric.nodes]) for tier in ("host", "server"))
    up, down = server[end] & ~host[other], server[end] & host[other]
    above = np.bincount(end[up], c.rate[up], minlength=len(host))
    below = np.bincount(end[down], minlength=len(host))
    alone = host[end] & ~server[other]
    above[end[alone]], below[end[alone]] = c.rate[alone], 1
    some = (above > 0) & (below > 0)
    return np.unique(above[some] / below[some]).tolist()


def phase_sums(result: Result) -> dict[str, dict]:
    """Seconds, seconds with a flow in flight, exposed seconds and bytes of each phase name, steps
    added up.
    """
    sums: dict[str, dict] = {}
    for phase in result.phases:
        entry = sums.setdefault(
            phase.key.phase or "flows",
            {"seconds": 0.0, "comm_s": 0.0, "exposed_s": 0.0, "bytes": 0},
        )
        for key, value in zip(
            entry, (phase.seconds, phase.comm, phase.exposed, phase.bytes), strict=True
        ):
            entry[key] += value
    return sums


def cost(result: Result, ocs_port_usd: float | None = None) -> dict:
    """What the fabric costs, and the energy its network takes and dollars, both a step: the mean of
    the run's steps; None and why where it has no price. An OCS port costs what the table lists, or
    `ocs_port_usd`.
    """
    try:
        priced = bill_of(result.fabric, ocs_port_usd)
    except RFabricError as error:
        unknown = dict.fromkeys(
            ("network_usd", "network_watts", "step_joules", "usd_per_step", "usd_per_step_parts")
        )
        return unknown | {"why": str(error)}
    seconds = result.step_seconds / steps_of(result)
    joules = None if priced.watts is None else round(priced.watts * seconds, 1)
    paid = dollars(result, priced)
    usd = paid.to_json() if paid else {"usd_per_step": None, "usd_per_step_parts": None}
    if paid and "held" in result.trace.provenance:
        usd["usd_per_step_jobs"] = dollars_of_jobs(result, paid)
    return priced.to_json() | {"step_joules": joules} | usd


def bill_of(fabric: Fabric, ocs_port_usd: float | None = None) -> Bill:
    """The fabric's bill, an OCS port at this price (USD) or as listed; RFabricError without one."""
    return bill(fabric, () if ocs_port_usd is None else with_price("ocs-port", ocs_port_usd))


def steps_of(result: Result) -> int:
    """How many steps the run's `step_s` spans, from its first instant to its last finish."""
    return max(len(np.unique(result.trace.step)), 1)


def dollars(result: Result, priced: Bill) -> StepCost | None:
    """Dollars a step, the mean of the run's steps; None where the trace does not say what its GPUs
    cost.
    """
    said = result.trace.provenance
    if said.get("gpus_usd_per_hour") is None:
        return None
    hosts = len(result.fabric.hosts)
    # traces of before do not say how many GPUs they price: all hosts that are no CPU servers
    count = said.get("gpus", hosts - said.get("cpu_servers", 0))
    gpus = Gpus(said["gpus_usd_per_hour"], said.get("gpus_watts"), cards=count / hosts)
    seconds = result.step_seconds / steps_of(result)
    return step_cost(seconds, gpus, priced, servers=_cpu_servers(said))


def _cpu_servers(said: Mapping) -> CpuServers | None:
    if not said.get("cpu_servers"):
        return None
    return CpuServers(said["cpu_servers_usd_per_hour"], said["cpu_servers_watts"])


def dollars_of_jobs(result: Result, mean: StepCost) -> dict[str, float]:
    """Dollars a step of each of several jobs, `mean` being that of a step of any: all that is paid,
    by share of GPU time.

    A job's GPU time is that of its phases, on the nodes they hold, at the price of these; what
    moves while it generates holds none but those; nodes that idle are paid by all alike.
    """
    held: dict[str, dict[str, float]] = result.trace.provenance["held"]
    names, time, steps = list(held), Counter(), Counter()
    for phase in result.phases:
        job = names[phase.key.step % len(names)]
        time[job] += phase.seconds * held[job].get(phase.key.phase, 0.0)
        steps[job] += phase.key.phase == "training"
    whole = mean.usd * len(np.unique(result.trace.step))
    return {job: whole * time[job] / time.total() / steps[job] for job in names if steps[job]}


def exposed_of(entry: dict) -> float:
    """What communication adds to a run, from its entry in a summary; those of before say it only by
    phase.
    """
    added = sum(phase["exposed_s"] for phase in entry["phases"].values())
    return entry.get("exposed_s", added)


def row_of(entry: dict) -> dict:
    """A run in plain values, from its entry in a summary."""
    row = {name: entry[name] for name in ROW_COLUMNS}
    row["exposed_s"] = exposed_of(entry)
    row |= {
        "rewires": len(entry["rewires"]),
        "dark_s": entry["dark_s"],
        "lost_bytes": entry["lost_bytes"],
    }
    row |= {
        name: entry["cost"].get(name) for name in ("network_usd", "network_watts", "usd_per_step")
    }
    for name, phase in entry["phases"].items():
        row |= {f"{name}_s": phase["seconds"], f"{name}_exposed_s": phase["exposed_s"]}
    return row


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: the fabric's, then only what tells it from the others."""
    names = [_name(run.result, [r.result for r in runs]) for run in runs]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:  # the same fabric under several policies
        names = [
            f"{n} {r.result.policy}" if n in repeated else n
            for n, r in zip(names, runs, strict=True)
        ]
    return [
        f"{name} #{names[:i].count(name) + 1}" if name in names[:i] else name
        for i, name in enumerate(names)
    ]


def _name(result: Result, every: Sequence[Result]) -> str:
    fabric = result.fabric
    same = [r.fabric.parameters for r in every if r.fabric.name == fabric.name]
    differing = [key for key in fabric.parameters if len({repr(p.get(key)) for p in same}) > 1]
    if differing == ["oversubscription"]:
        return f"{fabric.name} {fabric.parameters['oversubscription']:g}:1"
    return " ".join([fabric.name, *(setting(key, fabric.parameters[key]) for key in differing)])


def setting(key: str, value: object) -> str:
    """`rate_bps`, 4e11 -> `rate=400G`: as one types it in a fabric's spec."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = {"_bps": show_rate, "_s": show_time}
        for unit, show in shown.items():
            if key.endswith(unit):
                return (
                    f"{key.removesuffix(unit)}={show(value).replace(' ', '').removesuffix('bit/s')}"
                )
        return f"{key}={value:g}"
    return f"{key}={value}"


def host_versions() -> dict:
    """What ran: rfabric, Python, the libraries that decide figures, the kernel."""
    libraries = {name: metadata.version(name) for name in ("numpy", "networkx")}
    return (
        {"rfabric": __version__, "python": platform.python_version()}
        | libraries
        | {"kernel": platform.release()}
    )


def read_summary(path: str | Path) -> dict:
    """Read and check a summary.json; RFabricError names what is missing."""
    path = Path(path)
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise RFabricError(f"{path}: cannot be read as JSON: {error}") from error
    return check_summary(data, str(path))


def check_summary(data: object, name: str) -> dict:
    """`data`, when it has the form of a summary. RFabricError where it has not."""
    if not isinstance(data, dict):
        raise RFabricError(f"{name}: a summary is an object with {', '.join(KEYS)}")
    _has(data, KEYS, name)
    if data["version"] != VERSION:
        raise RFabricError(
            f"{name}: summary version {data['version']!r}; this rfabric reads version {VERSION}"
        )
    if not isinstance(data["runs"], list):
        raise RFabricError(f"{name}: runs must be a list")
    for i, run in enumerate(data["runs"]):
        if not isinstance(run, dict):
            raise RFabricError(f"{name}: runs[{i}] must be an object with {', '.join(RUN_KEYS)}")
        _has(run, RUN_KEYS, f"{name}: runs[{i}]")
    return data


def _has(data: dict, keys: Sequence[str], name: str) -> None:
    missing = [key for key in keys if key not in data]
    if missing:
        raise RFabricError(f"{name}: {', '.join(missing)} missing; it must have {', '.join(keys)}")
