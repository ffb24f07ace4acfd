"""Configs that leave sizes to their class, or say in other tools' words how weights are stored."""

import pytest
from configs import PLAIN, made

from rfabric.compute.configs import model_of
from rfabric.compute.named import find_model
from rfabric.errors import RFabricError


def test_what_a_nested_config_leaves_out_is_that_of_its_class():
    """As published: gemma-3-4b-it, llava-1.5-7b-hf."""
    gemma = {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "sliding_window": 1024,
    }  # fmt: skip
    model = model_of({"model_type": "gemma3", "text_config": gemma}, "m")
    known = find_model("gemma-3-4b")
    assert (model.heads, model.kv_heads, model.head_dim) == (8, 4, 256)
    assert model.parameters == pytest.approx(known.parameters, rel=0.001)
    assert "its config leaves vocab_size 262208, num_attention_heads 8" in model.notes[0]
    llava = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}
    model = model_of(
        {"model_type": "llava", "text_config": llava, "tie_word_embeddings": False}, "m"
    )
    assert model.parameters == pytest.approx(6.74e9, rel=0.001) and model.context == 4096


def test_a_config_that_is_not_nested_is_to_be_whole():
    less = {key: value for key, value in PLAIN.items() if key != "hidden_size"}
    with pytest.raises(RFabricError, match="lacks hidden_size"):
        model_of(less, "m")
    outer = {"model_type": "llava", "vocab_size": 9, "text_config": {"model_type": "llama"}}
    assert model_of(outer, "m").vocab == 9  # what is said around it counts


def test_more_layers_than_any_model_has_are_refused():
    with pytest.raises(RFabricError, match=r"1e\+30 layers; 10,000 at most"):
        made(num_hidden_layers=10**30)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sliding_window": {"size": 9}}, "sliding_window {'size': 9} must be a number of tokens"),
        ({"sliding_window": [9, 9]}, r"sliding_window \[9, 9\] must list one of each of 4 layers"),
        ({"sliding_window": [9, 9, 8, None]}, "sliding_window of 2 sizes is not modelled"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types .* must list one of each of 4"),
        ({"layer_types": 3}, "layer_types 3 must list one of each of 4 layers"),
        ({"expansion_ratio": "x"}, "expansion_ratio 'x' must be a number"),
    ],
)
def test_what_no_layers_have_is_named(fields, why):
    with pytest.raises(RFabricError, match=why):
        made(**fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"moe_layer_freq": "x"}, "moe_layer_freq 'x' must be a whole number"),
        ({"moe_layer_freq": [0, 1]}, "moe_layer_freq .* must list one of each of 4 layers"),
        ({"first_k_dense_replace": -1}, "first_k_dense_replace -1 must be a whole number"),
        ({"n_shared_experts": -1}, "n_shared_experts -1 must be a whole number"),
        ({"num_nextn_predict_layers": -2}, "num_nextn_predict_layers -2 must be a whole number"),
        ({"moe_layers": [1, 7]}, r"moe_layers \[1, 7\] must be layers, 0 to 3"),
    ],
)
def test_layers_with_experts_are_layers(fields, why):
    mixed = {"model_type": "deepseek", "num_experts": 4, "num_experts_per_tok": 2}
    assert made(**mixed, moe_layer_freq=[0, 1, 0, 1]).experts.layers == 2
    with pytest.raises(RFabricError, match=why):
        made(**mixed | fields)


