"""Models with latent attention (MLA), dense at first and with experts after, one function each."""

from typing import Any

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.families_moe import routed_experts
from automap.planner.catalogue.family_parts import decoder, kinds_of, num_layers

_RANKS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _latent(reader: ConfigReader) -> dict[str, Any]:
    ranks = {name: reader.size(name) for name in _RANKS}
    return {
        "num_key_value_heads": reader.size("num_attention_heads"),
        "head_dim": ranks["v_head_dim"],
        "latent_attention": {**ranks, "q_lora_rank": reader.optional_size("q_lora_rank") or 0},
    }


def deepseek_v2(reader: ConfigReader) -> ModelArchitecture:
    """DeepSeek-V2 and V2-Lite."""
    return decoder(reader, **_latent(reader), **routed_experts(reader))


def deepseek_v3(reader: ConfigReader) -> ModelArchitecture:
    """DeepSeek-V3 and R1, Kimi-K2, Moonlight."""
    return decoder(reader, **_latent(reader), **routed_experts(reader))


def glm4_moe_lite(reader: ConfigReader) -> ModelArchitecture:
    """GLM-4.7-Flash."""
    filled = reader.with_defaults({"first_k_dense_replace": 1})
    return decoder(filled, **_latent(filled), **routed_experts(filled))


def _indexer(reader: ConfigReader) -> dict[str, Any]:
    names = ("index_n_heads", "index_head_dim", "index_topk")
    return {"indexer": {name: reader.size(name) for name in names}}


def deepseek_v32(reader: ConfigReader) -> ModelArchitecture:
    """DeepSeek-V3.2: an indexer in every layer."""
    return decoder(reader, **_latent(reader), **_indexer(reader), **routed_experts(reader))


def glm_moe_dsa(reader: ConfigReader) -> ModelArchitecture:
    """GLM-5, whose layers may share the choice of an indexer."""
    runs = _runs_indexer(reader)
    experts = routed_experts(reader)
    if all(runs):
        return decoder(reader, **_latent(reader), **_indexer(reader), **experts)
    dense = experts.pop("num_dense_layers", 0)
    letters = "".join(("dD" if layer < dense else "eE")[each] for layer, each in enumerate(runs))
    kinds: dict[str, dict[str, Any]] = {
        "D": {"mlp": "dense"},
        "d": {"mlp": "dense", "runs_indexer": False},
        "E": {},
        "e": {"runs_indexer": False},
    }
    return decoder(
        reader, **_latent(reader), **_indexer(reader), **experts, **kinds_of(letters, kinds)
    )


def _runs_indexer(reader: ConfigReader) -> list[bool]:
    """Whether each layer has an indexer: listed, or one in so many from an offset on."""
    listed = reader.words("indexer_types", known=("full", "shared"))
    if listed:
        return [word == "full" for word in listed]
    every = max(reader.optional_count("index_topk_freq"), 1)
    given = reader.optional_size("index_skip_topk_offset")
    offset = 2 if given is None else given  # GlmMoeDsaConfig documents 2
    return [max(layer - offset + 1, 0) % every == 0 for layer in range(num_layers(reader))]
