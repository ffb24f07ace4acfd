"""One run, whoever asks for it (`asked`): a verb of the command line, a cell of a grid, an
experiment, or `import rfabric`.

    fabric, traffic, policy, RunSettings -> check -> simulated -> Outcome
                                                     simulated -> one scale -> emulated -> Outcome

What is emulated is simulated first: that says how small and slow it must be, and how true it is.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ..emulate.machines.remote import Machines
from ..errors import PaceError, RFabricError, RunError
from ..fabric import Fabric
from ..optics import Policy, Timing, parse_policy
from ..report.live import LiveView
from ..report.outcome import Outcome
from ..report.result import Result, Scale, fidelity
from ..routing.schemes import DEFAULT_SCHEME, one_way
from ..schedulers import DEFAULT_CIRCUITS
from ..simulate.transport import FLUID, known_transport
from ..simulate.world import PACKETS, simulate
from ..trace import Traffic
from ..units import show_size, show_time

LEAST_PATIENCE = 1.0  # s of wall clock
SLOWER_TRIES = 2  # after a run that was refused for its pace
BYTES_LIMIT = 0.01  # of what a cable carries in the simulation
# the same of the other direction: acknowledgements that say more than usual are longer
ACKS_LIMIT = 0.001
Tell = Callable[[str, dict], None]  # what is under way, and the news of it


@dataclass(frozen=True)
class RunSettings:
    """How traffic is played, on whatever fabric and under whatever policy.

    in_flight     what a rewire does with traffic: one of `optics.IN_FLIGHT`
    repetitions   of loops, simulated: `folded` or `all`
    bandwidth, dilation, sample   of an emulation (`report.result.Scale`); 0: what its host carries
    patience      s of wall clock that the packets of an emulation may take, LEAST_PATIENCE at
                  least; 0: the usual
    out           the folder under which an emulation has its own while it lasts
    pcap          nodes of an emulation whose packets are captured, to files under `pcap_to`
    live          the page that follows the emulations, if any
    transport     what messages take beyond their bytes (`simulate.transport.TRANSPORTS`)
    machines      those that carry an emulation, a part each; here alone where there are none
    """

    engine: str = "simulate"
    seed: int = 0
    routing: str = DEFAULT_SCHEME
    in_flight: str = "hold"
    repetitions: str = "folded"
    bandwidth: float = 0.0
    dilation: float = 0.0
    sample: float = 0.0
    patience: float = 0.0
    out: str | Path = "runs"
    pcap: tuple[str, ...] = ()
    pcap_to: str | Path = "runs"
    live: LiveView | None = None
    machines: Machines = Machines()
    transport: str = FLUID

    def __post_init__(self):
        _ = self.timing  # an error now, not when the first rewire comes
        if 0 < self.patience < LEAST_PATIENCE:
            raise RFabricError(
                f"patience {show_time(self.patience)}: packets that move for less than "
                f"{show_time(LEAST_PATIENCE)} tell nothing; give them more, or leave it out"
            )

    @property
    def timing(self) -> Timing:
        """What a rewire does with traffic in flight, and how long it takes beside its dark time."""
        return Timing(in_flight=self.in_flight)

    def at(self, scale: Scale) -> "RunSettings":
        """The same at a scale that is known."""
        known = {"bandwidth": scale.bandwidth, "dilation": scale.dilation, "sample": scale.sample}
        return replace(self, **known)


@dataclass(frozen=True, eq=False)
class Case:
    """A fabric, and who chooses its circuits: words, or an object that decides."""

    fabric: Fabric
    policy: str | Policy

    @property
    def policy_name(self) -> str:
        """As it was asked for."""
        return self.policy if isinstance(self.policy, str) else self.policy.name

    @property
    def fabric_name(self) -> str:
        """As it was asked for."""
        return self.fabric.spec or self.fabric.name


def require(settings: RunSettings) -> None:
    """RFabricError where the host, or the routing, does not allow what the engine does."""
    known_transport(settings.transport)
    if settings.engine == "simulate":
        return
    one_way(settings.routing)
    if settings.engine == "emulate":
        if settings.transport != FLUID:
            raise RFabricError(
                f"--transport {settings.transport} is simulated; real packets go as the kernel's "
                "TCP has them: leave it out, or simulate (--engine simulate of compare)"
            )
        from ..emulate.sandbox import require as require_host
    else:
        from ..simulate.packets import require as require_host
    require_host()


def cases_of(fabrics: Sequence[Fabric], policies: Sequence[str | Policy]) -> list[Case]:
    """Every fabric under every policy; one without OCS once, as no policy can act on it."""
    return [Case(f, p) for f in fabrics for p in (policies if f.ocses else policies[:1])]


def play(
    cases: Sequence[Case], traffic: Traffic, settings: RunSettings, tell: Tell = lambda *_: None
) -> list[Outcome]:
    """Every case, simulated; or emulated, all at one scale, each with its distance from simulation.

    RFabricError for what cannot be run, before anything is; RunError and PaceError where a run
    broke.
    """
    for case in cases:
        check(case, settings.engine, len(settings.machines.all))
    expected = [simulated(case, traffic, settings, tell) for case in cases]
    if settings.engine == "simulate":
        return [Outcome(result, inputs=traffic.inputs) for result in expected]
    if settings.engine == PACKETS:
        return [packets(result, traffic, settings, tell) for result in expected]
    if settings.live:
        settings.live.begin(expected)
    at = settings.at(chosen_scale(expected, settings, tell))
    # who gives a scale wants that one
    tries = 1 if settings.bandwidth or settings.dilation else 1 + SLOWER_TRIES
    return [tried(result, traffic, at, tries, tell) for result in expected]


def packets(
    expected: Result, traffic: Traffic, settings: RunSettings, tell: Tell = lambda *_: None
) -> Outcome:
    """With ns-3's packets what `expected` simulated, and their distance."""
    name = f"ns-3 {expected.fabric.name}"
    result = simulate(
        expected.fabric, traffic.trace, expected.policy if expected.fabric.ocses else "static",
        routing=expected.routing, timing=settings.timing, traffic=expected.traffic,
        seed=expected.seed, repetitions="whole", engine=PACKETS, share=settings.bandwidth,
        transport=settings.transport, progress=lambda news: tell(name, news),
    )  # fmt: skip
    result = result.noted(traffic.notes)
    return _beside(result, expected, traffic)


