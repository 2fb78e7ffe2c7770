"""Rows of sequences as a dictionary of tensors, with padding removed.

One row is one sequence. The columns, by convention:

    prompt_tokens          Ragged int64        prompt_id        int64, of the prompt in the data
    response_tokens        Ragged int64        group            int64, of the prompt in the batch
    response_log_probs     Ragged float32      finished         bool, ended by itself
    weights_version        int64, iterations that the weights which generated it were trained in:
                           of the first token, where token_versions (Ragged int64) has all
    log_probs, old_log_probs, behaviour_log_probs, reference_log_probs,
    values, rewards, advantages, returns
                           Ragged float32, one element per response token
    scores                 float32             weight           float32, 0 for rows that only pad
    prompt_epoch           int64, passes over the data before the prompt's; none: 0
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of unlike length, stored end to end: values [sum of lengths, ...], lengths [rows]."""

    values: Tensor
    lengths: Tensor

    def __post_init__(self) -> None:
        if self.lengths.dim() != 1 or self.lengths.is_floating_point():
            raise ValueError(
                "lengths are a vector of integers, "
                f"got {self.lengths.dtype} {list(self.lengths.shape)}"
            )
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f"lengths are 0 or more, got {int(self.lengths.min())}")
        if int(self.lengths.sum()) != len(self.values):
            raise ValueError(
                f"lengths sum to {int(self.lengths.sum())} but there are {len(self.values)} values"
            )

    @classmethod
    def of(cls, rows: Sequence[Tensor]) -> "Ragged":
        """Rows end to end; at least one row, all of one dtype."""
        values = _cat(rows)
        return cls(values, torch.tensor([len(row) for row in rows], device=values.device))

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self) -> tuple[Tensor, ...]:
        """Views, one per row."""
        return torch.split(self.values, self.lengths.tolist())

    def row_of_value(self) -> Tensor:
        """The row that each value belongs to."""
        return torch.repeat_interleave(
            torch.arange(len(self), device=self.lengths.device), self.lengths
        )

    def with_values(self, values: Tensor) -> "Ragged":
        """Other values for the same rows."""
        return Ragged(values, self.lengths)


Column: TypeAlias = Tensor | Ragged


