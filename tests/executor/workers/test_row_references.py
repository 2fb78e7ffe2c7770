"""Rows by reference behave like the batches that they refer to, and fetch only what they must."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from automap.executor.batch import Batch, Ragged, concatenate
from automap.executor.workers.process import Process, packed, unpacked
from automap.executor.workers.protocols import Call, Splittable
from automap.executor.workers.row_references import (
    INLINE_BYTES,
    Layer,
    Rows,
    Traffic,
    fetch,
    inline,
    put,
)
from tests.executor.local_ray import local_ray
from tests.executor.padding import pad_rows


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with local_ray(num_cpus=1):
        yield


def random_batch(draw: random.Random, *, num_rows: int) -> Batch:
    lengths = [draw.randint(0, 5) for _ in range(num_rows)]
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    tokens = torch.randint(1000, (sum(lengths),), generator=generator)
    return Batch(
        {
            "tokens": Ragged(tokens, torch.tensor(lengths, dtype=torch.int64)),
            "half": torch.randn(num_rows, 3, generator=generator).to(torch.bfloat16),
            "finished": torch.rand(num_rows, generator=generator) > 0.5,
            "scores": torch.randn(num_rows, generator=generator),
        }
    )


def assert_equal(found: Batch, wanted: Batch) -> None:
    assert set(found) == set(wanted)
    for name, column in wanted.items():
        other = found[name]
        if isinstance(column, Ragged):
            assert isinstance(other, Ragged)
            assert torch.equal(other.lengths, column.lengths)
            column, other = column.values, other.values
        assert isinstance(other, torch.Tensor)
        assert other.dtype == column.dtype
        assert torch.equal(other, column)


def one_step(draw: random.Random, rows: Rows, batch: Batch) -> tuple[Rows, Batch]:
    """A random operation on the reference, and the same on the batch."""
    match draw.choice(["slice", "take", "concatenate", "merge", "rename", "pad"]):
        case "slice":
            start = draw.randint(0, batch.num_rows)
            stop = draw.randint(start, batch.num_rows)
            return rows.slice(start, stop), batch.slice(start, stop)
        case "take" if batch.num_rows:
            chosen = [draw.randrange(batch.num_rows) for _ in range(draw.randint(0, 12))]
            return rows.take(chosen), batch.take(chosen)
        case "concatenate":
            middle = batch.num_rows // 2
            pieces = [(middle, batch.num_rows), (0, middle), (0, batch.num_rows)]
            return (
                Rows.concatenate([rows.slice(*piece) for piece in pieces]),
                concatenate([batch.slice(*piece) for piece in pieces]),
            )
        case "merge":
            other = Batch({"scores": torch.randn(batch.num_rows)})
            return rows.merge(put(other, block_bytes=draw.choice([8, 10**6]))), batch.merge(other)
        case "rename" if "scores" in batch and "tokens" in batch:
            renamed = Batch({"scores": batch["scores"], "tokens": batch["tokens"]})
            return rows.only("tokens", "scores"), renamed
        case "pad" if batch.num_rows:
            multiple = draw.randint(1, 5)
            # A batch gets weights in any case, a reference only if rows are added.
            if batch.num_rows % multiple:
                return rows.pad(multiple), pad_rows(batch, multiple)
    return rows, batch


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_references_follow_batches(seed: int) -> None:
    draw = random.Random(seed)
    batch = random_batch(draw, num_rows=draw.randint(1, 20))
    rows = put(batch, block_bytes=draw.choice([16, 64, 400, 10**6]))
    for _ in range(6):
        rows, batch = one_step(draw, rows, batch)
        assert rows.num_rows == batch.num_rows
        assert rows.columns == set(batch)
        assert_equal(fetch(rows), batch)


def test_only_overlapping_blocks_are_fetched() -> None:
    batch = Batch({"values": torch.arange(800, dtype=torch.int64)})
    rows = put(batch, block_bytes=800)
    assert len(rows.layers[0].blocks) == 8
    for start, stop, blocks in [(0, 100, 1), (150, 250, 2), (799, 800, 1), (0, 800, 8), (5, 5, 1)]:
        traffic = Traffic()
        part = fetch(rows.slice(start, stop), traffic=traffic)
        assert part.tensor("values").tolist() == list(range(start, stop))
        assert traffic.fetched_blocks == blocks
        assert traffic.fetched_bytes == blocks * 800
    traffic = Traffic()
    fetch(rows.take([0, 799, 1]).merge(rows.take([3, 4, 5])), traffic=traffic)
    assert traffic.fetched_blocks == 2  # a block that two columns lie in is fetched once


def test_what_is_small_travels_within_the_reference() -> None:
    few = Batch({"values": torch.arange(INLINE_BYTES // 8)})
    many = Batch({"values": torch.arange(INLINE_BYTES // 8 + 1)})
    traffic = Traffic()
    small, large = put(few, traffic=traffic), put(many)
    assert traffic.put_bytes == INLINE_BYTES
    assert small.is_inline
    assert small.take([1, 1]).merge(small.take([0, 3]).only(b="values")).is_inline
    assert not large.is_inline
    assert not put(few, block_bytes=INLINE_BYTES - 1).is_inline
    assert not Rows.concatenate([small, large]).is_inline
    assert_equal(fetch(Rows.concatenate([small, large])), Batch.concatenate([few, many]))
    traffic = Traffic()
    fetch(small.merge(small.only(b="values")), traffic=traffic)
    assert (traffic.fetched_blocks, traffic.fetched_bytes) == (1, INLINE_BYTES)


class Worker:
    def numbers(self, count: int) -> Batch:
        return Batch({"values": torch.arange(count)})


@pytest.mark.parametrize("world_size", [1, 4, 512])
def test_what_all_ranks_return_within_references_is_small_together(world_size: int) -> None:
    process = Process(0, world_size, "run", on_gpu=True)  # so the environment is left alone
    process.build("actor", lambda context: Worker())

    def returned(count: int) -> Rows:
        reply = unpacked(process.call(packed("actor", "numbers", Call((count,), {}), True)))
        assert isinstance(reply.value, Rows)
        assert fetch(reply.value).tensor("values").tolist() == list(range(count))
        return reply.value

    share = INLINE_BYTES // world_size
    assert returned(share // 8).inline_bytes == share
    assert not returned(share // 8 + 1).is_inline


def test_many_small_rows_are_left_to_ray() -> None:
    part = put(Batch({"values": torch.arange(INLINE_BYTES // 8)}))
    parts = [part, *(put(fetch(part)) for _ in range(3))]
    few, many = Rows.concatenate(parts[:3]), Rows.concatenate(parts)
    assert (few.inline_bytes, many.inline_bytes) == (3 * INLINE_BYTES, 4 * INLINE_BYTES)
    assert few.merge(few.only(b="values")).inline_bytes == few.inline_bytes
    assert isinstance(packed("actor", "score", Call((few,), {}), True), bytes)
    order = packed("actor", "score", Call((many,), {}), True)
    assert not isinstance(order, bytes)
    values = fetch(order[2].args[0]).tensor("values")
    assert values.tolist() == list(range(INLINE_BYTES // 8)) * 4


@pytest.mark.parametrize("num_bytes", [INLINE_BYTES, INLINE_BYTES + 8])
def test_orders_are_the_same_however_they_are_packed(num_bytes: int) -> None:
    rows = put(Batch({"values": torch.arange(num_bytes // 8)}))
    call = Call((rows, 3), {"greedy": True})
    order = packed("actor", "generate", call, True)
    assert isinstance(order, bytes) == rows.is_inline  # Ray must see references
    name, method, arrived, keep = unpacked(order)
    assert (name, method, keep, arrived.args[1:]) == ("actor", "generate", True, (3,))
    assert arrived.kwargs == call.kwargs
    assert fetch(arrived.args[0]).tensor("values").tolist() == list(range(num_bytes // 8))


def test_a_column_of_the_last_layer_wins() -> None:
    rows = put(Batch({"a": torch.zeros(2), "b": torch.zeros(2)}))
    merged = rows.merge(inline(Batch({"a": torch.ones(2)})))
    assert fetch(merged).tensor("a").tolist() == [1, 1]
    assert fetch(merged.only("a")).tensor("a").tolist() == [1, 1]
    assert fetch(merged.only(c="a")).tensor("c").tolist() == [1, 1]


def test_what_is_fetched_is_ones_own() -> None:
    tokens = Ragged(torch.zeros(4), torch.ones(4, dtype=torch.int64))
    rows = put(Batch({"values": torch.zeros(4), "tokens": tokens}))
    first = fetch(rows)
    first.tensor("values").add_(1)
    first.ragged("tokens").values.add_(1)
    again = fetch(rows)
    assert again.tensor("values").sum() == 0
    assert again.ragged("tokens").values.sum() == 0


def test_weights_of_rows_that_pad_twice_stay_zero() -> None:
    rows = put(Batch({"values": torch.arange(3.0)})).pad(2).pad(3)
    assert fetch(rows).tensor("weight").tolist() == [1, 1, 1, 0, 0, 0]
    assert fetch(rows).tensor("values").tolist() == [0, 1, 2, 0, 0, 0]


def test_rows_split_as_protocols_want_it() -> None:
    assert isinstance(put(Batch({"values": torch.zeros(2)})), Splittable)


def test_what_does_not_fit_is_refused() -> None:
    rows = put(Batch({"values": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"equally many, got \[2, 1\]"):
        rows.merge(rows.slice(0, 1))
    with pytest.raises(ValueError, match="unlike columns"):
        Rows.concatenate([rows, rows.only(other="values")])
    with pytest.raises(KeyError, match="no columns"):
        rows.only("absent")
    assert np.array_equal(rows.layers[0].index, [0, 1])


def test_columns_that_are_unlike_are_not_put_on_end() -> None:
    whole = put(Batch({"values": torch.zeros(2, dtype=torch.int64)}))
    parts = [put(Batch({"values": torch.zeros(2)})), whole]
    with pytest.raises(ValueError, match=r"'values' has unlike dtypes \['float32', 'int64'\]"):
        fetch(Rows.concatenate(parts))
    ragged = put(Batch({"values": Ragged(torch.zeros(2), torch.tensor([1, 1]))}))
    with pytest.raises(ValueError, match="'values' is ragged in some parts"):
        fetch(Rows.concatenate([parts[0], ragged]))


def test_orders_are_pickled_by_position() -> None:
    """Field by field, as frozen dataclasses with slots are, takes twice as long."""
    batch = Batch({name: torch.arange(64) for name in "abcd"})
    rows = inline(batch)
    assert rows.__reduce__() == (Rows, (rows.layers,))
    assert rows.layers[0].__reduce__()[0] is Layer
    order = packed("actor", "log_probs", Call((rows,), {}), keep=True)
    assert isinstance(order, bytes)
    (again,) = unpacked(order)[2].args
    assert_equal(fetch(again), batch)
