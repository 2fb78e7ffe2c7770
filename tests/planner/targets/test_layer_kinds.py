"""What the executor's engines refuse of models that are no plain decoders, and with which words."""

import pytest

from automap.planner import catalogue
from automap.planner.targets.automap import FSDP, MEGATRON


def plain(**changes: object) -> catalogue.ModelArchitecture:
    return catalogue.architecture("llama-3.1-8b").model_copy(update=changes)


REFUSED = {
    "layer_kinds": (catalogue.architecture("olmo-3-7b").layer_kinds, "layers of several kinds"),
    "latent_attention": (
        catalogue.architecture("kimi-k2").latent_attention,
        "multi-head latent attention",
    ),
    "attention_chunk_size": (8192, "attention in chunks"),
    "attention_output_gate": (True, "a gate on the output of attention"),
    "attention_sinks": (True, "attention sinks"),
    "query_key_norm_over_heads": (True, "norms over all queries and over all keys"),
    "sandwich_norms": (True, "norms after attention and MLP"),
    "shared_expert_gate": (True, "a gate on shared experts"),
    "expert_norms": (True, "norms of their own around experts"),
    "expert_latent_size": (1024, "experts that work on a latent"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_both_engines_refuse_what_they_cannot_run(field: str) -> None:
    value, words = REFUSED[field]
    for engine in (MEGATRON, FSDP):
        assert engine.refuses_model(plain(), lora=False, precision="bf16") is None
        found = engine.refuses_model(plain(**{field: value}), lora=False, precision="bf16")
        assert found == words


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("sliding_window", 4096, "a sliding window"),
        ("attention_output_bias", True, "a bias on the output of attention"),
    ],
)
def test_fsdp_runs_transformers_own_layers(field: str, value: object, words: str) -> None:
    model = plain(**{field: value})
    assert FSDP.refuses_model(model, lora=False, precision="bf16") is None
    assert MEGATRON.refuses_model(model, lora=False, precision="bf16") == words
