"""Continuous batching: events agree with a token-by-token oracle, closed forms hold, measured
serving is within its bounds.
"""

import csv
import dataclasses
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.compute.gpus import GPUS
from rfabric.compute.named import find_model
from rfabric.compute.requests import Requests, closed_loop, in_turns, independent
from rfabric.compute.roofline import DecodeStep, Server, step_of
from rfabric.compute.serving import ENGINES, Batching, ServingSession, serve
from rfabric.errors import RFabricError
from rfabric.rl import read_recipe
from rfabric.rl.lengths import SIDES, Lengths
from rfabric.rl.timing import decode_step, prefill_seconds, replica_time, server_of
from rfabric.study.validate import rl_logs, serving, serving_rows

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the measured inputs do not lie beside the checkout"
)
STEP = DecodeStep(
    weights_s=1e-2,
    kv_s_per_token=1e-6,
    matmul_s_per_response=1e-4,
    attention_s_per_token=1e-7,
    overhead_s=1e-3,
    overhead_s_per_token=1e-5,
    matmul_s_per_prompt_token=2e-4,
    attention_s_per_pair=1e-7,
    own_s_per_response=3e-5,
)


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(("prompt", "output"), [(9, 1), (5, 5), (1, 9)])
def test_a_request_that_fills_the_cache_alone_is_served(engine, prompt, output):
    served = serve(
        STEP, prompt + output, ENGINES[engine], independent(np.full(3, prompt), np.full(3, output))
    )
    assert (served.end > 0).all() and served.peak_kv_tokens <= prompt + output


# --- the step -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 4000), st.integers(0, 80), st.integers(1, 200))
def test_steps_with_windows_are_the_sum_of_single_steps(n, context, steps, window):
    step = dataclasses.replace(STEP, window_kv_s_per_token=3e-6, window=window)
    overhead = step.overhead_s + (step.overhead_s_per_token + step.own_s_per_response) * n
    weights, kv, window_kv = step.weights_s, step.kv_s_per_token, step.window_kv_s_per_token
    matmul, attention = step.matmul_s_per_response, step.attention_s_per_token
    single = sum(
        max(weights + kv * c + window_kv * min(c, n * window), matmul * n + attention * c)
        + overhead
        for c in range(context, context + n * steps, n)
    )
    # Where a window fills within a step, that step counts as either all growing or all full: at
    # most n tokens.
    assert step.seconds(n, context, steps) == pytest.approx(
        single, rel=1e-9, abs=step.window_kv_s_per_token * n
    )


def test_a_step_without_prefill_is_a_decode_step():
    assert STEP.mixed(7, 3000, 0, 0) == pytest.approx(STEP.seconds(7, 3000))


def test_prefill_of_a_long_prompt_takes_its_flops():
    server = Server(find_model("Qwen3-32B"), GPUS["H100"], tp=4)
    tokens = 16384
    model = server.model
    matmul = (
        2 * (model.matmul_parameters - model.vocab * model.hidden) * tokens
        + model.attention_flops_per_pair * tokens**2 / 2
    )
    at_least = matmul / 4 / server.flops("bf16")
    assert at_least < step_of(server).mixed(0, 0, tokens, tokens**2 / 2) < 1.5 * at_least


@pytest.mark.parametrize("name", ["Qwen3-32B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-120b"])
def test_more_gpus_and_smaller_weights_decode_faster(name):
    model = find_model(name)
    times = [
        step_of(Server(model, GPUS["H200"], tp=tp)).seconds(64, 64 * 2000) for tp in (1, 2, 4, 8)
    ]
    assert times == sorted(times, reverse=True)
    small = Server(model, GPUS["H200"], tp=8, weights="fp8", expert_weights="fp8")
    assert step_of(small).seconds(1, 100) < step_of(Server(model, GPUS["H200"], tp=8)).seconds(
        1, 100
    )
    assert small.kv_capacity_tokens > Server(model, GPUS["H200"], tp=8).kv_capacity_tokens


