"""Pipelines whose stages hold unequally many layers: how long they take, played operation by
operation, and how much each stage holds.
"""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute import memory
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout
from rfabric.compute.named import load_model
from rfabric.compute.pipeline_play import operations
from rfabric.compute.training import (
    HOST_ADAM,
    PCIE_BYTES_PER_S,
    Trainer,
    activation_bytes,
    bubble_share,
    host_optimizer_seconds,
    optimizer_seconds,
    state_bytes,
)
from rfabric.errors import RFabricError


def said(layout: Layout, micro_batches: int, logits: float = 0.0, backward: bool = True) -> float:
    """Seconds of a step, a layer taking one for a micro-batch and the logits so many."""
    whole = sum(layout.stages) + logits
    share = bubble_share(layout, micro_batches, logits / whole, backward)
    return micro_batches * whole / layout.pp * (1 + share)


def longest(layout: Layout, micro_batches: int, logits: float, backward: bool = True) -> float:
    """The same as the longest way through all operations: each after the one before it in its stage
    and after what it needs.
    """
    graph, last = nx.DiGraph(), layout.pp * layout.vp - 1
    for stage, layers in enumerate(layout.stages):
        every = [
            (forward, micro, chunk * layout.pp + stage)
            for forward, micro, chunk in operations(layout, stage, micro_batches)
            if forward or backward
        ]
        graph.add_edges_from(zip(every, every[1:], strict=False))
        for one in every:
            forward, micro, place = one
            both = layers / layout.vp + logits * (place == last)
            graph.add_node(one, seconds=both * ((1 if forward else 2) / 3 if backward else 1))
            if forward and place:
                graph.add_edge((True, micro, place - 1), one)
            elif not forward:
                graph.add_edge((place == last, micro, min(place + 1, last)), one)
    for before, after in graph.edges:
        graph.edges[before, after]["seconds"] = graph.nodes[before]["seconds"]
    ends = (False, micro_batches - 1, 0) if backward else (True, micro_batches - 1, last)
    way = nx.dag_longest_path_length(graph, "seconds")
    return way + graph.nodes[ends]["seconds"]


stages = st.lists(st.integers(1, 20), min_size=2, max_size=7).map(tuple)
vocabulary = st.one_of(st.just(0.0), st.floats(0, 20))


@given(stages, st.integers(1, 20), vocabulary)
@settings(max_examples=150, deadline=None)
def test_a_pipeline_waits_for_its_slowest_stage(layers, micro, logits):
    """The first micro-batch passes all stages, the slowest then takes the others one by one; what
    stands behind it is the most that hides.
    """
    layout = Layout(pp=len(layers), stages=layers)
    own = [*layers[:-1], layers[-1] + logits]
    took, most = said(layout, micro, logits), sum(own) + (micro - 1) * max(own)
    slowest = len(own) - 1 - own[::-1].index(max(own))
    assert most - sum(own[slowest + 1 :]) - 1e-9 <= took <= most + 1e-9
    if own[-1] == max(own):
        assert took == pytest.approx(most)


