"""Fit the constants of training's cost on measured training runs, and say how they generalise.

    python -m benchmarks.fit_training TRAINING.csv

The table is one of `automap validate`; rows of quality A and B count. Two
fits, one after the other:

1. Dense 16-bit rows on Ampere and Hopper: up to three constants per software stack
   (planner/cost/stacks.py), and of the generations (planner/cost/gpu_generations.py) the sustained
   share of both and Hopper's attention.
2. Rows in 8 bits, of mixtures of experts, and on Blackwell, with those constants held: the other
   constants of the generations, and the host's time per expert operand.

Least mean |log(predicted ÷ measured)|, each source with the square root of its rows as weight. A
step is nearly a sum of parts that one constant each scales, so what is minimised is its
linearisation, renewed until it stays. Printed, from predictions in full:

- fitted: errors on the rows of the fits, and on Volta, of which they saw none;
- left out: errors on every row when its group had no part in the fit, which starts from neutral
  values each time. A group is a source; where a stack has one source, a model on a GPU type; a
  stack with one group alone has no such errors.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automap.planner.catalogue import gpu_type
from automap.planner.cost import constants
from automap.planner.cost.gpu_generations import GENERATIONS
from automap.planner.cost.stacks import STACKS
from automap.planner.layout import FloatArray
from automap.planner.spec import TrainingStack
from automap.planner.validation.frameworks import framework_of
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import TrainingRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.training import predict_training
from automap.planner.validation.validate import subset_of

BOUNDS = {
    "attention_share": (0.3, 2.5),
    "elementwise_passes": (0.7, 5.0),
    "collective_slowdown": (0.5, 2.0),
    "sustained_share": (0.75, 1.25),
    "eight_bit_gain": (0.8, 1.4),
    "EXPERT_OPERAND_HOST_SECONDS": (5e-6, 300e-6),
}
"""Between what physics allows: a product is hardly faster than the measured one, fused elementwise
kernels move each byte once, five times is every kernel on its own."""
STACK_BOUNDS = {"attention_share": (0.3, 1.0)}
"""No training software has a faster attention than the engines whose kernels the tables hold."""
HELD = frozenset({("megatron-2021", "collective_slowdown")})
"""Of a stack and not fitted. Its two sources would have 0.9 and 1.3, and each one's value makes the
other's errors worse than 1, collectives as they are in isolation, does."""
NEUTRAL = {"EXPERT_OPERAND_HOST_SECONDS": 50e-6}
"""Where a fit starts that must not remember; 1 unless named."""
SECONDS_GROW_WITH = ("elementwise_passes", "collective_slowdown", "EXPERT_OPERAND_HOST_SECONDS")
"""Seconds are proportional to these, and inversely to the others."""
PER_STACK = ("attention_share", "elementwise_passes", "collective_slowdown")
DIFFERENCE = 1.05
STEPS = (0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, 1.25)
SWEEPS = 100
HOPELESS = 0.5
KINK = 0.01
ROUNDS = 4


@dataclass(frozen=True)
class Constant:
    """One number of a fit: of stacks, of GPU generations, or of automap.planner.cost.constants."""

    owners: tuple[str, ...]
    name: str

    def get(self) -> float:
        return float(getattr(_owner(self.owners[0]), self.name))

    def put(self, value: float) -> None:
        for owner in self.owners:
            if owner in STACKS:
                STACKS[owner] = replace(STACKS[owner], **{self.name: value})  # type: ignore[index]
            elif owner in GENERATIONS:
                GENERATIONS[owner] = replace(GENERATIONS[owner], **{self.name: value})
            else:
                setattr(constants, self.name, value)

    @property
    def bounds(self) -> tuple[float, float]:
        return (STACK_BOUNDS if self.owners[0] in STACKS else {}).get(self.name, BOUNDS[self.name])

    def unit(self, value: float) -> float:
        """What seconds are proportional to."""
        return value if self.name in SECONDS_GROW_WITH else 1.0 / value

    @property
    def neutral(self) -> float:
        return NEUTRAL.get(self.name, 1.0)

    def concerns(self, row: TrainingRow) -> bool:
        own = (stack_name(row), generation(row), "constants")
        return any(owner in own for owner in self.owners)


def _owner(name: str) -> object:
    return STACKS.get(name) or GENERATIONS.get(name) or constants  # type: ignore[call-overload]


FIRST = (
    Constant(("volta", "ampere", "ada", "none", "hopper"), "sustained_share"),
    Constant(("hopper",), "attention_share"),
)
"""Beside those of `PER_STACK`, of the stacks that have rows."""
SECOND = (
    Constant(("hopper",), "eight_bit_gain"),
    *(
        Constant((name,), share)
        for name in ("blackwell", "blackwell-ultra")
        for share in ("sustained_share", "attention_share")
    ),
    Constant(("constants",), "EXPERT_OPERAND_HOST_SECONDS"),
)


