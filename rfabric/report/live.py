"""The live view: a page on loopback that follows an emulation while it runs.

    replay -- looks, some times a second --> LiveView -- live.jsonl --> page/server.py --> browsers

A look is what has come since the one before; it is written as one line of live.jsonl, in the words
of the page, and stays in the run folder. `run` is a row of the page: the simulated ones come first.

    {"said": "rfabric: build"}                       what is under way
    {"turn": 2}                                      row 2 begins, or begins again, slower
    {"run": 2, "clock_s", "flows": [[flow, start_s, finish_s]], "lanes": [[phase, job,
     computes|sends, [[time_s, more]]]], "phases": [[name, phase, step, begin_s, end_s]],
     "load": {"spans": [[from_s, to_s]], "levels": base64, a byte a directed cable},
     "circuits": [{"time_s", "names", "paths"}], "rewires": [...], "under_way": {...},
     "guard": {"ok", "reasons", ...}}

Times are s on the run's clock, null where it is not known yet. The run writes to a file and never
waits for who reads it. At its end an open page becomes the finished report.
"""

import contextlib
import io
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..errors import RFabricError
from ..optics import Circuits
from . import html
from .folder import writing
from .result import Result
from .summary import Run, summary_of

FILE = "live.jsonl"
BACKLOG = 64  # connections that may wait for the server to come up
ENDS = 15.0  # s that the server may take to end; it stays no longer than `server.STAYS`
Onlooker = Callable[[dict], None]


class LiveView:
    """A page that follows one run: `begin` opens it, each emulation has a `turn`, `end` closes it.

    port: 0 for a free one. RFabricError where it is taken.
    """

    def __init__(self, port: int = 0, command: str = ""):
        html.must_draw_page()
        self.command, self.token = command, secrets.token_urlsafe(18)
        self.listening = listening(port)
        self.address = address(self.listening, self.token)
        self.server: subprocess.Popen | None = None
        self.heard: list[_Heard] = []
        self.doing = ""
        self.file: io.FileIO | None = None

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _) -> None:
        if error is not None:
            said = str(error) if isinstance(error, RFabricError) else "the run was interrupted"
            self.end(error=said)
        elif self.server:
            self.end(error="the run ended without a result")
        self.listening.close()
        if self.file:
            self.file.close()

    def keep_in(self, folder: Path) -> None:
        """Its records go to `folder`."""
        with writing(folder):
            self.file = io.FileIO(folder / FILE, "x")

    def begin(self, expected: Sequence[Result]) -> None:
        """Serve the page of what was simulated, with an empty row for each that packets fill."""
        from .page import records

        runs = [Run(result) for result in expected]
        summary = summary_of(runs, self.command, "")
        title = f"{expected[0].traffic or 'trace'}, live"
        clock = records.document(runs, summary, title)
        rows = clock["flows"]["id"]
        self.heard = [_Heard(result, rows) for result in expected]
        blank = [_blank(run, result) for run, result in zip(clock["runs"], expected, strict=True)]
        for run in clock["runs"]:
            run["label"] += ", simulated"
        clock |= {"runs": [*clock["runs"], *blank], "live": True}
        self._serve(html.live_page(clock, summary))

    def said(self, name: str, news: dict) -> None:
        """What is under way, once for each stage."""
        text = f"{name}: {news.get('stage', '')}"
        if self.heard and news.get("stage", "run") != "run" and text != self.doing:
            self.doing = text
            self._write({"said": text})

    def turn(self, expected: Result) -> Onlooker:
        """The emulation of `expected` begins, or begins again; returns what takes its looks."""
        i = next(i for i, heard in enumerate(self.heard) if heard.result is expected)
        row, heard = len(self.heard) + i, self.heard[i]
        heard.begin()
        self._write({"turn": row})
        return lambda look: self._write({"run": row} | heard.record(look))

    def end(self, report: Path | None = None, error: str = "") -> None:
        """The run has ended: its pages become `report`, or say why there is none."""
        if self.server:
            last = json.dumps({"report": report and str(report.resolve()), "error": error})
            with contextlib.suppress(OSError), self.server.stdin as stdin:  # it may be gone
                stdin.write(last + "\n")
            _ended(self.server)
            self.server = None

    def _serve(self, page: str) -> None:
        reading = os.open(self.file.name, os.O_RDONLY)
        told = {"token": self.token, "records": reading, "page": page}
        try:
            self.server = serving("rfabric.report.page.server", self.listening, told, (reading,))
        finally:
            os.close(reading)

    def _write(self, record: dict) -> None:
        """One line, in one write: a reader sees all of it or nothing."""
        with writing(self.file.name):
            self.file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")


def listening(port: int) -> socket.socket:
    """A socket that listens on loopback, at once: what is wrong with a port is said beforehand.
    RFabricError where it is taken.
    """
    try:
        return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    except OSError as error:
        raise RFabricError(
            f"--live {port}: {os.strerror(error.errno)}; give another port, or none for a free one"
        ) from error


