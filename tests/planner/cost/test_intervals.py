"""Intervals: ordered, around their estimate, and holding what they promise on published rows."""

from collections import defaultdict

import numpy as np
import pytest

from automap.planner.catalogue import architecture
from automap.planner.cost.intervals import (
    SPREADS,
    bounds,
    call_bounds,
    call_kind,
    exceedance_probability,
    is_seen,
    kind_named,
    largest_estimate,
)
from benchmarks.fit_intervals import left_out_spreads, read, residuals
from tests.planner.validation.published_tables import PUBLISHED


def test_a_spread_is_a_factor_to_either_side(monkeypatch):
    """ln 1.25 apart: four fifths, and five quarters."""
    monkeypatch.setitem(SPREADS, "memory", 0.22314355)
    assert bounds(10.0, "memory") == pytest.approx((8.0, 12.5))


def test_chance_widens_an_interval_and_never_makes_it_negative():
    parts = [(9.0, "generation, dense"), (1.0, "transfer across nodes")]
    narrow = call_bounds(parts, deviation=0.0)
    wide = call_bounds(parts, deviation=20.0)
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


@pytest.mark.slow
def test_spreads_of_the_other_groups_hold_three_quarters_of_each_group_left_out():
    """Constants and spreads of training, both without the group, on the golden selection."""
    found, left_out = read([str(PUBLISHED / "training.csv")])
    needed = defaultdict(list)
    for kind, rows in residuals(found, left_out).items():
        if not kind.endswith(", unseen"):
            apart = left_out_spreads(rows)
            for row in rows:
                if row.group in apart:
                    needed[kind, row.group].append(row.needed <= apart[row.group])
    assert len(needed) >= 5
    assert np.mean([np.mean(rows) for rows in needed.values()]) >= 0.75


def test_software_is_seen_where_rows_have_its_seconds():
    dense = architecture("qwen2.5-7b")
    assert is_seen("megatron-core", "hopper", experts=False)
    assert not is_seen("megatron-core", "ampere", experts=False)
    assert not is_seen("megatron-core", "hopper", experts=True)
    assert not is_seen("pytorch-bf16", "hopper", experts=False)
    assert call_kind("train", dense, "bf16", seen=False) == "training, dense, 16-bit, unseen"
    assert call_kind("train", dense, "bf16", assumed=True, seen=False) == (
        "calls on GPUs without tables"
    )


def test_an_unseen_kind_is_no_narrower_than_the_seen_one():
    unseen = [kind for kind in SPREADS if kind.endswith(", unseen")]
    assert len(unseen) == 8
    for kind in unseen:
        assert SPREADS[kind] >= SPREADS[kind_named(kind.removesuffix(", unseen"))]
