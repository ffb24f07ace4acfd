"""RollPacker where training has GPUs of its own, and judges beside the actor: waves, micro-batches
and batches with numbers by hand, and what they send.
"""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.memory import engine_weight_bytes
from rfabric.compute.named import load_model
from rfabric.compute.roofline import CHUNK_TOKENS
from rfabric.compute.training import PCIE_BYTES_PER_S, PassSeconds
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, parse_fabric
from rfabric.report.within import phases_within
from rfabric.rl import read_recipe
from rfabric.rl.phases import MiniBatch, Trained
from rfabric.rl.timing import server_of
from rfabric.schedulers.rollpacker import (
    STREAMING,
    Judge,
    RollpackerSettings,
    in_batches,
    run,
    streamable,
    trained_ahead,
    verdicts,
    waves_of,
)
from rfabric.schedulers.table import scheduled
from rfabric.simulate.world import simulate

SMALL = ("model=Qwen2.5-7B", "generation.batch=32", "generation.max_response=4096")
FINE = ("training.micro_batch_tokens=8192", "generation.max_prompt=1024")
# each with another kind of exchange inside training
LAYOUTS = {
    "data": (),
    "one update": ("training.mini_batches=1",),
    "stages": ("training.tp=1", "training.pp=4"),
    "sharded": ("training.optimizer=sharded", "training.mini_batches=1"),
    "context": ("training.tp=4", "training.cp=4"),
    "no log-probs": ("training.log_prob_passes=0", "training.mini_batches=1"),
    "epochs": ("training.epochs=2",),
}


@cache
def job(*changes):
    return read_recipe("grpo-64", [*SMALL, *FINE, *changes])


@cache
def experts():
    return read_recipe("grpo-64-moe", [*SMALL[1:], *FINE, "training.mini_batches=1"])


# --- waves ----------------------------------------------------------------------------------------


def test_groups_go_from_a_fifth_on_and_at_every_twentieth():
    """40 groups: 8 first, then two by two; those that come together stay in their order."""
    waves = waves_of(np.arange(40.0)[::-1])
    assert [len(wave.groups) for wave in waves] == [8] + [2] * 16
    assert [wave.at for wave in waves] == [7.0, *np.arange(9.0, 40, 2)]
    assert waves[0].groups.tolist() == list(range(39, 31, -1))
    assert [len(wave.groups) for wave in waves_of(np.zeros(3))] == [1, 1, 1]
    assert [len(wave.groups) for wave in waves_of(np.zeros(10), 0.95)] == [10]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.floats(0.01, 0.9))
def test_every_group_goes_once_and_when_it_is_there(ready, begin):
    ready = np.array(ready)
    waves = waves_of(ready, begin)
    assert sorted(np.concatenate([wave.groups for wave in waves]).tolist()) == list(
        range(len(ready))
    )
    for wave in waves:
        assert wave.at == ready[wave.groups].max()
    assert [wave.at for wave in waves] == sorted(wave.at for wave in waves)
    assert waves[-1].at == ready.max()


# --- what training computes ahead -----------------------------------------------------------------


def training(micro=10, log_prob=10.0, first=28.0, piece=1.0):
    """10 micro-batches: a second of log-probabilities and three of gradients each, the last second
    of which is the last backward pass, in three pieces.
    """
    ahead, none = PassSeconds(matmul=1.0), PassSeconds()
    last, tokens = np.array([first + 2 - 3 * piece]), np.array([100.0])
    batch = MiniBatch(last, piece, tokens, micro, ahead, none)
    return Trained(np.array([log_prob]), tokens, ahead, micro, [batch], 0.0)


def ahead(ready, trained=None, tokens=None):
    ready = np.array(ready, float)
    tokens = np.full(len(ready), 100.0 / len(ready)) if tokens is None else tokens
    w = job("training.mini_batches=1")
    return trained_ahead(w, trained or training(), waves_of(ready), tokens)


def test_micro_batches_are_computed_as_they_are_filled():
    """Ten groups, each a micro-batch of 4 s: two are there at 0 s, then one every 10 s; the last
    comes at 80 s, when nothing is begun any more.
    """
    waves, left = ahead([0, 0, *range(10, 90, 10)])
    assert [wave.begins for wave in waves] == [0, *range(10, 90, 10)]
    assert [wave.seconds for wave in waves] == pytest.approx([8] + [4] * 7 + [0])
    assert waves[-1].part is None
    assert left.log_prob[0] == pytest.approx(1) and left.mini_batches[0].first[0] == pytest.approx(
        0
    )
    assert left.mini_batches[0].micro_batches == left.log_prob_micro_batches == 1
    assert left.mini_batches[0].tokens[0] == pytest.approx(10)
    assert left.seconds(3) == pytest.approx(4)  # what one micro-batch takes


