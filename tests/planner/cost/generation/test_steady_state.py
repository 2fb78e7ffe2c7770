"""The flow of responses that never drain, in steps: Little's law where engines are full."""

import numpy as np
import pytest

from automap.planner.cost.generation.steady_state import FollowedFlow, Lengths, followed_flow
from automap.planner.layout import FloatArray
from automap.planner.spec.lengths import LengthSpec

SPREAD = LengthSpec(mean=512, max=4096)
EQUAL = LengthSpec(mean=512, max=512)
HALF = LengthSpec(histogram=[(100, 1), (900, 1)])


def flow(lengths: LengthSpec, *, group: int = 1, batches: float = 1.0) -> FollowedFlow:
    points, mass = lengths.distribution()
    return followed_flow(
        tuple(points.tolist()),
        tuple(mass.tolist()),
        group=group,
        most=batches + 1.0,
        least=batches,
    )


def steps(found: FollowedFlow, *capacity: float) -> FloatArray:
    return found.at(np.array(capacity)).steps.sum(axis=1)


def test_what_is_met_at_random_is_long() -> None:
    points, mass = HALF.distribution()
    lengths = Lengths.of(points, mass, 2)
    # E[L²] / 2 E[L] = (100² + 900²) / 2 / (2 · 500); the longer of two is 100 in a quarter.
    assert lengths.age_tokens == pytest.approx(410.0)
    assert lengths.longest_of_group == pytest.approx((0.25 * 100 + 0.75 * 900) / 500)


@pytest.mark.parametrize("lengths", [SPREAD, EQUAL, HALF])
@pytest.mark.parametrize("capacity", [0.01, 0.2, 0.3])
def test_full_engines_follow_littles_law(lengths: LengthSpec, capacity: float) -> None:
    found = flow(lengths)
    row = found.at(np.array([capacity]))
    assert row.steps.sum() == pytest.approx(lengths.mean_tokens / capacity, rel=1e-6)
    assert row.in_flight == pytest.approx(capacity)


def test_a_group_is_in_flight_until_its_last_response_ends() -> None:
    alone, grouped = flow(SPREAD), flow(SPREAD, group=16)
    longest = grouped.lengths.longest_of_group
    assert longest > 2.5
    # What one batch in flight keeps full is as much less as groups wait longer.
    assert grouped.capacities[0] == pytest.approx(alone.capacities[0] / longest)
    assert steps(grouped, 1.0)[0] > 1.5 * steps(alone, 1.0)[0]


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("lengths", [SPREAD, EQUAL, HALF])
def test_more_at_once_and_more_admitted_are_never_slower(lengths: LengthSpec, group: int) -> None:
    capacities = np.geomspace(0.05, 4.0, 25)
    before = np.full(25, np.inf)
    for batches in (1.0, 2.0, 3.0):
        found = steps(flow(lengths, group=group, batches=batches), *capacities)
        assert (np.diff(found) <= 1e-9 * found[:-1]).all()
        assert (found <= before * 1.05).all()  # a stride's rounding, where lengths are equal
        # No more run than engines hold, and every token of a batch takes a step.
        assert (found >= lengths.mean_tokens / capacities * (1 - 1e-9)).all()
        assert (found >= lengths.mean_tokens / (batches + 1.0) * (1 - 0.05)).all()
        before = found


def test_as_many_tokens_are_decoded_as_a_batch_has() -> None:
    found = flow(SPREAD, batches=2.0)
    tokens = (found.flow.steps * found.flow.in_flight).sum(axis=1)
    assert tokens == pytest.approx(SPREAD.mean_tokens)