def _beside(result: Result, expected: Result, traffic: Traffic) -> Outcome:
    """The run of packets, and what it is measured against."""
    from ..emulate.scale import resolution

    distance = fidelity(result, expected, resolution(result))
    return Outcome(result, distance, traffic.inputs, simulated=expected)


def tried(
    expected: Result,
    traffic: Traffic,
    settings: RunSettings,
    tries: int,
    tell: Tell = lambda *_: None,
) -> Outcome:
    """`emulated`, and where the host does not keep pace again, each time at half the rates.

    PaceError when `tries` runs were refused, RunError where one broke; they hold what all of them
    measured.
    """
    from ..emulate.scale import slower

    refused: list[Result] = []
    while True:
        try:
            run = emulated(expected, traffic, settings, tell)
            notes = (*run.result.notes, *map(_refusal, refused))
            return replace(run, result=replace(run.result, notes=notes), refused=tuple(refused))
        except PaceError as error:
            refused += error.refused
            if len(refused) >= tries:
                raise PaceError(str(error), refused) from error
            tell(expected.fabric.name, {"stage": f"again, slower: {error}"})
            scale = Scale(settings.bandwidth, settings.dilation, settings.sample)
            settings = settings.at(slower(scale))
        except RunError as error:
            raise RunError(str(error), [*refused, *error.refused]) from error


