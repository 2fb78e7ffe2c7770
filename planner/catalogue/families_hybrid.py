"""Models whose layers mix tokens in several ways: linear attention, state spaces, Gemma 4."""

from typing import Any

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.family_parts import (
    decoder,
    grouped_heads,
    key_value_heads,
    kinds_of,
    layer_types,
    num_layers,
    sliding_kinds,
)

_DELTA_NET = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
)
_BLOCKS = {"M": "mamba", "-": "mlp", "*": "attention", "E": "moe"}
"""Letters of `hybrid_override_pattern`, and the words of `layers_block_type`."""


def _delta_net_sizes(reader: ConfigReader) -> dict[str, Any]:
    every = reader.optional_size("full_attention_interval") or 4
    words = layer_types(reader, full_every=every)
    letters = ["F" if word == "full_attention" else "l" for word in words]
    convolution = reader.optional_size("linear_conv_kernel_dim") or 4
    sizes = {name: reader.size(name) for name in _DELTA_NET}
    return {
        "num_key_value_heads": key_value_heads(reader),
        "head_dim": reader.size("head_dim"),
        "query_key_norm": True,
        "attention_output_gate": reader.flag("attn_output_gate", default=True),
        "gated_delta_net": {**sizes, "linear_conv_kernel_dim": convolution},
        **kinds_of(letters, {"l": {"mixer": "gated_delta_net"}, "F": {}}),
    }


def _gated_experts(reader: ConfigReader) -> dict[str, Any]:
    width = reader.size("moe_intermediate_size")
    return {
        "num_experts": reader.size("num_experts"),
        "num_experts_per_token": reader.size("num_experts_per_tok"),
        "moe_intermediate_size": width,
        "intermediate_size": reader.optional_size("intermediate_size") or width,
        "shared_expert_intermediate_size": reader.size("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }


def _every_layer_has_experts(reader: ConfigReader) -> None:
    step = reader.optional_size("decoder_sparse_step") or 1
    if step > 1 or reader.layer_indices("mlp_only_layers"):
        reader.contradiction(
            "layers without experts beside linear attention are not supported",
            remedy="give the sizes inline, with a kind for each",
        )


def _prediction_note(reader: ConfigReader) -> list[str]:
    layers = reader.optional_count("mtp_num_hidden_layers")
    return ["the multi-token prediction module is left out"] if layers else []


def qwen3_next(reader: ConfigReader) -> ModelArchitecture:
    """Qwen3-Next: gated delta-nets, every fourth layer with gated attention; experts."""
    _every_layer_has_experts(reader)
    return decoder(
        reader,
        **_gated_experts(reader),
        **_delta_net_sizes(reader),
        notes=_prediction_note(reader),
    )


def qwen3_5(reader: ConfigReader) -> ModelArchitecture:
    """Qwen3.5 and 3.6, dense."""
    return decoder(reader, **_delta_net_sizes(reader), notes=_prediction_note(reader))


def qwen3_5_moe(reader: ConfigReader) -> ModelArchitecture:
    """Qwen3.5 and 3.6 with experts."""
    return decoder(
        reader,
        **_gated_experts(reader),
        **_delta_net_sizes(reader),
        notes=_prediction_note(reader),
    )


def gemma4(reader: ConfigReader) -> ModelArchitecture:
    """Gemma 4: windows, full layers with wider heads, experts beside a dense MLP."""
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if reader.optional_count(key):
            reader.contradiction(
                f"{key} is set, and such layers are not supported",
                remedy="give the sizes inline, and the count in attention_parameters_per_layer",
            )
    heads = grouped_heads(reader)
    full: dict[str, Any] = {
        "head_dim": reader.optional_size("global_head_dim") or heads["head_dim"],
        "num_key_value_heads": reader.optional_size("num_global_key_value_heads")
        or heads["num_key_value_heads"],
        "shared_key_value": reader.flag("attention_k_eq_v", default=False),
    }
    experts: dict[str, Any] = {}
    if reader.flag("enable_moe_block", default=False):
        experts = {
            "num_experts": reader.size("num_experts"),
            "num_experts_per_token": reader.size("top_k_experts"),
            "moe_intermediate_size": reader.size("moe_intermediate_size"),
            "shared_expert_intermediate_size": reader.size("intermediate_size"),
            "expert_norms": True,
        }
    return decoder(
        reader,
        **heads,
        **experts,
        **sliding_kinds(reader, full_every=6, full=full),
        query_key_norm=True,
        sandwich_norms=True,
        tied=True,
    )


def nemotron_h(reader: ConfigReader) -> ModelArchitecture:
    """Nemotron-H and Nemotron-3: every layer is a state space, attention, an MLP, or experts."""
    letters, layers = _blocks(reader), num_layers(reader)
    if len(letters) != layers:
        reader.contradiction(
            f"the pattern has {len(letters)} layers, and num_hidden_layers is {layers}",
            remedy="correct one of the two",
        )
    experts: dict[str, Any] = {}
    if "E" in letters:
        experts = {
            "num_experts": reader.size("n_routed_experts"),
            "num_experts_per_token": reader.size("num_experts_per_tok"),
            "moe_intermediate_size": reader.size("moe_intermediate_size"),
            "shared_expert_intermediate_size": reader.count("n_shared_experts")
            * reader.size("moe_shared_expert_intermediate_size"),
            "expert_latent_size": reader.optional_size("moe_latent_size") or 0,
        }
    kinds: dict[str, dict[str, Any]] = {
        "M": {"mixer": "mamba2", "mlp": "none"},
        "-": {"mixer": "none", "mlp": "dense"},
        "*": {"mlp": "none"},
        "E": {"mixer": "none", "mlp": "experts"},
    }
    mamba = {
        "mamba_num_heads": reader.size("mamba_num_heads"),
        "mamba_head_dim": reader.size("mamba_head_dim"),
        "ssm_state_size": reader.size("ssm_state_size"),
        "n_groups": reader.optional_size("n_groups") or 8,
        "conv_kernel": reader.optional_size("conv_kernel") or 4,
    }
    return decoder(
        reader,
        **grouped_heads(reader),
        **experts,
        **kinds_of(letters, kinds),
        gated_mlp=False,
        mamba2=mamba,
    )


def _blocks(reader: ConfigReader) -> str:
    pattern = reader.letters("hybrid_override_pattern", known="".join(_BLOCKS))
    if pattern:
        return pattern
    words = {
        "linear_attention": "M",
        "full_attention": "*",
        **{word: letter for letter, word in _BLOCKS.items()},
    }
    listed = reader.words("layers_block_type", known=tuple(words))
    if not listed:
        reader.missing("hybrid_override_pattern", "the layers in order, in letters M, -, * and E")
        return "M" * num_layers(reader)
    return "".join(words[word] for word in listed)
