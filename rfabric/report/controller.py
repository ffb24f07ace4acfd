"""The live page of a controller: it follows `rfabric control --live` until that one ends.

    controller -- a pipe, a line a look (control/telling.py) --> this process --> browsers

The process has the pipe to read and nothing else, so no rewire waits for whoever watches. It turns
looks into the records of a live page (live.py), a row for the controller's fabric. They begin anew
at MOST_BYTES: a controller may run for months.
"""

import json
import os
import secrets
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable

from ..errors import RFabricError
from ..fabric import Fabric
from ..fabric.cost import bill
from ..optics import Circuits, Rewire
from ..units import bytes_in, show_size
from . import html
from .live import address, listening, serving
from .page.server import POLL, LiveServer, Records

MOST_BYTES = 64 << 20  # of records that pages get; they hold them in memory
BEGIN = {"turn": 0}  # the row begins, or begins anew
ENDED = "the controller has ended"
SHOWN = 6  # names in a sentence


def begin(port: int, command: str) -> tuple[str, int]:
    """Serve the page of a controller on loopback: its address, and the pipe that the controller
    writes to, which outlives an exec. port: 0 for a free one; RFabricError where it is taken.
    """
    html.must_draw_page()
    listener, token = listening(port), secrets.token_urlsafe(18)
    place = address(listener, token)
    server = serving(__name__, listener, {"token": token, "command": command})
    pipe = os.dup(server.stdin.fileno())
    os.set_inheritable(pipe, True)
    return place, pipe


class Followed:
    """The records of one controller's page; `write` gets each, `anew` forgets those before."""

    def __init__(self, first: dict, command: str):
        self.fabric, self.began = Fabric.from_json(first["fabric"]), first["at_s"]
        self.circuits = Circuits.from_json(first["circuits"])
        self.epoch, self.routing, self.command = first["epoch"], first["routing"], command

    def page(self) -> bytes:
        """The page, with an empty row that records fill."""
        from .page import records

        left_out: list[str] = []
        row = self._row() | {"left_out": left_out}
        if records.drawn(self.fabric, left_out):
            row |= records.cabled(self.fabric)
        title = f"{self.fabric.spec or self.fabric.name} under control"
        none = {key: [] for key in ("id", "src", "dst", "bytes", "label", "phase", "labels")}
        none |= {"phases": [], "hosts": [], "start_s": [[]], "finish_s": [[]], "of": 0}
        clock = {
            "version": records.VERSION, "title": title, "command": self.command, "yours": None,
            "prices": [], "jobs": [], "flows": none, "runs": [row], "live": True,
        }  # fmt: skip
        return html.live_page(clock, {"command": self.command, "runs": []}, "control.html").encode()

    def _row(self) -> dict:
        fabric, cost = self.fabric, {"usd_per_step": None}
        try:
            cost |= bill(fabric).to_json()
        except RFabricError:  # it has parts without a price
            cost |= {"network_usd": None, "network_watts": None}
        lit = self._lit(self.began)
        held = {key: list(range(len(lit[key]))) for key in ("names", "paths")}
        circuits = {
            "times": [0.0], "sets": [0], "epochs": [self.epoch],
            "held": [{"circuits": held["names"], "paths": held["paths"]}],
            "names": lit["names"], "paths": lit["paths"], "racks": list(fabric.racks),
        }  # fmt: skip
        return {
            "label": fabric.name, "engine": "control", "fabric": fabric.spec, "policy": None,
            "routing": self.routing, "gpus": len(fabric.hosts), "cost": cost, "steps": 1,
            "optical": bool(fabric.ocses), "circuits": circuits if fabric.ocses else None,
            "step_s": 0.0, "lanes": [], "phases": [], "rewires": [], "nodes": [], "links": [],
            "load": None, "fidelity": None, "directed": 2 * len(fabric.links),
        }  # fmt: skip

    def anew(self, at: float) -> dict:
        """The line of the circuits that are lit, where the lines before it are forgotten."""
        return self._record(at) | {"circuits": [self._lit(at)]}

    def record(self, look: dict) -> dict:
        """The line of one look."""
        from .page.lights import light_paths

        line = self._record(look["at_s"]) | {"said": self._state(look)}
        for plan in look["ended"]:
            line["rewires"].append(self._rewire(plan, look["at_s"]))
            if not plan["error"]:
                self.circuits = Rewire.from_json(plan).apply(self.circuits)
                self.epoch = plan["epoch"]
                line["circuits"].append(self._lit(plan["usable_s"] or look["at_s"]))
        if busy := look["under_way"]:
            stay = light_paths(self.fabric, self.circuits.without(Rewire.from_json(busy).down))
            line["under_way"] = self._rewire(busy, look["at_s"]) | {"stay": stay}
        spans = [[self._clock(t) for t in look["load"]["span_s"]]]
        return line | {"load": {"spans": spans, "levels": look["load"]["levels"]}}

    def _clock(self, at: float) -> float:
        return max(at - self.began, 0.0)

    def _record(self, at: float) -> dict:
        empty: dict = {key: [] for key in ("flows", "lanes", "phases", "circuits", "rewires")}
        return {"run": 0, "clock_s": self._clock(at), "under_way": None} | empty

    def _lit(self, at: float) -> dict:
        from .page.lights import light_paths

        names = self.circuits.to_json()
        paths = light_paths(self.fabric, self.circuits)
        return {"time_s": self._clock(at), "epoch": self.epoch, "names": names, "paths": paths}

    def _rewire(self, plan: dict, now: float) -> dict:
        """A rewire as the page has it: whether flows waited for it no controller knows."""
        times = [plan[key] for key in ("requested_s", "programmed_s", "dark_until_s", "usable_s")]
        shown = [self._clock(now if at is None else at) for at in times]
        keys = "requested_s", "programmed_s", "dark_until_s", "usable_s"
        kept = {key: plan[key] for key in ("epoch", "phase", "circuits_changed", "lost_bytes")}
        why = f"rolled back: {plan['error']}" if plan["error"] else plan["why"]
        unknown = {"exposed_s": None, "hidden_s": None}
        return kept | dict(zip(keys, shown, strict=True)) | unknown | {"why": why}

    def _state(self, look: dict) -> str:
        """How the fabric is, in a sentence or three."""
        health = look["health"]
        missing, out = health["waiting_for"], [*health["out"], *health["dark_ports"]]
        said = [
            f"all {health['expected']} switches hold their rules" if not missing
            else f"waiting for {_listed(missing)}",
            f"epoch {health['epoch']}",
            f"{show_size(bytes_in(look['load']['to_hosts_bps'], 1.0))} a second reach the hosts",
        ]  # fmt: skip
        said += [f"out of order: {_listed(out)}"] if out else []
        said += [health["trouble"]] if health["trouble"] else []
        return "; ".join(said)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


