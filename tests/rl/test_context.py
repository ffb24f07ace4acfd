"""Context parallelism over servers: what rings and all-to-alls send, worked out by hand, and what
of it computing hides.
"""

import pytest
from jobs import recipe
from test_jobs import check, check_explained

from rfabric.compute.context_exchange import context_bytes
from rfabric.compute.named import find_model
from rfabric.errors import RFabricError, RunError
from rfabric.rl import explain, flows, read_recipe
from rfabric.rl.lowering import trace_of
from rfabric.rl.phases import step_of
from rfabric.schedulers.table import scheduled

FEW = ("generation.batch=64", "generation.group_size=4", "training.mini_batches=1")
TWO = (*FEW, "training.tp=8", "training.cp=2")  # a rank over two servers of 8
ULYSSES = ("training.tp=4", "training.cp=5", "training.context_exchange=ulysses")


def sent(w) -> int:
    """Bytes of the first step's context parallelism."""
    trace = trace_of(w)
    rows = [rows for key, rows in trace.communication().items() if key[2] == "context"]
    return sum(int(trace.total[row].sum()) for row in rows)


def tokens(w) -> float:
    trained = step_of(w, 0, 0).trained
    ahead = trained.log_prob_tokens.sum() * w.training.log_prob_passes
    return float(ahead), float(sum(batch.tokens.sum() for batch in trained.mini_batches))


def test_a_ring_over_two_servers_sends_keys_and_values_both_ways():
    """Qwen2.5-14B: 8 heads of 128 columns, keys and values, bf16, 48 layers. Each of two ranks
    sends the other its half, forward once, backward twice.
    """
    w = recipe(*TWO)
    ahead, updates = tokens(w)
    token = 2 * 8 * 128 * 2 * 48
    assert sent(w) == pytest.approx(token * (ahead + 3 * updates), rel=1e-6)
    again = recipe(*TWO, "training.recompute=full")
    assert sent(again) == pytest.approx(token * (ahead + 4 * updates), rel=1e-6)


def test_ulysses_sends_queries_keys_values_and_output():
    """40 query heads, 20 of keys (8, copied so that each of 4 x 5 ranks has one): a GPU sends 4/5
    of what it holds; here, with one rank a server, all of it to other servers.
    """
    w = recipe(*FEW, *ULYSSES, "cluster.gpus_per_server=4", "cluster.training_gpus=40",
               "cluster.generation_gpus=40")  # fmt: skip
    ahead, updates = tokens(w)
    token = (40 + 40 + 2 * 20) * 128 * 2 * 48 * 4 / 5
    assert sent(w) == pytest.approx(token * (ahead + 2 * updates), rel=1e-6)


def test_inside_a_server_nothing_is_sent():
    w = recipe(*FEW, "training.tp=4", "training.cp=2")
    assert sent(w) == 0
    assert not [item for item in explain(w) if item.item == "context"]


def test_a_ring_turns_beside_attention():
    """Ulysses waits for all of its bytes; a ring only for what attention does not cover."""
    over = ("cluster.gpus_per_server=4", "training.tp=4", "training.cp=2")
    steps = {}
    for kind in ("ring", "ulysses"):
        w = recipe(*FEW, *over, f"training.context_exchange={kind}")
        made = scheduled(w)
        wire = sum(item.seconds for item in explain(w) if item.item == "context")
        training = next(p for p in made.plan.phases if p.kind == "training")
        steps[kind] = training.comm, wire
    comm, wire = steps["ulysses"]
    assert comm >= wire > 0
    comm, wire = steps["ring"]
    assert comm < wire


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo-64", TWO),
        ("grpo-64", (*FEW, "cluster.gpus_per_server=4", "training.tp=4", "training.cp=4")),
        ("grpo-64", (*FEW, "training.tp=4", "training.cp=4", "training.pp=2")),
        (
            "grpo-64",
            (*FEW, "cluster.training_gpus=48", "cluster.generation_gpus=48", "training.tp=2",
             "cluster.gpus_per_server=6", "training.cp=4", "generation.tp=2",
             "training.recompute=full"),
        ),
        ("grpo-64-moe", (*FEW, "training.tp=2", "training.cp=8")),
        ("grpo-64-moe", (*FEW, "training.tp=2", "training.cp=8", "training.skew=1")),
        ("grpo-64-moe", (*FEW, "training.tp=2", "training.cp=8", "training.overlap_batches=true")),
        ("grpo-64-moe", (*FEW, "training.tp=2", "training.cp=16",
                         "training.context_exchange=ulysses")),
    ],
)  # fmt: skip
def test_a_job_over_servers_adds_up(name, settings):
    made = scheduled(read_recipe(name, settings))
    assert "context" in {key[2] for key in made.trace.communication()}
    check(made)
    check_explained(made)


def test_bytes_are_counted_twice(monkeypatch):
    """A flow too small is found by the formula, which reads no flow."""
    whole = flows.context_training
    monkeypatch.setattr(flows, "context_training", lambda w, t, a, b: whole(w, t, a, b // 2))
    with pytest.raises(RunError, match="training/0 context"):
        trace_of(recipe(*TWO, "generation.batch=32"))


def test_latent_attention_sends_the_keys_of_all_heads():
    model = find_model("DeepSeek-V3")
    assert context_bytes("ring", model, 8, 4) == 3 * 128 / 8 * (128 + 64 + 128) * 2


def test_ulysses_needs_a_head_for_each_rank():
    with pytest.raises(RFabricError, match="training.cp: ulysses deals the 10 heads .* cp 4"):
        recipe(*FEW, "training.tp=4", "training.cp=4", "training.context_exchange=ulysses")


# --- what else training may do beside the policy's one pass


@pytest.mark.parametrize("more", ["training.critic=true", "training.epochs=2"])
def test_a_second_pass_sends_and_computes_as_much_again(more):
    once, twice = (scheduled(read_recipe("grpo-64", [*FEW, *set_])) for set_ in ((), (more,)))
    check(twice)
    check_explained(twice)
    for label in ("reduce-scatter", "all-gather"):
        a, b = (
            sum(int(m.trace.total[r].sum()) for k, r in m.trace.communication().items()
                if k[1:] == ("training", label))
            for m in (once, twice)
        )  # fmt: skip
        assert b == pytest.approx(2 * a, rel=1e-6)


def test_adam_on_the_host_frees_the_hbm_and_takes_longer():
    gpu, host = (recipe(*FEW, *set_) for set_ in ((), ("training.host_optimizer=true",)))
    assert host.training_bytes["optimizer"] == 0 < gpu.training_bytes["optimizer"]
    assert step_of(host, 0, 0).trained.optimizer > step_of(gpu, 0, 0).trained.optimizer
    check(scheduled(host))