def test_attention_replicas_share_experts_and_send_tokens_to_them():
    model = find_model("DeepSeek-V3")
    whole = Server(model, GPUS["H200"], tp=8, weights="fp8_block", expert_weights="fp8_block")
    apart = dataclasses.replace(whole, tp=1, dp=8, ep=8)
    assert step_of(apart).experts_s == pytest.approx(
        step_of(whole).experts_s
    )  # each GPU holds an eighth of the experts
    assert step_of(apart).weights_s > 4 * step_of(whole).weights_s  # and all of the rest
    assert step_of(apart).kv_s_per_token == pytest.approx(
        step_of(whole).kv_s_per_token / 8
    )  # a latent cache is not cut by tp, but dealt by dp
    cut = dataclasses.replace(apart, ep=1)
    assert (
        step_of(cut).overhead_s_per_token >= step_of(apart).overhead_s_per_token
    )  # experts that are cut need every token on every GPU


def test_a_pipeline_reads_all_weights_and_deals_out_responses():
    server = Server(find_model("Qwen3-32B"), GPUS["H100"], tp=2)
    staged = dataclasses.replace(server, pp=2)
    assert step_of(staged).weights_s == step_of(server).weights_s
    assert step_of(staged).matmul_s_per_response == pytest.approx(
        step_of(server).matmul_s_per_response / 2
    )
    assert step_of(staged).overhead_s > step_of(server).overhead_s
    assert staged.kv_capacity_tokens > 2 * server.kv_capacity_tokens


def test_a_gpu_without_fp8_multiplies_in_bf16():
    server = Server(find_model("Qwen3-32B"), GPUS["A100"], weights="fp8")
    assert server.flops("fp8") == server.flops("bf16")
    assert server.multiplied("mxfp4") == "bf16"
    assert dataclasses.replace(server, gpu=GPUS["B200"]).multiplied("mxfp4") == "fp8"


def test_a_replica_holds_the_kv_that_its_recipe_is_checked_by():
    w = read_recipe("grpo-64")
    assert server_of(w).kv_capacity_tokens == w.kv_capacity_tokens


# --- batching -------------------------------------------------------------------------------------


