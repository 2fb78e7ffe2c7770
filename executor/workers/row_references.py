"""References to rows that lie in the object store: the controller passes them on unread.

A worker puts its result there in blocks and tells the controller where they are; `Rows` is what the
controller holds. Slicing, permuting, joining and renaming touch only numbers. A worker that is
given `Rows` fetches the blocks that hold its rows, and no others. What is so small that the way
through the store takes longer than its bytes travels within the reference.

A block belongs to the process that put it and dies with it. That costs nothing here: a run whose
worker died ends, and resumes from its checkpoint.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import ray
import torch

from automap.executor.batch import Batch, Column
from automap.executor.workers.encoded_rows import EncodedBatch, Indices, Picked, on_end
from automap.executor.workers.quick_pickles import by_position

BLOCK_BYTES = 4 * 2**20
"""About so much goes into one block: a rank fetches few rows of others, and not in morsels."""
INLINE_BYTES = 32 * 2**10
"""Up to so much travels within the reference; of a call on several ranks, from all together."""
_SEQUENCE = frozenset({"prompt_tokens", "response_tokens"})
"""Columns that are a sequence together."""
_CONTROLLERS = ("request", "weights_version")
"""Columns that the controller reads travel within the reference beside rows that do not."""


@by_position
@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows that were put together."""

    data: "ray.ObjectRef[EncodedBatch] | EncodedBatch"
    """In the object store, or here if it is small."""
    num_rows: int
    num_bytes: int
    names: dict[str, str]
    """The columns that are meant, by the name they go by now: name → name in the data."""
    tokens: Indices | None = None
    """[rows] of each row's prompt and response; None: they are not both in the data."""


@by_position
@dataclass(frozen=True, slots=True)
class Layer:
    """Columns that were put together: rows picked out of blocks."""

    blocks: tuple[Block, ...]
    index: Indices
    """Indices into the blocks' rows, laid end to end."""

    @property
    def names(self) -> frozenset[str]:
        """Columns."""
        return frozenset(self.blocks[0].names) if self.blocks else frozenset()

    def take(self, index: Indices) -> "Layer":
        """Rows of rows, without the blocks that are not needed for them."""
        return _without_idle_blocks(Layer(self.blocks, self.index[index]))

    def renamed(self, names: Mapping[str, str]) -> "Layer":
        """Only these columns: new name → present name."""
        blocks = [
            replace(block, names={new: block.names[old] for new, old in names.items()})
            for block in self.blocks
        ]
        return Layer(tuple(blocks), self.index)


