"""What the words of a scheduler come to: whom it asks, the traffic it is shown on, its staleness,
copies of weights where pools become one, and what is said of one step.
"""

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import read_recipe
from rfabric.schedulers.networks import Cards
from rfabric.schedulers.table import asked_network, scheduled, usual_traffic
from rfabric.schedulers.traffic import read_traffic

SMALL = ("generation.batch=16", "generation.max_response=256")


def made(policy, *changes):
    return scheduled(read_recipe("grpo-64", (*SMALL, *changes)), 0, policy).workload


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        ("", ""),
        ("sync", ""),
        ("rollart", ""),
        ("sync,network=cards", ""),
        ("rollart,network=cards", ""),
        ("async,network=fabric", "fabric"),
        (r"orchestrrl,network=http\://127.0.0.1\:8080", "http://127.0.0.1:8080"),
        (r"orchestrrl,network=https\://there", "https://there"),
        ("mine.py:mine,network=fabric", ""),  # its own setting
    ],
)
def test_a_scheduler_asks_whom_its_setting_names(policy, asked):
    assert asked_network(policy) == asked


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("sync,network=ftp", "network=ftp is neither cards, fabric nor the address"),
        ("rollart,network=fabric", "it asks no network; network=fabric is for sync"),
    ],
)
def test_nobody_else_is_asked(policy, text):
    with pytest.raises(RFabricError, match=text):
        asked_network(policy)


def test_a_network_is_made_for_who_asks_it_alone():
    needed = []

    def network(needs):
        needed.append(needs)
        return Cards(read_recipe("grpo-64", SMALL))

    read_traffic("grpo-64", SMALL, 0, "sync", network)
    assert not needed
    read_traffic("grpo-64", SMALL, 0, "sync,network=fabric", network)
    assert len(needed) == 1 and needed[0].fabric("ideal") is not None
    with pytest.raises(RFabricError, match="asks a fabric, and none is given here"):
        read_traffic("grpo-64", SMALL, 0, "sync,network=fabric")


@pytest.mark.parametrize(
    ("policies", "shown"),
    [
        ((), "other"),
        (("",), "other"),
        (("sync",), "other"),
        (("orchestrrl", "orchestrrl,period=1s"), "orchestrrl-64"),
        (("orchestrrl", "sync"), "other"),
        (("weave", "solo"), "weave-2jobs"),
        (("weave", "orchestrrl"), "other"),
    ],
)
def test_schedulers_are_shown_on_a_traffic_that_suits_all_of_them(policies, shown):
    assert usual_traffic(policies, "other") == shown


def test_a_seed_that_is_left_out_is_0():
    w = read_recipe("grpo-64", SMALL)
    sizes = {seed: scheduled(w, seed, "sync").trace.size.tolist() for seed in (0, 1)}
    assert sizes[0] != sizes[1]
    assert scheduled(w).trace.size.tolist() == sizes[0]
    assert read_traffic("grpo-64", SMALL).trace.size.tolist() == sizes[0]


@pytest.mark.parametrize(
    ("policy", "changes", "staleness"),
    [
        ("async", (), 1),
        ("async", ("pipeline=async", "staleness=3"), 3),
        ("async,staleness=2", ("pipeline=async", "staleness=3"), 2),
        ("async,staleness=0.5", (), 0.5),
    ],
)
def test_staleness_is_what_is_said_or_the_recipe_s_or_one(policy, changes, staleness):
    assert made(policy, *changes).staleness == staleness


@pytest.mark.parametrize(("shard", "copies", "then"), [(0, 1, 1), (32, 1, 1), (16, 2, 4)])
def test_one_copy_of_the_parameters_stays_one_where_pools_become_one(shard, copies, then):
    """32 GPUs that train, then 64: shards over all of them, or over as many as before."""
    words = (
        "training.optimizer=sharded", "training.tp=1", "training.pp=1", "training.mini_batches=1",
        "training.recompute=full", f"training.fsdp_size={shard}",
    )  # fmt: skip
    assert read_recipe("grpo-64", (*SMALL, *words)).copies == copies
    assert made("colocated", *words).copies == then


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ((), False),
        (("pipeline=one-step-off",), True),
        (("pipeline=one-step-off", "steps=2"), False),
        (("steps=2",), False),
    ],
)
def test_one_step_of_a_pipeline_says_that_it_is_no_period(changes, says):
    notes = read_traffic("grpo-64", (*SMALL, *changes)).notes
    assert any("one step of it runs from end to end" in note for note in notes) == says


def test_gpus_of_the_last_host_are_there_and_those_beyond_are_not():
    from rfabric.schedulers.networks import foreseen
    from rfabric.trace import Flows

    network = foreseen(parse_fabric("rfabric,pods=1"))  # 16 hosts
    assert network.answer(Flows([0], [15], [1e9])).seconds > 0
    with pytest.raises(RFabricError, match="GPU h17, which rfabric,pods=1 lacks"):
        network.demand(Flows([16], [0], [1e9]))
    assert not network.demand(Flows([], [], [])).bytes.any()
