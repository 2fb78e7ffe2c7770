"""Fit the engines' constants on measured generation runs, and say how they generalise.

    python -m benchmarks.fit_generation GENERATION.csv

The table is one of `automap validate`. Fitted are the decode steps of quality A and B: four
constants per engine of automap.planner.cost.rollout_engines and one that all share, by least mean
|log(predicted ÷ measured)|, each model on a GPU type with the square root of its rows as weight.
Models that ship a module to draft tokens with (multi-token prediction) take no part: tables do not
say whether a run used it, which alone makes a factor of two. Nor do runs with 4-bit weights, whose
kernels no table has: what is wrong with them is not the engine's. Printed:

- fitted: errors on the rows of the fit, by engine, and on the models and formats left out of it;
- left out: errors on every row when its model on its GPU type had no part in the fit of its
  engine's constants, which starts from the middle of their bounds each time.

Prices are linear in all of these constants but one (a prefill takes its work or its launches,
whichever is more), so each row is priced once per constant and the fit itself takes seconds.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.spec import RolloutEngine
from automap.planner.validation.generation import may_draft, predict_generation
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import GenerationRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import subset_of

BOUNDS = {
    "layer_seconds": (8e-6, 60e-6),
    "sequence_seconds": (0.0, 100e-6),
    "all_reduce_share": (0.4, 1.2),
    "prefill_layer_seconds": (0.1e-3, 1e-3),
}
"""Between what physics allows: four to thirty kernels of 2 µs in a layer, no all-reduce in less
than 0.4 of its time alone, twenty to two hundred launches of 5 µs."""
SHARED = "ENGINE_EXPERT_LAYER_SECONDS"
SHARED_BOUNDS = (0.0, 100e-6)
INTERRUPTED = "interrupting_prefill_seconds"
STEPS = 41
SWEEPS = 20


@dataclass(frozen=True)
class Basis:
    """A row's decode step as a function of the constants."""

    row: GenerationRow
    fixed: float
    """Seconds without any of them."""
    slopes: np.ndarray
    """Seconds per unit of layer, sequence and all-reduce constants, and of the shared one."""
    prefill: float
    """Seconds of interrupting prefills, were launching free."""
    launches: float
    """Seconds of the same per unit of prefill_layer_seconds, were the work free."""

    @property
    def group(self) -> tuple[str | None, str]:
        return self.row.model, self.row.gpu_type


def step_parts(row: GenerationRow, values: dict[str, float], shared: float) -> tuple[float, float]:
    """(decode, interrupting prefills) of a row with these constants."""
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
    prefill = found.breakdown[INTERRUPTED]
    return found.value - prefill, prefill


def basis_of(row: GenerationRow) -> Basis | None:
    """None where there is no prediction."""
    nothing = dict.fromkeys(BOUNDS, 0.0)
    try:
        fixed, prefill = step_parts(row, nothing, 0.0)
    except CannotPredictError:
        return None
    names = list(BOUNDS)[:3]
    slopes = [step_parts(row, nothing | {name: 1.0}, 0.0)[0] - fixed for name in names]
    slopes.append(step_parts(row, nothing, 1.0)[0] - fixed)
    _, launches = step_parts(row, nothing | {"prefill_layer_seconds": 1.0}, 0.0)
    return Basis(row, fixed, np.array(slopes), prefill, launches)


@dataclass(frozen=True)
class Rows:
    """Bases of several rows as arrays."""

    all: Sequence[Basis]

    def errors(self, values: np.ndarray) -> np.ndarray:
        """ln(predicted ÷ measured); values: the engine's four, and the shared constant."""
        slopes = np.array([one.slopes for one in self.all])
        decode = np.array([one.fixed for one in self.all]) + slopes @ values[[0, 1, 2, 4]]
        work = np.array([one.prefill for one in self.all])
        launches = np.array([one.launches for one in self.all]) * values[3]
        measured = np.array([one.row.decode_step_seconds for one in self.all])
        return np.log((decode + np.maximum(work, launches)) / measured)

    def weights(self) -> np.ndarray:
        groups = [one.group for one in self.all]
        weights = np.array([groups.count(group) ** -0.5 for group in groups])
        return weights / weights.sum()


