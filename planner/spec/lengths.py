"""Prompt and response lengths as distributions, in tokens."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, log
from statistics import NormalDist
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from automap.planner.errors import FieldValueError
from automap.planner.layout import FloatArray

Tokens = Annotated[float, Field(ge=1, le=10**8, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bin = Annotated[tuple[Tokens, Weight], Field(strict=False)]
"""Files and HTTP have lists, never tuples."""

ASSUMED_SPREAD = 0.75
"""Standard deviation of ln(length) where the spec says nothing of the spread.

An assumption, in the range of chat responses: the 99.9th percentile is ten times the median, before
the maximum cuts it. Percentiles or a histogram in the spec replace it.
"""
LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Percentiles by name."""
LEAST_SPREAD, MOST_SPREAD = 0.01, 3.0
"""Standard deviations of ln(length) between which one is looked for."""
LONGEST_SHARE = 1e-3
"""Largest share of the sequences that is moved to max_tokens where the distribution ends before."""

_NORMAL = NormalDist()
# Cells of equal width on the standard normal axis: a length distribution is one length per cell.
_EDGES = np.linspace(-6, 6, 2401)
_CENTRES = (_EDGES[1:] + _EDGES[:-1]) / 2
_CELL_WEIGHTS = np.diff([0.0, *(_NORMAL.cdf(edge) for edge in _EDGES[1:-1]), 1.0])


