"""OrchestrRL's scheduler: decisions against an exact program, invariants of what is played, and
what of it enters the fabric.
"""

import json
import time
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.requests import independent
from rfabric.compute.serving import Batching, ServingSession, serve
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import read_recipe
from rfabric.rl.phases import responses
from rfabric.rl.timing import decode_step
from rfabric.schedulers.networks import foreseen
from rfabric.schedulers.orchestrrl import Tuning, engines_of, orchestrate, seat_gpus
from rfabric.schedulers.orchestrrl.outlook import LengthForecast, forecast, outlook
from rfabric.schedulers.orchestrrl.replanning import (
    Problem,
    evened,
    exact,
    keep,
    overfull,
    replan,
    seat_seconds,
)
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate
from rfabric.study.reproduce import orchestrrl as published
from rfabric.study.reproduce import orchestrrl_fabrics

# Where KV is no constraint the heuristic was within 1.13 of the exact program in 2,000 random cases
# as below (99 % within 1.06); where it nearly fills the servers, within 2.
WITHIN, WITHIN_WHERE_FULL = 1.25, 2.5
LONG = ("generation.batch=256", "steps=2")


@cache
def workload(*changes):
    return read_recipe("grpo-64", changes)


@cache
def made(*changes, seed=0, **tuning):
    return orchestrate(workload(*changes), seed, Tuning(**tuning))


# --- forecast and outlook -------------------------------------------------------------------------


def test_a_forecast_of_steady_lengths_is_their_distribution():
    lengths = np.random.default_rng(0).lognormal(6, 1, 4000)
    expected = forecast([lengths] * 5, 100_000)
    assert np.quantile(expected.tokens, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(lengths, [0.1, 0.5, 0.9]), rel=0.02
    )


def test_a_forecast_follows_lengths_that_grow():
    history = [np.full(10, 1000.0 + 100 * i) for i in range(12)]
    assert 2000 < forecast(history, 10_000).tokens.mean() < 2300
    assert forecast(history, 1500).tokens.max() == 1500


def test_what_remains_is_conditional_on_what_was_made():
    expected = LengthForecast(np.array([10.0, 20.0, 30.0, 100.0]), 100)
    assert expected.remaining(15).tolist() == [5, 15, 85]
    assert expected.remaining(99.5).tolist() == [0.5]
    assert expected.remaining(100).tolist() == [1.0]


def test_the_roofline_of_arrays_is_that_of_decode_steps():
    step, n = decode_step(workload()), np.array([1.0, 8, 64, 700])
    expected = [step.seconds(int(k), float(k) * 900) for k in n]
    assert step.decode(n, n * 900) == pytest.approx(expected, rel=1e-12)


