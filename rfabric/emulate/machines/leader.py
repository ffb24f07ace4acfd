"""The machines of a run as its leader sees them: their agents asked, all at once, and their clocks.

leader   --- ask ---> agent        t0 .. t1 here, got .. at there: what the two clocks differ by
         <-- reply --              is known to half of what the way there and back took
"""

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...control.addresses import OFP_PORT
from ...errors import BY_NAME, RFabricError, RunError
from .pipe import Calls, Pipe
from .remote import log_of

ASKED = 20  # times that clocks are asked before a run
KEPT = 40  # answers from which the quickest says how clocks differ
ANSWERS_S = 30.0  # s an agent may take for a usual order
LEAD_S = 0.002  # s from an order to start until it is due, at least: agents wait for it together
MOST_LEAD_S = 0.1
NOTHING = "nothing"


@dataclass(eq=False)
class FarAgent:
    """One machine: its name, the pipe to it, and what is known of its clock."""

    number: int
    name: str
    pipe: Pipe
    log: Path
    facts: dict = field(default_factory=dict)
    trips: list[tuple[float, float]] = field(default_factory=list)  # (s of the way, s of offset)

    def timed(self, sent: float, heard: float, got: float, at: float) -> None:
        """One question and its answer, by both clocks."""
        trip = (heard - sent) - (at - got), ((got - sent) + (at - heard)) / 2
        self.trips = [*self.trips[1 - KEPT :], trip]

    def said(self) -> list[str]:
        """The last lines that it, or the remote shell, said beside frames."""
        return self.log.read_text(errors="replace").strip().splitlines()[-5:]

    @property
    def trip(self) -> float:
        """Seconds of the way there and back, at its quickest."""
        return min(self.trips)[0]

    @property
    def offset(self) -> float:
        """What its clock shows more than ours, s."""
        return min(self.trips)[1]


class Leader:
    """All agents of a run; RunError, with the machine's name, where one has gone or failed."""

    def __init__(self, agents: Sequence[FarAgent]):
        self.agents = list(agents)
        self.arrived: list[tuple[FarAgent, list]] = []
        self._news: queue.SimpleQueue[tuple[FarAgent, dict, float]] = queue.SimpleQueue()
        self._numbers = itertools.count()
        for agent in self.agents:
            threading.Thread(target=self._listen, args=(agent,), daemon=True).start()

    def meet(self) -> None:
        """Wait until all are there; RFabricError where they do not go together."""
        waiting = set(self.agents)
        while waiting:
            agent, news, _ = self._hear(ANSWERS_S, waiting)
            agent.facts = news["hello"]
            waiting.discard(agent)
        for what, way in (("version", "install the same rfabric on all"), ("datapath", "")):
            facts = {agent.name: agent.facts[what] for agent in self.agents}
            if len(set(facts.values())) > 1:
                said = ", ".join(f"{name}: {value}" for name, value in facts.items())
                raise RFabricError(f"machines differ in {what} ({said}); {way}".rstrip("; "))
        for _ in range(ASKED):
            self.ask("clock")

    def ask(self, do: str, timeout: float = ANSWERS_S, **words: Any) -> list:
        """The answers of all agents to one order."""
        return self.ask_each(do, [words] * len(self.agents), timeout)

    def ask_each(self, do: str, words: Sequence[dict | None], timeout: float = ANSWERS_S) -> list:
        """The answers of all agents, each to its own words; None where it was asked nothing."""
        number, sent = next(self._numbers), {}
        for agent, own in zip(self.agents, words, strict=True):
            if own is not None:
                sent[agent] = time.monotonic()
                self.tell(agent, do, {"ask": number}, **own)
        answers: dict[FarAgent, Any] = {}
        limit = time.monotonic() + timeout
        while len(answers) < len(sent):
            waiting = [agent for agent in sent if agent not in answers]
            agent, news, heard = self._hear(limit - time.monotonic(), waiting)
            if news.get("reply") == number:
                agent.timed(sent[agent], heard, news["got"], news["at"])
                answers[agent] = news["is"]
        return [answers.get(agent) for agent in self.agents]

    def tell(self, agent: FarAgent, do: str, more: dict | None = None, **words: Any) -> None:
        """An order to which there is no answer."""
        try:
            agent.pipe.say({"do": do, "with": words} | (more or {}))
        except OSError:
            raise self._gone(agent) from None

    def hear(self, timeout: float) -> None:
        """Wait for what arrives somewhere."""
        with contextlib.suppress(queue.Empty):
            self._take(*self._news.get(timeout=max(timeout, 0.0)))
            while True:
                self._take(*self._news.get_nowait())

    @property
    def lead(self) -> float:
        """Seconds from now in which an order has reached every agent."""
        return min(max(LEAD_S, 2 * max(agent.trip for agent in self.agents)), MOST_LEAD_S)

    def end(self) -> None:
        """All agents clear away their worlds."""
        self.ask("end")

    def _hear(self, timeout: float, waiting) -> tuple[FarAgent, dict, float]:
        """The next answer; what arrives meanwhile is kept."""
        limit = time.monotonic() + timeout
        while True:
            try:
                agent, news, heard = self._news.get(timeout=max(limit - time.monotonic(), 0.0))
            except queue.Empty:
                names = ", ".join(agent.name for agent in waiting)
                said = "\n".join(line for agent in waiting for line in agent.said())
                raise RunError(
                    f"machine {names} does not answer for {timeout:.0f} s; it last said: "
                    f"{said or NOTHING}"
                ) from None
            self._take(agent, news, heard)
            if "reply" in news or "hello" in news:
                return agent, news, heard

    def _take(self, agent: FarAgent, news: dict, _heard: float) -> None:
        if "error" in news:
            raise BY_NAME[news["kind"]](f"machine {agent.name}: {news['error']}")
        if "gone" in news:
            raise self._gone(agent, news["gone"])
        if "arrived" in news:
            self.arrived.append((agent, news["arrived"]))

    def _listen(self, agent: FarAgent) -> None:
        calls, why = Calls(agent.pipe, OFP_PORT), ""
        try:
            for frame in agent.pipe.frames():
                if "call" in frame:
                    calls.hear(frame["call"], frame["data"])
                else:
                    self._news.put((agent, frame, time.monotonic()))
        except (RFabricError, OSError, ValueError) as error:
            why = str(error)
        self._news.put((agent, {"gone": why}, time.monotonic()))

    def _gone(self, agent: FarAgent, why: str = "") -> RunError:
        told = "\n".join([*([why] if why else []), *agent.said()]) or NOTHING
        return RunError(f"machine {agent.name} is gone; it last said: {told}")


@contextlib.contextmanager
def led(names: Sequence[str], pipes: Sequence[tuple[int, int]], folder: Path) -> Iterator[Leader]:
    """The agents at the other ends of these pipes, who have met; the block's end ends them."""
    leader = Leader(
        [
            FarAgent(i, name, Pipe(read, write), log_of(folder, i))
            for i, (name, (read, write)) in enumerate(zip(names, pipes, strict=True))
        ]
    )
    leader.meet()
    yield leader
    leader.end()
