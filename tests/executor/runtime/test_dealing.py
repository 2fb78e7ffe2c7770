"""Rows are ordered so that parts on end have even tokens, by lengths that references carry."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from automap.executor.batch import Batch, Ragged
from automap.executor.runtime.dealing import even_order
from automap.executor.workers.protocols import row_ranges
from automap.executor.workers.row_references import Rows, inline


def rollout(lengths: list[tuple[int, int]]) -> Rows:
    columns = {"prompt_tokens": 0, "response_tokens": 1}
    return inline(
        Batch(
            {
                name: Ragged.of([torch.zeros(pair[which], dtype=torch.int64) for pair in lengths])
                for name, which in columns.items()
            }
        )
    )


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 90)), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 6))
def test_no_part_is_fuller_than_in_the_order_that_rows_had(
    lengths: list[tuple[int, int]], num_parts: int
) -> None:
    rows = rollout(lengths)
    order = even_order(rows, num_parts)
    assert sorted(order) == list(range(len(lengths)))
    if len(lengths) < num_parts:
        return
    totals = np.array([sum(pair) for pair in lengths])
    ranges = row_ranges(len(lengths), num_parts)
    before, after = (
        max(each[start:stop].sum() for start, stop in ranges) for each in (totals, totals[order])
    )
    assert after <= before
    # Nothing moves that need not.
    assert after < before or order.tolist() == list(range(len(lengths)))


def test_long_responses_are_dealt_to_all() -> None:
    lengths = [(1, 99)] * 4 + [(1, 9)] * 12
    assert even_order(rollout(lengths), 4).reshape(4, 4)[:, 0].tolist() == [0, 1, 2, 3]
    assert even_order(rollout(lengths), 1).tolist() == list(range(16))


def test_lengths_follow_rows_through_what_is_done_with_references() -> None:
    rows, other = rollout([(1, 2), (3, 4), (1, 0)]), rollout([(2, 2)])
    joined = Rows.concatenate([rows.take([2, 0]), other])
    scored = joined.merge(inline(Batch({"scores": torch.zeros(3)})))
    for each in (joined, scored, scored.only("prompt_tokens", "response_tokens", "scores")):
        tokens = each.tokens()
        assert tokens is not None
        assert tokens.tolist() == [1, 3, 4]
    assert scored.only("scores").tokens() is None
    assert even_order(scored.only("scores"), 3).tolist() == [0, 1, 2]


def test_a_column_that_is_only_called_a_response_has_no_lengths() -> None:
    rows = rollout([(1, 2), (3, 4)])
    assert rows.only("prompt_tokens", response_tokens="prompt_tokens").tokens() is None
