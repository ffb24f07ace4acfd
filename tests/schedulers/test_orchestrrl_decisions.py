"""OrchestrRL's decisions one by one: small examples worked out by hand, and every assignment
tried.
"""

from dataclasses import replace
from functools import cache
from itertools import product
from math import ceil, inf, log, sqrt

import numpy as np
import pytest

from rfabric.compute.requests import independent
from rfabric.compute.roofline import DecodeStep, step_of
from rfabric.compute.serving import Batching, ServingSession
from rfabric.rl import flows, read_recipe
from rfabric.rl.phases import responses
from rfabric.rl.timing import server_of
from rfabric.schedulers import orchestrrl
from rfabric.schedulers.base import Answer
from rfabric.schedulers.orchestrrl import Tuning, engines_of, orchestrate, seat_gpus
from rfabric.schedulers.orchestrrl.least import least_generation, least_seconds
from rfabric.schedulers.orchestrrl.negotiation import (
    Alive,
    Kv,
    Places,
    Settled,
    _between,
    _decided,
    settle,
)
from rfabric.schedulers.orchestrrl.outlook import (
    Cut,
    CutOutlook,
    Engines,
    LengthForecast,
    _ages,
    _best_path,
    _costs,
    _survivors,
    forecast,
    outlook,
)
from rfabric.schedulers.orchestrrl.replanning import (
    Assignment,
    Problem,
    _dealt,
    _fluid,
    _mixes,
    evened,
    exact,
    keep,
    overfull,
    replan,
    seat_seconds,
)
from rfabric.schedulers.orchestrrl.seats import Seats
from rfabric.schedulers.orchestrrl.segments import Segment, _sent, rounds

ROOM = 100.0


def problem(work, seat, cut, fixed=None, kv=None, capacity=None, move=0.0, switch=0.0, static=None):
    """By cut (rows of `work`), response (its columns) and seat (`cut`)."""
    work = np.array(work, float)
    cuts, n = work.shape
    return Problem(
        np.array(fixed if fixed is not None else [0.0] * cuts, float),
        work,
        np.array(kv if kv is not None else [1.0] * n, float),
        np.array(capacity if capacity is not None else [ROOM] * cuts, float),
        np.broadcast_to(np.array(move, float), (n,)).copy(),
        np.array(seat),
        np.array(cut),
        switch,
        static,
    )


def taken(p, seat, cut):
    """Seconds of each seat, counted one response after the other."""

    def seconds(k):
        mine = [i for i in range(len(seat)) if seat[i] == k]
        own = sum(p.work[cut[k], i] + p.move[i] * (p.seat[i] not in (-1, k)) for i in mine)
        return own + (p.fixed[cut[k]] + p.switch * (cut[k] != p.cut[k])) * bool(mine)

    return [seconds(k) for k in range(len(p.cut))]


def least(p):
    """The shortest longest seat of all assignments whose KV fits."""
    n, seats, cuts = len(p.seat), len(p.cut), len(p.fixed)
    ends = [
        max(taken(p, seat, cut))
        for seat in product(range(seats), repeat=n)
        for cut in product(range(cuts), repeat=seats)
        if all(
            sum(p.kv[i] for i in range(n) if seat[i] == k) <= p.capacity[cut[k]]
            for k in range(seats)
        )
    ]
    return min(ends)


def drawn(number):
    random = np.random.default_rng(number)
    n, seats = int(random.integers(2, 5)), 2
    seat = random.integers(0, seats, n) if number % 2 else np.full(n, -1)
    return problem(
        random.uniform(1, 5, (2, n)),
        seat,
        random.integers(0, 2, seats),
        random.uniform(0, 2, 2),
        random.integers(1, 4, n),
        np.array([9.0, 7.0]),
        random.uniform(0, 1, n),
        float(random.uniform(0, 2)),
    )


@pytest.mark.parametrize("number", range(12))
def test_the_program_finds_what_trying_all_finds(number):
    p = drawn(number)
    assert exact(p).seconds == pytest.approx(least(p))
    plan = replan(p)
    assert plan.seconds == pytest.approx(max(taken(p, plan.seat, plan.cut)))
    assert seat_seconds(p, plan.seat, plan.cut) == pytest.approx(taken(p, plan.seat, plan.cut))