def check(case: Case, engine: str, machines: int = 0) -> None:
    """RFabricError where the policy is none, or not one that can be emulated, or the fabric cannot
    be cut for so many machines.
    """
    parse_policy(case.policy, case.fabric)
    if engine == "emulate":
        from ..emulate.machines.slices import sliced
        from ..emulate.world import emulatable

        if machines:
            sliced(case.fabric, machines)
        if not isinstance(case.policy, str):
            raise RFabricError(
                f"policy {case.policy_name} is an object of this process, an emulation is "
                f"decided in another; simulate it"
            )
        emulatable(case.fabric, case.policy)


def simulated(
    case: Case, traffic: Traffic, settings: RunSettings, tell: Tell = lambda *_: None
) -> Result:
    """The case in the flow-level world; loops as packets play them where it is to be emulated."""
    name = f"simulate {case.fabric_name}"
    result = simulate(
        case.fabric, traffic.trace, case.policy, routing=settings.routing, timing=settings.timing,
        traffic=traffic.name, seed=settings.seed,
        repetitions=settings.repetitions if settings.engine == "simulate" else "whole",
        transport=settings.transport, progress=lambda news: tell(name, news),
    )  # fmt: skip
    result = result.noted(traffic.notes)
    return result if isinstance(result.policy, str) else replace(result, policy=case.policy_name)


def emulated(
    expected: Result, traffic: Traffic, settings: RunSettings, tell: Tell = lambda *_: None
) -> Outcome:
    """With real packets what `expected` simulated, at the scale of `settings`; and their
    distance.
    """
    from ..emulate.capture import file_name
    from ..emulate.foreseen import foreseen
    from ..emulate.grain import few_packets
    from ..emulate.scale import resolution
    from ..emulate.world import emulate

    case = Case(expected.fabric, expected.policy if expected.fabric.ocses else DEFAULT_CIRCUITS)
    result = emulate(
        case.fabric,
        traffic.trace,
        case.policy,
        scale=Scale(settings.bandwidth, settings.dilation, settings.sample),
        routing=expected.routing,
        timing=settings.timing,
        traffic=expected.traffic,
        seed=expected.seed,
        out=settings.out,
        progress=lambda news: tell(case.fabric_name, news),
        captures={
            node: Path(settings.pcap_to) / file_name(case.fabric, case.policy_name, node)
            for node in settings.pcap
        },
        looks=settings.live.turn(expected) if settings.live else None,
        machines=settings.machines,
        known=foreseen(expected),
    )
    result = check_link_bytes(result, expected)
    coarse = few_packets(expected, result.scale, resolution(result))
    return _beside(replace(result, notes=(*result.notes, *coarse)), expected, traffic)


def _refusal(result: Result) -> str:
    scale = result.scale
    return (
        f"{result.fabric.name} was run before at bandwidth x {scale.bandwidth:.3g}, time x "
        f"{scale.dilation:.3g}, and not kept: {'; '.join(result.pace.reasons)}"
    )


