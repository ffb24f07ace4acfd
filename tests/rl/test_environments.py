"""What generation exchanges with CPU servers: bytes against turns that are played, seconds against
the plan, circuits, and what is refused.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.requests import in_turns
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.optics.templates import answering
from rfabric.rl import explain, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.plan import plan_of
from rfabric.schedulers.traffic import read_traffic
from rfabric.schedulers.weave.traffic import read_shared
from rfabric.simulate.world import simulate

AGENTS = (
    "generation.batch=32", "generation.observation=200", "generation.environment_latency=1s",
    "training.micro_batch_tokens=24576", "training.tp=8",
)  # fmt: skip


def job(*overrides, turns=8, servers=4):
    return read_recipe(
        "grpo-64",
        [*AGENTS, f"generation.turns={turns}", f"environments.servers={servers}", *overrides],
    )


def sent(trace, label):
    """Bytes of a label of the first step's generation."""
    rows = trace.communication().get((0, "generation", label), np.zeros(0, int))
    return int(trace.total[rows].sum()), int(trace.times_sent[rows].sum())


@settings(max_examples=12)
@given(
    turns=st.integers(2, 30),
    servers=st.integers(1, 20),
    text=st.sampled_from([0.5, 4, 6.25]),
    screen=st.sampled_from([0, 10**6]),
    pipeline=st.sampled_from(["sync", "one-step-off", "async"]),
)
def test_as_many_bytes_as_the_turns_that_engines_play(turns, servers, text, screen, pipeline):
    w = job(
        f"environments.text_bytes={text}", f"environments.observation_bytes={screen}",
        f"pipeline={pipeline}", "environments.rewards=true", "environments.reward_bytes=1000",
        turns=turns, servers=servers,
    )  # fmt: skip
    trace, made = trace_of(w), step_of(w, 0, 0).generated  # the trace is held against formulas too
    prompts, outputs = (np.concatenate(some) for some in (made.prompts, made.outputs))
    played = in_turns(prompts, outputs, turns, 1.0, 200, w.generation.group_size)
    answered = played.after[played.after >= 0]
    said = {
        "action": played.output[answered].sum() * text,
        "observation": len(answered) * (200 * text + screen),
        "reward": (prompts.sum() + outputs.sum()) * text + 1000 * len(outputs),
    }
    for label, size in said.items():
        total, times = sent(trace, label)
        assert size * (1 - 1e-9) <= total <= size * (1 + 1e-9) + times
    assert trace.hosts[-1] == f"h{64 + servers}"


def test_each_cpu_server_has_its_share_and_no_gpu_beside_it():
    screen = "environments.observation_bytes=1000000"
    w = job("cluster.generation_gpus=28", "generation.tp=2", screen, servers=5)
    assert list(w.cpu_servers) == [64, 65, 66, 67, 68] and w.needs.gpus == 69
    trace = trace_of(w)
    rows = trace.communication()[0, "generation", "observation"]
    assert set(trace.src[rows]) == set(w.cpu_servers)
    said = np.bincount(trace.src[rows], trace.total[rows])[64:]
    assert said.max() < 1.05 * said.min()  # 256 responses are 51 or 52 each


@pytest.mark.parametrize("screen", [0, 4 * 10**10])
def test_environments_hide_beside_computing_until_they_take_longer(screen):
    w = job(f"environments.observation_bytes={screen}", turns=5)
    plain = read_recipe("grpo-64", [*AGENTS, "generation.turns=5"])
    (window,) = (p.window for p in plan_of(w).phases if p.kind == "generation")
    alone = next(p.window for p in plan_of(plain).phases if p.kind == "generation")
    result = simulate(parse_fabric("ideal", w.hosts), trace_of(w))
    (seconds,) = (p.seconds for p in result.phases if p.key.phase == "generation")
    assert window == pytest.approx(seconds, rel=0.02)
    assert (window > 1.1 * alone) == bool(screen)
    assert not screen or window == pytest.approx(4 * 256 * screen * 8 / (4 * 400e9), rel=0.05)
    named = {item.item: item for item in explain(w)}
    assert named["observation"].bytes == pytest.approx(
        sent(trace_of(w), "observation")[0], rel=1e-6
    )


def test_circuits_join_replicas_with_their_environments():
    """Two sides that answer one another get the bipartite template, pods alone get nowhere."""
    w = job("environments.observation_bytes=400000000000", "generation.tp=1", turns=5, servers=32)
    fabric, trace = w.needs.fabric("rfabric"), trace_of(w).folded()
    took = {
        name: next(p.seconds for p in simulate(fabric, trace, name).phases)
        for name in ("isolated-pod", "bipartite", "phase")
    }
    assert took["bipartite"] < 0.9 * took["isolated-pod"]
    assert took["phase"] <= 1.01 * took["bipartite"]


def test_groups_that_answer_have_two_sides_or_none():
    assert answering([]) == []
    assert answering([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]) == [(["a", "c"], ["b", "d"])]
    assert answering([("x", "y"), ("a", "b"), ("b", "c"), ("c", "a")]) is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["environments.servers=2"], "2 are asked for nothing.*or environments.rewards=true"),
        (["environments.rewards=true"], "rewards: True go to no server, as environments.servers"),
        (["environments.observation_bytes=5"], "environments.observation_bytes: 5 go to no server"),
        (["environments.reward_bytes=5"], "environments.reward_bytes: 5 go to no server"),
        (["environments.servers=-1"], "environments.servers: -1 must be 0 or more"),
        (["environments.text_bytes=0"], "environments.text_bytes: 0 must be 0.1 or more"),
        (["environments.server=1"], "unknown key environments.server; did you mean"),
        (
            ["environments.servers=1", "generation.turns=2", "environments.reward_bytes=9"],
            "9 of a call, but rewards are computed in place",
        ),
    ],
)
def test_what_goes_nowhere_is_refused(overrides, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64", overrides)


REWARDED = ("environments.servers=2", "environments.rewards=true")


@pytest.mark.parametrize("scheduler", ["orchestrrl", "rollpacker", "rollart,tasks=GEM-Math"])
def test_schedulers_that_send_nothing_there_say_so(scheduler):
    with pytest.raises(RFabricError, match="sends nothing to the 2 CPU servers"):
        read_traffic("grpo-64", REWARDED, scheduler=scheduler)
    with pytest.raises(RFabricError, match="grpo-64 has 2 CPU servers"):
        read_shared("weave-2jobs", REWARDED)


def test_rollart_sends_what_its_trajectories_say():
    trace = read_traffic(
        "grpo-64", [*AGENTS, *REWARDED, "generation.turns=4"], scheduler="rollart"
    ).trace
    assert all(sent(trace, label)[0] for label in ("action", "observation", "reward"))
