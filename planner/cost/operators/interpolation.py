"""Multilinear interpolation on logarithmic grids, with the provenance of each answer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from automap.planner.layout import SOURCES, FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

MEASURED = SOURCES.index("measured")
INTERPOLATED = SOURCES.index("interpolated")
ANALYTICAL = SOURCES.index("analytical")

MODEST_STRETCH = 4.0
"""How far beyond a grid's edge (as a factor, in any direction) still counts as interpolated."""

CHUNK_ROWS = 1 << 15
"""Rows worked on at once, so that the temporaries stay in the processor's cache."""


class Timed(NamedTuple):
    """Seconds [row], and the provenance code of each as an index into layout.SOURCES."""

    seconds: FloatArray
    source: IntArray

    def take(self, rows: IntArray) -> "Timed":
        """The given rows."""
        return Timed(self.seconds[rows], self.source[rows])


class Lookup(NamedTuple):
    """Interpolated values [row], and the provenance code of each."""

    values: FloatArray
    source: IntArray


@dataclass(frozen=True, slots=True)
class Grid:
    """Values on a dense grid whose axes are ascending positive numbers, read in log space."""

    axes: tuple[FloatArray, ...]
    """The coordinates of the grid lines of each axis, rising."""
    values: FloatArray
    """[axis 0, axis 1, …]: value at each point of the grid."""
    measured: BoolArray
    """Whether each value is a measurement; the others were filled in from neighbours."""

    @classmethod
    def of(cls, axes: tuple[FloatArray, ...], values: FloatArray) -> "Grid":
        """A grid from values with NaN where nothing was measured.

        Gaps are filled along the first axis, then the next: linearly in the logarithm between
        two measurements, and with the nearest one at the ends.
        """
        measured = ~np.isnan(values)
        for axis, positions in enumerate(axes):
            values = fill_gaps(values, axis=axis, positions=np.log(positions))
        return cls(axes, values, measured)

    def at(self, *coordinates: FloatArray) -> Lookup:
        """Values at the coordinates (one equally long array per axis), clamped to the grid."""
        rows = len(coordinates[0])
        values = np.empty(rows)
        source = np.empty(rows, dtype=np.int64)
        for first in range(0, rows, CHUNK_ROWS):
            part = slice(first, first + CHUNK_ROWS)
            values[part], source[part] = self._at(tuple(c[part] for c in coordinates))
        return Lookup(values, source)

    def _at(self, coordinates: tuple[FloatArray, ...]) -> Lookup:
        lower = np.zeros(len(coordinates[0]), dtype=np.int64)
        exact = np.ones(len(lower), dtype=np.bool_)
        modest = np.ones(len(lower), dtype=np.bool_)
        fractions: list[tuple[int, FloatArray]] = []
        node = lower
        for axis, coordinate, number_bytes in zip(
            self.axes, coordinates, self.values.strides, strict=True
        ):
            stride, first, last = number_bytes // self.values.itemsize, axis[0], axis[-1]
            inside = np.minimum(np.maximum(coordinate, first), last)
            within = inside == coordinate
            if not within.all():
                exact &= within
                modest &= coordinate >= first / MODEST_STRETCH
                modest &= coordinate <= last * MODEST_STRETCH
            cell, fraction = locate(axis, inside)
            upper = fraction == 1.0
            exact &= (fraction == 0.0) | upper
            lower = lower + cell * stride
            node = node + (cell + upper) * stride
            if len(axis) > 1:
                fractions.append((stride, fraction))
        flat = self.values.ravel()
        values = _blend(flat, lower, fractions)
        exact &= self.measured.ravel()[node]
        source = np.where(exact, MEASURED, np.where(modest, INTERPOLATED, ANALYTICAL))
        return Lookup(values, source)


def locate(axis: FloatArray, inside: FloatArray) -> tuple[IntArray, FloatArray]:
    """Cell of each coordinate inside the axis, and how far into it, in log space.

    The fraction is exactly 0 or 1 on a grid line.
    """
    if len(axis) == 1:
        return np.zeros(len(inside), dtype=np.int64), np.zeros(len(inside))
    cell = axis[1:-1].searchsorted(inside, side="right")
    logs = np.log(axis)
    fraction = (np.log(inside) - logs[cell]) / (logs[1:] - logs[:-1])[cell]
    fraction[inside == axis[cell]] = 0.0
    fraction[inside == axis[cell + 1]] = 1.0
    return cell, np.minimum(np.maximum(fraction, 0.0), 1.0)


def _blend(
    flat: FloatArray, lower: IntArray, fractions: list[tuple[int, FloatArray]]
) -> FloatArray:
    if not fractions:
        return flat[lower]
    (stride, fraction), rest = fractions[0], fractions[1:]
    below = _blend(flat, lower, rest)
    return below + fraction * (_blend(flat, lower + stride, rest) - below)


def fill_gaps(values: FloatArray, *, axis: int, positions: FloatArray) -> FloatArray:
    """Replace NaN along one axis: linear between known values, the nearest one at the ends."""
    moved = np.moveaxis(values, axis, 0)
    known = ~np.isnan(moved)
    if known.all():
        return values
    steps = np.arange(len(positions)).reshape(-1, *[1] * (moved.ndim - 1))
    before = np.maximum.accumulate(np.where(known, steps, -1), axis=0)
    after = np.minimum.accumulate(np.where(known, steps, len(positions))[::-1], axis=0)[::-1]
    low = np.where(before < 0, after, before).clip(max=len(positions) - 1)
    high = np.where(after == len(positions), before, after).clip(min=0)
    span = positions[high] - positions[low]
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = np.where(span > 0, (positions[steps] - positions[low]) / span, 0.0)
    below = np.take_along_axis(moved, low, axis=0)
    above = np.take_along_axis(moved, high, axis=0)
    filled = np.where(known, moved, below + weight * (above - below))
    return np.ascontiguousarray(np.moveaxis(filled, 0, axis))


def median_of_known(values: FloatArray) -> FloatArray:
    """Median over the first axis, ignoring NaN; NaN where all are."""
    ordered = np.sort(values, axis=0)
    known = (~np.isnan(values)).sum(axis=0)
    low = np.maximum(known - 1, 0) // 2
    high = np.minimum(known // 2, np.maximum(known - 1, 0))
    picked = [np.take_along_axis(ordered, index[None], axis=0)[0] for index in (low, high)]
    median: FloatArray = (picked[0] + picked[1]) / 2
    return median


def distinct_rows(table: FloatArray) -> tuple[FloatArray, IntArray]:
    """The distinct rows of [row, column], and for each row which of them it is.

    As numpy.unique(axis=0), but several times as fast where most columns are constant.
    """
    codes = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        if len(column) and column.min() < column.max():
            values, code = np.unique(column, return_inverse=True)
            # Compressed at every step: the product of the counts could exceed 64 bits.
            _, codes = np.unique(codes * len(values) + code, return_inverse=True)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return table[first], inverse
