"""Responses in flight where generation never drains: a periodic flow under a bound on their number.

A batch of B finished responses is trained on whenever there is one. With the batches that are being
scored or trained on (`lag` of them), the finished responses that do not yet make a batch and those
in flight, no more than (η + 1)·B are admitted: AReaL's rule (arXiv 2505.24298). So while a batch
fills, the number in flight falls from (η + 1 − lag)·B to (η − lag)·B, and jumps back when new
weights come. Engines that run no more than the lower number never notice: they are always full, and
the flow is the one of Little's law. Otherwise the flow is followed here, in steps in place of
seconds: what a step takes is the engine's affair, who ends after how many steps is not.

All numbers of responses are over B. Lengths are independent; the responses of a prompt start
together, and count as in flight until the last of them ends, as a group is trained on together.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from automap.planner.cost.generation.survival import Survival
from automap.planner.layout import FloatArray

STRIDES = 32
"""Strides per mean response in which the flow is followed."""
CELLS = 8
"""Equal parts of a batch for which the number in flight is kept."""
CAPACITIES = 16
"""Numbers of responses at once that are followed between an engine that is always full and one in
which nobody waits."""
PERIODS = (6, 8)
"""Batches that are followed: until the flow repeats itself, and to measure."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of response lengths, and what a flow of such responses is like."""

    mean_tokens: float
    age_tokens: float
    """Mean tokens that a response in flight has: E[L²] / 2 E[L], as long ones are seen longer."""
    longest_of_group: float
    """Mean length of the longest response of a prompt over the mean length."""
    cells: FloatArray
    """[stride]: share of the responses that still run in the stride of this age."""
    group_cells: FloatArray
    """[stride]: share of the groups of which one still runs."""

    @staticmethod
    def of(points: FloatArray, mass: FloatArray, group: int) -> "Lengths":
        """Moments and survival of the lengths `points` [point] with probabilities `mass`."""
        mean = float(points @ mass)
        together = of_longest(mass, group)
        stride = mean / STRIDES
        edges = np.arange(int(np.ceil(points[-1] / stride - 1e-9)) + 1, dtype=np.float64) * stride
        alone, last = Survival.of(points, mass), Survival.of(points, together)
        return Lengths(
            mean_tokens=mean,
            age_tokens=float(points**2 @ mass) / (2.0 * mean),
            longest_of_group=float(points @ together) / mean,
            cells=_mean_alive(alone, edges),
            group_cells=_mean_alive(last, edges),
        )


def of_longest(mass: FloatArray, number: int) -> FloatArray:
    """Probabilities [point] of the longest of so many draws, from those of one."""
    below = np.minimum(np.cumsum(mass), 1.0)
    return np.diff(np.append(0.0, below**number))


