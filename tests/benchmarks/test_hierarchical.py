"""The fit that all fits share, against what ridge regression has in closed form."""

import numpy as np
import pytest

from benchmarks import hierarchical
from benchmarks.fit_intervals import Residual, left_out_spreads, shares, spread
from benchmarks.fit_intervals import held as inside
from benchmarks.hierarchical import Prior, Problem


def problem(priors, design, target, groups):
    """Rows whose errors are linear in the logarithms of the constants."""
    design, target = np.array(design, dtype=float), np.array(target, dtype=float)
    return Problem(
        tuple(priors),
        lambda values: design @ np.log(values) - target,
        lambda values: design,
        tuple(groups),
    )


def test_one_constant_lies_between_its_prior_and_its_rows():
    """A row that asks for ln = 0.01 with noise 0.05, a prior at 0 of the same width."""
    given = problem([Prior("rate", 1.0, hierarchical.NOISE)], [[1.0]], [0.01], ["a"])
    found = hierarchical.solve(given, np.ones(1), [0])
    assert found.logs[0] == pytest.approx(0.005, rel=0.02)
    assert found.rows[0] == 1


def test_rows_of_one_group_count_as_their_square_root():
    prior = Prior("rate", 1.0, hierarchical.NOISE)
    given = problem([prior], [[1.0]] * 9, [0.01] * 9, ["a"] * 9)
    found = hierarchical.solve(given, np.ones(9), [0])
    assert found.logs[0] == pytest.approx(0.0075, rel=0.02)  # 3 rows' worth against 1


def test_a_constant_without_rows_follows_the_level_of_its_block_and_another_does_not():
    one, other = (Prior(name, 1.0, 0.1, "rate", 0.3) for name in ("one", "other"))
    alone = Prior("alone", 1.0, 0.3)
    rows = [[1.0, 0.0, 0.0]] * 100
    given = problem([one, other, alone], rows, [0.2] * 100, [str(n) for n in range(100)])
    found = hierarchical.solve(given, np.ones(100), [0, 1, 2])
    assert found.logs[0] == pytest.approx(0.2, rel=0.05)
    assert found.logs[1] == pytest.approx(0.2 * 0.09 / 0.1, rel=0.05)
    assert found.logs[2] == pytest.approx(0.0, abs=1e-6)
    assert found.deviations[1] > found.deviations[0]


def test_a_constant_that_is_held_stays_at_its_prior():
    given = problem([Prior("rate", 1.0, 0.3)], [[1.0]] * 4, [0.2] * 4, "abcd")
    assert hierarchical.solve(given, np.ones(4), []).logs[0] == pytest.approx(0.0, abs=1e-4)


def test_errors_left_out_are_of_fits_without_the_group():
    """Two groups that ask for opposite values: each is predicted by the other's."""
    given = problem([Prior("rate", 1.0, 10.0)], [[1.0]] * 2, [0.1, -0.1], ["a", "b"])
    found = hierarchical.left_out(given, ["a", "b"], [0])
    assert found == pytest.approx([-0.2, 0.2], rel=0.01)


def test_a_constant_stays_free_only_where_it_helps_rows_left_out():
    """The first explains all groups alike; what the second would explain is noise of its own."""
    noise = np.random.default_rng(1).normal(scale=0.02, size=12)
    design = np.column_stack([np.ones(12), np.where(np.arange(12) % 2, 1.0, -1.0) * 0.3])
    groups = [str(n // 2) for n in range(12)]
    priors = [Prior("shared", 1.0, 0.3), Prior("idle", 1.0, 0.3)]
    given = problem(priors, design, 0.2 + noise, groups)
    assert 0 in hierarchical.choose(given, {"group": groups})
    assert 1 not in hierarchical.choose(given, {"group": groups})


def test_every_group_weighs_the_same_in_a_spread():
    """Ten groups: nine of one row that needs 0.1, one of a hundred rows that need 0.5."""
    few = [Residual(str(n), 0.1, 0.0) for n in range(9)]
    rows = [*few, *(Residual("many", 0.5, 0.0) for _ in range(100))]
    assert spread(rows) == pytest.approx(0.1)
    assert shares(inside(rows, 0.1))[1] == pytest.approx(0.9)


def test_what_was_assumed_is_taken_off_in_squares():
    assert Residual("a", 0.5, 0.4).needed == pytest.approx(0.3)
    assert Residual("a", 0.1, 0.4).needed == 0.0


def test_a_group_has_no_part_in_the_spread_that_it_is_judged_by():
    rows = [Residual("near", 0.1, 0.0), Residual("far", 0.9, 0.0)]
    assert left_out_spreads(rows) == {"near": pytest.approx(0.9), "far": pytest.approx(0.1)}
