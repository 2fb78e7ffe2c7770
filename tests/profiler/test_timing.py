"""Medians of samples: outliers, disturbed samples, when to stop."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
import pytest

from automap.profiler.results.measurement import MIN_SAMPLES, Measurement, Sample, measure, summary


def quiet(*seconds: float) -> list[Sample]:
    return [Sample(each) for each in seconds]


def test_a_far_sample_is_rejected_and_counted() -> None:
    found = summary(quiet(1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 9.0))
    assert found.seconds == pytest.approx(1.0)
    assert (found.samples, found.rejected, found.disturbed) == (7, 1, False)


def test_spread_that_is_the_operations_own_is_kept() -> None:
    found = summary(quiet(1.0, 1.2, 0.8, 1.1, 0.9, 1.3, 0.7))
    assert (found.samples, found.rejected) == (7, 0)
    assert (found.low, found.high) == (0.7, 1.3)


def test_samples_that_waited_for_a_processor_are_left_out() -> None:
    waiting = [Sample(3.0, 0.5), Sample(2.0, 0.06)]
    found = summary([*waiting, *quiet(1.0, 1.0, 1.01)])
    assert found.seconds == 1.0
    assert (found.samples, found.rejected, found.disturbed) == (3, 2, False)


def test_where_all_waited_the_third_that_waited_least_counts() -> None:
    waiting = [Sample(1.0 + 0.1 * share, share) for share in np.linspace(0.1, 0.9, 12)]
    found = summary(waiting)
    assert (found.samples, found.rejected, found.disturbed) == (4, 8, True)
    assert found.high <= 1.0 + 0.1 * 0.35


def test_a_few_long_samples_that_waited_for_nothing_do_not_outweigh_the_others() -> None:
    waiting = [Sample(1.0, 0.2)] * 30
    found = summary([*waiting, *quiet(9.0, 9.0, 9.0)])
    assert found.seconds == 1.0
    assert found.disturbed


@pytest.mark.parametrize("count", [7, 20, 100])
def test_the_interval_holds_the_median_19_times_in_20(count: int) -> None:
    random = np.random.default_rng(count)
    held = 0
    for _ in range(400):
        found = summary(quiet(*(random.normal(10.0, 0.1, count))))
        held += found.low <= 10.0 <= found.high
    assert 0.91 <= held / 400 <= 1.0


@dataclass
class Replay:
    """Samples one after another; each takes a second of the clock."""

    seconds: Iterator[float]
    now: float = 0.0
    taken: list[float] = field(default_factory=list)

    def sample(self) -> Sample:
        self.now += 1.0
        self.taken.append(next(self.seconds))
        return Sample(self.taken[-1])


def measured(*seconds: float, limit: float) -> tuple[Replay, Measurement]:
    replay = Replay(cycle(seconds))
    return replay, measure(replay, limit_seconds=limit, clock=lambda: replay.now)


def test_it_stops_as_soon_as_the_median_is_certain() -> None:
    replay, found = measured(1.0, 1.001, limit=1000)
    assert len(replay.taken) == MIN_SAMPLES
    assert found.relative_interval <= 0.02


def test_it_samples_noise_until_the_limit() -> None:
    replay, found = measured(1.0, 1.3, 0.8, 1.5, limit=50)
    assert len(replay.taken) == 50
    assert found.relative_interval > 0.02


def test_a_limit_that_is_over_leaves_three_samples() -> None:
    replay, _ = measured(1.0, limit=0.1)
    assert len(replay.taken) == 3
