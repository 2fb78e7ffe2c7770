"""Tokens that memory must hold at once, where sequences are of unequal lengths."""

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths, token_budgets
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.slowest import expected_largests
from automap.planner.cost.stacks import stack_of
from automap.planner.layout import FloatArray, IntArray
from automap.planner.spec import WorkloadSpec

# Tilts by which the tail of a sum is found, in inverse standard deviations of one length: from the
# mean of 10,000 sequences and more to all of them at the maximum.
_TILTS = np.concatenate([[0.0], np.geomspace(0.02, 100.0, 64)])


def peak_tokens(
    workload: WorkloadSpec, lengths: SequenceLengths, num_sequences: IntArray
) -> IntArray:
    """Tokens that memory must hold of so many sequences at once.

    Software that fills micro-batches holds what it fills them up to. Other software takes the next
    so many sequences as they come, and memory must hold the fullest of a run: the expected largest
    of what `PEAK_ITERATIONS` iterations draw, at least `token_budgets`, at most all at the maximum.
    """
    budget = token_budgets(lengths, num_sequences)
    if stack_of(workload).balances_tokens or len(lengths.points) == 1:
        return budget
    first, inverse = distinct_rows(num_sequences)
    counts = num_sequences[first]
    draws = ceil_div(constants.PEAK_ITERATIONS * workload.num_sequences, counts)
    scores = expected_largests(draws) / np.sqrt(counts)
    fullest = np.ceil(counts * _mean_tokens_at(workload, scores) - 1e-6).astype(np.int64)
    peak: IntArray = np.minimum(fullest, counts * lengths.max_tokens)[inverse]
    return np.maximum(budget, peak)


def _mean_tokens_at(workload: WorkloadSpec, scores: FloatArray) -> FloatArray:
    """Mean length of n sequences whose sum is as rare as a normal one of so many deviations.

    `scores` are those deviations over √n. That n lengths have at least the mean x is about as
    likely as that a normal variable exceeds √(2·n·I(x)), where the rate I(x) = θ·x - K(θ) is taken
    at the tilt θ with K'(θ) = x, K being the cumulants' generating function (the leading term of
    Lugannani and Rice 1980). Unlike an expansion in moments it knows the maximum: n sequences of
    it are as rare as they are. Prompts and responses are independent, so their K add.
    """
    parts = [each.distribution() for each in (workload.prompt_length, workload.response_length)]
    variances = [points**2 @ weights - (points @ weights) ** 2 for points, weights in parts]
    tilts = _TILTS / np.sqrt(sum(variances))
    # All relative to the longest, so that no exponential overflows.
    below, cumulants = np.zeros(len(tilts)), np.zeros(len(tilts))
    longest, never = 0.0, 0.0
    for points, weights in parts:
        tilted = np.exp(np.outer(tilts, points - points[-1])) * weights
        total = tilted.sum(axis=1)
        below += tilted @ (points - points[-1]) / total
        cumulants += np.log(total)
        longest += points[-1]
        never -= np.log(weights[points == points[-1]].sum())
    rates = np.append(np.maximum(tilts * below - cumulants, 0.0), never)
    means: FloatArray = longest + np.interp(scores, np.sqrt(2.0 * rates), np.append(below, 0.0))
    return means