def _mean_alive(survival: Survival, edges: FloatArray) -> FloatArray:
    """Mean share of the sequences that run, between neighbouring edges."""
    reached = np.interp(edges, survival.points, survival.integral)
    return np.asarray(np.diff(reached) / (edges[1] - edges[0]), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Flow:
    """The flow while a batch finishes [row, cell]: equal parts of the batch."""

    steps: FloatArray
    """Decode steps in which the part finishes."""
    in_flight: FloatArray
    """Responses that run, over B; those that wait for an engine or their group are left out."""
    age_tokens: FloatArray
    """Mean tokens that these have generated."""


@dataclass(frozen=True, slots=True)
class FollowedFlow:
    """Flows for several numbers of responses that engines run at once, to interpolate."""

    lengths: Lengths
    capacities: FloatArray
    """[k]: responses at once over B, rising: from engines that are always full."""
    flow: Flow
    """[k, cell]"""

    def at(self, capacity: FloatArray) -> Flow:
        """The flow [row] where engines run `capacity` [row] responses at once, over B."""
        known = self.capacities
        inside = np.clip(capacity, known[0], known[-1])
        high = np.clip(np.searchsorted(known, inside), 1, len(known) - 1)
        part = ((inside - known[high - 1]) / (known[high] - known[high - 1]))[:, None]

        def between(table: FloatArray) -> FloatArray:
            found = table[high - 1] + part * (table[high] - table[high - 1])
            return np.asarray(found, dtype=np.float64)

        # Tokens are interpolated, not numbers: so a batch has all of its own at every capacity.
        flow = self.flow
        steps, tokens = between(flow.steps), between(flow.steps * flow.in_flight)
        ages = between(flow.steps * flow.in_flight * flow.age_tokens)
        number, age = tokens / np.maximum(steps, 1e-12), ages / np.maximum(tokens, 1e-12)
        # Below all of them engines are full: half as many at once take twice the steps.
        fewer = np.minimum(capacity / known[0], 1.0)[:, None]
        return Flow(steps / fewer, number * fewer, age)


@lru_cache(maxsize=64)
def followed_flow(
    points: tuple[float, ...], mass: tuple[float, ...], *, group: int, most: float, least: float
) -> FollowedFlow:
    """Follow a flow whose responses in flight are bounded by `most`, falling to `least`, over B.

    Args:
        points: Lengths, in tokens, rising.
        mass: Their probabilities.
        group: Responses of a prompt, which are trained on together.
        most: Responses in flight that are admitted when a batch begins to fill.
        least: Those admitted when it is full; above 0.
    """
    lengths = Lengths.of(np.array(points), np.array(mass), group)
    full = least / lengths.longest_of_group
    # Beyond `most` no engine is ever asked to run.
    capacities = np.geomspace(full, most, CAPACITIES)
    steps, number, age = _follow(lengths, capacities, most=most, least=least)
    # Of the first the closed form is known: always full.
    steps[0] = lengths.mean_tokens / full / CELLS
    number[0], age[0] = full, lengths.age_tokens
    # No engine runs more than it holds, and more at once never slows the flow in steps of a batch:
    # what says so is a stride's rounding.
    total = np.maximum(steps.sum(axis=1), lengths.mean_tokens / capacities)
    total = np.minimum.accumulate(total)
    steps *= (total / steps.sum(axis=1))[:, None]
    # Every token of the batch is decoded, whatever the strides say.
    number *= (lengths.mean_tokens / (steps * number).sum(axis=1))[:, None]
    return FollowedFlow(lengths, capacities, Flow(steps, number, age))


def _follow(
    lengths: Lengths, capacities: FloatArray, *, most: float, least: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(steps, in flight, age) [capacity, cell] of a batch, once the flow repeats itself.

    Stride after stride every response that runs proceeds; those that end are counted with their
    group, and new ones start while engine and admission have room.
    """
    rows, count = len(capacities), len(lengths.cells)
    alive, waiting = lengths.cells, lengths.group_cells
    started = np.zeros((rows, count))  # [row, age]: responses that started so many strides ago
    stride = lengths.mean_tokens / STRIDES
    done, batches = np.zeros(rows), np.zeros(rows, dtype=np.int64)
    sums = np.zeros((3, rows, CELLS))
    warm, measured = PERIODS
    ages = (np.arange(count) + 0.5) * stride
    while not (batches >= warm + measured).all():
        before = started @ waiting
        started[:, 1:] = started[:, :-1].copy()
        started[:, 0] = 0.0
        running, flying = started @ alive, started @ waiting
        ended = before - flying
        done = done + ended
        turn = done >= 1.0
        done, batches = np.where(turn, done - 1.0, done), batches + turn
        allowed = most - (most - least) * done
        room = np.minimum(capacities - running, allowed - flying)
        # One that starts runs, and is in flight, for the whole first stride but for those that end.
        started[:, 0] = np.maximum(room, 0.0) / alive[0]
        running = running + started[:, 0] * alive[0]
        counts = (batches >= warm) & (batches < warm + measured)
        cell = np.minimum((done * CELLS).astype(np.int64), CELLS - 1)
        each = np.arange(rows)
        sums[0, each, cell] += np.where(counts, stride, 0.0)
        sums[1, each, cell] += np.where(counts, stride * running, 0.0)
        sums[2, each, cell] += np.where(counts, stride * (started * alive) @ ages, 0.0)
    steps, number, tokens = sums
    return (
        steps / measured,
        number / np.maximum(steps, 1e-12),
        tokens / np.maximum(number, 1e-12),
    )
