"""Padding that is computed and sent: to the longest of a micro-batch, of a mini-batch or of all."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.rl import explain, read_recipe, trace_of
from rfabric.rl.account import accounts
from rfabric.rl.imports import import_job
from rfabric.rl.padding import balance, ranks_of
from rfabric.rl.phases import step_of, trained_on
from rfabric.rl.sections import PADDINGS, MicroBatch
from rfabric.schedulers.rollpacker import trained_ahead
from rfabric.schedulers.rollpacker.apart import Wave

FULL = "training.recompute=full"


def job(padding="none", *more, name="grpo-64"):
    return read_recipe(name, [f"training.padding={padding}", FULL, *more])


def on_ranks(w, lengths, sequences=0):
    each = MicroBatch(w.training.micro_batch_tokens, sequences)
    return ranks_of(w, np.array(lengths, dtype=float), each)


# --- tokens ---------------------------------------------------------------------------------------

ONE_RANK = "cluster.training_gpus=8", "training.tp=8"


@pytest.mark.parametrize(
    ("padding", "tokens", "squares"),
    [
        ("none", 12, 46),
        ("micro-batch", 18, 82),  # 5 5 4 4
        ("mini-batch", 20, 100),
        ("maximum", 4 * 18432, 4 * 18432**2),
    ],
)
def test_four_sequences_by_hand(padding, tokens, squares):
    """5 2 4 1 on one rank, two by two, in the order in which they come."""
    w = job(padding, *ONE_RANK)
    ranks = on_ranks(w, [5, 2, 4, 1], 2)
    assert (ranks.tokens.tolist(), ranks.squares.tolist()) == ([tokens], [squares])
    assert ranks.micro_batches == 2


def test_a_budget_counts_tokens_before_they_are_padded():
    """9000 + 1000 and 6000 + 4000 are two micro-batches of 10,000: 2 x 9000 + 2 x 6000."""
    more = "generation.max_response=9000", "generation.max_prompt=1000"
    w = job("micro-batch", *ONE_RANK, *more, "training.micro_batch_tokens=10000")
    ranks = on_ranks(w, [4000, 1000, 9000, 6000])
    assert ranks.micro_batches == 2
    assert ranks.tokens.tolist() == [30000]


def test_attention_may_leave_padding_out():
    packed = on_ranks(job(), [5, 2, 4, 1, 3, 3, 7, 6] * 8, 4)
    w = job("micro-batch", "training.padded_attention=false")
    padded = on_ranks(w, [5, 2, 4, 1, 3, 3, 7, 6] * 8, 4)
    assert (padded.squares == packed.squares).all()
    assert padded.tokens.sum() > packed.tokens.sum()


@given(st.lists(st.integers(1, 99), min_size=1, max_size=60), st.integers(1, 8))
def test_ranks_have_as_many_sequences_where_they_are_counted(lengths, ranks):
    dealt = balance(np.array(lengths, dtype=float), ranks, evenly=True)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(lengths)))
    assert max(map(len, dealt)) == -(-len(lengths) // ranks)


LENGTHS = st.lists(st.integers(1, 18432), min_size=32, max_size=200)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.integers(0, 9), st.sampled_from(["true", "false"]))
def test_more_padding_is_never_less(lengths, sequences, attention):
    """On any rank, of any lengths: tokens, and what attention computes."""
    every = [
        on_ranks(job(kind, f"training.padded_attention={attention}"), lengths, sequences)
        for kind in PADDINGS
    ]
    for less, more in pairwise(every):
        assert (less.tokens <= more.tokens).all()
        assert (less.squares <= more.squares).all()
        assert less.micro_batches == more.micro_batches


@settings(deadline=None, max_examples=20)
@given(LENGTHS)
def test_one_sequence_alone_has_no_padding(lengths):
    packed, padded = (on_ranks(job(kind), lengths, 1) for kind in ("none", "micro-batch"))
    assert (packed.tokens == padded.tokens).all()
    assert (packed.squares == padded.squares).all()


@pytest.mark.parametrize("sequences", [0, 1, 3, 8])
def test_equal_lengths_have_no_padding(sequences):
    for length, kinds in ((700, PADDINGS[:3]), (18432, PADDINGS)):
        every = [on_ranks(job(kind), [length] * 100, sequences) for kind in kinds]
        for other in every[1:]:
            assert (other.tokens == every[0].tokens).all()
            assert (other.squares == every[0].squares).all()


# --- seconds and bytes ----------------------------------------------------------------------------

# of which each has other bytes that follow the tokens of a micro-batch
LAYOUTS = {
    "stages": ("grpo-64", "training.tp=2", "training.pp=4"),
    "tensor": ("grpo-64", "training.tp=4", "cluster.gpus_per_server=2"),
    "context": ("grpo-64", "training.tp=4", "training.cp=4"),
    "experts": ("grpo-64-moe", "training.ep=16"),
}
FEW = "generation.batch=16", "generation.group_size=8", "training.mini_batches=1"
SINGLE = ("training.micro_batch_sequences=1",)
PAIRS = "training.micro_batch_sequences=2", "training.micro_batch_tokens=36864"


def few(padding, layout, *more):
    name, *changes = LAYOUTS[layout]
    return job(padding, *FEW, *changes, *more, name=name)


def test_what_any_tokens_take_is_no_longer_where_a_rank_has_more_of_them():
    """One rank has a long sequence: when others are as long, it takes what it took."""
    lengths = np.array([18432.0] + [100.0] * 15)
    changes = "model=Qwen2.5-7B", "cluster.training_gpus=16", "training.tp=1", *SINGLE, *FEW
    one, every = (
        step_seconds(job(kind, *changes, "training.log_prob_passes=0"), lengths)
        for kind in ("none", "mini-batch")
    )
    assert one == pytest.approx(every, rel=0.02)
    assert one <= every


def step_seconds(w, lengths):
    return trained_on(w, lengths).seconds(w.training.buckets)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("micro", [PAIRS, ()], ids=["pairs", "tokens"])
def test_bytes_of_tokens_follow_them(layout, micro):
    """Those of parameters and gradients do not."""
    more = *micro, "cluster.gpu=B200", "cluster.gpus_per_server=2"
    sent, tokens = [], []
    for kind in PADDINGS:
        w = few(kind, layout, *more)
        trace, trained = trace_of(w), step_of(w, 0, 0).trained
        rows = trace.communication()
        of_training = {c: r for (_, phase, c), r in rows.items() if phase == "training"}
        sent.append({c: int(trace.total[r].sum()) for c, r in of_training.items()})
        tokens.append(sum(trained.log_prob_tokens) + sum(trained.mini_batches[0].tokens))
    grew = {c for c in sent[0] if sent[-1][c] != sent[0][c]}
    assert grew
    for less, more in pairwise(sent):
        assert all(less[c] <= more[c] for c in less)
    for c in grew:
        assert sent[-1][c] / sent[0][c] <= tokens[-1] / tokens[0] * 1.001


def seconds(*changes):
    w = job(*changes)
    return step_of(w, 0, 0).trained.seconds(w.training.buckets)


def test_training_of_a_long_tail_takes_many_times_as_long():
    none, pairs, whole, most = (seconds(kind, *PAIRS, *FEW) for kind in PADDINGS)
    assert 1.1 * none < pairs < whole <= most
    assert most > 4 * none


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("micro", [PAIRS, ()], ids=["pairs", "tokens"])
def test_the_account_of_a_padded_step_adds_up(kind, micro):
    w = job(kind, *FEW, *micro, "cluster.gpu=B200")
    training = next(phase for phase in accounts(w) if phase.phase == "training")
    total = sum(term.seconds for term in training.terms)
    assert total == pytest.approx(training.seconds, rel=1e-9)


def test_explain_says_what_is_padded():
    said = {item.item: item for item in explain(job("micro-batch", *PAIRS))}
    assert "longest of their micro-batch" in said["log-prob"].why
    assert "longest of their micro-batch" in said["forward-backward"].why


# --- memory ---------------------------------------------------------------------------------------


def test_a_micro_batch_of_tokens_holds_their_padding():
    """36,864 tokens are room for 19 sequences of usual length, each as long as the longest."""
    more = "training.micro_batch_tokens=36864", "cluster.gpu=B300", "training.pp=4"
    packed, padded = (job(kind, *more).training_bytes for kind in ("none", "maximum"))
    assert padded["activations"] / packed["activations"] == pytest.approx(19 / 2)
    assert padded["parameters"] == packed["parameters"]
    with pytest.raises(RFabricError, match="training: .* needs .* GB a GPU"):
        job("maximum", "training.micro_batch_tokens=100000")


def test_a_micro_batch_of_sequences_is_as_long_as_it_may_be_already():
    packed, padded = (job(kind, *PAIRS).training_bytes for kind in ("none", "maximum"))
    assert padded == packed


# --- schedulers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PADDINGS)
def test_waves_fill_the_micro_batches_of_the_first_update(kind):
    """All but the last of 64 groups are there long before: both updates have as many tokens."""
    w = job(kind, "training.mini_batches=2")
    lengths = np.full((64, 16), 900.0)
    trained = trained_on(w, lengths.ravel())
    waves = [Wave(0.0, np.arange(63)), Wave(1e9, np.array([63]))]
    made, _ = trained_ahead(w, trained, waves, lengths.sum(axis=1))
    first = trained.mini_batches[0].micro_batches
    assert made[0].part.mini_batches[0].micro_batches == first - 1


# --- jobs -----------------------------------------------------------------------------------------

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
OFF = f"{MODEL}.use_remove_padding=False"
VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \
actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=1024 \
actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=2 {more}
"""
STAYS = f"{ACTOR}.strategy=megatron {ACTOR}.megatron.pad_bshd_to_minibatch_max=False"


