"""Weight sync: every strategy gives each replica what it should have, from GPUs that hold it, and
no byte twice.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.sync_time import LOAD, PACK, SOFTWARE, UNPACK
from rfabric.errors import RFabricError
from rfabric.rl import STRATEGIES, read_recipe, trace_of
from rfabric.rl.explain import explain
from rfabric.rl.flows import leaving, wire_seconds
from rfabric.rl.plan import plan_of
from rfabric.rl.weight_sync import held_shares, software_parts, software_seconds, sync_bytes
from rfabric.simulate.world import simulate
from rfabric.trace import PhaseKey

WHOLE = ("flat", "tree", "rank0", "p2p")  # a GPU receives its shard and nothing else


def job(*overrides, name="grpo-64"):
    return read_recipe(name, overrides)


def received(w, level):
    return np.bincount(level.flows.dst, level.flows.size, minlength=w.gpus)


LAYOUTS = st.fixed_dictionaries(
    {
        "generation.tp": st.sampled_from([1, 2, 4, 8]),
        "training.tp": st.sampled_from([4, 8]),
        "training.pp": st.sampled_from([1, 2, 4]),
        "cluster.gpus_per_pod": st.sampled_from([8, 16]),
        "weight_sync.precision": st.sampled_from(["bf16", "fp8"]),
    }
)


def of(layout, strategy):
    return job(f"weight_sync.strategy={strategy}", *(f"{k}={v}" for k, v in layout.items()))


@settings(max_examples=25, deadline=None)
@given(layout=LAYOUTS, strategy=st.sampled_from(WHOLE))
def test_every_gpu_receives_its_shard_once(layout, strategy):
    w = of(layout, strategy)
    got = sum(received(w, level) for level in STRATEGIES[strategy](w))
    assert got[: w.cluster.training_gpus].sum() == 0
    assert got[w.cluster.training_gpus :] == pytest.approx(sync_bytes(w) / w.generation.tp)


@settings(max_examples=25, deadline=None)
@given(layout=LAYOUTS, strategy=st.sampled_from(sorted(STRATEGIES)))
def test_what_leaves_training_comes_from_who_holds_it(layout, strategy):
    """Stage by stage, training sends as many copies of that stage's weights as of any other's: the
    embedding with the first, the logits' matrix with the last.
    """
    w = of(layout, strategy)
    first = STRATEGIES[strategy](w)[0].flows
    assert max(first.src) < w.cluster.training_gpus <= min(first.dst)
    sent = np.bincount(first.src, first.size, minlength=w.cluster.training_gpus)
    stages = sent.reshape(w.training.pp, -1).sum(axis=1)
    ends = w.model.vocab * w.model.hidden
    each = 2 if w.weight_sync.precision == "bf16" else 1 + 4 / 128**2  # bytes; the ends are in bf16
    own = np.full(w.training.pp, each * (w.model.parameters - 2 * ends) / w.training.pp)
    own[0] += 2 * ends
    own[-1] += 2 * ends
    assert stages == pytest.approx(own * sum(first.size) / sum(own), rel=1e-4)  # but for norms


@settings(max_examples=25, deadline=None)
@given(layout=LAYOUTS, strategy=st.sampled_from(["tree", "rank0"]))
def test_a_level_passes_on_only_what_the_one_before_brought_or_sent(layout, strategy):
    w = of(layout, strategy)
    levels = STRATEGIES[strategy](w)
    has = set(levels[0].flows.dst)
    for before, level in zip(levels, levels[1:], strict=False):
        for src, size, wait in zip(level.flows.src, level.flows.size, level.waits, strict=True):
            ends = before.flows.src[wait], before.flows.dst[wait]
            assert src in has and src in ends and size == pytest.approx(before.flows.size[wait])
        has |= set(level.flows.dst)


def test_rank_0_sends_one_copy_and_holders_double():
    w = job("weight_sync.strategy=rank0")
    levels = STRATEGIES["rank0"](w)
    assert [len(level.flows.src) // w.generation.tp for level in levels] == [1, 1, 2, 4, 8]
    assert set(levels[0].flows.src) <= set(range(w.training.tp))
    assert sum(levels[0].flows.size) == pytest.approx(w.model.weight_bytes)


def test_a_relay_holds_one_copy_a_pod_and_feeds_the_other_servers():
    w = job("weight_sync.strategy=relay", "generation.tp=4")
    pushed, pulled = STRATEGIES["relay"](w)
    assert pushed.label == "weights" and sum(pushed.flows.size) == pytest.approx(
        2 * w.model.weight_bytes
    )
    stores = set(pushed.flows.dst)
    assert stores == set(range(32, 40)) | set(range(48, 56)) == set(pulled.flows.src)
    got = received(w, pulled)
    assert got[40:48] == pytest.approx(w.model.weight_bytes / 4) and not got[sorted(stores)].any()


@settings(max_examples=15, deadline=None)
@given(layout=LAYOUTS)
def test_the_pieces_of_a_scatter_are_equal_and_make_one_copy(layout):
    w = of(layout, "scatter")
    across, local = STRATEGIES["scatter"](w)
    assert received(w, across)[w.cluster.training_gpus :] == pytest.approx(
        sync_bytes(w) / w.cluster.generation_gpus
    )
    servers = w.cluster.generation_gpus / w.gpus_per_server
    n = w.cluster.generation_gpus
    assert sum(local.flows.size) == pytest.approx(servers * (n - 1) / n * sync_bytes(w))


def test_a_delta_is_a_flat_sync_of_the_changed_bytes():
    whole, changed = job(), job("weight_sync.strategy=delta", "weight_sync.delta_factor=0.01")
    a, b = (STRATEGIES[w.weight_sync.strategy](w)[0].flows for w in (whole, changed))
    assert (a.src, a.dst) == (b.src, b.dst) and sum(b.size) == pytest.approx(0.01 * sum(a.size))
    default = job("weight_sync.strategy=delta")
    assert sync_bytes(default) == pytest.approx(default.model.weight_bytes / 79)


def test_experts_dealt_to_several_servers_come_from_each_of_them():
    w = job(name="grpo-64-moe")
    assert w.training.ep == 16 and w.gpus_per_server == 8
    dense, *experts = held_shares(w)
    assert dense.gpus == tuple(range(32)) and dense.share == pytest.approx(
        w.model.dense_parameters / w.model.parameters
    )
    assert [part.gpus for part in experts] == [
        (*range(8), *range(16, 24)),
        (*range(8, 16), *range(24, 32)),
    ]
    assert sum(part.share for part in held_shares(w)) == pytest.approx(1)
    got = received(w, STRATEGIES["flat"](w)[0])
    assert got[32:] == pytest.approx(w.model.weight_bytes / w.generation.tp)


def test_point_to_point_takes_each_expert_from_the_gpu_that_has_it():
    w = job(name="grpo-64-moe")
    (level,) = STRATEGIES["p2p"](w)
    sent = np.bincount(level.flows.src, level.flows.size, minlength=w.gpus)[:32]
    # two holders of an expert take turns
    each = len(w.replicas) / 2 * w.model.expert_parameters * 2 / w.training.ep
    assert (sent >= each * 0.999).all()


def test_stages_and_wide_expert_groups_part_the_weights():
    w = job("training.pp=2", "training.tp=8")
    held = held_shares(w)
    assert [part.gpus for part in held] == [tuple(range(16)), tuple(range(16, 32))]
    assert [part.share for part in held] == pytest.approx([0.5, 0.5])


def seconds(w):
    return sum(
        wire_seconds(w, level.flows) for level in STRATEGIES[w.weight_sync.strategy](w)
    ) + software_seconds(w)


def test_an_efficiency_takes_the_place_of_the_calibrated_software():
    wire = sum(wire_seconds(job(), level.flows) for level in STRATEGIES["flat"](job()))
    assert software_seconds(job("weight_sync.efficiency=1")) == 0
    assert seconds(job("weight_sync.efficiency=0.5")) == pytest.approx(2 * wire)


def test_software_rules_on_fast_links_and_the_wire_on_slow_ones():
    size = job().model.weight_bytes
    assert seconds(job()) == pytest.approx(1 + size / PACK + size / UNPACK)
    slow = job("cluster.nic=20Gbit/s")
    wire = sum(wire_seconds(slow, level.flows) for level in STRATEGIES["flat"](slow))
    assert seconds(slow) == pytest.approx(1 + wire / 0.95 + size / UNPACK)
    assert seconds(job("weight_sync.strategy=p2p")) < 1 < seconds(job()) / 5


SENDERS = ("weight_sync.senders=2", "weight_sync.nics=4")


@settings(max_examples=15, deadline=None)
@given(layout=LAYOUTS, strategy=st.sampled_from(["flat", "tree", "scatter", "relay", "delta"]))
def test_senders_send_all_through_the_nics_they_are_given(layout, strategy):
    """Of each stage 2 x 4 GPUs, four of them neighbours in a server, and no byte less."""
    w = of(layout | {"weight_sync.senders": 2, "weight_sync.nics": 4}, strategy)
    first, whole = (STRATEGIES[strategy](x)[0].flows for x in (w, of(layout, strategy)))
    assert sum(first.size) == pytest.approx(sum(whole.size))
    for stage in np.split(np.arange(w.cluster.training_gpus), w.training.pp):
        sending = sorted(set(first.src) & set(stage.tolist()))
        assert len(sending) <= 8
        for gpu in sending:
            assert gpu // 4 * 4 in {s // 4 * 4 for s in sending}
    assert len({src // 4 for src in first.src}) <= 2 * w.training.pp


def test_more_senders_pack_and_gather_sooner_and_more_nics_end_the_wire_sooner():
    one, four = (job(f"weight_sync.senders={n}") for n in (1, 4))
    size = one.model.weight_bytes
    assert seconds(four) < seconds(one)
    parts = software_parts(four)
    assert parts["gather"] == pytest.approx(software_parts(one)["gather"] / 4)
    assert parts["load"] == pytest.approx(size / LOAD)
    narrow, wide = (
        job("weight_sync.senders=1", f"weight_sync.nics={n}", "cluster.nic=100Gbit/s")
        for n in (1, 8)
    )
    wire = [wire_seconds(w, STRATEGIES["flat"](w)[0].flows) for w in (narrow, wide)]
    assert wire[0] == pytest.approx(8 * wire[1]) == pytest.approx(16 * size / 12.5e9)


@pytest.mark.parametrize("more", [SENDERS, ("weight_sync.gather=bucket",), ()])
@pytest.mark.parametrize("name", ["grpo-64", "grpo-64-moe"])
def test_the_plan_says_what_the_levels_and_the_software_take(name, more):
    w = job(*more, name=name)
    sync = next(p for p in plan_of(w).phases if p.kind == "weight_sync")
    assert sync.seconds + sync.comm == pytest.approx(seconds(w))
    result = simulate(w.needs.fabric("ideal"), trace_of(w, 1))
    simulated = next(p for p in result.phases if p.key.phase == "weight_sync")
    assert simulated.seconds == pytest.approx(seconds(w), rel=1e-3)


def test_tensor_by_tensor_a_mixture_pays_for_each_matrix_of_an_expert():
    w = job(name="grpo-64-moe")
    size, tensors = w.model.weight_bytes, 48 * 128 * 3
    dense = 1 + size / PACK + size / UNPACK
    assert seconds(w) == pytest.approx(dense + tensors * SOFTWARE.tensor)
    bucket = job("weight_sync.gather=bucket", name="grpo-64-moe")
    assert seconds(bucket) == pytest.approx(size / (0.7 * 50e9) + size / LOAD)


def test_a_delta_compares_the_shards_of_all_that_train():
    w = job("weight_sync.strategy=delta")
    assert software_parts(w)["compare"] == pytest.approx(
        w.model.weight_bytes / 32 / SOFTWARE.restore
    )


def test_the_explanation_names_every_part_and_where_it_is_from():
    told = {
        item.item: item.why
        for item in explain(job("weight_sync.senders=2"))
        if item.phase == "weight_sync"
    }
    for part in ("groups set up", "packing", "gathering", "loading", "by 2 senders", "verl"):
        assert part in told["load"]


@pytest.mark.parametrize("strategy", ["rank0", "tree", "flat"])
def test_what_stays_inside_a_server_does_not_count_as_wire(strategy):
    """Replicas that share a server pass weights on over NVLink: where packing rules, it alone is
    what a sync takes.
    """
    w = job(f"weight_sync.strategy={strategy}", "generation.tp=1")
    size = w.model.weight_bytes
    wire = sum(wire_seconds(w, leaving(w, level.flows)) for level in STRATEGIES[strategy](w))
    assert wire / 0.95 < size / PACK
    assert wire + software_seconds(w) == pytest.approx(1 + size / PACK + size / UNPACK)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_trace_sends_the_levels_and_ends_when_all_have_arrived(strategy):
    w = job(f"weight_sync.strategy={strategy}", "generation.tp=4")
    trace = trace_of(w, 1)
    rows = trace.rows(PhaseKey(0, "weight_sync"))
    whole = sum(sum(leaving(w, level.flows).size) for level in STRATEGIES[strategy](w))
    assert trace.size[rows].sum() == pytest.approx(whole, rel=1e-6)
    first = trace.entries(PhaseKey(0, "weight_sync"))
    waited, todo = set(), [int(rows[-1])]
    while todo:
        row = todo.pop()
        waited.add(row)
        todo += [
            int(r) for r in trace.waits_for(row) if int(r) not in waited and int(r) >= first.min()
        ]
    assert waited >= set(rows.tolist())


@pytest.mark.parametrize(
    ("model", "verl", "weave"), [("Qwen2.5-14B", 13.8, 1.7), ("Qwen2.5-32B", 30.7, 3.9)]
)
def test_eight_to_eight_gpus_over_20_gbit(model, verl, weave):
    """Weave (OSDI'26) Fig. 13; nothing is fitted on it.

    verl sends a copy to each of 8 replicas, Weave one copy.
    """
    small = (
        f"model={model}",
        "cluster.training_gpus=8",
        "cluster.generation_gpus=8",
        "cluster.nic=20Gbit/s",
        "cluster.gpus_per_pod=8",
        "generation.tp=1",
        "generation.max_response=1024",
        "training.tp=8",
        "training.recompute=full",
        "training.micro_batch_tokens=4096",
    )
    assert seconds(job(*small, "weight_sync.strategy=flat")) == pytest.approx(verl, rel=0.20)
    assert seconds(job(*small, "weight_sync.strategy=scatter")) == pytest.approx(weave, rel=0.15)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("nics=2", "nics: 2 are of each sender, and weight_sync.senders is not given"),
        ("senders=2 nics=3", "nics: 3 must divide the 8 GPUs of a server and the 32 of a stage"),
        ("senders=5 nics=8", "senders: 5 x 8 NICs exceed the 32 GPUs that hold a part"),
        ("senders=2 strategy=p2p", "senders: 2, but with strategy p2p every training rank sends"),
        ("senders=1 strategy=rank0", "rank0 data-parallel rank 0 sends; leave it out"),
        ("gather=layer", "gather: 'layer' is not known; use one of tensor, bucket"),
    ],
)
def test_senders_that_cannot_be(words, text):
    with pytest.raises(RFabricError) as error:
        job(*(f"weight_sync.{word}" for word in words.split()))
    assert text in str(error.value)


def test_a_part_of_the_experts_is_held_by_fewer():
    assert job("weight_sync.senders=16", name="grpo-64-moe")
    with pytest.raises(RFabricError, match="senders: 17 x 1 NICs exceed the 16 GPUs"):
        job("weight_sync.senders=17", name="grpo-64-moe")


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (
            "weight_sync.strategy=magic",
            "weight_sync.strategy: 'magic' is not known; use one of flat, tree, scatter, rank0",
        ),
        (
            "weight_sync.delta_factor=0",
            ("weight_sync.delta_factor: 0 must lie above 0 and be 1 at most"),
        ),
        (
            "weight_sync.efficiency=1.2",
            ("weight_sync.efficiency: 1.2 must lie above 0 and be 1 at most"),
        ),
        (
            "weight_sync.precision=fp3",
            "weight_sync.precision: 'fp3' is not known, did you mean fp8?; use one of bf16, fp8",
        ),
    ],
)
def test_bad_settings(setting, text):
    with pytest.raises(RFabricError) as error:
        job(setting)
    assert text in str(error.value)


FOUR = (
    "model=Qwen3-4B",
    "training.pp=4",
    "training.tp=2",
    "training.micro_batch_tokens=8192",
    "generation.max_prompt=1024",
    "generation.max_response=4096",
    "weight_sync.precision=fp8",
)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_what_stays_bf16_is_sent_by_the_stages_that_hold_it(strategy):
    """By hand: the embedding of Qwen3-4B is tied, and the first stage's: 151,936 x 2,560 x 2 B
    beside 9 of 36 layers of 100.9 M parameters in fp8, with their norms in bf16. Dealt by
    parameters, it sent 16 % less.
    """
    w = job(*FOUR, f"weight_sync.strategy={strategy}")
    first = STRATEGIES[strategy](w)[0].flows
    sent = np.bincount(first.src, first.size, minlength=w.cluster.training_gpus)
    stages = sent.reshape(4, -1).sum(axis=1)
    layers = (w.model.parameters - 151936 * 2560 - 2560) / 4
    norms = w.model.vectors / 4
    inside = (1 + 4 / 128**2) * (layers - norms) + 2 * norms
    own = np.array([inside + 2 * 151936 * 2560, inside, inside, inside + 2 * 2560])
    assert stages == pytest.approx(own * (sum(first.size) / sum(own)))
    by_parameters = (layers + 151936 * 2560) / w.model.parameters
    assert own[0] / sum(own) == pytest.approx(1.19 * by_parameters, rel=0.02)


@pytest.mark.parametrize("more", [(), ("generation.ep=8",)])
def test_experts_take_their_share_of_the_bytes_too(more):
    """Of Qwen3-30B-A3B in fp8: what a GPU takes of experts and of all else."""
    w = job("weight_sync.precision=fp8", *more, name="grpo-64-moe")
    m, g = w.model, w.generation
    experts = (1 + 4 / 128**2) * m.expert_parameters
    others = m.weight_bytes_at("fp8_block") - experts
    got = sum(received(w, level) for level in STRATEGIES["p2p"](w))
    assert got[w.first_generation_gpu] == pytest.approx(others / g.tp + experts / g.gpus)
    pulled = sum(received(w, level) for level in STRATEGIES["flat"](w))
    assert pulled[w.first_generation_gpu] == pytest.approx(others / g.tp + experts / g.gpus)
