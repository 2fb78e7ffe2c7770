"""An inline block of sizes out of a configuration of an unknown family, to be completed by hand."""

from collections.abc import Mapping

from automap.planner.catalogue.config_reader import MAX_SIZE

UNKNOWN = '"?"'
"""What stands where the configuration does not tell a size."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "d_ff"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "v_head_dim"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "max_seq_len"),
}
"""Size → keys under which families have it, the usual one first."""
_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_token": ("num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_topk"),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size"),
}
_HINTS = (
    "layer_types",
    "hybrid_override_pattern",
    "layers_block_type",
    "sliding_window",
    "attention_chunk_size",
    "full_attention_interval",
    "kv_lora_rank",
    "index_topk",
    "linear_num_value_heads",
    "ssm_state_size",
    "first_k_dense_replace",
    "mlp_only_layers",
    "interleave_moe_layer_step",
    "n_shared_experts",
    "shared_expert_intermediate_size",
)
"""Keys that say in what the layers are not plain, or not alike."""


def inline_sizes(config: Mapping[str, object]) -> str:
    """`architecture: {…}` in YAML, filled as far as the keys tell, and what to look at besides."""
    found = {name: _size(config, keys) for name, keys in _KEYS.items()}
    if found["head_dim"] is None and "kv_lora_rank" not in config:
        found["head_dim"] = _divided(found["hidden_size"], found["num_attention_heads"])
    experts = {name: _size(config, keys) for name, keys in _EXPERTS.items()}
    if experts["num_experts"] is not None:
        found |= experts
    parts = [f"{name}: {UNKNOWN if size is None else size}" for name, size in found.items()]
    if isinstance(config.get("tie_word_embeddings"), bool):
        parts.append(f"tied_embeddings: {str(config['tie_word_embeddings']).lower()}")
    text = f"architecture: {{{', '.join(parts)}}}"
    hints = [key for key in _HINTS if config.get(key)]
    if hints:
        text += f"; it does not have yet what {', '.join(hints)} say"
    return text


def _size(config: Mapping[str, object], keys: tuple[str, ...]) -> int | None:
    """The first of the keys that holds a size."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIZE:
            return value
    return None


def _divided(hidden: int | None, heads: int | None) -> int | None:
    """Size of a head where the hidden size is divided among them."""
    return hidden // heads if hidden and heads and hidden % heads == 0 else None
