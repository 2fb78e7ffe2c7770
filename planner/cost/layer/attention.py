"""Seconds of training's and scoring's attention in one layer, forward and backward."""

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.gpu_generations import over_tables
from automap.planner.cost.operators.profile import Profile, Timed
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import local_key_value_heads
from automap.planner.cost.stacks import SoftwareStack
from automap.planner.layout import FloatArray, IntArray


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
    """(forward, backward) seconds of one layer's causal attention, averaged over the lengths.

    Context parallelism gives each rank 1/c of the scores (zigzag order balances the mask).
    """
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
        "head_dim": arch.head_dim,
    }
    seconds, source = profile.prefill_attention(**shape)
    forward = Timed(seconds @ lengths.weights, source.max(axis=1))
    measured = profile.prefill_attention_backward(**shape)
    if measured is not None:
        backward = Timed(measured.seconds @ lengths.weights, measured.source.max(axis=1))
        return forward, backward
    backward_seconds = forward.seconds * constants.ATTENTION_BACKWARD_RATIO
    return forward, Timed(backward_seconds, forward.source)


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