def token_by_token(step: DecodeStep, capacity: int, b: Batching, requests: Requests):
    """The oracle: the same rules played one step at a time, every token by hand.

    What it returns is (first, end) by request.
    """
    n = len(requests)
    prompt, group = requests.prompt.tolist(), requests.group.tolist()
    target = [p + o for p, o in zip(prompt, requests.output.tolist(), strict=True)]
    made, computed = list(prompt), [0] * n  # context so far, and how much of it is in the cache
    first, end, now = [None] * n, [None] * n, 0.0
    waiting, inside, decoding, ready = list(range(n)), [], [], set()

    def held():
        shared = {group[i] for i in inside if group[i] >= 0}
        own = sum(room[i] - (prompt[i] if group[i] >= 0 else 0) for i in inside)
        return own + sum(prompt[next(i for i in inside if group[i] == g)] for g in shared)

    room = [0] * n
    while any(e is None for e in end):
        while waiting and len(inside) < b.max_num_seqs:
            i = waiting[0]
            shared = group[i] >= 0 and any(group[j] == group[i] for j in inside)
            new = made[i] + 1 - (prompt[i] if shared else 0)
            to_come = sum(target[j] - made[j] for j in [*inside, i])
            if held() + new + b.reserve * to_come > capacity * (1 - b.watermark * bool(inside)):
                break
            inside.append(waiting.pop(0))
            room[i], computed[i] = made[i] + 1, 0
        filling = [i for i in inside if i not in decoding]
        old = list(decoding) if not (filling and b.prefill_first) else []
        budget = max(b.batched_tokens - len(old), 1)
        tokens, pairs, done = 0, 0.0, []
        for i in filling:
            if tokens >= budget:
                break
            if group[i] in ready:
                computed[i] = max(computed[i], min(prompt[i], made[i] - 1))
            need = made[i] - computed[i]
            if not b.chunked and tokens and tokens + need > budget:
                break
            part = min(need, budget - tokens) if b.chunked else need
            pairs += part * (computed[i] + part / 2)
            tokens, computed[i] = tokens + part, computed[i] + part
            if part < need:
                break
            done.append(i)
            if group[i] >= 0:
                ready.add(group[i])

        while old and held() + min(len(old), len(decoding)) > capacity and len(inside) > 1:
            i = inside.pop()
            if i in decoding:
                decoding.remove(i)
            waiting.insert(0, i)
            ready.intersection_update({group[j] for j in inside})
        old = [i for i in old if i in decoding]
        context = sum(made[i] for i in old)
        if tokens:
            now += step.mixed(len(old), context, tokens, pairs)
        else:
            now += step.seconds(len(old), context)
        for i in old:
            made[i], room[i] = made[i] + 1, room[i] + 1
        for i in done:
            if i in inside:
                made[i] += 1
                decoding.append(i)
                first[i] = now if first[i] is None else first[i]
        for i in list(decoding):
            if made[i] == target[i]:
                end[i] = now
                decoding.remove(i)
                inside.remove(i)
        ready.intersection_update({group[j] for j in inside})
    return np.array(first), np.array(end)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=12),
    st.integers(100, 400),
    st.sampled_from([1, 3, 64]),
    st.sampled_from([7, 64, 8192]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1, 2, 4]),
)
def test_events_take_what_tokens_take(
    pairs, capacity, most, budget, alone, chunked, reserve, group
):
    """Preemption, chunks, shared prompts, reservations: as step after step gives them."""
    prompt, output = np.array(pairs).T
    prompt = prompt[np.arange(len(prompt)) // group * group]  # of a group, the same
    batching = Batching(budget, most, alone, chunked, reserve)
    requests = independent(prompt, output, group)
    served = serve(STEP, capacity, batching, requests)
    first, end = token_by_token(STEP, capacity, batching, requests)
    assert served.first == pytest.approx(first, rel=1e-9)
    assert served.end == pytest.approx(end, rel=1e-9)
    assert served.prefill + served.decode + served.idle == pytest.approx(served.seconds)
    assert served.peak_kv_tokens <= capacity


def test_a_request_alone_takes_its_prefill_and_its_steps():
    served = serve(STEP, 10**6, Batching(), independent(np.array([1000]), np.array([50])))
    prefill = STEP.mixed(0, 0, 1000, 1000**2 / 2)
    assert served.ttft == pytest.approx([prefill])
    assert served.seconds == pytest.approx(prefill + STEP.seconds(1, 1001, 49))
    assert served.tpot == pytest.approx([STEP.seconds(1, 1001, 49) / 49])


def test_a_full_cache_preempts_and_a_reservation_does_not():
    prompt, output = np.full(8, 100), np.full(8, 400)
    eager, careful = (
        serve(STEP, 1000, Batching(reserve=reserve), independent(prompt, output))
        for reserve in (0.0, 1.0)
    )
    assert eager.preempted > 0 and careful.preempted == 0
    assert eager.prefill > careful.prefill  # what was sent back is computed again
    assert max(eager.peak_kv_tokens, careful.peak_kv_tokens) <= 1000
    roomy = serve(STEP, 8 * 500, Batching(), independent(prompt, output))
    assert roomy.preempted == 0 and roomy.seconds < min(eager.seconds, careful.seconds)


def test_a_group_computes_its_prompt_once():
    prompt, output = np.full(8, 1000), np.full(8, 10)
    grouped, alone = (
        serve(STEP, 10**6, Batching(), independent(prompt, output, size)) for size in (8, 1)
    )
    assert grouped.peak_kv_tokens == 1000 + 8 * 10
    assert alone.peak_kv_tokens == 8 * 1010
    assert grouped.prefill < alone.prefill / 4


def test_prefill_first_finishes_all_prompts_before_any_decodes():
    requests = independent(np.full(6, 1000), np.full(6, 20))
    served = serve(STEP, 10**6, Batching(1000, prefill_first=True), requests)
    assert np.ptp(served.end) == 0 and len(set(served.first)) == 6
    mixed = serve(STEP, 10**6, Batching(1000), requests)
    assert mixed.end[0] < served.end[0]


def test_a_closed_loop_keeps_its_clients_busy():
    served = serve(STEP, 10**6, Batching(), closed_loop(4, 200, 50, 3, gap=0.25))
    arrival = served.arrival.reshape(3, 4)
    assert (arrival[0] == 0).all()
    assert arrival[1:] == pytest.approx(served.end.reshape(3, 4)[:-1] + 0.25)


def test_turns_wait_for_their_environment_and_find_their_context():
    prompt, output = np.array([500]), np.array([90])
    served = serve(STEP, 10**6, Batching(), in_turns(prompt, output, 3, 2.0, 40))
    assert served.idle == pytest.approx(4.0)
    once = serve(STEP, 10**6, Batching(), in_turns(prompt, output, 1, 2.0, 40))
    again = sum(STEP.mixed(0, 0, 40, 40 * (before + 20)) for before in (530, 600))
    assert served.prefill == pytest.approx(once.prefill + again)
    assert served.output.tolist() == [30, 30, 30]


def test_contexts_that_wait_give_way_and_are_computed_again():
    prompt, output = np.full(6, 500), np.full(6, 60)
    requests = in_turns(prompt, output, 2, 5.0, 10)
    roomy, tight = (
        serve(STEP, capacity, Batching(max_num_seqs=2), requests) for capacity in (10**6, 1200)
    )
    assert tight.prefill > 1.5 * roomy.prefill
    assert tight.peak_kv_tokens <= 1200


def test_a_response_of_fewer_tokens_than_turns_takes_fewer():
    requests = in_turns(np.array([10, 10]), np.array([2, 5]), 4, 1.0, 3)
    assert requests.output.sum() == 7
    assert np.count_nonzero(requests.after < 0) == 2
    assert len(requests) == 2 + 4
    assert serve(STEP, 1000, Batching(), requests).end.min() > 0


def test_a_replica_takes_what_its_recipe_says():
    w = read_recipe("grpo-64")
    prompts, outputs = np.repeat([300, 700], 8), np.arange(100, 1700, 100)
    single = replica_time(w, prompts, outputs)
    requests = independent(prompts, outputs, w.generation.group_size)
    assert (
        single.seconds == serve(decode_step(w), w.kv_capacity_tokens, Batching(), requests).seconds
    )
    said = [
        "generation.turns=4",
        "generation.environment_latency=30s",
        "generation.observation=100",
    ]
    asked = read_recipe("grpo-64", [*said, "training.micro_batch_tokens=20000"])
    turned = replica_time(asked, prompts, outputs)
    assert turned.idle > 0 and turned.seconds > single.seconds
    assert prefill_seconds(w, 2000) == decode_step(w).mixed(0, 0, 2000, 2000**2 / 2)


def test_requests_cost_events_not_tokens(monkeypatch):
    """So many calls of the closed sum, not one a token."""
    calls = 0
    steps = DecodeStep.seconds

    def counted(self, n, context, steps_=1):
        nonlocal calls
        calls += 1
        return steps(self, n, context, steps_)

    monkeypatch.setattr(DecodeStep, "seconds", counted)
    random = np.random.default_rng(0)
    output = random.integers(1, 4000, 5000)
    requests = independent(np.full(5000, 300), output)
    ServingSession(STEP, 10**6, Batching(max_num_seqs=256), requests).run()
    assert 5000 <= calls < 3 * 5000


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            lambda: Batching(batched_tokens=0),
            "batched_tokens: 0 must be 1 or more; engines use 2048",
        ),
        (
            lambda: independent(np.array([]), np.array([])),
            "requests: there are none; give a prompt",
        ),
        (lambda: independent(np.array([5]), np.array([0])), "requests: output 0 must be 1 or more"),
        (
            lambda: Requests([1], [1, 2], [-1], [0], [0], [-1]),
            (
                r"requests: 1 prompts, but "
                r"columns of \[2, 1, 1, 1, 1\]"
            ),
        ),
        (
            lambda: Requests([1, 1], [1, 1], [1, -1], [0, 0], [0, 0], [-1, -1]),
            "each must follow an earlier one",
        ),
        (
            lambda: Requests([1] * 3, [1] * 3, [-1, 0, 0], [0] * 3, [0] * 3, [-1] * 3),
            "two follow the same one",
        ),
        (
            lambda: serve(STEP, 100, Batching(), independent(np.array([90]), np.array([20]))),
            "one needs 110 tokens of KV cache, the server holds 100; use a larger tp",
        ),
        (
            lambda: read_recipe("grpo-64", ["generation.turns=9", "generation.observation=40000"]),
            "and 8 observations of 40000 exceeds the context of Qwen2.5-14B",
        ),
        (
            lambda: read_recipe("grpo-64", ["generation.environment_latency=fast"]),
            "environment_latency: 'fast' is not a quantity",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(broken, message):
    with pytest.raises(RFabricError, match=message):
        broken()


# --- lengths --------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("name", "side", "mean"),
    [
        ("azure_llm_2023_conv.csv", "prompt", 1154.7),
        ("azure_llm_2023_conv.csv", "output", 211.1),
        ("mooncake_fast25_conversation.csv", "output", 342.6),
        ("agentic_coding_requests.csv", "output", 445.0),
        ("servegen_deepseek_r1_output_tokens.csv", "output", 1286.2),
        ("servegen_raw/chunk-0-dataset.json", "prompt", 264.9),
    ],
)
def test_published_traces_are_read_as_they_are(name, side, mean):
    lengths = Lengths.read(DATA / "traces" / name, side)
    grid = (np.arange(10**5) + 0.5) / 10**5
    assert lengths.at(grid).mean() == pytest.approx(mean, rel=0.01)


