"""Fit the constants of planner.cost.stacks on measured training runs, and say how they generalise.

    python -m benchmarks.fit_training TRAINING.csv

The table is one of `automap validate`. Fitted are dense 16-bit rows of quality A and B on Ampere
and Hopper: three constants per software stack and two that all share, by least mean
|log(predicted ÷ measured)|, each source with the square root of its rows as weight. Printed:

- fitted: errors on the rows of the fit, and on other GPU generations, of which the fit saw none;
- left out: errors on every row when its group had no part in the fit of its stack's constants,
  which starts from 1 each time. A group is a source where the stack has several, otherwise a model
  on a GPU type; a stack with one group alone has no such errors.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.catalogue import gpu_type
from planner.cost import constants
from planner.cost.stacks import STACKS
from planner.spec import TrainingStack
from planner.validation.frameworks import framework_of
from planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from planner.validation.rows import TrainingRow
from planner.validation.table import parse_table
from planner.validation.training import predict_training
from planner.validation.validate import subset_of

FITTED_GENERATIONS = ("ampere", "hopper")
SHARED = {"SUSTAINED_SHARE": (0.8, 1.0), "HOPPER_ATTENTION_SHARE": (0.45, 0.9)}
PER_STACK = {
    "attention_share": (0.3, 1.2),
    "elementwise_passes": (0.7, 5.0),
    "collective_slowdown": (0.5, 2.0),
}
"""Between what physics allows: no kernel is much faster than the measured one, fused elementwise
kernels move each byte once, five times is every kernel on its own."""
STEPS = (0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25)
SWEEPS = 3


@dataclass(frozen=True)
class Constant:
    """One number of the fit: of a stack, or shared by all."""

    stack: TrainingStack | None
    name: str

    @property
    def bounds(self) -> tuple[float, float]:
        return SHARED[self.name] if self.stack is None else PER_STACK[self.name]

    def get(self) -> float:
        owner = constants if self.stack is None else STACKS[self.stack]
        return float(getattr(owner, self.name))

    def put(self, value: float) -> None:
        if self.stack is None:
            setattr(constants, self.name, value)
        else:
            STACKS[self.stack] = replace(STACKS[self.stack], **{self.name: value})


def stack_name(row: TrainingRow) -> TrainingStack:
    return framework_of(row.source).training_stack


def log_ratio(row: TrainingRow) -> float | None:
    """ln(predicted ÷ measured) of a step; None where there is no prediction."""
    try:
        found = predict_training(row, Assumptions())["iteration_seconds"]
    except CannotPredictError:
        return None
    if not isinstance(found, Estimate) or row.iteration_seconds is None:
        return None
    return math.log(found.value / row.iteration_seconds)


def ratios(rows: Iterable[TrainingRow]) -> np.ndarray:
    return np.array([ratio for row in rows if (ratio := log_ratio(row)) is not None])


def fit(rows: list[TrainingRow], numbers: list[Constant]) -> None:
    """Coordinate descent from the constants as they are; leaves them at the best found."""
    counts = {row.source: sum(other.source == row.source for other in rows) for row in rows}
    weights = np.array([counts[row.source] ** -0.5 for row in rows])
    weights /= weights.sum()
    errors = ratios(rows)
    best = float(weights @ np.abs(errors))
    for _ in range(SWEEPS):
        before = best
        for number in numbers:
            own = [i for i, row in enumerate(rows) if number.stack in (None, stack_name(row))]
            best, errors = _descend(number, rows, own, weights, errors, best)
        if before - best < 1e-4:
            return


def _descend(
    number: Constant,
    rows: list[TrainingRow],
    own: list[int],
    weights: np.ndarray,
    errors: np.ndarray,
    best: float,
) -> tuple[float, np.ndarray]:
    """Move one constant by the first step that helps, until none does."""
    moved = bool(own)
    while moved:
        moved, start = False, number.get()
        for step in STEPS:
            value = min(max(start * step, number.bounds[0]), number.bounds[1])
            if value == start:
                continue
            number.put(value)
            trial = errors.copy()
            trial[own] = ratios(rows[i] for i in own)
            loss = float(weights @ np.abs(trial))
            if loss < best - 1e-6:
                best, errors, moved = loss, trial, True
                break
            number.put(start)
    return best, errors


def left_out(rows: list[TrainingRow], stack: TrainingStack) -> list[float]:
    """Errors of a stack's rows, each predicted with constants fitted without its group."""
    own = [row for row in rows if stack_name(row) == stack]
    several = len({row.source for row in own}) > 1

    def group(row: TrainingRow) -> object:
        return row.source if several else (row.model, row.gpu_type)

    numbers = [Constant(stack, name) for name in PER_STACK]
    kept, found = [number.get() for number in numbers], []
    groups = sorted({group(row) for row in own}, key=str)
    for one in groups if len(groups) > 1 else ():
        # From the fitted constants, those that the rest leaves open would remember the group.
        for number in numbers:
            number.put(1.0)
        fit([row for row in own if group(row) != one], numbers)
        found += list(ratios(row for row in own if group(row) == one))
        for number, value in zip(numbers, kept, strict=True):
            number.put(value)
    return found


def tell(name: str, errors: Iterable[float]) -> None:
    relative = np.exp(np.array(list(errors))) - 1.0
    if not len(relative):
        return
    print(
        f"{name:44s} {len(relative):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
        f"mean {np.mean(np.abs(relative)):6.1%}  bias {np.mean(relative):+7.1%}"
    )


def usable(row: TrainingRow) -> bool:
    dense = subset_of(row) == "dense, 16-bit"
    return dense and row.quality in ("A", "B") and log_ratio(row) is not None


def main() -> None:
    rows = [
        row
        for row in parse_table(Path(sys.argv[1]).read_text(encoding="utf-8")).rows
        if isinstance(row, TrainingRow) and usable(row)
    ]

    def of(test: Callable[[str], bool]) -> list[TrainingRow]:
        return [row for row in rows if test(gpu_type(row.gpu_type).generation)]

    inside = of(lambda generation: generation in FITTED_GENERATIONS)
    numbers = [Constant(None, name) for name in SHARED]
    numbers += [Constant(stack, name) for stack in STACKS for name in PER_STACK]
    tell("as shipped", ratios(inside))
    fit(inside, numbers)
    for number in numbers:
        print(f"  {number.stack or 'shared':20s} {number.name:24s} {number.get():.3f}")
    tell("fitted", ratios(inside))
    for generation in ("volta", "ada", "blackwell"):
        tell(f"unseen generation: {generation}", ratios(of(generation.__eq__)))
    everything: list[float] = []
    for stack in STACKS:
        found = left_out(inside, stack)
        everything += found
        tell(f"left out: {stack}", found)
    tell("left out: all", everything)


if __name__ == "__main__":
    main()
