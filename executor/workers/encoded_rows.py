"""Batches as arrays, which Ray passes on without a copy, and rows picked out of them.

In numpy: with few rows an operation of torch takes several times as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from automap.executor.batch import Batch, Column, Ragged
from automap.executor.workers.quick_pickles import by_position

Indices = npt.NDArray[np.int64]
Array = npt.NDArray[np.generic]


@by_position
@dataclass(frozen=True, slots=True)
class EncodedTensor:
    """A tensor as an array, which Ray shares between the processes of a node without a copy."""

    array: Array
    dtype: str
    """torch's name; numpy has no bfloat16, so the array holds its bits."""

    @classmethod
    def of(cls, tensor: Tensor) -> "EncodedTensor":
        """On the CPU."""
        tensor = tensor.detach().cpu().contiguous()
        bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        return cls(bits.numpy(), str(tensor.dtype).removeprefix("torch."))

    def tensor(self) -> Tensor:
        """Over the array's memory."""
        tensor = torch.from_numpy(self.array)
        dtype = getattr(torch, self.dtype)
        return tensor.view(dtype) if tensor.dtype != dtype else tensor


EncodedColumn = tuple[EncodedTensor, EncodedTensor | None]
"""Values, and lengths if it is ragged."""


@by_position
@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch on its way through the object store."""

    columns: dict[str, EncodedColumn]

    @classmethod
    def of(cls, batch: Batch) -> "EncodedBatch":
        """All of its columns."""
        return cls({name: _encoded(column) for name, column in batch.items()})


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of one batch."""

    data: EncodedBatch
    names: Mapping[str, str]
    """The columns that are meant, by the name they are to have: name → name in the data."""
    rows: Indices


def on_end(parts: Sequence[Picked], order: Indices | None = None) -> dict[str, Column]:
    """Columns of all parts' rows, one part after the other, as tensors of one's own.

    Args:
        parts: at least one; they have the same columns.
        order: of the rows, as they then lie; None: as they are.

    Raises:
        ValueError: the parts have unlike columns.
    """
    names = parts[0].names
    if any(part.names.keys() != names.keys() for part in parts):
        raise ValueError(f"parts have unlike columns: {[sorted(part.names) for part in parts]}")
    rows = [_as_slice(part.rows) for part in parts]
    found: dict[str, Column] = {}
    for name in names:
        columns = [
            _taken(part.data.columns[part.names[name]], each)
            for part, each in zip(parts, rows, strict=True)
        ]
        values, lengths = _joined(name, columns)
        if order is not None:
            values, lengths = _taken((values, lengths), order)
        found[name] = (
            values.tensor() if lengths is None else Ragged(values.tensor(), lengths.tensor())
        )
    return found


def _encoded(column: Column) -> EncodedColumn:
    if isinstance(column, Ragged):
        return EncodedTensor.of(column.values), EncodedTensor.of(column.lengths)
    return EncodedTensor.of(column), None


def _as_slice(rows: Indices) -> slice | Indices:
    """Neighbours as a slice, which needs no index per element."""
    if not len(rows):
        return slice(0, 0)
    if rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(rows[1:] - rows[:-1] == 1)):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _taken(column: EncodedColumn, rows: slice | Indices) -> EncodedColumn:
    values, lengths = column
    if lengths is None:
        return EncodedTensor(values.array[rows], values.dtype), None
    counts: Indices = lengths.array.astype(np.int64, copy=False)
    ends = np.cumsum(counts)
    starts, ends = (ends - counts)[rows], ends[rows]
    elements: slice | Indices = slice(0, 0)
    if not isinstance(rows, slice):
        taken = ends - starts
        first = np.cumsum(taken) - taken
        elements = np.arange(taken.sum()) + np.repeat(starts - first, taken)
    elif len(starts):
        elements = slice(int(starts[0]), int(ends[-1]))
    return (
        EncodedTensor(values.array[elements], values.dtype),
        EncodedTensor(lengths.array[rows], lengths.dtype),
    )


def _joined(name: str, columns: Sequence[EncodedColumn]) -> EncodedColumn:
    """The columns on end; a copy."""
    values = [each for each, _ in columns]
    lengths = [each for _, each in columns if each is not None]
    if len(lengths) not in (0, len(columns)):
        raise ValueError(f"column {name!r} is ragged in some parts and plain in others")
    return _concatenated(name, values), _concatenated(name, lengths) if lengths else None


def _concatenated(name: str, tensors: Sequence[EncodedTensor]) -> EncodedTensor:
    dtypes = {each.dtype for each in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"column {name!r} has unlike dtypes {sorted(dtypes)}")
    return EncodedTensor(np.concatenate([each.array for each in tensors]), dtypes.pop())