def stack_name(row: TrainingRow) -> TrainingStack:
    return framework_of(row.source).training_stack


def generation(row: TrainingRow) -> str:
    return gpu_type(row.gpu_type).generation


def log_ratio(row: TrainingRow) -> float | None:
    """ln(predicted ÷ measured) of a step; None where there is no prediction."""
    try:
        found = predict_training(row, Assumptions())["iteration_seconds"]
    except CannotPredictError:
        return None
    if not isinstance(found, Estimate) or row.iteration_seconds is None:
        return None
    return math.log(found.value / row.iteration_seconds)


def ratios(rows: Iterable[TrainingRow]) -> FloatArray:
    return np.array([ratio for row in rows if (ratio := log_ratio(row)) is not None])


@dataclass(frozen=True)
class Linearised:
    """Predicted ÷ measured of rows around some values of the constants."""

    numbers: tuple[Constant, ...]
    around: FloatArray
    """[constant], as units."""
    ratio: FloatArray
    """[row]"""
    slope: FloatArray
    """[row, constant]: of the ratio by the unit."""
    weights: FloatArray

    @classmethod
    def of(cls, rows: list[TrainingRow], numbers: tuple[Constant, ...]) -> "Linearised":
        counts = {row.source: sum(other.source == row.source for other in rows) for row in rows}
        weights = np.array([counts[row.source] ** -0.5 for row in rows])
        base = np.exp(ratios(rows))
        slope = np.zeros((len(rows), len(numbers)))
        for place, number in enumerate(numbers):
            own = [i for i, row in enumerate(rows) if number.concerns(row)]
            value = number.get()
            number.put(value * DIFFERENCE)
            there = np.exp(ratios(rows[i] for i in own))
            number.put(value)
            moved = number.unit(value * DIFFERENCE) - number.unit(value)
            slope[own, place] = (there - base[own]) / moved
        around = np.array([number.unit(number.get()) for number in numbers])
        return cls(numbers, around, base, slope, weights / weights.sum())

    def loss(self, values: list[float], kept: FloatArray) -> float:
        """Weighted mean |log ratio| of the rows kept [row, 0 or 1], rounded at its kink.

        What is further off than `HOPELESS` has another cause, and pulls no constant.
        """
        units = np.array([n.unit(v) for n, v in zip(self.numbers, values, strict=True)])
        ratio = np.maximum(self.ratio + self.slope @ (units - self.around), 0.05)
        weights = self.weights * kept
        errors = np.minimum(np.hypot(np.log(ratio), KINK), HOPELESS)
        return float(weights @ errors / weights.sum())

    def best(self, start: list[float], kept: FloatArray, free: Iterable[int]) -> list[float]:
        """Coordinate descent on the free constants within their bounds."""
        values, least, places = list(start), self.loss(start, kept), list(free)
        for _ in range(SWEEPS):
            before = least
            for place, step in ((p, s) for p in places for s in STEPS):
                low, high = self.numbers[place].bounds
                trial = list(values)
                trial[place] = min(max(values[place] * step, low), high)
                if (loss := self.loss(trial, kept)) < least - 1e-7:
                    values, least = trial, loss
            if before - least < 1e-6:
                break
        return values


def fit(rows: list[TrainingRow], numbers: tuple[Constant, ...]) -> Linearised:
    """Leave the constants at the best found; the linearisation there."""
    everything = range(len(numbers))
    best, least = [number.get() for number in numbers], math.inf
    for _ in range(ROUNDS):
        found = Linearised.of(rows, numbers)
        now = [number.get() for number in numbers]
        reached = found.loss(now, np.ones(len(rows)))
        if reached > least - 1e-5:
            break
        best, least = now, reached
        put(numbers, found.best(now, np.ones(len(rows)), everything))
    put(numbers, best)
    return Linearised.of(rows, numbers)


def put(numbers: Iterable[Constant], values: Iterable[float]) -> None:
    for number, value in zip(numbers, values, strict=True):
        number.put(value)