class LengthSpec(BaseModel):
    """A length distribution: a mean, percentiles, or a histogram; `max` cuts the first two.

    One percentile beside a mean says how far lengths spread about it.

    A sequence that would be longer than the maximum stops there, as a response does in training.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mean: Tokens | None = None
    p50: Tokens | None = None
    p90: Tokens | None = None
    p99: Tokens | None = None
    max: Annotated[int, Field(ge=1, le=10**8)] | None = None
    histogram: Annotated[list[Bin], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="[length, weight] pairs; weights need not sum to 1"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        known = {name: getattr(self, name) for name in ("mean", "p50", "p90", "p99", "max")}
        given = {name: tokens for name, tokens in known.items() if tokens is not None}
        if self.histogram is not None:
            _check_histogram(self.histogram, list(given))
        else:
            _check_numbers(given)
        return self

    @property
    def mean_tokens(self) -> float:
        """Mean length, in tokens."""
        if self.mean is not None:
            return self.mean
        lengths, weights = self.distribution()
        return float(lengths @ weights)

    @property
    def max_tokens(self) -> int:
        """The longest length, in whole tokens."""
        if self.max is not None:
            return self.max
        lengths, _ = self.distribution()
        return ceil(float(lengths[-1]))

    @property
    def assumes_spread(self) -> bool:
        """True when the spec leaves the spread open, so that ASSUMED_SPREAD fills it in."""
        if self.mean is not None:
            return self.mean != self.max and not self._percentiles
        return self.p50 not in (None, self.max) and self.p90 is None and self.p99 is None

    def discretised(self, num_points: int) -> tuple[FloatArray, FloatArray]:
        """At most `num_points` lengths, not falling, and their weights, which sum to 1.

        The weighted mean is mean_tokens, the last length max_tokens. A constant gives one point, a
        histogram its own bins if they are few.

        Args:
            num_points: Two or more.

        Raises:
            ValueError: `num_points` is below 2.
        """
        if num_points < 2:
            raise ValueError(f"num_points={num_points}: give at least 2")
        lengths, weights = self.distribution()
        if len(lengths) == 1 or (self.histogram is not None and len(lengths) <= num_points):
            return lengths, weights
        mean, longest = self.mean_tokens, float(self.max_tokens)
        levels = _levels(num_points, share=min(LONGEST_SHARE, 0.01 * mean / longest))
        return _with_last(*_merged(lengths, weights, levels), longest=longest, mean=mean)

    def truncated(self, longest: int) -> "LengthSpec":
        """The distribution when every longer draw stops at `longest` tokens, as a histogram."""
        lengths, weights = self.discretised(64)
        cut = np.minimum(lengths, float(longest))
        pairs = [(float(x), float(w)) for x, w in zip(cut, weights, strict=True) if w > 0]
        return LengthSpec(histogram=pairs)

    def distribution(self) -> tuple[FloatArray, FloatArray]:
        """(lengths, weights) [point] of the whole distribution, as fine as it is known.

        Lengths do not fall; weights sum to 1.
        """
        if self.histogram is not None:
            bins = np.array(sorted(pair for pair in self.histogram if pair[1] > 0))
            return bins[:, 0], bins[:, 1] / bins[:, 1].sum()
        assert self.max is not None, "the validator wants it beside a mean or percentiles"
        if self.max == (self.p50 if self.mean is None else self.mean):
            return np.array([float(self.max)]), np.array([1.0])
        if self.mean is None:
            return _lengths_of_percentiles(self._percentiles, self.max), _CELL_WEIGHTS
        if not self._percentiles:
            return _lengths_of_mean(self.mean, self.max, ASSUMED_SPREAD), _CELL_WEIGHTS
        spread = _spread_of(self.mean, self.max, *self._percentiles[0])
        assert spread is not None, "the validator wants a percentile that there can be"
        return _lengths_of_mean(self.mean, self.max, spread), _CELL_WEIGHTS

    @property
    def _percentiles(self) -> tuple[tuple[float, float], ...]:
        """(level, tokens) of those that are given."""
        known = {LEVELS[name]: getattr(self, name) for name in LEVELS}
        return tuple((level, value) for level, value in known.items() if value is not None)


def _check_histogram(histogram: Sequence[tuple[float, float]], others: Sequence[str]) -> None:
    if others:
        raise FieldValueError(
            others[0],
            "a histogram says all of the lengths, and its largest is the maximum",
            remedy=f"leave out either histogram or {', '.join(others)}",
        )
    if sum(weight for _, weight in histogram) <= 0:
        raise FieldValueError(
            "histogram", "its weights sum to 0", remedy="give at least one a positive weight"
        )


def _check_numbers(given: Mapping[str, float]) -> None:
    """Refuse a mean or percentiles of which one is below the one before, or above the maximum."""
    percentiles = [name for name in given if name in LEVELS]
    if "mean" in given and len(percentiles) > 1:
        raise FieldValueError(
            "mean",
            f"{', '.join(percentiles)} are given, too",
            remedy="leave out the mean, or all percentiles but one",
        )
    if "mean" not in given and "p50" not in given:
        raise FieldValueError(
            "p50",
            "neither this nor a mean is given",
            remedy="give mean, or p50 (p90, p99 if known)",
        )
    if "max" not in given:
        raise FieldValueError("max", "is missing", remedy="give the longest length, in tokens")
    # A mean may be above or below a percentile.
    for rising in (["mean", "max"], [*percentiles, "max"]):
        for low, high in pairwise(name for name in rising if name in given):
            if given[low] > given[high]:
                raise FieldValueError(
                    low,
                    f"{given[low]:.12g} is above {high}, {given[high]:.12g}",
                    remedy=f"use at most {given[high]:.12g}, or raise {high}",
                )
    if "mean" in given and percentiles and given["mean"] < given["max"]:
        _check_spread(given, percentiles[0])


def _check_spread(given: Mapping[str, float], percentile: str) -> None:
    """Refuse a percentile that no log-normal with the mean has."""
    mean, tokens, level = given["mean"], given[percentile], LEVELS[percentile]
    if _spread_of(mean, int(given["max"]), level, tokens) is None:
        raise FieldValueError(
            percentile,
            f"no log-normal with a mean of {mean:.12g} and a maximum of {given['max']:.12g} has "
            f"{tokens:.12g}",
            remedy="leave out the mean, and give p50 beside it, or a histogram",
        )


@lru_cache(maxsize=256)
def _spread_of(mean: float, maximum: int, level: float, tokens: float) -> float | None:
    """Standard deviation of ln(length) with which a mean has that percentile; None: with none.

    The least of a grid's two neighbours between which the percentile lies, by bisection.
    """
    place = int(np.searchsorted(np.cumsum(_CELL_WEIGHTS), level))

    def found(spread: float) -> float:
        return float(_lengths_of_mean(mean, maximum, spread)[place])

    grid = np.linspace(LEAST_SPREAD, MOST_SPREAD, 61).tolist()
    beyond = [found(each) - tokens for each in grid]
    for low, high, below, above in zip(grid, grid[1:], beyond, beyond[1:], strict=False):
        if below * above <= 0:
            for _ in range(40):
                middle = (low + high) / 2
                on_this_side = (found(middle) - tokens) * below > 0
                low, high = (middle, high) if on_this_side else (low, middle)
            return float(high)
    return None


@lru_cache(maxsize=512)
def _lengths_of_mean(mean: float, maximum: int, spread: float) -> FloatArray:
    """Length per cell: a log-normal of that spread, cut at the maximum, with that mean.

    The cut lowers the mean, so the median is found by bisection; the mean grows with it.
    """

    def lengths(log_median: float) -> FloatArray:
        cut: FloatArray = np.minimum(np.exp(log_median + spread * _CENTRES), maximum)
        return cut

    low, high = log(mean) - 10 * spread, log(maximum) + 10 * spread
    for _ in range(100):
        middle = (low + high) / 2
        if float(lengths(middle) @ _CELL_WEIGHTS) < mean:
            low = middle
        else:
            high = middle
    return lengths(high)


@lru_cache(maxsize=256)
def _lengths_of_percentiles(
    percentiles: tuple[tuple[float, float], ...], maximum: int
) -> FloatArray:
    """Length per cell: ln(length) linear in the normal score between the given percentiles.

    Beyond them it goes on as steeply as between the nearest two (log-normal tails), up to the
    maximum.
    """
    scores = [_NORMAL.inv_cdf(level) for level, _ in percentiles]
    logs = [log(length) for _, length in percentiles]
    if len(percentiles) == 1:
        scores.append(scores[0] + 1)
        logs.append(logs[0] + ASSUMED_SPREAD)
    slopes = np.diff(logs) / np.diff(scores)
    inside = np.interp(_CENTRES, scores, logs)
    below = np.minimum(_CENTRES - scores[0], 0) * slopes[0]
    above = np.maximum(_CENTRES - scores[-1], 0) * slopes[-1]
    lengths: FloatArray = np.minimum(np.exp(inside + below + above), maximum)
    return lengths


def _levels(num_points: int, *, share: float) -> FloatArray:
    """Quantile levels that bound `num_points` intervals, the last of which has that share.

    Half of them divide the upper tenth, where few sequences hold up the whole batch.
    """
    in_tail = num_points // 2 if share < 0.1 else 1
    tail = 1 - np.geomspace(0.1, share, in_tail) if in_tail > 1 else np.array([1 - share])
    body = np.linspace(0, tail[0], num_points - in_tail, endpoint=False)
    return np.concatenate([body, tail, [1.0]])


def _merged(
    lengths: FloatArray, weights: FloatArray, levels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The mean length between neighbouring quantile levels, and the share between them."""
    reached = np.concatenate([[0.0], np.cumsum(weights)])
    reached[-1] = 1.0
    tokens = np.concatenate([[0.0], np.cumsum(lengths * np.diff(reached))])
    shares = np.diff(levels)
    # Sums of rounded numbers may fall by one bit where neighbours are equal.
    means = np.maximum.accumulate(np.diff(np.interp(levels, reached, tokens)) / shares)
    return means, shares


def _with_last(
    lengths: FloatArray, weights: FloatArray, *, longest: float, mean: float
) -> tuple[FloatArray, FloatArray]:
    """Set the last length to `longest` and move the others so that the mean is right again."""
    others, shares = lengths[:-1], weights[:-1]
    longest = max(longest, float(others[-1]))
    wanted = mean - weights[-1] * longest
    present = float(others @ shares)
    if wanted <= present:
        moved = others * (wanted / present)
    else:
        room = float((longest - others) @ shares)
        # Without room every length is the longest, and what is missing is rounding.
        moved = others + (longest - others) * (min((wanted - present) / room, 1.0) if room else 0.0)
    return np.append(moved, longest), weights
