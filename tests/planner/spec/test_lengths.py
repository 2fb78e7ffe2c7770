"""Length distributions: means, quantiles, discretisation and maxima."""

from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from automap.planner.spec.lengths import ASSUMED_SPREAD, LengthSpec
from tests.helpers.cost_model import expected_maximum


@st.composite
def length_specs(draw: st.DrawFn) -> LengthSpec:
    """Every form, with extreme ratios of maximum to mean."""
    form = draw(st.sampled_from(["mean", "percentiles", "histogram"]))
    if form == "histogram":
        pair = st.tuples(st.floats(1, 1e5), st.floats(1e-3, 1e3))
        return LengthSpec(histogram=draw(st.lists(pair, min_size=1, max_size=40)))
    maximum = draw(st.integers(1, 10**7))
    below = st.floats(1, maximum)
    if form == "mean":
        return LengthSpec(mean=draw(below), max=maximum)
    p50, p90, p99 = sorted(draw(st.tuples(below, below, below)))
    known = draw(st.sampled_from([{}, {"p90": p90}, {"p99": p99}, {"p90": p90, "p99": p99}]))
    return LengthSpec(p50=p50, max=maximum, **known)


# Sums of these miss the mean by one bit, with no length below the maximum to move.
EQUAL_LENGTHS = (
    0.3033685109329176,
    0.5875806061435594,
    0.8824790008318577,
    0.8461974184283128,
    0.5052838205796004,
    0.5890022579825517,
)


@given(length_specs(), st.integers(2, 64))
@example(LengthSpec(mean=1, max=10**7), 8)  # the maximum must not eat the whole mean
@example(LengthSpec(p50=114, p90=31688, p99=44935, max=93713), 64)
@example(LengthSpec(histogram=[(7, weight) for weight in EQUAL_LENGTHS]), 2)
def test_discretised_is_a_distribution_with_the_right_mean(
    spec: LengthSpec, num_points: int
) -> None:
    lengths, weights = spec.discretised(num_points)
    assert len(lengths) == len(weights) <= num_points
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()
    assert (np.diff(lengths) >= -1e-9 * lengths[-1]).all()
    assert lengths @ weights == pytest.approx(spec.mean_tokens, rel=1e-6)
    assert lengths[0] > 0
    assert lengths[-1] <= spec.max_tokens * (1 + 1e-9)


@given(length_specs(), st.integers(2, 64))
def test_last_point_is_the_maximum(spec: LengthSpec, num_points: int) -> None:
    lengths, _ = spec.discretised(num_points)
    assert lengths[-1] == pytest.approx(spec.max_tokens, abs=1)


def second_moment(spec: LengthSpec) -> float:
    lengths, weights = spec.distribution()
    return float((lengths * lengths) @ weights)


@given(length_specs())
def test_moments_are_ordered(spec: LengthSpec) -> None:
    """Jensen: the mean of squares is at least the square of the mean; at most mean × maximum."""
    assert second_moment(spec) >= spec.mean_tokens**2 * (1 - 1e-9)
    assert second_moment(spec) <= spec.mean_tokens * spec.max_tokens * (1 + 1e-9)


@given(length_specs())
def test_expected_maximum_grows_from_mean_to_maximum(spec: LengthSpec) -> None:
    expected = [expected_maximum(spec, draws) for draws in (1, 2, 16, 1024, 10**6)]
    assert expected[0] == pytest.approx(spec.mean_tokens, rel=1e-6)
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(expected))
    assert expected[-1] <= spec.max_tokens * (1 + 1e-9)


def test_equal_mean_and_maximum_is_constant() -> None:
    spec = LengthSpec(mean=1024, max=1024)
    assert [column.tolist() for column in spec.discretised(16)] == [[1024.0], [1.0]]
    assert not spec.assumes_spread


def test_a_mean_alone_assumes_a_log_normal() -> None:
    """Far below its maximum: E[L²] / E[L]² = exp(σ²) of a log-normal."""
    spec = LengthSpec(mean=1000, max=10**7)
    assert spec.assumes_spread
    assert second_moment(spec) / 1000**2 == pytest.approx(exp(ASSUMED_SPREAD**2), rel=1e-3)


