"""A fabric that is up and waits for orders: its network, its controller, what its switches hold.

The prompt and the drills stand on it. All of it lies in the private world of one run.
"""

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from ..control.addresses import LOOPBACK, OFP_PORT, REST_PORT, REST_URL
from ..control.client import Client, Committed, PlannedRewire
from ..control.epochs import MESSAGE_S
from ..control.journal import NONE
from ..control.launch import command
from ..fabric import Fabric, Port
from ..optics import Circuit, Circuits, Demand, Timing
from ..plugins import listing
from ..report.result import Scale
from ..trace.packets import WAY
from .network import NEXT, EmulatedNetwork, fastest_line
from .sandbox import Sandbox, datapath, run

CONTROLLER, STANDBY = "controller", "standby"  # children of the sandbox
READY_S = 30.0  # s the controller may take to come up, and to program every switch
# s of wall clock the controller may take to answer, beside the dark time and what it tells switches
ANSWER_S = 30.0
JOURNAL_BYTES = 8 << 20  # of the disk that the journal has to itself


def start_controller(
    box: Sandbox,
    fabric: Fabric,
    folder: Path,
    *plugins: str,
    journal: str = NONE,
    before: Sequence[str] = (),
    standby: bool = False,
) -> None:
    """Start the Ryu app of this fabric: the OCS app where there are circuits, else ECMP.

    It listens after a while, at the usual ports: in a network namespace of the run's own they are
    free. plugins: a policy and a routing that may stand in files, which the controller then runs.
    journal: without a folder it forgets all with its end, and what the user's own controller keeps
    is not for it. before: words that go before its command. standby: a second one, which waits
    until the first has ended.
    """
    spec = folder / "fabric.json"
    spec.write_text(json.dumps(fabric.to_json()))
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | listing(*plugins)
    rest, ofp = (port + NEXT * standby for port in (REST_PORT, OFP_PORT))
    argv = command(str(spec), LOOPBACK, rest, ofp_port=ofp, journal=journal)
    name, stands_by = (STANDBY, "1") if standby else (CONTROLLER, "")
    box.start(name, [*before, *argv], env | {"RFABRIC_STANDBY": stands_by})


def rest_of(pairs: Collection[tuple[str, str]], dark: float = 0.0) -> Client:
    """The controller of this world, asked by one who waits as long as it does for its switches:
    these pairs have a rule each way at every switch of their way. dark: s of wall clock of a
    rewire.
    """
    rules = 2 * WAY * len(pairs)
    patience = ANSWER_S + MESSAGE_S * rules + dark
    return Client(REST_URL, timeout=patience)


@dataclass(frozen=True)
class Controller:
    """The control plane as the replay sees it: plans and commits by REST, at most one plan open."""

    rest: Client
    policy: str
    scale: Scale
    timing: Timing

    def plan(
        self, demand: Demand, pairs: list[tuple[str, str]], now: float, upcoming: Sequence[Demand],
        sending: Sequence[Demand] = (), also: Sequence[Circuits] = (),
    ) -> PlannedRewire:  # fmt: skip
        """An intent; see `Client.plan`. `now` in s of the emulated clock."""
        words = self.scale.dilation, self.timing.in_flight, None, sending, also, self.timing.control
        return self.rest.plan(self.policy, demand, pairs, now, upcoming, *words)

    def plan_circuits(
        self, circuits: Circuits, pairs: Sequence[tuple[str, str]], **words: float
    ) -> PlannedRewire:
        """A plan for just these circuits; `words` as in `POST /plans`."""
        told = {
            "time_dilation": self.scale.dilation,
            "in_flight": self.timing.in_flight,
            "control_s": self.timing.control,
        }
        return self.rest.plan_circuits(
            circuits, pairs=[list(pair) for pair in pairs], **told | words
        )

    def abort(self, epoch: int) -> None:
        """Give up a plan that was not committed."""
        self.rest.abort(epoch)

    def commit(self, epoch: int) -> Committed:
        """Carry out a plan; RunError where it was rolled back."""
        return self.rest.commit(epoch)

    def before_the_job(self, circuits: Circuits, pairs: Sequence[tuple[str, str]]) -> None:
        """One plan, in force before the job begins: nobody waits for the OCSes, even a patch
        panel.
        """
        plan = self.plan_circuits(circuits, pairs, delay_s=0.0)
        if plan.rewire:
            self.commit(plan.epoch)

    def done(self) -> dict[int, dict]:
        """The rewires that were committed, by epoch, with what the switches reported late."""
        return {plan["epoch"]: plan for plan in self.rest.plans() if plan["usable_s"] is not None}


