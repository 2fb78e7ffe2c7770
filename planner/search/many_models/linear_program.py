"""A linear program whose bound holds despite the rounding of the solver.

What GLOP returns is exact but for rounding. From its dual values follows a bound that any such
values give (Neumaier and Shcherbina, Mathematical Programming 99, 2004).
"""

from dataclasses import dataclass, field

import numpy as np
from ortools.linear_solver import pywraplp

from automap.planner.layout import FloatArray

FLOAT_NOISE = 1e-9
"""Relative error of the sums that make the bound."""
Terms = dict[int, float]
"""Variable → factor."""


@dataclass(slots=True)
class LinearProgram:
    """Minimise the first variable over rows Σ a x ≥ b, or = b, with 0 ≤ x ≤ most."""

    most: list[float] = field(default_factory=list)
    rows: list[Terms] = field(default_factory=list)
    sides: list[float] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)

    def variables(self, count: int, most: float) -> range:
        """Add `count` variables, each at least 0 and at most `most`; returns their numbers."""
        self.most += [most] * count
        return range(len(self.most) - count, len(self.most))

    def at_least(self, terms: Terms, side: float, *, equal: bool = False) -> None:
        """Add the row Σ a x ≥ `side`, or = `side` if `equal`, with the factors of `terms`."""
        self.rows.append(terms)
        self.sides.append(side)
        self.equal.append(equal)

    def solve(self) -> tuple[float, FloatArray]:
        """(a lower bound that holds despite rounding, the values that GLOP found)."""
        solver = pywraplp.Solver.CreateSolver("GLOP")
        variables = [solver.NumVar(0.0, most, "") for most in self.most]
        constraints = []
        for terms, side, equal in zip(self.rows, self.sides, self.equal, strict=True):
            row = solver.Constraint(side, side if equal else solver.infinity())
            for variable, factor in terms.items():
                row.SetCoefficient(variables[variable], factor)
            constraints.append(row)
        solver.Minimize(variables[0])
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return 0.0, np.zeros(len(self.most))
        duals = [
            row.dual_value() if equal else max(row.dual_value(), 0.0)
            for row, equal in zip(constraints, self.equal, strict=True)
        ]
        return self.bound(duals), np.array([each.solution_value() for each in variables])

    def bound(self, duals: list[float]) -> float:
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
