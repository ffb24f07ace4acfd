"""Experts that Megatron cuts (training.etp), worked out by hand: Qwen3-30B-A3B on servers of 8.

experts  48 layers x 128 x 3 x 2048 x 768 = 28,991,029,248 parameters
groups   etp next to one another cut one expert, ep of them hold all experts, the rest copies
"""

import numpy as np
import pytest

from rfabric.compute.communication import RankGroup, collective_seconds
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout
from rfabric.compute.memory import training_shards
from rfabric.compute.named import find_model
from rfabric.compute.pipeline_stages import StageParameters
from rfabric.compute.training import Trainer, forward, optimizer_seconds
from rfabric.errors import RFabricError
from rfabric.rl import flows, read_recipe, trace_of
from rfabric.rl.traffic import weight_levels

EXPERTS = 48 * 128 * 3 * 2048 * 768
MODEL = find_model("Qwen3-30B-A3B")


def job(*more):
    few = "training.recompute=full", "training.mini_batches=2", "cluster.training_gpus=64"
    ways = "training.tp=4", "training.pp=1", "generation.tp=4", "model=Qwen3-30B-A3B"
    return read_recipe("grpo-64", (*few, *ways, *more))


def cut(ep, etp):
    return job(f"training.ep={ep}", f"training.etp={etp}")


@pytest.mark.parametrize(
    ("ep", "etp", "each", "copies"),
    [
        (8, 1, EXPERTS / 8, 4),
        (8, 4, EXPERTS / 32, 1),
        (1, 4, EXPERTS / 4, 8),
        (8, 2, EXPERTS / 16, 2),
    ],
)
def test_a_gpu_holds_its_part_of_its_experts(ep, etp, each, copies):
    layout = Layout(tp=4, dp=8, ep=ep, etp=etp)
    assert MODEL.expert_parameters == EXPERTS
    assert training_shards(MODEL, layout, StageParameters.of(MODEL))[1] == (each, copies)
    assert layout.replicas == 32 // max(4, ep * etp)


def test_a_gpu_has_a_fourth_of_the_gradients_and_as_many_states_as_before():
    whole, parts = (cut(8, etp).training_bytes for etp in (1, 4))
    more = EXPERTS / 8 - EXPERTS / 32
    assert whole["parameters"] - parts["parameters"] == pytest.approx(2 * more)
    assert whole["gradients"] - parts["gradients"] == pytest.approx(4 * more)
    # states are sharded over all that hold the same: of all GPUs together, one copy
    assert whole["optimizer"] == pytest.approx(parts["optimizer"])


def test_gradients_meet_those_of_gpus_with_the_same_part():
    w = cut(4, 4)
    groups = w.expert_groups(0)
    assert groups[5] == [5, 21, 37, 53] and len(groups) == 16
    # 4 copies in 4 servers apart: a ring of each sends 3/4 of its part over every edge
    experts = 16 * 4 * 3 / 4 * 4 * EXPERTS / 16
    dense = 4 * 8 * 15 / 16 * 4 * MODEL.dense_parameters / 4
    assert sum(_gradients(w).size) == pytest.approx(experts + dense, rel=1e-6)


def _gradients(w):
    return flows._among_data_ranks(w, "reduce-scatter", w.stages_learning, 4.0)


@pytest.mark.parametrize(
    ("ep", "etp", "leaves"), [(4, 1, 0), (4, 4, 1 / 2), (8, 2, 1 / 2), (2, 8, 1 / 2)]
)
def test_tokens_go_to_gpus_that_hold_the_same_part(ep, etp, leaves):
    """A group of 16 GPUs is in two servers, half of its ep each: half of all tokens leave."""
    w = cut(ep, etp)
    tokens = np.full(w.dp, 1000.0)
    sent = flows.dispatch(w, tokens, 1)
    assert sum(sent.size) == pytest.approx(leaves * tokens.sum() * 48 * 8 * 2048 * 2)
    assert all((dst - src) % etp == 0 for src, dst in zip(sent.src, sent.dst, strict=True))


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("training.skew=1.1",),
        ("weight_sync.strategy=p2p",),
        ("generation.ep=16",),
        ("placement=colocated", "cluster.generation_gpus=64"),
    ],
)
def test_a_trace_of_cut_experts_sends_what_closed_forms_say(more):
    trace_of(job("training.ep=4", "training.etp=4", *more), seed=1)  # checks itself


@pytest.mark.parametrize("etp", [1, 2, 8])
@pytest.mark.parametrize("engine", [(), ("generation.ep=16",)])
def test_each_engine_gets_its_own_bytes_from_those_that_hold_them(etp, engine):
    ways = "training.ep=4", f"training.etp={etp}", "weight_sync.strategy=p2p"
    (level,) = weight_levels(job(*ways, *engine))
    whole = weight_levels(job("training.ep=4", "weight_sync.strategy=p2p", *engine))[0]
    per_gpu = [np.bincount(one.flows.dst, one.flows.size) for one in (level, whole)]
    assert per_gpu[0] == pytest.approx(per_gpu[1])


def test_what_arrives_is_gathered_and_what_is_made_scattered():
    """Twice a layer: 8 copies of each of a GPU's 1,024 tokens, of all four GPUs."""
    whole, parts = (
        Trainer(MODEL, GPUS["H100"], Layout(tp=4, dp=2, ep=2, etp=etp), host_layer=0.0)
        for etp in (1, 4)
    )
    size = 4 * 1024 * 8 * 2048 * 2
    one = collective_seconds("all-gather", size, RankGroup(4, 1), whole.network)
    ahead = [forward(t, 4096, 4096 * 4096) for t in (whole, parts)]
    assert ahead[1].experts - ahead[0].experts == pytest.approx(2 * 48 * one)
    assert optimizer_seconds(whole) == pytest.approx(optimizer_seconds(parts))


def test_experts_that_cannot_be_cut_so_are_refused():
    with pytest.raises(RFabricError, match="training.etp: 16 must divide the 768 columns"):
        cut(1, 16)
    with pytest.raises(RFabricError, match="training.ep: 16 x etp 8 = 128 does not divide"):
        cut(16, 8)
    with pytest.raises(
        RFabricError, match="training.etp: 2, but Qwen2.5-14B has no experts to cut"
    ):
        read_recipe("grpo-64", ("training.etp=2",))