FORMS = {
    "azure.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 "
        "18:15:46.68,374,44\n2023-11-16 18:15:50.99,396,0\n"
    ),
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,374,44,418,API log\n",
    "mooncake.csv": "timestamp_ms,input_length,output_length,n_hash_blocks\n0,374,44,14\n",
    "mooncake.jsonl": (
        '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [1, 2]}\n'
    ),
    "agents.csv": "trace,agent,t_s,in_tokens,out_tokens,think_time_s\na,main,0,374,44,3.0\n",
    "pandas.csv": ",TIMESTAMP,ContextTokens,GeneratedTokens\n0,2023-11-16,374,44\n",
    "europe.csv": "TIMESTAMP;ContextTokens;GeneratedTokens\n2023-11-16;374;44\n",
    "tabs.csv": "TIMESTAMP\tContextTokens\tGeneratedTokens\n2023-11-16\t374\t44\n",
    "vidur.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n",
    "usage.jsonl": '{"id": "x", "prompt_tokens": 374, "completion_tokens": 44}\n',
    "perf_individual_responses.json": (
        '[{"error_code": null, "number_input_tokens": 374, "number_output_tokens": 44}]'
    ),
    "vllm.json": (
        '{"backend": "vllm", "total_output_tokens": 44, "input_lens": [374, 374], '
        '"output_lens": [44, 0], "errors": ["", "timed out"]}'
    ),
    "sglang.jsonl": '{"completed": 1, "input_lens": [374], "output_lens": [44]}\n' * 2,
    "profile_export.jsonl": (
        '{"metadata": {}, "metrics": {"input_sequence_length": {"value": 374, "unit": "tokens"}, '
        '"output_sequence_length": {"value": 44}}}\n{"metadata": {}, "metrics": {}, "error": {}}\n'
    ),
    "chunk-3-dataset.json": (
        '{"0": {"input_tokens": "{374: 0.9, 999: 0.1}", "output_tokens": "{44: 1.0}"}}'
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_gives_prompts_and_responses(tmp_path, name):
    (tmp_path / name).write_text(FORMS[name])
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(FORMS[name].encode()))
    for file in (name, f"{name}.gz"):
        prompt, output = (Lengths.read(tmp_path / file, side) for side in SIDES)
        assert prompt.at(0.25) == 374 and output.at(0.25) == 44