@dataclass(frozen=True)
class Live:
    """A fabric that is up: every host can reach every other. `journal`: what its controller keeps,
    NONE or a folder on a disk of its own.
    """

    box: Sandbox
    fabric: Fabric
    folder: Path
    network: EmulatedNetwork
    rest: Client
    journal: str

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every ordered pair of hosts."""
        return list(permutations(self.fabric.hosts, 2))

    def rewire(self, circuits: Circuits) -> Committed | None:
        """Plan and commit just these circuits; None where they are lit. RunError where it was
        rolled back.
        """
        plan = self.rest.plan_circuits(circuits)
        return self.rest.commit(plan.epoch) if plan.rewire else None

    def start_controller(self, before: Sequence[str] = ()) -> None:
        """The next one, and wait until it is ready."""
        start_controller(self.box, self.fabric, self.folder, journal=self.journal, before=before)
        self.rest.wait_ready(READY_S, self.box.check)

    @contextlib.contextmanager
    def standby(self) -> Iterator[Client]:
        """A second controller, which knows every switch and waits for the end of the first."""
        words = {"journal": self.journal, "standby": True}
        start_controller(self.box, self.fabric, self.folder, **words)
        try:
            self.box.wait_port(REST_PORT + NEXT, STANDBY, READY_S)
            self.network.join_controllers(standby=True)
            second = Client(f"http://{LOOPBACK}:{REST_PORT + NEXT}", timeout=self.rest.timeout)
            switches = len(self.fabric.switches)
            self.box.wait(STANDBY, lambda: second.health()["connected"] == switches, READY_S)
            yield second
        finally:
            self.box.kill(STANDBY)
            self.network.join_controllers(standby=False)

    def lit(self) -> Circuits:
        """The circuits that the switches themselves hold both ways."""
        return Circuits(frozenset(one for ocs in self.fabric.ocses for one in _circuits(ocs.name)))


def _circuits(ocs: str) -> list[Circuit]:
    held = crossbar(ocs)
    return [Circuit.of(Port(ocs, a), Port(ocs, b)) for a, b in held.items() if held.get(b) == a]


def crossbar(bridge: str) -> dict[int, int]:
    """In-port -> out-port of an OCS, as its switch says."""
    asked = ["ovs-ofctl", "-OOpenFlow13", "--no-stats", "--no-names", "dump-flows", bridge]
    return {
        int(a): int(b) for a, b in re.findall(r"in_port=(\d+) actions=output:(\d+)", run(asked))
    }


@contextlib.contextmanager
def live(
    folder: Path, fabric: Fabric, rate: float, keeps: bool = False, plugins: Sequence[str] = (),
    delays: bool = False,
) -> Iterator[Live]:  # fmt: skip
    """Bring `fabric` up with `rate` bit/s on its fastest cable outside servers.

    keeps: its controller has a journal, on a disk of its own. plugins: see `start_controller`.
    delays: see `EmulatedNetwork`.
    """
    with Sandbox(folder) as box:
        journal = str(disk(box)) if keeps else NONE
        start_controller(box, fabric, folder, *plugins, journal=journal)
        scale = rate / fastest_line(fabric)
        network = EmulatedNetwork(box, fabric, scale, datapath(), OFP_PORT, delays=delays)
        network.start(until_listening=lambda: box.wait_port(OFP_PORT, CONTROLLER, READY_S))
        rest = rest_of(list(permutations(fabric.hosts, 2)))
        up = Live(box, fabric, folder, network, rest, journal)
        rest.wait_ready(READY_S, box.check)
        rest.put_pairs(up.pairs)
        yield up


def disk(box: Sandbox) -> Path:
    """A small disk in memory, this world's alone."""
    folder = box.private / "journal"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={JOURNAL_BYTES}", "journal", str(folder)])
    return folder
