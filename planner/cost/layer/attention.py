"""Seconds of what mixes a layer's tokens in training and scoring, forward and backward.

No table has kernels of gated delta-nets or state spaces, nor attention with a window. A window
takes its part of the arithmetic of attention over all tokens, and a recurrence the rate of a matrix
product as large as its state: both are assumptions.
"""

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.gpu_generations import over_tables
from automap.planner.cost.layer.attended import (
    attended_squares,
    attends,
    is_limited,
    state_bytes,
    state_flops_per_token,
)
from automap.planner.cost.operators.profile import Profile, Timed
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import local_key_value_heads
from automap.planner.cost.stacks import SoftwareStack
from automap.planner.layout import FloatArray, IntArray

_STATE_ROWS = 128
"""Rows of a head's state (keys of a delta rule, states of a state space) in published models."""
_CHUNK_TOKENS = 64
"""Tokens after which kernels of recurrences write the state: what the published ones have."""


def attention_seconds(
    arch: ModelArchitecture,
    pool: Pool,
    profile: Profile,
    stack: SoftwareStack,
    lengths: SequenceLengths,
    *,
    precision: str,
    tensor_parallel_size: IntArray,
    context_parallel_size: IntArray,
    num_sequences: IntArray,
) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of one layer's mixer, averaged over the lengths.

    Causal attention, unless the layer has none. Context parallelism gives each rank 1/c of the
    scores (zigzag order balances the mask).
    """
    if not attends(arch):
        return _recurrence(
            arch, profile, lengths, tensor_parallel_size, context_parallel_size, num_sequences
        )
    heads = ceil_div(arch.num_attention_heads, tensor_parallel_size)
    if stack.attention == "unfused":
        forward, backward = _unfused(arch, pool, profile, lengths, precision, heads, num_sequences)
    else:
        forward, backward = _flash(
            arch, profile, lengths, heads, tensor_parallel_size, num_sequences
        )
    generation = over_tables(profile)
    share = generation.sustained_share * context_parallel_size
    if stack.attention == "unfused":
        share = share * stack.attention_share
    elif not profile.measured_here:  # tables of inference kernels
        share = share * stack.attention_share * generation.attention_share
    return Timed(forward.seconds / share, forward.source), Timed(
        backward.seconds / share, backward.source
    )


def _flash(
    arch: ModelArchitecture,
    profile: Profile,
    lengths: SequenceLengths,
    heads: IntArray,
    tensor_parallel_size: IntArray,
    num_sequences: IntArray,
) -> tuple[Timed, Timed]:
    """(forward, backward) seconds at the rate of the profile's flash-attention kernels.

    Without a measured backward kernel, backward takes five products for forward's two (Dao 2023,
    arXiv:2307.08691).
    """
    shape: dict[str, FloatArray | IntArray | float] = {
        "batch_size": num_sequences[:, None],
        "sequence_length": lengths.points[None, :],
        "num_attention_heads": heads[:, None],
        "num_key_value_heads": local_key_value_heads(arch, tensor_parallel_size)[:, None],
        "head_dim": attention_width(arch),
    }
    weights = attended_weights(arch, lengths)
    seconds, source = profile.prefill_attention(**shape)
    forward = Timed(seconds @ weights, source.max(axis=1))
    if arch.has_indexer:
        picked = indexer_seconds(arch, profile, lengths, num_sequences)
        forward = Timed(forward.seconds + picked.seconds, np.maximum(forward.source, picked.source))
    measured = profile.prefill_attention_backward(**shape)
    if measured is not None:
        backward = Timed(measured.seconds @ weights, measured.source.max(axis=1))
        return forward, backward
    backward_seconds = forward.seconds * constants.ATTENTION_BACKWARD_RATIO
    return forward, Timed(backward_seconds, forward.source)


def indexer_seconds(
    arch: ModelArchitecture, profile: Profile, lengths: SequenceLengths, num_sequences: IntArray
) -> Timed:
    """Forward seconds in which a layer's indexer scores all tokens; 0 without one.

    It is one of attention's two products, with one key for all heads, whole on every GPU of the
    tensor group.
    """
    if not arch.has_indexer or arch.indexer is None:
        nothing = np.zeros(len(num_sequences))
        return Timed(nothing, nothing.astype(np.int64))
    found = profile.prefill_attention(
        batch_size=num_sequences[:, None],
        sequence_length=lengths.points[None, :],
        num_attention_heads=arch.indexer.index_n_heads,
        num_key_value_heads=1,
        head_dim=arch.indexer.index_head_dim,
    )
    return Timed(found.seconds @ lengths.weights / 2.0, found.source.max(axis=1))


def attention_width(arch: ModelArchitecture) -> float:
    """Width of a head in attention's products: queries and keys may be wider than values."""
    latent = arch.latent_attention
    if latent is None:
        return arch.head_dim
    return (latent.query_key_head_dim + latent.v_head_dim) / 2