def test_windows_of_servegen_begin_at_numbers(tmp_path):
    (file := tmp_path / "chunk-1-dataset.json").write_text(
        '{"noon": {"output_tokens": "{5: 1.0}"}}'
    )
    with pytest.raises(RFabricError, match="could not convert string to float: 'noon'"):
        Lengths.read(file)


def test_windows_of_servegen_count_by_their_rates(tmp_path):
    windows = '{"0": {"output_tokens": "{10: 1.0}"}, "600": {"output_tokens": "{20: 1.0}"}}'
    (tmp_path / "chunk-1-dataset.json").write_text(windows)
    (tmp_path / "chunk-1-trace.csv").write_text("0,1,,0,0\n600,2,,0,0\n1200,1,,0,0\n")
    lengths = Lengths.read(tmp_path / "chunk-1-dataset.json")
    assert lengths.at([0.2, 0.3]).tolist() == [10, 20]  # one of four, three of four


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "holds no rows; a length a row is needed"),
        ("a.csv", "input_length,output_length\n", "holds no rows"),
        (
            "a.csv",
            "input_length,output_length\n5,0\n",
            "all 1 rows of output_length are 0; a length is 1 or more",
        ),
        ("a.csv", "input_length,output_length\n5,many\n", "column output_length must hold numbers"),
        ("a.jsonl", "5\n", "each line must hold an object"),
        ("a.jsonl", "{\n", "Expecting property name"),
        ("a.json", '{"total_output_tokens": 9}', "run the benchmark with --save-detailed"),
        ("a.json", '{"input_lens": [5], "output_lens": []}', "no input_lens and output_lens of"),
        ("a.json", "[5]", "must hold an object"),
        ("a.json", "{}", "holds no windows of output_tokens; give ServeGen's"),
        ("a.json", '{"0": {"output_tokens": "{}"}}', "holds no windows of output_tokens"),
        ("a.json", '{"0": {"input_tokens": "{5: 1}"}}', "window 0 has no output_tokens such as"),
    ],
)
def test_traces_that_hold_no_lengths_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(RFabricError, match=message):
        Lengths.read(tmp_path / name)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 50), st.floats(0.02, 0.98), st.integers(60, 5000), st.integers(16, 4096))
