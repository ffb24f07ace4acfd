"""Models from their own config.json: published totals, spellings, bytes and FLOPs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from configs import PLAIN, SHIPPED, made
from hypothesis import given
from hypothesis import strategies as st

from rfabric.compute.configs import model_of
from rfabric.compute.models import Latent
from rfabric.compute.named import find_model, read_model
from rfabric.compute.restated import restated
from rfabric.errors import RFabricError
from rfabric.study.validate import parameters

SHARED = Path(__file__).parents[3] / "shared" / "data"


MIXED = PLAIN | {
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 256,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


LATENT = MIXED | {
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "num_key_value_heads": 8,
}


# Elements of the tensors in the published checkpoints (safetensors index on Hugging Face; MPT:
# llm-foundry's table).
EXACT = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Mistral-7B": 7_248_023_552,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_620_634_112,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_419_200,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-7b": 8_537_680_896,
    "gpt2": 124_439_808,
    "Phi-2": 2_779_683_840,
    "Phi-3-mini": 3_821_079_552,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-14B": 14_768_307_200,
    "MPT-1B": 1_315_950_592,
    "MPT-30B": 29_975_214_080,
    "MPT-70B": 64_862_437_376,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "opt-6.7b": 6_658_473_984,
    "bloom-176b": 176_247_271_424,
    "starcoder2-15b": 15_957_889_024,
    "gpt-neox-20b": 20_554_567_680,
    "OLMoE-1B-7B": 6_919_161_856,
    "dbrx": 131_596_523_520,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
}


# --- totals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_those_of_the_checkpoint(name):
    assert find_model(name).parameters == EXACT[name]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_comes_to_its_published_totals(path):
    config = json.loads(path.read_text())
    model = read_model(path)
    assert config["_source"]
    nearly = restated(config)[0] is not config and bool(restated(config)[1])
    assert nearly or not [note for note in model.notes if "indexer" not in note]
    if model.published_b:
        close = 0.05 if nearly else 0.0125
        assert model.parameters / 1e9 == pytest.approx(model.published_b, rel=close)
    # with both tables of the vocabulary, without the one looked up, or without both
    if model.published_active_b:
        readings = parameters._readings(model, "active")
        assert min(abs(r / model.published_active_b - 1) for r in readings) < (
            0.06 if nearly else 0.025
        )


@pytest.mark.parametrize("config", [PLAIN, MIXED, LATENT])
def test_parts_add_up(config):
    model = made(config)
    assert model.dense_parameters + model.expert_parameters == model.parameters
    assert (
        model.dense_parameters < model.active_parameters < model.parameters or model.experts is None
    )
    sparse = model.experts.layers if model.experts else 0
    layers = (model.layers - sparse) * model.layer_parameters() + sparse * (
        model.layer_parameters(True) if sparse else 0
    )
    outside = 2 * model.vocab * model.hidden + model.hidden
    assert layers + outside == model.parameters
    assert model.layer_mean * model.layers + outside == model.parameters


def test_layers_that_predict_further_tokens_stand_apart():
    with_them = made(LATENT, num_nextn_predict_layers=1)
    assert with_them.parameters == made(LATENT).parameters
    assert find_model("DeepSeek-V3").mtp_parameters / 1e9 == pytest.approx(
        14 - 2 * 129280 * 7168 / 1e9, abs=0.6
    )
    assert with_them.mtp_parameters > with_them.layer_parameters(
        True
    )  # README of DeepSeek-V3: 14 B with its two tables


@given(
    layers=st.integers(1, 60),
    heads=st.sampled_from([8, 16, 32]),
    kv=st.sampled_from([1, 2, 4, 8]),
    gated=st.booleans(),
)
def test_a_dense_decoder_by_its_closed_form(layers, heads, kv, gated):
    kind = "llama" if gated else "nemotron"
    m = made(
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        model_type=kind,
        head_dim=64,
    )
    attention = 512 * 64 * 2 * (heads + kv)
    norms = (2 * layers + 1) * 512 * (1 if gated else 2)
    assert (
        m.parameters
        == layers * (attention + (3 if gated else 2) * 512 * 1376) + norms + 2 * 1000 * 512
    )
    assert m.kv_bytes_per_token == layers * 2 * kv * 64 * 2


# --- spellings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"num_local_experts": 16, "n_routed_experts": None},
        {"num_experts": 16},
        {"moe_num_experts": 16, "moe_k": 4, "num_experts_per_tok": None, "n_routed_experts": None},
        {"num_hidden_layers": None, "n_layer": 4, "hidden_size": None, "d_model": 512},
        {"moe_intermediate_size": [256, 256, 256, 256], "moe_topk": [4, 4, 4, 4]},
        {"first_k_dense_replace": None, "moe_layer_freq": [0, 1, 1, 1]},
        {"first_k_dense_replace": None, "mlp_only_layers": [0]},
        {"first_k_dense_replace": None, "moe_layer_start_index": 1, "moe_layer_interval": 1,
         "moe_layer_end_index": 3},
        {"n_shared_experts": None, "shared_expert_intermediate_size": 256},
    ],
)  # fmt: skip
def test_the_same_facts_in_other_spellings_are_the_same_model(other):
    config = {key: value for key, value in (MIXED | other).items() if value is not None}
    assert made(config, model_type="deepseek_v3") == made(MIXED)


def test_latents_switched_off_are_not_read():
    off = {key: value for key, value in LATENT.items() if "lora" in key or "head_dim" in key} | {
        "use_mla": False
    }
    assert made(MIXED | off) == made(MIXED)


def test_a_language_model_nested_in_a_multimodal_one_is_read():
    nested = {
        "model_type": "llava",
        "text_config": PLAIN,
        "vision_config": {"hidden_size": 9},
        "tie_word_embeddings": False,
    }
    model = model_of(nested, "m")
    assert model.parameters == made().parameters
    assert model.notes == ("its parts for vision are not counted",)


def test_an_unknown_type_whose_fields_are_all_understood_is_read_with_a_note():
    model = made(model_type="newcomer", hidden_act="silu", rope_theta=1e6)
    assert replace(model, notes=()) == made()
    assert model.notes == ("model_type newcomer is not known by name: read as its fields say",)


def test_windows_bound_the_cache():
    model = made(model_type="gemma2", sliding_window=100)
    assert (model.window, model.windowed) == (100, 2)
    assert model.kv_bytes(50) == 50 * model.kv_bytes_per_token
    assert model.kv_bytes(1000) == (2 * 100 + 2 * 1000) * model.kv_layer_bytes
    assert made(sliding_window=100, use_sliding_window=False, model_type="qwen2").windowed == 0
    listed = made(
        model_type="gpt_oss",
        sliding_window=9,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    assert listed.windowed == 3
    assert find_model("gemma-3-27b").windowed == 52  # 62 layers, each sixth sees all


def test_hybrids_cache_in_their_attention_layers_alone():
    model = find_model("Nemotron-H-8B")
    assert (model.layers, model.kv_layers) == (52, 4)
    assert model.kv_bytes_per_token == 4 * 2 * 8 * 128 * 2
    assert model.kv_bytes(0) == model.state_bytes > 0
    assert find_model("Qwen3-Next-80B-A3B").kv_layers == 12


# --- bytes and FLOPs ------------------------------------------------------------------------------


def test_latent_attention_caches_its_latents_and_decodes_in_their_space():
    model = made(LATENT)
    assert model.latent == Latent(96, 64, 32, 16, 24)
    assert model.kv_bytes_per_token == 4 * (64 + 16) * 2
    assert model.attention_flops_per_pair == 4 * 8 * 2 * (32 + 16 + 24)
    assert model.attention_flops_per_context_token == 4 * 8 * 2 * (64 + 16 + 64)
    v3 = find_model("DeepSeek-V3")
    # 61 x (512 + 64) x 2; the 70.272 KB a token of arXiv 2505.09343, Table 1
    assert v3.kv_bytes_per_token == 70_272
    uncompressed = made(LATENT, q_lora_rank=None)
    assert uncompressed.parameters - model.parameters == 4 * (
        512 * 8 * 48 - 96 * (512 + 8 * 48 + 1)
    )


@given(st.integers(1, 2048), st.integers(1, 50))
def test_a_sequence_costs_the_sum_of_its_tokens(tokens, sequences):
    model = made()
    one = model.forward_flops(tokens, tokens**2)
    assert model.forward_flops(sequences * tokens, sequences * tokens**2) == pytest.approx(
        sequences * one
    )
    assert model.training_flops(tokens, tokens**2) == pytest.approx(3 * one)
    assert sum(model.decode_flops(i) for i in (0, tokens)) * tokens / 2 == pytest.approx(
        one
    )  # trapezium: linear in context


def test_training_costs_six_flops_a_parameter_and_token():
    model = find_model("Llama-3.1-405B")
    assert model.training_flops(1, 0) == 6 * (model.parameters - model.vocab * model.hidden)
    # arXiv 2407.21783: 3.8e25 FLOPs on 15.6 T tokens in sequences of 8,192
    assert model.training_flops(15.6e12, 15.6e12 * 8192) == pytest.approx(3.8e25, rel=0.06)


def test_stored_bytes_follow_the_published_precision():
    v3, oss, llama = (find_model(name) for name in ("DeepSeek-V3", "gpt-oss-120b", "Llama-3.1-8B"))
    assert (v3.stored, oss.stored, llama.stored) == ("fp8_block", "mxfp4", "bf16")
    # a byte each; tables in bf16; scales
    assert v3.stored_bytes / 1e9 == pytest.approx(671 + 1.85 + 0.2, abs=1)
    # arXiv 2508.10925, Table 1: 60.8 GiB
    assert oss.stored_bytes / 2**30 == pytest.approx(60.8, rel=0.02)
    assert llama.stored_bytes == llama.weight_bytes == 2 * llama.parameters
    with pytest.raises(
        RFabricError, match="weights stored as 'fp3' are not known; use one of fp32, bf16"
    ):
        llama.weight_bytes_at("fp3")


@pytest.mark.parametrize(
    ("quantised", "stored"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}},
            },
            "int8",
        ),
    ],
)
def test_quantisation_is_read(quantised, stored):
    assert made(quantization_config=quantised).stored == stored


def lay(folder, totals="", **configs):
    (folder / "models").mkdir(exist_ok=True)
    for name, config in configs.items():
        (folder / "models" / f"{name}.json").write_text(json.dumps(config))
    if totals:
        (folder / "models" / "published_totals.csv").write_text(
            "model,total_b,active_b,source\n" + totals
        )
    files = sorted(folder.glob("models/*.json"))
    return [group for file in files for group in parameters.check(file, folder)]


# --- against published totals ---------------------------------------------------------------------


def test_published_totals_win_over_names(tmp_path):
    (group,) = lay(
        tmp_path,
        "a-70b,0.0121,,card\nQwen/Qwen3-8B,8.2,,card\nlost,7,,card\n",
        **{"a-70b": PLAIN, "b": {"model_type": "x"}},
    )
    points = {point.name: point for point in group.points}
    assert points["a-70b"].measured == 0.0121 and abs(points["a-70b"].error) < 0.001
    # its config is one that is shipped
    assert points["Qwen/Qwen3-8B"].error == pytest.approx(8.190735360 / 8.2 - 1)
    assert len(group.unmodelled) == 2 and any(
        text.startswith("lost: no config") for text in group.unmodelled
    )
    assert any(text.startswith("b: ") for text in group.unmodelled)


def test_names_state_counts_to_their_rounding(tmp_path):
    (group,) = lay(tmp_path, **{"small-12M": PLAIN, "big-2B": PLAIN, "nameless": PLAIN})
    points = {point.name: point for point in group.points}
    assert points["small-12M"].error == pytest.approx(0, abs=1e-9)
    assert points["big-2B"].measured == 1.5 and points["big-2B"].error < -0.99
    assert group.unmodelled == (
        (
            "nameless: neither published_totals.csv nor traffic/models nor its name states a "
            "number of parameters"
        ),
    )
    (other,) = lay(
        tmp_path / "2" if (tmp_path / "2").mkdir() is None else tmp_path,
        **{"m-8x1B": MIXED, "m-1B-A1B": MIXED},
    )
    assert [point.name for point in other.points] == [
        "m-1B-A1B",
        "m-1B-A1B, active",
        "m-8x1B, with one expert a layer",
    ]


def test_a_total_that_is_no_number_is_named(tmp_path):
    (group,) = lay(tmp_path, "a-1B,many,,card\n", **{"a-1B": PLAIN})
    assert group.unmodelled == (
        "published_totals.csv a-1B: total_b 'MANY' is no number of billions",
    )
    assert [point.name for point in group.points] == ["a-1B"]  # by the count in its name


@pytest.mark.skipif(
    not (SHARED / "models").is_dir(), reason="needs the shared reference data beside the checkout"
)
def test_the_reference_configs_come_to_their_totals():
    groups = [
        group
        for file in sorted(SHARED.glob("models/*.json"))
        for group in parameters.check(file, SHARED)
    ]
    (group,) = groups
    assert not group.unmodelled and max(group.errors) < 0.02
