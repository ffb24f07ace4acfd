"""RollArt: trajectories played event by event, staleness, redundancy and affinity; its scheduler;
the published figures.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.gpus import GPUS
from rfabric.compute.named import read_model
from rfabric.compute.roofline import Server, step_of
from rfabric.compute.sync_time import UNPACK
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.rl import phases, read_recipe
from rfabric.schedulers.rollart import TASKS, affinity, mixed, named_tasks, transfer, with_affinity
from rfabric.schedulers.rollart.engines import Pool
from rfabric.schedulers.rollart.rules import RolloutRules
from rfabric.schedulers.rollart.tasks import Episode, Task, draw
from rfabric.schedulers.rollart.trajectories import play
from rfabric.schedulers.rollart.weights import PULL, PUSH
from rfabric.schedulers.table import scheduled
from rfabric.study.reproduce import SECOND_HAND
from rfabric.study.reproduce import rollart as paper

MODEL = read_model(data_dir("traffic") / "models" / "Qwen3-8B.json")
PLAIN = Task("plain", (1, 4), 64, 60, 0.5, 20, latency=0.5, spread=0.5, rewarded=0.1)
LONGEST = 4096


def pool(gpu="H800", engines=2, **changed):
    return Pool(gpu, Server(MODEL, GPUS[gpu]), engines, **changed)


def run(rules, pools=None, tasks=(PLAIN,), steps=3, train=5.0, seed=0):
    episodes = mixed(list(tasks), seed, LONGEST, rules)
    return play(pools or [pool()], episodes, lambda batch: train, rules, steps)


def begun(played):
    return sum(what == "begin" for _, what, _ in played.events)


RULES = st.builds(
    RolloutRules,
    batch=st.sampled_from([8, 16]),
    group=st.sampled_from([1, 4, 8]),
    parallel=st.just(True),
    continuous=st.booleans(),
    redundancy=st.sampled_from([1.0, 1.25, 1.5, 2.0]),
    staleness=st.integers(1, 3),
    suspended=st.sampled_from([0.0, 1.0]),
    transfer=st.sampled_from([0.0, 4.0]),
    reward_slots=st.sampled_from([None, 1, 3]),
)


# --- trajectories: what always holds --------------------------------------------------------------


WORLDS = st.sampled_from(
    [
        [pool()],
        [pool("H800", 1, tasks=("plain",)), pool("H20", 2)],
        [pool("H800", 1, prefill_for="H20", link=1e8), pool("H20", 2)],
        [Pool("H800", Server(MODEL, GPUS["H800"], utilisation=0.25), 1)],
    ]
)


@settings(max_examples=60, deadline=None)
@given(RULES, WORLDS, st.sampled_from([0.0, 0.5, 3.0, 20.0]), st.integers(0, 5))
def test_trajectories_are_conserved_fresh_and_whole_groups(rules, pools, train, seed):
    played = run(rules, pools, train=train, steps=4, seed=seed)
    assert begun(played) == sum(played.counts.values())
    assert played.counts["trained"] == 4 * rules.batch
    taken = [who.episode.number for it in played.iterations for who in it.batch]
    assert len(set(taken)) == len(taken)
    for it in played.iterations:
        assert len(it.batch) == rules.batch
        assert max(it.stale) <= rules.staleness and min(it.stale) >= 0
        groups = [who.episode.group for who in it.batch]
        assert all(groups.count(group) == rules.group for group in set(groups))


@settings(max_examples=30, deadline=None)
@given(RULES, st.integers(0, 5))
def test_time_runs_forward_and_training_never_overlaps_itself(rules, seed):
    played = run(rules, seed=seed)
    times = [at for at, _, _ in played.events]
    assert times == sorted(times)
    for before, it in zip(played.iterations, played.iterations[1:], strict=False):
        assert it.training[0] >= before.training[1] + rules.transfer
        assert it.ready >= before.ready
    for it in played.iterations:
        assert it.ready <= it.resumed == it.training[0]


@settings(max_examples=15, deadline=None)
@given(RULES, st.integers(0, 5))
def test_events_are_the_same_every_time(rules, seed):
    assert run(rules, seed=seed).events == run(rules, seed=seed).events


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.sampled_from([1.0, 1.25, 1.5, 2.0, 3.0]), st.integers(0, 9))
def test_of_redundant_environments_the_first_are_kept(group, redundancy, seed):
    rules = RolloutRules(4 * group, group, redundancy=redundancy)
    played = run(rules, seed=seed, steps=1)
    assert played.counts == {
        "trained": rules.batch,
        "stale": 0,
        "surplus": rules.environments - rules.batch,
        "unfinished": 0,
    }
    ends = {number: at for at, what, number in played.events if what == "end"}
    given_up = {number: at for at, what, number in played.events if what == "surplus"}
    for number, at in given_up.items():
        mates = [n for n in ends if n // rules.members == number // rules.members]
        assert len(mates) == group and at == max(ends[n] for n in mates)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(1, 3))
def test_engines_never_hold_more_than_they_have_room_for(seed, engines):
    task = Task("long", (1, 3), 200, 1500, 0.8, 100)
    small = Pool("H800", Server(MODEL, GPUS["H800"], utilisation=0.25), engines)
    capacity = small.server.kv_capacity_tokens
    assert LONGEST < capacity < 16 * LONGEST
    played = run(
        RolloutRules(32, 4, parallel=True, continuous=True), [small], [task], steps=2, seed=seed
    )
    assert all(0 < peak <= capacity for peak in played.peak_tokens)


# --- trajectories: closed forms -------------------------------------------------------------------


def test_one_trajectory_takes_what_its_turns_and_environments_take():
    task = Task("one", (2, 2), 100, 50, 0, 30, latency=2.0, reset=7.0, rewarded=1.5)
    played = run(RolloutRules(1), [pool(engines=1)], [task], steps=1)
    step = step_of(Server(MODEL, GPUS["H800"]))
    first = step.mixed(0, 0, 100, 100**2 / 2) + step.seconds(1, 101, 49)
    second = step.mixed(0, 0, 30, 30 * (150 + 15)) + step.seconds(1, 181, 49)
    assert played.iterations[0].ready == pytest.approx(7 + first + 2 + second + 1.5)


def test_a_turn_that_finds_nothing_cached_prefills_its_whole_context():
    task = Task("one", (2, 2), 100, 50, 0, 30, caches=False)
    played = run(RolloutRules(1), [pool(engines=1)], [task], steps=1)
    step = step_of(Server(MODEL, GPUS["H800"]))
    again = step.mixed(0, 0, 180, 180**2 / 2) - step.mixed(0, 0, 30, 30 * (150 + 15))
    cached = run(RolloutRules(1), [pool(engines=1)], [Task("one", (2, 2), 100, 50, 0, 30)], steps=1)
    assert played.iterations[0].ready - cached.iterations[0].ready == pytest.approx(again)


def test_prefill_apart_adds_the_crossing_of_the_kv():
    task = Task("one", (1, 1), 100, 50, 0, 0)
    link = 1e9
    pools = [pool("H800", 1, prefill_for="H20", link=link), pool("H20", 1)]
    played = run(RolloutRules(1), pools, [task], steps=1)
    fast, wide = (step_of(Server(MODEL, GPUS[gpu])) for gpu in ("H800", "H20"))
    crossing = 101 * MODEL.kv_bytes_per_token / link
    expected = fast.mixed(0, 0, 100, 100**2 / 2) + crossing + wide.seconds(1, 101, 49)
    assert played.iterations[0].ready == pytest.approx(expected)


def test_turns_in_step_wait_for_the_slowest_environment():
    def episode(number):
        return Episode(number, PLAIN, number, 10, (5, 5), (1.0 + number, 9.0 - 8 * number))

    rules = {False: RolloutRules(2), True: RolloutRules(2, batched=True)}
    ready = {
        kind: play([pool()], episode, lambda _: 0.0, m, 1).iterations[0].ready
        for kind, m in rules.items()
    }
    assert ready[True] == pytest.approx(2 + 9, abs=0.3)  # slowest of each turn
    assert ready[False] == pytest.approx(1 + 9, abs=0.3)  # slowest trajectory
    assert ready[True] > ready[False]


def test_dedicated_rewards_queue_and_serverless_ones_do_not():
    task = Task("judged", (1, 1), 10, 5, 0, 0, rewarded=10.0)
    serverless, one = (
        run(RolloutRules(4, reward_slots=slots), tasks=[task], steps=1) for slots in (None, 1)
    )
    assert one.iterations[0].ready - serverless.iterations[0].ready == pytest.approx(30, abs=0.1)
    assert one.reward_busy == 40


def test_synchronous_steps_are_rollout_training_and_sync():
    played = run(RolloutRules(8, suspended=2.0), train=5.0)
    for it, after in zip(played.iterations, played.iterations[1:], strict=False):
        assert it.training == (it.ready, it.ready + 5)
        assert after.began == pytest.approx(it.training[1] + 2)
    assert {it.stale for it in played.iterations} == {(0,) * 8}


def test_trajectories_that_outlive_their_bound_are_aborted():
    slow = Task("slow", (1, 1), 10, 5, 0, 0, reset=100.0)
    quick = Task("quick", (1, 1), 10, 5, 0, 0, reset=1.0)

    def episode(number):
        return draw(slow if number % 8 == 0 else quick, number, 0, LONGEST)

    def played(alpha):
        rules = RolloutRules(8, parallel=True, continuous=True, staleness=alpha, ahead=6)
        return play([pool()], episode, lambda _: 30.0, rules, 5)

    assert played(1).counts["stale"] > 0 == played(6).counts["stale"]
    assert max(max(it.stale) for it in played(1).iterations) <= 1


def test_more_staleness_is_never_much_slower_and_training_bounds_it():
    steps = [
        run(RolloutRules(16, 4, parallel=True, continuous=True, staleness=a), steps=8).step_seconds(
            4
        )
        for a in (1, 3)
    ]
    assert steps[1] <= steps[0] * 1.05
    assert all(step >= 5.0 - 1e-9 for step in steps)


def test_weights_recompute_what_is_in_flight():
    task = Task("long", (1, 1), 2000, 3000, 0.3, 0)
    times = []
    for suspended in (0.0, 10.0):
        rules = RolloutRules(4, parallel=True, continuous=True, suspended=suspended)
        times.append(run(rules, tasks=[task], steps=6, train=1.0))
    assert times[1].step_seconds(3) > times[0].step_seconds(3) + 5
    prefill = [sum(a for it in played.iterations[1:] for a, _ in it.busy) for played in times]
    whole = step_of(Server(MODEL, GPUS["H800"])).mixed(0, 0, 2000, 2000**2 / 2)
    assert prefill[0] > 4 * whole  # each trajectory's own prompt, and contexts again


# --- tasks, affinity, weights ---------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(TASKS)), st.integers(0, 10**6), st.integers(2000, 40000))
def test_a_trajectory_fits_its_context_and_is_drawn_alike(name, number, longest):
    task = TASKS[name]
    episode = draw(task, number, 3, longest)
    assert episode == draw(task, number, 3, longest)
    assert episode.tokens <= longest and min(episode.outputs) >= 1 and min(episode.latencies) >= 0
    assert 1 <= len(episode.outputs) <= task.turns[1]
    assert len(episode.latencies) >= len(episode.outputs)


def test_lengths_have_the_published_mean_and_spread():
    """Log-normal lengths whose mean is the task's, to three standard errors: of eight batches of
    512 with a sigma of 0.74, 4 %.
    """
    task = TASKS["GEM-Math"]
    first = np.array([draw(task, k, 0, 10**9).outputs[0] for k in range(8 * 512)])
    assert first.mean() == pytest.approx(task.output, rel=0.04)
    longest = first.reshape(8, 512).max(axis=1) / task.output
    assert 5 < np.median(longest) < 9  # production: the longest response is 5 to 9 times the mean


def test_failing_resets_are_as_rare_as_published():
    task = TASKS["SWE-bench"]
    assert 1 - (1 - task.failure) ** 128 == pytest.approx(0.1)
    failed = sum(draw(task, k, 0, LONGEST * 8).latencies[0] > task.reset for k in range(4000))
    assert 0 < failed < 20


def test_tasks_go_to_the_gpus_of_their_affinity():
    tasks = list(TASKS.values())
    assert affinity(tasks, "H800", "H20") == {
        "FrozenLake": "H800",
        "GEM-Math": "H20",
        "SWE-bench": "H800",
    }
    pools = with_affinity(
        [pool("H800"), pool("H20")], {"FrozenLake": "H800", "default": "H20"}, tasks
    )
    assert [p.tasks for p in pools] == [("FrozenLake",), ("GEM-Math", "SWE-bench")]
    rules = RolloutRules(12, 2)
    played = run(rules, pools, [TASKS["FrozenLake"], TASKS["GEM-Math"]], steps=1)
    for who in played.iterations[0].batch:
        assert (who.engine < 2) == (who.episode.task.name == "FrozenLake")


def test_where_the_own_pool_has_no_room_another_takes_it():
    task = Task("wide", (1, 1), 1000, 2000, 0, 0)
    tight = Pool("H800", Server(MODEL, GPUS["H800"], utilisation=0.25), 1, tasks=("wide",))
    room = tight.server.kv_capacity_tokens // 3000
    played = run(RolloutRules(4 * room), [tight, pool("H20", 1)], [task], steps=1)
    where = [who.engine for who in played.iterations[0].batch]
    assert room <= where.count(0) <= room + 1 and where.count(1) == 4 * room - where.count(0)


def test_weights_are_hidden_but_for_loading():
    sent = transfer(65.5e9)
    assert sent.exposed == pytest.approx(65.5e9 / UNPACK)
    assert sent.push - 65.5e9 / PUSH == pytest.approx(sent.pull / 65.5)  # the last bucket's pull
    assert sent.hidden >= sent.push > sent.pull == pytest.approx(65.5e9 / PULL)
    assert sent.naive == sent.push + sent.pull + sent.load


# --- the scheduler --------------------------------------------------------------------------------

SMALL = [
    "steps=3",
    "generation.batch=16",
    "generation.max_response=2048",
    "training.mini_batches=1",
]


def small(*more):
    return read_recipe("grpo-64", [*SMALL, *more])


def test_a_job_becomes_steps_a_plan_and_a_trace():
    w = small(
        "generation.turns=3", "generation.environment_latency=2s", "generation.observation=50"
    )
    made = scheduled(w, 1, "rollart,alpha=2,redundancy=1.5,spread=1s,failure=0.1,repair=5s")
    assert made.workload.pipeline == "async" and made.workload.staleness == 2
    assert made.workload.weight_sync.strategy == "relay"
    assert [step.number for step in made.steps] == [0, 1, 2]
    for step in made.steps:
        assert sum(map(len, step.generated.outputs)) == w.generation.responses
        assert min(t.idle for t in step.generated.times) >= 0
    facts = made.facts
    assert facts["stale_max"] <= 2 and facts["environments"] == 16 * 12
    kinds = ("trained", "stale", "surplus", "unfinished")
    assert facts["trajectories"] == sum(facts[f"trajectories_{kind}"] for kind in kinds)
    assert made.trace.provenance["scheduler"].startswith("rollart,alpha=2")
    assert len(made.trace) == len(
        scheduled(w, 1, "rollart,alpha=2,redundancy=1.5,spread=1s,failure=0.1,repair=5s").trace
    )


def test_training_runs_beside_the_next_rollouts():
    made = scheduled(small("steps=4"), 0, "rollart")
    assert made.facts["staleness"] == 1 and made.facts["environments"] == 16 * 8
    phases = {(p.kind, p.step): p for p in made.plan.phases}
    assert (
        phases["generation", 1].start < phases["training", 0].start + phases["training", 0].seconds
    )
    assert made.plan.seconds < scheduled(small("steps=4"), 0, "sync").plan.seconds


def test_responses_are_those_that_every_scheduler_draws():
    w = small("steps=2")
    ours = scheduled(w, 5, "rollart").steps
    drawn = np.concatenate([phases.responses(w, 5, n)[1] for n in range(4)])
    taken = np.concatenate([part for step in ours for part in step.generated.outputs])
    assert not set(taken) - set(drawn)


def test_environments_on_cpu_servers_are_those_of_the_recipe_alone():
    w = small("generation.turns=2", "environments.servers=2", "generation.observation=50")
    assert scheduled(w, 0, "rollart").plan.seconds > 0
    with pytest.raises(RFabricError, match="rollart with tasks sends nothing to the 2 CPU servers"):
        scheduled(w, 0, "rollart,tasks=GEM-Math")


def test_tasks_and_two_kinds_of_gpus():
    made = scheduled(
        small("generation.max_response=16384"),
        0,
        "rollart,tasks=FrozenLake/GEM-Math,decode_gpu=H20,decode_gpus=8",
    )
    assert made.facts["pools"] == {"H800-0": 24, "H20-1": 8}
    assert made.plan.seconds > 0


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("rollart,alpha=0", "alpha=0 must be a whole number, 1 or more"),
        ("rollart,alpha=1.5", "alpha=1.5 must be a whole number"),
        ("rollart,reward_gpus=-1", "reward_gpus=-1 must be a whole number, 0 or more"),
        ("rollart,reward_gpus=1.5", "reward_gpus=1.5 must be a whole number"),
        ("rollart,decode_gpu=H20,decode_gpus=7", "=7 must be a multiple of generation.tp 2"),
        ("rollart,decode_gpus=8", "decode_gpu and decode_gpus go together"),
        ("rollart,redundancy=0.5", "redundancy 0.5 must be 1 "),
        ("rollart,tasks=Chess", "no task 'Chess'; there are FrozenLake, GEM-Math, SWE-bench"),
        ("rollart,decode_gpu=H20", "decode_gpu and decode_gpus go together"),
        ("rollart,decode_gpu=X9,decode_gpus=8", "decode_gpu 'X9' is not known"),
        ("rollart,decode_gpu=H20,decode_gpus=32", "below the 32 generation GPUs"),
        ("rollart,failure=1", "failure 1.0 is a chance"),
        ("rollart,speed=3", "'speed=3' is not a setting"),
    ],
)
def test_bad_settings_are_named(policy, said):
    with pytest.raises(RFabricError, match=said):
        scheduled(small(), 0, policy)


def test_colocated_jobs_are_refused():
    w = read_recipe(
        "grpo-64", ["placement=colocated", "cluster.generation_gpus=32", "training.recompute=full"]
    )
    with pytest.raises(RFabricError, match="use placement disaggregated"):
        scheduled(w, 0, "rollart")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RolloutRules(0), "batch of 0"),
        (lambda: RolloutRules(10, 4), "10 trajectories does not divide into groups of 4"),
        (lambda: RolloutRules(8, continuous=True, staleness=0), "staleness 0 must be 1 or more"),
        (lambda: RolloutRules(8, reward_slots=0), "0 reward slots"),
        (lambda: RolloutRules(8, batched=True, redundancy=2.0), "neither continuous nor redundant"),
        (lambda: Task("t", (3, 2), 1, 1, 0, 0), "turns 3 to 2"),
        (lambda: Task("t", (1, 2), 1, 1, 0, 0, latency=-1), "latency -1 must be 0 or more"),
        (lambda: Task("t", (1, 2), 1, 1, 0, 0, heavy="both"), "use prefill or decode"),
        (lambda: Task("t", (1, 2), 0, 1, 0, 0), "prompt 0"),
        (lambda: pool(engines=0), "0 engines; it needs 1 or more"),
        (lambda: play([], lambda _: None, lambda _: 0.0, RolloutRules(1), 1), "there are no pools"),
        (lambda: draw(PLAIN, 0, 0, 10), "leaves no room in 10"),
        (lambda: named_tasks("FrozenLake/Go"), "no task 'Go'"),
        (lambda: with_affinity([pool()], {"default": "H20"}, [PLAIN]), "H20 is in no pool"),
        (lambda: run(RolloutRules(1), tasks=[Task("t", (1, 1), 10**6, 1, 0, 0)]), "leaves no room"),
        (lambda: run(RolloutRules(1), [pool("H800", 1, prefill_for="H20")]), "one must decode"),
    ],
)
def test_bad_input_is_named(make, said):
    with pytest.raises(RFabricError, match=said):
        make()


def test_a_turn_that_never_fits_is_refused():
    tight = Pool("H800", Server(MODEL, GPUS["H800"], utilisation=0.25), 1)
    rules = RolloutRules(1)
    with pytest.raises(RFabricError, match="use more GPUs an engine"):
        play(
            [tight],
            lambda k: draw(Task("t", (1, 1), 10**6, 1, 0, 0), k, 0, 2 * 10**6),
            lambda _: 0.0,
            rules,
            1,
        )


# --- the published figures ------------------------------------------------------------------------


def by_metric(rows):
    return {row.metric: row for row in rows}


def test_quick_rows_have_the_published_direction():
    rows = by_metric([*paper.affinity_rows(0), *paper.latency_rows(0), *paper.redundancy_rows(0)])
    assert rows["FrozenLake: 2 H800 over 6 H20, seconds"].ours < 1
    assert rows["GEM-Math: 6 H20 over 2 H800, seconds"].ours[1] < 1
    low, high = (
        rows[(f"environments of N(10 s, {s} s): turns in step over one by one")].ours
        for s in (1, 10)
    )
    assert 1 < low < high
    assert rows["redundant environments: rollout, at most"].ours > 1


def test_a_step_of_swe_bench_takes_about_as_long_as_measured():
    rows = by_metric(paper.characterised_rows(0))
    assert rows["SWE-bench, 8B on 32 H800: seconds of a step"].ratio == pytest.approx(1, abs=0.2)


def test_second_hand_figures_and_what_cannot_be_run_are_marked(monkeypatch):
    monkeypatch.setattr(paper, "_asynchronous_rows", lambda *_: [])
    rows = [*paper.weight_rows(0), *paper.left_out(0)]
    assert {row.metric for row in rows if row.trust == SECOND_HAND} == {"weights: exposed, 14B"}
    assert all(row.why for row in rows if row.ours is None)