# --- replan ---------------------------------------------------------------------------------------


def test_a_gain_must_exceed_the_hysteresis():
    """10 s on one of two seats become 8 s: a fifth less."""
    p = problem([[8, 2]], [0, 0], [0, 0])
    assert replan(p, 0.19).seconds == 8
    assert replan(p, 0.2).seat.tolist() == [0, 0]
    assert replan(p, 0.21).seat.tolist() == [0, 0]


def test_a_cut_is_taken_now_where_that_beats_never_by_the_hysteresis():
    """Now 8 + 1.5 s; later 10 s; never 12 s, of which a tenth less is 10.8 s: the first of them."""
    never = CutOutlook(np.zeros(2), np.array([[12.0], [8.0]]))
    about = {"work": [[10], [8]], "seat": [0], "cut": [0], "switch": 1.5}
    assert replan(problem(**about, static=never), 0.1).cut.tolist() == [1]
    assert replan(problem(**about), 0.1).cut.tolist() == [0]
    hardly = CutOutlook(np.zeros(2), np.array([[10.5], [8.0]]))
    assert replan(problem(**about, static=hardly), 0.1).cut.tolist() == [0]


def test_what_does_not_fit_is_spread_whatever_it_costs():
    p = problem([[1, 1]], [0, 0], [0, 0], kv=[6, 6], capacity=[10], move=50.0)
    assert overfull(p, p.seat, p.cut).tolist() == [0]
    assert sorted(replan(p, 0.3).seat.tolist()) == [0, 1]
    assert not len(overfull(replace(p, capacity=np.array([12.0])), p.seat, p.cut))


def test_responses_without_a_seat_are_dealt_longest_first_to_who_is_done_first():
    p = problem([[3, 5, 4, 2]], [-1] * 4, [0, 0])
    assert keep(p).seat.tolist() == [1, 0, 1, 0] and keep(p).seconds == 7
    tight = problem([[3, 5, 4, 2]], [-1] * 4, [0, 0], kv=[2, 2, 2, 2], capacity=[4])
    assert keep(tight).seat.tolist() == [1, 0, 1, 0]
    over = problem([[3, 2, 1]], [-1] * 3, [0, 0], kv=[4, 3, 4], capacity=[5])
    assert keep(over).seat.tolist() == [0, 1, 1]  # none has room for the last: the seat with most


@pytest.mark.parametrize("own", [0, 1])
def test_who_has_a_seat_keeps_it_where_the_move_costs_more_than_it_gains(own):
    """3 and 2 s on one seat of two; a move takes 5 s, or half of one."""
    p = problem([[3, 2]], [own, own], [0, 0], move=5.0)
    assert _dealt(p, p.cut).seat.tolist() == [own, own] and _dealt(p, p.cut).seconds == 5
    just = problem([[3]], [own], [0, 0], kv=[10], capacity=[10], move=5.0)
    assert _dealt(just, just.cut).seat.tolist() == [own]  # it fills its seat
    cheap = replace(p, move=np.full(2, 0.5))
    assert _dealt(cheap, p.cut).seat.tolist() == [own, 1 - own]
    assert _dealt(cheap, p.cut).seconds == 3


def test_the_seat_that_is_done_first_is_taken_though_another_has_more_room():
    about = {"cut": [0, 1], "fixed": [0, 5], "capacity": [10, 99]}
    assert keep(problem([[1.0], [1.0]], [-1], **about)).seat.tolist() == [0]
    assert keep(problem([[1.0], [1.0]], [-1], kv=[11.0], **about)).seat.tolist() == [1]


@pytest.mark.parametrize("seed", range(6))
def test_a_response_alone_goes_to_the_seat_that_is_done_first_of_all_cuts(seed):
    fixed, work = np.random.default_rng(seed).uniform(1, 5, (2, 4))
    p = problem(work[:, None], [-1], [0, 1, 2, 3], fixed=fixed)
    assert keep(p).seat.tolist() == [(fixed + work).argmin()]


