"""Fit the constants of training's cost on measured training runs, and say how they generalise.

    python -m benchmarks.fit_training TRAINING.csv

The table is one of `automap validate`; rows of quality A and B count that contradict neither
physics nor one another. One fit of all steps (`benchmarks.hierarchical`): three constants per
software stack (planner/cost/stacks.py), those of the GPU generations
(planner/cost/gpu_generations.py), and the host's time per expert operand.

A step is nearly a sum of parts that one constant each scales, so what is minimised is its
linearisation, renewed where the first fit ends; errors left out are its, the others are of
predictions in full. Printed: prior,
posterior and rows behind every constant, errors on the rows of the fit, and on every row when its
group had no part in it. Groups are, each by itself: projects; GPU generations within a stack;
models on all their GPUs; dense or mixture within a stack; and the newest year by the older ones.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automap.planner.catalogue import gpu_type
from automap.planner.cost import constants
from automap.planner.cost.gpu_generations import GENERATIONS
from automap.planner.cost.stacks import STACKS
from automap.planner.layout import FloatArray
from automap.planner.spec import TrainingStack
from automap.planner.validation.groups import project_of
from automap.planner.validation.physics import sound_rows
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import TrainingRow
from automap.planner.validation.subjects import framework_of_row
from automap.planner.validation.table import parse_table
from automap.planner.validation.training import predict_training
from automap.planner.validation.validate import subset_of
from benchmarks import hierarchical
from benchmarks.hierarchical import Posterior, Prior, Problem, tell

SECONDS_GROW_WITH = ("elementwise_passes", "collective_slowdown", "EXPERT_OPERAND_HOST_SECONDS")
"""Seconds are proportional to these, and inversely to the others."""
KERNEL, PASSES, COLLECTIVES, HOST = 0.15, math.log(1.3), math.log(1.25), math.log(2.5)
"""Widths of priors: a kernel's rate, passes over memory, collectives, microseconds of a host."""
CLOCKS = 0.05
"""Width of what clocks lose under load."""
STACK_PRIORS: dict[TrainingStack, tuple[float, float]] = {
    # cuDNN's and FlashAttention-3's kernels, nearly those of the tables.
    "megatron-core": (0.9, 1.0),
    # FlashAttention-2 (arXiv:2307.08691): backward at 0.8 of the forward's share of the peak.
    "fsdp": (0.7, 1.0),
    # Triton's kernels take 1.3 to 1.5 times as long as FlashAttention-2's (same paper).
    "fsdp-eager": (0.5, 1.0),
    # Products and the traffic of scores, by fused softmax kernels; bias, dropout and sums are fused
    # (Narayanan et al. 2021, arXiv:2104.04473, section 4.2).
    "megatron-2021": (0.8, 1.0),
    "megatron-deepspeed": (0.8, 1.0),
}
"""Stack → attention's share, and passes of its elementwise kernels: fused, or one by one."""
SAME_KERNELS: dict[TrainingStack, tuple[TrainingStack, ...]] = {"megatron-2021": ("megatron-2022",)}
"""Stack → those that have its constants."""
GENERATION_PRIORS = (
    (("volta", "ampere", "ada", "none", "hopper"), "sustained_share", 0.94, CLOCKS),
    # arXiv:2407.08608: FlashAttention-2 reaches 35 % of an H100's peak, kernels made for it 75 %.
    (("hopper",), "attention_share", 0.7, KERNEL),
    # TensorRT-LLM's kernels: their efficiency in 8 bits over that in 16, without the cast.
    (
        ("ada", "cdna3", "cdna4", "hopper", "blackwell", "blackwell-ultra"),
        "eight_bit_gain",
        0.93,
        CLOCKS,
    ),
    (("blackwell",), "sustained_share", 0.94, CLOCKS),
    (("blackwell",), "attention_share", 0.85, KERNEL),
    # A tenth to a sixth more power than Blackwell's, and twice the exponentials.
    (("blackwell-ultra",), "sustained_share", 1.06, 0.1),
    (("blackwell-ultra",), "attention_share", 1.1, KERNEL),
)
STEP = 1.05
ROUNDS = 2
LEAST_RATIO = 0.05


@dataclass(frozen=True)
class Constant:
    """One number of a fit: of stacks, of GPU generations, or of automap.planner.cost.constants."""

    owners: tuple[str, ...]
    name: str
    prior: Prior

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

    def unit(self, value: float) -> float:
        """What seconds are proportional to."""
        return value if self.name in SECONDS_GROW_WITH else 1.0 / value

    def concerns(self, row: TrainingRow) -> bool:
        own = (stack_name(row), generation(row), "constants")
        return any(owner in own for owner in self.owners)


def _owner(name: str) -> object:
    return STACKS.get(name) or GENERATIONS.get(name) or constants  # type: ignore[call-overload]


def all_constants() -> tuple[Constant, ...]:
    """Those of stacks share a level per name, so a stack with few rows has what the others have."""
    found = []
    for stack, (attention, passes) in STACK_PRIORS.items():
        for name, value, width in (
            ("attention_share", attention, KERNEL),
            ("elementwise_passes", passes, PASSES),
            ("collective_slowdown", 1.0, COLLECTIVES),
        ):
            # Half of what is not known of a constant is not known of all stacks.
            part = width / 2**0.5
            prior = Prior(f"{stack} {name}", value, part, name, part)
            found.append(Constant((stack, *SAME_KERNELS.get(stack, ())), name, prior))
    for owners, name, value, width in GENERATION_PRIORS:
        found.append(Constant(owners, name, Prior(f"{owners[-1]} {name}", value, width)))
    host = Prior("EXPERT_OPERAND_HOST_SECONDS", 50e-6, HOST)
    return (*found, Constant(("constants",), host.name, host))


