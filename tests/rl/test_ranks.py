"""Each data-parallel rank computes its own passes: what follows, whatever the job."""

from dataclasses import fields, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.training import PassSeconds, bubble_share
from rfabric.rl import phases, read_recipe, timing
from rfabric.rl.account import accounts
from rfabric.rl.padding import Ranks
from rfabric.rl.phases import trained_on
from rfabric.rl.sections import PADDINGS
from rfabric.rl.timing import passes_of, trainer_of

FEW = "training.mini_batches=1", "training.recompute=full"
# what a pass of each has terms of
LAYOUTS = {
    "stages": ("grpo-64", "training.tp=2", "training.pp=4"),
    "interleaved": ("grpo-64", "training.tp=2", "training.pp=4", "training.vp=2"),
    "unequal stages": ("grpo-64", "training.pp=4", "training.stage_layers=9,12,12,15"),
    "ring": ("grpo-64", "training.tp=2", "training.cp=4"),
    "ulysses": ("grpo-64", "training.tp=2", "training.cp=4", "training.context_exchange=ulysses"),
    "ring between servers": ("grpo-64", "training.tp=4", "training.cp=4"),
    "windows": ("grpo-64", "model=gpt-oss-20b", "training.tp=2"),
    "efficiency": ("grpo-64", "training.tp=4", "efficiency.training=0.4"),
    "efficiency of stages": ("grpo-64", "training.pp=4", "efficiency.training=0.4"),
}
EXPERTS = {
    "experts in servers": ("grpo-64-moe", "training.tp=1", "training.ep=8"),
    "experts between servers": ("grpo-64-moe", "training.tp=1", "training.ep=16"),
    "experts of stages": ("grpo-64-moe", "training.tp=1", "training.pp=2", "training.ep=8"),
    "cut experts": ("grpo-64-moe", "training.tp=2", "training.ep=4", "training.etp=2"),
}
EVERY = LAYOUTS | EXPERTS
PAIRS = "training.micro_batch_sequences=2", "training.micro_batch_tokens=36864"
# most sequences of a kind: a few others are far longer, or far shorter
KINDS = st.sampled_from([1, 100, 2000, 18432])
LENGTHS = st.tuples(KINDS, st.integers(24, 64), st.lists(st.integers(1, 18432) | KINDS, min_size=8))
LENGTHS = LENGTHS.map(lambda drawn: [drawn[0]] * drawn[1] + drawn[2])


@cache
def job(layout, *more):
    name, *changes = EVERY[layout]
    return read_recipe(name, ["cluster.gpu=B300", *FEW, *changes, *more])


def seconds(w, trained):
    return trained.seconds(w.training.buckets)


def trained(w, lengths):
    return trained_on(w, np.array(lengths, dtype=float))


def of_ranks(w, tokens, squares, micro=3):
    """The training of ranks dealt like this."""
    ranks = Ranks(np.array(tokens, dtype=float), np.array(squares, dtype=float), micro)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "ranks_of", lambda *_: ranks)
        return trained_on(w, np.ones(w.generation.responses))


def drawn(w, random):
    """Tokens and squares of ranks, each of some sequences."""
    own = [random.integers(1, 18432, random.integers(1, 30)).astype(float) for _ in range(w.dp)]
    return [one.sum() for one in own], [(one**2).sum() for one in own]


# --- a rank by itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", EVERY)
@pytest.mark.parametrize("micro", [1, 7])
def test_a_pass_of_many_ranks_is_that_of_each(layout, micro):
    """Field by field; a host waits for all that exchange."""
    w, random = job(layout), np.random.default_rng(1)
    many = passes_of(w, *map(np.array, drawn(w, random)), micro)
    random = np.random.default_rng(1)
    for rank, (tokens, squares) in enumerate(zip(*drawn(w, random), strict=True)):
        alone = passes_of(w, tokens, squares, micro)
        for each, all_of_it in zip(alone, many, strict=True):
            for field in fields(PassSeconds):
                own = getattr(all_of_it.of_rank(rank), field.name)
                if field.name != "host":
                    assert own == pytest.approx(getattr(each, field.name), rel=1e-12)