@given(stages, st.integers(1, 4), st.integers(1, 4), vocabulary, st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_takes_as_long_as_the_longest_way_through_its_operations(
    layers, rounds, chunks, logits, backward
):
    layout = Layout(pp=len(layers), vp=chunks, stages=layers)
    micro = rounds * layout.pp
    assert said(layout, micro, logits, backward) == pytest.approx(
        longest(layout, micro, logits, backward)
    )


@given(stages, st.integers(1, 3), st.integers(1, 3), st.lists(st.floats(0, 0.9)), st.booleans())
@settings(max_examples=40, deadline=None)
def test_bubbles_of_many_ranks_are_those_of_each(layers, rounds, chunks, logits, backward):
    layout = Layout(pp=len(layers), vp=chunks, stages=layers)
    each = [bubble_share(layout, rounds * layout.pp, one, backward) for one in logits]
    many = bubble_share(layout, rounds * layout.pp, np.array(logits), backward)
    assert np.broadcast_to(many, len(logits)).tolist() == each


@given(stages, st.integers(1, 4), st.integers(2, 4), vocabulary)
@settings(max_examples=100, deadline=None)
def test_interleaved_chunks_wait_for_the_slowest_chunk(layers, rounds, chunks, logits):
    """By hand: between the chunks with the logits, of pp micro-batches at a time, stand all other
    chunks of some stage, but for those that it is ahead.
    """
    pp, vp = len(layers), chunks
    layout, micro = Layout(pp=pp, vp=vp, stages=layers), rounds * pp
    chunk = [count / vp for count in layers]
    last = chunk[-1] + logits
    others = [(vp - 1) * pp * chunk[-1]]
    others += [
        ((vp - 1) * pp - 2 * (pp - 1 - s)) * chunk[s] + sum(chunk[s : pp - 1])
        for s in range(pp - 1)
    ]
    outside = (vp - 1) * pp * max(chunk) + sum(chunk[:-1])
    took = said(layout, micro, logits)
    assert took >= micro * last + (rounds - 1) * max(others) + outside - 1e-9
    each = (vp - 1) * max(chunk) + max(last, max(chunk))
    assert took <= micro * each + sum(chunk) + logits + 1e-9
    if layers[-1] == max(layers):
        most = micro * (layers[-1] + logits) + sum(chunk[:-1])
        assert took == pytest.approx(most)
        assert said(layout, micro, logits, backward=False) == pytest.approx(most)


@given(stages, st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_passes_that_only_go_forward(layers, rounds, chunks):
    """As long as the widest stage takes, and a chunk of each other."""
    layout = Layout(pp=len(layers), vp=chunks, stages=layers)
    micro = rounds * (layout.pp if chunks > 1 else 3)
    took = said(layout, micro, backward=False)
    assert took == pytest.approx(micro * max(layers) + (sum(layers) - max(layers)) / chunks)


@given(
    st.tuples(st.integers(2, 6), st.integers(1, 12)),
    vocabulary,
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_logits_of_equal_stages_take_what_is_said(equal, logits, rounds, chunks, backward):
    """The closed form, and the longest way."""
    pp, layers = equal
    layout = Layout(pp=pp, vp=chunks, stages=(layers,) * pp)
    micro = rounds * (pp if chunks > 1 else 3)
    took = said(layout, micro, logits, backward)
    assert took == pytest.approx(micro * (layers + logits) + (pp - 1) * layers / chunks)
    assert took == pytest.approx(longest(layout, micro, logits, backward))


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_equal_stages_are_as_if_none_were_told(chunks):
    equal, none = Layout(pp=4, vp=chunks, stages=(9,) * 4), Layout(pp=4, vp=chunks)
    assert bubble_share(equal, 8) == bubble_share(none, 8) == 3 / (8 * chunks)
    assert bubble_share(equal, 8, 0.1) == bubble_share(none, 8, 0.1)
    assert equal.widest == 1 and [equal.times(stage) for stage in range(4)] == [1.0] * 4


def test_stages_of_real_jobs():
    """By hand: 14, 6 x 8 and 16 layers in 32 micro-batches take 78 + 31 x 16, and not 39 x 9.75;
    with 5 layers at the end, a little of what stands behind the widest hides.
    """
    layout = Layout(pp=8, stages=(14, *[8] * 6, 16))
    assert said(layout, 32) == pytest.approx(78 + 31 * 16)
    early = Layout(pp=8, stages=(6, 6, 6, 5, 5, 5, 5, 5))
    assert said(early, 32) == pytest.approx(43 + 31 * 6, rel=0.025)


def test_a_last_stage_that_is_shorter_for_its_logits_is_no_slower():
    """Four stages of four layers, logits as long as two: six times 32 and what fills and drains. A
    layer of the last in the first, and it is five times.
    """
    alike, shorter = Layout(pp=4, stages=(4,) * 4), Layout(pp=4, stages=(5, 4, 4, 3))
    assert said(alike, 32, 2.0) == pytest.approx(32 * 6 + 12)
    assert said(shorter, 32, 2.0) == pytest.approx(32 * 5 + 13)


@pytest.mark.parametrize("layers", [(4, 4, 4, 2), (4, 4, 4, 4), ()])
def test_micro_batches_that_are_no_whole_rounds_are_cut_until_they_are(layers):
    layout = Layout(pp=4, vp=2, stages=layers)
    assert bubble_share(layout, 5, 0.1) == bubble_share(layout, 8, 0.1)


# --- what a stage holds ---------------------------------------------------------------------------


@pytest.mark.parametrize("micro", [5, 10, 20])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_stage_holds_the_micro_batches_that_it_is_ahead(chunks, micro):
    layout = Layout(pp=5, vp=chunks, stages=(9,) * 5)
    for stage in range(5):
        held = most = 0
        for forward, *_ in operations(layout, stage, micro):
            held += 1 if forward else -1
            most = max(most, held)
        assert layout.in_flight(stage, micro) == pytest.approx(most / chunks)


VOCABULARY = 151936 * 4096  # parameters of Qwen3-8B's embedding, and of the matrix of its logits
LAYER = (8190735360 - 2 * VOCABULARY - 4096) / 36


def own(layers):
    """Parameters of each stage of Qwen3-8B by hand."""
    sizes = [count * LAYER for count in layers]
    sizes[0] += VOCABULARY
    sizes[-1] += VOCABULARY + 4096
    return sizes


def test_bytes_of_each_stage():
    """Parameters and states as the layers, and of the ends what stands before and behind them;
    activations as layers and micro-batches on their way.
    """
    model = load_model("Qwen3-8B")
    layers = (6, 10, 8, 12)
    unlike, whole = Layout(pp=4, dp=2, stages=layers), Layout(dp=2)
    one = memory.training_bytes(model, whole, 4096)
    for stage, count in enumerate(layers):
        held = memory.training_bytes(model, unlike, 4096, stage=stage)
        parameters = own(layers)[stage]
        assert held["parameters"] == pytest.approx(2 * parameters)
        assert held["gradients"] == pytest.approx(4 * parameters)
        assert held["optimizer"] == pytest.approx(12 * parameters / 2)
        assert held["activations"] == pytest.approx(one["activations"] * (4 - stage) * count / 36)
        assert held.get("logits") == (one["logits"] if stage == 3 else None)
        assert held["reserved"] == one["reserved"]


def test_interleaved_stages_hold_more_micro_batches():
    """pp (1 + (pp - 1) / (pp vp)) times a stage's layers in the first (arXiv 2205.05198, section
    4.2.3), none more in the last than without chunks but those of its other chunks.
    """
    model = load_model("Qwen3-8B")
    first, last = (
        [
            memory.training_bytes(model, Layout(pp=4, vp=chunks), 4096, stage=stage)["activations"]
            for chunks in (1, 3)
        ]
        for stage in (0, 3)
    )
    assert first[1] == pytest.approx(first[0] * (1 + 3 / (4 * 3)))
    assert last[1] == pytest.approx(last[0] * (4 - 3 / 3))


def test_a_gathered_layer_is_as_wide_in_every_stage():
    model = load_model("Qwen3-8B")
    layout = Layout(pp=2, dp=8, sharded=True, stages=(12, 24))
    first, second = (memory.training_bytes(model, layout, 4096, stage=stage) for stage in (0, 1))
    norm = 4 * 4096  # the last one, whose gradient is held as well
    assert first["gathered"] + norm == pytest.approx(second["gathered"], abs=1)
    sizes = own((12, 24))
    assert first["parameters"] / second["parameters"] == pytest.approx(sizes[0] / sizes[1])


def test_the_largest_stage_is_last_to_update():
    model, gpu = load_model("Qwen3-8B"), GPUS["H100"]
    alike, unlike = (
        Trainer(model, gpu, Layout(pp=2, dp=2, stages=layers)) for layers in ((), (12, 24))
    )
    times = max(own((12, 24))) / max(own((18, 18)))
    assert optimizer_seconds(unlike) == pytest.approx(optimizer_seconds(alike) * times)
    assert state_bytes(unlike, 1) == pytest.approx(state_bytes(alike, 1) * times)
    # the second stage holds one micro-batch, the first two and no logits
    early, late = (activation_bytes(unlike, 4096, stage) for stage in (0, 1))
    logits = late - activation_bytes(Trainer(model, gpu, Layout(pp=2, stages=(24, 12))), 4096) / 2
    assert early == pytest.approx(late - logits) and logits == pytest.approx(4096 * 6 * 151936)


@pytest.mark.parametrize(
    ("size", "stages"), [(2, [3]), (4, [2, 3]), (8, [0, 1, 2, 3])], ids=["a stage", "two", "all"]
)
def test_the_cpus_of_a_server_update_the_stages_that_it_holds(size, stages):
    """One GPU after the other; what goes over the PCIe of each GPU is as much as it holds."""
    layers = (8, 8, 8, 12)
    unlike = Trainer(
        load_model("Qwen3-8B"),
        GPUS["H100"],
        Layout(pp=4, dp=2, stages=layers),
        gpus_per_server=size,
    )
    shares = [parameters / 2 for parameters in own(layers)]
    on_cpus = sum(shares[stage] for stage in stages) / len(stages) * size / HOST_ADAM
    moved = max(shares) * (2 + 2) / PCIE_BYTES_PER_S
    assert host_optimizer_seconds(unlike) == pytest.approx(moved + on_cpus)


@pytest.mark.parametrize("layers", [(3, 3), (1, 2, 0)])
def test_stages_that_are_not_pp_are_refused(layers):
    with pytest.raises(RFabricError, match="layers are not pp 3 numbers of 1 or more"):
        Layout(pp=3, stages=layers)
