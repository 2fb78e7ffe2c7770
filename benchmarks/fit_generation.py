"""Fit the engines' constants on measured generation runs, and say how they generalise.

    python -m benchmarks.fit_generation GENERATION.csv

The table is one of `automap validate`. Fitted are the decode steps of quality A and B that
contradict neither physics nor one another: four constants per engine of
automap.planner.cost.rollout_engines and one that all share (`benchmarks.hierarchical`), each model
on a GPU type with the square root of its rows as weight. Models that ship a module to draft tokens
with (multi-token prediction) take no part: tables do not say whether a run used it, which alone
makes a factor of two. Nor do runs with 4-bit weights, whose kernels no table has: what is wrong
with them is not the engine's. Printed: prior, posterior and rows behind every constant, errors on
the rows of the fit, and on every row when its group had no part in it. Groups are, each by itself:
models on all their GPUs; dense or mixture within an engine; GPU generations within an engine; and
the newest year by the older ones. Load strata are those of `automap validate`.

Prices are linear in all of these constants but one (a prefill takes its work or its launches,
whichever is more), so each row is priced once per constant and the fits themselves take seconds.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from automap.planner import catalogue
from automap.planner.cost import constants
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.layout import FloatArray, IntArray
from automap.planner.validation.generation import WITH_PROMPTS, may_draft, predict_generation
from automap.planner.validation.groups import load_stratum
from automap.planner.validation.physics import sound_rows
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import GenerationRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import subset_of
from benchmarks import hierarchical
from benchmarks.hierarchical import Posterior, Prior, Problem, tell

HOST = math.log(2.5)
PRIORS = {
    # Eight kernels of 2 µs in a CUDA graph.
    "layer_seconds": (16e-6, HOST),
    # Scheduler, block tables, sampling and detokenising, shared by few processes.
    "sequence_seconds": (4e-6, math.log(3.0)),
    "all_reduce_share": (0.7, math.log(1.25)),
    # Sixty launches of 5 µs.
    "prefill_layer_seconds": (0.3e-3, HOST),
}
"""Constant of an engine → its value by kernels and launches, and the width of ln."""
SHARED = "ENGINE_EXPERT_LAYER_SECONDS"
SHARED_PRIOR = Prior(SHARED, 30e-6, HOST)


@dataclass(frozen=True)
class Basis:
    """A row's decode step as a function of the constants."""

    row: GenerationRow
    fixed: float
    """Seconds without any of them."""
    slopes: np.ndarray
    """Seconds per unit of layer, sequence and all-reduce constants, and of the shared one."""
    prefill: float
    """Seconds of steps with prompts, were launching free."""
    launches: float
    """Seconds of the same per unit of prefill_layer_seconds, were the work free."""

    @property
    def group(self) -> str:
        return f"{self.row.model} on {self.row.gpu_type}"


def step_parts(row: GenerationRow, values: dict[str, float], shared: float) -> tuple[float, float]:
    """(steps without prompts and host, steps with prompts) of a row with these constants."""
    kept, kept_shared = ENGINES[row.engine], constants.ENGINE_EXPERT_LAYER_SECONDS
    ENGINES[row.engine] = replace(kept, **values)
    setattr(constants, SHARED, shared)
    try:
        found = predict_generation(row, Assumptions())["decode_step_seconds"]
    finally:
        ENGINES[row.engine] = kept
        setattr(constants, SHARED, kept_shared)
    if not isinstance(found, Estimate):
        raise found
    prefill = found.breakdown[WITH_PROMPTS]
    return found.value - prefill, prefill


def basis_of(row: GenerationRow) -> Basis | None:
    """None where there is no prediction."""
    nothing = dict.fromkeys(PRIORS, 0.0)
    try:
        fixed, prefill = step_parts(row, nothing, 0.0)
    except CannotPredictError:
        return None
    names = list(PRIORS)[:3]
    slopes = [step_parts(row, nothing | {name: 1.0}, 0.0)[0] - fixed for name in names]
    slopes.append(step_parts(row, nothing, 1.0)[0] - fixed)
    _, launches = step_parts(row, nothing | {"prefill_layer_seconds": 1.0}, 0.0)
    return Basis(row, fixed, np.array(slopes), prefill, launches)