def test_lengths_of_moments_have_them(least, share, most, count):
    mean = least + max(share, 1 / count) * (most - least)
    lengths = Lengths.of_moments("x", mean, least, most, count)
    assert lengths.tokens[0] >= least and lengths.tokens[-1] <= most
    assert (lengths.tokens[1:] + lengths.tokens[:-1]).mean() / 2 == pytest.approx(mean, rel=1e-3)
    assert lengths.at(2 ** (-1 / count)) == pytest.approx(most, rel=0.1)


def test_moments_that_contradict_are_refused():
    with pytest.raises(RFabricError, match="mean 600 must lie between 5 and 512, both 1 or more"):
        Lengths.of_moments("x", 600, 5, 512, 64)
    with pytest.raises(
        RFabricError, match="64 draws, one of 512, have a mean of 12.9219 at least, not 9"
    ):
        Lengths.of_moments("x", 9, 5, 512, 64)


def recorded(path):
    """Calls of recorded agents: each after its gap on the one before it, whose context is cached
    where it has grown.
    """
    with path.open(newline="", encoding="utf-8") as file:
        calls = [call for call in csv.DictReader(file) if int(call["out_tokens"])]
    prompt, output = (
        np.array([int(call[key]) for call in calls]) for key in ("in_tokens", "out_tokens")
    )
    gap = np.array([float(call["think_time_s"] or 0) for call in calls])
    after, last = np.full(len(calls), -1), {}
    for i, call in enumerate(calls):
        agent = call["trace"], call["agent"]
        after[i] = last.get(agent, -1) if gap[i] <= 300 else -1  # longer: a person, not a tool
        last[agent] = i
    context = np.where(after >= 0, prompt[after] + output[after], 0)
    cached = np.where(context <= prompt, context, 0)
    return Requests(
        prompt, output, after, np.where(after >= 0, gap, 0), cached, np.full(len(calls), -1)
    )


@needs_data
def test_recorded_agents_can_be_served():
    requests = recorded(DATA / "traces" / "agentic_coding_requests.csv")
    server = Server(find_model("Qwen3-30B-A3B"), GPUS["H200"], tp=8)
    served = serve(step_of(server), server.kv_capacity_tokens, Batching(), requests)
    assert (
        served.end > served.arrival
    ).all() and served.peak_kv_tokens <= server.kv_capacity_tokens
    follows = requests.after >= 0
    gaps = served.arrival[follows] - served.end[requests.after[follows]]
    assert gaps == pytest.approx(requests.gap[follows]) and requests.gap.max() <= 300
    # their contexts fit all at once
    few = Requests(*(getattr(requests, f.name)[:500] for f in dataclasses.fields(requests)))
    forgetful = dataclasses.replace(few, cached=np.zeros(len(few)))
    kept, again = (
        serve(step_of(server), server.kv_capacity_tokens, Batching(), r).prefill
        for r in (few, forgetful)
    )
    assert again > 5 * kept  # what prefix caching is worth to agents