def test_work_that_came_sooner_than_it_is_done_queues():
    """All but one are there at 0 s: nine micro-batches would take 36 s, and 30 are there: nine of
    log-probabilities and seven of gradients.
    """
    waves, left = ahead([0] * 9 + [30])
    assert [wave.begins for wave in waves][:2] == [0, 8] and waves[-2].begins <= 30
    assert left.log_prob_micro_batches == 1 and left.mini_batches[0].micro_batches == 3
    assert all(a.begins + a.seconds <= b.begins for a, b in zip(waves, waves[1:], strict=False))


def test_nothing_is_done_ahead_where_all_comes_at_once():
    waves, left = ahead([5] * 10)
    assert all(wave.part is None for wave in waves)
    assert left.seconds(3) == training().seconds(3)


def test_gradients_wait_for_log_probabilities_of_the_same_tokens():
    """Log-probabilities of ten micro-batches take 30 s each: one is known within 35 s, so is one
    micro-batch of gradients, and no more.
    """
    _, left = ahead([0] * 9 + [35], training(log_prob=300.0))
    assert left.log_prob_micro_batches == left.mini_batches[0].micro_batches == 9


def test_each_wave_fills_the_stages_anew():
    """Four stages: three micro-batches of time before the first is through, of either kind."""
    w = job(*LAYOUTS["stages"], "training.mini_batches=1")
    trained = training(log_prob=13.0, first=37.0)
    waves, left = trained_ahead(
        w, trained, waves_of(np.array([0.0, 0, *range(20, 180, 20)])), np.full(10, 10.0)
    )
    assert [wave.seconds for wave in waves] == pytest.approx([5 + 15] + [4 + 12] * 7 + [0])
    assert left.log_prob[0] == pytest.approx(4) and left.seconds(3) == pytest.approx(4 + 12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 60), st.floats(1, 50)), min_size=2, max_size=40),
    st.integers(1, 12),
)
def test_what_is_done_ahead_and_what_is_left_are_the_whole(rows, micro):
    ready, tokens = (np.array(column) for column in zip(*rows, strict=True))
    trained = training(micro, log_prob=1.0 * micro, first=3.0 * micro - 2)
    waves, left = ahead(ready, trained, tokens)
    parts = [wave.part for wave in waves if wave.part]
    batches = [*left.mini_batches[:1], *(b for part in parts for b in part.mini_batches)]
    assert sum(part.log_prob_micro_batches for part in [left, *parts]) == micro
    assert sum(b.micro_batches for b in batches) == micro and left.mini_batches[0].micro_batches
    for column in ("log_prob", "log_prob_tokens"):
        total = sum(getattr(part, column) for part in [left, *parts])
        assert total == pytest.approx(getattr(trained, column))
    assert sum(b.tokens for b in batches) == pytest.approx(100)
    assert sum(b.first for b in batches) == pytest.approx(trained.mini_batches[0].first)
    for wave in waves:
        assert wave.begins >= wave.at
        assert not wave.part or wave.begins + wave.seconds <= ready.max() + 1e-9


# --- in a job -------------------------------------------------------------------------------------


def sent_by_label(made):
    trace = made.trace
    sent = Counter()
    for key, rows in trace.communication().items():
        sent[key[0], key[2]] += int(trace.total[rows].sum())
    return sent


@pytest.mark.parametrize("layout", [*LAYOUTS, "experts"])
def test_the_same_bytes_are_sent_sooner(layout):
    """All that streaming changes is when: by step and label as many bytes, sizes rounded up; the
    trace is checked against the plan as it is made.
    """
    w = experts() if layout == "experts" else job(*LAYOUTS[layout])
    off, on = (scheduled(w, 0, f"rollpacker,stream={way}") for way in (0, 1))
    assert on.seconds <= off.seconds + 1e-9
    assert on.facts["trained_early_share"][0] > 0.1
    before, after = sent_by_label(off), sent_by_label(on)
    assert before.keys() == after.keys()
    for key, size in before.items():
        # the first mini-batch is another where there are several: its ranks hold other tokens; and
        # what FSDP holds outside of layers is gathered for each part of a pass
        parts = w.training.mini_batches > 1 or key[1] == "all-gather" and layout == "sharded"
        near = 0.1 if parts else 1e-3
        assert after[key] == pytest.approx(size, rel=near), key
    ahead = next(p for p in on.plan.phases if p.kind == STREAMING)
    generation = next(p for p in on.plan.phases if p.kind == "generation")
    assert generation.start < ahead.start
    assert ahead.start + ahead.seconds <= generation.start + generation.seconds + 1e-9


