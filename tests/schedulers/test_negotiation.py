"""Compute and network decide together: what the fabric answers, against what a run of it comes to;
what the scheduler makes of the answers; the same over REST.
"""

import json
import os
import random
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from test_border import serving

from rfabric.cli import main
from rfabric.control.client import Client
from rfabric.errors import RFabricError, RunError
from rfabric.fabric import parse_fabric, rfabric
from rfabric.optics import Timing
from rfabric.rl import flows, read_recipe
from rfabric.rl.weight_sync import software_seconds
from rfabric.schedulers.base import Answer
from rfabric.schedulers.networks import ALIKE, Cards, agreed_start, agreed_sync, foreseen
from rfabric.schedulers.orchestrrl import Tuning, orchestrate
from rfabric.schedulers.orchestrrl.negotiation import settle
from rfabric.schedulers.orchestrrl.replanning import Problem, keep, replan
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate
from rfabric.study import planning_bench
from rfabric.study.joint import least_step
from rfabric.study.negotiation import controlled
from rfabric.trace import Flows, PhaseKey, TraceBuilder

JOINT = "orchestrrl,network=fabric"
THIN = "fat-tree,oversubscription=4"
APART = "two-clusters,training=48,generation=16,join=200Gbit/s"  # replicas in both clusters
# of seeded jobs, and under their bound 8: RFABRIC_JOINT_JOBS=100 takes some minutes
JOBS = int(os.environ.get("RFABRIC_JOINT_JOBS", "25"))


@cache
def workload(*changes):
    return read_recipe("grpo-64", changes)


@cache
def separate(*changes, seed=0):
    return scheduled(workload(*changes), seed, "orchestrrl")


@cache
def joint(topo, *changes, seed=0):
    w = workload(*changes)
    return scheduled(w, seed, JOINT, foreseen(w.needs.fabric(topo)))


@cache
def seconds(made, topo):
    return simulate(made.workload.needs.fabric(topo), made.trace, "own").step_seconds


@dataclass
class Says:
    """A network that answers by a function of the flows; `asked` keeps them."""

    reply: object
    name: str = "says"
    asked: list = field(default_factory=list)

    def answer(self, sends, beside=(), lead=0.0):
        self.asked.append(sends)
        return self.reply(sends)


# --- what is answered -----------------------------------------------------------------------------