@by_position
@dataclass(frozen=True, slots=True)
class Rows:
    """A batch by reference: layers of equally many rows; of two columns of one name the last wins.

    Splits as transfer protocols want it: num_rows, slice, concatenate.
    """

    layers: tuple[Layer, ...]

    @property
    def num_rows(self) -> int:
        """Rows."""
        return len(self.layers[0].index) if self.layers else 0

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset().union(*(layer.names for layer in self.layers))

    @property
    def is_inline(self) -> bool:
        """True if nothing of it lies in the object store."""
        return all(isinstance(block.data, EncodedBatch) for block in self._blocks())

    @property
    def inline_bytes(self) -> int:
        """What travels within the reference."""
        inline_blocks = (each for each in self._blocks() if isinstance(each.data, EncodedBatch))
        return sum({_key(each): each.num_bytes for each in inline_blocks}.values())

    def _blocks(self) -> Iterator[Block]:
        return (block for layer in self.layers for block in layer.blocks)

    def tokens(self) -> Indices | None:
        """[rows] tokens of each sequence, which is not fetched; None: the rows are none."""
        for layer in reversed(self.layers):
            if "response_tokens" in layer.names:
                known = [
                    block.tokens
                    for block in layer.blocks
                    if block.tokens is not None
                    and block.names["response_tokens"] == "response_tokens"
                ]
                whole = len(known) == len(layer.blocks)
                return np.concatenate(known)[layer.index] if whole else None
        return None

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows start … stop − 1."""
        return self.take(np.arange(start, stop))

    def take(self, rows: Sequence[int] | Indices) -> "Rows":
        """The given rows, in that order, as often as named."""
        index = np.asarray(rows, dtype=np.int64)
        return Rows(tuple(layer.take(index) for layer in self.layers))

    def only(self, *names: str, **renamed: str) -> "Rows":
        """These columns alone; `renamed` are new name = present name."""
        wanted = {**{name: name for name in names}, **renamed}
        unknown = sorted(set(wanted.values()) - self.columns)
        if unknown:
            raise KeyError(f"no columns {unknown}; there are {sorted(self.columns)}")
        layers, open_names = [], dict(wanted)
        for layer in reversed(self.layers):
            here = {new: old for new, old in open_names.items() if old in layer.names}
            if here:
                layers.append(layer.renamed(here))
                open_names = {new: open_names[new] for new in open_names.keys() - here.keys()}
        return Rows(tuple(reversed(layers)))

    def merge(self, *others: "Rows") -> "Rows":
        """All columns side by side."""
        counts = [each.num_rows for each in (self, *others)]
        if len(set(counts)) > 1:
            raise ValueError(f"rows that are merged are equally many, got {counts}")
        return Rows(self.layers + tuple(layer for other in others for layer in other.layers))

    def pad(self, multiple: int) -> "Rows":
        """Filled up to a multiple of rows with copies of the first row, of weight 0."""
        missing = -self.num_rows % multiple
        if not missing:
            return self
        index = np.concatenate([np.arange(self.num_rows), np.zeros(missing, dtype=np.int64)])
        if "weight" in self.columns:
            weight = self.only("weight")
        else:
            weight = inline(Batch({"weight": torch.ones(self.num_rows)}))
        filler = inline(Batch({"weight": torch.zeros(missing)}))
        return self.take(index).merge(Rows.concatenate([weight, filler]))

    @classmethod
    def concatenate(cls, parts: Sequence["Rows"]) -> "Rows":
        """The rows of all parts, which have the same columns."""
        columns = [sorted(part.columns) for part in parts]
        if any(each != columns[0] for each in columns):
            raise ValueError(f"rows have unlike columns: {columns}")
        shapes = {tuple(layer.names for layer in part.layers) for part in parts}
        if len(shapes) > 1:
            parts = [_one_layer_per_column(part) for part in parts]
        return cls(
            tuple(
                _end_to_end([part.layers[number] for part in parts])
                for number in range(len(parts[0].layers))
            )
        )


@by_position
@dataclass(slots=True)
class Traffic:
    """What a worker moved for one call."""

    fetched_bytes: int = 0
    """In blocks of other calls' results, also of those that came within a reference."""
    fetched_blocks: int = 0
    put_bytes: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """The two together."""
        return Traffic(
            self.fetched_bytes + other.fetched_bytes,
            self.fetched_blocks + other.fetched_blocks,
            self.put_bytes + other.put_bytes,
        )


def inline(batch: Batch) -> Rows:
    """Rows that travel within the reference."""
    names = {name: name for name in batch}
    encoded = EncodedBatch.of(batch)
    block = Block(encoded, batch.num_rows, batch.nbytes(), names, _tokens(batch))
    return Rows((Layer((block,), np.arange(batch.num_rows)),))


def put(
    batch: Batch,
    *,
    block_bytes: int = BLOCK_BYTES,
    inline_bytes: int = INLINE_BYTES,
    traffic: Traffic | None = None,
) -> Rows:
    """Into the object store, in blocks of about that size; one small block stays out of it."""
    num_bytes = batch.nbytes()
    if traffic is not None:
        traffic.put_bytes += num_bytes
    if num_bytes <= min(inline_bytes, block_bytes):
        return inline(batch)
    read = [name for name in _CONTROLLERS if name in batch]
    if len(read) in (0, len(batch)):
        return _in_blocks(batch, block_bytes)
    rest = batch.only(*(name for name in batch if name not in read))
    return _in_blocks(rest, block_bytes).merge(inline(batch.only(*read)))


