"""Models that tests of this folder change."""

from rfabric.compute.configs import model_of
from rfabric.folders import data_dir

SHIPPED = sorted((data_dir("traffic") / "models").glob("*.json"))


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


def made(config=PLAIN, **changes):
    return model_of(config | changes, "m")
