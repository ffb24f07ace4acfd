"""Published experiments run again: the frame, its verb, and what must hold of each paper's rows."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.schedulers.weave import Job, Profile, run
from rfabric.schedulers.weave.cluster import OPTIMUM, STAYS
from rfabric.study.reproduce import (
    CIRCULAR,
    QUOTED,
    REPRODUCTIONS,
    SECOND_HAND,
    PaperRow,
    middle,
    orchestrrl_fabrics,
    reproduce,
    rollart,
    rollpacker_judge,
    weave_weeks,
)
from rfabric.study.reproduce import weave as weave_paper
from rfabric.study.reproduce.orchestrrl_fabrics import CASES, POLICIES, FabricCase, FabricStep
from rfabric.study.reproduce.weave_inputs import (
    EVEN,
    MEAN_MAX_TOKENS,
    MIXES,
    PROFILES,
    TRACE_MAX_TOKENS,
    WORKLOADS,
    TraceMix,
    kind_weights,
    length_weights,
    simulated_jobs,
    trace_jobs,
    workload,
)


def by_metric(rows):
    return {row.metric: row for row in rows}


# --- the frame ------------------------------------------------------------------------------------


def test_a_row_compares_values_and_ranges():
    assert PaperRow("m", 2.0, 1.0).ratio == 0.5
    assert PaperRow("m", (1.0, 3.0), (2.0, 4.0)).ratio == 1.5
    assert PaperRow("m", 2.0, None, why="not stated").ratio is None
    assert middle((1.0, 2.0)) == 1.5
    assert PaperRow("m", (1.0, 3.0), 2.0, "s", "so", SECOND_HAND).to_json() == {
        "metric": "m",
        "unit": "s",
        "paper": [1.0, 3.0],
        "ours": 2.0,
        "ratio": 1.0,
        "trust": "second-hand",
        "why": "so",
    }


def test_an_unknown_paper_is_refused():
    with pytest.raises(RFabricError, match="no reproduction of 'nothing'; there are weave"):
        reproduce("nothing")


@pytest.fixture
def short(monkeypatch):
    """Every paper's quick rows only."""
    quick = (weave_paper.micro_rows, weave_paper.sync_rows, weave_paper.left_out)
    monkeypatch.setattr(
        weave_paper, "rows", lambda seed, tell: [row for part in quick for row in part(seed)]
    )


