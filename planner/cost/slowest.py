"""What waiting for the slowest costs: of GPUs that differ in speed, of ranks that differ in tokens.

All ranks of a call wait for one another, so what counts is the expected largest of many draws.
"""

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.rows import distinct_rows
from automap.planner.layout import FloatArray, IntArray

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


def _expected_largest(counts: IntArray) -> FloatArray:
    first, inverse = distinct_rows(counts)
    values = np.array([expected_largest(count) for count in counts[first].tolist()])
    return np.asarray(values[inverse], dtype=np.float64)


def slowest_gpu(num_gpus: IntArray) -> FloatArray:
    """Compute seconds of the slowest of so many equal GPUs over those of a node's slowest.

    1 up to `REFERENCE_GPUS`.
    """
    largest = _expected_largest(np.maximum(num_gpus, REFERENCE_GPUS))
    node = constants.GPU_SPEED_SPREAD * expected_largest(REFERENCE_GPUS)
    return (1.0 + constants.GPU_SPEED_SPREAD * largest) / (1.0 + node)


def slowest_rank(
    lengths: SequenceLengths, *, sequences_per_rank: IntArray, data_parallel_size: IntArray
) -> FloatArray:
    """Tokens of the fullest data rank of a step over the mean rank's, sequences dealt at random.

    The expected largest of d sums of n lengths, normal but for the skewness of the lengths (Cornish
    and Fisher 1938); at most max ÷ mean.
    """
    mean = lengths.mean_tokens
    variation = lengths.deviation_tokens / mean
    root = np.sqrt(np.maximum(sequences_per_rank, 1))
    normal = _expected_largest(data_parallel_size)
    skewed = np.maximum((normal**2 - 1.0) * lengths.skewness / (6.0 * root), 0.0)
    factor = 1.0 + variation * np.where(normal > 0.0, normal + skewed, 0.0) / root
    at_most: FloatArray = np.minimum(factor, max(lengths.max_tokens / mean, 1.0))
    return at_most
