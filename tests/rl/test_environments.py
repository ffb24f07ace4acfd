"""What generation exchanges with CPU servers: bytes against turns that are played, seconds against
the plan, circuits, and what is refused.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.cpu_servers import CPU_SERVERS
from rfabric.compute.requests import in_turns
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.fabric.cost import bill
from rfabric.fabric.dollars import KWH_USD, CpuServers, Gpus, step_cost
from rfabric.optics.templates import answering
from rfabric.report.compare import DOLLARS
from rfabric.report.summary import cost
from rfabric.rl import explain, read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.rl.plan import plan_of
from rfabric.schedulers.table import scheduled
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
        (["environments.usd_per_hour=3"], "environments.usd_per_hour: 3.0 pays for no server"),
        (["environments.kind=c7i.48xlarge"], "environments.kind: c7i.48xlarge pays for no server"),
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


# --- what they cost -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["fat-tree", "rfabric", "rail-optimized"])
def test_servers_are_paid_alike_on_every_fabric(spec):
    w = job()
    result = simulate(w.needs.fabric(spec), scheduled(w, 0).trace, "own")
    said, hours = cost(result), result.step_seconds / 3600
    parts, table = said["usd_per_step_parts"], CPU_SERVERS["m7i.48xlarge"]
    assert parts["cpu_servers"] + parts["cpu_power"] == pytest.approx(
        4 * table.usd_per_hour * hours
    )
    assert parts["cpu_power"] == pytest.approx(4 * table.power_w / 1e3 * hours * KWH_USD)
    assert said["usd_per_step"] == pytest.approx(sum(parts.values()))


def test_a_rent_of_gpus_holds_no_card_of_a_cpu_server():
    """All that is paid: both rents, the cards of all hosts that are no GPUs, of which the fabric
    has some to spare, switches and their electricity.
    """
    w = job(servers=8)
    fabric = w.needs.fabric("fat-tree")
    result = simulate(fabric, scheduled(w, 0).trace, "own")
    parts, hours = cost(result)["usd_per_step_parts"], result.step_seconds / 3600
    assert len(fabric.hosts) > 64 + 8
    cards = parts["nics"] * (1 - 64 / len(fabric.hosts))
    network = parts["network"] + parts["network_power"]
    rents = (w.usd_per_hour + w.cpu_usd_per_hour) * hours
    assert sum(parts.values()) == pytest.approx(rents + cards + network)


def test_more_servers_cost_more_an_hour_and_have_more_cards():
    """On one fabric by the rent, and where a fabric is made for the job by ports and cards too."""
    few, many = (scheduled(job(servers=n), 0) for n in (2, 40))
    rates = [one.trace.provenance["cpu_servers_usd_per_hour"] for one in (few, many)]
    assert rates[1] == pytest.approx(20 * rates[0])
    bills = [bill(one.workload.needs.fabric("fat-tree")) for one in (few, many)]
    cards = [sum(x.count for x in one.lines if x.item == "nic") for one in bills]
    assert cards[1] > cards[0] and bills[1].usd > bills[0].usd


def test_a_job_without_servers_says_nothing_of_them():
    trace = scheduled(read_recipe("grpo-64", AGENTS), 0).trace
    said = cost(simulate(parse_fabric("fat-tree", 64), trace, "own"))
    assert list(said["usd_per_step_parts"]) == list(DOLLARS)
    assert not [key for key in trace.provenance if key.startswith("cpu")]


def test_what_is_paid_for_a_server_is_said_or_stands_in_the_table():
    c7i, asked = job("environments.kind=c7i.48xlarge"), job("environments.usd_per_hour=3")
    assert c7i.cpu_usd_per_hour == 4 * 8.568 and asked.cpu_usd_per_hour == 12
    assert asked.cpu_watts == 4 * 770
    with pytest.raises(RFabricError, match=r"environments\.kind: 'm7i' is not known; use one of m"):
        job("environments.kind=m7i")
    with pytest.raises(RFabricError, match=r"environments\.usd_per_hour: 0 must be"):
        job("environments.usd_per_hour=0")


def test_every_server_of_the_table_has_sources_and_a_range():
    for one in CPU_SERVERS.values():
        assert re.search(r"aws\.amazon\.com/.*20\d\d-\d\d-\d\d", one.source) and one.power_source
        assert 0 < one.usd_least < one.usd_per_hour and one.power_w > 0


def test_dollars_of_cpu_servers_that_are_nonsense_are_refused():
    with pytest.raises(RFabricError, match="CPU servers: usd_per_hour=-1.0 must be a number"):
        CpuServers(-1.0, 1.0)
    fabric = parse_fabric("fat-tree")
    with pytest.raises(RFabricError, match="0.01 USD an hour do not pay for the 7700 W"):
        step_cost(1.0, Gpus(338.0), bill(fabric), servers=CpuServers(0.01, 7700.0))
