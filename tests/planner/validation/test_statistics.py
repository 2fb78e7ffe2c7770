"""The figures against values worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automap.planner.validation.predictions import Prediction
from automap.planner.validation.rows import GemmRow
from automap.planner.validation.statistics import (
    assumption_counts,
    kendall_tau,
    percentile,
    skip_counts,
    summarise,
)


def pair(x, y):
    return np.array(x, dtype=float), np.array(y, dtype=float)


def row(name="r", source="s", gpu="a100"):
    return GemmRow.model_validate(
        {
            "row_id": name,
            "source": source,
            "year": "2024",
            "gpu_type": gpu,
            "precision": "bf16",
            "quality": "A",
            "notes": "",
            "m": "1",
            "n": "1",
            "k": "1",
            "seconds": "1",
        }
    )


def predicted(value, measured=1.0, **about):
    return Prediction(row(**about), "seconds", "", measured, predicted=value)


def test_kendall_tau_of_a_textbook_ranking():
    # 1 2 3 4 5 against 3 4 1 2 5: 6 concordant, 4 discordant pairs of 10.
    assert kendall_tau([pair([1, 2, 3, 4, 5], [3, 4, 1, 2, 5])]) == pytest.approx(0.2)


def test_kendall_tau_with_ties():
    # x: 1 1 2 3, y: 1 2 2 3. Pairs: C = 4, D = 0; untied in x 5, untied in y 5.
    assert kendall_tau([pair([1, 1, 2, 3], [1, 2, 2, 3])]) == pytest.approx(4 / 5)


def test_kendall_tau_pairs_stay_inside_groups():
    # Each group agrees; across them the order would be reversed.
    assert kendall_tau([pair([10, 20], [1, 2]), pair([1, 2], [10, 20])]) == 1.0
    assert kendall_tau([pair([1, 2], [1, 2]), pair([1, 2], [2, 1])]) == 0.0


@pytest.mark.parametrize("groups", [[], [pair([1], [1])], [pair([1, 2], [3, 3])]])
def test_kendall_tau_without_an_untied_pair_is_none(groups):
    assert kendall_tau(groups) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12))
def test_kendall_tau_is_what_counting_pairs_gives(points):
    agree = untied_x = untied_y = 0
    for i, (x, y) in enumerate(points):
        for other_x, other_y in points[:i]:
            agree += np.sign(x - other_x) * np.sign(y - other_y)
            untied_x += x != other_x
            untied_y += y != other_y
    found = kendall_tau([pair([x for x, _ in points], [y for _, y in points])])
    if untied_x and untied_y:
        assert found == pytest.approx(agree / math.sqrt(untied_x * untied_y))
        assert -1.0 <= found <= 1.0 + 1e-12
    else:
        assert found is None


def test_percentiles_are_linear_between_neighbours():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert percentile(values, 50) == 2.5
    assert percentile(values, 90) == pytest.approx(3.7)


def test_a_summary_of_four_predictions():
    # Errors +10 %, −20 %, +40 %, 0 %.
    group = [predicted(v, name=str(v)) for v in (1.1, 0.8, 1.4, 1.0)]
    skipped = Prediction(row("x"), "seconds", "", 1.0, skipped_because="no such term")
    (summary,) = summarise([*group, skipped])
    assert summary.num_predicted == 4
    assert summary.skipped == {"no such term": 1}
    assert summary.num_skipped == 1
    assert summary.median_error == pytest.approx(0.15)
    assert summary.mean_error == pytest.approx(0.175)
    assert summary.bias == pytest.approx(0.075)
    assert summary.p90_error == pytest.approx(0.34)
    assert summary.confusion is None


def test_groups_follow_the_asked_dimensions():
    rows = [
        predicted(1, source="a"),
        predicted(2, source="b"),
        predicted(3, source="b", gpu="h100"),
    ]
    assert [one.key for one in summarise(rows, by=("source",))] == [("a",), ("b",)]
    assert [one.key for one in summarise(rows, by=("gpu",))] == [
        ("a100-80gb-sxm",),
        ("h100-80gb-sxm",),
    ]
    assert len(summarise(rows)) == 3
    (total,) = summarise(rows, by=())
    assert total.num_predicted == 3


def test_nothing_predicted_has_no_figures():
    (summary,) = summarise([Prediction(row(), "seconds", "", 1.0, skipped_because="why")])
    assert summary.num_predicted == 0
    assert summary.median_error is summary.bias is summary.kendall_tau is None


def test_verdicts_are_counted_not_averaged():
    outcomes = [(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)]
    verdicts = [
        Prediction(row(str(i)), "out_of_memory", "", measured, predicted=guess)
        for i, (measured, guess) in enumerate(outcomes)
    ]
    (summary,) = summarise(verdicts)
    assert summary.median_error is None
    cells = summary.confusion
    assert (cells.ran_as_predicted, cells.failed_as_predicted) == (2, 1)
    assert (cells.failed_but_predicted_to_run, cells.ran_but_predicted_to_fail) == (1, 1)


def test_rows_count_once_in_reasons_and_assumptions():
    two = [
        Prediction(row(), quantity, "", 1.0, predicted=1.0, assumptions=("a", "b"))
        for quantity in ("one", "other")
    ]
    assert assumption_counts(two) == {"a": 1, "b": 1}
    left_out = [Prediction(row(), q, "", 1.0, skipped_because="why") for q in ("one", "other")]
    assert skip_counts(left_out) == {"why": 1}