@pytest.mark.parametrize("layout", ["data", "sharded", "experts"])
def test_waves_cross_the_fabric_while_others_generate(layout):
    w = experts() if layout == "experts" else job(*LAYOUTS[layout])
    made = scheduled(w, 0, "rollpacker,judge=Qwen2.5-7B")
    fabric = parse_fabric("rfabric", w.hosts)
    played = simulate(fabric, made.trace)
    ideal = simulate(BUILDERS["ideal"](w.hosts, w.nic_bps), made.trace)
    assert played.lost_bytes == 0 and np.isfinite(played.finish).all()
    assert any("in waves" in text for text in made.trace.provenance["merged"])
    assert ideal.step_seconds <= played.step_seconds * (1 + 1e-9)
    assert made.plan.seconds <= ideal.step_seconds * (1 + 1e-9)
    generation = next(p for p in made.plan.phases if p.kind == "generation")
    experience = made.trace.label == made.trace.labels.index("experience")
    assert made.trace.compute_only()[0][experience].min() < generation.seconds / 2
    ahead = phases_within(ideal)["streaming"]  # computing, of which training's residuals speak
    seconds = sum(p.seconds for p in ideal.phases if p.key.phase == "streaming")
    assert ahead["kind"] == "training" and ahead["low"] < seconds < ahead["high"]


def test_exchanges_hide_behind_the_rollout_where_the_fabric_is_thin():
    """Tokens to experts cross while others still generate: what streaming saves grows with what
    they take.
    """
    w = experts()
    off, on = (scheduled(w, 0, f"rollpacker,stream={way}").trace for way in (0, 1))
    thin = parse_fabric("fat-tree,oversubscription=4", w.hosts)
    ideal = BUILDERS["ideal"](w.hosts, w.nic_bps)
    saved = {
        name: simulate(fabric, off).step_seconds - simulate(fabric, on).step_seconds
        for name, fabric in (("thin", thin), ("ideal", ideal))
    }
    assert 0 < saved["ideal"] < saved["thin"]


def test_several_updates_take_the_first_groups_first():
    (packed,) = run(job("training.mini_batches=4"), 0, RollpackerSettings(planner=0), 1)
    ready = packed.played.kept_ends.max(axis=1)
    order = np.argsort(ready, kind="stable")[: len(ready) // 4]
    tokens = (packed.played.prompts[:, None] + packed.played.outputs)[order].sum()
    assert packed.trained.mini_batches[0].tokens.sum() == tokens
    assert packed.early == pytest.approx(1 - streamable(packed.left) / streamable(packed.trained))
    assert packed.freed is None


def test_a_share_to_begin_at_is_kept():
    sooner, later = (
        run(job(), 0, RollpackerSettings(planner=0, free=share), 1)[0] for share in (0.1, 0.6)
    )
    count = len(later.played.kept)
    assert len(sooner.waves[0].groups) == int(np.ceil(0.1 * count))
    assert len(later.waves[0].groups) == int(np.ceil(0.6 * count))
    assert later.early <= sooner.early


# --- judges ---------------------------------------------------------------------------------------


def judge(**changes):
    return replace(Judge(load_model("Qwen2.5-7B")), **changes)


def test_a_batch_hides_loading_behind_reading_or_the_other_way_round():
    w, one = job(), judge()
    layers, tp = one.model.layers, w.generation.tp
    load = engine_weight_bytes(one.model, tp) / layers / PCIE_BYTES_PER_S
    assert one.batch_seconds(w, 0, 0) == pytest.approx(layers * load)
    flops = one.model.forward_flops(8192, 8192**2)
    read = flops / layers / (tp * server_of(w).flops("bf16") * one.share)
    assert read > load
    assert one.batch_seconds(w, 8192, 8192**2) == pytest.approx(layers * read + load)
    assert replace(one, share=0.4).batch_seconds(w, 8192, 8192**2) == pytest.approx(
        layers * read / 2 + load
    )


def test_a_free_judge_takes_what_waits():
    """A batch takes 2 s: one at 0 s, then the two that came meanwhile, then one that came at 9."""
    ends = in_batches(np.array([0.0, 0.5, 1.5, 9.0]), np.ones(4), lambda tokens: 2.0)
    assert ends.tolist() == [2, 4, 4, 11]
    longs = np.full(3, 0.75 * CHUNK_TOKENS)
    assert in_batches(np.zeros(3), longs, lambda tokens: 2.0).tolist() == [2, 4, 6]
    assert in_batches(np.zeros(2), np.full(2, CHUNK_TOKENS / 2), len).tolist() == [2, 2]
    assert in_batches(np.zeros(1), np.array([2.0 * CHUNK_TOKENS]), len).tolist() == [1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 50), st.integers(1, 5000)), min_size=1, max_size=40))
def test_nobody_is_judged_before_it_is_there_and_turns_are_kept(rows):
    ready, tokens = (np.array(column) for column in zip(*rows, strict=True))
    w, one = job(), judge(count=3)
    given = verdicts(one, w, ready, tokens)
    alone = [one.batch_seconds(w, n, n**2) for n in tokens.tolist()]
    assert (given.ends >= ready + np.array(alone) - 1e-9).all()
    order = np.argsort(ready, kind="stable")
    assert (given.judge[order] == np.arange(len(rows)) % 3).all()


