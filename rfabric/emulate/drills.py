"""Faults on a fabric that is up, while packets flow: what each loses, and when all is well again.

    controller   it is killed, and started again        cable   one between two switches is cut
    commit       it is killed in the midst of a rewire  mute    an OCS takes orders, says nothing
    connection   an OCS loses its controller            half    an OCS takes half of its orders
    switches     Open vSwitch is killed, started again  disk    the journal's is full
    clock        the next controller's clock is ten days ahead, that of the one after it is not
    standby      the controller is killed while another stands by

What each promises stands in `DRILLS`. The wall clock of the host is nobody's to step: of the clock
that the controller goes by, CLOCK_MONOTONIC, a namespace has its own.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..control.client import Client, Committed
from ..errors import RFabricError, RunError
from ..fabric import Port
from ..optics import Circuit, Circuits
from .live import CONTROLLER, Live
from .relay import Relay
from .sandbox import DATAPATH, run
from .stream import Loss, Stream, TcpFlows

RATE = 1e8  # bit/s of a card: the stream takes a hundredth of it, a flow a thirtieth
FLOWS = 8  # of TCP, beside the stream
UP = "up"  # what a world says whose packets flow
DOWN_S = 0.5  # s for which what was killed stays away
# s after which Open vSwitch takes a lost connection for a new fault: sooner, it waits twice as long
# as before until it asks again, up to 8 s
SETTLED_S = 2.0
WELL_S = 30.0  # s after which what has not recovered is broken
INSTANTS = 3  # of a rewire at which the controller is killed
AHEAD = "864000"  # s: ten days
PROXY_PORT = 6660
ORDERS = 500  # plans, each a few hundred bytes: what the journal has set aside is full before


@dataclass(frozen=True)
class Drill:
    """A fault: `do` strikes and repairs, and returns the s that recovery took, None: as long as
    packets were lost. RunError where a promise is broken.

    within: s that recovery may take. loses: whether packets may be lost.
    """

    do: Callable[[Live], float | None]
    what: str
    promise: str
    within: float
    loses: bool = False


@dataclass(frozen=True)
class Drilled:
    """What came of a fault: packets lost, s until all was well, the promises that were broken."""

    fault: str
    what: str
    promise: str
    loss: Loss
    recovered: float
    within: float
    broken: tuple[str, ...] = ()

    def to_json(self) -> dict:
        """Plain values, seconds."""
        return {
            "fault": self.fault,
            "what": self.what,
            "promise": self.promise,
            "packets_sent": self.loss.sent,
            "packets_lost": self.loss.lost,
            "silent_s": self.loss.silent,
            "recovered_s": self.recovered,
            "within_s": self.within,
            "broken": list(self.broken),
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "Drilled":
        """Read what `to_json` wrote."""
        loss = Loss(data["packets_sent"], data["packets_lost"], data["silent_s"])
        words = data["fault"], data["what"], data["promise"]
        return cls(*words, loss, data["recovered_s"], data["within_s"], tuple(data["broken"]))


def drilled(name: str, up: Live, stream: Stream, flows: TcpFlows) -> Drilled:
    """One drill from end to end."""
    drill, broken, recovered = DRILLS[name], [], None
    stream.mark()
    try:
        recovered = drill.do(up)
        _check_books(up)
    except RFabricError as error:
        broken.append(str(error))
    if not stream.works(WELL_S):
        broken.append(f"packets are still lost after {WELL_S:g} s")
    loss = stream.loss()
    took = loss.silent if recovered is None else recovered
    # as long as its packets were lost, and as long again, TCP waits before it sends them again
    broken += flows.short(WELL_S + 2 * loss.silent)
    return judged(name, loss, took, broken)


def judged(name: str, loss: Loss, took: float, broken: Sequence[str] = ()) -> Drilled:
    """What was measured against what the drill promises."""
    drill, failures = DRILLS[name], [*broken]
    if loss.lost and not drill.loses:
        failures.append(f"{loss.lost} of {loss.sent} packets were lost, none should be")
    if took > drill.within:
        failures.append(f"recovery took {took:.2f} s, {drill.within:g} s are promised")
    return Drilled(name, drill.what, drill.promise, loss, took, drill.within, tuple(failures))


def _check_books(up: Live) -> None:
    """The controller is ready, and the switches hold the circuits it says are lit."""
    up.rest.wait_ready(WELL_S, up.box.check)
    said, held = up.rest.circuits(), up.lit()
    _require(said == held, f"the controller says {said} are lit, the switches hold {held}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RunError(otherwise)


def turned(circuits: Circuits) -> Circuits:
    """Other circuits of the same ports: two of an OCS, in order, change their second ends."""
    crossed: list[Circuit] = []
    for ocs in sorted({circuit.a.node for circuit in circuits}):
        ordered = circuits.of(ocs).ordered
        for one, other in zip(ordered[::2], ordered[1::2], strict=False):
            crossed += [Circuit.of(one.a, other.b), Circuit.of(other.a, one.b)]
        crossed += ordered[len(ordered) - len(ordered) % 2 :]
    return Circuits(frozenset(crossed))


def rewire(up: Live) -> Committed | None:
    """Turn the circuits that are lit."""
    return up.rewire(turned(up.rest.circuits()))


def _refused(do: Callable[[], object], why: str) -> str:
    """What an order is refused with, which must name `why`."""
    try:
        do()
    except RFabricError as error:
        _require(why in str(error), f"refused for another reason: {error}")
        return str(error)
    raise RunError(f"an order was carried out, it should be refused: {why}")


# --- the controller -------------------------------------------------------------------------------


def _restarted(up: Live, before: Sequence[str] = ()) -> float:
    up.box.kill(CONTROLLER)
    time.sleep(DOWN_S)
    began = time.monotonic()
    up.start_controller(before)
    took = time.monotonic() - began
    time.sleep(SETTLED_S)
    return took


def _known(rest: Client) -> tuple[int, Circuits, int]:
    return rest.epoch(), rest.circuits(), len(rest.get("/pairs")["pairs"])


def _controller(up: Live) -> float:
    known, held = _known(up.rest), up.lit()
    took = _restarted(up)
    _require(_known(up.rest) == known, "it does not know its epoch, circuits and pairs again")
    _require(up.lit() == held, "it touched circuits that were lit")
    return took


def _standby(up: Live) -> float:
    known, held = _known(up.rest), up.lit()
    with up.standby() as second:
        up.box.kill(CONTROLLER)
        began = time.monotonic()
        second.wait_ready(WELL_S, up.box.check)
        took = time.monotonic() - began
        _require(_known(second) == known, "it does not know epoch, circuits and pairs of the first")
        _require(up.lit() == held, "it touched circuits that were lit")
        second.commit(second.plan_circuits(turned(held)).epoch)
        _require(up.lit() == turned(held), "it cannot rewire")
    up.start_controller()
    return took


def _commit(up: Live) -> float:
    rng = random.Random(65)
    return max(_killed_in_a_rewire(up, rng.uniform(0.0, 0.03)) for _ in range(INSTANTS))


def _killed_in_a_rewire(up: Live, after: float) -> float:
    """Kill it so many s after a commit was asked for."""
    before = up.rest.circuits()
    plan = up.rest.plan_circuits(turned(before))
    asked = threading.Thread(target=_tried, args=(lambda: up.rest.commit(plan.epoch),))
    asked.start()
    time.sleep(after)
    took = _restarted(up)
    asked.join()
    lit = up.rest.circuits()
    _require(lit in (before, turned(before)), f"neither old nor new circuits are lit: {lit}")
    return took


def _tried(do: Callable[[], object]) -> None:
    with contextlib.suppress(RFabricError):
        do()


def _clock(up: Live) -> float:
    known = _known(up.rest)
    ahead = ["unshare", "--time", "--monotonic", AHEAD, "--fork", "--kill-child", "--"]
    took = _restarted(up, ahead)
    _require(_known(up.rest) == known, "ten days ahead it does not know what it knew")
    rewire(up)
    known, took = _known(up.rest), max(took, _restarted(up))
    _require(_known(up.rest) == known, "ten days back it does not know what it knew")
    rewire(up)
    return took


def _disk(up: Live) -> float:
    folder, lit = Path(up.journal), up.lit()
    wanted = turned(up.rest.circuits())
    with _full(folder):
        _refused(lambda: [up.rest.plan_circuits(wanted) for _ in range(ORDERS)], "disk is full")
        _require(up.lit() == lit, "circuits changed though the order was refused")
    began = time.monotonic()
    _require(rewire(up) is not None, "with room on the disk no order was carried out")
    return time.monotonic() - began


@contextlib.contextmanager
def _full(folder: Path) -> Iterator[None]:
    """No byte more goes on the disk of this folder."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        yield
    finally:
        ballast.unlink()


