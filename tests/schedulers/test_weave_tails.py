"""Long-tail migration in the trace of jobs that share nodes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.rl import read_recipe, trace_of
from rfabric.rl.phases import step_of
from rfabric.schedulers.traffic import read_traffic
from rfabric.schedulers.weave import ExecutionGroup, Job
from rfabric.schedulers.weave.tail import (
    TailTurn,
    _dealt,
    _Moved,
    _moved,
    _replicas_on,
    tail_turns,
    trace_with_tails,
)
from rfabric.schedulers.weave.traffic import profile_of, traffic_of
from rfabric.simulate.world import simulate

FEW = "generation.batch=32", "generation.max_response=4096"
SERVER = 8


def shared(steps=2, tail=0.0, few=FEW):
    policy = f"weave,tail={tail}" if tail else "weave"
    return read_traffic("weave-2jobs", [*few, f"steps={steps}"], 0, policy).trace


def on_rollout_nodes(trace):
    """(job, server, begin, end) of what computes on rollout servers, on a network without delay."""
    ready, finish = trace.compute_only()
    labels = np.array(trace.labels)[trace.label]
    return [
        (labels[row].split()[0], int(trace.src[row]) // SERVER, ready[row], finish[row])
        for row in np.flatnonzero((trace.size == 0) & (trace.gap > 0)).tolist()
        if labels[row].split()[1] in ("generate", "tail", "switch") and trace.src[row] >= 32
    ]


@settings(max_examples=8)
@given(st.integers(1, 3), st.sampled_from([0.25, 0.5, 0.75, 1.0]), st.sampled_from([1024, 16384]))
def test_no_node_works_for_two_jobs_at_once(steps, tail, longest):
    trace = shared(steps, tail, ("generation.batch=32", f"generation.max_response={longest}"))
    for one, other in combinations(on_rollout_nodes(trace), 2):
        if one[0] != other[0] and one[1] == other[1]:
            assert one[3] <= other[2] + 1e-9 or other[3] <= one[2] + 1e-9


def test_the_next_job_begins_on_freed_nodes_while_the_tail_is_decoded():
    trace = shared(1, 0.25)
    ready, finish = trace.compute_only()
    labels = np.array(trace.labels)[trace.label]
    moved = np.flatnonzero(labels == "job1 tail")
    next_one = np.flatnonzero(labels == "job2 generate")
    assert ready[next_one].min() < finish[moved].max()
    assert not set(trace.src[moved] // SERVER) & set(trace.src[next_one] // SERVER)


@pytest.mark.parametrize("tail", [0.25, 0.5])
def test_tails_moved_send_what_would_be_sent_and_train_on_the_same(tail):
    plain, moved = shared(2), shared(2, tail)
    assert moved.total.sum() == pytest.approx(plain.total.sum(), rel=1e-6)
    computing = [
        trace.gap[np.array(trace.phases)[trace.phase] == "training"].sum()
        for trace in (plain, moved)
    ]
    assert computing[0] == pytest.approx(computing[1])


@pytest.mark.parametrize("longest", [512, 4096])
def test_every_response_ends_either_before_the_rest_moves_or_after(longest):
    """Of 512 tokens at most so many have all of them that none is longer than four of five."""
    w = read_recipe("grpo-64", ("generation.batch=32", f"generation.max_response={longest}"))
    step = step_of(w, 0, 0)
    moved = _moved(w, step, (0, 1), ())
    tokens = sum(moved.tokens), sum(tokens for _, tokens in moved.aside.values())
    assert sum(tokens) == np.concatenate(step.generated.outputs).sum()
    assert (tokens[1] == moved.after == 0) == (longest == 512) and min(moved.tokens) > 0


def test_where_generation_fills_the_group_tails_shorten_its_rounds():
    fabric = parse_fabric("fat-tree", 64)
    plain, moved = (simulate(fabric, shared(2, tail)).step_seconds for tail in (0, 0.25))
    assert moved < 0.9 * plain


def test_no_tail_is_no_change():
    settings = [*FEW, "steps=1"]
    plain, none = (
        read_traffic("weave-2jobs", settings, 0, p).trace for p in ("weave", "weave,tail=0")
    )
    assert plain.gap.tolist() == none.gap.tolist() and plain.labels == none.labels


def test_jobs_that_have_one_node_or_share_none_move_nothing():
    small = [*FEW, "cluster.training_gpus=8", "cluster.generation_gpus=8", "training.tp=8"]
    w = read_recipe("grpo-64", small)
    a, b = Job("a", profile_of(w)), Job("b", profile_of(w))
    one = ExecutionGroup.alone(a).join(b, (0,))
    assert not any(
        label.endswith("tail") for label in traffic_of([one], {"a": w, "b": w}, tails=0.25).labels
    )
    assert not one.frees_nodes(0)
    assert not ExecutionGroup((a,), ((0, 1),), 2, 1).frees_nodes(0)


@pytest.mark.parametrize("wide", [1, 2, 8])
def test_the_replicas_on_a_node_have_its_gpus_and_no_others(wide):
    w = read_recipe("grpo-64", (*FEW, "model=Qwen3-8B", f"generation.tp={wide}"))
    for node in range(w.cluster.generation_gpus // SERVER):
        gpus = [gpu for r in _replicas_on(w, [node]) for gpu in w.decoding[r]]
        first = w.first_generation_gpu + node * SERVER
        assert gpus == list(range(first, first + SERVER))


def test_nodes_take_turns_at_tails():
    jobs = tuple(Job(name, profile_of(read_recipe("grpo-64", FEW))) for name in "abc")
    group = ExecutionGroup(jobs, ((0, 1, 2, 3),) * 3, 4, 4)
    turns = tail_turns(group, 2, 0.25)
    assert [each[0] for each in turns] == [
        TailTurn((0,), ()),
        TailTurn((2,), (0,)),
        TailTurn((1,), (0, 2)),
    ]
    for number in range(6):
        turn = turns[number % 3][number // 3]
        before = [turns[n % 3][n // 3] for n in range(max(number - 2, 0), number)]
        assert set(turn.idle) == {node for one in before for node in one.aside}
        assert not set(turn.aside) & set(turn.idle)


@pytest.mark.parametrize(("share", "nodes"), [(0.1, 1), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 3)])
def test_the_rest_goes_to_its_share_of_the_nodes_one_at_least_and_not_all(share, nodes):
    jobs = tuple(Job(name, profile_of(read_recipe("grpo-64", FEW))) for name in "ab")
    turns = tail_turns(ExecutionGroup(jobs, ((0, 1, 2, 3),) * 2, 4, 4), 1, share)
    assert len(turns[0][0].aside) == nodes


def test_a_window_of_generation_lasts_until_the_rest_is_done():
    w = read_recipe("grpo-64", (*FEW, "steps=2"))
    turns = [TailTurn((1,)), TailTurn((2, 3))]
    plain, moved = trace_of(w, 4).windows, trace_with_tails(w, 4, turns).windows
    assert plain.keys() == moved.keys()
    for key in plain:
        longer = 0.0
        if key.phase == "generation":
            step = step_of(w, 4, key.step)
            rest = _moved(w, step, _replicas_on(w, turns[key.step].aside), ())
            longer = rest.freed + rest.after - step.generated.seconds
            assert longer > 0
        assert moved[key] - plain[key] == pytest.approx(longer, abs=1e-9)


def test_a_replica_that_fills_a_server_moves_its_tail():
    w = read_recipe("grpo-64", (*FEW, "model=Qwen3-8B", f"generation.tp={SERVER}"))
    trace = trace_with_tails(w, 0, [TailTurn((0,))])
    labels = np.array(trace.labels)[trace.label]
    firsts = [replica[0] for replica in w.decoding]
    assert trace.src[labels == "generate"].tolist() == firsts
    assert trace.src[labels == "tail"].tolist() == firsts[:1]


def test_the_rest_is_done_with_the_last_replica_that_takes_of_it():
    moved = _Moved((1.0, 3.0), (5, 5), {0: (2.0, 7), 1: (4.0, 9)})
    assert (moved.freed, moved.after, moved.seconds) == (3, 4, 7)


def test_responses_of_fewer_prompts_than_replicas_are_dealt_one_by_one():
    """Four of sixteen stand idle: 64 responses to eight prompts on twelve; else whole prompts."""
    for prompts, sizes in ((8, [6] * 4 + [5] * 8), (30, [24] * 6 + [16] * 6)):
        w = read_recipe("grpo-64", (f"generation.batch={prompts}", "training.mini_batches=1"))
        dealt = dict(_dealt(w, step_of(w, 0, 0).generated, (0, 5, 6, 15)))
        assert list(dealt) == [r for r in range(16) if r not in (0, 5, 6, 15)]
        assert [len(rows) for rows in dealt.values()] == sizes
        assert np.concatenate(list(dealt.values())).tolist() == list(range(8 * prompts))


def test_a_phase_that_moves_tails_comes_back_on_each_of_its_nodes():
    """A switch a job and node, on the first GPU there: nodes 4 to 7 of those of training."""
    trace = shared(1, 0.25)
    labels = np.array(trace.labels)[trace.label]
    generates = np.array(trace.phases)[trace.phase] == "generation"
    for name in ("job1", "job2"):
        rows = np.flatnonzero((labels == f"{name} switch") & generates)
        nodes = sorted((trace.src[rows] // SERVER).tolist())
        assert (trace.src[rows] % SERVER == 0).all()
        assert nodes == ([4, 5, 6, 7] if name == "job1" else [5, 6, 7])  # 4 decodes the tail


def test_jobs_of_one_step_and_of_two_move_their_tails():
    loads = {name: read_recipe("grpo-64", (*FEW, f"steps={n}")) for name, n in (("a", 1), ("b", 2))}
    jobs = tuple(Job(name, profile_of(w)) for name, w in loads.items())
    group = ExecutionGroup(jobs, ((0, 1, 2, 3),) * 2, 4, 4)
    trace = traffic_of([group], loads, tails=0.25)
    tails = {
        (trace.labels[trace.label[row]], int(trace.step[row]))
        for row in range(len(trace))
        if trace.labels[trace.label[row]].endswith(" tail")
    }
    assert tails == {("a tail", 0), ("b tail", 1), ("b tail", 3)}


def test_nodes_that_tails_fill_are_used_all_the_same():
    jobs = tuple(Job(name, profile_of(read_recipe("grpo-64", FEW))) for name in "ab")
    turns = tail_turns(ExecutionGroup(jobs, ((0, 1), (0,)), 2, 4), 1, 1.0)
    assert turns == [[TailTurn((0,), ())], [TailTurn()]]


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("weave,tail=2", (), "tail: share of nodes 2.0 must lie above 0 and be 1 at most"),
        ("weave,tails=1", (), "'tails=1' is not a setting, did you mean tail"),
        (
            "weave,tail=0.5",
            ("pipeline=one-step-off",),
            "tails are moved of jobs with pipeline sync",
        ),
        ("weave,tail=0.5", ("generation.turns=2",), "one turn, and read their own prompts"),
    ],
)
def test_bad_tails(policy, settings, message):
    with pytest.raises(RFabricError, match=message):
        read_traffic("weave-2jobs", [*FEW, *settings], 0, policy)


def test_jobs_that_move_kv_have_dollars_of_their_own(capsys):
    words = ["simulate", "--traffic", "weave-2jobs", "--policy", "orchestrrl", "-q", "--json"]
    assert main([*words, *(f"--set={one}" for one in (*FEW, "steps=2"))]) == 0
    assert '"usd_per_step_jobs"' in capsys.readouterr().out
