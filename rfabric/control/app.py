"""The Ryu (or os-ken) app: OpenFlow on one side, REST on the other, `Core` between.

Apps derive from `FabricApp`.

    switches --- connect, go, ask --> event loop --> inbox --> worker thread --> Core <-- REST
             <-- flow-mods, barriers -------------------------------------------'       threads

The event loop never waits: it answers ARP, and puts everything that needs rules into the inbox.
Environment: RFABRIC_TOPO (a fabric spec or a .json file; without it the fabric is read from the
switches), RFABRIC_REST_HOST (127.0.0.1), RFABRIC_REST_PORT (8080); more in border.py.

RFABRIC_JOURNAL is the folder in which each fabric has its journal (journal.py): without it the
user's state folder, `none` for a controller that forgets everything with its end.

RFABRIC_LIVE is the pipe to the page that follows it, if any (telling.py).

With RFABRIC_STANDBY=1 a controller that finds the journal held by another waits until that one has
ended, while the switches connect to both, and then takes over where it stopped. OpenFlow's roles
tell the switches who leads: MASTER is who holds the journal.
"""

import contextlib
import functools
import gc
import importlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RFabricError, RunError
from ..fabric import Fabric, Port, parse_fabric
from . import flowmods, frames, seam
from .addresses import LOOPBACK, REST_PORT
from .alone import HeldError
from .core import Core
from .infer import contradiction, infer
from .journal import Journal, folder_of
from .rest import serve
from .switches import HeldFlows, SystemClock
from .telling import pipe_of, tell

INBOX = 1000  # packets of unknown pairs that may wait; more are dropped, their senders try again
GATHER_S = 0.02  # switches connect in bursts: rules go out for a burst at once
PATIENCE_S = 3.0  # s without a new switch after which an incomplete fabric is reported
LAST_PORT = 0xFFFFFF00  # OFPP_MAX: numbers above are of no port, such as the switch itself
LINK_DOWN = 1  # OFPPS_LINK_DOWN
WATCH_S = 0.02  # how often who stands by looks whether the leader is still there
MOST_REFUSED = 20  # strangers that `GET /health` lists
WAY_OUT = (
    "start switches and controller for the same fabric (mn --topo, RFABRIC_TOPO, controller/*.py)"
)


@dataclass(frozen=True)
class Up:
    """A switch has connected."""

    dpid: int


@dataclass(frozen=True)
class Down:
    """A switch has gone."""

    dpid: int


@dataclass(frozen=True)
class Replugged:
    """Ports of a switch have come or gone, or their light has."""


@dataclass(frozen=True)
class Unknown:
    """A packet that no rule of a packet switch knew."""

    dpid: int
    in_port: int
    src: str
    dst: str
    frame: bytes


