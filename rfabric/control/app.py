"""The Ryu (or os-ken) app: OpenFlow on one side, REST on the other, `Core` between.

Apps derive from `FabricApp`.

    switches --- connect, go, ask --> event loop --> inbox --> worker thread --> Core <-- REST
             <-- flow-mods, barriers -------------------------------------------'       threads

The event loop never waits: it answers ARP, and puts everything that needs rules into the inbox.
Environment: RFABRIC_TOPO (a fabric spec or a .json file; without it the fabric is read from the
switches), RFABRIC_REST_HOST (127.0.0.1), RFABRIC_REST_PORT (8080); more in border.py.
"""

import functools
import gc
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import RFabricError, RunError
from ..fabric import Fabric, parse_fabric
from . import frames, seam
from .core import Core
from .infer import contradiction, infer
from .rest import serve
from .switches import Crossbar, SystemClock

INBOX = 1000  # packets of unknown pairs that may wait; more are dropped, their senders try again
GATHER_S = 0.02  # switches connect in bursts: rules go out for a burst at once
PATIENCE_S = 3.0  # s without a new switch after which an incomplete fabric is reported
LAST_PORT = 0xFFFFFF00  # OFPP_MAX: ports above are the switch's own


@dataclass(frozen=True)
class Up:
    """A switch has connected."""

    dpid: int


@dataclass(frozen=True)
class Replugged:
    """Ports of a switch have come or gone."""


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
        self._crossbars: dict[int, Crossbar] = {}
        self._received: dict[int, dict[int, int]] = {}
        self._inbox = seam.hub.Queue()
        spec = os.environ.get("RFABRIC_TOPO", "")
        if spec:
            self._take(parse_fabric(spec))
        host, port = (
            os.environ.get("RFABRIC_REST_HOST", "127.0.0.1"),
            os.environ.get("RFABRIC_REST_PORT", "8080"),
        )
        address = serve(self, _port(port), host)
        self.logger.info("REST on http://%s:%d", *address)
        seam.hub.spawn(self._work)

    # --- for REST ---------------------------------------------------------------------------------

    def health(self) -> dict:
        """The answer to `GET /health`."""
        core = self.core
        return {
            "ready": bool(core and core.ready and not self.trouble),
            "fabric": (core.fabric.spec or core.fabric.name) if core else None,
            "connected": len(self.switches),
            "expected": len(core.fabric.switches) if core else None,
            "waiting_for": core.waiting_for if core else [],
            "trouble": self.trouble,
            "epoch": core.epochs.active if core else None,
            "control": seam.version(),
        }

    # --- Switches: what Core needs ----------------------------------------------------------------

    def present(self) -> set[int]:
        """Datapath ids of the switches that are connected."""
        return set(self.switches)

    def crossbars(self, dpids: Iterable[int], timeout_s: float) -> dict[int, Crossbar]:
        """What these OCSes hold.

        Replies come before that of the barrier: when `push` returns they are all here.
        """
        wanted = list(dpids)
        self.call(lambda: [self._crossbars.pop(d, None) for d in wanted], timeout_s)
        request = seam.wire(seam.parser.OFPFlowStatsRequest(seam.offline()))
        done = self.push({d: [request] for d in wanted}, timeout_s).done_s
        return {d: self._crossbars[d] for d in done if d in self._crossbars}

    def received(self, dpid: int) -> Mapping[int, int]:
        """Bytes by port of a switch, as it counted them last."""
        return self._received.get(dpid, {})

    # --- in the event loop: never wait ------------------------------------------------------------

    def switch_up(self, dpid: int) -> None:
        self._inbox.put(Up(dpid))

    def switch_down(self, dpid: int) -> None:
        if self.core and dpid in self.core.name_of:
            name = self.core.name_of[dpid]
            self.core.disconnected(dpid)
            self.logger.warning(
                "switch %s (%#x) has gone; it gets all its rules when it comes back", name, dpid
            )

    @seam.set_ev_cls(seam.ofp_event.EventOFPFlowStatsReply, seam.MAIN_DISPATCHER)
    def _flows_told(self, ev) -> None:
        # a long answer comes in parts
        crossbar = self._crossbars.setdefault(ev.msg.datapath.id, {})
        crossbar.update((e.match["in_port"], _out(e)) for e in ev.msg.body if "in_port" in e.match)

    @seam.set_ev_cls(seam.ofp_event.EventOFPPortStatsReply, seam.MAIN_DISPATCHER)
    def _ports_told(self, ev) -> None:
        self._received[ev.msg.datapath.id] = {port.port_no: port.rx_bytes for port in ev.msg.body}

    @seam.set_ev_cls(seam.ofp_event.EventOFPPortStatus, seam.MAIN_DISPATCHER)
    def _replugged(self, ev) -> None:
        if self.core is not None:
            self.core.watch.replugged(self.core, ev.msg)
        if self.core is None or self.trouble:
            self._inbox.put(Replugged())

    @seam.set_ev_cls(seam.ofp_event.EventOFPPacketIn, seam.MAIN_DISPATCHER)
    def _asked(self, ev) -> None:
        msg = ev.msg
        packet = frames.parse(msg.data)
        if packet is None or self.hosts is None:
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
        if not isinstance(items[0], Unknown):
            seam.hub.sleep(GATHER_S)
        while not self._inbox.empty():
            items.append(self._inbox.get())
        return items

    def _switches_came(self, dpids: Sequence[int]) -> None:
        if not dpids:
            return
        if self.core is None:
            found = infer(self.FABRIC, self._seen())
            if found.fabric is None:
                self.trouble = found.trouble
                return
            self._take(found.fabric)
            self.logger.info(
                ("the switches make up %s (default rates and OCS delay)"), found.fabric.spec
            )
            dpids = list(self.switches)
        self._check_fit()
        self.core.connected([d for d in dpids if d in self.core.name_of and d in self.switches])

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
        return {d: {n for n in dp.ports if n < LAST_PORT} for d, dp in self.switches.items()}

    def _check_fit(self) -> None:
        wrong = contradiction(self.core.fabric, self._seen())
        way_out = (
            "start switches and controller for the same fabric "
            "(mn --topo, RFABRIC_TOPO, controller/*.py)"
        )
        self.trouble = f"{wrong}: {way_out}" if wrong else ""

    def _look_again(self) -> None:
        """Compare switches and fabric once more: ports may have come after their switch."""
        if self.core is not None:
            self._check_fit()
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
        self.hosts = frames.Hosts(fabric)
        self.core = Core(fabric, self, SystemClock(seam.hub.sleep))
        gc.freeze()  # what was loaded stays: later collections need not walk it


def _out(entry) -> int:
    """The port a flow leads to; 0 where it leads nowhere."""
    return next(
        (
            a.port
            for i in entry.instructions
            for a in getattr(i, "actions", ())
            if hasattr(a, "port")
        ),
        0,
    )


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise RFabricError(f"RFABRIC_REST_PORT={text!r}: choose a port from 1 to 65535")
    return int(text)
