"""What the Qwen families have in common, dense or with experts."""

from typing import Any

from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.family_parts import (
    experts_in,
    head_dim,
    key_value_heads,
    kinds_of,
    num_layers,
    window,
)


def qwen2_sizes(reader: ConfigReader) -> dict[str, Any]:
    """Attention of Qwen 2 and 2.5, with biases."""
    return {
        "num_key_value_heads": key_value_heads(reader),
        "head_dim": head_dim(reader),
        "attention_bias": True,
        **_window(reader),
    }


def qwen3_sizes(reader: ConfigReader) -> dict[str, Any]:
    """Attention of Qwen 3, with norms of queries and keys."""
    # head_dim is no hidden_size ÷ heads in this family, so it must be given.
    attention_bias = reader.flag("attention_bias", default=False)
    return {
        "num_key_value_heads": key_value_heads(reader),
        "head_dim": reader.size("head_dim"),
        "attention_bias": attention_bias,
        "attention_output_bias": attention_bias,
        "query_key_norm": True,
        **_window(reader),
    }


def _window(reader: ConfigReader) -> dict[str, Any]:
    """The window that layers from `max_window_layers` on have."""
    # Most Qwen configs state a window; use_sliding_window switches it on and defaults to off.
    if not reader.flag("use_sliding_window", default=False):
        return {}
    size, layers = window(reader), num_layers(reader)
    full = reader.optional_count("max_window_layers")
    if not size or full >= layers:
        return {}
    letters = "F" * full + "s" * (layers - full)
    return kinds_of(letters, {"F": {}, "s": {"sliding_window": size}})


def qwen_experts(reader: ConfigReader) -> dict[str, Any]:
    """Every decoder_sparse_step-th layer has experts, but for those in mlp_only_layers."""
    step = reader.optional_size("decoder_sparse_step") or 1
    dense = set(reader.layer_indices("mlp_only_layers"))
    width = reader.size("moe_intermediate_size")
    sparse = [layer not in dense and (layer + 1) % step == 0 for layer in range(num_layers(reader))]
    return {
        "num_experts": reader.size("num_experts"),
        "num_experts_per_token": reader.size("num_experts_per_tok"),
        "moe_intermediate_size": width,
        # Files of mixtures without a dense layer may leave its width out.
        "intermediate_size": reader.optional_size("intermediate_size") or width,
        **experts_in(sparse),
    }
