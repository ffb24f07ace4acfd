"""`training.stage_layers`: what follows for a job from stages that hold unequally many layers."""

from collections import Counter

import numpy as np
import pytest
from test_jobs import check, check_explained

from rfabric.errors import RFabricError
from rfabric.rl import accounts, flows, plan_of, read_recipe, trace_of
from rfabric.rl.explain import explain
from rfabric.rl.phases import step_of
from rfabric.schedulers.base import as_it_stands
from rfabric.schedulers.rollpacker.apart import _work

JOB = (
    "model=Qwen3-4B",
    "training.pp=4",
    "training.tp=1",
    "training.micro_batch_tokens=8192",
    "generation.batch=64",
    "generation.max_prompt=1024",
    "generation.max_response=4096",
)
LAST = "training.stage_layers=8,8,8,12"


def job(*overrides, name="grpo-64"):
    return read_recipe(name, [*JOB, *overrides])


def in_training(w):
    return step_of(w, 0, 0).trained


def test_it_may_be_text_or_a_list():
    said = job(LAST).training.stage_layers
    assert said == job("training.stage_layers=[8, 8, 8, 12]").training.stage_layers == (8, 8, 8, 12)
    assert job("training.stage_layers= 8, 8,8 ,12").training.stage_layers == said
    assert job().training.stage_layers is None
    assert job("training.stage_layers=null").training.stage_layers is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("12,12,12", "stage_layers: 12,12,12 are 3 stages, training.pp is 4; write one number for"),
        ("9,9,9,8", "stage_layers: 9,9,9,8 are 35 layers, Qwen3-4B has 36; write numbers that add"),
        ("0,12,12,12", "stage_layers: 0 must be 1 or more"),
        ("-3,13,13,13", "stage_layers: '-3' is not a whole number"),
        ("[9, 9, 9, 9.0]", "stage_layers: 9.0 is not a whole number"),
        ("[9, 9, 9, true]", "stage_layers: True is not a whole number"),
        ("9,,9,9", "stage_layers: '' is not a whole number"),
        ("9" * 5000 + ",9", "stage_layers: '9+' is not a whole number"),
        ("36", "stage_layers: 36 is no list of whole numbers; write for example 3,4,4,3"),
        ("[]", r"stage_layers: \[\] is no list of whole numbers"),
        ("wide", "stage_layers: 'wide' is not a whole number"),
    ],
)
def test_what_is_no_layers_of_stages_is_refused(value, message):
    with pytest.raises(RFabricError, match=message):
        job(f"training.stage_layers={value}")


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("training.vp=3",),
        ("placement=colocated", "cluster.generation_gpus=32"),
        ("training.optimizer=sharded",),
    ],
)
def test_equal_stages_change_nothing(more):
    """To the last bit."""
    none, equal = job(*more), job("training.stage_layers=9,9,9,9", *more)
    first, second = trace_of(none), trace_of(equal)
    for column in ("src", "dst", "size", "gap", "after"):
        assert np.array_equal(getattr(first, column), getattr(second, column))
    assert none.training_bytes == equal.training_bytes
    assert [(p.kind, p.window) for p in plan_of(none).phases] == [
        (p.kind, p.window) for p in plan_of(equal).phases
    ]


def longer(passes, m):
    """How much longer a pass takes whose last stage has 12 of 36 layers, not 9."""
    layers, logits = 1 - passes.logits_share, 4 * passes.logits_share  # of the mean stage
    one, other = (4 + (m - 1) * (times * layers + logits) for times in (1, 4 / 3))  # of each rank
    return other / one


def test_a_step_takes_as_long_as_the_widest_stage():
    """m micro-batches in 4 stages: all layers and logits once, then m - 1 times the last's."""
    alike, unlike = in_training(job()), in_training(job(LAST))
    buckets = job().training.buckets
    ratio = longer(alike.log_prob_pass, alike.log_prob_micro_batches)
    assert unlike.log_prob / alike.log_prob == pytest.approx(ratio)
    for one, other in zip(alike.mini_batches, unlike.mini_batches, strict=True):
        took = [batch.first + buckets * batch.piece for batch in (one, other)]
        each = longer(one.ahead + one.back, one.micro_batches)  # rank by rank
        assert took[1] / took[0] == pytest.approx(each)
        layers, logits = 1 - one.back.logits_share, 4 * one.back.logits_share
        last = one.back.seconds / one.micro_batches / buckets  # of the mean stage
        assert one.piece == pytest.approx(((layers + logits) * last).min())
        assert other.piece == pytest.approx(((4 / 3 * layers + logits) * last).min())
    embedding, model = 151936 * 2560, job().model  # tied: the first stage's, and the last's
    layers = (model.parameters - embedding) / 36
    assert unlike.optimizer / alike.optimizer == pytest.approx(
        (12 * layers + embedding) / (9 * layers + embedding), rel=1e-5
    )