# --- switches and cables --------------------------------------------------------------------------


def _an_ocs(up: Live) -> str:
    """The OCS that changes first when circuits are turned."""
    lit = up.rest.circuits()
    return min(circuit.a.node for circuit in lit.without(turned(lit)))


def _to_controller(ocs: str, port: int | None) -> None:
    run(["ovs-vsctl", "set-controller", ocs, f"tcp:127.0.0.1:{port}"])


def _until(holds: Callable[[], bool], otherwise: str) -> float:
    """Wait until something holds; returns the s that took."""
    began = time.monotonic()
    while not holds():
        _require(time.monotonic() < began + WELL_S, f"{otherwise} within {WELL_S:g} s")
        time.sleep(0.02)
    return time.monotonic() - began


def _connection(up: Live) -> float:
    ocs, lit = _an_ocs(up), up.lit()
    _to_controller(ocs, 1)  # nobody listens there
    _until(lambda: ocs in up.rest.health()["waiting_for"], f"nobody missed {ocs}")
    _require(up.lit() == lit, "circuits went out")
    time.sleep(DOWN_S)
    _to_controller(ocs, up.network.asks(ocs))
    return _until(lambda: _is_fit(up, ocs), f"{ocs} did not come back")


def _is_fit(up: Live, ocs: str) -> bool:
    health = up.rest.health()
    return health["ready"] and ocs not in health["out"]


