"""The linear relaxation of the relaxed problem: a lower bound on the period for all sizes at once.

Copies and calls may mix their options, x_co, z_kj ∈ [0, 1]; of time and GPUs the precedences and
the weighted lengths of bounds.py are kept:

    d_k = Σ_j d_j z_kj,  w_kq = Σ_j w_jq z_kj,  Σ_j z_kj = 1,  Σ_{j of o} z_kj ≤ x_co
    s_v ≥ s_u + d_u  along edges,  Σ_{k inside a stretch} w_kq ≤ its length,  s_k + d_k ≤ P → min

Here a call pays for its speed with GPU-seconds, which bounds.py cannot see: it takes the least of
either. No scenario is told apart. What holds whatever the solver's rounding is computed from its
dual values (Neumaier and Shcherbina, Mathematical Programming 99, 2004).
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from ortools.linear_solver import pywraplp

from planner.layout import FloatArray
from planner.search.bounds import Bounds
from planner.search.problem import Problem

FLOAT_NOISE = 1e-9
"""Relative error of the sums that make the bound."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An optimum of the linear relaxation."""

    bound_seconds: float
    """No solution with a period of at most the horizon has a shorter one."""
    starts: FloatArray
    """Per call."""
    shares: list[FloatArray]
    """Per copy: how much of each option is taken."""


@dataclass(slots=True)
class _Program:
    """Minimise the first variable over rows Σ a x ≥ b, or = b, with 0 ≤ x ≤ most."""

    most: list[float] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    sides: list[float] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)

    def variables(self, count: int, most: float) -> range:
        """New variables."""
        self.most += [most] * count
        return range(len(self.most) - count, len(self.most))

    def at_least(self, terms: dict[int, float], side: float, *, equal: bool = False) -> None:
        """A new row."""
        self.rows.append(terms)
        self.sides.append(side)
        self.equal.append(equal)

    def solve(self) -> tuple[float, FloatArray]:
        """(a lower bound that holds despite rounding, the values that GLOP found)."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        variables = [solver.NumVar(0.0, most, "") for most in self.most]
        infinity = solver.infinity()
        rows = []
        for terms, side, equal in zip(self.rows, self.sides, self.equal, strict=True):
            row = solver.Constraint(side, side if equal else infinity)
            for variable, factor in terms.items():
                row.SetCoefficient(variables[variable], factor)
            rows.append(row)
        solver.Minimize(variables[0])
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return 0.0, np.zeros(len(variables))
        duals = [
            dual if equal else max(dual, 0.0)
            for dual, equal in zip((row.dual_value() for row in rows), self.equal, strict=True)
        ]
        return self._bound(duals), np.array([each.solution_value() for each in variables])

    def _bound(self, duals: list[float]) -> float:
        """Σ y b + Σ min(0, c − yA) × most: holds for any y that is ≥ 0 where a row is ≥."""
        costs = np.zeros(len(self.most))
        costs[0] = 1.0
        for dual, terms in zip(duals, self.rows, strict=True):
            if dual:
                for variable, factor in terms.items():
                    costs[variable] -= dual * factor
        products = np.array(duals) * np.array(self.sides)
        lost = np.minimum(costs, 0.0) * np.array(self.most)
        noise = FLOAT_NOISE * (np.abs(products).sum() + np.abs(lost).sum())
        return max(float(products.sum() + lost.sum() - noise), 0.0)


def relax(problem: Problem, *, horizon_seconds: float) -> Relaxation:
    """The linear relaxation of a problem with a barrier, for periods of at most the horizon."""
    assert problem.barrier, "phases of a cyclic schedule have no stretches"
    bounds, program = Bounds(problem), _Program()
    (period,) = program.variables(1, horizon_seconds)
    starts = program.variables(len(problem.calls), horizon_seconds)
    copies = [program.variables(len(copy.options), 1.0) for copy in problem.copies]
    _choose(program, problem, copies)
    seconds, weights = [], []
    for call in bounds.calls:
        of_call = _call(program, bounds, call, copies, horizon_seconds)
        seconds.append(of_call[0])
        weights.append(of_call[1])
    ends = [(start, each) for start, each in zip(starts, seconds, strict=True)]
    for edge in problem.precedences:
        if edge.distance == 0:
            before = {starts[edge.source]: -1.0}
            if not edge.streamed:
                before[seconds[edge.source]] = -1.0
            program.at_least({starts[edge.target]: 1.0, **before}, 0.0)
    for end in ends:
        program.at_least({period: 1.0, **dict.fromkeys(end, -1.0)}, 0.0)
    for (source, target), inside in bounds.stretches.items():
        length = {period if target is None else starts[target]: 1.0}
        length |= {} if source is None else dict.fromkeys(ends[source], -1.0)
        for column in zip(*(weights[call] for call in inside), strict=True):
            program.at_least({**length, **dict.fromkeys(column, -1.0)}, 0.0)
    bound, values = program.solve()
    return Relaxation(bound, values[list(starts)], [values[list(takes)] for takes in copies])


def _choose(program: _Program, problem: Problem, copies: list[range]) -> None:
    """A home takes one option, a shadow at most one."""
    for copy, takes in zip(problem.copies, copies, strict=True):
        if takes and copy.shadow_of is None:
            program.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
        elif takes:
            program.at_least(dict.fromkeys(takes, -1.0), -1.0)


def _call(
    program: _Program, bounds: Bounds, call: int, copies: list[range], horizon_seconds: float
) -> tuple[int, range]:
    """(variable of a call's seconds, variables of its weights), tied to the copies' options."""
    choice = bounds.problem.calls[call]
    (seconds,) = program.variables(1, 2.0 * horizon_seconds)
    minimum = bounds.minimum(call, list(choice.options))
    weights = program.variables(len(minimum.weights), 2.0 * horizon_seconds)
    if not choice.options:
        program.at_least({seconds: 1.0}, minimum.seconds)
        return seconds, weights
    takes = program.variables(len(choice.options), 1.0)
    program.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
    settings: dict[tuple[int, int], list[int]] = defaultdict(list)
    columns = []
    for option, take in zip(choice.options, takes, strict=True):
        settings[option.copy, option.copy_option].append(take)
        columns.append((bounds.seconds(call, option), *bounds.weights(call, option)))
    for (copy, number), mine in settings.items():
        program.at_least({copies[copy][number]: 1.0, **dict.fromkeys(mine, -1.0)}, 0.0)
    for variable, values in zip((seconds, *weights), zip(*columns, strict=True), strict=True):
        terms = {take: -value for take, value in zip(takes, values, strict=True) if value}
        program.at_least({variable: 1.0, **terms}, 0.0)
    return seconds, weights