def _in_blocks(batch: Batch, block_bytes: int) -> Rows:
    num_bytes = batch.nbytes()
    num_blocks = max(1, min(batch.num_rows, -(-num_bytes // block_bytes)))
    names = {name: name for name in batch}
    edges = [number * batch.num_rows // num_blocks for number in range(num_blocks + 1)]
    blocks = []
    for start, stop in pairwise(edges):
        part = batch if num_blocks == 1 else batch.slice(start, stop)
        data = ray.put(EncodedBatch.of(part))
        blocks.append(Block(data, stop - start, part.nbytes(), names, _tokens(part)))
    return Rows((Layer(tuple(blocks), np.arange(batch.num_rows)),))


def _tokens(batch: Batch) -> Indices | None:
    if not set(batch) >= _SEQUENCE:
        return None
    lengths: Indices = batch.sequence_lengths().numpy()
    return lengths


def fetch(rows: Rows, *, traffic: Traffic | None = None) -> Batch:
    """The rows themselves, as tensors of one's own."""
    blocks = {_key(block): block for layer in rows.layers for block in layer.blocks}
    remote = [key for key in blocks if isinstance(key, ray.ObjectRef)]
    values = dict(zip(remote, ray.get(remote), strict=True)) if remote else {}
    if traffic is not None:
        traffic.fetched_bytes += sum(block.num_bytes for block in blocks.values())
        traffic.fetched_blocks += len(blocks)
    columns: dict[str, Column] = {}
    for layer in rows.layers:
        data = [
            block.data if isinstance(block.data, EncodedBatch) else values[block.data]
            for block in layer.blocks
        ]
        columns.update(_picked(layer, data))
    return Batch(columns)


def _key(block: Block) -> object:
    """What is equal for blocks of one piece of data."""
    return id(block.data) if isinstance(block.data, EncodedBatch) else block.data


def _picked(layer: Layer, data: Sequence[EncodedBatch]) -> dict[str, Column]:
    """A layer's rows: block by block, then in the order asked for."""
    if len(data) == 1:
        return on_end([Picked(data[0], layer.blocks[0].names, layer.index)])
    which, first = _block_of(layer), _first_rows(layer)
    parts = [
        Picked(encoded, block.names, layer.index[which == number] - first[number])
        for number, (block, encoded) in enumerate(zip(layer.blocks, data, strict=True))
    ]
    if bool(np.all(which[1:] >= which[:-1])):
        return on_end(parts)
    return on_end(parts, np.argsort(np.argsort(which, kind="stable"), kind="stable"))


def _first_rows(layer: Layer) -> Indices:
    counts = np.array([block.num_rows for block in layer.blocks], dtype=np.int64)
    return np.cumsum(counts) - counts


def _block_of(layer: Layer) -> Indices:
    """[rows] the block that each row lies in; of blocks without rows none is named."""
    found = np.searchsorted(_first_rows(layer), layer.index, side="right") - 1
    return found.astype(np.int64)


def _without_idle_blocks(layer: Layer) -> Layer:
    """At least one block stays: it knows the columns."""
    if len(layer.blocks) == 1:
        return layer
    which = _block_of(layer)
    used = np.unique(which)
    if len(used) == len(layer.blocks):
        return layer
    if not len(used):
        return Layer(layer.blocks[:1], layer.index)
    first = _first_rows(layer)
    blocks = tuple(layer.blocks[number] for number in used)
    counts = np.array([block.num_rows for block in blocks], dtype=np.int64)
    place = np.searchsorted(used, which)
    return Layer(blocks, layer.index - first[which] + (np.cumsum(counts) - counts)[place])


def _end_to_end(layers: Sequence[Layer]) -> Layer:
    blocks: list[Block] = []
    indices, offset = [], 0
    for layer in layers:
        indices.append(layer.index + offset)
        blocks += layer.blocks
        offset += sum(block.num_rows for block in layer.blocks)
    return Layer(tuple(blocks), np.concatenate(indices))


def _one_layer_per_column(rows: Rows) -> Rows:
    layers = [rows.only(name).layers[0] for name in sorted(rows.columns)]
    return Rows(tuple(layers))