class Batch(Mapping[str, Column]):
    """Columns of equally many rows. Immutable: every operation returns another batch.

    Columns that an operation leaves alone share storage with the batch that it was called on.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"columns of a batch have equally many rows, got {counts}")
        self._columns = dict(columns)
        self.num_rows = next(iter(counts.values()), 0)

    def __getitem__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f"no column {name!r}; there are {sorted(self._columns)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Columns, as of any mapping; rows are `num_rows`."""
        return len(self._columns)

    def __getstate__(self) -> dict[str, object]:
        """Pickled, a view would bring along all of the storage that it looks at."""
        columns = {name: _map(_own, column) for name, column in self.items()}
        return {"_columns": columns, "num_rows": self.num_rows}

    def __repr__(self) -> str:
        return f"Batch({self.num_rows} rows: {', '.join(self)})"

    def ragged(self, name: str) -> Ragged:
        """A ragged column; TypeError if it is none."""
        column = self[name]
        if not isinstance(column, Ragged):
            raise TypeError(f"column {name!r} is a plain tensor, not a ragged one")
        return column

    def tensor(self, name: str) -> Tensor:
        """A plain column; TypeError if it is ragged."""
        column = self[name]
        if isinstance(column, Ragged):
            raise TypeError(f"column {name!r} is ragged, not a plain tensor")
        return column

    def take(self, rows: Tensor | Sequence[int]) -> "Batch":
        """The given rows, by index, in that order, as often as named; a copy."""
        index = torch.as_tensor(rows)
        indices = not (index.is_floating_point() or index.dtype == torch.bool)
        if index.dim() != 1 or not (indices or len(index) == 0):
            raise TypeError(f"rows are a vector of indices, got {index.dtype} {list(index.shape)}")
        index = index.to(torch.int64)
        return Batch({name: _take(column, index) for name, column in self.items()})

    def slice(self, start: int, stop: int) -> "Batch":
        """Rows start … stop − 1; a copy."""
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of a batch of {self.num_rows}")
        return self.take(torch.arange(start, stop))

    @classmethod
    def concatenate(cls, batches: Sequence["Batch"]) -> "Batch":
        """Rows of all batches, as the function `concatenate`; transfer protocols ask the class."""
        return concatenate(batches)

    def to(self, device: torch.device | str) -> "Batch":
        """These rows on another device."""
        return Batch({name: _map(lambda each: each.to(device), self[name]) for name in self})

    def with_columns(self, **columns: Column) -> "Batch":
        """The batch with these columns added, or in place of those with the same names."""
        return Batch({**self._columns, **columns})

    def merge(self, other: "Batch") -> "Batch":
        """The columns of both batches; where both have one, that of `other`."""
        return Batch({**self._columns, **other})

    def only(self, *names: str) -> "Batch":
        """These columns alone."""
        return Batch({name: self[name] for name in names})

    def sequence_lengths(self) -> Tensor:
        """Prompt and response tokens of every row."""
        return self.ragged("prompt_tokens").lengths + self.ragged("response_tokens").lengths

    def weights(self) -> Tensor:
        """Weight of every row, [rows]: 1, or what the column `weight` says."""
        if "weight" in self:
            return self.tensor("weight")
        device = next((each.device for column in self.values() for each in _tensors(column)), None)
        return torch.ones(self.num_rows, device=device)

    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(tensor.nbytes for column in self.values() for tensor in _tensors(column))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The rows of all batches, which have the same columns of the same dtypes.

    Raises:
        ValueError: no batch, or unlike columns.
    """
    if not batches:
        raise ValueError("nothing to concatenate")
    names = [set(batch) for batch in batches]
    if any(other != names[0] for other in names):
        raise ValueError(f"batches have unlike columns: {[sorted(each) for each in names]}")
    columns = {name: [batch[name] for batch in batches] for name in batches[0]}
    return Batch({name: _concatenate(name, parts) for name, parts in columns.items()})


def _take(column: Column, index: Tensor) -> Column:
    if not isinstance(column, Ragged):
        return column[index]
    lengths = column.lengths[index]
    starts = (column.lengths.cumsum(0) - column.lengths)[index]
    within = torch.arange(int(lengths.sum()), device=lengths.device) - torch.repeat_interleave(
        lengths.cumsum(0) - lengths, lengths
    )
    return Ragged(column.values[torch.repeat_interleave(starts, lengths) + within], lengths)


def _concatenate(name: str, columns: Sequence[Column]) -> Column:
    ragged = [column for column in columns if isinstance(column, Ragged)]
    plain = [column for column in columns if not isinstance(column, Ragged)]
    if ragged and plain:
        raise ValueError(f"column {name!r} is ragged in some batches and plain in others")
    try:
        if plain:
            return _cat(plain)
        return Ragged(
            _cat([each.values for each in ragged]), _cat([each.lengths for each in ragged])
        )
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from error


def _cat(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.cat` of tensors of one dtype; by itself it would turn integers into floats.

    Raises:
        ValueError: there are no tensors, or their dtypes differ.
    """
    if not tensors:
        raise ValueError("nothing to concatenate")
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"cannot concatenate unlike dtypes {sorted(map(str, dtypes))}")
    return torch.cat(list(tensors))


def _own(tensor: Tensor) -> Tensor:
    """A tensor with no more storage than its elements need."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _map(function: Callable[[Tensor], Tensor], column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(function(column.values), function(column.lengths))
    return function(column)


def _tensors(column: Column) -> tuple[Tensor, ...]:
    return (column.values, column.lengths) if isinstance(column, Ragged) else (column,)