def test_the_verb_prints_one_document(short, capsys):
    assert main(["reproduce", "weave", "--json", "--seed", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["paper"] == "weave" and document["seed"] == 2
    for row in document["rows"]:
        assert list(row) == ["metric", "unit", "paper", "ours", "ratio", "trust", "why"]
        assert row["trust"] in (QUOTED, SECOND_HAND, CIRCULAR)
        assert row["why"] or row["ours"] is not None


def test_rows_that_rest_on_what_they_are_held_against_are_not_counted(monkeypatch, capsys):
    rows = [
        PaperRow("honest", 2.0, 2.1),
        PaperRow("far", 2.0, 4.0),
        PaperRow("fitted", 2.0, 2.0, trust=CIRCULAR),
        PaperRow("unknown", 2.0, None, why="not stated"),
    ]
    monkeypatch.setattr(weave_paper, "rows", lambda seed, tell: rows)
    assert main(["reproduce", "weave", "--quiet"]) == 0
    counted = "2 rows beside a published figure, 1 within 10 %, 1 within 20 %; 1 not run; 1 more"
    assert counted in capsys.readouterr().out


def test_seconds_of_the_paper_itself_make_a_row_circular():
    trust = {row.metric: row.trust for row in weave_paper.micro_rows(0)}
    assert trust["micro-benchmark b: iteration over solo"] == CIRCULAR
    assert trust["micro-benchmark a (A + A): throughput over Solo-D"] == QUOTED


def test_the_verb_prints_tables(short, capsys):
    assert main(["reproduce", "weave", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "micro-benchmark a (A + A)" in printed and "7.87 to 8.33" in printed and "–" in printed


def test_the_verb_refuses_other_papers(capsys):
    assert main(["reproduce", "wave"]) == 2
    assert "no paper 'wave', did you mean weave?" in capsys.readouterr().err


def test_every_paper_named_has_its_module():
    from importlib import import_module

    for module in REPRODUCTIONS.values():
        assert callable(import_module(f"rfabric.study.reproduce.{module}").rows)


# --- weave: inputs --------------------------------------------------------------------------------


def test_workloads_are_as_published():
    assert workload("D").roll / workload("D").train == pytest.approx(2.5)
    assert workload("E").roll / workload("E").train == pytest.approx(6)
    assert {name: workload(name).solo for name in "ABC"} == pytest.approx(
        {"A": 257.7, "B": 525.4, "C": 574.6}
    )
    assert workload("C").roll_nodes == workload("C").train_nodes == 2


def test_mixes_have_the_published_mean_length():
    tokens = np.array([WORKLOADS[name].max_tokens for name in sorted(WORKLOADS)])
    assert kind_weights() @ tokens == pytest.approx(MEAN_MAX_TOKENS)
    assert length_weights() @ TRACE_MAX_TOKENS == pytest.approx(MEAN_MAX_TOKENS)


def test_jobs_have_the_published_statistics_and_follow_the_seed():
    jobs = trace_jobs(0, count=4000)
    assert np.mean([job.seconds for job in jobs]) / 3600 == pytest.approx(27.9, rel=0.1)
    assert np.mean([job.slo for job in jobs]) == pytest.approx(1.5, rel=0.05)
    assert len(trace_jobs(0)) == 200 and len(simulated_jobs("BL", 0)) == 300
    assert trace_jobs(3) == trace_jobs(3) != trace_jobs(4)
    for mix, kinds in MIXES.items():
        low = min(PROFILES[kind, "S"][0][0] for kind in kinds)
        high = max(PROFILES[kind, "L"][0][1] for kind in kinds)
        assert all(low <= job.profile.roll <= high for job in simulated_jobs(mix, 1))
    assert all(job.profile.roll == job.profile.train for job in simulated_jobs("BL", 1))


# --- weave: figures -------------------------------------------------------------------------------


def test_micro_benchmarks_that_are_stated_in_full():
    rows = by_metric(weave_paper.micro_rows(0))
    for name in ("a (A + A)", "b (D + D + E)"):
        assert rows[(f"micro-benchmark {name}: throughput over Solo-D")].ratio == pytest.approx(
            1, abs=0.1
        )
    assert rows["two rollout-heavy jobs on one node: slowdown"].ratio == pytest.approx(1, abs=0.1)


def test_a_group_keeps_its_nodes_until_late_jobs_have_done_their_work():
    """Two like jobs that fill a node twice over: each takes twice as long, and one may."""
    patient, pressed = (Job(n, Profile(60, 1), slo, 0, 100) for n, slo in (("a", 3.0), ("b", 1.1)))
    bills = {stay: run([patient, pressed], "most-idle", stay=stay).dollars for stay in STAYS}
    assert bills["late"] == bills["slowest"] == pytest.approx(bills["done"], rel=0.02)
    assert bills["late"] == pytest.approx(bills["trace"] * 120 / 61)
    kept = replace(pressed, slo=3.0)
    calm = {stay: run([patient, kept], "most-idle", stay=stay).dollars for stay in STAYS}
    assert calm["late"] == calm["trace"] < calm["slowest"]
    with pytest.raises(RFabricError, match="jobs cannot stay 'long'; they stay done, trace"):
        run([patient], stay="long")


def test_policies_that_know_no_slo_cost_more_than_the_optimum_once_late_jobs_are_billed():
    jobs = simulated_jobs("mixed", 0, 120)
    best = weave_paper.replayed(jobs, OPTIMUM)
    assert weave_paper.replayed(jobs).dollars == run(jobs, stay="trace").dollars
    for policy in ("random", "most-idle"):
        assert run(jobs, policy, stay="trace").dollars < best.dollars
        assert weave_paper.replayed(jobs, policy).dollars > 1.2 * best.dollars


def test_the_mix_of_the_two_weeks_follows_from_peaks_alone(monkeypatch):
    monkeypatch.setattr(
        weave_weeks, "TRIED", {"wide": (0.0, 0.5), "heavy": (0.25,), "bunched": (1.0, 3.0)}
    )
    mix = weave_weeks.derived_mix.__wrapped__(0)
    assert mix == TraceMix(0.5, 0.25, 3.0)
    assert weave_weeks.peaks(mix, 0)[0] > weave_weeks.peaks(EVEN, 0)[0]
    monkeypatch.setattr(weave_weeks, "PEAKS", weave_weeks.peaks(TraceMix(0.0, 0.25, 1.0), 0))
    assert weave_weeks.derived_mix.__wrapped__(0) == TraceMix(0.0, 0.25, 1.0)
    assert kind_weights(mix).sum() == pytest.approx(1)


def test_an_experiment_runs_by_name(monkeypatch, capsys):
    def told(seed):
        return [PaperRow("so far", 2.0, 1.0 + seed)]

    monkeypatch.setattr(weave_paper, "EXPERIMENTS", {"billing": told})
    words = ["reproduce", "weave", "--quiet", "--experiment", "billing"]
    assert main([*words, "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "weave --experiment billing" in printed and "so far" in printed
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiment"] == "billing"
    assert main(["reproduce", "weave", "--experiment", "biling"]) == 2
    assert "did you mean billing?; there are billing" in capsys.readouterr().err
    assert main(["reproduce", "opus", "--experiment", "any"]) == 2
    assert "opus has no experiment 'any'; it has none" in capsys.readouterr().err


def test_weight_sync_ratios():
    rows = by_metric(weave_paper.sync_rows(0))
    for gpus in (8, 16):
        assert rows[(f"weight sync {gpus} to {gpus} GPUs: veRL over Weave")].ratio == pytest.approx(
            1, abs=0.1
        )
    assert weave_paper.scatter_seconds(1e10, 16, at_once=True) < weave_paper.scatter_seconds(
        1e10, 16
    )
    assert weave_paper.flat_seconds(2.1e9) == pytest.approx(2.1e9 * 8 / 20e9 / 0.84)


def test_weave_stays_near_the_optimum_and_keeps_slos_where_others_do_not():
    jobs = simulated_jobs("mixed", 0, 120)
    best, ours = run(jobs, OPTIMUM, stay="trace"), run(jobs, stay="trace")
    assert best.attained == ours.attained == 1
    assert 1 <= ours.dollars / best.dollars < 1.2
    assert ours.dollars < run(jobs, "solo", stay="trace").dollars
    for policy in ("random", "most-idle"):
        assert run(jobs, policy, stay="trace").attained < 0.7


def test_two_weeks_cost_less_shared_and_keep_every_slo():
    jobs = trace_jobs(1)
    ours, solo = run(jobs, stay="trace"), run(jobs, "solo", stay="trace")
    assert ours.attained == 1 and ours.dollars < solo.dollars
    assert weave_weeks.verl_dollars(jobs) < solo.dollars
    assert sum(ours.kinds.values()) == pytest.approx(1) and set(solo.kinds) == {"new group"}


def test_a_decision_grows_no_faster_than_the_jobs_squared():
    seconds = weave_paper.latencies((50, 400))
    assert 0 < seconds[400] < 64 * seconds[50]


def test_what_cannot_be_run_says_why():
    rows = list(weave_paper.left_out(0))
    assert rows and all(row.ours is None and row.why for row in rows)


# --- networks -------------------------------------------------------------------------------------


def test_mixnets_published_ratios_are_met_by_its_own_count():
    rows = by_metric(reproduce("mixnet"))
    published = [row for row in rows.values() if isinstance(row.paper, tuple)]
    assert len(published) == 2 and all(
        row.paper[0] <= round(row.ours, 1) <= row.paper[1] for row in published
    )
    assert rows["switch ports a NIC, electrical side"].ours == 5


def test_what_opus_counted_lies_between_two_counts_of_ours():
    rows = by_metric(reproduce("opus"))
    every, bare, above, power, lit, bound, watts = (row.ours for row in rows.values())
    assert every < bare < 4 < above and power < bound < 7 < 23 < lit
    assert 0.14 < watts < 2  # between a Calient S320's port and a packet switch's


# --- orchestrrl's fabrics -------------------------------------------------------------------------


def test_each_fabric_runs_under_the_policy_that_serves_it_best():
    case = FabricCase(64, "grpo-64-moe", ("generation.batch=16",), ", small")
    traffic = orchestrrl_fabrics._traffic(case, 0)
    for spec in ("rfabric", "mixnet"):
        fabric = parse_fabric(spec, traffic.gpus)
        every = {p: orchestrrl_fabrics.played(fabric, traffic, p, 0).seconds for p in POLICIES}
        best = orchestrrl_fabrics.best_step(case, spec, 0)
        assert best.seconds == min(every.values()) and every[best.policy] == best.seconds
        assert min(every.values()) < max(every.values())
    assert {case.gpus for case in CASES if case.model} == {64, 1024}  # jobs with experts


def test_a_row_says_which_policy_served_best():
    base, other = FabricStep(10, 1, 100, "own"), FabricStep(20, 2, 50, "phase")
    case = FabricCase(64, "any", (), ", experts")
    speed, exposed, cost, worth = orchestrrl_fabrics._against(case, "some", (0.5, 0.5), other, base)
    assert (speed.ours, exposed.ours, cost.ours, worth.ours) == (0.5, 2, 0.5, 1)
    assert worth.paper == 1 and "circuits by phase" in speed.why


def test_a_judge_of_our_choice_runs_as_an_experiment(monkeypatch):
    """More SMs read sooner, so that hiding the loads is worth more."""
    monkeypatch.setattr(rollpacker_judge, "JOBS", {"7B": None})
    rows = {row.metric: row.ours for row in reproduce("rollpacker", experiment="judge")}
    layered = [rows[f"judge offloaded layer by layer, {n}% of the SMs: gain"][0] for n in (10, 50)]
    assert 1 < layered[0] < layered[1] < 2
    assert all(low > 0.9 for low, _ in rows.values())


def test_slower_h20_are_worth_less(monkeypatch):
    monkeypatch.setattr(rollart, "MODELS", {"8B": rollart.MODELS["8B"]})
    monkeypatch.setattr(rollart, "H20_SLOWER", (2.0,))
    monkeypatch.setattr(rollart, "_equal_cost_rows", lambda seed, slower: iter(()))
    rows = {row.metric: row.ours for row in reproduce("rollart", experiment="h20")}
    lake, maths = "FrozenLake: 2 H800 over 6 H20, seconds", "GEM-Math: 6 H20 over 2 H800, seconds"
    assert rows[f"H20 2 x slower: {lake}"] < rows[f"H20 1 x slower: {lake}"]
    assert rows[f"H20 2 x slower: {maths}"] > rows[f"H20 1 x slower: {maths}"]
