"""What the options of a run ask for, as the library has it: `AskedRun`, `RunSettings`, `Grid`."""

import argparse
import logging
from collections.abc import Iterable, Sequence

from ..emulate.machines.remote import AGENT, RSH, Machines, parse_machines
from ..errors import RFabricError
from ..schedulers.table import DEFAULT_CIRCUITS, usual_traffic
from ..schedulers.traffic import needs_of_job
from ..simulate.transport import FLUID
from ..study.asked import AskedRun, policies_of, usual_fabrics
from ..study.grid import Grid
from ..study.run import RunSettings
from .terminal import Talk

log = logging.getLogger(__name__)

# options that count for nothing where the engine sends no real packets
IDLE = {
    "simulate": {"--bandwidth-scale", "--time-dilation", "--sample", "--patience"},
    "ns3": {"--time-dilation", "--sample", "--patience"},
}


def say_idle(args: argparse.Namespace, engines: Iterable[str]) -> None:
    """Say which typed options none of these engines heeds. A run's command may have some from a
    rfabric.toml, and is to run again, so they are no error.
    """
    idle = set.intersection(*(IDLE.get(engine, set()) for engine in engines))
    if typed := [option for option in dict.fromkeys(args.typed) if option in idle]:
        log.warning(
            "%s: of real packets, and counts for nothing here: --engine emulate sends some",
            ", ".join(typed),
        )


def settings_of(args: argparse.Namespace, engine: str, seed: int) -> RunSettings:
    """How it is to be played."""
    scale = (
        getattr(args, name, None) or 0.0
        for name in ("bandwidth_scale", "time_dilation", "sample", "patience")
    )
    return RunSettings(
        engine, seed, args.routing, args.in_flight, args.repetitions, *scale, out=args.out,
        machines=_machines(args), transport=getattr(args, "transport", FLUID),
    )  # fmt: skip


def _machines(args: argparse.Namespace) -> Machines:
    """What --on says, and how they are reached; RFabricError where only the latter is said."""
    if getattr(args, "on", None) is not None:
        return parse_machines(args.on, args.rsh, args.rfabric_path)
    for option, usual in (("rsh", RSH), ("rfabric_path", AGENT)):
        if getattr(args, option, usual) != usual:
            word = option.replace("_", "-")
            raise RFabricError(f"--{word} is for the machines of --on: name them with --on")
    return Machines()


def asked_of(args: argparse.Namespace) -> AskedRun:
    """One traffic on fabrics under policies, each once."""
    fabrics, policies = (tuple(dict.fromkeys(words)) for words in (args.topo, args.policy))
    usual = _traffic_for(policies, args)
    return AskedRun(fabrics, args.traffic or usual, policies, tuple(args.set))


def _traffic_for(policies: Sequence[str], args: argparse.Namespace) -> str:
    """The traffic that these policies are shown on; RFabricError where one names nobody."""
    return usual_traffic((one.scheduler for one in policies_of(policies)), args.usual)


def grid_of(args: argparse.Namespace, engine: str, talk: Talk) -> Grid:
    """Several traffics and seeds, on fabrics under policies."""
    policies = tuple(dict.fromkeys(args.policy)) or (DEFAULT_CIRCUITS,)
    traffics = tuple(dict.fromkeys(args.traffic)) or (_traffic_for(policies, args),)
    seeds = _seeds(args)
    talk.tell(traffics[0], {"stage": "trace"})
    fabrics = tuple(dict.fromkeys(args.topo)) or usual_fabrics(needs_of_job(traffics[0], args.set))
    return Grid(
        fabrics,
        policies,
        traffics,
        seeds,
        engine,
        tuple(args.set),
        args.in_flight,
        command=args.command,
        routing=args.routing,
        match=args.match,
        repetitions=args.repetitions,
        transport=args.transport,
    )


def _seeds(args: argparse.Namespace) -> tuple[int, ...]:
    seeds = tuple(dict.fromkeys(args.seed)) or (0,)
    if not args.seeds:
        return seeds
    if len(seeds) > 1:
        raise RFabricError(
            f"--seeds {args.seeds} counts from one --seed, and {len(seeds)} were given: keep one, "
            "or leave --seeds out"
        )
    return tuple(range(seeds[0], seeds[0] + args.seeds))
