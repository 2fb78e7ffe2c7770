"""Fit constants by their priors and the rows, and tell how they generalise; the fits share it.

Every constant is log-normal around a value that physics or a paper gives. Constants of one block
(a stack's share of the same rate, say) also share a level: each is the level times a deviation, so
one that few rows speak for stays at what the others have. There are no bounds. What is sought is
the maximum a posteriori: ridge in logarithms, with a loss that grows linearly for large errors, and
with the square root of a group's rows as its weight.

A constant stays free only if that lowers the errors of rows whose group had no part in the fit;
otherwise it is held at its block's level, or at its prior.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray

NOISE = 0.05
"""|ln| by which rows are off for no reason that a constant could have."""
HOPELESS = 0.6
"""|ln| from which on a row has another cause and pulls no constant."""
HELD_WIDTH = 1e-4
STEPS = 15
DIFFERENCE = 1e-4
GAIN = 2e-4
"""Least drop of the left-out error for which a constant is freed."""


@dataclass(frozen=True)
class Prior:
    """What is known of a constant before any row."""

    name: str
    value: float
    width: float
    """Standard deviation of ln(constant ÷ (value × level))."""
    block: str = ""
    level_width: float = 0.0
    """Standard deviation of ln(level of the block); 0 without a block."""


@dataclass(frozen=True)
class Problem:
    """Rows as functions of constants."""

    priors: tuple[Prior, ...]
    errors: Callable[[FloatArray], FloatArray]
    """[constant] → [row] ln(predicted ÷ measured)."""
    slopes: Callable[[FloatArray], FloatArray]
    """[constant] → [row, constant] of the errors by the constants' logarithms."""
    groups: tuple[str, ...]
    """[row] the group whose rows count together."""

    @property
    def centre(self) -> FloatArray:
        return np.log([prior.value for prior in self.priors])

    def weights(self, kept: FloatArray) -> FloatArray:
        _, numbers = np.unique(self.groups, return_inverse=True)
        counts = np.bincount(numbers, kept)
        return np.asarray(kept / np.sqrt(np.maximum(counts, 1.0))[numbers])


@dataclass(frozen=True)
class Posterior:
    """The maximum, and the uncertainty around it."""

    logs: FloatArray
    deviations: FloatArray
    rows: FloatArray
    """[constant] rows that it moves by a tenth of its own change or more."""

    @property
    def values(self) -> FloatArray:
        return np.exp(self.logs)


def precision_of(priors: Sequence[Prior], free: Iterable[int]) -> FloatArray:
    """Inverse of the priors' covariance; constants that are not free have no deviation."""
    chosen = set(free)
    widths = [p.width if i in chosen else HELD_WIDTH for i, p in enumerate(priors)]
    covariance = np.diag(np.square(widths))
    for i, one in enumerate(priors):
        for j, other in enumerate(priors):
            if one.block and one.block == other.block:
                covariance[i, j] += one.level_width * other.level_width
    return np.asarray(np.linalg.inv(covariance))


def solve(
    problem: Problem, kept: FloatArray, free: Iterable[int], start: FloatArray | None = None
) -> Posterior:
    """The maximum a posteriori on the rows kept [row, 0 or 1]; `start`: logarithms near it."""
    precision, centre = precision_of(problem.priors, free), problem.centre
    weights = problem.weights(kept)
    logs = centre.copy() if start is None else start.copy()

    def loss(at: FloatArray) -> float:
        errors = np.minimum(np.abs(problem.errors(np.exp(at))), HOPELESS)
        rows = NOISE**2 * (np.sqrt(1.0 + np.square(errors / NOISE)) - 1.0)
        away = at - centre
        return float(weights @ rows / NOISE**2 + away @ precision @ away / 2.0)

    now = loss(logs)
    for _ in range(STEPS):
        errors = problem.errors(np.exp(logs))
        slope = problem.slopes(np.exp(logs))
        pull = weights * (np.abs(errors) < HOPELESS) / np.sqrt(1.0 + np.square(errors / NOISE))
        curvature = (slope.T * pull) @ slope / NOISE**2 + precision
        gradient = slope.T @ (pull * errors) / NOISE**2 + precision @ (logs - centre)
        step = np.linalg.solve(curvature, gradient)
        scale = next((s for s in (1.0, 0.5, 0.2, 0.05) if loss(logs - s * step) < now), 0.0)
        then = loss(logs - scale * step)
        logs = logs - scale * step
        if now - then < 1e-4:
            break
        now = then
    slope = problem.slopes(np.exp(logs))
    curvature = (slope.T * weights) @ slope / NOISE**2 + precision
    moved = (np.abs(slope) > 0.1) * kept[:, None]
    return Posterior(logs, np.sqrt(np.diag(np.linalg.inv(curvature))), moved.sum(axis=0))


