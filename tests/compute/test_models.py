"""Models from their own config.json, GPUs as data: published totals, spellings, bytes and FLOPs,
what is refused.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric import cli
from rfabric.compute import memory
from rfabric.compute.configs import model_of
from rfabric.compute.families import FAMILIES
from rfabric.compute.gpus import GPUS, find_gpu
from rfabric.compute.model_card import Split, model_card
from rfabric.compute.models import Latent
from rfabric.compute.named import find_config, find_model, load_model, read_model, same_model
from rfabric.errors import RFabricError
from rfabric.folders import data_dir
from rfabric.study.validate import parameters

SHIPPED = sorted((data_dir("traffic") / "models").glob("*.json"))
SHARED = Path(__file__).parents[3] / "shared" / "data"

PLAIN = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
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


def made(config=PLAIN, **changes):
    return model_of(config | changes, "m")


# --- totals ---------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_those_of_the_checkpoint(name):
    assert find_model(name).parameters == EXACT[name]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_comes_to_its_published_totals(path):
    config = json.loads(path.read_text())
    model = read_model(path)
    assert config["_source"]
    assert not [note for note in model.notes if "indexer" not in note]
    if model.published_b:
        assert model.parameters / 1e9 == pytest.approx(model.published_b, rel=0.0125)
    # with both tables of the vocabulary, without the one looked up, or without both
    if model.published_active_b:
        readings = parameters._readings(model, "active")
        assert min(abs(r / model.published_active_b - 1) for r in readings) < 0.025


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
        RFabricError, match=("weights stored as 'fp3' are not known; use one of fp32, bf16")
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


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not modelled; .* and .* more are"),
        ({"model_type": None}, "model_type None is not modelled"),
        ({"is_encoder_decoder": True}, "model_type 'llama' is not modelled"),
        (
            {"ssm_state_size": 16},
            (
                "model_type 'llama' with ssm_state_size 16 is not modelled: what that changes is "
                "not known"
            ),
        ),
        ({"num_memory_tokens": 4}, "with num_memory_tokens 4 is not modelled"),
        (
            {"index_topk": 2048, "index_n_heads": 64},
            "with index_topk 2048, index_n_heads 64 is not modelled",
        ),
        (
            {"model_type": "newcomer", "hidden_act": "silu", "gizmo": 3},
            "'newcomer' with gizmo 3 is not modelled",
        ),
        (
            {"model_type": "newcomer", "hidden_act": "gelu"},
            "hidden_act 'gelu' does not tell whether its MLP is gated",
        ),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types linear_attention is not modelled"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2},
            "model_type 'llama' with num_experts is not modelled",
        ),
        ({"n_layer": 5}, "num_hidden_layers 4 and n_layer 5 contradict each other; keep one"),
        (
            {"kv_lora_rank": 64},
            "has kv_lora_rank, but lacks qk_nope_head_dim, qk_rope_head_dim, v_head_dim",
        ),
        ({"vocab_size": "many"}, "vocab_size 'many' must be a whole number above 0"),
        ({"vocab_size": 0}, "vocab 0 must be a whole number above 0"),
        (
            {"hidden_size": "512"},
            "hidden_size and num_attention_heads must be whole numbers above 0",
        ),
        (
            {"num_attention_heads": 0},
            "hidden_size and num_attention_heads must be whole numbers above 0",
        ),
        ({"num_key_value_heads": 3}, "3 KV heads do not divide 8 heads"),
        ({"word_embed_proj_dim": 64}, "word_embed_proj_dim is not modelled beside hidden_size 512"),
    ],
)
def test_a_config_that_is_not_understood_is_refused_by_name(change, message):
    with pytest.raises(RFabricError, match=message):
        made(**change)


@pytest.mark.parametrize(
    "lost", ["num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"]
)
def test_a_field_that_is_missing_is_named(lost):
    config = {key: value for key, value in PLAIN.items() if key != lost}
    with pytest.raises(
        RFabricError, match=(f"its config lacks {lost}; give the published config.json")
    ):
        made(config)


def test_a_pattern_of_layers_must_fit_them():
    with pytest.raises(
        RFabricError, match=("hybrid_override_pattern 'M-X' must tell each of 4 layers")
    ):
        made(model_type="nemotron_h", hybrid_override_pattern="M-X")


def test_a_file_that_is_no_config_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(RFabricError, match="holds no object; give a Hugging Face config.json"):
        read_model(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RFabricError, match="model config .*a.json: "):
        load_model(str(tmp_path / "a.json"))


def test_every_family_reads_a_plain_decoder():
    hybrid = {
        "hybrid_override_pattern": "M*-E",
        "mamba_num_heads": 8,
        "mamba_head_dim": 64,
        "ssm_state_size": 16,
    }
    delta = {
        f"linear_{key}": 8
        for key in (
            "num_key_heads",
            "num_value_heads",
            "key_head_dim",
            "value_head_dim",
            "conv_kernel_dim",
        )
    }
    for kind, family in FAMILIES.items():
        extra = {"mamba": hybrid, "delta": delta | {"full_attention_interval": 2}}.get(
            family.hybrid, {}
        )
        assert made(model_type=kind, **extra).parameters > 3e6


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-32B", "Qwen3-32B"),
        ("qwen_qwen3_32b", "Qwen3-32B"),
        ("LLAMA3.1_8B", "Llama-3.1-8B"),
        ("Llama31-8B", "Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B", "Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("meta_llama_llama_3_1_8b_instruct", "Llama-3.1-8B"),
        ("meta-llama/Llama-2-70b-chat-hf", "Llama-2-70B"),
        ("DeepSeek V3", "DeepSeek-V3"),
        ("deepseek-ai--DeepSeek-R1-0528", "DeepSeek-V3"),
        ("Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B"),
        ("Qwen3-235B-A22B-Instruct-2507", "Qwen3-235B-A22B"),
        ("Qwen3-30B", "Qwen3-30B-A3B"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"),
        ("google/gemma-2-2b-it", "gemma-2-2b"),
        ("gemma-2-27b", "gemma-2-27b"),
        ("opt-1.3b", "opt-1.3b"),
        ("opt_1_3b", "opt-1.3b"),
        ("opt-13b", "opt-13b"),
        ("mpt-7b", "MPT-7B"),
        ("Nemotron4_340B", "Nemotron-4-340B"),
        ("Qwen2.5-VL-7B", None),
        ("DeepSeek-V3.9", None),
        ("Qwen3", None),
        ("32B", None),
        ("", None),
    ],
)
def test_a_model_is_found_in_whatever_spelling(text, name):
    found = find_model(text)
    assert (found.name if found else None) == name


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_model_is_found_by_its_own_names(path):
    for name in (path.stem, path.stem.lower().replace("-", "_"), f"maker/{path.stem}-Instruct"):
        assert find_config(name) == path
    assert all(find_config(name) == path for name in json.loads(path.read_text()).get("_also", ()))


def test_a_folder_of_the_user_comes_first(tmp_path):
    (tmp_path / "maker--Qwen3-32B.json").write_text(json.dumps(PLAIN))
    assert find_model("Qwen3-32B", [tmp_path]).hidden == 512
    assert find_model("Qwen3-8B", [tmp_path, tmp_path / "none"]).hidden == 4096
    (tmp_path / "Newer-1B.json").write_text(json.dumps(PLAIN))
    assert find_model("newer_1b", [tmp_path]).name == "Newer-1B"


def test_names_of_the_same_model():
    assert same_model("meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B")
    assert same_model("Qwen/Qwen3-32B", "Qwen--Qwen3-32B")
    assert not same_model("opt-1.3b", "opt-13b") and not same_model("", "")


def test_a_model_is_loaded_from_a_folder_or_refused_with_names_like_it(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(PLAIN))
    assert load_model(str(tmp_path / "mine")).name == "mine"
    with pytest.raises(
        RFabricError,
        match=(
            "no model 'Qwen3-33B'; give a config.json or one of traffic/models/, which has Qwen3-"
        ),
    ):
        load_model("Qwen3-33B")


# --- GPUs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", GPUS.values(), ids=list(GPUS))
def test_every_gpu_is_whole_and_names_its_source(gpu):
    assert gpu.source and find_gpu(gpu.name) is gpu
    assert (
        1e14 < gpu.bf16_flops < 1e16
        and 4e10 < gpu.hbm_bytes < 4e11
        and 5e11 < gpu.hbm_bytes_per_s < 1e13
    )
    assert gpu.fp8_flops is None or gpu.fp8_flops == pytest.approx(2 * gpu.bf16_flops, rel=0.02)
    assert 0.6 < gpu.matmul_share() < 0.9 and gpu.nvlink_gpus % gpu.gpus_per_server in (0, 2)
    assert all(
        gpu.matmul_share(p) <= 1 for p in ("bf16", "fp8", "fp4") if getattr(gpu, f"{p}_flops")
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100_sxm", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("DGX-H100", "H100"),
        ("8xH100", "H100"),
        ("H100 (2x8)", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("DGX-GB200", "GB200"),
        ("GB200-NVL72", "GB200"),
        ("b200_sxm", "B200"),
        ("H20", "H20"),
        ("a100", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("A100 SXM 80GB", "A100"),
        ("h200_8gpu_busbw_GBps", "H200"),
        ("a100_16gpu_2nodes_busbw_GBps", "A100"),
        ("H2000", None),
        ("payload_bytes", None),
        ("", None),
    ],
)
def test_a_gpu_is_found_in_whatever_spelling(text, name):
    found = find_gpu(text)
    assert (found.name if found else None) == name


def test_a_precision_that_a_gpu_lacks_is_refused():
    with pytest.raises(RFabricError, match="GPU A100 has no fp8 matmul; use bf16"):
        GPUS["A100"].peak("fp8")
    with pytest.raises(
        RFabricError, match=("precision 'fp6' is not known; use one of bf16, fp8, fp4")
    ):
        GPUS["H100"].peak("fp6")


def test_published_prices_are_kept():
    # Weave (OSDI'26), Table 1
    assert (GPUS["H20"].usd_per_hour, GPUS["H800"].usd_per_hour) == (1.85, 5.28)


# --- what fits ------------------------------------------------------------------------------------


def test_an_engine_cuts_weights_and_cache():
    model, gpu = find_model("Qwen3-30B-A3B"), GPUS["H100"]
    dense, experts = 2 * model.dense_parameters, 2 * model.expert_parameters
    assert memory.engine_weight_bytes(model, 4) == pytest.approx((dense + experts) / 4)
    assert memory.engine_weight_bytes(model, 2, pp=2, ep=16) == pytest.approx(
        dense / 4 + experts / 32
    )
    # 4 heads, copied beyond
    assert memory.kv_bytes_per_gpu(model, 8) == model.kv_bytes_per_token / 4
    room = memory.kv_capacity_tokens(model, gpu, 4, 0.9)
    used = (
        room * memory.kv_bytes_per_gpu(model, 4)
        + memory.engine_weight_bytes(model, 4)
        + memory.RESERVED_BYTES
    )
    assert used <= 0.9 * gpu.hbm_bytes < used + memory.kv_bytes_per_gpu(model, 4)
    assert memory.kv_capacity_tokens(find_model("Llama-3.1-405B"), gpu, 8, 0.9) < 0
    assert memory.kv_shards(find_model("DeepSeek-V3"), 8) == 1


@pytest.mark.parametrize("name", ["Qwen3-32B", "DeepSeek-V3", "Llama-3.1-405B"])
def test_fewest_gpus_hold_it_and_half_of_them_do_not(name):
    model, gpu = find_model(name), GPUS["H100"]
    n = memory.fewest_gpus(model, gpu, 4096)

    def room(gpus):
        tp = min(gpus, 8)
        return memory.kv_capacity_tokens(model, gpu, tp, 0.9, gpus // tp)

    assert room(n) >= 4096 and (n == 1 or room(n // 2) < 4096)
    states = memory.fewest_training_gpus(model, gpu)
    assert (
        18 * model.parameters / states
        < gpu.hbm_bytes
        < 18 * model.parameters / (states // 2) + memory.RESERVED_BYTES
    )


def test_a_sheet_says_what_the_model_says():
    model = find_model("DeepSeek-V3")
    told = model_card(model, Split(tp=8, pp=2, ep=16), 8192, "fp8")
    assert (
        told["parameters"] == model.parameters
        and told["active_parameters"] == model.active_parameters
    )
    assert told["weight_bytes"] == model.weight_bytes_at("fp8")
    assert told["prefill_flops_per_token"] * 8192 == pytest.approx(
        model.forward_flops(8192, 8192**2)
    )
    assert told["training_flops_per_token"] == pytest.approx(3 * told["prefill_flops_per_token"])
    assert told["split"]["weight_bytes_per_gpu"] == memory.engine_weight_bytes(
        model, 8, 2, 16, "fp8"
    )
    assert set(told["gpus"]) == set(GPUS) and told["gpus"]["H100"]["fewest_gpus_to_serve"] == 16
    assert told["layer_weight_bytes"]["dense"] < told["layer_weight_bytes"]["experts"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Qwen3-8B", "--tp", "3"], "tp: 3 does not divide the 32 heads of Qwen3-8B; use 2"),
        (["Qwen3-8B", "--pp", "40"], "pp: 40 exceeds the 36 layers of Qwen3-8B; use 36 at most"),
        (["Qwen3-8B", "--ep", "2"], "ep: 2, but Qwen3-8B has no experts to deal out; leave it out"),
        (
            ["Qwen3-30B-A3B", "--ep", "48"],
            "ep: 48 does not divide the 128 experts of Qwen3-30B-A3B; use 32",
        ),
        (
            ["Qwen3-8B", "--context", "50000"],
            "context: 50000 exceeds the 40960 tokens of Qwen3-8B; use 40960 at most",
        ),
        (["Qwen3-8B", "--precision", "fp6"], "precision 'fp6' is not known; use one of"),
        (["Qwen9-8B"], "no model 'Qwen9-8B'; give a config.json"),
        (["none/config.json"], "model config none/config.json"),
    ],
)
def test_the_verb_names_what_does_not_fit(arguments, message, capsys):
    assert cli.main(["model", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_verb_prints_tables_and_one_document(capsys):
    assert cli.main(["model", "Qwen3-30B-A3B", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == 30_532_122_624 and told["kv_bytes_per_token"] == 98_304
    assert cli.main(["model", "Qwen/Qwen3-30B-A3B-FP8", "--tp", "4", "--ep", "4"]) == 0
    shown = capsys.readouterr().out
    assert "30.532 billion" in shown and "98.3 kB" in shown and "GB200" in shown


# --- against published totals ---------------------------------------------------------------------


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
    not (SHARED / "models").is_dir(), reason=("needs the shared reference data beside the checkout")
)
def test_the_reference_configs_come_to_their_totals():
    groups = [
        group
        for file in sorted(SHARED.glob("models/*.json"))
        for group in parameters.check(file, SHARED)
    ]
    (group,) = groups
    assert not group.unmodelled and max(group.errors) < 0.02