def test_micro_batches_that_begin_early_fill_the_stages_once_each():
    w = job(LAST)
    trained = in_training(w)
    m = trained.log_prob_micro_batches
    work = _work(w, trained.log_prob, m, trained.log_prob_pass)
    assert work.by_rank(m) == pytest.approx(trained.log_prob)
    # filled twice: the other stages' part of a micro-batch, 3 x 8 of 12 layers and the logits
    again = work.by_rank(1) + work.by_rank(m - 1) - work.by_rank(m)
    share = trained.log_prob_pass.logits_share
    last = (1 - share) / 3 + share
    assert again == pytest.approx(work.one * (1 - last) / last)


def by_stage(w, sent):
    """Bytes that the GPUs of each stage send."""
    bytes_of = Counter()
    for src, size in zip(sent.src, sent.size, strict=True):
        bytes_of[int(src) // w.stage_gpus] += float(size)
    return [bytes_of[stage] for stage in range(w.training.pp)]


CROSSING = {
    "gradients": ("training.optimizer=replicated",),
    "sharded": ("training.optimizer=sharded",),
    "copies": ("training.optimizer=sharded", "training.fsdp_size=2", "cluster.gpus_per_server=2"),
    "tensor": ("cluster.gpus_per_server=2", "training.tp=4"),
    "ring": ("cluster.gpus_per_server=2", "training.cp=4"),
    "ulysses": ("cluster.gpus_per_server=2", "training.cp=4", "training.context_exchange=ulysses"),
    "weights": ("weight_sync.strategy=scatter",),
    "p2p": ("weight_sync.strategy=p2p",),
    "delta": ("weight_sync.strategy=delta",),
    "relay": ("weight_sync.strategy=relay",),
    "colocated": ("placement=colocated", "cluster.generation_gpus=32", "training.tp=2"),
}
EXPERTS = {
    "experts": ("training.ep=8", "training.tp=1"),
    "skew": ("training.ep=8", "training.tp=1", "training.skew=1"),
    "cut": ("training.ep=4", "training.etp=2", "training.tp=2"),
    "p2p": ("training.ep=8", "training.tp=1", "weight_sync.strategy=p2p"),
}
SMALL = ("cluster.gpus_per_server=4", "generation.tp=4", "generation.batch=64")


@pytest.mark.parametrize("more", CROSSING.values(), ids=CROSSING)
@pytest.mark.parametrize("layers", ["8,8,8,12", "14,10,6,6"])
def test_a_trace_sends_what_its_formulas_say(layers, more):
    """Lowering refuses a trace whose bytes are others, label by label."""
    w = job(
        "cluster.gpus_per_server=4", "generation.tp=2", f"training.stage_layers={layers}", *more
    )
    assert len(trace_of(w).total)
    for account in accounts(w):
        window = next(p.window for p in plan_of(w).phases if p.kind == account.phase)
        assert sum(term.seconds for term in account.terms) == pytest.approx(window, rel=1e-9)


@pytest.mark.parametrize("kind", ["gradients", "copies", "ring", "p2p", "colocated"])
def test_a_run_takes_as_long_as_its_plan(kind):
    few = ("cluster.gpus_per_server=4", "generation.tp=2", "training.stage_layers=14,10,6,6")
    made = as_it_stands(job(*few, *CROSSING[kind]), 0)
    check(made)
    check_explained(made)


@pytest.mark.parametrize("more", EXPERTS.values(), ids=EXPERTS)
def test_experts_of_unlike_stages_too(more):
    w = read_recipe("grpo-64-moe", [*SMALL, "training.pp=2", "training.stage_layers=30,18", *more])
    assert w.model.layers == 48 and len(trace_of(w).total)


def test_each_stage_sends_its_own_gradients_and_parameters():
    more = ("cluster.gpus_per_server=4", "generation.tp=2")
    even, w = job(*more), job(*more, "training.stage_layers=6,12,6,12")
    sharded = "reduce-scatter"
    embedding = 151936 * 2560  # tied: the first stage's, and a copy the last's
    layers = (w.model.parameters - embedding) / 36
    own = np.array([6 * layers + embedding, 12 * layers, 6 * layers, 12 * layers + embedding])
    for sent in (flows.gradients, flows.parameters, lambda x: flows.sharded(x)[sharded]):
        each = by_stage(even, sent(even))[1] / (9 * layers)
        assert each > 0
        assert by_stage(w, sent(w)) == pytest.approx(each * own, rel=1e-5)


def test_tokens_reach_the_experts_of_as_many_layers_as_a_stage_has():
    w = read_recipe(
        "grpo-64-moe",
        [*SMALL, "training.pp=2", "training.stage_layers=32,16", "training.ep=8", "training.tp=1"],
    )
    first, second = by_stage(w, flows.dispatch(w, np.full(w.dp, 1000.0), 1))
    assert first == pytest.approx(2 * second) and second > 0


def test_the_stage_with_the_most_bytes_must_fit():
    """The first holds the activations of two micro-batches, the last the most parameters."""
    w = job("training.pp=2", "training.stage_layers=16,20")
    first, last = w.stage_bytes
    assert last["parameters"] > first["parameters"] and last["activations"] < first["activations"]
    assert w.training_bytes == max(first, last, key=lambda held: sum(held.values()))
    with pytest.raises(RFabricError, match=r"GB a GPU of stage 2 with its 33 layers \(parameters"):
        job("training.tp=1", "training.stage_layers=1,33,1,1", "training.micro_batch_tokens=60000")


def test_few_micro_batches_are_all_that_a_stage_holds():
    """Of four, and not of five: four stages of three chunks each would be so far ahead."""
    w = job("training.vp=3", "training.micro_batch_tokens=10240", "generation.batch=32")
    assert w.most_micro_batches == 8 * 5120 / 10240  # responses of a rank in one of four updates
    first = w.stage_bytes[0]["activations"]
    assert first == pytest.approx(34 * 2560 * 10240 * 9 * 4)
    assert job("training.vp=3").stage_bytes[0]["activations"] == pytest.approx(
        34 * 2560 * 8192 * 9 * 5
    )


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("training.mini_batches=3", "generation.batch=63"),
        ("training.micro_batch_sequences=1",),
        ("training.mini_batches=1", "training.mini_batch_responses=40"),
        ("training.cp=2", "training.micro_batch_tokens=4096"),
    ],
)
def test_no_update_has_more_micro_batches_than_said(more):
    w = job(*more)
    every = [b.micro_batches for seed in range(3) for b in step_of(w, seed, 0).trained.mini_batches]
    assert 0 < max(every) <= w.most_micro_batches


