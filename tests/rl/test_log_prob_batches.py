"""Micro-batches of the passes for log-probabilities, which jobs make larger than those of updates:
sharded layers are gathered, and pipelines filled, as often as there are.
"""

import pytest
import yaml

from rfabric.errors import RFabricError
from rfabric.rl import explain, flows, read_recipe, trace_of
from rfabric.rl.imports import import_job
from rfabric.rl.phases import step_of

SHARDED = "training.optimizer=sharded", "training.recompute=full", "training.tp=1"
EACH = "training.micro_batch_sequences=1"


def job(*more):
    return read_recipe("grpo-64", ["generation.batch=32", "generation.group_size=8", *more])


@pytest.mark.parametrize(("sequences", "micro"), [(0, 8), (2, 4), (8, 1)])
def test_a_pass_takes_as_many_sequences_at_once_as_it_is_told(sequences, micro):
    """256 sequences on 32 ranks: 8 each."""
    w = job(*SHARDED, EACH, f"training.log_prob_micro_batch_sequences={sequences}")
    trained, t = step_of(w, 0, 0).trained, w.training
    assert trained.log_prob_micro_batches == micro
    updates = sum(b.micro_batches for b in trained.mini_batches)
    assert updates == 8
    rows = trace_of(w).communication()[0, "training", "all-gather"]
    gather, again = (sum(f.size) for f in (flows.sharded(w)["all-gather"], flows.gathered_again(w)))
    passes = t.log_prob_passes
    sent = (updates + passes) * gather + (updates + passes * (micro - 1)) * again
    trace = trace_of(w)
    assert trace.total[rows].sum() == pytest.approx(sent, rel=1e-6)


def test_a_budget_of_tokens_of_their_own():
    longest = job().generation.longest
    w = job(EACH, f"training.log_prob_micro_batch_tokens={longest}")
    ranks = step_of(w, 0, 0).trained.log_prob_tokens
    assert step_of(w, 0, 0).trained.log_prob_micro_batches == -(-ranks.max() // longest)
    said = f"{longest - 1} x cp 1 cannot hold a sequence of {longest} tokens"
    with pytest.raises(RFabricError, match=said):
        job(f"training.log_prob_micro_batch_tokens={longest - 1}")


def test_a_longer_pass_fills_a_pipeline_less_often():
    more = "training.pp=4", "training.tp=2", "training.recompute=full", EACH
    one, four = (job(*more, f"training.log_prob_micro_batch_sequences={n}") for n in (1, 4))
    seconds = [
        next(item.seconds for item in explain(w) if item.item == "log-prob") for w in (one, four)
    ]
    assert seconds[0] < seconds[1]


ROLLOUT, ACTOR, REF = (f"actor_rollout_ref.{part}" for part in ("rollout", "actor", "ref"))
VERL = f"""python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  data.train_batch_size=128 data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.model.path=/Qwen3-8B \\
  {ROLLOUT}.n=8 {ROLLOUT}.tensor_model_parallel_size=2 {ACTOR}.ppo_mini_batch_size=32 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 {{more}}
"""
DYNAMIC, WHOLE = f"{ACTOR}.use_dynamic_bsz=True", f"{ACTOR}.ppo_micro_batch_size_per_gpu=2"
SAME = f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"


@pytest.mark.parametrize(
    ("words", "tokens", "sequences"),
    [
        ((DYNAMIC,), None, None),
        ((DYNAMIC, f"{ROLLOUT}.log_prob_max_token_len_per_gpu=16384"), None, None),
        ((DYNAMIC, f"{ROLLOUT}.log_prob_max_token_len_per_gpu=32768"), 32768, None),
        ((DYNAMIC, f"{ROLLOUT}.log_prob_use_dynamic_bsz=False", f"{SAME}=4"), None, 4),
        ((WHOLE, f"{SAME}=2"), None, None),
        ((WHOLE, f"{SAME}=16"), None, 16),
        ((WHOLE, f"{ROLLOUT}.log_prob_micro_batch_size=64"), None, 4),  # of 16 ranks
        ((WHOLE, f"{REF}.log_prob_micro_batch_size_per_gpu=16"), None, None),
        (
            (
                WHOLE,
                f"{REF}.log_prob_micro_batch_size_per_gpu=16",
                f"{ACTOR}.use_kl_loss=True",
                "algorithm.rollout_correction.bypass_mode=True",
            ),
            None,
            16,
        ),
    ],
)
def test_verls_words_for_them(tmp_path, words, tokens, sequences):
    (path := tmp_path / "run.sh").write_text(VERL.format(more=" ".join(words)))
    made = import_job("verl", path)
    training = made.recipe()["training"]
    keys = (f"log_prob_micro_batch_{kind}" for kind in ("tokens", "sequences"))
    assert tuple(training.get(key) for key in keys) == (tokens, sequences)
    assert not any("log_prob" in said for said in made.unmapped)


@pytest.mark.parametrize("reference", [2, 16])
def test_two_passes_that_differ_are_spoken_of(tmp_path, reference):
    words = WHOLE, f"{SAME}=2", f"{REF}.log_prob_micro_batch_size_per_gpu={reference}"
    text = VERL.format(more=" ".join((*words, f"{ACTOR}.use_kl_loss=True")))
    (path := tmp_path / "run.sh").write_text(text)
    notes = import_job("verl", path).notes
    assert any("micro-batches of the reference's pass" in n for n in notes) == (reference == 16)


@pytest.mark.parametrize(
    ("packing", "key", "count"), [(False, "sequences", 4), (True, "tokens", 2048 * 8)]
)
def test_nemos_words_for_them(tmp_path, packing, key, count):
    policy = {
        "model_name": "Qwen/Qwen3-8B",
        "max_total_sequence_length": 4096,
        "train_micro_batch_size": 1,
        "logprob_batch_size": 4,
        "megatron_cfg": {"enabled": True, "context_parallel_size": 2},
        "generation": {},
    }
    if packing:
        policy["sequence_packing"] = {
            "enabled": True,
            "train_mb_tokens": 8192,
            "logprob_mb_tokens": 32768,
        }
    grpo = {"num_prompts_per_step": 32, "num_generations_per_prompt": 8}
    values = {"policy": policy, "grpo": grpo, "cluster": {"gpus_per_node": 8, "num_nodes": 2}}
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
    training = import_job("nemo-rl", path).recipe()["training"]
    assert training[f"log_prob_micro_batch_{key}"] == count


def test_slimes_word_for_them(tmp_path):
    text = """python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate \\
      --hf-checkpoint /ckpt/Qwen3-8B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
      --rollout-max-response-len 4096 --global-batch-size 256 --rollout-num-gpus-per-engine 2 \\
      --use-dynamic-batch-size --max-tokens-per-gpu 8192 --log-probs-max-tokens-per-gpu 16384
    """
    (path := tmp_path / "run.sh").write_text(text)
    training = import_job("slime", path).recipe()["training"]
    assert training["log_prob_micro_batch_tokens"] == 16384
