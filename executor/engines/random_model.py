"""A Hugging Face configuration from sizes alone, for models that start from random weights."""

from typing import Any

from transformers import LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from automap.planner.catalogue import RARE_FIELDS, ModelArchitecture


def config_of(architecture: ModelArchitecture) -> PreTrainedConfig:
    """Llama's, or Qwen2's and Qwen3's where their biases and norms are asked for.

    Raises:
        ValueError: names what no engine here can build from sizes.
    """
    refused = {
        "num_experts": architecture.num_experts > 0,
        "gated_mlp: false": not architecture.gated_mlp,
        "linear_bias": architecture.linear_bias,
        "norm_bias": architecture.norm_bias,
        "learned_position_embeddings": architecture.learned_position_embeddings,
        "attention_parameters_per_layer": architecture.attention_parameters_per_layer > 0,
        "attention_bias with query_key_norm": architecture.attention_bias
        and architecture.query_key_norm,
    }
    found = [name for name, is_there in refused.items() if is_there]
    # What few models have is written only where a model has it.
    found += sorted(set(architecture.model_dump()) & RARE_FIELDS)
    if found:
        raise ValueError(
            f"{', '.join(found)}: a model of random weights is a dense decoder of the Llama, Qwen2 "
            "or Qwen3 family"
        )
    kind: type[Any] = LlamaConfig  # their own signatures differ: all take what any of them takes
    if architecture.attention_bias:
        kind = Qwen2Config
    elif architecture.query_key_norm:
        kind = Qwen3Config
    return kind(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        head_dim=architecture.head_dim,
        max_position_embeddings=architecture.max_position_embeddings,
        tie_word_embeddings=architecture.tied_embeddings,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