def test_some_seats_or_all_of_them_are_tried_with_another_cut():
    p = problem([[1.0], [1.0]], [1], [0, 1, 0])
    mixes = [mix.tolist() for mix in _mixes(p)]
    # seats that are cut so come first, then those with least to do: of two 1s the second seat, then
    # the first
    assert mixes == [[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]]
    assert [mix.tolist() for mix in _mixes(problem([[1.0], [1.0]], [0], [0]))] == [[0], [1]]


def test_responses_poured_over_seats_end_together():
    """All the work takes either seat 10 s; the second begins 2 s later: t / 10 + (t - 2) / 10 =
    1.
    """
    p = problem([[10.0], [10.0]], [0], [0, 1], fixed=[0, 2])
    assert _fluid(p, p.cut, p.work.sum(1)) == pytest.approx(6)
    late = replace(p, fixed=np.array([0.0, 30.0]))
    assert _fluid(late, p.cut, p.work.sum(1)) == pytest.approx(10)
    # cut another way: 3 s more
    assert _fluid(replace(p, switch=3.0), np.array([0, 0]), p.work.sum(1)) == pytest.approx(6.5)


# --- the balancer ---------------------------------------------------------------------------------


def test_the_balancer_moves_what_shortens_the_longest_seat_most():
    p = problem([[3, 2, 1]], [0, 0, 0], [0, 0])
    assert evened(p, p.cut).seat.tolist() == [1, 0, 0] and evened(p, p.cut).seconds == 3
    assert evened(replace(p, move=np.full(3, 0.5)), p.cut).seconds == 3.5
    # a seat in use takes 1 s more
    assert evened(replace(p, fixed=np.array([1.0])), p.cut).seconds == 4
    assert evened(replace(p, move=np.full(3, 6.0)), p.cut).seat.tolist() == [0, 0, 0]
    assert evened(p, p.cut, 0).seat.tolist() == [0, 0, 0]
    alone = problem([[2]], [0], [0, 0])
    assert evened(alone, alone.cut).seat.tolist() == [0]  # the other would be done as late


def test_an_empty_seat_takes_its_switch_with_the_first_that_comes():
    """3, 2 and 1 s on one seat; the other takes 2 s to be cut: best with 2 s of work, 4 s each."""
    p = problem([[3, 2, 1], [3, 2, 1]], [0, 0, 0], [0, 0], switch=2.0)
    recut = evened(p, np.array([0, 1]))
    assert recut.seat.tolist() == [0, 1, 0] and recut.seconds == 4
    assert evened(p, p.cut).seat.tolist() == [1, 0, 0] and evened(p, p.cut).seconds == 3


def test_the_balancer_moves_to_where_there_is_room():
    p = problem([[3, 2, 1]], [0, 0, 0], [0, 0], kv=[4, 3, 1], capacity=[8])
    assert evened(p, p.cut).seat.tolist() == [1, 0, 0]
    tight = problem([[9, 2, 1, 1]], [0, 0, 0, 1], [0, 0], kv=[5, 3, 1, 6], capacity=[9])
    # of 3 tokens, all that is free
    assert evened(tight, tight.cut, 1).seat.tolist() == [0, 1, 0, 1]
    # one of 4 tokens fills the other seat
    alike = problem([[3] * 4] * 2, [0] * 4, [0, 1], kv=[4] * 4, capacity=[99, 5])
    assert sorted(evened(alike, alike.cut).seat.tolist()) == [0, 0, 0, 1]
    full = replace(tight, kv=np.array([5, 4, 4, 6.0]), capacity=np.array([9.5]))
    assert evened(full, full.cut).seat.tolist() == [0, 0, 0, 1]


# --- what is agreed with the network --------------------------------------------------------------


