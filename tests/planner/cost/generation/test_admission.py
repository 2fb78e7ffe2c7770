"""Sequences followed through queue, cache and environment."""

import numpy as np
import pytest

from automap.planner.cost.generation.admission import Busy, Followed, follow
from automap.planner.cost.generation.rollout import rollouts_with_absences
from automap.planner.spec.lengths import LengthSpec

CELLS = np.array([1.0, 50.0])


def followed(
    lengths: list[float], *, cache: list[float], turns: int = 1, absent: float = 0.0
) -> Busy:
    rows = len(cache)
    what = Followed(
        np.array(lengths), 20.0, np.array(cache), turns, np.full(rows, absent), stride=1.0
    )
    return follow(what, CELLS)


def test_nobody_waits_where_all_fit():
    busy = followed([100.0] * 4, cache=[np.inf])
    assert busy.steps[0] == 0
    assert busy.evicted_tokens[0] == 0
    assert busy.absences[0] == 1


def test_half_of_a_cache_takes_two_waves():
    """All four begin, and grow until two are left; the others go on when these have ended."""
    busy = followed([100.0] * 4, cache=[2 * 121.0])
    assert busy.steps[0] == pytest.approx(100, abs=2)
    assert np.all(np.diff(busy.running[0]) < 0)
    assert busy.running[0, [0, -1]] == pytest.approx([1.0, 0.5], abs=0.05)
    assert np.all(busy.last_ages[0, :2] == 100)
    assert np.all(busy.last_ages[0, 2:] < 70)
    assert busy.evicted_tokens[0] > 0


def test_others_run_while_one_is_with_its_environment():
    """Room for one; an environment lasts no longer than the other's turn."""
    hidden = followed([100.0] * 2, cache=[125.0], turns=4, absent=20.0)
    assert 1.0 <= hidden.absences[0] < 3.0
    assert hidden.evicted_tokens[0] > 0


def test_long_environments_are_hidden_by_nothing():
    busy = followed([100.0] * 2, cache=[125.0], turns=4, absent=1000.0)
    assert busy.absences[0] == pytest.approx(4.0, abs=0.1)
    assert np.all(busy.running[0] <= 1.0)


def test_what_was_cached_is_kept_where_the_cache_was_never_full():
    assert followed([100.0] * 4, cache=[np.inf], turns=4, absent=10.0).evicted_tokens[0] == 0


def test_turns_of_different_lengths_fall_out_of_step():
    """The shorter one's second turn is nearly over when that of the longer one begins."""
    what = Followed(
        np.array([100.0, 60.0]), 20.0, np.array([np.inf]), 4, np.array([500.0]), stride=1.0
    )
    found = follow(what, np.array([10.0, 27.0, 40.0, 90.0]))
    assert found.beside[0] == pytest.approx([1.0, 1.0, 0.5, 1.0])
    equal = followed([100.0] * 4, cache=[np.inf], turns=4, absent=500.0)
    assert equal.beside[0] == pytest.approx([1.0, 1.0])


def test_a_smaller_cache_never_ends_sooner():
    points, weights = LengthSpec.model_validate({"mean": 300, "max": 2000}).distribution()
    found = rollouts_with_absences(
        tuple(points.tolist()), tuple(weights.tolist()), prompt_tokens=200.0, num_draws=64, turns=3
    )
    for process in found:
        busy = process.busy_tokens / process.capacities
        assert np.all(np.diff(busy) <= 0.05 * busy[:-1])
        assert np.all((process.absences >= 0) & (process.absences <= 3))
        assert process.absences[-1] > 2.0
    longest = found[-1].absences
    assert longest[-1] == pytest.approx(3.0, abs=0.05)
    assert longest[0] < 2.5, "what waits in a short cache hides environment time"
