"""Gradients of an embedding that the first pipeline stage shares with the last, by hand."""

import pytest
from test_jobs import check, check_explained

from rfabric.rl import accounts, read_recipe, trace_of
from rfabric.rl.explain import explain
from rfabric.rl.tied_embedding import summed
from rfabric.schedulers.base import as_it_stands

JOB = (
    "model=Qwen3-4B",
    "training.pp=4",
    "training.tp=2",
    "training.micro_batch_tokens=8192",
    "generation.batch=64",
    "generation.max_prompt=1024",
    "generation.max_response=4096",
)
EACH = 4 * 151936 * 2560 / 2  # fp32 gradients of a tensor rank, which each of two GPUs sends


def job(*overrides):
    return read_recipe("grpo-64", [*JOB, *overrides])


@pytest.mark.parametrize(
    ("more", "times"),
    [((), 1), (("training.grad_dtype=bf16", "training.optimizer=replicated"), 0.5)],
)
def test_each_gpu_of_the_first_stage_exchanges_its_part_with_its_place_in_the_last(more, times):
    """Eight GPUs a stage, four updates."""
    w = job(*more)
    sent = summed(w)
    pairs = [(gpu, gpu + 24) for gpu in range(8)] + [(gpu + 24, gpu) for gpu in range(8)]
    assert sorted(zip(sent.src.tolist(), sent.dst.tolist(), strict=True)) == sorted(pairs)
    assert sent.size == pytest.approx([times * EACH] * 16)
    trace = trace_of(w)
    rows = trace.communication()[0, "training", "embedding"]
    assert trace.total[rows].sum() == pytest.approx(4 * 16 * times * EACH)


def test_it_is_in_the_plan_the_run_and_what_explains_them():
    w = job()
    made = as_it_stands(w, 0)
    check(made)
    check_explained(made)
    (training,) = [account for account in accounts(w) if account.phase == "training"]
    (term,) = [term for term in training.terms if term.term == "tied embedding"]
    assert term.seconds == pytest.approx(4 * EACH * 8 / 400e9, rel=1e-3)
    (item,) = [item for item in explain(w) if item.item == "embedding"]
    assert item.seconds == pytest.approx(term.seconds) and "tied embedding" in item.why


@pytest.mark.parametrize(
    "more",
    [
        ("model=Qwen3-8B",),  # not tied
        ("training.pp=1",),
        ("training.optimizer=sharded",),
        ("training.lora_rank=16",),
        ("cluster.training_gpus=8", "training.pp=2"),  # both stages in one server
    ],
    ids=["untied", "one stage", "sharded", "adapters", "one server"],
)
def test_nothing_is_sent_where_no_two_servers_have_gradients_of_it(more):
    w = job(*more)
    assert not len(summed(w).src)
    assert (0, "training", "embedding") not in trace_of(w).communication()


def test_a_value_head_shares_no_embedding():
    """Of eight updates four are the policy's."""
    alone, both = (as_it_stands(job(*more), 0) for more in ((), ("training.critic=true",)))
    check(both)
    check_explained(both)
    sent = [made.trace.communication()[0, "training", "embedding"] for made in (alone, both)]
    sizes = [made.trace.total[rows].sum() for made, rows in zip((alone, both), sent, strict=True)]
    assert sizes == pytest.approx([4 * 16 * EACH] * 2)
    terms = [
        term.seconds
        for account in accounts(job("training.critic=true"))
        for term in account.terms
        if term.term == "tied embedding"
    ]
    assert terms == pytest.approx([4 * EACH * 8 / 400e9], rel=1e-3)
