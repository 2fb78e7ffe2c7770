"""Sizes out of the `config.json` of each supported model family, one function per family.

A missing key takes a default only where the family's configuration class in transformers documents
that default and it holds for the family's published models; anything else is an error that names
the key. Keys that change no sizes (rope, dropout, token ids) are not read.
Source: the configuration classes of transformers 4.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from automap.planner.catalogue.architecture import (
    CACHE_OVERRIDE_BYTES_PER_ELEMENT,
    ModelArchitecture,
)
from automap.planner.catalogue.config_reader import ConfigReader

MAX_LAYERS = 10_000
"""Most layers, as in ModelArchitecture.num_layers; checked before anything is listed by layer."""


@dataclass(frozen=True, slots=True)
class _Experts:
    """The mixture-of-experts part; `sparse` says of each layer whether it has experts."""

    num_experts: int
    moe_intermediate_size: int
    sparse: Sequence[bool]
    shared_intermediate_size: int = 0


def _rotary(
    reader: ConfigReader,
    *,
    num_key_value_heads: int,
    head_dim: int,
    attention_bias: bool = False,
    linear_bias: bool = False,
    query_key_norm: bool = False,
    experts: _Experts | None = None,
    latent: "_LatentAttention | None" = None,
    approximations: Sequence[str] = (),
) -> ModelArchitecture:
    """A model with rotary positions, RMSNorm and gated MLPs: all families here but the GPTs."""
    sparse = experts.sparse if experts else []
    num_dense_layers = len(sparse) - sum(sparse)
    notes = list(approximations)
    if any(sparse[:num_dense_layers]):
        notes.append(
            f"the {num_dense_layers} layers without experts, which lie between the others, are "
            "taken to be the first"
        )
    return ModelArchitecture(
        num_layers=_num_layers(reader),
        hidden_size=reader.size("hidden_size"),
        intermediate_size=reader.size("intermediate_size"),
        num_attention_heads=reader.size("num_attention_heads"),
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        vocab_size=reader.size("vocab_size"),
        max_position_embeddings=reader.size("max_position_embeddings"),
        tied_embeddings=reader.flag("tie_word_embeddings", default=False),
        attention_bias=attention_bias,
        linear_bias=linear_bias,
        query_key_norm=query_key_norm,
        num_experts=experts.num_experts if experts else 0,
        num_experts_per_token=reader.size("num_experts_per_tok") if experts else 0,
        moe_intermediate_size=experts.moe_intermediate_size if experts else 0,
        shared_expert_intermediate_size=experts.shared_intermediate_size if experts else 0,
        num_dense_layers=num_dense_layers,
        attention_parameters_per_layer=latent.parameters if latent else 0,
        key_value_bytes_per_token_per_layer=latent.cache_bytes if latent else 0,
        approximation="; ".join(notes),
    )


def _num_layers(reader: ConfigReader) -> int:
    return reader.size("num_hidden_layers", maximum=MAX_LAYERS)


def _key_value_heads(reader: ConfigReader) -> int:
    # transformers reads null as "as many as attention heads", but gives a missing key a default of
    # 8 or 32 that depends on the family and fits few models: missing is an error.
    if "num_key_value_heads" in reader.config and reader.config["num_key_value_heads"] is None:
        return reader.size("num_attention_heads")
    return reader.size("num_key_value_heads")


def _head_dim(reader: ConfigReader) -> int:
    """head_dim where given, else hidden_size ÷ num_attention_heads, which must divide."""
    head_dim = reader.optional_size("head_dim")
    if head_dim is not None:
        return head_dim
    return _divided_head_dim(reader, hidden="hidden_size", heads="num_attention_heads")


def _divided_head_dim(reader: ConfigReader, *, hidden: str, heads: str) -> int:
    hidden_size, num_heads = reader.size(hidden), reader.size(heads)
    if hidden_size % num_heads:
        reader.contradiction(
            f"{hidden}={hidden_size} is not a multiple of {heads}={num_heads}",
            remedy="correct one of the two",
        )
    return max(hidden_size // num_heads, 1)


def _ignored_window(reader: ConfigReader) -> list[str]:
    window = reader.optional_size("sliding_window")
    if window is None or window >= reader.size("max_position_embeddings"):
        return []
    return [
        f"the sliding window of {window} tokens is ignored: attention and cache are priced in full"
    ]


def _bias_of_attention_alone(attention_bias: bool) -> list[str]:
    return ["the bias of the attention output is left out"] if attention_bias else []


def _llama(reader: ConfigReader) -> ModelArchitecture:
    # LlamaConfig documents: no num_key_value_heads means as many as attention heads.
    heads = reader.optional_size("num_key_value_heads") or reader.size("num_attention_heads")
    attention_bias = reader.flag("attention_bias", default=False)
    mlp_bias = reader.flag("mlp_bias", default=False)
    notes = [] if mlp_bias else _bias_of_attention_alone(attention_bias)
    if mlp_bias and not attention_bias:
        notes = ["the biases of the MLP are left out"]
    return _rotary(
        reader,
        num_key_value_heads=heads,
        head_dim=_head_dim(reader),
        attention_bias=attention_bias and not mlp_bias,
        linear_bias=attention_bias and mlp_bias,
        approximations=notes,
    )


def _mistral(reader: ConfigReader) -> ModelArchitecture:
    return _rotary(
        reader,
        num_key_value_heads=_key_value_heads(reader),
        head_dim=_head_dim(reader),
        approximations=_ignored_window(reader),
    )


def _mixtral(reader: ConfigReader) -> ModelArchitecture:
    # Every Mixtral layer has experts, and intermediate_size is the width of one.
    experts = _Experts(
        num_experts=reader.size("num_local_experts"),
        moe_intermediate_size=reader.size("intermediate_size"),
        sparse=[True] * _num_layers(reader),
    )
    return _rotary(
        reader,
        num_key_value_heads=_key_value_heads(reader),
        head_dim=_head_dim(reader),
        experts=experts,
        approximations=_ignored_window(reader),
    )


def _qwen_window(reader: ConfigReader) -> list[str]:
    # Most Qwen configs state a window; use_sliding_window switches it on and defaults to off.
    return _ignored_window(reader) if reader.flag("use_sliding_window", default=False) else []


def _qwen2(
    reader: ConfigReader, experts: _Experts | None = None, notes: Sequence[str] = ()
) -> ModelArchitecture:
    return _rotary(
        reader,
        num_key_value_heads=_key_value_heads(reader),
        head_dim=_head_dim(reader),
        attention_bias=True,
        experts=experts,
        approximations=[*notes, *_qwen_window(reader)],
    )


def _qwen2_moe(reader: ConfigReader) -> ModelArchitecture:
    shared = reader.size("shared_expert_intermediate_size")
    return _qwen2(
        reader, _qwen_experts(reader, shared), ["the gate of the shared expert is left out"]
    )


def _qwen3(reader: ConfigReader, experts: _Experts | None = None) -> ModelArchitecture:
    # head_dim is no hidden_size ÷ heads in this family, so it must be given.
    attention_bias = reader.flag("attention_bias", default=False)
    return _rotary(
        reader,
        num_key_value_heads=_key_value_heads(reader),
        head_dim=reader.size("head_dim"),
        attention_bias=attention_bias,
        query_key_norm=True,
        experts=experts,
        approximations=[*_bias_of_attention_alone(attention_bias), *_qwen_window(reader)],
    )


def _qwen3_moe(reader: ConfigReader) -> ModelArchitecture:
    return _qwen3(reader, _qwen_experts(reader, shared_intermediate_size=0))


def _qwen_experts(reader: ConfigReader, shared_intermediate_size: int) -> _Experts:
    """Every decoder_sparse_step-th layer has experts, but for those in mlp_only_layers."""
    step = reader.optional_size("decoder_sparse_step") or 1
    dense = set(reader.layer_indices("mlp_only_layers"))
    return _Experts(
        num_experts=reader.size("num_experts"),
        moe_intermediate_size=reader.size("moe_intermediate_size"),
        sparse=[
            layer not in dense and (layer + 1) % step == 0 for layer in range(_num_layers(reader))
        ],
        shared_intermediate_size=shared_intermediate_size,
    )


@dataclass(frozen=True, slots=True)
class _LatentAttention:
    """What multi-head latent attention overrides, per layer."""

    parameters: int
    cache_bytes: int


def _latent_attention(reader: ConfigReader) -> _LatentAttention:
    """Sizes of one layer's latent attention with its two inner norms.

    Source: DeepSeek-V2 report (arXiv:2405.04434), section 2.1 and appendix C.
    """
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    rope, nope = reader.size("qk_rope_head_dim"), reader.size("qk_nope_head_dim")
    value, latent = reader.size("v_head_dim"), reader.size("kv_lora_rank")
    query_rank, query_size = reader.optional_size("q_lora_rank"), heads * (nope + rope)
    query = hidden * query_size
    if query_rank is not None:
        query = hidden * query_rank + query_rank + query_rank * query_size
    key_value = hidden * (latent + rope) + latent + latent * heads * (nope + value)
    return _LatentAttention(
        parameters=query + key_value + heads * value * hidden,
        cache_bytes=(latent + rope) * CACHE_OVERRIDE_BYTES_PER_ELEMENT,
    )


def _deepseek_v3(reader: ConfigReader) -> ModelArchitecture:
    heads, head_dim = reader.size("num_attention_heads"), reader.size("v_head_dim")
    expert_size = reader.size("moe_intermediate_size")
    dense = reader.count("first_k_dense_replace")
    frequency = reader.optional_size("moe_layer_freq") or 1
    experts = _Experts(
        num_experts=reader.size("n_routed_experts"),
        moe_intermediate_size=expert_size,
        sparse=[layer >= dense and layer % frequency == 0 for layer in range(_num_layers(reader))],
        shared_intermediate_size=reader.count("n_shared_experts") * expert_size,
    )
    return _rotary(
        reader,
        num_key_value_heads=heads,
        head_dim=head_dim,
        experts=experts,
        latent=_latent_attention(reader),
        approximations=[
            f"multi-head latent attention is priced as multi-head attention with {heads} heads of "
            f"{head_dim} but for decode steps; its parameters and its cache are those of the real "
            "one",
            "the multi-token prediction module is left out",
        ],
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
        head_dim=_divided_head_dim(reader, hidden="n_embd", heads="n_head"),
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
        num_layers=_num_layers(reader),
        hidden_size=reader.size("hidden_size"),
        intermediate_size=reader.size("intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=_divided_head_dim(reader, hidden="hidden_size", heads="num_attention_heads"),
        vocab_size=reader.size("vocab_size"),
        max_position_embeddings=reader.size("max_position_embeddings"),
        gated_mlp=False,
        tied_embeddings=reader.flag("tie_word_embeddings", default=False),
        linear_bias=True,
        norm_bias=True,
        approximation="" if has_bias else "attention biases are counted that the model has not",
    )


FAMILIES: Mapping[str, Callable[[ConfigReader], ModelArchitecture]] = MappingProxyType(
    {
        "llama": _llama,
        "mistral": _mistral,
        "qwen2": _qwen2,
        "qwen3": _qwen3,
        "qwen2_moe": _qwen2_moe,
        "qwen3_moe": _qwen3_moe,
        "mixtral": _mixtral,
        "gpt2": _gpt2,
        "gpt_neox": _gpt_neox,
        "deepseek_v3": _deepseek_v3,
    }
)