def test_of_what_the_network_answered_the_soonest_is_done_if_it_is_worth_it():
    p = problem([[3, 2, 1]], [0, 0, 0], [0, 0])
    plans = [
        Settled(Assignment(np.array(seat), np.array(cut), end), flows.NONE, 1.0, Answer(0.0))
        for seat, cut, end in (
            ([1, 0, 0], [0, 0], 5.0),
            ([0, 1, 0], [0, 0], 4.0),
            ([0, 0, 1], [0, 1], 4.5),
        )
    ]
    moved, better, recut = plans
    assert _decided(p, plans, {False: 4.1, True: 0.0}) is better
    assert _decided(p, [recut, moved], {False: 0.0, True: 4.6}) is recut
    for some, worth in (
        (plans, {False: 4.0, True: 9.0}),
        ([recut, moved], {False: 9.0, True: 4.5}),
    ):
        stays = _decided(p, some, worth)
        assert stays.given_up and stays.assignment.seat.tolist() == [0, 0, 0]


class Says:
    """A network that takes so many times what cards alone would, which is 2.5 s."""

    def __init__(self, times):
        self.seconds, self.asked = 2.5 * times, []

    def answer(self, sends, beside=(), lead=0.0):
        self.asked.append((sum(sends.size), len(sends.src), beside))
        return Answer(self.seconds, "" if np.isfinite(self.seconds) else "no way")


@pytest.mark.parametrize(
    ("times", "prefill", "seconds", "sent", "slow", "prices"),
    [
        (1.0, 0.3, 8.1, 1e12, 1.0, [0.1]),
        (1.04, 0.3, 8.1, 1e12, 1.0, [0.1]),  # as good as cards
        (1.06, 0.3, 8 + 2.65, 1e12, 1.0, [0.1, 0.106]),
        (2.0, 0.3, 8 + 5.0, 1e12, 1.0, [0.1, 0.2]),
        (4.0, 0.3, 8.3, 0, 4.0, [0.1, 0.3]),  # computed again
        (np.inf, 0.3, 8.3, 0, 1e9, [0.1, 0.3]),
        (3.0, 50.0, 8 + 7.5, 1e12, 1.0, [0.1, 0.3]),
        (4.0, 50.0, 16.0, 0, 1.0, [0.1, 0.4]),  # nothing is worth it
    ],
)
def test_what_is_carried_computed_again_or_left_is_decided_on_the_answer(
    times, prefill, seconds, sent, slow, prices
):
    """Two responses of 8 s on one of two servers: one moves. Its KV of 1 TB takes the taker 0.1 s
    at the cards' price, or `prefill` s to compute again; it waits for what is carried.
    """
    w, says, asked = read_recipe("grpo-64", ()), Says(times), []
    seats = Seats(w, engines_of(w), Tuning(), says)
    every = Places.of_seats(seats)
    each = np.ones(2)
    kv = Kv(1e12 * each, 0.1 * each, prefill * each, np.zeros(2, int), every, every)
    p = replace(problem([[8, 8]], [0, 0], [0, 0]), move=kv.price(1.0))

    def find(some):
        asked.append(some.move.tolist())
        return evened(some, some.cut)

    done = settle(seats, p, kv, find, ["beside"])
    assert done.assignment.seconds == pytest.approx(seconds)
    assert done.assignment.seat.tolist() == [0 if seconds == 16 else 1, 0]
    assert (sum(done.sends.size), done.slow) == (sent, pytest.approx(slow))
    assert asked == [[pytest.approx(price)] * 2 for price in prices]
    assert says.asked == [(1e12, 8, ["beside"])]  # the same proposal once, and nothing for nothing
    assert done.refused == ("" if np.isfinite(times) else "no way")
    assert done.given_up == (seconds == 16)
    assert done.answer.seconds == pytest.approx(2.5 * times if sent and len(prices) > 1 else 0.0)
    alone = settle(replace(seats, network=None), p, kv, find, ())
    assert alone.assignment.seconds == 8.1 and alone.sends == flows.NONE and alone.slow == 1.0