def numerical_slopes(
    errors: Callable[[FloatArray], FloatArray],
) -> Callable[[FloatArray], FloatArray]:
    """Slopes by differences, of errors that are cheap to tell."""

    def slopes(values: FloatArray) -> FloatArray:
        here, columns = errors(values), []
        for place in range(len(values)):
            there = values.copy()
            there[place] *= np.exp(DIFFERENCE)
            columns.append((errors(there) - here) / DIFFERENCE)
        return np.stack(columns, axis=1)

    return slopes


def left_out(problem: Problem, groups: Sequence[str], free: Iterable[int]) -> FloatArray:
    """[row] ln(predicted ÷ measured) by constants fitted without the row's group."""
    names, free = np.array(groups), tuple(free)
    found = np.zeros(len(names))
    whole = solve(problem, np.ones(len(names)), free).logs
    for group in sorted(set(groups)):
        own = names == group
        values = solve(problem, np.where(own, 0.0, 1.0), free, whole).values
        found[own] = problem.errors(values)[own]
    return found


def score(errors: FloatArray, groups: Sequence[str]) -> float:
    """Mean over rows and mean over groups of the absolute errors, in equal parts."""
    size = np.minimum(np.abs(errors), HOPELESS)
    names = np.array(groups)
    means = [size[names == group].mean() for group in sorted(set(groups))]
    return float(size.mean() + np.mean(means)) / 2.0


def choose(problem: Problem, schemes: Mapping[str, Sequence[str]]) -> tuple[int, ...]:
    """The constants that lower the left-out error, averaged over ways to leave rows out."""

    def reached(free: tuple[int, ...]) -> float:
        every = [score(left_out(problem, g, free), problem.groups) for g in schemes.values()]
        return float(np.mean(every))

    every = tuple(range(len(problem.priors)))
    best = reached(every)
    alone = {one: reached(tuple(i for i in every if i != one)) for one in every}
    free = every
    # The ones whose freedom does least first, as long as holding them does no harm.
    for one in sorted(every, key=lambda one: alone[one]):
        rest = tuple(i for i in free if i != one)
        if (without := reached(rest)) <= best + GAIN:
            free, best = rest, min(best, without)
    return free


def tell_constants(
    problem: Problem, found: Posterior, free: Iterable[int], shipped: Sequence[float]
) -> None:
    """Print prior, posterior, and the rows behind each constant."""
    chosen = set(free)
    heads = f"{'prior':>9s} {'x/÷':>5s} {'posterior':>10s} {'x/÷':>5s} rows  shipped"
    print(f"{'constant':46s} {heads}")
    for place, prior in enumerate(problem.priors):
        width = (prior.width**2 + prior.level_width**2) ** 0.5
        print(
            f"{prior.name:46s} {prior.value:9.3g} {np.exp(width):5.2f} "
            f"{found.values[place]:10.3g} {np.exp(found.deviations[place]):5.2f} "
            f"{int(found.rows[place]):4d}  {shipped[place]:.3g}"
            + ("" if place in chosen else "  held")
        )


def tell(name: str, errors: FloatArray, groups: Sequence[str]) -> None:
    """Print means over rows and over groups."""
    if not len(errors):
        return
    relative = np.expm1(errors)
    names = np.array(groups)
    means = [np.abs(relative[names == group]).mean() for group in sorted(set(groups))]
    print(
        f"{name:52s} {len(errors):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
        f"mean {np.abs(relative).mean():6.1%}  bias {relative.mean():+7.1%}  "
        f"{len(means):2d} groups  mean {np.mean(means):6.1%}",
        flush=True,
    )
