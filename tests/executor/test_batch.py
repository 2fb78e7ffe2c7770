"""Batches against the same rows as lists of Python lists."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from automap.executor.batch import Batch, Ragged, concatenate

quick = settings(deadline=None, max_examples=60)


@dataclass
class Rows:
    """A batch as lists: one entry per row."""

    tokens: list[list[int]]
    pairs: list[list[list[float]]]
    scores: list[float]

    def batch(self) -> Batch:
        """Built by hand, not by Ragged.of."""
        pairs = [pair for row in self.pairs for pair in row]
        return Batch(
            {
                "tokens": Ragged(
                    torch.tensor([each for row in self.tokens for each in row], dtype=torch.int64),
                    torch.tensor([len(row) for row in self.tokens], dtype=torch.int64),
                ),
                "pairs": Ragged(
                    torch.tensor(pairs, dtype=torch.float32).reshape(-1, 2),
                    torch.tensor([len(row) for row in self.pairs], dtype=torch.int64),
                ),
                "scores": torch.tensor(self.scores, dtype=torch.float32),
            }
        )

    def choose(self, rows: list[int]) -> "Rows":
        return Rows(
            [self.tokens[row] for row in rows],
            [self.pairs[row] for row in rows],
            [self.scores[row] for row in rows],
        )

    def __add__(self, other: "Rows") -> "Rows":
        return Rows(
            self.tokens + other.tokens, self.pairs + other.pairs, self.scores + other.scores
        )


def lists(batch: Batch) -> Rows:
    """Read back through `rows`; a wrong dtype shows as an unequal value or fails here."""
    assert batch.ragged("tokens").values.dtype == torch.int64
    assert batch.ragged("pairs").values.dtype == torch.float32
    return Rows(
        [row.tolist() for row in batch.ragged("tokens").rows()],
        [row.tolist() for row in batch.ragged("pairs").rows()],
        batch.tensor("scores").tolist(),
    )


halves = st.integers(-8, 8).map(lambda number: number / 2)
tokens = st.lists(st.integers(0, 2**60), max_size=5)
pairs = st.lists(st.lists(halves, min_size=2, max_size=2), max_size=3)


@st.composite
def rows_strategy(draw: st.DrawFn, min_size: int = 0) -> Rows:
    rows = draw(st.lists(st.tuples(tokens, pairs, halves), min_size=min_size, max_size=7))
    return Rows([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


@quick
@given(rows_strategy())
def test_a_batch_holds_its_rows(rows: Rows) -> None:
    batch = rows.batch()
    assert lists(batch) == rows
    assert batch.num_rows == len(rows.scores)
    assert list(batch) == ["tokens", "pairs", "scores"]
    of_value = [index for index, row in enumerate(rows.tokens) for _ in row]
    assert batch.ragged("tokens").row_of_value().tolist() == of_value
    nbytes = sum(8 * len(row) for row in rows.tokens) + sum(8 * len(row) for row in rows.pairs)
    assert batch.nbytes() == nbytes + (8 + 8 + 4) * batch.num_rows


@quick
@given(rows_strategy(min_size=1))
def test_ragged_of_rows(rows: Rows) -> None:
    ragged = Ragged.of([torch.tensor(row, dtype=torch.int64) for row in rows.tokens])
    assert [row.tolist() for row in ragged.rows()] == rows.tokens
    assert ragged.lengths.tolist() == [len(row) for row in rows.tokens]
    doubled = ragged.with_values(ragged.values // 2)
    assert [row.tolist() for row in doubled.rows()] == [[x // 2 for x in y] for y in rows.tokens]


@quick
@given(rows_strategy(min_size=1), st.data())
def test_take_in_any_order_and_as_often_as_named(rows: Rows, data: st.DataObject) -> None:
    index = st.lists(st.integers(0, len(rows.scores) - 1), max_size=10)
    chosen = data.draw(index)
    assert lists(rows.batch().take(chosen)) == rows.choose(chosen)
    assert lists(rows.batch().take(torch.tensor(chosen, dtype=torch.int32))) == rows.choose(chosen)


@quick
@given(rows_strategy(), st.data())
def test_slices_concatenate_to_the_whole(rows: Rows, data: st.DataObject) -> None:
    count = len(rows.scores)
    borders = [0, *sorted(data.draw(st.lists(st.integers(0, count), max_size=3))), count]
    batch = rows.batch()
    parts = [batch.slice(start, stop) for start, stop in pairwise(borders)]
    for part, (start, stop) in zip(parts, pairwise(borders), strict=True):
        assert lists(part) == rows.choose(list(range(start, stop)))
    assert lists(concatenate(parts)) == rows
    assert lists(Batch.concatenate(parts)) == rows


@quick
@given(rows_strategy(), rows_strategy())
def test_concatenate_keeps_rows_of_both(first: Rows, second: Rows) -> None:
    assert lists(concatenate([first.batch(), second.batch()])) == first + second


@quick
@given(rows_strategy())
def test_pickled_parts_carry_their_own_rows_alone(rows: Rows) -> None:
    batch = rows.batch()
    assert lists(pickle.loads(pickle.dumps(batch))) == rows
    wide = torch.arange(100_000)
    views = Batch({"plain": wide[:3], "ragged": Ragged(wide[5:9], torch.tensor([1, 0, 3]))})
    assert len(pickle.dumps(views)) < 4_000
    again = pickle.loads(pickle.dumps(views))
    assert again.tensor("plain").tolist() == [0, 1, 2]
    assert [row.tolist() for row in again.ragged("ragged").rows()] == [[5], [], [6, 7, 8]]


def test_columns_are_added_replaced_merged_and_chosen() -> None:
    batch = Batch({"a": torch.tensor([1, 2]), "b": torch.tensor([3, 4])})
    more = batch.with_columns(b=torch.tensor([5, 6]), c=torch.tensor([7, 8]))
    assert {name: more.tensor(name).tolist() for name in more} == {
        "a": [1, 2],
        "b": [5, 6],
        "c": [7, 8],
    }
    assert batch.tensor("b").tolist() == [3, 4]
    merged = more.merge(batch)
    assert merged.tensor("b").tolist() == [3, 4]
    assert set(merged) == {"a", "b", "c"}
    assert list(more.only("c", "a")) == ["c", "a"]
    assert len(more) == 3
    assert repr(batch) == "Batch(2 rows: a, b)"


def test_sequence_lengths_and_default_weights() -> None:
    lengths = {"prompt_tokens": [3, 1], "response_tokens": [0, 4]}
    batch = Batch(
        {
            name: Ragged(torch.arange(sum(each)), torch.tensor(each))
            for name, each in lengths.items()
        }
    )
    assert batch.sequence_lengths().tolist() == [3, 5]
    assert batch.weights().tolist() == [1.0, 1.0]


def test_slices_do_not_share_storage() -> None:
    batch = Batch({"a": torch.arange(4), "r": Ragged(torch.arange(4), torch.tensor([1, 1, 1, 1]))})
    part = batch.slice(0, 2)
    part.tensor("a")[0] = 9
    part.ragged("r").values[0] = 9
    assert batch.tensor("a").tolist() == batch.ragged("r").values.tolist() == [0, 1, 2, 3]


four = Batch(
    {
        "plain": torch.arange(4),
        "ragged": Ragged(torch.arange(6), torch.tensor([0, 1, 2, 3])),
    }
)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Ragged(torch.arange(3), torch.tensor([1, 1])), ValueError, "sum to 2 .* 3 values"),
        (lambda: Ragged(torch.arange(2), torch.tensor([-1, 3])), ValueError, "0 or more, got -1"),
        (lambda: Ragged(torch.arange(2), torch.tensor([2.0])), ValueError, "vector of integers"),
        (lambda: Ragged(torch.arange(2), torch.tensor(2)), ValueError, "vector of integers"),
        (lambda: Ragged.of([]), ValueError, "nothing to concatenate"),
        (lambda: Ragged.of([torch.tensor([1]), torch.tensor([])]), ValueError, "unlike dtypes"),
        (lambda: four.with_columns(b=torch.arange(3)), ValueError, "equally many .*'b': 3"),
        (lambda: four["other"], KeyError, "no column 'other'; there are .*'plain', 'ragged'"),
        (lambda: four.ragged("plain"), TypeError, "'plain' is a plain tensor"),
        (lambda: four.tensor("ragged"), TypeError, "'ragged' is ragged"),
        (lambda: four.slice(-1, 1), IndexError, "rows -1 to 1 of a batch of 4"),
        (lambda: four.slice(2, 5), IndexError, "rows 2 to 5 of a batch of 4"),
        (lambda: four.slice(3, 1), IndexError, "rows 3 to 1"),
        (lambda: four.take([4]), IndexError, "4"),
        (lambda: four.take(torch.tensor([True, False, True, True])), TypeError, "torch.bool"),
        (lambda: four.take(torch.tensor([0.5])), TypeError, "torch.float32"),
        (lambda: four.take(torch.tensor([[0, 1]])), TypeError, r"vector of indices.*\[1, 2\]"),
        (lambda: concatenate([]), ValueError, "nothing to concatenate"),
        (lambda: concatenate([four, four.only("plain")]), ValueError, "unlike columns"),
    ],
)
def test_what_does_not_fit_is_named(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_batches_of_unlike_columns_do_not_concatenate() -> None:
    """torch.cat would make floats of token ids, and a ragged column is no plain one."""
    floats = four.with_columns(plain=torch.arange(4.0))
    with pytest.raises(ValueError, match=r"column 'plain': .*float32.*int64"):
        concatenate([four, floats])
    plain = four.with_columns(ragged=torch.arange(4))
    for pair in ([four, plain], [plain, four]):
        with pytest.raises(ValueError, match=r"'ragged' is ragged in some .* plain in others"):
            concatenate([each.only("ragged") for each in pair])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_batch_on_a_gpu() -> None:
    on_gpu = four.to("cuda")
    assert on_gpu.weights().device.type == "cuda"
    for batch in (on_gpu.take([3, 1]), concatenate([on_gpu, on_gpu]).take([3, 5])):
        assert batch.ragged("ragged").row_of_value().device.type == "cuda"
        back = batch.to("cpu")
        assert back.tensor("plain").tolist() == [3, 1]
        assert [row.tolist() for row in back.ragged("ragged").rows()] == [[3, 4, 5], [0]]
