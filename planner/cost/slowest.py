"""What waiting for the slowest costs: of GPUs by speed, of ranks and micro-batches by tokens.

All ranks of a call wait for one another, so what counts is the expected largest of many draws.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths, token_budgets
from automap.planner.cost.rows import distinct_rows
from automap.planner.layout import BoolArray, FloatArray, IntArray, Layouts

REFERENCE_GPUS = 8
"""GPUs for whose slowest the other constants of the cost model hold: a node's."""


@lru_cache(maxsize=65_536)
def expected_largest(count: int) -> float:
    """Expected largest of `count` standard normal draws, in standard deviations.

    Within 0.03 of the exact value. Source: Blom 1958, Statistical Estimates and Transformed
    Beta-Variables.
    """
    if count < 2:
        return 0.0
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def expected_largests(counts: IntArray) -> FloatArray:
    """`expected_largest` of every count [row]."""
    first, inverse = distinct_rows(counts)
    values = np.array([expected_largest(count) for count in counts[first].tolist()])
    return np.asarray(values[inverse], dtype=np.float64)


def slowest_gpu(num_gpus: IntArray) -> FloatArray:
    """Compute seconds of the slowest of so many equal GPUs over those of a node's slowest.

    1 up to `REFERENCE_GPUS`.
    """
    largest = expected_largests(np.maximum(num_gpus, REFERENCE_GPUS))
    node = constants.GPU_SPEED_SPREAD * expected_largest(REFERENCE_GPUS)
    return (1.0 + constants.GPU_SPEED_SPREAD * largest) / (1.0 + node)


def fullest(lengths: SequenceLengths, *, sequences: IntArray, draws: IntArray) -> FloatArray:
    """Tokens of the fullest of so many draws of `sequences` each over the mean draw's.

    The expected largest of sums of lengths, normal but for their skewness (Cornish and Fisher
    1938); at most max ÷ mean.
    """
    mean = lengths.mean_tokens
    variation = lengths.deviation_tokens / mean
    root = np.sqrt(np.maximum(sequences, 1))
    normal = expected_largests(draws)
    skewed = np.maximum((normal**2 - 1.0) * lengths.skewness / (6.0 * root), 0.0)
    factor = 1.0 + variation * np.where(normal > 0.0, normal + skewed, 0.0) / root
    at_most: FloatArray = np.minimum(factor, max(lengths.max_tokens / mean, 1.0))
    return at_most


@dataclass(frozen=True, slots=True)
class Waits:
    """Factors [candidate] by which sequences of unequal lengths stretch a step of micro-batches."""

    work: FloatArray
    """On the micro-batches of a rank, of mean lengths."""
    ends: FloatArray
    """On what the first and the last micro-batch of a pipeline wait for the others' stages."""


def token_waits(
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    filled: bool,
    dealt: bool,
    sequences_per_rank: IntArray,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    in_step: BoolArray,
    pipeline_share: float,
) -> Waits:
    """What a step of micro-batches waits, whose sequences are of unequal lengths.

    Where micro-batches are `filled`, ranks wait for the longest sequence of all alone, or, where
    sequences are not `dealt` to ranks by their tokens, for the rank that has most of them. Of
    micro-batches of so many sequences, as they come, stages of a pipeline wait for the fullest of
    the micro-batches that are in them, and keep `pipeline_share` of what it has beyond the mean.
    Ranks that are `in_step` exchange gradients or weights within every micro-batch, so each of
    these waits for its fullest rank; others wait once, at the end.
    """
    ranks = layouts.data_parallel_size
    rank = fullest(lengths, sequences=sequences_per_rank, draws=ranks)
    if filled:
        waits = _filled_waits(
            lengths,
            ranks=ranks,
            sequences_per_rank=sequences_per_rank,
            micro_batch_size=micro_batch_size,
        )
        return waits if dealt else replace(waits, work=np.maximum(waits.work, rank))
    stages = np.minimum(layouts.pipeline_parallel_size, num_micro_batches)
    draws = stages * np.where(in_step, ranks, 1)
    share = np.where(layouts.pipeline_parallel_size > 1, pipeline_share, 1.0)
    sequences = np.minimum(micro_batch_size, sequences_per_rank)
    beyond = fullest(lengths, sequences=sequences, draws=draws) - 1.0
    return Waits((1.0 + share * beyond) * np.where(in_step, 1.0, rank), rank)


def _filled_waits(
    lengths: SequenceLengths,
    *,
    ranks: IntArray,
    sequences_per_rank: IntArray,
    micro_batch_size: IntArray,
) -> Waits:
    """What a step waits whose micro-batches are filled up to equally many tokens.

    They are as many as memory is sized for, so fewer and larger than of mean lengths: nothing waits
    for a fullest one, and the pipeline's ends wait longer. Ranks have even tokens, unless one with
    the longest sequence of all, and shortest ones beside it, has more: all have equally many.
    """
    tokens = np.minimum(
        token_budgets(lengths, micro_batch_size), sequences_per_rank * lengths.mean_tokens
    )
    larger = np.maximum(tokens / (micro_batch_size * lengths.mean_tokens), 1.0)
    sequences = np.maximum(sequences_per_rank, 1)
    longest = _longest(lengths, draws=ranks * sequences)
    shortest = float(lengths.points.min())
    rank = (longest + (sequences - 1) * shortest) / (sequences * lengths.mean_tokens)
    return Waits(np.maximum(rank, 1.0), larger)


def _longest(lengths: SequenceLengths, *, draws: IntArray) -> FloatArray:
    """Tokens of the longest of so many sequences, in expectation [candidate].

    That all are at most as long as a point has the chance of one, to the power of their number.
    """
    first, inverse = distinct_rows(draws)
    points, weights = lengths.tail or (lengths.points, lengths.weights)
    at_most = np.minimum(np.cumsum(weights), 1.0)
    all_at_most = at_most[None, :] ** draws[first, None]
    expected: FloatArray = np.diff(all_at_most, axis=1, prepend=0.0) @ points
    return expected[inverse]