@pytest.mark.parametrize(
    ("more", "padding", "attention", "note"),
    [
        ("", None, None, "since verl 0.7; before it is computed, up to max_prompt_length"),
        (f"{MODEL}.use_remove_padding=True", None, None, ""),
        (OFF, "micro-batch", False, "but for attention; before verl 0.8 up to max_prompt_length"),
        (f"{OFF} {MODEL}.override_config.attn_implementation=sdpa", "micro-batch", None, "longest"),
        (f"{OFF} {ACTOR}.strategy=torchtitan", "micro-batch", None, "of each micro-batch; before"),
        (f"{OFF} {ACTOR}.strategy=megatron", "mini-batch", None, "in 0.7 and 0.8 of a micro-batch"),
        (f"{OFF} {STAYS}", "micro-batch", None, "pad_bshd_to_minibatch_max = False: padding is"),
        ("critic.model.use_remove_padding=False", None, None, "is not set"),
    ],
)
def test_verls_padding_by_what_trains(tmp_path, more, padding, attention, note):
    (path := tmp_path / "run.sh").write_text(VERL.format(more=more))
    made = import_job("verl", path)
    training = made.recipe()["training"]
    assert (training.get("padding"), training.get("padded_attention")) == (padding, attention)
    said = [text for text in made.notes if "padding is" in text]
    assert len(said) == bool(note)
    assert note in "".join(said)