def test_judges_stand_evenly_and_take_sms_and_two_layers():
    w, one = job(), judge(count=4)
    assert [gpus[0] for gpus in one.stand_on(w)] == [32, 40, 48, 56]
    assert len(judge().stand_on(w)) == len(w.replicas) == 16
    wide = replace(w, generation=replace(w.generation, tp=4))
    assert len(judge(count=9).stand_on(wide)) == 8
    actor = one.actor(w)
    assert server_of(actor).flops("bf16") == pytest.approx(0.8 * server_of(w).flops("bf16"))
    held = 2 * engine_weight_bytes(one.model, w.generation.tp) / one.model.layers
    lost = (w.kv_capacity_tokens - actor.kv_capacity_tokens) * w.model.kv_bytes_per_token
    assert lost == pytest.approx(held * w.generation.tp, rel=1e-3)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_judges_are_sent_prompts_and_responses_of_other_servers(placement, count):
    """Text of all that they judge, but for what their own server made."""
    w = replace(job(), placement=placement)
    policy = RollpackerSettings(judge="Qwen2.5-7B", judges=count, stream=0)
    (packed,) = run(w, 0, policy, 1)
    made = scheduled(w, 0, f"rollpacker,judge=Qwen2.5-7B,judges={count},stream=0")
    server = w.gpus_per_server
    played = packed.played
    makers = np.array([w.replicas[s][0] // server for s in played.replica[played.kept]])
    judges = np.array([gpus[0] // server for gpus in packed.judges])[packed.judged_by]
    text = 4 * (played.prompts[:, None] + played.outputs)
    elsewhere = text[judges != makers[:, None]].sum()
    sent = sum(size for (_, label), size in sent_by_label(made).items() if label == "judge")
    rows = np.count_nonzero(made.trace.label == made.trace.labels.index("judge"))
    assert elsewhere <= sent <= elsewhere + rows and elsewhere > 0
    assert made.facts["judged_after_s"][0] > 0
    generation = next(p for p in made.plan.phases if p.kind == "generation")
    assert generation.seconds == pytest.approx(packed.judged)


def test_a_judge_of_no_weight_changes_little_and_a_heavy_one_much():
    """More SMs to the judge: judged sooner, generated later."""
    plain = run(job(), 0, RollpackerSettings(), 1)[0]
    light, heavy = (
        run(job(), 0, RollpackerSettings(judge=name), 1)[0]
        for name in ("Qwen2.5-0.5B", "Qwen2.5-32B")
    )
    assert plain.judged < light.judged < heavy.judged
    few, many = (
        run(job(), 0, RollpackerSettings(judge="Qwen2.5-32B", judge_share=share), 1)[0]
        for share in (0.1, 0.5)
    )
    assert many.judged - many.played.seconds < few.judged - few.played.seconds
    assert many.played.seconds >= few.played.seconds


def test_a_judge_beside_freed_gpus_leaves_them_fewer_sms():
    w = replace(job("training.mini_batches=1"), placement="colocated")
    one = judge()
    alone, beside = run(w, 0, RollpackerSettings(), 1) + run(w, 0, RollpackerSettings(), 1, one)
    assert alone.freed and beside.freed and 0 < beside.early < 1
    assert beside.judges and not alone.judges


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("judge=Qwen2.5-7B,judge_share=0", "judge share: 0 of the SMs must lie between 0 and 1"),
        ("judge=Qwen2.5-7B,judge_share=1", "judge share: 1 of the SMs must lie between 0 and 1"),
        ("judge=Qwen2.5-7B,judges=17", "judges: 17 exceed the 16 replicas"),
        ("judge=Qwen2.5-7B,judges=1.5", "judges: 1.5 must be a whole number"),
        ("judges=2", "none is named; name its model too, such as judge=Qwen2.5-7B"),
        ("judge=Qwen9-7B", "Qwen9-7B"),
        ("judge=Llama-3.1-405B,judge_share=nan", "judge_share=nan is not a number"),
    ],
)
def test_a_judge_that_cannot_stand_there_is_an_error(policy, text):
    with pytest.raises(RFabricError) as caught:
        scheduled(job(), 0, f"rollpacker,{policy}")
    assert text in str(caught.value)


def test_a_judge_that_leaves_the_actor_no_room_is_an_error():
    w = job()
    tight = replace(w.generation, memory_utilisation=0.15)
    with pytest.raises(RFabricError, match="judge Llama-3.1-405B: .*of the HBM"):
        judge(model=load_model("Llama-3.1-405B")).actor(replace(w, generation=tight))