def test_expected_maximum_agrees_with_drawing() -> None:
    """1,024 draws of the log-normal that p50 and p90 fix, 2,000 times."""
    spec = LengthSpec(p50=1000, p90=3000, max=10**7)
    sigma = log(3) / 1.2815515655446004
    draws = 1000 * np.exp(sigma * np.random.default_rng(0).standard_normal((2000, 1024)))
    assert expected_maximum(spec, 1024) == pytest.approx(draws.max(axis=1).mean(), rel=0.03)
    assert spec.mean_tokens == pytest.approx(1000 * exp(sigma**2 / 2), rel=1e-4)


def test_percentiles_are_reproduced() -> None:
    spec = LengthSpec(p50=1000, p90=2500, p99=9000, max=16384)
    lengths, weights = spec.discretised(2000)
    reached = np.cumsum(weights)
    for level, length in ((0.5, 1000), (0.9, 2500), (0.99, 9000)):
        assert lengths[np.searchsorted(reached, level)] == pytest.approx(length, rel=0.02)


def test_the_maximum_cuts_and_the_mean_stays() -> None:
    """A mean close to the maximum: most sequences stop at the maximum."""
    lengths, weights = LengthSpec(mean=1000, max=1024).discretised(16)
    assert weights[lengths > 1023.9].sum() > 0.7
    assert lengths @ weights == pytest.approx(1000)


def test_histogram_is_its_own_discretisation() -> None:
    spec = LengthSpec(histogram=[(2048, 7), (512, 3), (9999, 0)])
    lengths, weights = spec.discretised(16)
    assert lengths.tolist() == [512, 2048]
    assert weights.tolist() == [0.3, 0.7]
    assert spec.max_tokens == 2048
    assert second_moment(spec) == pytest.approx(0.3 * 512**2 + 0.7 * 2048**2)
    assert expected_maximum(spec, 2) == pytest.approx(512 * 0.09 + 2048 * 0.91)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "p50: neither this nor a mean is given"),
        ({"mean": 10}, "max: is missing"),
        ({"max": 10}, "give mean, or p50"),
        ({"p90": 10, "max": 10}, "give mean, or p50"),
        ({"mean": 10, "p50": 12, "max": 20}, "p50: no log-normal with a mean of 10"),
        ({"mean": 10, "p90": 9, "max": 20}, "p90: no log-normal with a mean of 10"),
        ({"mean": 10, "p90": 15, "p99": 18, "max": 20}, "mean: p90, p99 are given, too"),
        ({"mean": 3000, "max": 1024}, r"mean: 3000 is above max, 1024 \(use at most 1024"),
        ({"p50": 30, "p90": 20, "max": 100}, "p50: 30 is above p90, 20"),
        ({"p50": 30, "p99": 200, "max": 100}, "p99: 200 is above max, 100 .*or raise max"),
        ({"histogram": [(10, 1)], "max": 20}, "max: a histogram says all"),
        ({"histogram": [(10, 0)]}, "histogram: its weights sum to 0"),
        ({"histogram": []}, "at least 1 item"),
        ({"histogram": [(10, -1)]}, "greater than or equal to 0"),
        ({"mean": 0, "max": 10}, "greater than or equal to 1"),
        ({"mean": float("nan"), "max": 10}, "finite"),
    ],
)
def test_refused_specs(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LengthSpec.model_validate(given)


def test_arguments_are_checked() -> None:
    spec = LengthSpec(mean=10, max=20)
    with pytest.raises(ValueError, match="num_points=1"):
        spec.discretised(1)


@pytest.mark.parametrize("given", [{"mean": 850, "p50": 900, "max": 900}])
def test_a_mean_counts_where_a_percentile_is_the_maximum(given: dict[str, float]) -> None:
    found = LengthSpec.model_validate(given)
    lengths, weights = found.distribution()
    assert float(lengths @ weights) == pytest.approx(found.mean_tokens, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "level", "tokens"),
    [("p50", 0.5, 4500), ("p90", 0.9, 6500), ("p90", 0.9, 12000), ("p99", 0.99, 30000)],
)
def test_a_percentile_beside_a_mean_is_its_spread(name: str, level: float, tokens: float) -> None:
    found = LengthSpec.model_validate({"mean": 6000, name: tokens, "max": 32768})
    lengths, weights = found.distribution()
    assert float(lengths @ weights) == pytest.approx(6000, rel=1e-3)
    reached = float(lengths[np.searchsorted(np.cumsum(weights), level)])
    assert reached == pytest.approx(tokens, rel=1e-3)
    assert found.max_tokens == 32768
    assert not found.assumes_spread
    assert LengthSpec(mean=6000, max=32768).assumes_spread