def test_a_server_waits_only_for_kv_that_it_takes():
    """Three responses of 8, 12 and 8 s on one server. The first goes to another with its KV, which
    takes 5 s to arrive; the second to a third one, and has none.
    """
    w = read_recipe("grpo-64", ())
    seats = Seats(w, engines_of(w), Tuning(), Says(2.0))
    every, place = Places.of_seats(seats), np.array([1, 2, 0])
    kv = Kv(np.array([1e12, 0, 1e12]), np.full(3, 0.1), np.full(3, 50.0), np.zeros(3, int), every,
            every)  # fmt: skip
    p = problem([[8, 12, 8]], [0, 0, 0], [0, 0, 0], move=0.1)
    done = settle(seats, p, kv, lambda some: Assignment(place, some.cut, 0.0), ())
    assert done.assignment.seconds == 8 + 5 and done.assignment.seat is place


@pytest.mark.parametrize(
    ("a", "b", "pairs"),
    [
        ((0, 1), (8, 9, 10, 11), [(0, 8), (0, 9), (1, 10), (1, 11)]),
        ((0, 1, 2, 3), (8, 9), [(0, 8), (1, 8), (2, 9), (3, 9)]),
        ((4, 5, 6), (16, 17, 18), [(4, 16), (5, 17), (6, 18)]),
        ((0, 1), (2, 3, 4, 5), []),  # of one server
    ],
)
def test_kv_goes_from_all_gpus_that_hold_it_to_all_that_take_it_in_even_parts(a, b, pairs):
    w = read_recipe("grpo-64", ())
    proposed = _between(a, b, 24.0, w.gpus_per_server)
    done = _sent(w, Segment(a, "tp", 0.0, 1.0), Segment(b, "tp", 1.0, 2.0), 24.0)
    for sent in (proposed, done):
        assert list(zip(sent.src, sent.dst, strict=True)) == pairs
        assert list(sent.size) == [24.0 / max(len(a), len(b))] * len(pairs)
    assert not len(_sent(w, Segment(a, "tp", 0.0, 1.0), Segment(b, "tp", 1.0, 2.0), 0.0).src)


# --- what is expected -----------------------------------------------------------------------------


def test_lengths_are_smoothed_with_a_damped_trend():
    """Level 100, 150, 177; trend 0, 5, 6.3; of the trend 0.8 is expected next."""
    history = [np.full(4, tokens) for tokens in (100.0, 200.0, 200.0)]
    assert forecast(history[:1], 999).tokens == pytest.approx(np.full(512, 100.0))
    assert forecast(history[:2], 999).tokens == pytest.approx(np.full(512, 154.0))
    assert forecast(history, 999).tokens == pytest.approx(np.full(512, 182.04))


def test_a_response_as_long_as_any_expected_has_half_of_what_is_allowed_to_come():
    expected = LengthForecast(np.array([10.0, 20.0]), 100)
    assert expected.remaining(20).tolist() == [40]
    assert expected.remaining(19).tolist() == [1]


def test_a_cut_is_left_as_soon_as_that_pays():
    cost, nothing = np.array([[1.0, 1, 5], [3, 3, 1]]), np.zeros((2, 3))
    total, fixed = _best_path(cost, nothing, 1.0)
    assert total.tolist() == [1 + 1 + 1 + 1, 3 + 3 + 1]
    assert fixed.tolist() == [1, 0]  # the switch
    assert _best_path(cost, nothing, 9.0)[0].tolist() == [7, 7]
    # to leave for what takes as long pays nothing
    total, fixed = _best_path(np.array([[1.0, 1], [1, 0]]), nothing[:, :2], 1.0)
    assert total.tolist() == [2, 1] and fixed.tolist() == [0, 0]
    assert _best_path(cost, cost / 2, 9.0)[1].tolist() == [3.5, 3.5]


def test_survivors_are_those_with_more_tokens_to_come():
    """Four responses of 10 tokens, two of 30."""
    grid, alive = _survivors([np.array([10.0]), np.array([30.0])], np.array([4, 2]))
    middle = (grid[1:] + grid[:-1]) / 2
    assert grid[0] == 0 and grid[-1] == 30
    assert alive.tolist() == [6.0 if at < 10 else 2.0 for at in middle]


