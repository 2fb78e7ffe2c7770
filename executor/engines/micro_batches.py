"""From rows to micro-batches: sequences packed end to end, never padded."""

from dataclasses import dataclass

import torch
from torch import Tensor

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.training_engine import Output


@dataclass(frozen=True, slots=True)
class Packed:
    """A micro-batch as one row of T tokens, its sequences end to end."""

    tokens: Tensor
    """[T] int64."""
    positions: Tensor
    """[T] int64, counted from the start of each sequence."""
    lengths: Tensor
    """[rows] int64, prompt and response."""
    predicting: Tensor
    """[response tokens] int64: the place whose output predicts each response token."""
    last: Tensor
    """[rows] int64: the place of each sequence's last token."""
    batch: Batch


def pack(batch: Batch) -> Packed:
    """Prompt and response of every row, end to end.

    Raises:
        ValueError: no rows, or a prompt without tokens, which leaves nothing that predicts the
            response's first token.
    """
    prompts, responses = batch.ragged("prompt_tokens"), batch.ragged("response_tokens")
    if not batch.num_rows:
        raise ValueError("a micro-batch has at least one row, got none")
    empty = torch.nonzero(prompts.lengths == 0)
    if len(empty):
        raise ValueError(
            f"prompt_tokens must hold at least one token, row {int(empty[0])} has none"
        )
    tokens = [torch.cat(pair) for pair in zip(prompts.rows(), responses.rows(), strict=True)]
    lengths = prompts.lengths + responses.lengths
    starts = lengths.cumsum(0) - lengths
    first = starts + prompts.lengths - 1
    return Packed(
        tokens=torch.cat(tokens),
        positions=_within_row(lengths),
        lengths=lengths,
        predicting=torch.repeat_interleave(first, responses.lengths)
        + _within_row(responses.lengths),
        last=starts + lengths - 1,
        batch=batch,
    )


def _within_row(lengths: Tensor) -> Tensor:
    """0, 1, … of every row, end to end."""
    starts = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    return torch.arange(len(starts), device=lengths.device) - starts


def split_rows(batch: Batch, *, rows: int | None = None, tokens: int | None = None) -> list[Tensor]:
    """Row indices of each micro-batch: so many rows, or as many as fit in so many tokens.

    By tokens, longest first into the first micro-batch with room; a longer row stays alone. No
    micro-batch is empty: no rows give no micro-batches.
    """
    if (rows is None) == (tokens is None):
        raise ValueError(f"give either rows or tokens of a micro-batch, got {rows=} {tokens=}")
    if (rows or tokens or 0) < 1:
        raise ValueError(f"a micro-batch has at least one row or token, got {rows=} {tokens=}")
    if not batch.num_rows:
        return []
    if rows is not None:
        return list(torch.arange(batch.num_rows).split(rows))
    assert tokens is not None
    lengths = batch.sequence_lengths().tolist()
    members: list[list[int]] = []
    room: list[int] = []
    for row in sorted(range(batch.num_rows), key=lambda each: -lengths[each]):
        index = next((i for i, left in enumerate(room) if lengths[row] <= left), None)
        if index is None:
            members.append([row])
            room.append(tokens - lengths[row])
        else:
            members[index].append(row)
            room[index] -= lengths[row]
    return [torch.tensor(sorted(each)) for each in members]


def in_order(batch: Batch, rows: list[Tensor], values: Tensor, output: Output) -> Batch:
    """Outputs of micro-batches, end to end, put back in the order of the batch's rows."""
    order = torch.cat([torch.zeros(0, dtype=torch.int64), *rows])
    if output == "scores":
        return Batch({output: values}).take(order.argsort())
    lengths = batch.ragged("response_tokens").lengths[order]
    return Batch({output: Ragged(values, lengths)}).take(order.argsort())
