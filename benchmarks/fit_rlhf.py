"""Fit what RL frameworks add to the cost model on measured iterations, and say how it generalises.

    python -m benchmarks.fit_rlhf RLHF.csv

The table is one of `automap validate`; rows of quality A and B whose iteration is predicted and
whose framework planner/cost/rl_systems.py knows count. Three constants per framework, with
priors and no bounds (`benchmarks.hierarchical`): the least time of a layer with experts
(planner/cost/stacks.py), priced on a grid and read between its points, the seconds of an
iteration around its calls, and the driver's seconds per padded token of a batch and call. The rate
at which training state goes to the host and back and the time of a tensor on its way to the engine
are chosen, not fitted: beside the others, the rows do not tell them. Where a table states the
seconds of the stages, but no lengths, one constant is fitted to their shares: what the driver takes
to hand a stage its batch, per padded token. Printed: prior, posterior and rows behind each
constant, errors on the rows of the fit, and on every row when its model on all its GPUs, its model
on that GPU type, or all mixtures or dense models, had no part in it (shares: each number of GPUs).
"""

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automap.planner.cost.rl_systems import SYSTEMS, RlSystem, system_of
from automap.planner.cost.stacks import STACKS
from automap.planner.layout import FloatArray
from automap.planner.spec import TrainingStack
from automap.planner.validation.frameworks import framework_of
from automap.planner.validation.predictions import Assumptions, Estimate
from automap.planner.validation.rlhf import SHARES, predict_rlhf
from automap.planner.validation.rows import RlhfRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.validate import subset_of
from benchmarks import hierarchical
from benchmarks.hierarchical import Prior, Problem, tell

LAYER_SECONDS = np.geomspace(0.5e-3, 10e-3, 14)
PRIORS = (
    # Kernels of Megatron-core's layer with 8 and with 16 local experts, counted (82 and 130), at
    # the 24 us that one called from Python takes in training (EXPERT_OPERAND_HOST_SECONDS is of
    # three to four): 2.0 and 3.1 ms.
    Prior("expert_layer_seconds", 2.5e-3, math.log(2.5)),
    # Rewards and advantages of a few thousand sequences at a millisecond each, and a half of a
    # second for each of the calls and the log.
    Prior("iteration_seconds", 4.0, math.log(2.5)),
    # What the shares of another framework's stages say (verl, below).
    Prior("handover_seconds_per_token", 150e-9, math.log(2.0)),
)
HANDOVER_SECONDS = np.arange(0.0, 226.0, 25.0) * 1e-9
AROUND = ("around_seconds", "handover_seconds")


@dataclass(frozen=True)
class Basis:
    """What the rows are predicted to take, apart from the seconds around the calls."""

    calls: FloatArray
    """[value of the layer's time, row]"""
    rollouts: FloatArray
    """[row]: seconds of generation that goes on beside the trainer and its driver, which an
    iteration takes at least; 0 where they take turns."""
    handed_tokens: FloatArray
    """[row]: padded tokens, once for each call that is handed them."""
    measured: FloatArray
    rows: tuple[RlhfRow, ...]

    def errors(self, values: FloatArray) -> FloatArray:
        """[row] ln(predicted ÷ measured)."""
        layer, around, handover = values
        grid = np.log(LAYER_SECONDS)
        calls = [np.interp(np.log(layer), grid, one) for one in self.calls.T]
        trainer = np.array(calls) + around + handover * self.handed_tokens
        return np.asarray(np.log(np.maximum(trainer, self.rollouts) / self.measured))

    def schemes(self) -> dict[str, tuple[str, ...]]:
        return {
            "model": tuple(row.model for row in self.rows),
            "model on a GPU type": tuple(f"{row.model} {row.gpu_type}" for row in self.rows),
            "dense or mixture": tuple(subset_of(row) for row in self.rows),
        }


@contextmanager
def expert_layers(stack: TrainingStack, seconds: float) -> Iterator[None]:
    """Price with another least time of a layer with experts."""
    before = STACKS[stack]
    STACKS[stack] = replace(before, expert_layer_seconds=seconds)
    try:
        yield
    finally:
        STACKS[stack] = before


def call_seconds(row: RlhfRow) -> tuple[float, float] | None:
    """(calls of the trainer without the seconds around them, rollouts beside it).

    None where there is no prediction; new weights count for both.
    """
    found = predict_rlhf(row, Assumptions())["iteration_seconds"]
    if not isinstance(found, Estimate):
        return None
    parts = {name: float(seconds) for name, seconds in found.breakdown.items()}
    calls = sum(seconds for name, seconds in parts.items() if name not in AROUND)
    if row.synchrony != "async":
        return calls, 0.0
    rollouts = parts["actor.generate_seconds"] + parts["weight_sync_seconds"]
    return calls - parts["actor.generate_seconds"], rollouts


