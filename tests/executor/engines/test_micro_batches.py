"""Packing and splitting, against loops over rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.micro_batches import pack, split_rows

LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=8)


def rows_of(lengths: list[tuple[int, int]]) -> Batch:
    count = iter(range(10_000))
    columns: dict[str, list[torch.Tensor]] = {"prompt_tokens": [], "response_tokens": []}
    for pair in lengths:
        for column, length in zip(columns.values(), pair, strict=True):
            column.append(torch.tensor([next(count) for _ in range(length)], dtype=torch.int64))
    return Batch({name: Ragged.of(rows) for name, rows in columns.items()})


@given(LENGTHS)
def test_packed_tokens_are_the_rows_end_to_end(lengths: list[tuple[int, int]]) -> None:
    packed = pack(rows_of(lengths))
    total = sum(prompt + response for prompt, response in lengths)
    assert packed.tokens.tolist() == list(range(total))
    assert packed.lengths.tolist() == [prompt + response for prompt, response in lengths]
    positions = [place for prompt, response in lengths for place in range(prompt + response)]
    assert packed.positions.tolist() == positions


@given(LENGTHS)
def test_each_response_token_is_predicted_by_the_place_before_it(
    lengths: list[tuple[int, int]],
) -> None:
    packed = pack(rows_of(lengths))
    # Tokens count up through the rows, so a token is its own place.
    responses = packed.batch.ragged("response_tokens").values
    assert (packed.predicting + 1).tolist() == responses.tolist()
    rows = (
        packed.batch.ragged("prompt_tokens").rows(),
        packed.batch.ragged("response_tokens").rows(),
    )
    last = [int(torch.cat(pair)[-1]) for pair in zip(*rows, strict=True)]
    assert packed.last.tolist() == last


@given(LENGTHS, st.integers(1, 25))
def test_micro_batches_by_tokens_hold_every_row_once_within_the_limit(
    lengths: list[tuple[int, int]], limit: int
) -> None:
    batch = rows_of(lengths)
    parts = split_rows(batch, tokens=limit)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(lengths)))
    totals = [sum(sum(lengths[row]) for row in part.tolist()) for part in parts]
    for part, total in zip(parts, totals, strict=True):
        assert total <= limit or len(part) == 1
    # First fit never leaves two micro-batches that would fit into one.
    assert all(
        one + other > limit for index, one in enumerate(totals) for other in totals[index + 1 :]
    )


def test_micro_batches_by_rows_keep_the_order() -> None:
    parts = split_rows(rows_of([(1, 1)] * 5), rows=2)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4]]


def test_no_rows_give_no_micro_batches() -> None:
    batch = rows_of([(1, 1)]).take([])
    assert split_rows(batch, rows=2) == []
    assert split_rows(batch, tokens=2) == []


@pytest.mark.parametrize("sizes", [{}, {"rows": 1, "tokens": 1}, {"rows": 0}, {"tokens": -1}])
def test_sizes_that_say_nothing_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="micro-batch"):
        split_rows(rows_of([(1, 1)]), **sizes)


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt_tokens must hold at least one token, row 1"):
        pack(rows_of([(1, 1), (0, 3)]))


def test_no_rows_cannot_be_packed() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        pack(rows_of([(1, 1)]).take([]))