class Kept:
    """The records as a file that the server reads, begun anew where it grows beyond `most`."""

    def __init__(self, most: int = MOST_BYTES):
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  as long as the process
        self.most = most

    def write(self, record: dict) -> bool:
        """Add a line; whether there is room for more."""
        self.file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        return self.file.tell() < self.most

    def forget(self) -> None:
        """Begin anew."""
        self.file.seek(0)
        self.file.truncate()


def follow(lines: Iterable[bytes], server: LiveServer, kept: Kept, command: str) -> None:
    """Serve what a controller tells, until it has ended."""
    one = None
    for line in lines:
        if not line.endswith(b"\n"):
            return  # it was killed in the midst of a look
        look, began = json.loads(line), one is None
        one = one or Followed(look, command)
        if began:
            server.page = one.page()
        if not kept.write(BEGIN if began else one.record(look)):
            kept.forget()
            kept.write(BEGIN)
            kept.write(one.anew(look["at_s"]))


def main() -> None:
    """Serve until the controller that started this has ended."""
    if not (first := sys.stdin.buffer.readline()):
        return
    told, kept = json.loads(first), Kept()
    listener = socket.socket(fileno=told["socket"])
    waiting = html.render("waiting.html", title="a controller").encode()
    server = LiveServer(listener, told["token"], waiting, Records(kept.file.fileno()))
    threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()
    follow(sys.stdin.buffer, server, kept, told["command"])
    server.end({"error": ENDED})


if __name__ == "__main__":
    main()