# --- against measurement --------------------------------------------------------------------------

COLUMNS = (
    "id,backend,model_path,system,mode,isl,osl,batch_size,conc,tp_size,precision,"
    "silicon_ttft_ms,silicon_tpot_ms"
)


def serving_groups(folder: Path, rows: str, columns: str = COLUMNS):
    (folder / "measured").mkdir(exist_ok=True)
    path = folder / "measured" / "serving_ttft_tpot.csv"
    path.write_text(f"{columns}\n{rows}")
    return {group.name: group for group in serving.check(path, folder)}


def test_rows_that_cannot_be_modelled_are_named(tmp_path):
    groups = serving_groups(
        tmp_path,
        "good,vllm,Qwen/Qwen3-32B,h100_sxm,agg,1024,128,8,8,2,fp8,150,18\n"
        "unknown,vllm,Nobody/None-1B,h100_sxm,agg,1024,128,8,8,2,,150,18\n"
        "gpu,vllm,Qwen/Qwen3-32B,abacus,agg,1024,128,8,8,2,,150,18\n"
        "engine,other,Qwen/Qwen3-32B,h100_sxm,agg,1024,128,8,8,2,,150,18\n"
        "tight,vllm,meta-llama/Llama-3.1-405B,h100_sxm,agg,1024,128,8,8,1,,150,18\n"
        "idle,vllm,Qwen/Qwen3-32B,h100_sxm,agg,1024,128,,,2,,150,18\n"
        "apart,vllm,Qwen/Qwen3-32B,h100_sxm,disagg,1024,128,8,8,2,,150,18\n"
        "odd,vllm,Qwen/Qwen3-32B,h100_sxm,agg,1024,128,8,8,2,base3,150,18\n"
        "blank,vllm,Qwen/Qwen3-32B,h100_sxm,agg,1024,128,8,8,2,,150,\n",
    )
    tpot = groups["serving TPOT"]
    assert [p.name for p in tpot.points] == ["good"]
    reasons = dict(text.split(": ", 1) for text in tpot.unmodelled)
    assert set(reasons) == {"unknown", "gpu", "engine", "tight", "idle", "apart", "odd", "blank"}
    assert (
        "no config of Nobody/None-1B" in reasons["unknown"] and "no GPU 'abacus'" in reasons["gpu"]
    )
    assert (
        "backend 'other' is not modelled" in reasons["engine"]
        and "tokens of KV cache" in reasons["tight"]
    )
    assert "conc nor batch_size" in reasons["idle"] and "prefill_num_workers" in reasons["apart"]
    assert "precision 'base3'" in reasons["odd"] and reasons["blank"] == "no silicon_tpot_ms"
    assert len(groups["serving TTFT"].points) == 2


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("fp8_block", "fp8_block"),
        ("fp8_static", "fp8"),
        ("nvfp4", "nvfp4"),
        ("w4a16_mxfp4", "mxfp4"),
        ("int4_wo", "int4"),
        ("bfloat16", "bf16"),
        ("", "bf16"),
    ],
)
def test_names_of_precisions_are_understood(name, stored):
    assert serving_rows.precisions(
        {"gemm_quant_mode": name, "moe_quant_mode": name}, find_model("Qwen3-32B")
    ) == (stored, stored)
    assert serving_rows.precisions(
        {"model_path": "Qwen/Qwen3-32B-FP8"}, find_model("Qwen3-32B")
    ) == ("fp8", "fp8")
    oss = find_model("gpt-oss-120b")
    # published smaller than that
    assert serving_rows.precisions({"moe_quant_mode": "fp8"}, oss)[1] == "mxfp4"


