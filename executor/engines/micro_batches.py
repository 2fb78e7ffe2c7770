"""From rows to micro-batches: sequences packed end to end, never padded, filled by tokens."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.training_engine import Output
from automap.executor.even_parts import even_parts


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


def check_budgets(micro_batch_tokens: int, forward_tokens: int | None) -> None:
    """Raise ValueError for micro-batches that may hold no token."""
    given = {"micro_batch_tokens": micro_batch_tokens, "forward_tokens": forward_tokens}
    for name, tokens in given.items():
        if tokens is not None and tokens < 1:
            raise ValueError(f"{name} must be at least 1, got {tokens}")


def split_rows(
    batch: Batch,
    *,
    max_tokens: int,
    group: dist.ProcessGroup,
    device: torch.device,
    multiple: int = 1,
) -> list[Tensor]:
    """Row indices of each micro-batch: as few as so many tokens allow, and filled evenly.

    All ranks of the group get equally many, as layers may talk across them: as many as the one
    that needs most. Where a rank has fewer rows than that, some have none. Collective.

    Args:
        batch: this rank's rows; may be none.
        max_tokens: of a micro-batch; a longer row is alone.
        group: the data ranks.
        device: of the group's collectives.
        multiple: what the number of micro-batches must be divisible by.
    """
    lengths = batch.sequence_lengths().tolist() if batch.num_rows else []
    full = _first_fit(lengths, max_tokens)
    most = torch.tensor(len(full), device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    number = -(-int(most) // multiple) * multiple
    even = even_parts(lengths, number)
    fits = max((_total(lengths, part) for part in even), default=0) <= max_tokens
    parts = even if fits else full + [[]] * (number - len(full))
    # The fullest first on every rank, so that what ranks do at the same time is alike.
    parts.sort(key=lambda part: -_total(lengths, part))
    return [torch.tensor(part, dtype=torch.int64) for part in parts]


def _first_fit(lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Longest first, into the first micro-batch with room."""
    parts: list[list[int]] = []
    room: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        index = next((i for i, left in enumerate(room) if lengths[row] <= left), None)
        if index is None:
            parts.append([row])
            room.append(max_tokens - lengths[row])
        else:
            parts[index].append(row)
            room[index] -= lengths[row]
    return parts


def _total(lengths: list[int], part: list[int]) -> int:
    return sum(lengths[row] for row in part)


def in_order(batch: Batch, rows: list[Tensor], values: Tensor, output: Output) -> Batch:
    """Outputs of micro-batches, end to end, put back in the order of the batch's rows."""
    order = torch.cat([torch.zeros(0, dtype=torch.int64), *rows])
    if output == "scores":
        return Batch({output: values}).take(order.argsort())
    lengths = batch.ragged("response_tokens").lengths[order]
    return Batch({output: Ragged(values, lengths)}).take(order.argsort())