@pytest.mark.parametrize(
    ("total", "kv_layers", "changes"),
    [
        (32.2, 4, {}),  # granite-4.0-h-small, h-tiny, h-micro and micro, as their cards say
        (
            6.94,
            4,
            {
                "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4,
                "num_local_experts": 64, "num_experts_per_tok": 6, "intermediate_size": 512,
                "shared_intermediate_size": 1024, "mamba_n_heads": 48,
            },
        ),
        (
            3.19,
            4,
            {
                "hidden_size": 2048, "mamba_n_heads": 64, "num_local_experts": 0,
                "num_experts_per_tok": 0, "intermediate_size": 8192,
                "shared_intermediate_size": 8192,
            },
        ),
        (
            3.40,
            40,
            {
                "hidden_size": 2560, "num_attention_heads": 40, "num_local_experts": 0,
                "num_experts_per_tok": 0, "shared_intermediate_size": 8192,
                "layer_types": ["attention"] * 40,
            },
        ),
    ],
)  # fmt: skip
def test_granite_has_mamba_in_most_layers_and_an_mlp_in_all(total, kv_layers, changes):
    small = {
        "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
        "num_attention_heads": 32, "num_experts_per_tok": 10, "num_hidden_layers": 40,
        "num_key_value_heads": 8, "num_local_experts": 72, "shared_intermediate_size": 1536,
        "tie_word_embeddings": True, "vocab_size": 100352, "max_position_embeddings": 131072,
    }  # fmt: skip
    model = model_of(small | changes, "m")
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.002) and not model.notes
    assert model.kv_layers == kv_layers and (model.state_bytes > 0) == (kv_layers < 40)
    renamed = {"mamba": "linear_attention", "attention": "full_attention"}  # in transformers 5
    listed = (small | changes)["layer_types"]
    assert model_of(small | changes | {"layer_types": [renamed[k] for k in listed]}, "m") == model
    silent = {key: value for key, value in small.items() if key != "layer_types"}
    assert model_of(silent, "m").kv_layers == 0  # Mamba-2 in all, as the class has it


def test_windows_may_be_listed_by_layer():
    model = made(sliding_window=[9, None, 9, 9])
    assert (model.window, model.windowed) == (9, 3)


def test_an_unknown_class_in_a_known_one_is_read_as_its_fields_say():
    inner = PLAIN | {"model_type": "newcomer_text", "hidden_act": "silu"}
    model = model_of({"model_type": "llava", "text_config": inner}, "m")
    assert model.parameters == made().parameters
    assert model.notes == ("model_type newcomer_text is not known by name: read as its fields say",)


@pytest.mark.parametrize(("kind", "columns"), [("gemma2", 256), ("qwen3", 128), ("llama", 64)])
def test_heads_have_the_columns_of_their_class(kind, columns):
    assert made(model_type=kind).head_dim == columns
    assert made(model_type=kind, head_dim=96).head_dim == 96


def test_windows_of_qwen_begin_above_the_layers_that_see_all():
    windows = {"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 3}
    assert made(model_type="qwen2", **windows).windowed == 1
    assert made(model_type="qwen2", **windows | {"max_window_layers": 9}).windowed == 0


def test_a_window_that_is_not_used_may_be_anything():
    assert not made(use_sliding_window=False, sliding_window=-1).windowed
    with pytest.raises(RFabricError, match="sliding_window -1 must be a number of tokens"):
        made(sliding_window=-1)


@pytest.mark.parametrize("field", [{"use_cla": True}, {"attn_output_gate": True}])
def test_what_changes_attention_is_refused_where_nobody_reads_it(field):
    with pytest.raises(RFabricError, match=f"{next(iter(field))} True is not modelled"):
        made(**field)


@pytest.mark.parametrize(
    ("quantised", "stored"),
    [
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "int4"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp8_e4m3"},
                    "output_tensors": {"dtype": "int4"},
                },
            },
            "fp8",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "kv_cache_quant_algo": "FP8"},
            "int4",
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig"}},
            },
            "fp8",
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_MXFP4_FP8"}, "mxfp4"),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, "mxfp4"),
        ({"quant_method": "w4afp8"}, "int4"),
        ({"quant_method": "marlin", "group_size": 128}, "int4"),
        ({"quant_method": "qqq", "wbits": 4}, "int4"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "int8", "scale_type": "float"}},
            },
            "int8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {
                        "weights": {"num_bits": 4, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
            },
            "int4",
        ),
    ],
)
def test_the_words_of_quantisers_are_read(quantised, stored):
    model = made(quantization_config=quantised)
    assert model.stored == stored and not model.notes


def test_what_does_not_tell_how_weights_are_stored_is_said():
    unknown = made(quantization_config={"quant_method": "aqlm"})
    assert unknown.stored == "bf16"
    assert unknown.notes == (
        "quantization_config 'aqlm' does not tell how weights are stored: bf16 taken",
    )
    three = made(quantization_config={"quant_method": "gptq", "bits": 3})
    assert (three.stored, three.notes) == ("int4", ("weights of 3 bits are taken as int4",))