def left_out(
    rows: list[TrainingRow], found: Linearised, stack: TrainingStack | None = None
) -> dict[str, float]:
    """Errors of the rows (of a stack) by id, each predicted from a fit without its group."""
    own = [row for row in rows if stack in (None, stack_name(row))]
    sources = {name: {row.source for row in own if stack_name(row) == name} for name in STACKS}

    def group(row: TrainingRow) -> object:
        several = len(sources[stack_name(row)]) > 1
        return row.source if several else (row.source, row.model, row.gpu_type)

    fitted, errors = [number.get() for number in found.numbers], dict[str, float]()
    free = [i for i, number in enumerate(found.numbers) if stack is None or stack in number.owners]
    groups = sorted({group(row) for row in own}, key=str)
    for one in groups if len(groups) > 1 else ():
        # From the fitted constants, those that the rest leaves open would remember the group.
        start = [n.neutral if i in free else v for i, (n, v) in enumerate(_pairs(found, fitted))]
        kept = np.array([float(row in own and group(row) != one) for row in rows])
        put(found.numbers, found.best(start, kept, free))
        left = [row for row in own if group(row) == one]
        errors |= dict(zip((row.row_id for row in left), ratios(left), strict=True))
        put(found.numbers, fitted)
    return errors


def _pairs(found: Linearised, values: list[float]) -> list[tuple[Constant, float]]:
    return list(zip(found.numbers, values, strict=True))


def tell(name: str, errors: Iterable[float]) -> None:
    relative = np.exp(np.array(list(errors))) - 1.0
    if not len(relative):
        return
    print(
        f"{name:52s} {len(relative):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
        f"mean {np.mean(np.abs(relative)):6.1%}  bias {np.mean(relative):+7.1%}",
        flush=True,
    )


def compare(name: str, rows: list[TrainingRow], apart: dict[str, float]) -> None:
    """Errors of rows of the fit beside those of a fit without their group."""
    inside, outside = ratios(rows), np.array([apart[row.row_id] for row in rows if apart])
    tell(f"{name}, fitted", inside)
    tell(f"{name}, left out", outside)
    if len(outside):
        shares = (np.mean(np.abs(np.expm1(errors))) for errors in (outside, inside))
        print(f"{name}, left out ÷ fitted, of the means: {next(shares) / next(shares):.2f}")


def tell_constants(numbers: Iterable[Constant]) -> None:
    for number in numbers:
        print(f"  {', '.join(number.owners):40s} {number.name:28s} {number.get():.3g}")


def dense_16_bit(rows: list[TrainingRow]) -> None:
    """The first fit: the stacks."""

    def of(test: Callable[[str], bool]) -> list[TrainingRow]:
        return [row for row in rows if subset_of(row) == "dense, 16-bit" and test(generation(row))]

    inside = of(("ampere", "hopper").__contains__)
    tell("dense, 16-bit, as shipped", ratios(inside))
    present = {stack_name(row) for row in inside}
    stacks = [stack for stack in STACKS if stack in present]
    pairs = ((stack, name) for stack in stacks for name in PER_STACK)
    own = (Constant((stack,), name) for stack, name in pairs if (stack, name) not in HELD)
    found = fit(inside, (*own, *FIRST))
    tell_constants(found.numbers)
    tell("dense, 16-bit, fitted", ratios(inside))
    tell("unseen generation: volta", ratios(of("volta".__eq__)))
    for stack in stacks:
        compare(
            stack,
            [row for row in inside if stack_name(row) == stack],
            left_out(inside, found, stack),
        )
    compare("all stacks", inside, left_out(inside, found))


def eight_bit_and_experts(rows: list[TrainingRow]) -> None:
    """The second fit: the generations and the experts' host time."""
    inside = [
        row
        for row in rows
        if subset_of(row) != "dense, 16-bit" or generation(row).startswith("blackwell")
    ]
    tell("8-bit, experts and Blackwell, as shipped", ratios(inside))
    found = fit(inside, SECOND)
    tell_constants(SECOND)
    apart = left_out(inside, found)
    for name, test in PARTS.items():
        own = [row for row in inside if test(row)]
        compare(name, own, apart)


PARTS: dict[str, Callable[[TrainingRow], bool]] = {
    "8-bit or experts": lambda row: subset_of(row) != "dense, 16-bit",
    "dense, 16-bit, Blackwell": lambda row: subset_of(row) == "dense, 16-bit",
    "dense, 8-bit, Hopper": lambda row: not row.num_experts and generation(row) == "hopper",
    "dense, 8-bit, Blackwell": lambda row: (
        subset_of(row) == "dense, 8-bit" and generation(row).startswith("blackwell")
    ),
    "experts, 16-bit": lambda row: subset_of(row) == "experts, 16-bit",
    "experts, 8-bit": lambda row: subset_of(row) == "experts, 8-bit",
}


def main() -> None:
    rows = [
        row
        for row in parse_table(Path(sys.argv[1]).read_text(encoding="utf-8")).rows
        if isinstance(row, TrainingRow) and row.quality in ("A", "B") and log_ratio(row) is not None
    ]
    dense_16_bit(rows)
    eight_bit_and_experts(rows)


if __name__ == "__main__":
    main()
