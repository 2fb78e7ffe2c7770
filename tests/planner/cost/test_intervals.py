"""Intervals: ordered, around their estimate, and holding what they promise on published rows."""

from collections import defaultdict

import numpy as np
import pytest

from automap.planner.cost.intervals import SPREADS, bounds, call_bounds
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


@pytest.mark.thorough
def test_intervals_hold_most_of_the_golden_selection():
    held = defaultdict(list)
    for kind, rows in residuals(published()).items():
        held[kind] += [row.off <= SPREADS[kind] for row in rows]
    everything = [one for rows in held.values() for one in rows]
    assert len(everything) > 60
    assert 0.65 <= np.mean(everything) <= 0.95