def handed_tokens(row: RlhfRow, system: RlSystem) -> float:
    """Padded tokens of a predicted row, once for each call that is handed them."""
    found = predict_rlhf(row, Assumptions())["iteration_seconds"]
    assert isinstance(found, Estimate)
    return float(found.breakdown["handover_seconds"]) / system.handover_seconds_per_token


def basis_of(system: RlSystem, rows: Iterable[RlhfRow]) -> Basis | None:
    """The rows of one framework; None where none is predicted."""
    own = [one for one in rows if system_of(one.system) is system]
    own = [one for one in own if system.iteration_seconds and call_seconds(one) is not None]
    if not own:
        return None
    stack = framework_of(own[0].source).training_stack
    calls = []
    for seconds in LAYER_SECONDS:
        with expert_layers(stack, float(seconds)):
            calls.append([call_seconds(row) for row in own])
    seconds = np.array(calls, dtype=np.float64)
    return Basis(
        seconds[:, :, 0],
        seconds[0, :, 1],
        np.array([handed_tokens(row, system) for row in own], dtype=np.float64),
        np.array([row.iteration_seconds for row in own], dtype=np.float64),
        tuple(own),
    )


@contextmanager
def handover(system: RlSystem, seconds: float) -> Iterator[None]:
    """Predict with another time of handing a padded token to a stage."""
    place = SYSTEMS.index(system)
    SYSTEMS[place] = replace(system, handover_seconds_per_token=seconds)
    try:
        yield
    finally:
        SYSTEMS[place] = system


def share_logs(row: RlhfRow) -> list[float]:
    """ln(predicted ÷ measured) of each stage's share."""
    found = predict_rlhf(row, Assumptions())
    return [
        float(np.log(one.value / getattr(row, name)))
        for name in SHARES
        if isinstance(one := found.get(name), Estimate)
    ]


def fit_shares(system: RlSystem, rows: Iterable[RlhfRow]) -> None:
    """The time of the hand-over that explains the shares of a framework's stages best."""
    own = [row for row in rows if system_of(row.system) is system and row.stage_seconds]
    own = [row for row in own if share_logs(row)]
    if not own:
        return
    found = []
    for seconds in HANDOVER_SECONDS:
        with handover(system, float(seconds)):
            found.append([share_logs(row) for row in own])
    logs = np.array(found)  # [constant, row, stage]
    best = int(np.abs(logs).mean(axis=(1, 2)).argmin())
    print(f"{system.name}: hand-over of a padded token {HANDOVER_SECONDS[best] * 1e9:.0f} ns")
    tell("  shares of stages, fitted", logs[best].ravel(), ["all"] * logs[best].size)
    rest = [np.delete(logs, place, axis=1) for place in range(len(own))]
    chosen = [int(np.abs(one).mean(axis=(1, 2)).argmin()) for one in rest if one.size]
    left = [logs[one, place] for place, one in enumerate(chosen)]
    if left:
        found_left = np.concatenate(left)
        tell("  shares of stages, left out", found_left, ["all"] * len(found_left))


def problem_of(basis: Basis) -> tuple[Problem, tuple[int, ...]]:
    """The problem of a framework's iterations, and which constants stay free."""
    groups = basis.schemes()["model on a GPU type"]
    slopes = hierarchical.numerical_slopes(basis.errors)
    problem = Problem(PRIORS, basis.errors, slopes, groups)
    schemes = {name: groups for name, groups in basis.schemes().items() if name == "model"}
    return problem, hierarchical.choose(problem, schemes)


def main() -> None:
    table = parse_table(Path(sys.argv[1]).read_text(encoding="utf-8")).rows
    rows = [row for row in table if isinstance(row, RlhfRow) and row.quality in ("A", "B")]
    for system in list(SYSTEMS):
        fit_shares(system, rows)
        basis = basis_of(system, rows)
        if basis is None:
            continue
        problem, free = problem_of(basis)
        found = hierarchical.solve(problem, np.ones(len(basis.rows)), free)
        stack = STACKS[framework_of(basis.rows[0].source).training_stack]
        around = (system.iteration_seconds, system.handover_seconds_per_token)
        now = [stack.expert_layer_seconds, *around]
        hierarchical.tell_constants(problem, found, free, now)
        models = basis.schemes()["model"]
        tell("  as shipped", problem.errors(np.array(now)), models)
        tell("  fitted", problem.errors(found.values), models)
        for name, groups in basis.schemes().items():
            tell(f"  left out: {name}", hierarchical.left_out(problem, groups, free), models)


if __name__ == "__main__":
    main()