def test_a_response_alone_is_expected_to_be_done_where_half_of_its_lengths_are():
    """10, 20, 30 or 40 tokens to come, each equally likely; of two responses alike, the last is
    done where a quarter of the lengths are left.
    """
    lengths = np.array([10.0, 20, 30, 40])
    assert _survivors([lengths], np.array([1]))[0][-1] == 20
    assert _survivors([lengths], np.array([2]))[0][-1] == 30


def test_responses_are_sorted_by_tokens_made_into_even_ages():
    """48 of them that made 0 to 47 tokens: 24 pairs; few ages are left as they are."""
    ages, which = _ages(np.arange(48))
    assert ages.tolist() == [2 * k + 0.5 for k in range(24)]
    assert which.tolist() == [k // 2 for k in range(48)]
    ages, which = _ages(np.array([7, 3, 7]))
    assert (ages.tolist(), which.tolist()) == ([3, 7], [1, 0, 1])
    every, own = _ages(np.arange(24))
    assert every.tolist() == own.tolist() == list(range(24))


def test_each_length_that_is_expected_of_some_is_as_many_of_them_as_any_other():
    """Of four responses two have 10 tokens to come and two 20; two more have 30."""
    grid, alive = _survivors([np.array([10.0, 20]), np.array([30.0])], np.array([4, 2]))
    middle = (grid[1:] + grid[:-1]) / 2
    assert alive.tolist() == [6.0 if at < 10 else 4.0 if at < 20 else 2.0 for at in middle]


def test_the_replica_that_is_done_last_has_more_than_the_mean():
    """100 responses a seat, then 50, on two seats of two replicas: of four the fullest has
    sqrt(2 ln 4) standard deviations more than 25, where half of them are left. Steps take 2 s and
    1 ms a response.
    """
    step, load, grid = (
        DecodeStep(0, 0, 1e-3, 0, 2.0, 0),
        np.array([100.0, 50]),
        np.array([0, 10, 30]),
    )
    fullest = 25 + sqrt(2 * log(4) * 25 * 0.5)
    for kv, times in ((10**6, 1), (50 * 7 // 2, 2)):  # half of 50 contexts of 7 tokens: two turns
        ((cost, base),) = _costs(Engines((Cut(1),), (step,), (kv,), (2,)), load, 7.0, grid, 2)
        assert cost[0] == pytest.approx(10 * (2 * times + 50e-3))
        assert base[0] == pytest.approx(10 * 2 * times)
        again = max(1, fullest * 17 / kv)
        assert cost[1] == pytest.approx(20 * (2 * again + fullest * 1e-3))


@pytest.mark.parametrize(("n", "servers"), [(1, 1), (1, 4), (1, 64), (3, 4), (3, 16)])
def test_a_response_alone_takes_what_an_engine_takes_however_many_servers_stand_idle(n, servers):
    """Responses alike, each on a server of its own, or on a replica of its own where these count
    alone.
    """
    w = read_recipe("grpo-64", ())
    engines = engines_of(w)
    context, left = np.full(n, 9000), np.full(n, 4000.0)
    expected = LengthForecast(np.full(512, 8000.0), 16384)
    seen = outlook(engines, expected, np.full(n, 5000), context, servers, inf, left)
    alone = [
        ServingSession(step, kv, Batching(), independent(context[:1], np.array([4000])),
                       np.array([True])).run().now
        for step, kv in zip(engines.steps, engines.kv_tokens, strict=True)
    ]  # fmt: skip
    assert seen.seconds(servers) == pytest.approx(alone, rel=0.01)
    replicas = seen.of_replicas(servers, engines.replicas)
    for i in range(n):
        assert seen.fixed + seen.work[:, i] == pytest.approx(alone, rel=0.01)
        assert seen.fixed + replicas[:, i] == pytest.approx(alone, rel=0.01)


def test_work_of_a_replica_is_that_of_its_even_share():
    """Six responses on two servers: three each; of replicas one has three, two have one and a half,
    and of eight none has more than one.
    """
    seen = CutOutlook(np.zeros(3), np.array([[5.0] * 6, [7.0] * 6, [11.0] * 6]))
    assert seen.seconds(2).tolist() == [15, 21, 33]
    assert seen.seconds(9).tolist() == [5, 7, 11]
    replicas = seen.of_replicas(2, (1, 2, 8))
    assert replicas[:, 0].tolist() == [5, 14, 33]  # of the seconds of a server, its part of three
    assert seen.of_replicas(9, (1, 2, 8)).tolist() == seen.work.tolist()


# --- seats ----------------------------------------------------------------------------------------

EXPERTS = ("model=Qwen3-30B-A3B", "training.ep=8")


def test_experts_are_parallel_only_where_attention_is_replicated():
    w = read_recipe("grpo-64", EXPERTS)
    engines = engines_of(w)
    for cut, step, kv, count in zip(
        engines.cuts, engines.steps, engines.kv_tokens, engines.replicas, strict=True
    ):
        assert count * cut.gpus == 8
        ep = cut.tp * cut.dp if cut.dp > 1 else 1
        server = replace(server_of(w), tp=cut.tp, dp=cut.dp, ep=ep)
        assert (step, kv) == (step_of(server), server.kv_capacity_tokens)
    assert {cut.dp for cut in engines.cuts} > {1}


def test_replicas_of_a_seat_lie_side_by_side_and_moves_cost_what_their_bytes_and_tokens_do():
    w = read_recipe("grpo-64", ())
    seats = Seats(w, engines_of(w), Tuning())
    wide = [cut.gpus for cut in seats.engines.cuts].index(2)
    assert seats.count == 4
    assert seats.gpus(1, wide, 3) == (32 + 8 + 6, 32 + 8 + 7)
    tokens = np.array([1000, 5000])
    rate = w.nic_bps * 2 / 8
    assert seats.carry(wide, tokens) == pytest.approx(tokens * w.model.kv_bytes_per_token / rate)
    step = seats.engines.steps[wide]
    again = [step.mixed(0, 0, n, n**2 / 2) for n in (1000, 5000)]
    assert seats.prefill(wide, tokens) == pytest.approx(again)


# --- a step ---------------------------------------------------------------------------------------

SMALL = ("generation.batch=64", "generation.max_response=2048", "steps=2")


@cache
def made(**tuning):
    return orchestrate(read_recipe("grpo-64", SMALL), 0, Tuning(**tuning))


def test_plans_come_every_period_while_anybody_generates():
    """Nobody gains enough to follow one, so a step runs on as it began."""
    s = made(period_s=2.0, balance_s=2.0, hysteresis=1e9, moves=0.0)
    assert s.facts["replans"] == s.facts["moved"] == s.facts["balanced"] == 0
    ends = [step.generated.seconds for step in s.steps]
    assert s.facts["plans"] == sum(ceil(end / 2) - 1 for end in ends) > 0
    assert made(period_s=1e6, moves=0.0).facts["plans"] == 0


def test_the_balancer_moves_only_what_gains_more_than_the_hysteresis():
    eager, never = (made(period_s=1e6, hysteresis=share).facts for share in (0.0, 1e9))
    assert eager["balanced"] > 0 and eager["moved"] > 0
    assert never["balanced"] == never["moved"] == 0


def test_kv_that_a_server_does_not_hold_is_not_sent():
    """Two responses of 100 and 300 tokens, of which only the first has its KV there."""
    w = read_recipe("grpo-64", ())
    seats = Seats(w, engines_of(w), Tuning())
    columns = np.array([[0, 1], [2, 0], [100, 300], [9, 9]])
    alive, every = Alive(*columns, np.array([True, False])), Places.of_seats(seats)
    kv = Kv.of(seats, 0, alive, every, every)
    assert kv.size.tolist() == [100 * w.model.kv_bytes_per_token, 0]
    assert kv.far(np.array([2, 1])).tolist() == [False, True]
    assert kv.carry == pytest.approx(seats.carry(0, np.array([100, 300])))
    assert kv.price(0.0).tolist() == [0, 0] and (kv.price(1e9) == kv.prefill).all()
    assert [len(gpus) for gpus in every.gpus] == [seat_gpus(w)] * seats.count
    assert every.gpus[0][0] == w.first_generation_gpu


def test_rounds_and_segments_stand_where_they_happen():
    s = made(period_s=1.0, hysteresis=0.0, switch_s=0.5)
    begin = {p.step: p.start for p in s.plan.phases if p.kind == "generation"}
    spans = {(x.step, x.gpus, x.start, x.what): x.seconds for x in s.spans}
    rounds = 0
    for step in s.steps:
        segments, start = step.generated.segments, begin[step.number]
        for part in segments:
            key = (step.number, part.gpus, start + part.start, f"generation {part.cut}")
            assert spans[key] == part.end - part.start
            if part.switch:
                before = (step.number, part.gpus, start + part.start - part.switch, "switch")
                assert spans[before] == part.switch
        for name in step.generated.rounds:
            (phase,) = (p for p in s.plan.phases if (p.kind, p.step) == (name, step.number))
            mine = [part for part in segments if part.round == name]
            first = min(part.start - part.switch for part in mine)
            assert phase.start == pytest.approx(start + first)
            assert phase.seconds == pytest.approx(max(part.start for part in mine) - first)
            rounds += 1
    assert rounds and s.facts["servers_cut"]


def test_each_round_sends_the_kv_that_its_own_segments_wait_for():
    s, sent = made(period_s=1.0, hysteresis=0.0, switch_s=0.5), []
    server = s.workload.gpus_per_server
    for step in s.steps:
        segments = step.generated.segments
        for phase, flows_of_it in rounds(s, step.number):
            came = [
                move.size
                for part in segments
                if part.round == phase.kind
                for move in part.arrivals
                if segments[move.segment].gpus[0] // server != part.gpus[0] // server
            ]
            assert sum(flows_of_it.size) == pytest.approx(sum(came))
            sent.append(sum(came))
    assert sum(sent) == pytest.approx(s.facts["kv_bytes"], abs=1) and len(set(sent)) > 2


def test_only_the_oracle_knows_the_lengths_of_the_first_step(monkeypatch):
    known = []
    start = orchestrrl.start_cut
    monkeypatch.setattr(
        orchestrrl, "start_cut", lambda *given: known.append(given[3]) or start(*given)
    )
    w = read_recipe("grpo-64", (*SMALL, "generation.batch=16", "steps=1"))
    for how in ("oracle", "lengths"):
        orchestrate(w, 0, Tuning(forecast=how))
    assert (known[0] == responses(w, 0, 0)[1]).all() and known[1] is None


@pytest.mark.parametrize("places", [1, 2, 4, 8, 99])
def test_no_more_decode_at_once_than_there_are_places(places):
    """Eight responses of 10 tokens on one replica whose steps take 1 s, however many decode."""
    engines = Engines((Cut(1),), (DecodeStep(0, 0, 0, 0, 1.0, 0),), (10**9,), (1,))
    seconds = least_seconds(engines, 1, np.ones(8, int), np.full(8, 10), places)
    assert seconds == pytest.approx(80 / min(places, 8))


def test_responses_whose_prefills_give_all_their_tokens_wait_for_environments_alone():
    """26 tokens take 26 turns of the 30; 25 answers of 2 s each."""
    words = (
        "generation.batch=64", "generation.group_size=1", "generation.max_response=26",
        "generation.turns=30", "generation.observation=1", "generation.environment_latency=2s",
    )  # fmt: skip
    assert least_generation(read_recipe("grpo-64", words), 0, 0) == 50


def test_a_bound_is_of_all_servers_of_the_job():
    """Work that servers share binds it: fewer take longer, more do not. The first token of each
    response is its prefill's.
    """
    words = ("generation.batch=64", "generation.group_size=1", "generation.max_response=64")
    w = read_recipe("grpo-64", words)
    prompts, outputs = responses(w, 3, 1)
    one, four, many = (
        least_seconds(engines_of(w), seats, prompts, outputs - 1, w.generation.max_num_seqs)
        for seats in (1, 4, 256)
    )
    assert least_generation(w, 3, 1) == pytest.approx(four, rel=1e-9)
    assert many < 0.99 * four < 0.9 * one