def address(listener: socket.socket, token: str) -> str:
    """Where the page is."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}/{token}/"


def serving(
    module: str, listener: socket.socket, told: dict, kept: Sequence[int] = ()
) -> subprocess.Popen:
    """The process that serves a page: it gets the socket, these open files, and `told` as the first
    line of its stdin. With it, the address is gone. RFabricError where it does not begin to listen.
    """
    server = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        pass_fds=(listener.fileno(), *kept), start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        server.stdin.write(json.dumps(told | {"socket": listener.fileno()}) + "\n")
        server.stdin.flush()
    except OSError as error:
        why = "the live page's server did not start; run without --live"
        raise RFabricError(why) from error
    listener.close()  # its own now
    return server


def _ended(server: subprocess.Popen) -> None:
    """Wait for the server to end; one that hangs is killed."""
    try:
        server.wait(ENDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _blank(run: dict, result: Result) -> dict:
    """The row of the page that real packets will fill, from the simulated one."""
    none = {"lanes": [], "phases": [], "rewires": [], "load": None, "left_out": [], "step_s": 0.0}
    cost = run["cost"] | {"usd_per_step": None}
    nothing = {"times": [0.0], "sets": [0], "held": [{"circuits": [], "paths": []}]}
    circuits = run["circuits"] and run["circuits"] | nothing | {"names": [], "paths": []}
    own = {"label": f"{run['label']}, real packets", "engine": "emulate", "cost": cost}
    return run | none | own | {"circuits": circuits, "directed": 2 * len(result.fabric.links)}


class _Heard:
    """What has been heard of one emulation."""

    def __init__(self, result: Result, rows: Sequence[int]):
        self.result, trace = result, result.trace
        self.jobs = max(len(trace.provenance.get("held", ())), 1)
        self.flow = np.full(len(trace), -1)  # of a row that the page lists, its place there
        self.flow[np.asarray(rows, dtype=np.int64)] = np.arange(len(rows))
        keys = trace.rows_by_phase
        self.keys = list(keys)
        self.key = np.zeros(len(trace), np.int64)
        for number, some in enumerate(keys.values()):
            self.key[some] = number
        self.rows_of = np.array([len(some) for some in keys.values()], dtype=np.int64)
        self.begin()

    def begin(self) -> None:
        """Nothing yet."""
        self.started = np.zeros(len(self.result.trace), bool)
        self.first = np.full(len(self.keys), np.inf)
        self.last, self.left = np.zeros(len(self.keys)), self.rows_of.copy()

    def record(self, look: dict) -> dict:
        """The line of one look."""
        rows = np.array([row for row, *_ in look["rows"]], dtype=np.int64)
        start, finish = (
            np.array([times[i] for times in look["rows"]], dtype=float) for i in (1, 2)
        )
        new, done = ~self.started[rows], ~np.isnan(finish)
        self.started[rows] = True
        kept = {key: look[key] for key in ("clock_s", "phase", "load", "guard") if key in look}
        listed = np.flatnonzero(self.flow[rows] >= 0)
        return kept | {
            "flows": [
                [int(self.flow[rows[i]]), float(start[i]), float(finish[i]) if done[i] else None]
                for i in listed
            ],
            "lanes": self._lanes(rows, start, finish, new, done),
            "phases": self._phases(rows, start, finish, done),
            "circuits": [self._lit(time, names) for time, names in look["circuits"]],
            "rewires": look["rewires"],
            "under_way": look["under_way"],
        }

    def _lanes(self, rows, start, finish, new, done) -> list:
        """How many more, or fewer, rows of each lane are open from each time on."""
        trace, lanes = self.result.trace, []
        sends = trace.size[rows] > 0
        computes = ~sends & done & (trace.gap[rows] > 0)
        begin = np.where(sends, start, finish - trace.gap[rows])
        lane = trace.phase[rows].astype(np.int64) * self.jobs + trace.step[rows] % self.jobs
        for code in np.unique(lane).tolist():
            phase, job = trace.phases[code // self.jobs] or "flows", code % self.jobs
            mine = lane == code
            for name, opened, closed in (
                ("computes", mine & computes, mine & computes),
                ("sends", mine & sends & new, mine & sends & done),
            ):
                if steps := _steps(begin[opened], finish[closed]):
                    lanes.append([phase, job, name, steps])
        return lanes

    def _phases(self, rows, start, finish, done) -> list:
        """The phases of these rows: when they began, and when all their rows had finished."""
        gap = self.result.trace.gap[rows]
        sends = self.result.trace.size[rows] > 0
        keys = self.key[rows]
        np.minimum.at(self.first, keys, np.where(sends | ~done, start, finish - gap))
        np.maximum.at(self.last, keys[done], finish[done])
        np.subtract.at(self.left, keys[done], 1)
        return [
            [str(key), key.phase or "flows", key.step, float(self.first[i]),
             None if self.left[i] else float(self.last[i])]
            for i, key in ((i, self.keys[i]) for i in np.unique(keys).tolist())
        ]  # fmt: skip

    def _lit(self, time: float, names: Sequence[str]) -> dict:
        from .page.lights import light_paths

        paths = light_paths(self.result.fabric, Circuits.from_json(names))
        return {"time_s": time, "names": list(names), "paths": paths}


def _steps(opened: np.ndarray, closed: np.ndarray) -> list:
    times, which = np.unique(np.concatenate((opened, closed)), return_inverse=True)
    more = np.concatenate((np.ones(len(opened)), -np.ones(len(closed))))
    total = np.bincount(which, more, minlength=len(times)).astype(int)
    return [[t, n] for t, n in zip(times.tolist(), total.tolist(), strict=True) if n]
