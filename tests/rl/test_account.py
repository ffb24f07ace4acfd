"""Every second of a step by the term that made it: terms add up to the plan's seconds, and each
number behind them says where it is from.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_jobs import JOBS, imported

from rfabric.compute import roofline
from rfabric.errors import RFabricError, RunError
from rfabric.rl import accounts, cited, plan_of, read_recipe, recipe_names, step_terms, trace_of
from rfabric.rl.account import sources_of
from rfabric.rl.phases import step_of
from rfabric.rl.sources import _comments, source_of

SMALL = ("generation.batch=64", "generation.group_size=4")
AGENTS = (
    "generation.turns=4",
    "generation.max_response=4096",
    "generation.environment_latency=20s",
    "generation.observation=100",
    "environments.servers=4",
    "environments.rewards=true",
)
SHORT = (  # micro-batches
    "training.ep=8",
    "training.micro_batch_tokens=2048",
    "generation.max_prompt=1024",
    "generation.max_response=1024",
)
# at least one of each kind of job: what only some of them have must have its term
KINDS = {
    "decode: weights from HBM": ("grpo-64",),
    "decode: experts from HBM": ("grpo-64-moe", "generation.ep=8"),
    "decode: states through HBM": ("grpo-64", "model=Nemotron-H-8B", "generation.context=20000"),
    "decode: matmul": ("grpo-64-h20", "generation.batch=2048", "generation.max_response=512"),
    "decode: collectives in servers": ("grpo-64-moe", "generation.ffn_gpus=4"),
    "prefill: attention": ("grpo-64", "pipeline=async", "staleness=4"),
    "prompts read apart: matmul": ("grpo-64", "generation.prefill_gpus=16"),
    "network: KV": ("grpo-64", "generation.prefill_gpus=16"),
    "between turns: environments": ("grpo-64", *AGENTS),
    "network: reward": ("grpo-64", *AGENTS),
    "network: tensor": ("grpo-64", "cluster.gpus_per_server=4", "training.tp=8"),
    "network: context": ("grpo-64-moe", "training.cp=16", "training.tp=1"),
    "network: all-to-all": ("grpo-64-moe", "training.skew=1", "training.tp=2"),
    "network: gradients": ("grpo-64", "training.mini_batches=2", "training.epochs=2"),
    "network: sharded layers": ("grpo-64", "training.optimizer=sharded", "cluster.nic=10Gbit/s"),
    "network: fan-out": ("grpo-64", "weight_sync.strategy=rank0"),
    "forward-backward: pipeline bubble": ("grpo-64", "training.pp=2", "training.vp=2"),
    "forward-backward: expert collectives in servers": ("grpo-64-moe", "training.ep=8"),
    "forward-backward: context collectives in servers": (
        "grpo-64-moe",
        "training.cp=4",
        "training.tp=2",
        "training.context_exchange=ulysses",
    ),
    "log-prob: host": ("grpo-64-moe", *SHORT),
    "forward-backward: host": ("grpo-64-moe", *SHORT, "training.recompute=full"),
    "log-prob: matmul": ("grpo-64", "efficiency.training=0.3"),
    "optimizer: Adam": ("grpo-64", "training.host_optimizer=true"),
    "software: compare": ("grpo-64", "weight_sync.strategy=delta"),
    "software: load": ("grpo-64", "weight_sync.gather=bucket"),
    "software: pack": ("grpo-64", "weight_sync.strategy=p2p"),
    "software: efficiency": ("grpo-64", "weight_sync.efficiency=0.2"),
    "software: reshard": ("grpo-64", "placement=colocated"),
    "software: experts": ("grpo-64-moe", "placement=colocated", "training.ep=8"),
    "software: setup": ("grpo-64", "pipeline=one-step-off", "training.recompute=full"),
}


ONE = ["training.mini_batches=1"]
UNEVEN = [*ONE, "training.mini_batch_responses=384", "training.epochs=2"]


def small(name, *overrides):
    return read_recipe(name, [*SMALL, *overrides])


def seconds_of(w):
    """Part and term -> seconds, of all phases."""
    return {
        f"{term.part}: {term.term}": term.seconds for made in accounts(w) for term in made.terms
    }


def check(w, seed=0):
    """What must hold of the account of any job."""
    made = accounts(w, seed)
    windows = {p.kind: p.window for p in plan_of(w, seed).phases if p.step == 0}
    assert {account.phase for account in made} == set(windows)
    for account in made:
        names = [(term.part, term.term) for term in account.terms]
        assert len(names) == len(set(names))
        assert all(term.seconds > 1e-12 * account.seconds for term in account.terms)
        total = sum(term.seconds for term in account.terms)
        assert total == pytest.approx(windows[account.phase], rel=1e-9)
        assert all(term.sources for term in account.terms)
    assert all(len(source.text) > 4 for source in sources_of(w, made).values())


@pytest.mark.parametrize("name", [name for name in recipe_names() if "65536" not in name])
def test_terms_of_a_recipe_add_up(name):
    check(read_recipe(name))


def test_a_smaller_last_update_has_what_is_left():
    """1,024 responses are 384, 384 and 256, twice; every update sends all gradients."""
    w = read_recipe("grpo-64", UNEVEN)
    assert w.updates == [384, 384, 256]
    assert [len(part) for part in w.in_updates(np.ones(1000))] == [384, 384, 232]
    batches = step_of(w, 0, 0).trained.mini_batches
    assert len(batches) == 6
    whole = step_of(read_recipe("grpo-64", ONE), 0, 0).trained.mini_batches[0]
    assert sum(batch.tokens.sum() for batch in batches[:3]) == whole.tokens.sum()
    check(w)
    assert gradients(w) == 6 * gradients(read_recipe("grpo-64", ONE))


def gradients(w):
    trace = trace_of(w)
    return int(trace.total[trace.communication()[0, "training", "reduce-scatter"]].sum())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.mini_batch_responses=384"], "mini_batches: 4 beside mini_batch_responses 384, "
         "which makes 3 updates of 1024 responses"),
        (["training.mini_batch_responses=1023", "training.mini_batches=1"],
         "mini_batch_responses: 1023 leaves 1 responses the last update for"),
    ],
)  # fmt: skip
def test_updates_that_are_said_twice_or_too_small_are_refused(settings, message):
    with pytest.raises(RFabricError, match=message):
        read_recipe("grpo-64", settings)


@pytest.mark.parametrize(("term", "job"), KINDS.items(), ids=str)
def test_every_kind_of_job_has_its_term(term, job):
    w = small(*job)
    check(w, 1)
    assert term in seconds_of(w)


@pytest.mark.skipif(not JOBS, reason="the jobs are not part of the repository")
@pytest.mark.parametrize("path", JOBS[::12], ids=str)
def test_terms_of_a_real_job_add_up(path):
    w = imported(path)
    if w is not None:
        check(w)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["grpo-64", "grpo-64-moe"]),
    pipeline=st.sampled_from(["sync", "one-step-off", "bounded-staleness", "async"]),
    parallel=st.sampled_from([(4, 1, 1), (2, 2, 1), (4, 2, 1), (4, 1, 2), (8, 1, 1), (1, 4, 4)]),
    optimizer=st.sampled_from(["distributed", "replicated", "zero1", "zero2", "sharded"]),
    server=st.sampled_from([2, 4, 8]),
    nic=st.sampled_from([1, 25, 400]),
    turns=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_terms_add_up_whatever_the_job(
    name, pipeline, parallel, optimizer, server, nic, turns, seed
):
    tp, pp, cp = parallel
    overrides = [
        f"pipeline={pipeline}",
        f"training.tp={tp}",
        f"training.pp={pp}",
        f"training.cp={cp}",
        f"training.optimizer={optimizer}",
        f"cluster.gpus_per_server={server}",
        f"cluster.nic={nic}Gbit/s",
        f"generation.turns={turns}",
        "generation.environment_latency=3s",
    ]
    try:
        w = small(name, *overrides)
    except RFabricError:
        return  # it does not fit
    check(w, seed)


def test_a_slower_part_lengthens_its_own_terms_alone(monkeypatch):
    before = seconds_of(small("grpo-64"))
    monkeypatch.setattr(roofline, "HOST_STEP_S", 2 * roofline.HOST_STEP_S)
    roofline.step_of.cache_clear()
    try:
        after = seconds_of(small("grpo-64"))
    finally:
        monkeypatch.undo()
        roofline.step_of.cache_clear()
    changed = {term for term in before if after[term] != pytest.approx(before[term])}
    assert changed == {"prefill: host", "decode: host"}
    assert 1.5 < after["decode: host"] / before["decode: host"] < 2


def test_half_the_hbm_takes_twice_as_long_to_read():
    fast, slow = (seconds_of(small("grpo-64", f"efficiency.hbm={x}")) for x in (0.8, 0.4))
    for term in ("weights from HBM", "KV cache from HBM", "activations through HBM"):
        assert slow[f"decode: {term}"] == pytest.approx(2 * fast[f"decode: {term}"], rel=1e-6)
    for term in ("kernel launches", "collectives in servers"):
        assert slow[f"decode: {term}"] == pytest.approx(fast[f"decode: {term}"], rel=1e-6)


def test_a_tenth_of_the_cards_takes_ten_times_as_long():
    fast, slow = (seconds_of(small("grpo-64", f"cluster.nic={x}Gbit/s")) for x in (400, 40))
    for term in ("weights", "parameters", "experience"):
        assert slow[f"network: {term}"] == pytest.approx(10 * fast[f"network: {term}"])
    assert slow["decode: weights from HBM"] == fast["decode: weights from HBM"]


def test_a_term_that_is_left_out_is_found(monkeypatch):
    beside = {name: term for name, term in step_terms.OVERHEADS.items() if name != "collectives"}
    monkeypatch.setattr(step_terms, "OVERHEADS", beside)
    with pytest.raises(RunError, match=r"terms of generation add up to .* the plan says"):
        accounts(small("grpo-64"))


def named():
    """Every number that any term may rest on, with its braces filled for some job."""
    tables = cited._ENGINE, cited._PASSES, cited._NETWORK, cited._SOFTWARE
    names = {name for table in tables for names in table.values() for name in names}
    names |= {*cited._NIC, *cited._ADAM, *cited._HOST_ADAM, *cited._TURNS}
    jobs = (
        small("grpo-64-moe"),
        small("grpo-64", "weight_sync.gather=bucket"),
        small("grpo-64", "weight_sync.strategy=scatter"),
        small("grpo-64", "cluster.gpu=H100"),
    )
    words = [cited._words(w) for w in jobs]
    filled = {name.format(**each) for name in names for each in words}
    return sorted({one for name in filled for one in name.split("|")})


def test_every_number_that_a_term_may_rest_on_says_where_it_is_from():
    w = small("grpo-64")
    for name in named():
        source = source_of(w, name)
        known = ("recipe", "default", "catalog", "formula", "fitted", "assumed", "stated")
        assert source.basis in known and len(source.text) > 4, name


def test_sources_are_read_where_numbers_stand():
    w = small("grpo-64", "training.grad_dtype=fp32")
    host = source_of(w, "compute.roofline.HOST_STEP_S")
    assert (host.value, host.basis) == (roofline.HOST_STEP_S, "fitted")
    assert "silicon_sample.csv" in host.text
    pack = source_of(w, "compute.sync_time.Software.pack")
    assert pack.value == 9e9 and pack.text.startswith("one sender casts") and "7.3e9" in pack.text
    nic = source_of(w, "catalog.H100.nic_bps")
    assert (nic.value, nic.basis) == (400e9, "catalog") and "NDR 400" in nic.text
    dtype = source_of(w, "recipe.training.grad_dtype")
    assert (dtype.value, dtype.basis) == ("fp32", "recipe")
    assert source_of(w, "recipe.efficiency.hbm").basis == "default"
    bubble = source_of(w, "compute.training.bubble_share")
    assert bubble.value is None and "fill and drain" in bubble.text


def test_what_the_recipe_says_is_its_own_source():
    plain, said = (
        {name for made in accounts(w) for term in made.terms for name in term.sources}
        for w in (small("grpo-64"), small("grpo-64", "efficiency.hbm=0.7"))
    )
    assert "recipe.efficiency.hbm" not in plain and "compute.gpus.HBM_SHARE" in plain
    assert "recipe.efficiency.hbm" in said


def test_a_number_without_words_beside_it_is_refused():
    with pytest.raises(RFabricError, match="sync_time.PACK: nothing stands beside it; say where"):
        source_of(small("grpo-64"), "compute.sync_time.PACK")


def test_comments_above_and_behind_a_constant_are_its_words(tmp_path, monkeypatch):
    (tmp_path / "constants_of_a_test.py").write_text(
        "# above,\n# two lines\nONE, TWO = 1, 2  # behind\n\nX = 3\n# of Z alone\nZ = 4\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import constants_of_a_test

    words = _comments(constants_of_a_test)
    assert words["ONE"] == words["TWO"] == "above, two lines behind"
    assert (words["X"], words["Z"]) == ("", "of Z alone")
