"""One operation timed until its median is certain: samples, outliers, the interval, the limit."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from automap.planner.layout import FloatArray

RELATIVE_INTERVAL = 0.02
"""A median is certain enough once half its 95 % interval is this share of it."""
MIN_SAMPLES = 7
"""Fewer have no 95 % interval of the median at all (2 · 0.5⁷ = 1.6 %, 2 · 0.5⁵ = 6 %)."""
LEAST_SAMPLES = 3
"""Taken even where the limit is over: a median of fewer hides nothing."""
OUTLIER_DEVIATIONS = 5.0
"""Samples farther from the median than so many standard deviations (estimated by the median
absolute deviation) are the machine's, not the operation's."""
LEAST_DEVIATION = 0.01
"""Share of the median: samples this close to it are no outliers, however alike the others are."""
DISTURBED_SHARE = 0.05
"""A sample that waited so long for a processor, as a share of its time, was disturbed."""
QUIET_SHARE = 0.25
"""Share of the samples that must be undisturbed for the others to be left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one operation, mean of the repeats of one sample."""

    seconds: float
    """Without what the operation waited for a processor, where that is known."""
    waited_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The median of what remains after outliers, and how certain it is."""

    seconds: float
    low: float
    high: float
    """95 % interval of the median; all samples where there are fewer than seven."""
    samples: int
    rejected: int
    """Outliers and disturbed samples that were left out."""
    disturbed: bool
    """Too few samples were undisturbed, so the least disturbed third counts."""
    busy: bool = False
    """Others used the device meanwhile."""
    throttled: bool = False
    """Its clock was slow meanwhile."""

    @property
    def relative_interval(self) -> float:
        """Half the interval as a share of the median."""
        return (self.high - self.low) / 2 / self.seconds


class Sampler(Protocol):
    """Takes samples of one operation on one device."""

    def sample(self) -> Sample:
        """Time the operation once more."""
        ...


def measure(
    sampler: Sampler, *, limit_seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Measurement:
    """Sample until the median is certain or the limit is over, but at least three times."""
    end = clock() + limit_seconds
    samples: list[Sample] = []
    while True:
        samples.append(sampler.sample())
        over = clock() >= end
        if len(samples) < (LEAST_SAMPLES if over else MIN_SAMPLES):
            continue
        found = summary(samples)
        enough = found.samples >= MIN_SAMPLES and not found.disturbed
        if over or (enough and found.relative_interval <= RELATIVE_INTERVAL):
            return found


def summary(samples: list[Sample]) -> Measurement:
    """Median, interval and what was rejected of samples, of which there is at least one."""
    quiet = [sample for sample in samples if sample.waited_share <= DISTURBED_SHARE]
    # A few quiet ones among many may be quiet only because something else made them long.
    disturbed = len(quiet) < max(min(LEAST_SAMPLES, len(samples)), QUIET_SHARE * len(samples))
    if disturbed:
        by_waiting = sorted(samples, key=lambda sample: sample.waited_share * sample.seconds)
        quiet = by_waiting[: max(len(samples) // 3, LEAST_SAMPLES)]
    counted = np.array([sample.seconds for sample in quiet])
    kept = np.sort(_without_outliers(counted))
    low, high = _interval(kept)
    return Measurement(
        seconds=float(np.median(kept)),
        low=low,
        high=high,
        samples=len(kept),
        rejected=len(samples) - len(kept),
        disturbed=disturbed,
    )


def _without_outliers(seconds: FloatArray) -> FloatArray:
    middle = np.median(seconds)
    # For a normal distribution the median absolute deviation is 0.6745 standard deviations.
    deviation = np.median(np.abs(seconds - middle)) / 0.6745
    allowed = OUTLIER_DEVIATIONS * max(deviation, LEAST_DEVIATION * middle)
    kept: FloatArray = seconds[np.abs(seconds - middle) <= allowed]
    return kept


def _interval(ordered: FloatArray) -> tuple[float, float]:
    """95 % interval of the median by order statistics, which assumes no distribution."""
    count = len(ordered)
    first = max(int(np.floor(count / 2 - 0.98 * np.sqrt(count))), 0)
    return float(ordered[first]), float(ordered[count - 1 - first])
