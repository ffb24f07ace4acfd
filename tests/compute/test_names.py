"""What no model can be, names of models, GPUs as data, what fits."""

import json

import pytest
from configs import PLAIN, SHIPPED, made

from rfabric import cli
from rfabric.compute import memory
from rfabric.compute.families import FAMILIES
from rfabric.compute.gpus import GPUS, find_gpu
from rfabric.compute.layout import Layout
from rfabric.compute.model_card import model_card
from rfabric.compute.named import find_config, find_model, load_model, read_model, same_model
from rfabric.errors import RFabricError

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
        RFabricError, match=f"its config lacks {lost}; give the published config.json"
    ):
        made(config)


def test_a_pattern_of_layers_must_fit_them():
    with pytest.raises(
        RFabricError, match="hybrid_override_pattern 'M-X' must tell each of 4 layers"
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
        mixed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
        own = mixed if kind in MIXED else {}
        assert made(model_type=kind, **extra | own).parameters > 3e6


MIXED = ("mixtral", "gpt_oss", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2",
         "glm4_moe")  # fmt: skip


@pytest.mark.parametrize("kind", MIXED)
def test_a_mixture_that_does_not_say_its_experts_is_refused(kind):
    """Without their number it would be dense, without their columns up to eight times as large."""
    mixed = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    with pytest.raises(RFabricError, match="its config lacks num_experts or num_local_experts"):
        made(model_type=kind, **mixed | {"num_experts": None})
    if kind not in ("mixtral", "gpt_oss"):  # whose experts are as wide as intermediate_size says
        with pytest.raises(RFabricError, match="its config lacks moe_intermediate_size"):
            made(model_type=kind, **mixed | {"moe_intermediate_size": None})


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
        ("Qwen2.5-VL-7B", "Qwen2.5-7B"),
        ("DeepSeek-V3.9", None),
        ("Qwen3", None),
        ("32B", None),
        ("", None),
    ],
)
def test_a_model_is_found_in_whatever_spelling(text, name):
    model = find_model(text)
    assert (model.name if model else None) == name


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


# What is sold under a name like one of the catalog's, and is none of them.
OTHERS = (
    """
H200 NVL|NVIDIA H800 PCIe|H800 NVL|A800 PCIe|NVIDIA A800 40GB Active|NVIDIA A100-PCIE-40GB|A100X
H100 CNX|H100 MIG 1g.10gb|NVIDIA GH200 480GB|GH200 144G HBM3e|GB200 NVL4|B100|B200A|H20A|L40
L40G|L20|MI300A|MI308X|MI325X|MI355X|NVIDIA RTX 6000 Ada Generation|Ascend 910B|Ascend910C
""".replace("\n", "|")
    .strip("|")
    .split("|")
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
        ("DGX A100 640GB", "A100"),
        ("GB200 186GB", "GB200"),
        ("MI300X 192 GB", "MI300X"),
        ("H20 141GB", "H20-3e"),
        ("NVIDIA H20-3e", "H20-3e"),
        ("HGX H20 141G", "H20-3e"),
        ("H20 HBM3e", "H20-3e"),
        ("H20 96GB", "H20"),
        ("DGX A100 320GB", "A100-40GB"),
        ("A100-40G", "A100-40GB"),
        ("A100 80GB PCIe", "A100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("H100SXM5", "H100"),
        ("ND96isr_H100_v5", "H100"),
        ("HGX B300 NVL16", "B300"),
        ("8xH100 400G RoCE", "H100"),
        ("H100-96GB", None),
        ("h200_8gpu_busbw_GBps", "H200"),
        ("a100_16gpu_2nodes_busbw_GBps", "A100"),
        ("H100 94GB", None),
        ("H2000", None),
        *((text, None) for text in OTHERS),
        ("payload_bytes", None),
        ("", None),
    ],
)
def test_a_gpu_is_found_in_whatever_spelling(text, name):
    gpu = find_gpu(text)
    assert (gpu.name if gpu else None) == name


def test_siblings_with_other_memory_are_told_apart():
    plain, larger = GPUS["H20"], GPUS["H20-3e"]
    assert larger.bf16_flops == plain.bf16_flops and larger.hbm_bytes == GPUS["H200"].hbm_bytes
    assert (plain.hbm_bytes_per_s, larger.hbm_bytes_per_s) == (4.0e12, 4.8e12)


def test_a_precision_that_a_gpu_lacks_is_refused():
    with pytest.raises(RFabricError, match="GPU A100 has no fp8 matmul; use bf16"):
        GPUS["A100"].peak("fp8")
    with pytest.raises(
        RFabricError, match="precision 'fp6' is not known; use one of bf16, fp8, fp4"
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
        16 * model.parameters / states
        < gpu.hbm_bytes
        < 16 * model.parameters / (states // 2) + memory.RESERVED_BYTES
    )


def test_a_sheet_says_what_the_model_says():
    model = find_model("DeepSeek-V3")
    told = model_card(model, Layout(tp=8, pp=2, ep=16, dp=2), 8192, "fp8")
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
            ["Qwen3-30B-A3B", "--tp", "4", "--ep", "6"],
            "ep: 6 does not divide the 128 experts of Qwen3-30B-A3B; use 4",
        ),
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


@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_experts_are_cut_over_all_of_tp_whichever_of_them_ep_names(ep, capsys):
    words = ["model", "Qwen3-30B-A3B", "--tp", "8", "--json"]
    told = [
        cli.main([*words, *more]) or capsys.readouterr().out for more in ([], ["--ep", str(ep)])
    ]
    assert told[0] == told[1]
    held = json.loads(told[0])["split"]["weight_bytes_per_gpu"]
    assert held == pytest.approx(find_model("Qwen3-30B-A3B").weight_bytes_at("bf16") / 8)