@pytest.mark.parametrize("layout", EVERY)
@pytest.mark.parametrize("tokens", [40, 4e5])
def test_the_slowest_of_equal_ranks_is_each_of_them(layout, tokens):
    """... and the average one; where the host is slower, too."""
    w = job(layout)
    squares = tokens**2 / 20
    made = of_ranks(w, [tokens] * w.dp, [squares] * w.dp)
    (batch,) = made.mini_batches
    alone = passes_of(w, tokens, squares, batch.micro_batches)
    for each, own, many in zip(alone, batch.slowest, (batch.ahead, batch.back), strict=True):
        assert own.seconds == pytest.approx(each.seconds, rel=1e-12)
        assert many.seconds == pytest.approx(np.full(w.dp, each.seconds), rel=1e-12)
        assert own.host == pytest.approx(each.host, rel=1e-12)
    both = alone[0] + alone[1]
    share = bubble_share(trainer_of(w).layout, batch.micro_batches, both.logits_share)
    took = batch.seconds(w.training.buckets)
    assert took == pytest.approx(both.seconds * (1 + share), rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(list(EVERY)), st.integers(0, 2**16))
def test_ranks_may_change_places(layout, seed):
    """Nothing but who is who changes, to the last bit."""
    w, random = job(layout), np.random.default_rng(seed)
    tokens, squares = drawn(w, random)
    order = random.permutation(w.dp)
    one, other = (
        of_ranks(w, *(np.array(some)[places] for some in (tokens, squares)))
        for places in (np.arange(w.dp), order)
    )
    assert seconds(w, one) == seconds(w, other)
    assert (one.log_prob[order] == other.log_prob).all()
    assert one.slowest_log_prob_pass == other.slowest_log_prob_pass
    for a, b in zip(one.mini_batches, other.mini_batches, strict=True):
        assert (a.first[order] == b.first).all()
        assert (a.piece, a.slowest, a.forward_share) == (b.piece, b.slowest, b.forward_share)


def test_each_rank_has_its_own_bubble():
    """Logits are a larger share of short sequences: one rank's own, not the mean of all."""
    w = job("stages")
    made = of_ranks(w, [1e5] * w.dp, [*[1e5**2 / 100] * (w.dp - 1), 1e5**2])
    (batch,) = made.mini_batches
    shares = (batch.ahead + batch.back).logits_share
    assert shares[0] > 1.2 * shares[-1]
    took = batch.first + w.training.buckets * batch.piece
    for rank in (0, -1):
        own = bubble_share(trainer_of(w).layout, batch.micro_batches, float(shares[rank]))
        assert took[rank] / (batch.ahead + batch.back).seconds[rank] == pytest.approx(1 + own)


def test_the_account_is_of_the_slowest_rank():
    w = read_recipe("grpo-64", ["training.pp=2", "training.padding=micro-batch", *FEW, *PAIRS])
    step = phases.step_of(w, 0, 0)
    (batch,) = step.trained.mini_batches
    tokens, squares = batch.tokens, batch.first
    terms = {
        term.term: term.seconds
        for phase in accounts(w)
        for term in phase.terms
        if (phase.phase, term.part) == ("training", "forward-backward")
    }
    slowest = int(batch.first.argmax())
    assert len(set(tokens)) > 1 and len(set(squares)) > 1
    assert terms["attention"] == (batch.ahead + batch.back).attention[slowest]


def test_of_ranks_that_wait_alike_the_one_that_computes_most_is_explained():
    """Hosts are slower than any GPU: all take the same, and rounding decides nothing."""
    w = job("experts between servers")
    tokens = np.arange(1.0, w.dp + 1)[np.random.default_rng(0).permutation(w.dp)]
    made = of_ranks(w, tokens, tokens**2)
    (batch,) = made.mini_batches
    assert made.log_prob == pytest.approx(np.full(w.dp, made.log_prob[0]), rel=1e-12)
    assert made.slowest_log_prob_pass.matmul == made.log_prob_pass.matmul.max()
    assert batch.slowest[0].matmul == batch.ahead.matmul.max()