def check_link_bytes(result: Result, expected: Result) -> Result:
    """The result, with a note where circuits changed under flows, or were others, so that bytes on
    cables say nothing; RunError where a cable carried other bytes of payload than simulated, by
    more than BYTES_LIMIT, two packets, ACKS_LIMIT of what the other direction carried, and, where
    it carried more, what TCP sent again, as far as a run is kept where it does.
    """
    from ..emulate.guard import RESENT_FEW, RESENT_LIMIT
    from ..trace.packets import PAYLOAD

    why = [_other_circuits(result, expected)]
    if changed_under_way(result) or changed_under_way(expected):
        why.insert(0, "circuits changed under flows")
    if why := [some for some in why if some]:
        return _unchecked(result, "; ".join(why))
    ours, theirs = result.link_bytes, expected.link_bytes
    other = theirs.reshape(-1, 2)[:, ::-1].ravel()
    off, packet = np.abs(ours - theirs), PAYLOAD / result.scale.bandwidth
    kept = np.maximum(RESENT_LIMIT * theirs, RESENT_FEW * packet)
    again = np.where(ours > theirs, np.minimum(result.pace.resent * packet, kept), 0.0)
    over = np.flatnonzero(off > BYTES_LIMIT * theirs + ACKS_LIMIT * other + 2 * packet + again)
    if len(over):
        worst = over[np.argmax(off[over])]
        link = result.fabric.links[worst // 2]
        a, b = (link.b, link.a) if worst % 2 else (link.a, link.b)
        why = (
            f"{result.fabric.name}: cable {a} -> {b} carried {show_size(ours[worst])}, simulated "
            f"{show_size(theirs[worst])} ({len(over)} such cables): packets took other paths, or "
            "the host sent much again; run it again with nothing beside"
        )
        raise RunError(why, [replace(result, notes=(*result.notes, why))])
    return result


def _other_circuits(result: Result, expected: Result) -> str:
    """Where circuits came into force that were not simulated; "": nowhere."""
    pairs = zip_longest(*([c for _, c in some.epochs] for some in (result, expected)))
    other = [a != b for a, b in pairs]
    if not any(other):
        return ""
    ours, theirs = (["the start", *(r.phase for r in s.rewires)] for s in (result, expected))
    if ours != theirs:
        return f"rewired for {_listed(ours[1:])}, simulated for {_listed(theirs[1:])}"
    at = [phase for phase, is_other in zip(ours, other, strict=False) if is_other]
    return f"other circuits than simulated came into force for {_listed(at)}"


def _listed(phases: list[str]) -> str:
    counted = Counter(phases).items()
    return ", ".join(f"{phase} x {n}" if n > 1 else phase for phase, n in counted) or "nothing"


def _unchecked(result: Result, why: str) -> Result:
    note = f"{result.fabric.name}: bytes on cables were not compared with the simulation: {why}"
    return replace(result, notes=(*result.notes, note))


def changed_under_way(result: Result) -> bool:
    """Whether circuits came into force while a flow was under way: how its bytes divide among old
    and new ways is a matter of moments.
    """
    sends = result.trace.size > 0
    start, finish = result.start[sends], result.finish[sends]
    times = (*(r.requested for r in result.rewires), *(r.usable for r in result.rewires))
    return any(bool(((start < at) & (finish > at)).any()) for at in times)


def chosen_scale(
    expected: Sequence[Result], settings: RunSettings, tell: Tell = lambda *_: None
) -> Scale:
    """The scale that was asked for; what it leaves open is what the calibrated host can carry."""
    from ..emulate.scale import check_rates_of, run_seconds

    chosen = _chosen_scale(expected, settings, tell)
    for result in expected:
        check_rates_of(result, chosen)
    seconds = [run_seconds(result, chosen) for result in expected]
    runs = "" if len(seconds) == 1 else f", {len(seconds)} runs about {show_time(sum(seconds))}"
    tell("emulate", {"stage": f"a run takes about {show_time(max(seconds))}{runs}"})
    return chosen


def _chosen_scale(expected: Sequence[Result], settings: RunSettings, tell: Tell) -> Scale:
    from ..emulate.machines.measured import measure
    from ..emulate.scale import PATIENCE, choose_sample, choose_scale, least_sample
    from ..emulate.world import calibrate

    bandwidth, dilation = settings.bandwidth, settings.dilation
    patience = settings.patience or PATIENCE
    if bandwidth and dilation:
        return Scale(bandwidth, dilation, settings.sample or choose_sample(expected, patience))
    news, most = (lambda news: tell("calibrate", news)), float("inf")
    if settings.machines:
        carries, most = measure(expected, settings.machines, news, settings.out)
    else:
        carries = calibrate(progress=news, out=settings.out)
    sample = settings.sample or choose_sample(
        expected, patience, least_sample(expected, carries, most)
    )
    chosen = choose_scale(expected, carries, patience, sample, most)
    if dilation:  # the same shaped rates
        return replace(
            chosen, bandwidth=chosen.bandwidth * dilation / chosen.dilation, dilation=dilation
        )
    return replace(chosen, bandwidth=bandwidth) if bandwidth else chosen
