"""Intervals: ordered, around their estimate, and holding what they promise on published rows."""

from collections import defaultdict

import numpy as np
import pytest

from automap.planner.cost.intervals import (
    SPREADS,
    bounds,
    call_bounds,
    exceedance_probability,
    largest_estimate,
)
from benchmarks.fit_intervals import residuals
from tests.planner.validation.published_tables import published


def test_a_spread_is_a_factor_to_either_side(monkeypatch):
    """ln 1.25 apart: four fifths, and five quarters."""
    monkeypatch.setitem(SPREADS, "memory", 0.22314355)
    assert bounds(10.0, "memory") == pytest.approx((8.0, 12.5))


def test_chance_widens_an_interval_and_never_makes_it_negative():
    given = {"kind": "generation, dense", "transition_seconds": 1.0, "multi_node": True}
    narrow = call_bounds(10.0, **given, deviation=0.0)
    wide = call_bounds(10.0, **given, deviation=20.0)
    assert 0.0 == wide[0] < narrow[0] < 10.0 < narrow[1] < wide[1]


def test_a_limit_at_an_end_of_the_interval_is_exceeded_as_often_as_values_lie_beyond_it():
    """Four fifths lie inside, one tenth above and one tenth below; half are above the estimate."""
    low, high = bounds(10.0, "memory")
    found = [exceedance_probability(10.0, limit, "memory") for limit in (low, 10.0, high)]
    assert found == pytest.approx([0.9, 0.5, 0.1], abs=1e-5)
    assert largest_estimate(high, "memory", probability=0.1) == pytest.approx(10.0, rel=1e-5)


@pytest.mark.parametrize("probability", [1e-6, 0.01, 0.05, 0.1, 0.3, 0.49])
def test_the_largest_estimate_is_exceeded_with_just_the_chance_that_is_allowed(probability):
    estimate = largest_estimate(80.0, "memory", probability=probability)
    assert exceedance_probability(estimate, 80.0, "memory") == pytest.approx(probability)
    assert exceedance_probability(1.01 * estimate, 80.0, "memory") > probability


def test_nothing_cannot_run_out_and_no_memory_does_not_suffice():
    assert exceedance_probability(0.0, 1.0, "memory") == 0.0
    assert exceedance_probability(1.0, 0.0, "memory") == 1.0


@pytest.mark.thorough
def test_intervals_hold_most_of_the_golden_selection():
    held = defaultdict(list)
    for kind, rows in residuals(published()).items():
        held[kind] += [row.off <= SPREADS[kind] for row in rows]
    everything = [one for rows in held.values() for one in rows]
    assert len(everything) > 60
    assert 0.65 <= np.mean(everything) <= 0.95
