"""OrchestrRL's segments: what their bytes add to generation, and what each waits for in a trace."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from rfabric.rl import flows, read_recipe
from rfabric.schedulers.orchestrrl.segments import (
    Move,
    Orchestrated,
    Segment,
    lasts,
    lowered,
    merged,
)

FIRST = 32  # the first GPU that generates


def step_of(*segments):
    made = Orchestrated([], [], [], segments=tuple(segments))
    return SimpleNamespace(number=0, generated=made)


def replica(server, start, end, **known):
    """Two GPUs of a server of 8."""
    gpus = FIRST + 8 * server, FIRST + 8 * server + 1
    return Segment(gpus, "tp2", float(start), float(end), **known)


def test_experience_that_is_still_sent_after_the_last_has_generated_adds_to_generation():
    """Tokens whose experience takes a card 3 s: of who ends 2 s before the last, 1 s is left; of
    the last itself, all; of who ends 4 s before, none.
    """
    w = read_recipe("grpo-64", ())
    tokens = round(3.0 * w.nic_bps / 8 / flows.EXPERIENCE_BYTES_PER_TOKEN)
    for ends, adds in ((8, 1.0), (10, 3.0), (6, 0.0)):
        made = step_of(replica(0, 0, ends, tokens=tokens), replica(1, 0, 10))
        assert lasts(w, made, "generation") == pytest.approx((10.0, adds), abs=1e-6)


def test_kv_of_every_round_adds_to_generation():
    """20 and 30 s of a card's bytes, each over the two cards of a replica."""
    w = read_recipe("grpo-64", ())
    second = w.nic_bps / 8
    made = step_of(
        replica(0, 0, 5),
        replica(1, 5, 9, arrivals=(Move(0, 20 * second),), round="migration-1"),
        replica(2, 9, 12, arrivals=(Move(1, 30 * second),), round="balancing"),
    )
    assert made.generated.rounds == ["migration-1", "balancing"]
    assert lasts(w, made, "generation") == pytest.approx((12.0, 10.0 + 15.0))


def test_moves_of_one_source_are_one():
    assert merged([Move(1, 2.0), Move(0, 3.0), Move(1, 4.0)]) == (Move(1, 6.0), Move(0, 3.0))


@dataclass
class Rows:
    """The rows that are written, each with its phase."""

    workload: object
    rows: list = field(default_factory=list)
    name: str = ""

    def phase(self, step, name):
        self.name = name

    def _row(self, *row):
        self.rows.append((self.name, *row))
        return len(self.rows) - 1

    def compute(self, gpu, seconds, label, after):
        return self._row(label, gpu, seconds, list(after))

    def send(self, sent, label, after):
        ends = zip(sent.src, sent.dst, sent.size, strict=True)
        return [self._row(label, *end, list(after)) for end in ends]

    def barrier(self, gpu, after):
        return self._row("barrier", gpu, list(after))


def test_a_segment_waits_for_its_gpus_for_its_kv_and_for_its_server_to_be_cut():
    """Two of two GPUs, then one of four in their place, cut for 3 s, whose KV comes from a fourth
    on another server; the first two wait for what was before.
    """
    w = read_recipe("grpo-64", ())
    wide = tuple(range(FIRST, FIRST + 4))
    made = step_of(
        replica(0, 0, 5),
        Segment((FIRST + 2, FIRST + 3), "tp2", 2.0, 6.0, switch=2.0),
        replica(1, 0, 7),
        Segment(wide, "tp4", 10.0, 14.0, before=(0, 1), arrivals=(Move(2, 400.0),),
                round="migration-1", switch=3.0),
    )  # fmt: skip
    out = Rows(w)
    assert lowered(out, made, [77]) == len(out.rows) - 1
    kv = [
        ("migration-1", "kv", FIRST + 8 + i // 2, FIRST + i, 100.0) for i in range(4)
    ]  # of two GPUs to four
    rows = [row for row in out.rows if row[1] != "experience"]
    generate = [i for i, row in enumerate(out.rows) if row[1] == "generate"]
    assert rows[:4] == [
        ("generation", "generate", FIRST, 5.0, [77]),
        ("generation", "generate", FIRST + 8, 7.0, [77]),
        ("generation", "switch", FIRST + 2, 2.0, [77]),
        ("generation", "generate", FIRST + 2, 4.0, [out.rows.index(rows[2])]),
    ]
    first, other, second, last = generate
    assert [row[:-1] for row in rows[4:8]] == kv and all(row[-1] == [other] for row in rows[4:8])
    switch = out.rows.index(rows[8])
    assert rows[8] == ("migration-1", "switch", FIRST, 3.0, [first, second, other])
    came = [out.rows.index(row) for row in rows[4:8]]
    assert rows[9] == ("generation", "generate", FIRST, 4.0, [switch, *came])
    assert rows[10][1] == "barrier" and {first, second, other, last} <= set(rows[10][-1])


def test_experience_leaves_each_segment_for_the_training_server_whose_turn_it_is():
    w = read_recipe("grpo-64", ())
    made = step_of(*(replica(server, 0, 5 + server, tokens=10) for server in range(3)))
    out = Rows(w)
    lowered(out, made, [])
    sent = [(row[2], row[3], row[4]) for row in out.rows if row[1] == "experience"]
    size = 10 * flows.EXPERIENCE_BYTES_PER_TOKEN
    # the replicas of two GPUs that stand before these: 0, 4 and 8
    assert sent == [(FIRST + 8 * k, w.response_sink(4 * k), size) for k in range(3)]
    assert np.all([dst < FIRST for _, dst, _ in sent])