def _switches(up: Live) -> None:
    up.box.kill(DATAPATH)
    time.sleep(DOWN_S)
    up.box.start_datapath()
    up.rest.wait_ready(WELL_S, up.box.check)
    up.network.tune()


def _cable(up: Live) -> None:
    port = _used_port(up)
    run(["ip", "link", "set", port.interface, "down"])
    try:
        _until(lambda: bool(up.rest.health()["dark_ports"]), f"nobody saw that {port} is dark")
        time.sleep(DOWN_S)
    finally:
        run(["ip", "link", "set", port.interface, "up"])
    _until(lambda: not up.rest.health()["dark_ports"], f"nobody saw the light of {port}")


def _used_port(up: Live) -> Port:
    """A port of an OCS by which circuits lead, at the end of a cable to a packet switch."""
    ends = (port for circuit in up.rest.circuits() for port in circuit)
    kind = up.fabric.node
    return next(p for p in ends if kind[up.fabric.peer[p][1].node].kind == "eps")


def _half(up: Live) -> None:
    ocs = _an_ocs(up)
    held = len(run(["ovs-ofctl", "-OOpenFlow13", "dump-flows", ocs]).splitlines()) - 1
    limit = ["--", "--id=@t", "create", "Flow_Table", f"flow_limit={held - 1}",
             "overflow_policy=refuse", "--", "set", "Bridge", ocs, "flow_tables:0=@t"]  # fmt: skip
    run(["ovs-vsctl", *limit])
    try:
        _goes_out(up, ocs)
    finally:
        run(["ovs-vsctl", "clear", "Bridge", ocs, "flow_tables"])
    _until(lambda: _is_fit(up, ocs), f"{ocs} was not taken back")


def _goes_out(up: Live, ocs: str) -> None:
    """A rewire is rolled back, and the OCS is taken out."""
    _refused(lambda: rewire(up), ocs)
    _until(lambda: ocs in up.rest.health()["out"], f"{ocs} was not taken out")
    time.sleep(DOWN_S)


def _mute(up: Live) -> None:
    ocs = _an_ocs(up)
    with Relay(PROXY_PORT, up.network.asks(ocs)) as relay:
        _to_controller(ocs, PROXY_PORT)
        try:
            _until(lambda: relay.carried and _is_fit(up, ocs), f"{ocs} did not connect anew")
            time.sleep(DOWN_S)
            relay.mute = True
            _goes_out(up, ocs)
            relay.mute = False
            _until(lambda: _is_fit(up, ocs), f"{ocs} was not taken back")
        finally:
            _to_controller(ocs, up.network.asks(ocs))
    _until(lambda: _is_fit(up, ocs), f"{ocs} did not come back")


def _nobody(_: Live) -> float:
    raise RFabricError("the sender is not killed from inside its world")


DRILLS = {
    "controller": Drill(
        _controller, "controller killed and started again",
        "no packet lost, no circuit touched; it knows epoch, plans and pairs again", 2.0,
    ),
    "commit": Drill(
        _commit, f"controller killed in {INSTANTS} rewires",
        "the circuits before or after, no port in two of them", 2.0, True,
    ),
    "standby": Drill(
        _standby, "controller killed while another stands by",
        "the other knows all that it knew, touches no circuit, and rewires", 1.0, True,
    ),
    "clock": Drill(
        _clock, "clock of the next controller ten days ahead, then back",
        "it knows all again and rewires", 2.0, True,
    ),
    "disk": Drill(
        _disk, "disk of the journal full",
        "orders are refused, no circuit changes; with room again the next is carried out", 1.0,
        True,
    ),
    "connection": Drill(
        _connection, "an OCS loses its controller", "its circuits stay lit", 5.0, True
    ),
    "cable": Drill(_cable, "a cable to an OCS cut, and mended", "it takes other paths", 1.0, True),
    "mute": Drill(
        _mute, "an OCS takes orders and answers nothing",
        "rolled back, out of plans and routes until it answers", 3.0, True,
    ),
    "half": Drill(
        _half, "an OCS takes half of its orders",
        "rolled back, out of plans and routes until it takes them", 3.0, True,
    ),
    "switches": Drill(
        _switches, "all switches killed and started again", "they get all rules again", 10.0, True
    ),
    "sender": Drill(
        _nobody, "the process that sends killed",
        "the run ends and says so, nothing is left of it", 5.0,
    ),
}  # fmt: skip
INSIDE = tuple(name for name in DRILLS if name != "sender")


def streamed(up: Live) -> list[tuple[str, str]]:
    """The pairs of the stream: each host and the one half of all further, and the next."""
    hosts, n = up.fabric.hosts, len(up.fabric.hosts)
    return [(hosts[i], hosts[(i + by) % n]) for by in (n // 2, 1) for i in range(n)]
