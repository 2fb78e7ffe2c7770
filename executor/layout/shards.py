"""Parts of a model's weights: ranges of its width and of its layers."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of every layer's width and a range of the layers, as fractions from 0 to 1.

    Exact where the sizes divide heads, widths and layers, and stages are not interleaved.
    """

    tensor: Interval
    pipeline: Interval

    @property
    def size(self) -> Fraction:
        """The shard's part of the model, 0 to 1."""
        return _length(self.tensor) * _length(self.pipeline)

    def overlap(self, other: "Shard") -> Fraction:
        """What both hold, as a fraction of the model."""
        return _common(self.tensor, other.tensor) * _common(self.pipeline, other.pipeline)

    def contains(self, other: "Shard") -> bool:
        """Whether the other lies wholly inside."""
        return self.overlap(other) == other.size


@cache
def equal_part(index: int, count: int) -> Interval:
    """Part `index`, from 0, of the unit interval cut into `count` equal parts."""
    return Fraction(index, count), Fraction(index + 1, count)


def _length(interval: Interval) -> Fraction:
    return interval[1] - interval[0]


def _common(one: Interval, other: Interval) -> Fraction:
    return max(min(one[1], other[1]) - max(one[0], other[0]), Fraction(0))
