"""One run, whoever asks for it: a verb of the command line, a cell of a grid, or `import rfabric`.

    fabric, traffic, policy, RunSettings -> check -> simulated -> Outcome
                                                     simulated -> one scale -> emulated -> Outcome

What is emulated is simulated first: that says how small and slow it must be, and how true it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import RFabricError
from ..fabric import Fabric
from ..optics import Policy, Timing, parse_policy
from ..report.outcome import Outcome
from ..report.result import Result, Scale, fidelity
from ..routing.schemes import DEFAULT_SCHEME, one_way
from ..schedulers.table import DEFAULT_CIRCUITS, Policies, parse_policies
from ..simulate.world import simulate
from ..trace import Traffic

Tell = Callable[[str, dict], None]  # what is under way, and the news of it


@dataclass(frozen=True)
class RunSettings:
    """How traffic is played, on whatever fabric and under whatever policy.

    repetitions   of loops, simulated: `folded` or `all`
    bandwidth, dilation, sample   of an emulation (`report.result.Scale`); 0: what its host carries
    out           the folder under which an emulation has its own while it lasts
    """

    engine: str = "simulate"
    seed: int = 0
    routing: str = DEFAULT_SCHEME
    timing: Timing = Timing()
    repetitions: str = "folded"
    bandwidth: float = 0.0
    dilation: float = 0.0
    sample: float = 0.0
    out: str | Path = "runs"

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


def asked_policies(words: Sequence[str]) -> list[Policies]:
    """What `--policy` was given as, each once; the default where nothing was given."""
    return [parse_policies(text) for text in dict.fromkeys(words)] or [
        parse_policies(DEFAULT_CIRCUITS)
    ]


def one_scheduler(asked: Sequence[Policies]) -> str:
    """The compute scheduler of a run: its folder holds one trace."""
    found = list(dict.fromkeys(policy.scheduler for policy in asked))
    if len(found) > 1:
        names = " and ".join(name or "the recipe's own" for name in found)
        raise RFabricError(
            f"one run has one compute scheduler, not {names}; `rfabric compare` puts several "
            "side by side"
        )
    return found[0]


def require(settings: RunSettings) -> None:
    """RFabricError where the host, or the routing, does not allow what the engine does."""
    if settings.engine == "emulate":
        from ..emulate.sandbox import require as require_host

        one_way(settings.routing)
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
        check(case, settings.engine)
    expected = [simulated(case, traffic, settings, tell) for case in cases]
    if settings.engine == "simulate":
        return [Outcome(result, inputs=traffic.inputs) for result in expected]
    settings = settings.at(chosen_scale(expected, settings, tell))
    return [emulated(result, traffic, settings, tell) for result in expected]


def check(case: Case, engine: str) -> None:
    """RFabricError where the policy is none, or not one that can be emulated."""
    parse_policy(case.policy, case.fabric)
    if engine == "emulate":
        from ..emulate.world import emulatable

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
        repetitions="whole" if settings.engine == "emulate" else settings.repetitions,
        progress=lambda news: tell(name, news),
    )  # fmt: skip
    return result if isinstance(result.policy, str) else replace(result, policy=case.policy_name)


def emulated(
    expected: Result, traffic: Traffic, settings: RunSettings, tell: Tell = lambda *_: None
) -> Outcome:
    """With real packets what `expected` simulated, at the scale of `settings`; and their
    distance.
    """
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
    )
    return Outcome(result, fidelity(result, expected, resolution(result)), traffic.inputs)


def chosen_scale(
    expected: Sequence[Result], settings: RunSettings, tell: Tell = lambda *_: None
) -> Scale:
    """The scale that was asked for; what it leaves open is what the calibrated host can carry."""
    from ..emulate.scale import choose_sample, choose_scale
    from ..emulate.world import calibrate

    bandwidth, dilation, sample = (
        settings.bandwidth,
        settings.dilation,
        settings.sample or choose_sample(expected),
    )
    if bandwidth and dilation:
        return Scale(bandwidth, dilation, sample)
    carries = calibrate(progress=lambda news: tell("calibrate", news), out=settings.out)
    chosen = choose_scale(expected, carries, sample=sample)
    if dilation:  # the same shaped rates
        return replace(
            chosen, bandwidth=chosen.bandwidth * dilation / chosen.dilation, dilation=dilation
        )
    return replace(chosen, bandwidth=bandwidth) if bandwidth else chosen