# --- more is never less ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([*LAYOUTS, "experts in servers", "experts of stages", "cut experts"]),
    st.integers(0, 2**16),
    st.integers(1, 20),
)
def test_no_rank_is_sooner_done_with_more(layout, seed, micro):
    """Tokens or squares of one rank, in as many micro-batches."""
    w, random = job(layout), np.random.default_rng(seed)
    each = drawn(w, random)
    before = of_ranks(w, *each, micro)
    which, rank = random.integers(2), random.integers(w.dp)
    each[which][rank] *= 1 + random.random()
    after = of_ranks(w, *each, micro)
    assert seconds(w, before) <= seconds(w, after) * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([*LAYOUTS, "experts in servers"]), st.data())
def test_no_step_is_shorter_with_a_longer_sequence(layout, data):
    """Of a sequence a rank: where some ranks have more, those of a longer one may be dealt to
    others, and that may be better.
    """
    w = job(layout, "training.micro_batch_sequences=1")
    length = st.integers(1, 18000)
    lengths = data.draw(st.lists(length, min_size=w.dp, max_size=w.dp))
    before = seconds(w, trained(w, lengths))
    lengths[data.draw(st.integers(0, w.dp - 1))] += data.draw(st.integers(1, 432))
    assert before <= seconds(w, trained(w, lengths)) * (1 + 1e-12)


def by_padding(layout, lengths, *more):
    """Seconds of a step by kind of padding, each at least as much as the one before."""
    for kind in PADDINGS:
        w = job(layout, f"training.padding={kind}", *more)
        yield seconds(w, trained(w, lengths))


@settings(deadline=None, max_examples=100)
@given(
    LENGTHS,
    st.sampled_from([*LAYOUTS, "experts in servers", "experts of stages", "cut experts"]),
    st.sampled_from([PAIRS, ("training.micro_batch_sequences=1",), ()]),
    st.booleans(),
)
def test_more_padding_never_takes_less_time(lengths, layout, micro, attention):
    attends = f"training.padded_attention={str(attention).lower()}"
    for less, more in pairwise(by_padding(layout, lengths, *micro, attends)):
        assert less <= more * (1 + 1e-12)


def test_what_hides_behind_the_host_may_leave_less_of_computing(monkeypatch):
    """A GPU that waits for its host waits less where its tokens take longer to experts in other
    servers: that time is a fabric's, not computing. Both together are never less.
    """
    lengths, layout = [1.0] * 60 + [100.0] * 4, "experts between servers"
    computing = list(by_padding(layout, lengths, *PAIRS))
    assert computing[2] < computing[0]
    whole = timing.trainer_of
    monkeypatch.setattr(timing, "trainer_of", lambda w: replace(whole(w), between_servers=True))
    for less, more in pairwise(by_padding(layout, lengths, *PAIRS)):
        assert less <= more * (1 + 1e-12)


@settings(deadline=None, max_examples=40)
@given(LENGTHS, st.sampled_from([PAIRS, ()]))
def test_tokens_to_experts_in_other_servers_hide_behind_the_host_alone(lengths, micro):
    """Where no GPU waits for its host, more padding is never less for experts between servers."""
    made = []
    for kind in PADDINGS:
        w = job("experts between servers", f"training.padding={kind}", *micro)
        one = trained(w, lengths)
        waits = any(np.any(p.host) for b in one.mini_batches for p in (b.ahead, b.back))
        made.append((seconds(w, one), waits or np.any(one.log_prob_pass.host)))
    for (less, waits), (more, _) in pairwise(made):
        assert waits or less <= more * (1 + 1e-12)
