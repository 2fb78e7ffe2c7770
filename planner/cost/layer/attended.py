"""Which tokens a layer attends to and caches, and the arithmetic of layers that keep a state.

A window, a chunk or an indexer limits what a token attends to; an indexer limits no cache. Layers
with a state (gated delta-nets, state spaces) attend to nothing.
"""

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layer_groups
from automap.planner.catalogue.layer_kinds import STATE_BYTES
from automap.planner.catalogue.layer_sizes import CACHE_OVERRIDE_BYTES_PER_ELEMENT
from automap.planner.layout import FloatArray


def attends(arch: ModelArchitecture) -> bool:
    """Whether the layer has attention over the tokens of a sequence."""
    return arch.mixer == "attention"


def is_limited(arch: ModelArchitecture) -> bool:
    """Whether a token attends to a part of the tokens before it."""
    return bool(_limit(arch) or arch.attention_chunk_size)


def _limit(arch: ModelArchitecture) -> int:
    """Most tokens that a token attends to, wherever they lie; 0: all."""
    return arch.sliding_window or (arch.indexer.index_topk if arch.indexer else 0)


def attended_squares(arch: ModelArchitecture, lengths: FloatArray) -> FloatArray:
    """Twice the pairs of tokens that attend to one another in sequences of such lengths.

    It is n² with causal attention over all; 2·n·w − w² over at most w tokens; c² for each chunk.
    """
    if arch.attention_chunk_size:
        chunk = arch.attention_chunk_size
        whole = np.floor(lengths / chunk)
        return np.asarray(whole * chunk**2 + np.square(lengths - whole * chunk))
    limit = _limit(arch)
    if not limit:
        return np.square(lengths)
    return np.where(lengths > limit, 2.0 * lengths * limit - float(limit) ** 2, np.square(lengths))


def read_tokens(arch: ModelArchitecture, cached: FloatArray) -> FloatArray:
    """Tokens that the next token of sequences of such lengths attends to; half a chunk on average.

    `cached` are tokens of the whole sequence.
    """
    if arch.attention_chunk_size:
        chunk = arch.attention_chunk_size
        return np.where(cached > chunk, chunk / 2.0, cached)
    limit = _limit(arch)
    return np.minimum(cached, limit) if limit else cached


def kept_tokens(arch: ModelArchitecture, tokens: int) -> int:
    """Tokens of a sequence that a layer's cache holds: the last of a window or a chunk."""
    limit = arch.sliding_window or arch.attention_chunk_size
    return min(tokens, limit) if limit else tokens


def state_bytes(arch: ModelArchitecture, *, element_bytes: int) -> int:
    """Bytes of a sequence in a layer with a state: the state in fp32, the convolution's inputs."""
    block = arch.gated_delta_net if arch.mixer == "gated_delta_net" else arch.mamba2
    if arch.mixer not in ("gated_delta_net", "mamba2") or block is None:
        return 0
    return STATE_BYTES * block.state_elements + element_bytes * block.convolution_elements


def state_flops_per_token(arch: ModelArchitecture) -> float:
    """Forward FLOPs of a token in the recurrence of a layer with a state, as it is defined.

    A delta rule reads the state twice and adds to it, a state space reads and adds once. What
    kernels do beside that within a chunk is not counted, as with recomputation.
    """
    if arch.mixer == "gated_delta_net" and arch.gated_delta_net is not None:
        return 6.0 * arch.gated_delta_net.state_elements
    if arch.mixer == "mamba2" and arch.mamba2 is not None:
        return 4.0 * arch.mamba2.state_elements
    return 0.0


def attention_flops(arch: ModelArchitecture, squares: float) -> float:
    """Forward FLOPs of a layer's two products over twice so many pairs of tokens: 2·a·d each.

    Queries and keys of latent attention are wider than values. The indexer is not in it: it looks
    at all pairs.
    """
    latent = arch.latent_attention
    if latent is None:
        return 2.0 * squares * arch.num_attention_heads * arch.head_dim
    return squares * arch.num_attention_heads * (latent.query_key_head_dim + latent.v_head_dim)


def indexer_flops(arch: ModelArchitecture, squares: float) -> float:
    """Forward FLOPs of an indexer's product over twice so many pairs of tokens; 0 without one."""
    if not arch.has_indexer or arch.indexer is None:
        return 0.0
    return squares * arch.indexer.index_n_heads * arch.indexer.index_head_dim


def mixer_width(arch: ModelArchitecture) -> int:
    """Elements of a token that small kernels of the mixer read and write.

    Queries and keys with rotary positions; the convolved channels of a layer with a state.
    """
    if arch.mixer == "gated_delta_net" and arch.gated_delta_net is not None:
        return arch.gated_delta_net.convolved_size + arch.gated_delta_net.value_size
    if arch.mixer == "mamba2" and arch.mamba2 is not None:
        return arch.mamba2.convolved_size + arch.mamba2.inner_size
    return arch.query_size + arch.key_value_size if arch.mixer == "attention" else 0


def kernel_width(arch: ModelArchitecture) -> int:
    """Elements of a token that an engine's small kernels of the mixer handle, values included."""
    if arch.mixer == "attention":
        return arch.query_size + 2 * arch.key_value_size
    return mixer_width(arch)


def whole_layers(arch: ModelArchitecture) -> float:
    """Layers of a mixer and an MLP; a mixer or an MLP alone is half of one."""
    blocks = sum(
        group.num_layers * ((group.sizes.mixer != "none") + (group.mlp != "none"))
        for group in layer_groups(arch)
    )
    return blocks / 2


def latent_cache_elements(arch: ModelArchitecture) -> int:
    """Elements of a token in a layer's latent cache, for all heads; 0 where heads have their own.

    An approximated attention states its bytes.
    """
    if arch.latent_attention is not None:
        return arch.latent_attention.cache_elements
    return arch.key_value_bytes_per_token_per_layer // CACHE_OVERRIDE_BYTES_PER_ELEMENT


def indexer_cache_elements(arch: ModelArchitecture) -> int:
    """Elements of a token that a layer's indexer caches: its key; 0 without one."""
    return arch.indexer.index_head_dim if arch.has_indexer and arch.indexer else 0
