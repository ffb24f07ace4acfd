"""OrchestrRL tick by tick: what a step begins with, what is in flight, when servers are back."""

from functools import cache
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest

from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.schedulers.base import Answer
from rfabric.schedulers.orchestrrl import Tuning, engines_of, generation
from rfabric.schedulers.orchestrrl import seats as seats_module
from rfabric.schedulers.orchestrrl.generation import StepOutcome, _Generating, _ready, _Replica
from rfabric.schedulers.orchestrrl.negotiation import Alive, Settled
from rfabric.schedulers.orchestrrl.outlook import Cut, CutOutlook
from rfabric.schedulers.orchestrrl.replanning import Assignment, keep
from rfabric.schedulers.orchestrrl.seats import Seats, _holds
from rfabric.schedulers.orchestrrl.segments import Move, Segment


@cache
def seats_of(*changes, **tuning):
    w = read_recipe("grpo-64", changes)
    return Seats(w, engines_of(w), Tuning(**tuning))


@pytest.mark.parametrize(("ahead", "ready"), [(0, [0.0, 1.5, 0.0]), (1, [0.0, 3.5, 0.0])])
def test_a_server_cut_otherwise_goes_back_first_which_training_hides(ahead, ready):
    """Generation took 10 s and training takes 2 s; to be cut takes 3.5 s. In a pipeline that is
    ahead the next generation begins as this one ends.
    """
    generated = SimpleNamespace(seconds=10.0)
    trained = SimpleNamespace(seconds=lambda buckets: buckets / 2)
    last = SimpleNamespace(generated=generated, trained=trained)
    w = SimpleNamespace(steps_ahead=ahead, training=SimpleNamespace(buckets=4))
    seats = SimpleNamespace(workload=w, tuning=Tuning(switch_s=3.5))
    cuts, done = np.array([0, 1, 1]), np.array([10.0, 10.0, 4.0])
    assert _ready(seats, StepOutcome(last, cuts, done, {}), 0).tolist() == ready


