"""Mixtures of experts with grouped-query attention, one function per family."""

from typing import Any

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.family_parts import (
    decoder,
    experts_in,
    grouped_heads,
    kinds_of,
    num_layers,
    sliding_kinds,
    window,
)
from automap.planner.catalogue.family_parts_qwen import qwen2_sizes, qwen3_sizes, qwen_experts


def qwen2_moe(reader: ConfigReader) -> ModelArchitecture:
    """Qwen1.5-MoE and Qwen2-MoE, with a gated shared expert."""
    return decoder(
        reader,
        **qwen2_sizes(reader),
        **qwen_experts(reader),
        shared_expert_intermediate_size=reader.size("shared_expert_intermediate_size"),
        shared_expert_gate=True,
    )


def qwen3_moe(reader: ConfigReader) -> ModelArchitecture:
    """Qwen3-MoE and Qwen3-Coder."""
    return decoder(reader, **qwen3_sizes(reader), **qwen_experts(reader))


def local_experts(reader: ConfigReader, *, width: str = "intermediate_size") -> dict[str, Any]:
    """Experts of families in which `width` is that of one, and `num_local_experts` their number."""
    return {
        "num_experts": reader.size("num_local_experts"),
        "num_experts_per_token": reader.size("num_experts_per_tok"),
        "moe_intermediate_size": reader.size(width),
    }


def routed_experts(reader: ConfigReader) -> dict[str, Any]:
    """Experts of DeepSeek and GLM: `n_routed_experts`, and shared ones of the same width."""
    width = reader.size("moe_intermediate_size")
    dense = reader.count("first_k_dense_replace")
    frequency = reader.optional_size("moe_layer_freq") or 1
    layers = range(num_layers(reader))
    return {
        "num_experts": reader.size("n_routed_experts"),
        "num_experts_per_token": reader.size("num_experts_per_tok"),
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": reader.count("n_shared_experts") * width,
        **experts_in([layer >= dense and layer % frequency == 0 for layer in layers]),
    }


def mixtral(reader: ConfigReader) -> ModelArchitecture:
    """Mixtral: experts in every layer."""
    return decoder(
        reader,
        **grouped_heads(reader),
        **local_experts(reader),
        sliding_window=window(reader),
    )


def gpt_oss(reader: ConfigReader) -> ModelArchitecture:
    """gpt-oss: biases everywhere, sinks, a window in every other layer."""
    return decoder(
        reader,
        **grouped_heads(reader),
        **local_experts(reader),
        **sliding_kinds(reader, full_every=2),
        linear_bias=True,
        router_bias=True,
        attention_sinks=True,
    )


def glm4_moe(reader: ConfigReader) -> ModelArchitecture:
    """GLM-4.5 to 4.7 and Air."""
    return decoder(
        reader,
        **grouped_heads(reader),
        **routed_experts(reader),
        attention_bias=reader.flag("attention_bias", default=False),
        query_key_norm=reader.flag("use_qk_norm", default=False),
    )


def minimax_m2(reader: ConfigReader) -> ModelArchitecture:
    """MiniMax-M2: norms over all queries and all keys."""
    return decoder(
        reader,
        **grouped_heads(reader),
        **local_experts(reader),
        query_key_norm_over_heads=reader.flag("use_qk_norm", default=True),
        notes=["modules that predict more tokens are left out"]
        if reader.flag("use_mtp", default=False)
        else (),
    )


def llama4(reader: ConfigReader) -> ModelArchitecture:
    """Llama 4: three of four layers attend in chunks; experts in every layer, or every other."""
    layers, step = num_layers(reader), reader.size("interleave_moe_layer_step")
    rotary = reader.layer_flags("no_rope_layers")
    if not rotary:
        rotary = [(layer + 1) % 4 != 0 for layer in range(layers)]
    chunk = reader.optional_size("attention_chunk_size") or 0
    width = reader.size("intermediate_size")
    letters = "".join(
        ("cC" if rotary[layer % len(rotary)] else "fF")[(layer + 1) % step == 0]
        for layer in range(layers)
    )
    kinds: dict[str, dict[str, Any]] = {
        "c": {"attention_chunk_size": chunk, "mlp": "dense"},
        "C": {"attention_chunk_size": chunk},
        "f": {"mlp": "dense"},
        "F": {},
    }
    return decoder(
        reader,
        **grouped_heads(reader),
        **local_experts(reader),
        **kinds_of(letters, kinds),
        intermediate_size=reader.optional_size("intermediate_size_mlp") or width,
        shared_expert_intermediate_size=width,
    )