def fit(
    rows: dict[RolloutEngine, Rows], shared: float | None
) -> tuple[dict[RolloutEngine, np.ndarray], float]:
    """Coordinate descent over the bounds from their middle; `shared` given stays as it is."""
    values = {name: np.array([sum(bound) / 2 for bound in BOUNDS.values()]) for name in rows}
    expert = sum(SHARED_BOUNDS) / 2 if shared is None else shared
    weights = {name: one.weights() for name, one in rows.items()}

    def loss(name: RolloutEngine, own: np.ndarray, expert: float) -> float:
        errors = rows[name].errors(np.append(own, expert))
        return float(weights[name] @ np.abs(errors)) * math.sqrt(len(errors))

    width = 1.0
    for _ in range(SWEEPS):
        for name, own in values.items():
            for place, bound in enumerate(BOUNDS.values()):
                tried = [
                    np.where(np.arange(len(own)) == place, value, own)
                    for value in around(own[place], bound, width)
                ]
                own = min(tried, key=lambda each: loss(name, each, expert))
            values[name] = own
        if shared is None:
            expert = min(
                around(expert, SHARED_BOUNDS, width),
                key=lambda value: sum(loss(name, values[name], value) for name in rows),
            )
        width *= 0.8
    return values, expert


def around(value: float, bound: tuple[float, float], width: float) -> np.ndarray:
    """Values to try: the present one, and even steps in a shrinking window about it."""
    reach = width * (bound[1] - bound[0])
    return np.append(value, np.clip(value + reach * np.linspace(-1, 1, STEPS), *bound))


def left_out(rows: Rows, engine: RolloutEngine, shared: float) -> list[float]:
    """Errors of an engine's rows, each with constants fitted without its model on its GPU."""
    found: list[float] = []
    groups = sorted({one.group for one in rows.all}, key=str)
    for group in groups if len(groups) > 1 else ():
        rest = Rows([one for one in rows.all if one.group != group])
        own = Rows([one for one in rows.all if one.group == group])
        values, _ = fit({engine: rest}, shared)
        errors = own.errors(np.append(values[engine], shared))
        tell(f"    without {group[0]} on {group[1]}", errors)
        found += list(errors)
    return found


def tell(name: str, errors: Iterable[float]) -> None:
    relative = np.exp(np.array(list(errors))) - 1.0
    if not len(relative):
        return
    print(
        f"{name:62s} {len(relative):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
        f"mean {np.mean(np.abs(relative)):6.1%}  bias {np.mean(relative):+7.1%}"
    )


def is_low(one: Basis) -> bool:
    """Whether a row's weights have 4 bits."""
    return subset_of(one.row).endswith("4-bit")


def main() -> None:
    table = parse_table(Path(sys.argv[1]).read_text(encoding="utf-8")).rows
    usable = [
        row
        for row in table
        if isinstance(row, GenerationRow)
        and row.quality in ("A", "B")
        and row.engine in ENGINES
        and row.decode_step_seconds is not None
    ]
    found = [basis for row in usable if (basis := basis_of(row)) is not None]
    inside: dict[RolloutEngine, Rows] = {}
    drafting: dict[RolloutEngine, Rows] = {}
    in_four_bits: dict[RolloutEngine, Rows] = {}
    for name in ENGINES:
        own = [one for one in found if one.row.engine == name]
        in_four_bits[name] = Rows([one for one in own if is_low(one)])
        own = [one for one in own if not is_low(one)]
        inside[name] = Rows([one for one in own if not may_draft(one.row)])
        drafting[name] = Rows([one for one in own if may_draft(one.row)])
    values, shared = fit(inside, None)
    fitted: list[float] = []
    everything: list[float] = []
    low: list[float] = []
    print(f"{SHARED} {shared * 1e6:.1f} µs")
    for name, rows in inside.items():
        print(name, dict(zip(BOUNDS, (f"{value:.3g}" for value in values[name]), strict=True)))
        constants_of = np.append(values[name], shared)
        errors = rows.errors(constants_of)
        fitted += list(errors)
        tell(f"  fitted: {name}", errors)
        if drafting[name].all:
            tell("  unseen: may have drafted", drafting[name].errors(constants_of))
        if in_four_bits[name].all:
            errors = in_four_bits[name].errors(constants_of)
            low += list(errors)
            tell("  unseen: 4-bit weights", errors)
        without = left_out(rows, name, shared)
        everything += without
        tell(f"  left out: {name}", without)
    tell("fitted: all", fitted)
    tell("left out: all", everything)
    tell("unseen: 4-bit weights, all", low)


if __name__ == "__main__":
    main()
