"""Sizes out of the `config.json` of each supported model family, one function per family.

family_parts.py has the rule for keys that are missing, and what families share.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from automap.planner.catalogue.architecture import MAX_LAYERS, ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.families_hybrid import (
    gemma4,
    nemotron_h,
    qwen3_5,
    qwen3_5_moe,
    qwen3_next,
)
from automap.planner.catalogue.families_latent import (
    deepseek_v2,
    deepseek_v3,
    deepseek_v32,
    glm4_moe_lite,
    glm_moe_dsa,
)
from automap.planner.catalogue.families_moe import (
    glm4_moe,
    gpt_oss,
    llama4,
    minimax_m2,
    mixtral,
    qwen2_moe,
    qwen3_moe,
)
from automap.planner.catalogue.family_parts import (
    decoder,
    divided_head_dim,
    grouped_heads,
    head_dim,
    num_layers,
    sliding_kinds,
    window,
)
from automap.planner.catalogue.family_parts_qwen import qwen2_sizes, qwen3_sizes


def _llama(reader: ConfigReader) -> ModelArchitecture:
    # LlamaConfig documents: no num_key_value_heads means as many as attention heads.
    heads = reader.optional_size("num_key_value_heads") or reader.size("num_attention_heads")
    attention_bias = reader.flag("attention_bias", default=False)
    mlp_bias = reader.flag("mlp_bias", default=False)
    return decoder(
        reader,
        num_key_value_heads=heads,
        head_dim=head_dim(reader),
        attention_bias=attention_bias and not mlp_bias,
        attention_output_bias=attention_bias and not mlp_bias,
        linear_bias=attention_bias and mlp_bias,
        notes=["the biases of the MLP are left out"] if mlp_bias and not attention_bias else (),
    )


def _mistral(reader: ConfigReader) -> ModelArchitecture:
    return decoder(reader, **grouped_heads(reader), sliding_window=window(reader))


def _phi3(reader: ConfigReader) -> ModelArchitecture:
    return decoder(reader, **grouped_heads(reader), sliding_window=window(reader))


def _qwen2(reader: ConfigReader) -> ModelArchitecture:
    return decoder(reader, **qwen2_sizes(reader))


def _qwen3(reader: ConfigReader) -> ModelArchitecture:
    return decoder(reader, **qwen3_sizes(reader))


def _glm4(reader: ConfigReader) -> ModelArchitecture:
    return decoder(
        reader,
        **grouped_heads(reader),
        attention_bias=reader.flag("attention_bias", default=False),
        sandwich_norms=True,
    )


def _gemma2(reader: ConfigReader) -> ModelArchitecture:
    return decoder(
        reader,
        **grouped_heads(reader),
        **sliding_kinds(reader, full_every=2),
        sandwich_norms=True,
        tied=True,
    )


def _gemma3(reader: ConfigReader) -> ModelArchitecture:
    # The files of Gemma 3 leave out what the configuration class has by default.
    usual = {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    }
    filled = reader.with_defaults(usual)
    every = filled.optional_size("sliding_window_pattern") or 6
    return decoder(
        filled,
        **grouped_heads(filled),
        **sliding_kinds(filled, full_every=every),
        query_key_norm=True,
        sandwich_norms=True,
        tied=True,
    )


def _olmo2(reader: ConfigReader) -> ModelArchitecture:
    return decoder(reader, **grouped_heads(reader), query_key_norm_over_heads=True)


def _olmo3(reader: ConfigReader) -> ModelArchitecture:
    return decoder(
        reader,
        **grouped_heads(reader),
        **sliding_kinds(reader, full_every=4),
        query_key_norm_over_heads=True,
    )


def _gpt2(reader: ConfigReader) -> ModelArchitecture:
    hidden_size, heads = reader.size("n_embd"), reader.size("n_head")
    return ModelArchitecture(
        num_layers=reader.size("n_layer", maximum=MAX_LAYERS),
        hidden_size=hidden_size,
        # GPT2Config documents: no n_inner means four times n_embd.
        intermediate_size=reader.optional_size("n_inner") or 4 * hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=divided_head_dim(reader, hidden="n_embd", heads="n_head"),
        vocab_size=reader.size("vocab_size"),
        max_position_embeddings=reader.size("n_positions"),
        gated_mlp=False,
        tied_embeddings=reader.flag("tie_word_embeddings", default=True),
        learned_position_embeddings=True,
        linear_bias=True,
        norm_bias=True,
    )


def _gpt_neox(reader: ConfigReader) -> ModelArchitecture:
    heads = reader.size("num_attention_heads")
    has_bias = reader.flag("attention_bias", default=True)
    return ModelArchitecture(
        num_layers=num_layers(reader),
        hidden_size=reader.size("hidden_size"),
        intermediate_size=reader.size("intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=divided_head_dim(reader, hidden="hidden_size", heads="num_attention_heads"),
        vocab_size=reader.size("vocab_size"),
        max_position_embeddings=reader.size("max_position_embeddings"),
        gated_mlp=False,
        tied_embeddings=reader.flag("tie_word_embeddings", default=False),
        linear_bias=True,
        norm_bias=True,
        approximation="" if has_bias else "attention biases are counted that the model has not",
    )


_READERS: dict[str, Callable[[ConfigReader], ModelArchitecture]] = {
    "llama": _llama,
    "mistral": _mistral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "glm4": _glm4,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma4": gemma4,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "mixtral": mixtral,
    "gpt_oss": gpt_oss,
    "glm4_moe": glm4_moe,
    "minimax_m2": minimax_m2,
    "llama4": llama4,
    "qwen3_next": qwen3_next,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
    "nemotron_h": nemotron_h,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32,
    "kimi_k2": deepseek_v3,
    "glm4_moe_lite": glm4_moe_lite,
    "glm_moe_dsa": glm_moe_dsa,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}
_ALSO_CALLED = {
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "llama4_text": "llama4",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
"""`model_type` of text towers, and of older vision-language files that keep the sizes beside it."""

FAMILIES: Mapping[str, Callable[[ConfigReader], ModelArchitecture]] = MappingProxyType(
    _READERS | {name: _READERS[family] for name, family in _ALSO_CALLED.items()}
)
