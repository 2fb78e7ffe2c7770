"""Packing and splitting, against loops over rows."""

from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automap.executor.batch import Batch, Ragged
from automap.executor.engines.micro_batches import pack, split_rows
from automap.executor.even_parts import even_parts

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


def split(batch: Batch, tokens: int, monkeypatch: pytest.MonkeyPatch, **settings: int) -> Any:
    """Row indices of each micro-batch, on a rank whose peers need `most` at most."""
    most = settings.pop("most", 0)

    def all_reduce(tensor: torch.Tensor, **_: object) -> None:
        tensor.clamp_(min=most)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    parts = split_rows(
        batch, max_tokens=tokens, group=cast("Any", None), device=torch.device("cpu"), **settings
    )
    return [part.tolist() for part in parts]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LENGTHS, st.integers(1, 25), st.integers(0, 9), st.integers(1, 3))
def test_micro_batches_hold_every_row_once_within_their_tokens(
    monkeypatch: pytest.MonkeyPatch,
    lengths: list[tuple[int, int]],
    limit: int,
    most: int,
    multiple: int,
) -> None:
    parts = split(rows_of(lengths), limit, monkeypatch, most=most, multiple=multiple)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    totals = [sum(sum(lengths[row]) for row in part) for part in parts]
    for part, total in zip(parts, totals, strict=True):
        assert total <= limit or len(part) == 1
    assert totals == sorted(totals, reverse=True)
    assert len(parts) % multiple == 0
    assert len(parts) >= most
    # No more than first fit makes, which leaves no two that would fit into one.
    alone = split(rows_of(lengths), limit, monkeypatch)
    assert len(parts) < max(len(alone), most) + multiple
    assert len(alone) < 2 or 2 * sum(totals) > len(alone) * limit


def test_micro_batches_are_filled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows_of([(1, length - 1) for length in (8, 4, 4, 3, 3, 2)])
    # First fit would fill 20 of them with five rows, and leave four tokens for the last.
    assert split(batch, 20, monkeypatch) == [[0, 3, 5], [1, 2, 4]]
    # Another rank needs three.
    assert split(batch, 20, monkeypatch, most=3) == [[1, 3, 5], [0], [2, 4]]


def test_rows_are_dealt_evenly_to_ranks_of_equally_many() -> None:
    assert even_parts([8, 4, 4, 3, 3, 2], 3, num_rows=[2, 2, 2]) == [[0, 5], [1, 3], [2, 4]]
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randn(64 * 16, generator=generator).mul(0.9).exp().mul(4000).int().tolist()
    parts = even_parts(lengths, 64, num_rows=[16] * 64)
    assert sorted(row for part in parts for row in part) == list(range(64 * 16))
    assert {len(part) for part in parts} == {16}
    totals = [sum(lengths[row] for row in part) for part in parts]
    as_they_come = [sum(lengths[start : start + 16]) for start in range(0, 64 * 16, 16)]
    mean = sum(lengths) / 64
    assert max(totals) < 1.1 * mean
    assert max(as_they_come) > 1.4 * mean


def test_no_rows_give_as_many_micro_batches_as_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows_of([(1, 1)]).take([])
    assert split(batch, 2, monkeypatch) == []
    assert split(batch, 2, monkeypatch, most=2) == [[], []]


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt_tokens must hold at least one token, row 1"):
        pack(rows_of([(1, 1), (0, 3)]))


def test_no_rows_cannot_be_packed() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        pack(rows_of([(1, 1)]).take([]))