def test_groups_are_dealt_whole_longest_prompts_first_to_servers_then_to_their_replicas():
    """Nine groups of two on four servers of two replicas; the second server is ready at 3 s."""
    seats = seats_of("generation.group_size=2")
    cut = [made.gpus for made in seats.engines.cuts].index(4)
    play = object.__new__(_Generating)
    play.seats = seats
    groups = np.array([50, 90, 10, 80, 70, 20, 60, 30, 40])
    play.prompts, play.outputs = np.repeat(groups, 2), np.full(18, 100)
    ready = np.array([0.0, 3.0, 0.0, 0.0])
    replicas = play._begin(cut, ready)
    assert [(r.seat, r.gpus) for r in replicas] == [
        (place % 4, seats.gpus(place % 4, cut, place // 4)) for place in range(8)
    ]
    for place, r in enumerate(replicas):
        mine = [g for g in range(9) if (-groups).argsort().tolist().index(g) % 8 == place]
        assert r.ids.tolist() == sorted(i for g in mine for i in (2 * g, 2 * g + 1))
        assert r.session.unfinished == 2 * len(mine)
        assert (r.ready, r.base, r.now, r.segment["switch"]) == (ready[r.seat],) * 4
    # three groups alone: their responses are dealt one by one, those with the longest prompts first
    play.prompts, play.outputs = play.prompts[:6], play.outputs[:6]
    assert [r.ids.tolist() for r in play._begin(cut, ready)] == [
        [2], [3], [0], [1], [4], [5], [], []
    ]  # fmt: skip
    play.prompts, play.outputs = play.prompts[:4], play.outputs[:4]
    alone = play._begin(cut, ready)
    assert [bool(r.session) for r in alone] == [True] * 4 + [False] * 4
    assert (alone[0].session.requests.group < 0).all()  # nobody is there to share a prompt with


def test_what_is_sent_stands_beside_proposals_until_it_has_arrived(monkeypatch):
    """Each is agreed to arrive 1.5 s later, at twice the cards' price."""
    told = []

    def agree(seats, p, kv, find, beside):
        told.append(list(beside))
        why = ["", "no way", "", "no light", ""][len(told) - 1]
        return Settled("plan", f"kv {len(told)}", 2.0, Answer(1.5), why, len(told) == 3)

    monkeypatch.setattr(generation, "settle", agree)
    play = object.__new__(_Generating)
    play.seats, play.flying, play.refusal = SimpleNamespace(network="asked"), [], ""
    play.counts = {"refused": 0, "given_up": 0}
    for play.now in (1.0, 2.0, 2.5, 4.0, 5.0):
        assert play._settled(None, None, None) == "plan" and play.slow == 2.0
    assert told == [[], ["kv 1"], ["kv 2"], [], ["kv 4"]]
    assert play.counts == {"refused": 2, "given_up": 1} and play.refusal == "no way"


def width(seats, gpus):
    """The cut of a seat into replicas of so many GPUs."""
    return [cut.gpus for cut in seats.engines.cuts].index(gpus)


def alive(*rows):
    """Of each response that is not done: replica, context, tokens to come, whether its KV is
    there.
    """
    replica, context, left, resident = (np.array(column) for column in zip(*rows, strict=True))
    return Alive(np.arange(len(rows)), replica, context, left, resident)


def test_who_stays_on_a_server_keeps_its_replica_and_who_comes_takes_the_emptiest(monkeypatch):
    """Four servers of two replicas each; the second is cut into four. Three responses stay on the
    first replica, the longest of those that come goes first.
    """
    seats = seats_of()
    wide, narrow = width(seats, 4), width(seats, 2)
    play, done = object.__new__(_Generating), []
    play.seats, play.now, play.cuts = seats, 10.0, np.full(4, wide)
    play.counts = {"replans": 1, "servers_cut": 5}
    nothing = np.zeros(0, int)
    old = play.replicas = [
        _Replica(k, wide, seats.gpus(k, wide, i), nothing) for k in range(4) for i in range(2)
    ]
    monkeypatch.setattr(play, "_rebuild", lambda *what: done.append(what))
    some = alive(*((at, 10 * n, 5, True) for n, at in enumerate([0, 0, 0, 1, 2, 3, 4, 5], 1)))
    plan = Assignment(np.array([0, 0, 0, 1, 1, 1, 0, 0]), np.array([wide, narrow, wide, wide]), 1.0)
    play._follow(some, plan, np.array([0, 0, 0, 0, 1, 1, 2, 2]))
    ((same, target, name, replicas),) = done
    assert same is some and name == "migration-2" and target.tolist() == [0, 0, 0, 8, 7, 6, 1, 1]
    assert replicas[:6] == [r for r in old if r.seat != 1]
    assert [(r.seat, r.cut, r.ready) for r in replicas[6:]] == [(1, narrow, 13.5)] * 4
    assert [r.gpus for r in replicas[6:]] == [seats.gpus(1, narrow, i) for i in range(4)]
    assert play.counts == {"replans": 2, "servers_cut": 6}
    assert play.cuts.tolist() == plan.cut.tolist() and play.cuts is not plan.cut


@pytest.mark.parametrize("switch", [3.5, 9.0])
def test_plans_that_came_due_before_the_last_was_in_force_are_one(switch, monkeypatch):
    """Every server is cut at the first look: the next plan is the first that comes due after, and
    from then on one comes every period, however many were missed.
    """
    words = ("generation.batch=64", "generation.max_response=4096")
    seats = seats_of(*words, period_s=3.0, switch_s=switch)
    planned, follow = [], _Generating._follow

    def replanned(play, alive):
        planned.append(play.now)
        if len(planned) == 1:
            seat = np.array([r.seat for r in play.replicas])[alive.replica]
            follow(play, alive, Assignment(seat, 1 - play.cuts, 0.0), seat)

    monkeypatch.setattr(_Generating, "_replan", replanned)
    monkeypatch.setattr(_Generating, "_balance", lambda play, alive: None)
    generation.generate(seats, 0, [np.full(8, 1000)], 1, [0])
    first, second, *others = planned
    due = 3.0 * np.arange(2, 99)
    assert first == 3.0 and 3.0 + switch <= second <= 3.0 + switch + 2.0
    assert others == due[(due > second) & (due <= planned[-1])].tolist() and others


@pytest.mark.parametrize(("slow", "ready"), [(1.0, 0.0), (1.0, 16.0), (1e9, 0.0)])
def test_a_replica_begins_when_its_gpus_and_all_that_comes_are_free(slow, ready):
    """Of four responses one was on its server, three come from another; of two of these the KV is
    there. A network much slower than cards carries none.
    """
    seats = seats_of()
    cut, play = width(seats, 2), object.__new__(_Generating)
    nothing = np.zeros(0, int)
    here, there, target = (
        _Replica(k, cut, seats.gpus(k, cut, i), nothing, ready) for k, i in ((0, 0), (1, 0), (0, 1))
    )
    play.seats, play.slow, play.now, play.replicas = seats, slow, 12.0, [here, there]
    ends = (12.0, 11.0, 12.5)
    play.segments = [Segment((), "", 0.0, end) for end in ends]
    play.last, play.counts = {target.gpus[0]: 2, 999: 0}, {"moved": 1, "recomputed": 1}
    some = alive((0, 500, 7, True), (1, 3000, 8, True), (1, 900, 9, False), (1, 2000, 6, True))
    rows, bytes_of = np.array([0, 1, 2, 3]), seats.workload.model.kv_bytes_per_token
    new = play._renewed(target, some, rows, {id(here): 0, id(there): 1}, "migration-1")
    carried = slow == 1.0
    assert play.counts == {"moved": 4, "recomputed": 2 if carried else 4}
    arrivals = Move(0, 0.0), Move(1, carried * 5000.0 * bytes_of)
    began = max(12.5, ready)
    assert new.segment == {
        "before": (2,), "arrivals": arrivals, "round": "migration-1", "switch": began - 12.5,
    }  # fmt: skip
    assert (new.base, new.ready, new.ids.tolist()) == (began, ready, [0, 1, 2, 3])
    assert new.session.cached_prompts == ({0, 1, 3} if carried else {0})
    assert new.session.unfinished == 4
    alone = play._renewed(target, some, nothing, {}, "migration-1")
    assert alone.session is None and alone.segment["arrivals"] == ()
    play.last[target.gpus[1]] = 1  # its GPUs were in the segment that some come from
    again = play._renewed(target, some, rows, {id(here): 0, id(there): 1}, "migration-2")
    assert again.segment["before"] == (1, 2) and again.segment["arrivals"] == arrivals[:1]


def test_kv_that_a_replica_has_no_room_for_is_computed_again():
    """It keeps a hundredth free; each response has a token to come at least."""
    seats = seats_of()
    cut, play = width(seats, 2), object.__new__(_Generating)
    limit = 0.99 * seats.engines.kv_tokens[cut]
    size = int(limit / 3) - 1
    here = _Replica(0, cut, seats.gpus(0, cut, 0), np.zeros(0, int))
    play.seats, play.slow, play.now, play.replicas = seats, 1.0, 0.0, [here]
    play.segments, play.last, play.counts = [Segment((), "", 0.0, 1.0)], {}, {}
    for more, held in ((0, {0, 1, 2}), (3, {0, 1})):
        play.counts = {"moved": 0, "recomputed": 0}
        some = alive(*((0, size + more * (i == 2), 1, True) for i in range(3)))
        made = play._renewed(here, some, np.arange(3), {id(here): 0}, "balancing")
        assert made.session.cached_prompts == held


# --- the balancer ---------------------------------------------------------------------------------


def balanced(counts, monkeypatch, gain=0.5, part=0.0, **tuning):
    """What the balancer is asked to decide and does in a look, of so many responses a replica,
    where moving one would leave this share of the seconds.
    """
    seats = seats_of(**tuning)
    cut, asked, done = width(seats, 4), [], []
    play = object.__new__(_Generating)
    play.seats, play.counts, play.part = seats, {"balanced": 0}, part
    play.cuts = np.full(4, cut)
    play.replicas = [
        _Replica(k, cut, seats.gpus(k, cut, i), np.zeros(0, int)) for k in range(4) for i in (0, 1)
    ]
    some = alive(*((at, 100, 50, True) for at, n in enumerate(counts) for _ in range(n)))
    cuts = len(seats.engines.cuts)
    seen = CutOutlook(np.ones(cuts), np.ones((cuts, sum(counts))))
    moved = np.where(np.arange(len(some.ids)) == 0, 7, some.replica)

    def even(p, cut, most):
        asked.append((p, most))
        return Assignment(moved, cut, gain * keep(p).seconds)

    monkeypatch.setattr(generation, "evened", even)
    monkeypatch.setattr(play, "_outlook", lambda alive: seen)
    monkeypatch.setattr(play, "_settled", lambda p, kv, find: find(p))
    monkeypatch.setattr(play, "_rebuild", lambda *what: done.append(what[1:]))
    play._balance(some)
    assert play.counts["balanced"] == len(done)
    assert [(to.tolist(), name) for to, name in done] in ([], [(moved.tolist(), "balancing")])
    return asked, bool(done), seats, cut


@pytest.mark.parametrize(
    ("counts", "looks"),
    [([3, 1, 3, 3, 3, 3, 3, 3], True), ([3, 2, 3, 3, 2, 2, 2, 2], False),
     ([2] + [0] * 7, True), ([1] * 8, False)],
)  # fmt: skip
def test_the_balancer_looks_where_one_replica_has_two_more_than_another(counts, looks, monkeypatch):
    asked, _, seats, cut = balanced(counts, monkeypatch)
    assert bool(asked) == looks
    for p, most in asked:
        assert most == 2  # two a second, one second
        assert p.seat.tolist() == [at for at, n in enumerate(counts) for _ in range(n)]
        assert p.cut.tolist() == [cut] * 8 and p.capacity.tolist() == list(seats.engines.kv_tokens)
        # a response is work of one replica of its server, not of the whole; alone at its replica
        # it is all of that
        servers, every = (min(places, sum(counts)) for places in (4, 4 * 8))
        assert p.work[0, 0] == every / servers and seats.engines.replicas[0] == 8


@pytest.mark.parametrize(
    ("moves", "balance", "looks"),
    [
        (2.0, 1.0, [2, 2, 2, 2, 2]),
        (0.6, 2.0, [1, 1, 1, 1, 2]),
        (0.4, 2.0, [0, 1, 1, 1, 1]),
        (2.0, 0.4, [0, 1, 1, 1, 1]),
        (0.0, 1.0, [0, 0, 0, 0, 0]),
    ],
)
def test_the_balancer_moves_so_many_a_second_whole_ones_at_each_look(
    moves, balance, looks, monkeypatch
):
    """Parts of a response add up from look to look, however much time a plan takes between."""
    part, settings = 0.0, {"moves": moves, "balance_s": balance}
    for most in looks:
        asked, *_ = balanced([5] + [0] * 7, monkeypatch, part=part, **settings)
        assert [most for _, most in asked] == ([most] if most else [])
        whole, part = Tuning(**settings).moves_in_look(part)
        assert whole == most
    often = Tuning(moves=moves, balance_s=9.0, period_s=balance)  # looks come with the plans
    assert often.moves_in_look(0.0) == Tuning(**settings).moves_in_look(0.0)


@pytest.mark.parametrize(("gain", "moves"), [(0.89, True), (0.91, False)])
def test_the_balancer_moves_where_that_gains_more_than_the_hysteresis(gain, moves, monkeypatch):
    assert balanced([5] + [0] * 7, monkeypatch, gain, hysteresis=0.1)[1] == moves


# --- settings -------------------------------------------------------------------------------------


def test_settings_have_their_least_and_only_the_planner_may_be_left_out():
    least = {"period_s": 0.1, "balance_s": 0.1, "hysteresis": 0.0, "switch_s": 0.0, "moves": 0.0}
    assert Tuning(**least) and Tuning(period_s=inf).period_s == inf
    for key, low in least.items():
        for wrong in (low - 0.01, nan, *([inf] if key != "period_s" else [])):
            with pytest.raises(RFabricError, match=f"{key.removesuffix('_s')} .* {low:g} or more"):
                Tuning(**{key: wrong})


@pytest.mark.parametrize(("more", "holds"), [(0, True), (-1, False)])
def test_a_cut_holds_the_longest_sequence_of_each_attention_replica(more, holds, monkeypatch):
    w = read_recipe("grpo-64", ("model=Qwen3-30B-A3B", "training.ep=8"))
    made = SimpleNamespace(kv_capacity_tokens=2 * w.generation.longest + more)
    monkeypatch.setattr(seats_module, "_server", lambda w, cut: made)
    assert _holds(w, Cut(2, 2)) == holds and not _holds(w, Cut(2, 4))
    assert not _holds(w, Cut(3, 2))  # heads that it does not divide