def kv_like(seed):
    """Some bytes between servers of the second half of 64 GPUs."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(32, 64, (2, int(rng.integers(8, 200))))
    leaves = src // 8 != dst // 8
    size = rng.lognormal(21, 1, leaves.sum()).round()
    return Flows(src[leaves].tolist(), dst[leaves].tolist(), size.tolist())


@pytest.mark.parametrize("topo", ["ideal", "rfabric", THIN, "leaf-spine", APART])
@pytest.mark.parametrize("seed", range(3))
def test_an_answer_is_what_a_run_comes_to(topo, seed):
    fabric, sends = parse_fabric(topo, 64), kv_like(seed)
    builder = TraceBuilder([f"h{i + 1}" for i in range(64)])
    builder.flows(*sends, phase="migration-1", label="kv")
    run = simulate(fabric, builder.build(), "own").step_seconds
    assert foreseen(fabric).answer(sends).seconds == pytest.approx(run, rel=0.05)


def test_what_is_in_flight_makes_it_later():
    network, sends = foreseen(parse_fabric(THIN, 64)), kv_like(0)
    alone, beside = network.answer(sends), network.answer(sends, [kv_like(1)])
    assert alone.seconds < beside.seconds


def test_a_rewire_is_waited_for_where_circuits_are_to_follow():
    """Two racks that send all there is: worth circuits of their own, after the delay."""
    src = [gpu for gpu in range(4) for _ in range(4)]
    sends = Flows(src, [12 + i % 4 for i in range(16)], [1e12] * 16)
    quick, slow = (
        foreseen(parse_fabric(f"rfabric,delay={delay}", 64)).answer(sends).seconds
        for delay in ("10ms", "2s")
    )
    assert slow - quick == pytest.approx(2 - 10e-3, rel=0.01)


def test_cards_alone_answer_what_a_plan_takes_for_granted():
    w, sends = workload(), kv_like(2)
    assert Cards(w).answer(sends).seconds == flows.wire_seconds(w, sends)


@pytest.mark.parametrize("wrong", [float("nan"), -1.0])
def test_a_forecast_that_is_no_time_is_an_error(wrong):
    with pytest.raises(RFabricError, match=r"a network forecast .* must be 0 or more"):
        Answer(wrong)
    with pytest.raises(RFabricError, match="a network forecast"):
        orchestrate(workload(), 0, Tuning(), Says(lambda sends: Answer(wrong)))


def test_a_plan_that_the_fabric_cannot_carry_is_refused_with_its_reason():
    fabric = rfabric(pods=4, tors=4, gpus=4, planes=1, electrical=0)
    sends = Flows([0] * 12, [4 * rack for rack in range(1, 13)], [1e9] * 12)
    answer = foreseen(fabric, "static").answer(sends)
    assert answer.refused and "disconnects" in answer.why


def test_flows_in_arrays_are_the_flows_in_lists():
    """Of arrays the ends were once added up: h64 to h32 named GPU h95."""
    network = foreseen(parse_fabric("ideal", 64))
    lists = Flows([63, 0], [31, 63], [1e9, 1e9])
    arrays = Flows(*map(np.array, ([63, 0], [31, 63], [1e9, 1e9])))
    assert network.answer(arrays) == network.answer(lists)
    assert 0 < network.answer(arrays).seconds < 1


def test_a_job_larger_than_the_fabric_is_an_error_that_names_both():
    network = foreseen(parse_fabric("rfabric,pods=1"))
    with pytest.raises(RFabricError, match="GPU h64, which rfabric,pods=1 lacks; it has 16 hosts"):
        network.answer(Flows([0], [63], [1.0]))


@pytest.mark.parametrize("policy", ["rotor", "demand,granularity=intra-collective"])
def test_circuits_that_turn_by_themselves_are_not_foreseen(policy):
    with pytest.raises(RFabricError, match="nothing can be negotiated"):
        foreseen(parse_fabric("rfabric", 64), policy)


# --- what is decided ------------------------------------------------------------------------------


def test_where_nothing_but_cards_limits_the_plan_is_the_separate_one():
    plain = separate()
    for made in (joint("ideal"), orchestrate(workload(), 0, Tuning(), Cards(workload()))):
        assert made.plan == plain.plan
        for column in ("src", "dst", "size", "gap", "start", "after"):
            assert np.array_equal(getattr(made.trace, column), getattr(plain.trace, column))
        assert plain.facts.items() <= made.facts.items()


def test_a_thinner_fabric_gets_fewer_and_other_moves():
    moved = {topo: joint(topo, "generation.batch=512").facts for topo in ("ideal", THIN, APART)}
    kv = [moved[topo]["kv_bytes"] for topo in ("ideal", THIN, APART)]
    assert kv[0] > kv[1] > kv[2] > 0
    assert moved["ideal"]["moved"] > moved[THIN]["moved"]
    assert all(facts["servers_cut"] for facts in moved.values())  # widths follow everywhere


def test_two_clusters_get_a_weight_sync_that_crosses_once():
    topo = "two-clusters,join=200Gbit/s"
    made, plain = joint(topo), separate()
    assert made.facts["weight_sync"] == "rank0" and plain.workload.weight_sync.strategy == "flat"
    told = made.facts["weight_sync_s"]
    assert set(told) == set(ALIKE) and told["rank0"] == min(told.values())
    assert seconds(made, topo) < 0.98 * seconds(plain, topo)


@pytest.mark.parametrize("name", ["sync", "one-step-off", "async"])
def test_plain_pipelines_choose_their_weight_sync(name):
    w, topo = workload(), "two-clusters,join=50Gbit/s"
    made = scheduled(w, 0, f"{name},network=fabric", foreseen(w.needs.fabric(topo)))
    assert made.facts["weight_sync"] == "rank0" and made.facts["network"] == topo


# --- when weights leave ---------------------------------------------------------------------------

AHEAD = ("pipeline=one-step-off", "steps=3", "generation.batch=512")


@pytest.mark.parametrize("topo", ["ideal", "rfabric", THIN, "two-clusters,join=200Gbit/s"])
def test_weights_leave_early_enough_to_be_there_as_generation_ends(topo):
    made, plain = joint(topo, *AHEAD), separate(*AHEAD)
    ahead = made.facts["weight_sync_ahead_s"]
    load = software_seconds(made.workload)
    takes = made.facts["weight_sync_s"][made.facts["weight_sync"]] - load
    assert set(ahead) == {"0", "1"}  # none generates beside the last
    assert all(s >= 0.95 * takes > 0 for s in ahead.values())
    result = simulate(made.workload.needs.fabric(topo), made.trace, "own")
    ends = {str(phase.key): phase.end for phase in result.phases}
    for step in (0, 1):
        rows = np.flatnonzero((made.trace.step == step) & (made.trace.size > 0))
        rows = rows[made.trace.phase[rows] == made.trace.phases.index("weight_sync")]
        assert (result.start[rows] >= ends[f"training/{step}"]).all()  # never before they are made
        assert ends[f"weight_sync/{step}"] - load >= ends[f"generation/{step + 1}"] - 1e-6
    assert result.step_seconds < 1.005 * seconds(plain, topo)


def test_a_slower_network_is_given_the_weights_sooner():
    ahead = [joint(topo, *AHEAD).facts["weight_sync_ahead_s"]["0"] for topo in ("ideal", THIN)]
    far = joint("two-clusters,join=200Gbit/s", *AHEAD).facts["weight_sync_ahead_s"]["0"]
    assert ahead[0] < ahead[1] < far


def test_nothing_but_the_start_changes_what_is_sent():
    w = workload("pipeline=one-step-off", "steps=2")
    made = scheduled(w, 0, "one-step-off,network=fabric", foreseen(w.needs.fabric("ideal")))
    plain = scheduled(w, 0, "one-step-off")
    assert made.facts["weight_sync_ahead_s"]["0"] > 0 and made.plan == plain.plan
    sizes = [np.sort(one.trace.size[one.trace.size > 0]) for one in (made, plain)]
    assert np.array_equal(*sizes)
    assert made.trace.compute_only()[1].max() == pytest.approx(plain.trace.compute_only()[1].max())
    hidden = seconds(plain, "ideal") - seconds(made, "ideal")
    assert hidden == pytest.approx(made.facts["weight_sync_ahead_s"]["0"], rel=1e-3)


@pytest.mark.parametrize("name", ["sync", "async", "orchestrrl"])
def test_where_weights_wait_for_training_alone_they_leave_then(name):
    w = workload("steps=2")
    made = scheduled(w, 0, f"{name},network=fabric", foreseen(w.needs.fabric(THIN)))
    assert "weight_sync_ahead_s" not in made.facts
    assert "hold" not in made.trace.labels


def test_starts_that_are_refused_leave_the_one_after_generation():
    """Refused for ever while replicas generate: weights wait, as without asking."""

    @dataclass
    class Later(Says):
        def answer(self, sends, beside=(), lead=0.0):
            return Answer(float("inf"), "not yet") if lead else Answer(1.0)

    w = workload("pipeline=one-step-off", "steps=2")
    made = scheduled(w, 0, "one-step-off,network=fabric", Later(None))
    assert made.facts["weight_sync_ahead_s"] == {"0": 0.0} and "hold" not in made.trace.labels


def test_a_generation_that_ends_sooner_than_forecast_waits_for_its_weights():
    """A start by a forecast that is wrong: late, but nothing is lost and nothing comes too soon."""
    w = workload("pipeline=one-step-off", "steps=2")
    fabric = w.needs.fabric(THIN)
    plain = scheduled(w, 0, "one-step-off")
    key, took = PhaseKey(1, "generation"), {}
    for pace in (0.8, 1.0, 1.25):
        windows = plain.trace.windows | {key: pace * plain.trace.windows[key]}
        wrong = replace(plain, trace=replace(plain.trace, windows=windows, paces={key: pace}))
        made = agreed_start(wrong, 0, foreseen(fabric))
        assert made.trace.windows == windows and made.trace.paces == {key: pace}
        result = simulate(fabric, made.trace, "own")
        assert (result.received == result.sent).all()
        took[pace] = result.step_seconds
    # at the latest weights leave as generation ends; too early a start costs nothing here
    assert took[1.0] < took[1.25] == pytest.approx(seconds(plain, THIN), rel=1e-3)
    assert took[0.8] == pytest.approx(took[1.0], rel=1e-3)


def test_software_of_another_kind_is_not_chosen_for_the_network():
    w = workload("weight_sync.strategy=scatter")
    agreed, facts = agreed_sync(w, foreseen(w.needs.fabric("two-clusters,join=50Gbit/s")))
    assert agreed is w and set(facts["weight_sync_s"]) == {"scatter"}


def test_a_network_that_refuses_all_weights_is_an_error():
    with pytest.raises(RFabricError, match="says refuses every weight sync of flat, tree, rank0"):
        agreed_sync(workload(), Says(lambda sends: Answer(float("inf"), "no way")))


def test_what_is_refused_for_ever_is_computed_again_and_nothing_is_lost():
    w = workload()

    def reply(sends):
        kv = min(sends.src) >= w.first_generation_gpu
        return Answer(float("inf"), "no way") if kv else Answer(1.0)

    network = Says(reply)
    made, plain = orchestrate(w, 0, Tuning(), network), separate()
    facts = made.facts
    assert facts["refused"] and facts["refusal"] == "no way" and not facts["kv_bytes"]
    assert facts["moved"] == facts["recomputed"]
    for one in (made, plain):
        segments = one.steps[0].generated.segments
        assert sum(s.responses for s in segments) == w.generation.batch * w.generation.group_size
    assert not (made.trace.size[made.trace.label == _label(made.trace, "kv")] > 0).any()


@pytest.mark.parametrize("known", [1, 3, 8])
def test_a_pool_that_vanishes_from_the_network_loses_nothing(known):
    """The first proposals are answered, then no KV arrives any more."""
    w = workload("generation.batch=512")
    left = [known]

    def reply(sends):
        if min(sends.src) < w.first_generation_gpu:
            return Answer(1.0)
        left[0] -= 1
        return Answer(2.0) if left[0] >= 0 else Answer(float("inf"), "h33 is gone")

    made = orchestrate(w, 0, Tuning(), Says(reply))
    assert made.facts["refused"] and made.facts["refusal"] == "h33 is gone"
    segments = made.steps[0].generated.segments
    assert sum(s.responses for s in segments) == w.generation.batch * w.generation.group_size
    assert sum(s.tokens for s in segments) == made.steps[0].generated.outputs[0].sum()


@pytest.mark.parametrize(
    ("change", "topo", "text"),
    [
        ((), "rfabric,pods=1", "the job has GPU h64, which rfabric,pods=1 lacks"),
        (("cluster.generation_gpus=0",), "rfabric", "cluster.generation_gpus: 0 must be 1 or more"),
        (
            (
                "generation.max_response=9000000",
                "generation.context=9100000",
                "training.micro_batch_tokens=9100000",
            ),
            "rfabric",
            "tokens of KV cache, one sequence may need 9002048",
        ),
    ],
    ids=["fabric without the pool", "no pool", "KV larger than a node"],
)
def test_a_job_that_cannot_be_is_one_error_and_no_folder(
    change, topo, text, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    sets = [word for one in change for word in ("--set", one)]
    words = ["--policy", JOINT, "--traffic", "grpo-64", "--topo", topo, *sets]
    assert main(["simulate", *words, "-q"]) == 2
    said = capsys.readouterr().err.strip()
    assert text in said and "\n" not in said
    assert not list(tmp_path.iterdir())


def crowded(seat):
    """Three responses on two servers, the last with more KV than a server holds."""
    return Problem(
        fixed=np.zeros(1),
        work=np.ones((1, 3)),
        kv=np.array([10.0, 10.0, 500.0]),
        capacity=np.full(1, 100.0),
        move=np.zeros(3),
        seat=np.array(seat),
        cut=np.zeros(2, int),
        switch=0.0,
    )


@pytest.mark.parametrize("seat", [[0, 0, 0], [0, 1, 1], [-1, -1, -1]])
def test_kv_larger_than_a_server_has_a_server_all_the_same(seat):
    """It waits for its turn there; where it has a server already, it stays."""
    plan = replan(crowded(seat))
    assert (plan.seat >= 0).all() and np.isfinite(plan.seconds)
    if min(seat) >= 0:
        assert plan.seat[2] == seat[2]


@pytest.mark.parametrize("field", ["fixed", "work", "kv", "capacity", "move"])
def test_figures_of_a_plan_that_are_no_numbers_are_an_error(field):
    p = crowded([0, 0, 0])
    with pytest.raises(RFabricError, match=f"replanning: {field} must be finite"):
        replace(p, **{field: np.full_like(getattr(p, field), np.nan)})


def _label(trace, name):
    return trace.labels.index(name) if name in trace.labels else -1


def test_the_same_job_and_fabric_give_the_same_plan():
    w = workload()
    again = scheduled(w, 0, JOINT, foreseen(w.needs.fabric(THIN)))
    assert again.facts == joint(THIN).facts and again.plan == joint(THIN).plan


def test_the_decision_of_the_bench_is_one_that_the_fabric_has_a_say_in():
    fabric = rfabric(**planning_bench.SHAPES[128], gpus=8, planes=8)
    seats, p, kv = planning_bench.joint(fabric)
    asked = Says(seats.network.answer)
    settled = settle(replace(seats, network=asked), p, kv, replan, ())
    assert len(p.seat) == 4096 and seats.count == 64 and len(fabric.racks) == 128
    assert len(asked.asked) > 1 and settled.answer.seconds > 0
    assert settled.assignment.seconds < keep(p).seconds


def drawn(seed):
    """A job and a fabric."""
    r = random.Random(seed)
    gpus, nic = r.choice([16, 32, 48]), r.choice(["100Gbit/s", "200Gbit/s", "400Gbit/s"])
    changes = (
        f"cluster.generation_gpus={gpus}",
        f"cluster.nic={nic}",
        f"generation.batch={r.choice([32, 64, 128, 256])}",
        f"generation.max_response={r.choice([4096, 8192, 16384])}",
        f"generation.tp={r.choice([1, 2, 4])}",
        f"steps={r.choice([1, 1, 2])}",
        f"pipeline={r.choice(['sync', 'one-step-off'])}",
        f"weight_sync.strategy={r.choice([*ALIKE, 'scatter'])}",
    )
    half = f"training={32 + gpus // 2},generation={gpus // 2}"
    topos = (
        "rfabric",
        "rfabric,delay=100ms",
        THIN,
        "leaf-spine,oversubscription=4",
        f"two-clusters,{half},join=200Gbit/s",
        f"two-clusters,training=32,generation={gpus},join=50Gbit/s",
    )
    return r.choice(topos), changes


@pytest.mark.parametrize("seed", range(JOBS))
def test_a_joint_plan_is_never_worse_than_the_separate_one_by_over_a_hundredth(seed):
    topo, changes = drawn(seed)
    ours = seconds(joint(topo, *changes, seed=seed), topo)
    assert ours <= 1.01 * seconds(separate(*changes, seed=seed), topo)


@pytest.mark.parametrize("seed", range(JOBS if JOBS > 25 else 8))
def test_no_plan_of_a_drawn_job_is_under_its_bound(seed):
    topo, changes = drawn(seed)
    made = joint(topo, *changes, seed=seed)
    least = least_step(made, seed, made.workload.needs.fabric(topo))
    for plan in (made, separate(*changes, seed=seed), scheduled(workload(*changes), seed)):
        assert 0 < least <= seconds(plan, topo) * (1 + 1e-9)


# --- who is asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["demand", "static"])
def test_a_controller_answers_over_rest_what_is_foreseen_here(policy):
    fabric = rfabric(pods=4, tors=4, gpus=4)
    with serving(fabric) as server:
        url = f"http://127.0.0.1:{server.port}"
        # from the circuits that are lit there
        lit = Client(url).circuits()
        there = controlled(url, fabric, policy)
        for seed in range(3):
            sends, beside = kv_like(seed), [kv_like(seed + 3)]
            answer = there.answer(sends, beside)
            here = _from(fabric, lit, policy).answer(sends, beside)
            assert answer.seconds == pytest.approx(here.seconds)
        assert all(plan["state"] != "PREPARED" for plan in Client(url).plans())


def _from(fabric, lit, policy):
    from rfabric.optics import arrival, intend, parse_policy
    from rfabric.schedulers.networks import FabricNetwork

    asked = parse_policy(policy, fabric)

    def ask(demand, sending):
        decision = intend(fabric, asked, demand, lit, 0.0, sending=sending)
        return arrival(fabric, lit, decision, demand, sending, Timing().takes(fabric))

    return FabricNetwork(fabric, ask)


def test_a_controller_of_another_fabric_is_refused_and_one_that_is_gone_is_no_refusal():
    with serving(rfabric(pods=4, tors=4, gpus=4)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(RFabricError, match=r"steers .*, the run is on rfabric,pods=2"):
            controlled(url, parse_fabric("rfabric,pods=2"), "demand")
        network = controlled(url, rfabric(pods=4, tors=4, gpus=4), "demand")
    with pytest.raises(RunError, match="gone"):
        network.answer(kv_like(0))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["timeline", "--policy", JOINT], "network=fabric asks a fabric, and none is given here"),
        (["timeline", "--policy", "orchestrrl", "--topo", "rfabric"], "drawn without a fabric"),
        (["timeline", "--jobs", "none.csv", "--topo", "rfabric"], "jobs none.csv: cannot be read"),
        (
            ["timeline", "--policy", "rollart,network=fabric", "--topo", "rfabric"],
            "asks no network",
        ),
        (
            ["timeline", "--policy", "sync,network=fabrik", "--topo", "rfabric"],
            "network=fabrik is neither cards, fabric nor the address of a controller",
        ),
        (["simulate", "--policy", JOINT], "one --topo and one --policy"),
        (
            ["simulate", "--policy", JOINT, "--topo", "rfabric", "--topo", "fat-tree"],
            "2 fabrics under 1 circuit policies",
        ),
        (
            ["simulate", "--policy", f"{JOINT}+rotor", "--topo", "rfabric"],
            "nothing can be negotiated",
        ),
        (["simulate", "--policy", "weave,network=fabric", "--topo", "rfabric"], "asks no network"),
    ],
)
def test_who_cannot_be_asked_is_said_at_once(words, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "-q"]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_comparison_makes_a_plan_for_each_fabric(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    topos = ["--topo", "ideal", "--topo", THIN]
    words = ["compare", "--traffic", "grpo-64", "--policy", JOINT, *topos, "--json", "-q"]
    assert main([*words, "--jobs", "1"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    kv = [run["phases"]["migration-3"]["bytes"] for run in comparison["runs"]]
    assert kv[0] != kv[1]
    assert any("a trace, for each fabric" in text for text in comparison["fairness"])


def test_one_run_and_a_timeline_show_the_same_plan(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["--traffic", "grpo-64", "--policy", JOINT, "--topo", THIN, "--json", "-q"]
    assert main(["timeline", *asked]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["facts"] == joint(THIN).facts
    assert main(["simulate", *asked]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    moves = ("migration-1", "migration-2", "migration-3", "balancing")
    kv = sum(run["phases"][name]["bytes"] for name in moves if name in run["phases"])
    assert kv == pytest.approx(plan["facts"]["kv_bytes"], rel=1e-6)
