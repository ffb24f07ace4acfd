"""Pipelines whose stages hold unequally many layers: how long they take, played operation by
operation, and how much each stage holds.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute import memory
from rfabric.compute.gpus import GPUS
from rfabric.compute.layout import Layout
from rfabric.compute.named import load_model
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

FORWARD, BACKWARD = 1 / 3, 2 / 3  # of a micro-batch's time


def order(layout: Layout, stage: int, micro_batches: int) -> list[tuple[bool, int, int]]:
    """What a stage does, one after the other: (forward, micro-batch, chunk). Some forward passes,
    then one forward and one backward in turn, then the backward passes that are left
    (PipeDream-flush; interleaved as Megatron-LM, pp micro-batches a chunk at a time).
    """
    pp, vp = layout.pp, layout.vp
    if vp == 1:
        ahead = pp - 1 - stage
        ways = [[(way, k, 0) for k in range(micro_batches)] for way in (True, False)]
    else:
        ahead = 2 * (pp - 1 - stage) + (vp - 1) * pp
        runs = [
            (first + k, chunk)
            for first in range(0, micro_batches, pp)
            for chunk in range(vp)
            for k in range(pp)
        ]
        ways = [[(True, *run) for run in runs], [(False, k, vp - 1 - chunk) for k, chunk in runs]]
    forward, backward = ways
    ahead = min(ahead, len(forward))
    both = zip(forward[ahead:], backward, strict=False)
    return forward[:ahead] + [one for pair in both for one in pair] + backward[-ahead or 2**60 :]


def played(layout: Layout, micro_batches: int, backward: bool = True) -> float:
    """Seconds of a step, a layer taking one for a micro-batch; each stage does one thing at a
    time.
    """
    orders = [order(layout, stage, micro_batches) for stage in range(layout.pp)]
    if not backward:
        orders = [[one for one in each if one[0]] for each in orders]
    last, ended, free = layout.pp * layout.vp - 1, {}, [0.0] * layout.pp
    while any(orders):
        for stage, waiting in enumerate(orders):
            while waiting:
                forward, micro, chunk = waiting[0]
                place = chunk * layout.pp + stage
                if forward:
                    needs = (True, micro, place - 1) if place else None
                else:
                    needs = (place == last, micro, place if place == last else place + 1)
                if needs and needs not in ended:
                    break
                share = (FORWARD if forward else BACKWARD) if backward else 1
                begins = max(free[stage], ended.get(needs, 0.0))
                free[stage] = begins + share * layout.stages[stage] / layout.vp
                ended[forward, micro, place] = free[stage]
                waiting.pop(0)
    return max(free)


def said(layout: Layout, micro_batches: int) -> float:
    """The same by the closed form."""
    mean = sum(layout.stages) / layout.pp
    return micro_batches * mean * (1 + bubble_share(layout, micro_batches))


stages = st.lists(st.integers(1, 20), min_size=2, max_size=7).map(tuple)


@given(stages, st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_a_pipeline_takes_no_longer_than_said(layers, micro):
    """What stands behind the widest stage is the most that it hides."""
    layout = Layout(pp=len(layers), stages=layers)
    took, closed = played(layout, micro), said(layout, micro)
    assert closed == pytest.approx(sum(layers) + (micro - 1) * max(layers))
    widest = len(layers) - 1 - layers[::-1].index(max(layers))
    assert closed - sum(layers[widest + 1 :]) - 1e-9 <= took <= closed + 1e-9
    if layers[-1] == max(layers):
        assert took == pytest.approx(closed)


@given(stages, st.integers(1, 4), st.integers(2, 4))
@settings(max_examples=100, deadline=None)
def test_interleaved_chunks_take_no_longer_than_said(layers, rounds, chunks):
    layout = Layout(pp=len(layers), vp=chunks, stages=layers)
    took, closed = played(layout, rounds * layout.pp), said(layout, rounds * layout.pp)
    assert took <= closed + 1e-9
    if layers[-1] == max(layers):
        assert took == pytest.approx(closed)


@given(stages, st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_passes_that_only_go_forward_take_what_is_said(layers, rounds, chunks):
    layout = Layout(pp=len(layers), vp=chunks, stages=layers)
    micro = rounds * (layout.pp if chunks > 1 else 3)
    assert played(layout, micro, backward=False) == pytest.approx(said(layout, micro))


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_equal_stages_are_as_if_none_were_told(chunks):
    equal, none = Layout(pp=4, vp=chunks, stages=(9,) * 4), Layout(pp=4, vp=chunks)
    assert bubble_share(equal, 8) == bubble_share(none, 8) == 3 / (8 * chunks)
    assert played(equal, 8) == pytest.approx(said(equal, 8))
    assert equal.widest == 1 and [equal.times(stage) for stage in range(4)] == [1.0] * 4


def test_stages_of_real_jobs():
    """By hand: 14, 6 x 8 and 16 layers in 32 micro-batches take 78 + 31 x 16, and not 39 x 9.75;
    with 5 layers at the end, a little of what stands behind the widest hides.
    """
    layout = Layout(pp=8, stages=(14, *[8] * 6, 16))
    assert [took(layout, 32) for took in (said, played)] == pytest.approx([78 + 31 * 16] * 2)
    early = Layout(pp=8, stages=(6, 6, 6, 5, 5, 5, 5, 5))
    assert played(early, 32) == pytest.approx(said(early, 32), rel=0.025)


# --- what a stage holds ---------------------------------------------------------------------------


@pytest.mark.parametrize("micro", [5, 10, 20])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_stage_holds_the_micro_batches_that_it_is_ahead(chunks, micro):
    layout = Layout(pp=5, vp=chunks, stages=(9,) * 5)
    for stage in range(5):
        held = most = 0
        for forward, *_ in order(layout, stage, micro):
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
    assert first["gathered"] == second["gathered"]
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