def test_disaggregated_rows_obey_littles_law(tmp_path):
    sides = [
        f"{side}_{key}"
        for side in ("prefill", "decode")
        for key in ("batch_size", "num_workers", "tp_size")
    ]
    columns = ",".join([COLUMNS, *sides])
    row = "d,trtllm,Qwen/Qwen3-32B,h100_sxm,disagg,4000,500,,{},,fp8,500,12,1,{},2,64,2,4\n"
    ttft, tpot = {}, {}
    for name, clients, workers in (("few", 4, 2), ("many", 128, 1), ("wide", 128, 4)):
        groups = serving_groups(tmp_path, row.format(clients, workers), columns)
        ttft[name], tpot[name] = (
            groups[f"serving {x}"].points[0].modelled for x in ("TTFT", "TPOT")
        )
    # one worker of prefill is the bottleneck: requests queue there
    assert ttft["few"] <= ttft["wide"] < ttft["many"]
    assert tpot["few"] < tpot["wide"] and tpot["many"] < tpot["wide"]


@pytest.fixture(scope="module")
def measured():
    """The groups of the measured table."""
    return {g.name: g for g in serving.check(DATA / "measured" / "serving_ttft_tpot.csv", DATA)}


@needs_data
def test_measured_serving_is_within_the_bounds(measured):
    tpot, ttft = measured["serving TPOT"], measured["serving TTFT"]
    assert not tpot.unmodelled and len(tpot.points) == 464
    assert (
        tpot.median_error <= 0.20
        and tpot.p90_error <= 0.40
        and dict(tpot.extra)["tp_order"] >= 0.90
    )
    assert ttft.median_error <= 0.35


@needs_data
def test_no_engine_and_no_model_carries_the_others(measured):
    """Medians of parts of the table that differ in model, GPU, precision and engine."""
    points = measured["serving TPOT"].points
    for part in (
        "gpt_oss",
        "llama",
        "_sglang_",
        "_trtllm_",
        "_vllm_",
        "_tp1_",
        "_tp2_",
        "_tp4_",
        "_tp8_",
    ):
        errors = [abs(p.error) for p in points if part in p.name]
        assert len(errors) > 40 and np.median(errors) <= 0.20, part


LOG = (
    "step,timing/gen,response_length/mean,response_length/max,response_length/min,"
    "prompt_length/mean\n"
)


def test_a_log_is_followed_step_by_step(tmp_path):
    (tmp_path / "rl_logs").mkdir()
    path = tmp_path / "rl_logs" / "Qwen2.5-0.5B-bsz64_2-prompt1024.steps.csv"
    means = [100 + 10 * (i % 17) for i in range(60)]
    path.write_text(
        LOG + "".join(f"{i},{3 + m / 50},{m},512,{5},{90}\n" for i, m in enumerate(means))
    )
    (group,) = rl_logs.check(path, tmp_path)
    extra = dict(group.extra)
    assert len(group.points) == 60 and not group.unmodelled
    assert extra["correlation"] > 0.95 and extra["linear_bound"] == pytest.approx(1)
    other = path.with_name("Nobodys-job-bsz64.steps.csv")
    other.write_text(path.read_text())
    assert "no config of the model" in next(iter(rl_logs.check(other, tmp_path))).unmodelled[0]
    path.with_name("gemma-2-2b-ppo.steps.csv").write_text(
        "step,gen_s,response_mean,prompt_mean\n1,3.0,200,90\n2,,200,90\n"
    )
    (short,) = rl_logs.check(path.with_name("gemma-2-2b-ppo.steps.csv"), tmp_path)
    assert (
        "neither the file's name" in short.unmodelled[0]
        and "generation seconds" in short.unmodelled[1]
    )


@needs_data
def test_logged_steps_are_followed_as_far_as_their_lengths_tell():
    for path in sorted((DATA / "rl_logs").glob("*.csv")):
        (group,) = rl_logs.check(path, DATA)
        with open(path, newline="") as rows:
            assert len(group.points) == len(list(csv.DictReader(rows)))
        extra = dict(group.extra)
        if "linear_bound" in extra:
            assert extra["correlation"] > 0.9 * extra["linear_bound"]


def test_engines_differ_in_how_they_batch():
    assert ENGINES["sglang"].prefill_first and not ENGINES["vllm"].prefill_first
    assert not ENGINES["trtllm"].chunked and ENGINES["trtllm"].reserve == 1.0
