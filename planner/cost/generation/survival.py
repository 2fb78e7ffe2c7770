"""A length distribution: who is still unfinished, and sequences that represent it."""

from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray, IntArray

LOWEST_LOG = -40.0
"""ln of a probability that is as good as none."""
Shrinking = tuple[FloatArray, FloatArray, FloatArray]
"""Three arrays [cache size, cell]: share of the sequences that run, mean tokens that those have
generated, and ln of the probability that all have ended, per sequence."""


@dataclass(frozen=True, slots=True)
class Representatives:
    """Sequences that represent equally probable parts of a length distribution, well mixed."""

    lengths: FloatArray
    """[representative]: mean length of its part, in tokens."""
    part: IntArray
    """[representative]: index of the part of the distribution, the shortest first."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class Survival:
    """The function P(length > x) of a length distribution, and its integral from 0."""

    points: FloatArray
    """[point]: lengths in tokens, rising from 0."""
    above: FloatArray
    """[point]: share of the sequences that are longer."""
    integral: FloatArray
    """[point]: integral of the function from 0, in tokens."""

    @staticmethod
    def of(points: FloatArray, mass: FloatArray) -> "Survival":
        """Survival function of the lengths `points` [point], which have probabilities `mass`."""
        starts = np.append(0.0, points)
        above = np.maximum(1.0 - np.append(0.0, np.cumsum(mass)), 0.0)
        above[-1] = 0.0
        return Survival(starts, above, _integral(starts, above))

    def shrinking(
        self, ages: FloatArray, sequences: Representatives, edges: FloatArray
    ) -> Shrinking:
        """The shrinking phase of sequences whose remaining lengths are unknown.

        `ages` [cache size, representative] are tokens generated at its start, `edges` [cell + 1]
        the borders of its cells.
        """
        shape = (len(ages), len(edges) - 1)
        running, held, ended = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        middles = (edges[1:] + edges[:-1]) / 2
        for k, age in enumerate(ages):
            now = age[age < sequences.lengths - 1e-9]
            reached = np.interp(now[:, None] + edges, self.points, self.integral)
            at = np.searchsorted(self.points, now, side="right") - 1
            still = np.diff(reached, axis=1) / np.diff(edges)
            still = np.clip(still / np.maximum(self.above[at], 1e-12)[:, None], 0.0, 1.0)
            running[k] = still.sum(axis=0) / len(sequences)
            held[k] = (still * (now[:, None] + middles)).sum(axis=0) / len(sequences)
            ended[k] = _log_ended(still).sum(axis=0) / len(sequences)
        return running, held / np.maximum(running, 1e-12), ended

    def shrinking_in_turns(
        self, ages: FloatArray, sequences: Representatives, edges: FloatArray
    ) -> Shrinking:
        """The shrinking phase where the longest are ahead: of each representative, a share is left.

        In turns all proceed side by side, so what one has generated tells how long it is; the
        lengths of a representative's part of the distribution have the same share left.
        """
        shape = (len(ages), len(edges) - 1)
        running, held, ended = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        middles = (edges[1:] + edges[:-1]) / 2
        count = len(sequences)
        for column, part in enumerate(sequences.part):
            beyond = 1.0 - (part + 1) / count
            inside = np.clip((self.above - beyond) * count, 0.0, 1.0)
            left = np.maximum(1.0 - ages[:, column, None] / sequences.lengths[column], 1e-12)
            reached = np.interp(edges / left, self.points, _integral(self.points, inside))
            still = np.clip(np.diff(reached, axis=1) * left / np.diff(edges), 0.0, 1.0)
            running += still / count
            held += still * (ages[:, column, None] + middles) / count
            ended += _log_ended(still) / count
        return running, held / np.maximum(running, 1e-12), ended


def representatives(points: FloatArray, mass: FloatArray, number: int) -> Representatives:
    """`number` sequences that represent a distribution, each by the mean length of its part."""
    levels = np.linspace(0.0, 1.0, number + 1)
    reached = np.append(0.0, np.cumsum(mass))
    tokens = np.append(0.0, np.cumsum(points * mass))
    means = np.diff(np.interp(levels, reached, tokens)) * number
    golden = (np.arange(number) * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    part = np.argsort(golden)
    return Representatives(means[part], part)


def variation(values: FloatArray, mass: FloatArray) -> float:
    """Coefficient of variation of a distribution: standard deviation over mean."""
    mean = float(values @ mass)
    return float(np.sqrt(max(float((values - mean) ** 2 @ mass), 0.0))) / mean


def _integral(points: FloatArray, values: FloatArray) -> FloatArray:
    """Integral of a step function from 0 to each point."""
    return np.append(0.0, np.cumsum(values[:-1] * np.diff(points)))


def _log_ended(still: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(1.0 - still, np.exp(LOWEST_LOG))), dtype=np.float64)