def stack_name(row: TrainingRow) -> TrainingStack:
    return framework_of_row(row).training_stack


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
    return np.array([log_ratio(row) or 0.0 for row in rows])


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

    @classmethod
    def of(cls, rows: Sequence[TrainingRow], numbers: tuple[Constant, ...]) -> "Linearised":
        base = np.exp(ratios(rows))
        slope = np.zeros((len(rows), len(numbers)))
        for place, number in enumerate(numbers):
            own = [i for i, row in enumerate(rows) if number.concerns(row)]
            value = number.get()
            number.put(value * STEP)
            there = np.exp(ratios(rows[i] for i in own))
            number.put(value)
            moved = number.unit(value * STEP) - number.unit(value)
            slope[own, place] = (there - base[own]) / moved
        around = np.array([number.unit(number.get()) for number in numbers])
        return cls(numbers, around, base, slope)

    def errors(self, values: FloatArray) -> FloatArray:
        return np.log(np.maximum(self._ratios(self._units(values)), LEAST_RATIO))

    def slopes(self, values: FloatArray) -> FloatArray:
        units = self._units(values)
        signs = [1.0 if n.name in SECONDS_GROW_WITH else -1.0 for n in self.numbers]
        ratio = np.maximum(self._ratios(units), LEAST_RATIO)
        return np.asarray(self.slope * (units * signs) / ratio[:, None])

    def _units(self, values: FloatArray) -> FloatArray:
        return np.array([n.unit(v) for n, v in zip(self.numbers, values, strict=True)])

    def _ratios(self, units: FloatArray) -> FloatArray:
        return np.asarray(self.ratio + self.slope @ (units - self.around))


@dataclass(frozen=True)
class Fit:
    """The rows with all that was found of them."""

    rows: tuple[TrainingRow, ...]
    numbers: tuple[Constant, ...]
    free: tuple[int, ...]
    problem: Problem
    found: Posterior

    def priced(self, values: FloatArray) -> FloatArray:
        """Errors of the rows priced in full with these constants."""
        before = [number.get() for number in self.numbers]
        put(self.numbers, values)
        errors = ratios(self.rows)
        put(self.numbers, before)
        return errors

    def left_out(self, groups: Sequence[str]) -> FloatArray:
        return hierarchical.left_out(self.problem, groups, self.free)


def without_priors(problem: Problem) -> Problem:
    """The same rows with priors too wide to matter."""
    priors = tuple(replace(p, width=10.0 * p.width, level_width=0.0) for p in problem.priors)
    return replace(problem, priors=priors)


def put(numbers: Iterable[Constant], values: Iterable[float]) -> None:
    for number, value in zip(numbers, values, strict=True):
        number.put(float(value))


def usable_rows(path: str) -> tuple[TrainingRow, ...]:
    every = parse_table(Path(path).read_text(encoding="utf-8")).rows
    good = sound_rows([row for row in every if row.quality in ("A", "B")])
    return tuple(row for row in good if isinstance(row, TrainingRow) and log_ratio(row) is not None)


def schemes_of(rows: Sequence[TrainingRow]) -> dict[str, list[str]]:
    """Ways to leave rows out together, each with the rows' groups."""
    newest = max(row.year or 0 for row in rows)
    return {
        "project": [project_of(row) for row in rows],
        "GPU generation within a stack": [f"{stack_name(r)} {generation(r)}" for r in rows],
        "model": [row.model for row in rows],
        "dense or mixture within a stack": [
            f"{stack_name(r)} {subset_of(r).split(',')[0]}" for r in rows
        ],
        "newest year": [
            "newest" if row.year == newest else f"older {project_of(row)}" for row in rows
        ],
    }


CHOSEN_BY = ("project", "GPU generation within a stack", "model")


def fit(rows: tuple[TrainingRow, ...]) -> Fit:
    """The constants at the maximum; leaves the shipped ones as they were."""
    numbers = all_constants()
    shipped = [number.get() for number in numbers]
    priors, schemes = tuple(n.prior for n in numbers), schemes_of(rows)
    free: tuple[int, ...] = ()
    for turn in range(ROUNDS):
        near = Linearised.of(rows, numbers)
        problem = Problem(priors, near.errors, near.slopes, tuple(schemes["project"]))
        if turn == 0:
            free = hierarchical.choose(problem, {name: schemes[name] for name in CHOSEN_BY})
        found = hierarchical.solve(problem, np.ones(len(rows)), free)
        put(numbers, found.values)
    put(numbers, shipped)
    return Fit(rows, numbers, free, problem, found)


def main() -> None:
    rows = usable_rows(sys.argv[1])
    done = fit(rows)
    hierarchical.tell_constants(
        done.problem, done.found, done.free, [number.get() for number in done.numbers]
    )
    subsets = np.array([subset_of(row) for row in rows])
    projects = np.array(done.problem.groups)
    errors = {"as shipped": ratios(rows), "fitted": done.priced(done.found.values)}
    errors["priors alone"] = done.priced(np.exp(done.problem.centre))
    errors["without priors, left out: project"] = hierarchical.left_out(
        without_priors(done.problem), schemes_of(rows)["project"], range(len(done.numbers))
    )
    for name, groups in schemes_of(rows).items():
        errors[f"left out: {name}"] = done.left_out(groups)
    for subset in sorted(set(subsets)):
        own = subsets == subset
        print(subset)
        for name, found in errors.items():
            tell(f"  {name}", found[own], projects[own])


if __name__ == "__main__":
    main()
