"""How an iteration's sequences fall on data-parallel ranks and micro-batches."""

from dataclasses import dataclass

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.rows import ceil_div
from automap.planner.layout import FloatArray, IntArray
from automap.planner.spec import WorkloadSpec
from automap.planner.spec.lengths import LengthSpec

LENGTH_POINTS = 8
PROMPT_POINTS = 4


@dataclass(frozen=True, slots=True)
class SequenceLengths:
    """Distribution of sequence lengths (prompt plus response) in tokens, as the model sees them.

    Arrays are [point]; weights sum to 1. When sequences are padded there is one point, the maximum.
    """

    points: FloatArray
    weights: FloatArray
    max_tokens: int
    tail: tuple[FloatArray, FloatArray] | None = None
    """Points and weights as fine as the spec knows responses, with prompts of their mean; None:
    those above. Of few points the last has more weight than sequences at the maximum."""

    @property
    def mean_tokens(self) -> float:
        """Mean length: Σ weight × point."""
        return float(self.points @ self.weights)

    @property
    def deviation_tokens(self) -> float:
        """Standard deviation of the length."""
        variance = float(((self.points - self.mean_tokens) ** 2) @ self.weights)
        return float(np.sqrt(max(variance, 0.0)))

    @property
    def skewness(self) -> float:
        """Third standardised moment of the length; 0 where all are equally long."""
        deviation = self.deviation_tokens
        if deviation <= 1e-9 * self.mean_tokens:
            return 0.0
        return float((((self.points - self.mean_tokens) / deviation) ** 3) @ self.weights)


def _max_tokens(lengths: LengthSpec) -> int:
    return int(np.ceil(lengths.max_tokens))


def sequence_lengths(workload: WorkloadSpec) -> SequenceLengths:
    """Distribution of prompt plus response, the two taken as independent."""
    longest = _max_tokens(workload.prompt_length) + _max_tokens(workload.response_length)
    if not workload.packed_sequences:
        return SequenceLengths(np.array([float(longest)]), np.ones(1), longest)
    prompts, prompt_weights = workload.prompt_length.discretised(PROMPT_POINTS)
    responses, response_weights = workload.response_length.discretised(LENGTH_POINTS)
    sums = np.add.outer(np.asarray(prompts), np.asarray(responses)).ravel()
    weights = np.multiply.outer(np.asarray(prompt_weights), np.asarray(response_weights)).ravel()
    points, inverse = np.unique(sums, return_inverse=True)
    merged = np.bincount(inverse.reshape(-1), weights=weights)
    fine, fine_weights = workload.response_length.distribution()
    tail = (fine + workload.prompt_length.mean_tokens, fine_weights)
    return SequenceLengths(points.astype(np.float64), merged / merged.sum(), longest, tail)


def micro_batch_tokens(lengths: SequenceLengths, micro_batch_size: IntArray) -> IntArray:
    """Mean tokens of a micro-batch, rounded up, before context parallelism divides them."""
    tokens = np.asarray(micro_batch_size * lengths.mean_tokens)
    return np.ceil(tokens - 1e-6).astype(np.int64)


def token_budgets(lengths: SequenceLengths, num_sequences: IntArray) -> IntArray:
    """Tokens up to which a micro-batch is filled where the plan has so many sequences.

    One longest sequence beside mean ones, or the mean plus `TOKEN_BUDGET_SIGMAS` deviations of the
    sum, whichever is more; never more than all at the maximum.
    """
    count = np.asarray(num_sequences, dtype=np.float64)
    mean, deviation = lengths.mean_tokens, lengths.deviation_tokens
    one_longest = lengths.max_tokens + (count - 1) * mean
    spread = count * mean + constants.TOKEN_BUDGET_SIGMAS * deviation * np.sqrt(count)
    tokens = np.minimum(np.maximum(one_longest, spread), count * lengths.max_tokens)
    whole: IntArray = np.ceil(tokens - 1e-6).astype(np.int64)
    return whole


def token_budget(workload: WorkloadSpec, micro_batch_size: int) -> int:
    """Tokens to fill a micro-batch up to, never fewer than of the longest; see `token_budgets`."""
    sequences = np.array([micro_batch_size], dtype=np.int64)
    return int(token_budgets(sequence_lengths(workload), sequences)[0])


def micro_batches(
    num_sequences: IntArray | int, *, data_parallel_size: IntArray, micro_batch_size: IntArray
) -> tuple[IntArray, IntArray]:
    """(sequences per data rank, micro-batches per data rank), both rounded up."""
    per_rank = ceil_div(num_sequences, data_parallel_size)
    return per_rank, ceil_div(per_rank, micro_batch_size)
