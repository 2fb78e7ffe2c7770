"""Fit what RL frameworks add to the cost model on measured iterations, and say how it generalises.

    python -m benchmarks.fit_rlhf RLHF.csv

The table is one of `automap validate`; rows of quality A and B whose iteration is predicted and
whose framework planner/validation/rl_systems.py knows count. Two constants per framework: the
least time of a layer with experts (planner/cost/stacks.py), and the seconds of an iteration around
its calls, which are tried on parts priced once per value of the first. The rate at which training
state goes to the host and back is chosen, not fitted: beside the seconds around the calls, the
rows do not tell it. Where a table states the seconds of the stages, but no lengths, one constant is
fitted to their shares: what the driver takes to hand a stage its batch, per padded token. Least
mean |log(predicted ÷ measured)|. Printed:

- fitted: errors on the rows of the fit;
- left out: errors on each model on a GPU type (shares: each number of GPUs) when its rows had no
  part in the fit.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from automap.planner.cost.stacks import STACKS
from automap.planner.layout import FloatArray
from automap.planner.spec import TrainingStack
from automap.planner.validation.frameworks import framework_of
from automap.planner.validation.predictions import Assumptions, Estimate
from automap.planner.validation.rl_systems import SYSTEMS, RlSystem, system_of
from automap.planner.validation.rlhf import SHARES, predict_rlhf
from automap.planner.validation.rows import RlhfRow
from automap.planner.validation.table import parse_table

LAYER_SECONDS = np.round(np.arange(2.0, 5.01, 0.2), 1) * 1e-3
AROUND_SECONDS = np.arange(0.0, 31.0, 1.0)
HANDOVER_SECONDS = np.arange(0.0, 226.0, 25.0) * 1e-9
AROUND = "around_seconds"


@dataclass(frozen=True)
class Basis:
    """What the rows are predicted to take, apart from the seconds around the calls."""

    calls: FloatArray
    """[value of the layer's time, row]"""
    measured: FloatArray
    groups: tuple[tuple[str, str], ...]

    def logs(self, layer: int, around: float) -> FloatArray:
        """ln(predicted ÷ measured) of each row."""
        return np.log((self.calls[layer] + around) / self.measured)

    def best(self, kept: FloatArray) -> tuple[int, float]:
        """The constants with the least mean error on the rows kept [row, true or false]."""
        tried = product(range(len(LAYER_SECONDS)), AROUND_SECONDS)
        return min(tried, key=lambda one: float(np.abs(self.logs(*one)[kept]).mean()))


@contextmanager
def expert_layers(stack: TrainingStack, seconds: float) -> Iterator[None]:
    """Price with another least time of a layer with experts."""
    before = STACKS[stack]
    STACKS[stack] = replace(before, expert_layer_seconds=seconds)
    try:
        yield
    finally:
        STACKS[stack] = before


def call_seconds(row: RlhfRow) -> float | None:
    """Without the seconds around the calls; None where there is no prediction."""
    found = predict_rlhf(row, Assumptions())["iteration_seconds"]
    if not isinstance(found, Estimate):
        return None
    return found.value - float(found.breakdown[AROUND])


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
    return Basis(
        np.array(calls, dtype=np.float64),
        np.array([row.iteration_seconds for row in own], dtype=np.float64),
        tuple((row.model, row.gpu_type) for row in own),
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
    tell("  shares of stages, fitted", logs[best].ravel())
    rest = [np.delete(logs, place, axis=1) for place in range(len(own))]
    chosen = [int(np.abs(one).mean(axis=(1, 2)).argmin()) for one in rest if one.size]
    left = [logs[one, place] for place, one in enumerate(chosen)]
    if left:
        tell("  shares of stages, left out", np.concatenate(left))


def left_out(basis: Basis) -> FloatArray:
    """Errors of all rows, each with constants fitted without its model on its GPU."""
    found = np.zeros(len(basis.groups))
    for group in sorted(set(basis.groups)):
        own = np.array([one == group for one in basis.groups])
        values = basis.best(~own)
        found[own] = basis.logs(*values)[own]
        tell(f"    without {group[0]} on {group[1]}", found[own])
    return found


def tell(name: str, logs: FloatArray) -> None:
    relative = np.exp(logs) - 1.0
    print(
        f"{name:52s} {len(relative):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
        f"mean {np.mean(np.abs(relative)):6.1%}  bias {np.mean(relative):+7.1%}"
    )


def main() -> None:
    table = parse_table(Path(sys.argv[1]).read_text(encoding="utf-8")).rows
    rows = [row for row in table if isinstance(row, RlhfRow) and row.quality in ("A", "B")]
    for system in list(SYSTEMS):
        fit_shares(system, rows)
        basis = basis_of(system, rows)
        if basis is None:
            continue
        layer, around = values = basis.best(np.ones(len(basis.measured), dtype=bool))
        print(
            f"{system.name}: a layer with experts {LAYER_SECONDS[layer] * 1e3:.1f} ms, around the "
            f"calls {around:.0f} s"
        )
        tell("  fitted", basis.logs(*values))
        tell("  left out", left_out(basis))


if __name__ == "__main__":
    main()
