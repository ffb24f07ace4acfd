"""What is told beside a run: the same fabrics under larger jobs, and what orchestrrl would have
planned where a fabric answered it.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ..fabric import Needs
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, asked_network
from ..specs import head_of
from .asked import AskedRun, Prepared, one_scheduler, traffic_on
from .cell_folders import run
from .grid import Grid, entries_of
from .run import Tell

ASKS = ",network=fabric"
ASKED = ("rfabric", "fat-tree,oversubscription=4")  # whose answers are shown beside those of cards
# what the default job stands for: beyond packets, so simulated
LARGER = ("grpo-1024-235b", "grpo-4096-235b")


def at_sizes(ready: Prepared, seed: int, tell: Tell = lambda *_: None) -> list[dict]:
    """The same fabrics at the sizes of LARGER, simulated: an entry a recipe and fabric, with its
    cost.
    """
    names = tuple(f.spec or f.name for f in ready.fabrics)
    grid = Grid(names, (DEFAULT_CIRCUITS,), LARGER, (seed,))
    with TemporaryDirectory() as folder:
        return entries_of(run(grid, Path(folder), progress=lambda news: tell("at size", news)))


def has_plans(asked: AskedRun, scheduler: str) -> bool:
    """Whether `plans` has any: of orchestrrl on no fabric in particular, which asks nobody."""
    return head_of(scheduler) == "orchestrrl" and not (asked.fabrics or asked_network(scheduler))


def plans(asked: AskedRun, ready: Prepared, seed: int, tell: Tell = lambda *_: None) -> list[dict]:
    """What orchestrrl decided, and what it would have where a fabric answers it; of runs on the
    default fabrics, all of which play the plan that no fabric was asked for.
    """
    scheduler = one_scheduler(ready.policies)
    facts = ready.traffic.trace.provenance.get("scheduler_facts")  # of one job; several have none
    if facts is None or not has_plans(asked, scheduler):
        return []
    told = [{"network": "network cards"} | facts]
    for spec in ASKED:
        tell(f"plan agreed with {spec}", {"stage": "schedule"})
        asks = Policies(scheduler + ASKS, DEFAULT_CIRCUITS)
        place = partial(Needs.fabric, spec=spec)
        made = traffic_on(asked.traffic, asked.settings, seed, [asks], [place])
        told.append(made.trace.provenance["scheduler_facts"])
    return told
