"""PPO-ptx: pre-train rows among the rollout's, so that one sum holds both losses.

InstructGPT adds coefficient × mean(−log π) over pre-train text to the policy loss (Ouyang et al.
2022, eq. 2). A pre-train row is a row like any other, marked in the column `pretrain`: the first
token is its prompt, the others are its response. It does not count in the weight that sums are
divided by. Its own row weight makes up for that: over an iteration the pre-train sum divided by the
rollout's weight is coefficient × the mean over pre-train tokens (or sequences). The row weight is
one number for the whole iteration, so mini-batches, ranks and micro-batches add up alike.
"""

import torch
from torch import Tensor

from automap.executor.algorithms.losses import Aggregate
from automap.executor.batch import Batch, Column, Ragged, concatenate


def pretrain_row_weight(
    response_lengths: Tensor,
    pretrain_lengths: Tensor,
    *,
    coefficient: float,
    aggregate: Aggregate,
) -> float:
    """The weight of every pre-train row of an iteration.

    Args:
        response_lengths: [rows] of all the iteration's responses.
        pretrain_lengths: [pre-train rows] tokens, the first included, which nothing predicts.
        coefficient: pretrain_coefficient.
        aggregate: How the loss is averaged.
    """
    if aggregate == "token_mean":
        counts, others = response_lengths.sum(), (pretrain_lengths - 1).sum()
        return coefficient * float(counts.double() / others.double())
    return coefficient * (len(response_lengths) / len(pretrain_lengths))


def join_pretrain(batch: Batch, pretrain: Batch, *, row_weight: float) -> Batch:
    """Rollout and pre-train rows by turns, so that every run of rows has as many of both.

    Args:
        batch: The rollout with the columns that the loss reads; the pre-train rows get 0 there.
        pretrain: As many rows, with the ragged column `tokens`, and `weight` if rows pad.
        row_weight: As `pretrain_row_weight` gives it.

    Raises:
        ValueError: unlike numbers of rows, or a pre-train row of fewer than two tokens.
    """
    tokens = pretrain.ragged("tokens")
    if len(tokens) != batch.num_rows:
        raise ValueError(f"{len(tokens)} pre-train rows for {batch.num_rows} of the rollout")
    if len(tokens) and int(tokens.lengths.min()) < 2:
        raise ValueError("a pre-train row needs two tokens: one to predict from, one to predict")
    first = torch.zeros(len(tokens.values), dtype=torch.bool)
    first[tokens.lengths.cumsum(0) - tokens.lengths] = True
    lengths = tokens.lengths - 1
    columns: dict[str, Column] = {
        name: _zeros(column, lengths) for name, column in batch.items() if name != "weight"
    }
    columns["prompt_tokens"] = Ragged(tokens.values[first], torch.ones_like(lengths))
    columns["response_tokens"] = Ragged(tokens.values[~first], lengths)
    columns["weight"] = (row_weight * pretrain.weights()).to(batch.weights())
    columns["pretrain"] = torch.ones(len(tokens), dtype=torch.bool)
    rollout = batch.with_columns(
        weight=batch.weights(), pretrain=torch.zeros(batch.num_rows, dtype=torch.bool)
    )
    by_turns = torch.arange(2 * batch.num_rows).reshape(2, -1).T.flatten()
    return concatenate([rollout, Batch(columns)]).take(by_turns)


def _zeros(column: Column, lengths: Tensor) -> Column:
    """Nothing, for rows of the given response lengths."""
    if not isinstance(column, Ragged):
        return torch.zeros((len(lengths), *column.shape[1:]), dtype=column.dtype)
    shape = (int(lengths.sum()), *column.values.shape[1:])
    return Ragged(torch.zeros(shape, dtype=column.values.dtype), lengths)