def attended_weights(arch: ModelArchitecture, lengths: SequenceLengths) -> FloatArray:
    """Weights of the lengths, times the part of attention over all tokens that a layer has."""
    if not is_limited(arch):
        return lengths.weights
    part = attended_squares(arch, lengths.points) / np.square(lengths.points)
    return np.asarray(lengths.weights * part, dtype=np.float64)


def _recurrence(
    arch: ModelArchitecture,
    profile: Profile,
    lengths: SequenceLengths,
    tensor_parallel_size: IntArray,
    context_parallel_size: IntArray,
    num_sequences: IntArray,
) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of the recurrence over a context rank's share of the tokens."""
    tokens = ceil_div(
        np.ceil(num_sequences * lengths.mean_tokens).astype(np.int64), context_parallel_size
    )
    forward = recurrence_seconds(arch, profile, tokens, tensor_parallel_size)
    return forward, Timed(2.0 * forward.seconds, forward.source)


def recurrence_seconds(
    arch: ModelArchitecture, profile: Profile, tokens: IntArray, tensor_parallel_size: IntArray
) -> Timed:
    """Forward seconds of a layer's recurrence over so many tokens; 0 where it has none.

    The products of a chunk with its state, as one product of the same arithmetic.
    """
    flops = state_flops_per_token(arch)
    if not flops:
        return Timed(np.zeros(len(tokens)), np.zeros(len(tokens), dtype=np.int64))
    inner = _STATE_ROWS
    outputs = ceil_div(int(flops / (2 * inner)), tensor_parallel_size)
    product = profile.gemm(tokens, outputs, inner, precision="bf16")
    # One state per chunk is written and read again.
    states = ceil_div(tokens, _CHUNK_TOKENS) * state_bytes(arch, element_bytes=2)
    moved = profile.memory_bound(2.0 * states / tensor_parallel_size)
    return Timed(product.seconds + moved.seconds, np.maximum(product.source, moved.source))


def _unfused(
    arch: ModelArchitecture,
    pool: Pool,
    profile: Profile,
    lengths: SequenceLengths,
    precision: str,
    heads: IntArray,
    num_sequences: IntArray,
) -> tuple[Timed, Timed]:
    """(forward, backward) seconds with the scores in memory: two products forward, four backward.

    The causal mask saves nothing.

    A masked softmax reads and writes each score; its gradient reads two and writes one. Heads
    whose rows are no multiple of 16 bytes miss the tensor cores.
    """
    element = constants.PRECISION_BYTES[precision]
    length = np.sqrt(np.square(lengths.points) @ lengths.weights)
    keys = np.full_like(heads, int(np.ceil(length)))
    rows = num_sequences * heads * keys
    width = np.full_like(heads, arch.head_dim)
    scores = profile.gemm(rows, keys, width, precision=precision)
    values = profile.gemm(rows, width, keys, precision=precision)
    products: FloatArray = scores.seconds + values.seconds
    if arch.head_dim * element % 16:
        peak = pool.gpu.bf16_flops_per_second * constants.NO_TENSOR_CORE_SHARE
        products = np.asarray(4.0 * rows * keys * arch.head_dim / peak, dtype=np.float64)
    softmax = profile.memory_bound(2 * element * rows * keys)
    source = np.maximum.reduce([scores.source, values.source, softmax.source])
    forward = Timed(products + softmax.seconds, source)
    return forward, Timed(2.0 * products + 1.5 * softmax.seconds, source)