@dataclass(frozen=True)
class Rows:
    """Bases of several rows as arrays, over the constants of all engines."""

    all: tuple[Basis, ...]

    @cached_property
    def columns(self) -> tuple[FloatArray, ...]:
        """[row] fixed, work and launches of prefills, measured; [row, constant] slopes."""
        names = ("fixed", "prefill", "launches", "slopes")
        found = [np.array([getattr(one, name) for one in self.all]) for name in names]
        measured = np.array([one.row.decode_step_seconds for one in self.all], dtype=np.float64)
        return *found[:3], measured, found[3]

    @cached_property
    def engines(self) -> IntArray:
        names = list(ENGINES)
        return np.array([names.index(one.row.engine) for one in self.all])  # type: ignore[arg-type]

    def errors(self, values: FloatArray) -> FloatArray:
        """[row] ln(predicted ÷ measured); values: four per engine, and the shared constant."""
        fixed, work, launches, measured, slopes = self.columns
        own = values[:-1].reshape(len(ENGINES), len(PRIORS))[self.engines]
        each = np.column_stack([own[:, :3], np.full(len(own), values[-1])])
        decode = fixed + (slopes * each).sum(axis=1)
        return np.asarray(np.log((decode + np.maximum(work, launches * own[:, 3])) / measured))


def priors() -> tuple[Prior, ...]:
    """Four per engine, with a level that all engines share, and the shared constant."""
    found = []
    for engine in ENGINES:
        for name, (value, width) in PRIORS.items():
            part = width / 2**0.5
            found.append(Prior(f"{engine} {name}", value, part, name, part))
    return (*found, SHARED_PRIOR)


def shipped() -> FloatArray:
    own = [getattr(engine, name) for engine in ENGINES.values() for name in PRIORS]
    return np.array([*own, constants.ENGINE_EXPERT_LAYER_SECONDS])


def schemes_of(rows: Sequence[GenerationRow]) -> dict[str, list[str]]:
    """Ways to leave rows out together, each with the rows' groups."""
    newest = max(row.year or 0 for row in rows)
    return {
        "model": [row.model for row in rows],
        "dense or mixture within an engine": [
            f"{row.engine} {'experts' if row.num_experts else 'dense'}" for row in rows
        ],
        "GPU generation within an engine": [
            f"{row.engine} {catalogue.gpu_type(row.gpu_type).generation}" for row in rows
        ],
        "newest year": ["newest" if row.year == newest else f"older {row.model}" for row in rows],
    }


@dataclass(frozen=True)
class Fit:
    """The rows with all that was found of them."""

    inside: Rows
    outside: Rows
    """Rows that take no part: 4-bit weights, and models that may draft."""
    free: tuple[int, ...]
    problem: Problem
    found: Posterior

    def left_out(self, groups: Sequence[str]) -> FloatArray:
        return hierarchical.left_out(self.problem, groups, self.free)


def usable_rows(path: str) -> list[Basis]:
    every = parse_table(Path(path).read_text(encoding="utf-8")).rows
    found = []
    for row in sound_rows([row for row in every if row.quality in ("A", "B")]):
        known = isinstance(row, GenerationRow) and row.engine in ENGINES
        if known and row.decode_step_seconds is not None and (basis := basis_of(row)) is not None:
            found.append(basis)
    return found


def fit(bases: Sequence[Basis]) -> Fit:
    """The constants at the maximum; the shipped ones stay."""
    takes_part = [not is_low(one) and not may_draft(one.row) for one in bases]
    inside = Rows(tuple(one for one, part in zip(bases, takes_part, strict=True) if part))
    outside = Rows(tuple(one for one, part in zip(bases, takes_part, strict=True) if not part))
    slopes = hierarchical.numerical_slopes(inside.errors)
    groups = tuple(one.group for one in inside.all)
    problem = Problem(priors(), inside.errors, slopes, groups)
    free = hierarchical.choose(problem, schemes_of([one.row for one in inside.all]))
    found = hierarchical.solve(problem, np.ones(len(inside.all)), free)
    return Fit(inside, outside, free, problem, found)


def is_low(one: Basis) -> bool:
    """Whether a row's weights have 4 bits."""
    return subset_of(one.row).endswith("4-bit")


def tell_parts(name: str, rows: Rows, errors: FloatArray) -> None:
    """Errors of all rows, by engine and mixture, and by load; groups are models."""
    models = np.array([one.row.model for one in rows.all])
    tell(f"{name}: all", errors, models)
    for part_of_row in (subset_of, load_stratum):
        parts = np.array([part_of_row(one.row) for one in rows.all])
        for part in sorted(set(parts)):
            tell(f"  {part}", errors[parts == part], models[parts == part])


def main() -> None:
    done = fit(usable_rows(sys.argv[1]))
    hierarchical.tell_constants(done.problem, done.found, done.free, shipped())
    inside, outside = done.inside, done.outside
    tell_parts("as shipped", inside, inside.errors(shipped()))
    tell_parts("fitted", inside, inside.errors(done.found.values))
    for name, groups in schemes_of([one.row for one in inside.all]).items():
        tell_parts(f"left out: {name}", inside, done.left_out(groups))
    tell_parts("of no fit, as shipped", outside, outside.errors(shipped()))
    tell_parts("of no fit, fitted", outside, outside.errors(done.found.values))


if __name__ == "__main__":
    main()