@pytest.mark.parametrize(
    "few",
    [
        ("training.micro_batch_tokens=40960", "generation.batch=32"),
        ("training.micro_batch_sequences=1", "generation.batch=24"),
    ],
)
def test_chunks_take_whole_rounds_of_micro_batches_alike_or_not(few):
    """Of one micro-batch, equal stages took twice as long as unequal ones."""
    few = ("training.vp=3", *few)
    alike, unlike = (in_training(job(*few, *stages)) for stages in ((), (LAST,)))
    for a, b in zip(alike.mini_batches, unlike.mini_batches, strict=True):
        assert a.micro_batches == b.micro_batches and a.micro_batches % 4 == 0
        assert a.seconds(3) < b.seconds(3)
    assert alike.log_prob.max() < unlike.log_prob.max()


def test_more_stages_are_no_way_out_where_their_layers_are_told():
    with pytest.raises(RFabricError, match="GB a GPU") as refused:
        job("training.stage_layers=1,33,1,1", "training.micro_batch_tokens=60000")
    assert "training.pp=" not in str(refused.value)


def test_it_is_explained_with_its_source():
    w = job(LAST)
    why = next(item.why for item in explain(w) if item.item == "log-prob")
    share = in_training(w).slowest_log_prob_pass.logits_share
    slowest = 4 / 3 * (1 - share) + 4 * share
    assert f"the slowest stage takes {slowest:.3g} x as long as the mean one" in why
    (term,) = [
        term
        for account in accounts(w)
        for term in account.terms
        if (term.part, term.term) == ("forward-backward", "pipeline bubble")
    ]
    assert "recipe.training.stage_layers" in term.sources
    plain = [term for made in accounts(job()) for term in made.terms]
    assert not [t for t in plain if "recipe.training.stage_layers" in t.sources]