def test_an_outlook_that_never_changes_is_what_an_engine_takes():
    """Static replicas, played event by event, take what the outlook says to 15 %."""
    w = workload("generation.batch=512")
    engines, (prompts, outputs) = engines_of(w), responses(w, 0, 0)
    seen = outlook(
        engines, forecast([outputs], 16384), np.zeros(len(prompts), int), prompts, 4, np.inf
    ).seconds(4)
    for s, cut in enumerate(engines.cuts):
        each = np.array_split(np.arange(len(prompts)), 32 // cut.tp)
        played = max(
            serve(
                engines.steps[s],
                engines.kv_tokens[s],
                Batching(),
                independent(prompts[r], outputs[r], 8),
            ).seconds
            for r in each
        )
        assert seen[s] == pytest.approx(played, rel=0.15), cut


def test_later_cuts_never_make_an_outlook_worse():
    w = workload()
    prompts, outputs = responses(w, 0, 0)
    about = (engines_of(w), forecast([outputs], 16384), np.zeros(len(prompts), int), prompts, 4)
    assert (outlook(*about, 3.5).seconds(4) <= outlook(*about, np.inf).seconds(4) + 1e-9).all()


# --- decisions ------------------------------------------------------------------------------------


@st.composite
def problems(draw, most=9):
    n, seats, cuts = draw(st.integers(1, most)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kv = random.integers(1, 20, n).astype(float)
    roomy = draw(st.booleans())
    capacity = np.full(cuts, kv.sum() if roomy else max(kv.max(), 1.6 * kv.sum() / seats))
    placed = draw(st.booleans())
    seat = random.integers(0, seats, n) if placed else np.full(n, -1)
    work = random.uniform(0.1, 4, n)[None, :] * random.uniform(0.5, 2, cuts)[:, None]
    return Problem(
        random.uniform(0, 10, cuts),
        work,
        kv,
        capacity,
        random.uniform(0, 0.5, n),
        seat,
        random.integers(0, cuts, seats),
        float(random.uniform(0, 4)),
    )


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_heuristic_is_near_the_exact_program(p):
    plan = replan(p)
    if len(overfull(p, plan.seat, plan.cut)):
        return  # it did not fit before either
    best = exact(p)
    assert plan.seconds >= best.seconds * (1 - 1e-6)
    roomy = (p.capacity >= p.kv.sum()).all()
    assert plan.seconds <= best.seconds * (WITHIN if roomy else WITHIN_WHERE_FULL) + 1e-9


@settings(max_examples=200, deadline=None)
@given(problems(40), st.floats(0, 0.3))
def test_a_plan_is_never_worse_than_where_it_started(p, hysteresis):
    stay, plan = keep(p), replan(p, hysteresis)
    assert len(plan.seat) == len(p.seat)
    assert ((plan.seat >= 0) & (plan.seat < len(p.cut))).all()
    assert plan.seconds == pytest.approx(seat_seconds(p, plan.seat, plan.cut).max())
    if not len(overfull(p, stay.seat, stay.cut)):
        assert plan.seconds <= stay.seconds + 1e-9
        assert not len(overfull(p, plan.seat, plan.cut))
        moved = (plan.seat != stay.seat).any() or (plan.cut != stay.cut).any()
        assert (
            not moved or plan.seconds < (1 - hysteresis) * stay.seconds or (plan.cut != p.cut).any()
        )


@settings(max_examples=100, deadline=None)
@given(problems(40), st.integers(0, 5))
def test_the_balancer_moves_no_more_than_it_may_and_never_makes_it_worse(p, most):
    if not p.placed:
        return
    plan = evened(p, p.cut, most)
    assert np.count_nonzero(plan.seat != p.seat) <= most
    assert plan.seconds <= keep(p).seconds + 1e-9
    was, now = overfull(p, p.seat, p.cut), overfull(p, plan.seat, p.cut)
    assert set(now.tolist()) <= set(was.tolist())


def test_a_switch_that_costs_more_than_it_gains_is_not_made():
    about = (
        np.full(4, 1.0),
        np.array([100.0, 100.0]),
        np.zeros(4),
        np.array([0, 0, 1, 1]),
        np.array([0, 0]),
    )
    work = np.array([[2.0] * 4, [1.0] * 4])
    assert replan(Problem(np.zeros(2), work, *about, 1.5)).cut.tolist() == [1, 1]
    assert replan(Problem(np.zeros(2), work, *about, 2.5)).cut.tolist() == [0, 0]


def test_bad_problems_are_refused():
    good = {
        "fixed": np.zeros(1),
        "work": np.ones((1, 2)),
        "kv": np.ones(2),
        "capacity": np.full(1, 9.0),
        "move": np.zeros(2),
        "seat": np.zeros(2, int),
        "cut": np.zeros(1, int),
        "switch": 0.0,
    }
    for change, text in (
        ({"work": np.ones((2, 2))}, r"work is \(2, 2\), must be \(1, 2\)"),
        ({"kv": np.array([-1.0, 1])}, "kv must be finite and not negative"),
        ({"cut": np.zeros(0, int)}, "2 responses on 0 seats"),
    ):
        with pytest.raises(RFabricError, match=text):
            Problem(**good | change)
    with pytest.raises(RFabricError, match="do not fit the KV of 1 seats"):
        exact(Problem(**good | {"capacity": np.ones(1)}))
    with pytest.raises(RFabricError, match="no lengths to go by"):
        forecast([], 100)


def test_a_planning_round_costs_little_more_for_twice_the_responses():
    """Growth, not seconds: no more than four times for twice as many, where an all-pairs search
    would take more.
    """
    w, random = workload(), np.random.default_rng(0)
    engines = engines_of(w)
    expected = forecast([responses(w, 0, 0)[1]], 16384)

    def seconds(n):
        context = random.integers(300, 3000, n)
        began = time.process_time()
        seen = outlook(engines, expected, context - 300, context, 64, 3.5)
        room = np.array(engines.kv_tokens, float) * engines.replicas
        replan(
            Problem(
                seen.fixed,
                seen.work,
                context * 1.0,
                room,
                np.full(n, 0.05),
                random.integers(0, 64, n),
                np.full(64, 1),
                3.5,
            ),
            0.05,
        )
        return time.process_time() - began

    small, large = (min(seconds(n) for _ in range(3)) for n in (2048, 4096))
    assert large < 4 * small


# --- sessions -------------------------------------------------------------------------------------


def test_a_paused_session_ends_when_one_that_is_not_does():
    w = workload()
    prompts, outputs = (column[:64] for column in responses(w, 0, 0))
    requests = independent(prompts, outputs, 8)
    about = (decode_step(w), w.kv_capacity_tokens, Batching())
    paused = ServingSession(*about, requests)
    for until in np.arange(0.5, 300, 0.5):
        paused.run(until)
    assert not paused.unfinished
    assert paused.now == pytest.approx(serve(*about, requests).seconds, rel=1e-9)


def test_requests_that_go_on_elsewhere_with_their_kv_lose_no_token():
    w = workload()
    prompts, outputs = (column[:64] for column in responses(w, 0, 0))
    about = (decode_step(w), w.kv_capacity_tokens, Batching())
    first = ServingSession(*about, independent(prompts, outputs)).run(40)
    left = first.standing()
    some = left.left > 0
    assert (left.context + left.left == prompts + outputs).all()
    assert left.resident[some].all()
    assert not left.resident[~some].any()
    rest = independent(left.context[some], left.left[some])
    whole = serve(*about, independent(prompts, outputs)).seconds
    kept = first.now + ServingSession(*about, rest, left.resident[some]).run().now
    recomputed = first.now + ServingSession(*about, rest).run().now
    assert kept == pytest.approx(whole, rel=0.01)
    assert recomputed > kept


# --- a step played --------------------------------------------------------------------------------


CASES = {
    "dense": (LONG, {}),
    "eager": (LONG, {"hysteresis": 0.0, "period_s": 1.0, "switch_s": 0.5}),
    "late": ((*LONG, "pipeline=one-step-off"), {"period_s": 8.0, "moves": 8.0}),
    "experts": (("model=Qwen3-30B-A3B", "training.ep=8"), {}),
    "few GPUs": (
        ("cluster.generation_gpus=12", "generation.batch=64", "cluster.gpus_per_pod=4"),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_response_is_served_once_on_gpus_and_kv_that_are_there(case):
    changes, tuning = CASES[case]
    s, w = made(*changes, **tuning), workload(*changes)
    engines = {
        str(cut): kv for cut, kv in zip(engines_of(w).cuts, engines_of(w).kv_tokens, strict=True)
    }
    for step in s.steps:
        segments = step.generated.segments
        _, outputs = responses(w, 0, step.number)
        assert sum(part.responses for part in segments) == len(outputs)
        assert sum(part.tokens for part in segments) == outputs.sum()
        for part in segments:
            assert part.peak_kv_tokens <= engines[part.cut]
            assert len({gpu // seat_gpus(w) for gpu in part.gpus}) == 1
            assert set(part.gpus) <= set(range(w.first_generation_gpu, w.gpus))
        for gpu in range(w.first_generation_gpu, w.gpus):  # one replica at a time
            mine = sorted((p.start - p.switch, p.end) for p in segments if gpu in p.gpus)
            assert all(
                end <= start + 1e-9 for (_, end), (start, _) in zip(mine, mine[1:], strict=False)
            )


@pytest.mark.parametrize("case", CASES)
def test_nothing_computes_before_what_it_waits_for(case):
    changes, tuning = CASES[case]
    for step in made(*changes, **tuning).steps:
        segments = step.generated.segments
        for part in segments:
            waits = [segments[i].end for i in (*part.before, *(m.segment for m in part.arrivals))]
            assert part.start >= max(waits, default=0.0) + part.switch - 1e-9
            assert part.end >= part.start


@pytest.mark.parametrize("case", CASES)
def test_the_trace_on_a_network_without_delay_takes_what_the_plan_says(case):
    changes, tuning = CASES[case]
    s = made(*changes, **tuning)
    assert float(s.trace.compute_only()[1].max()) == pytest.approx(s.plan.seconds, rel=1e-9)


def test_the_same_seed_gives_the_same_bytes():
    one, two = (orchestrate(workload(*LONG), 3, Tuning()) for _ in range(2))
    assert json.dumps(one.facts) == json.dumps(two.facts)
    for column in ("src", "dst", "size", "gap", "after"):
        assert (getattr(one.trace, column) == getattr(two.trace, column)).all()


def test_kv_that_moves_is_a_phase_with_a_demand_and_a_window():
    s, fabric = made(*LONG), parse_fabric("rfabric", 64)
    moved = [key for key in s.trace.phase_keys if key.phase.startswith(("migration", "balancing"))]
    assert moved
    sent = 0
    for key in moved:
        rows = s.trace.rows(key)
        sent += int(s.trace.size[rows].sum())
        demand = s.trace.demand(fabric, key)
        assert demand.window == s.trace.windows[key] < s.plan.seconds
        assert {s.trace.labels[i] for i in s.trace.label[rows]} <= {"kv", "switch"}
    assert sent == pytest.approx(s.facts["kv_bytes"], rel=1e-6)
    whole = sum(
        int(s.trace.size[s.trace.rows(key)].sum())
        for key in s.trace.phase_keys
        if key.phase == "generation"
    )
    assert whole == pytest.approx(
        12 * sum(o.sum() for o in (responses(workload(*LONG), 0, n)[1] for n in (0, 1))), rel=1e-3
    )


def test_a_moved_response_computes_when_its_kv_has_come_and_not_before():
    s = made(*LONG)
    result = simulate(parse_fabric("rfabric,delay=25ms", 64), s.trace, "demand")
    kv = np.flatnonzero([s.trace.labels[i] == "kv" for i in s.trace.label])
    offsets, followers = s.trace.followers
    for row in kv:
        after = followers[offsets[row] : offsets[row + 1]]
        assert len(after)
        assert (result.start[after] >= result.finish[row] - 1e-9).all()
    assert any(r.phase.startswith("migration") for r in result.rewires)


def test_slow_network_cards_make_it_compute_contexts_again():
    fast, slow = made(*LONG).facts, made(*LONG, "cluster.nic=2Gbit/s").facts
    assert fast["recomputed"] < fast["moved"]
    assert slow["recomputed"] == slow["moved"] > 0
    assert slow["kv_bytes"] == 0


def test_it_gains_over_every_static_cut_where_a_step_has_an_early_part_and_a_tail():
    """Many short responses, few long ones: no width is best for both."""
    changes = ("generation.batch=512",)
    static = {
        tp: scheduled(workload(*changes, f"generation.tp={tp}"), 0, "sync")
        .steps[0]
        .generated.seconds
        for tp in (1, 2, 4, 8)
    }
    s = made(*changes)
    assert s.steps[0].generated.seconds < min(static.values())
    assert s.facts["servers_cut"] > 0


@pytest.mark.parametrize("wide", [2, 8])
def test_without_planner_and_moves_servers_stay_as_the_recipe_says(wide):
    """Also where a replica is as wide as a server."""
    s = made(*LONG, f"generation.tp={wide}", period_s=float("inf"), moves=0.0)
    assert {part.cut for step in s.steps for part in step.generated.segments} == {f"tp{wide}"}
    assert s.facts["plans"] == s.facts["moved"] == 0


@pytest.mark.parametrize(
    ("changes", "policy", "text"),
    [
        (
            ("pipeline=async",),
            "orchestrrl",
            ("plans steps that end; pipeline async has none: use sync"),
        ),
        (
            ("generation.turns=3",),
            "orchestrrl",
            ("single-turn responses; generation.turns is 3: use 1"),
        ),
        (
            ("cluster.gpus_per_server=4", "generation.tp=8"),
            "orchestrrl",
            "tp 8 is wider than one of 4 GPUs: use 4 at most",
        ),
        ((), "orchestrrl,period=0s", "period 0 must be 0.1 or more"),
        ((), "orchestrrl,hysteresis=-1", "hysteresis -1 must be 0 or more"),
        ((), "orchestrrl,switch=soon", "'soon' is not a quantity"),
        ((), "orchestrrl,moves=many", "moves=many is not a number"),
        (
            (),
            "orchestrrl,speed=2",
            ("'speed=2' is not a setting; .* of period, balance, hysteresis, switch, moves"),
        ),
    ],
)
def test_bad_input_names_what_is_wrong(changes, policy, text):
    with pytest.raises(RFabricError, match=text):
        scheduled(workload(*changes), 0, policy)


# --- published ------------------------------------------------------------------------------------


def test_narrow_replicas_are_best_early_and_wide_ones_in_the_tail():
    rows = {row.metric: row for row in published.crossover_rows(0)}
    early, tail = rows["72 H800: best TP of the early part"], rows["72 H800: best TP of the tail"]
    assert (early.ours, tail.ours) == (early.paper, tail.paper) == (2, 8)
    assert all(row.trust == "second-hand" for row in rows.values())


def test_every_fabric_of_the_table_runs_and_rows_say_why(monkeypatch):
    monkeypatch.setattr(orchestrrl_fabrics, "CASES", orchestrrl_fabrics.CASES[:1])
    every = (*orchestrrl_fabrics.fabric_rows(0), *published.left_out(0))
    rows = [row.to_json() for row in every]
    assert len(rows) == 4 * len(orchestrrl_fabrics.FABRICS) + 1
    assert all(row["why"] for row in rows)
    assert all(row["ours"] > 0 for row in rows[:-1])
    assert rows[-1]["ours"] is None
    speed = {
        r["metric"].partition(", ")[2]: r["ours"]
        for r in rows[:-1]
        if r["metric"].endswith("throughput over Fat-Tree")
    }
    assert speed["Fat-Tree 4:1: throughput over Fat-Tree"] == min(speed.values())


# --- the recipe it is shown on --------------------------------------------------------------------


def test_the_shown_recipe_has_the_batch_that_the_papers_share_asks_for():
    """By generation over training on the characterised cluster, not by a speed-up."""
    w = read_recipe("orchestrrl-64")
    assert w.generation.batch == published.batch(0)
    assert (w.generation.group_size, w.generation.tp) == (published.GROUP, 2)


def test_in_the_shown_recipe_widths_switch_and_the_fabric_changes_the_plan():
    plans = {}
    for spec in ("", "rfabric", "fat-tree,oversubscription=4"):
        network = foreseen(parse_fabric(spec, 64)) if spec else None
        plans[spec] = orchestrate(read_recipe("orchestrrl-64"), 0, Tuning(), network)
    widths = [{len(s.gpus) for s in p.steps[0].generated.segments} for p in plans.values()]
    assert all({2, 8} <= each for each in widths)
    moved = {spec: plan.facts["moved"] for spec, plan in plans.items()}
    assert moved["fat-tree,oversubscription=4"] < moved["rfabric"]
    played = simulate(parse_fabric("rfabric", 64), plans["rfabric"].trace)
    moving = [end.seconds for end in plans["rfabric"].plan.phases if end.kind == "generation"]
    assert any(0 < rewire.requested < moving[0] for rewire in played.rewires)