def _number_legibly() -> None:
    """Let transaction numbers of a connection start at 32, an ASCII blank, not at random.

    Mininet's RemoteController looks with telnet whether a controller listens, and reads what it
    hears as UTF-8 in which the bytes 1 and 127 are marks of its own. Both frameworks say hello at
    once with a random number, so that one `mn` in ten died of a UnicodeDecodeError.
    """
    datapath = importlib.import_module(
        f"{seam.PACKAGES[seam.flavour()]}.controller.controller"
    ).Datapath
    begin = datapath.__init__
    if hasattr(begin, "__wrapped__"):
        return

    @functools.wraps(begin)
    def begin_at_blank(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.xid = ord(" ") - 1

    datapath.__init__ = begin_at_blank


class FabricApp(seam.App):
    """One fabric under control; `FABRIC` is the kind it is taken for without RFABRIC_TOPO."""

    FABRIC = "rfabric"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        _number_legibly()
        self.core: Core | None = None
        self.hosts: frames.Hosts | None = None
        self.trouble = self._complained = ""
        self.refused: dict[int, str] = {}  # who wanted to be a switch of this fabric, and is none
        self.generation = 0  # how many controllers there were; 0: without a journal
        self.leader = 0  # the process for which this one stands by
        self._flows: dict[int, HeldFlows] = {}
        self.counters: dict[int, tuple[float, dict[int, tuple[int, int]]]] = {}
        self._lost: dict[int, tuple[object, dict[int, int]]] = {}  # with whose connection told it
        self._inbox = seam.hub.Queue()
        spec = os.environ.get("RFABRIC_TOPO", "")
        if spec:
            self._take(parse_fabric(spec))
        host, port = (
            os.environ.get("RFABRIC_REST_HOST", LOOPBACK),
            os.environ.get("RFABRIC_REST_PORT", str(REST_PORT)),
        )
        self.logger.info("REST on %s", serve(self, _port(port), host))
        seam.hub.spawn(self._work)
        if live := os.environ.get("RFABRIC_LIVE", ""):
            seam.hub.spawn(tell, self, pipe_of(live), seam.hub.sleep)

    # --- for REST ---------------------------------------------------------------------------------

    def health(self) -> dict:
        """The answer to `GET /health`."""
        core = self.core
        ready = bool(core and core.ready and not self.trouble)
        role = f"stands by for process {self.leader}" if self.leader else "leads"
        refused = "" if ready else next(iter(self.refused.values()), "")
        return {
            "ready": ready,
            "role": role,
            "fabric": (core.fabric.spec or core.fabric.name) if core else None,
            "connected": len(self.switches),
            "expected": len(core.fabric.switches) if core else None,
            "waiting_for": core.waiting_for if core else [],
            "trouble": self.trouble or (role if self.leader else refused),
            "epoch": core.epochs.active if core else None,
            "out": sorted(core.out) if core else [],
            "dark_ports": sorted(map(str, core.dead)) if core else [],
            "refused": list(self.refused.values()),
            "journal": str(core.journal.path) if core and core.journal else None,
            "decisions": list(core.said) if core else [],
            "control": seam.version(),
        }

    # --- Switches: what Core needs ----------------------------------------------------------------

    def present(self) -> set[int]:
        """Datapath ids of the switches that are connected."""
        return set(self.switches)

    def flows(self, asked: Mapping[int, Sequence[bytes]], timeout_s: float) -> dict[int, HeldFlows]:
        """What these switches hold of what they are asked for.

        Replies come before that of the barrier: when `push` returns they are all here.
        """
        self.call(lambda: [self._flows.pop(d, None) for d in asked], timeout_s)
        done = self.push(asked, timeout_s).done_s
        return {d: self._flows[d] for d in done if d in self._flows}

    def received(self, dpid: int) -> Mapping[int, int]:
        """Bytes by port of a switch, as it counted them last."""
        _, ports = self.counters.get(dpid, (0.0, {}))
        return {port: received for port, (received, _) in ports.items()}

    def lost(self, dpid: int) -> Mapping[int, int] | None:
        """Bytes that met the dark by in-port, of an OCS that times it itself."""
        datapath, lost = self._lost.get(dpid, (None, {}))
        return lost if datapath and self.switches.get(dpid) is datapath else None

    def count(self) -> None:
        """Ask for the counters of all ports, but not while circuits are moved: what a rewire loses
        is read from the same answers.
        """

        def ask() -> None:
            if self.core and not self.core.epochs.under_way:
                for datapath in self.switches.values():
                    datapath.send(flowmods.count_ports())

        with contextlib.suppress(RunError):  # the event loop is busy: another time
            self.call(ask)

    # --- in the event loop: never wait ------------------------------------------------------------

    def stranger(self, dpid: int) -> str:
        """Why a switch is not of the fabric, or ''; the first of them are named in `health`."""
        if self.core is None or dpid in self.core.name_of:
            return ""
        fabric = self.core.fabric
        why = f"switch {dpid:#x} is not in the fabric {fabric.spec or fabric.name}"
        if len(self.refused) < MOST_REFUSED:
            self.refused[dpid] = f"{why}: {WAY_OUT}"
        return why

    def switch_up(self, dpid: int) -> None:
        """Have the worker give it what it lacks."""
        self._inbox.put(Up(dpid))

    def switch_down(self, dpid: int) -> None:
        """Say that a switch of the fabric has gone, to the core and to the worker."""
        if self.core and dpid in self.core.name_of:
            name = self.core.name_of[dpid]
            self.core.disconnected(dpid)
            self._inbox.put(Down(dpid))
            self.logger.warning(
                "switch %s (%#x) has gone; it gets what it lacks when it comes back", name, dpid
            )

    def _ours(self, datapath) -> bool:
        """Whether this is the switch, and not one that says so."""
        return self.switches.get(datapath.id) is datapath

    @seam.set_ev_cls(seam.ofp_event.EventOFPFlowStatsReply, seam.MAIN_DISPATCHER)
    def _flows_told(self, ev) -> None:
        if self._ours(ev.msg.datapath):  # a long answer comes in several messages
            held = self._flows.setdefault(ev.msg.datapath.id, {})
            held.update((entry.key, entry) for entry in map(flowmods.entry_of, ev.msg.body))

    @seam.set_ev_cls(seam.ofp_event.EventOFPPortStatsReply, seam.MAIN_DISPATCHER)
    def _ports_told(self, ev) -> None:
        if self._ours(ev.msg.datapath):
            ports = {port.port_no: (port.rx_bytes, port.tx_bytes) for port in ev.msg.body}
            self.counters[ev.msg.datapath.id] = time.monotonic(), ports

    @seam.set_ev_cls(
        seam.ofp_event.EventOFPExperimenter, [seam.CONFIG_DISPATCHER, seam.MAIN_DISPATCHER]
    )
    def _lost_told(self, ev) -> None:
        if (lost := flowmods.lost_of(ev.msg)) is not None:
            self._lost[ev.msg.datapath.id] = ev.msg.datapath, lost

    @seam.set_ev_cls(seam.ofp_event.EventOFPPortStatus, seam.MAIN_DISPATCHER)
    def _port_told(self, ev) -> None:
        if self.core is not None:
            self.core.watch.replugged(self.core, ev.msg)

    @seam.set_ev_cls(seam.ofp_event.EventOFPPortStateChange, seam.MAIN_DISPATCHER)
    def _replugged(self, ev) -> None:
        self._inbox.put(Replugged())

    @seam.set_ev_cls(seam.ofp_event.EventOFPPacketIn, seam.MAIN_DISPATCHER)
    def _asked(self, ev) -> None:
        msg = ev.msg
        packet = frames.parse(msg.data)
        if packet is None or self.hosts is None or not self._ours(msg.datapath):
            return
        if packet.kind == frames.ARP:
            mac = self.hosts.mac(packet.dst)
            if packet.request and mac:
                reply = frames.arp_reply(mac, packet.dst, packet.src_mac, packet.src)
                self._send_out(msg.datapath, msg.match["in_port"], reply)
            return
        src, dst = self.hosts.name(packet.src), self.hosts.name(packet.dst)
        if src and dst and src != dst and self._inbox.qsize() < INBOX:
            self._inbox.put(Unknown(msg.datapath.id, msg.match["in_port"], src, dst, msg.data))

    def _send_out(self, datapath, port: int, frame: bytes) -> None:
        make, of = datapath.ofproto_parser, datapath.ofproto
        out = make.OFPPacketOut(
            datapath, of.OFP_NO_BUFFER, of.OFPP_CONTROLLER, [make.OFPActionOutput(port)], data=frame
        )
        datapath.send_msg(out)

    # --- the worker: may wait ---------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            items = self._gather()
            try:
                if not items:
                    self._complain()
                if Replugged() in items:
                    self._look_again()
                self._switches_went([i.dpid for i in items if isinstance(i, Down)])
                self._switches_came([i.dpid for i in items if isinstance(i, Up)])
                self._packets_came([i for i in items if isinstance(i, Unknown)])
            except RunError as error:
                self.logger.error("%s", error)
            except Exception:
                self.logger.exception("the controller could not handle %s", items[:3])

    def _gather(self) -> list:
        """What has come in; waits for something, or for PATIENCE_S."""
        try:
            items = [self._inbox.get(timeout=PATIENCE_S)]
        except seam.hub.QueueEmpty:
            return []
        if isinstance(items[0], Up) or self.core is None:
            seam.hub.sleep(GATHER_S)
        while not self._inbox.empty():
            items.append(self._inbox.get())
        return items

    def _switches_came(self, dpids: Sequence[int]) -> None:
        if not dpids or self.leader:
            return
        if self.core is None:
            inferred = infer(self.FABRIC, self._seen())
            if inferred.fabric is None:
                self.trouble = inferred.trouble
                return
            try:
                self._take(inferred.fabric)
            except RFabricError as error:  # asked again after PATIENCE_S
                self.trouble = str(error)
                return
            self.logger.info(
                "the switches make up %s (default rates and delay)", inferred.fabric.spec
            )
            if self.core is None:
                return
            dpids = list(self.switches)
        self._turn_away_strangers()
        self._check_fit()
        here = [d for d in dpids if d in self.core.name_of and d in self.switches]
        self._play(flowmods.MASTER, here)
        self.core.unlit(self._unlit())
        self.core.connected(here)

    def _turn_away_strangers(self) -> None:
        """Those that had connected before the fabric was known."""
        for dpid, datapath in list(self.switches.items()):
            if why := self.stranger(dpid):
                self._turn_away(datapath, why)

    def _switches_went(self, dpids: Sequence[int]) -> None:
        if dpids and self.core is not None:
            self.core.gone(dpids)

    def _play(self, role: int, dpids: Iterable[int]) -> None:
        """Tell switches what this controller is to them; without a journal they need not know."""
        wire = flowmods.role(role, self.generation)
        push = self.push({d: [wire] for d in dpids}) if self.generation else None
        if push and push.refused:
            self.logger.error("role %d not taken: %s", role, push)

    def _unlit(self) -> set[Port]:
        """The ports of the fabric that are not there, or say that they have no light."""
        unlit = set()
        for dpid, datapath in list(self.switches.items()):
            lit = {n for n, port in datapath.ports.items() if not port.state & LINK_DOWN}
            ports = self.core.fabric.ports.get(self.core.name_of.get(dpid, ""), ())
            unlit |= {port for port in ports if port.number not in lit}
        return unlit

    def _packets_came(self, packets: Sequence[Unknown]) -> None:
        if not packets or self.core is None:
            return
        self.core.learn(sorted({(p.src, p.dst) for p in packets}))
        for p in packets:
            port = self.core.out_port(self.core.name_of.get(p.dpid, ""), p.src, p.dst)
            datapath = self.switches.get(p.dpid)
            if port is not None and port != p.in_port and datapath is not None:
                self.call(lambda p=p, d=datapath, o=port: self._send_out(d, o, p.frame))

    def _seen(self) -> dict[int, set[int]]:
        """The ports of those that are no strangers."""
        known = self.core.name_of if self.core else self.switches
        return {
            d: {n for n in dp.ports if n <= LAST_PORT}
            for d, dp in list(self.switches.items())
            if d in known
        }

    def _check_fit(self) -> None:
        wrong = contradiction(self.core.fabric, self._seen())
        self.trouble = f"{wrong}: {WAY_OUT}" if wrong else ""

    def _look_again(self) -> None:
        """Compare switches and fabric once more: ports may have come after their switch."""
        if self.leader:
            return
        if self.core is not None:
            self._check_fit()
            self.core.unlit(self._unlit())
        elif infer(self.FABRIC, self._seen()).fabric is not None:
            self._switches_came(list(self.switches))

    def _complain(self) -> None:
        """Nothing new for a while: say once what is missing or wrong, and bring back switches that
        had failed.
        """
        self._look_again()
        if self.core is not None:
            self.core.restore()
        if self.trouble and self.trouble != self._complained:
            self.logger.error("%s", self.trouble)
        self._complained = self.trouble

    def _take(self, fabric: Fabric) -> None:
        if self.FABRIC != "rfabric" and fabric.ocses:
            raise RFabricError(
                f"{fabric.spec or fabric.name} has optical switches; run controller/ocs.py"
            )
        folder = folder_of()
        journal = self._journal(folder, fabric) if folder else None
        if folder and journal is None:
            seam.hub.spawn(self._stand_by, folder, fabric)
        else:
            self._lead(fabric, journal)

    def _lead(self, fabric: Fabric, journal: Journal | None) -> None:
        if journal:
            self.generation = journal.read().get("generation", 0) + 1
            journal.write({"generation": self.generation})
        core = Core(fabric, self, SystemClock(seam.hub.sleep), journal=journal)
        self.hosts, self.leader, self.core = frames.Hosts(fabric), 0, core
        gc.freeze()  # what was loaded stays: later collections need not walk it

    def _journal(self, folder: Path, fabric: Fabric) -> Journal | None:
        """The journal; None where another holds it and this controller may stand by."""
        try:
            return Journal(folder, fabric)
        except HeldError as error:
            if os.environ.get("RFABRIC_STANDBY", "") != "1":
                raise
            self.leader = error.pid or -1  # it has not said yet
            return None

    def _stand_by(self, folder: Path, fabric: Fabric) -> None:
        """Until the leader has ended, then lead."""
        self.logger.info("standing by for process %d", self.leader)
        journal = None
        while journal is None:
            seam.hub.sleep(WATCH_S)
            try:
                journal = self._journal(folder, fabric)
            except RFabricError as error:  # the leader has gone, but nothing can be read
                self.trouble = str(error)
        self.logger.warning("process %d has ended: taking over", self.leader)
        self._lead(fabric, journal)
        for dpid in list(self.switches):
            self._inbox.put(Up(dpid))


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise RFabricError(f"RFABRIC_REST_PORT={text!r}: choose a port from 1 to 65535")
    return int(text)
