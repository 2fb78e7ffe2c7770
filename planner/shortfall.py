"""How many bytes the leanest placement of a job is over; the same formulation, time left out."""

from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from planner.formulation import MIB, memory_formulation
from planner.problem import Problem
from planner.pruning import prune
from planner.solve import Limits, run
from planner.space import all_rows, problem_of
from planner.tables import Tables

LIMITS = Limits(time_limit_seconds=10.0, num_workers=2)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The least possible overflow of memory, and the calls that cause it."""

    over_bytes: int
    """0: everything fits somewhere (host memory and constraints included)."""
    capacity_bytes: int
    calls: tuple[str, ...]
    """Ids of the calls that are over by that much in the leanest placement."""
    num_gpus: int
    """GPUs of the range on which the first of them runs there."""


def least_shortfall(problem: Problem, tables: Tables) -> Shortfall | None:
    """The least overflow over all placements.

    None when there is no placement whatever the memory: the constraints, or the host memory,
    exclude each other.
    """
    lean = _without_time(problem_of(problem, tables, all_rows(tables)))
    if any(not call.options for call in lean.calls if _has_table(lean, tables, call.id)):
        return None
    pruned = prune(lean, upper_bound_seconds=None).problem
    formulation, excess = memory_formulation(pruned)
    formulation.model.minimize(excess)
    done = run(formulation, LIMITS)
    if done.status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    over = done.solver.value(excess)
    capacity = max(pool.capacity_bytes for pool in problem.pools)
    worst: list[tuple[int, str, int]] = []
    for call, variables in zip(pruned.calls, formulation.calls, strict=True):
        for copy, bound in variables.bound.items():
            if done.solver.boolean_value(bound):
                own = formulation.copies[copy]
                held = done.solver.value(own.resident) + done.solver.value(variables.transient)
                worst.append((held, call.id, done.solver.value(own.count) * formulation.unit))
    worst.sort(reverse=True)
    return Shortfall(
        over_bytes=over * MIB,
        capacity_bytes=capacity,
        calls=tuple(call for _, call, _ in worst),
        num_gpus=worst[0][2],
    )


def _has_table(problem: Problem, tables: Tables, call_id: str) -> bool:
    number = next(n for n, call in enumerate(problem.calls) if call.id == call_id)
    return tables.dataflow_calls[number].model is not None


def _without_time(problem: Problem) -> Problem:
    """Every option equally fast: pruning then keeps what is lean in memory."""
    return replace(
        problem,
        copies=tuple(
            replace(
                copy, options=tuple(replace(option, sync_seconds=0.0) for option in copy.options)
            )
            for copy in problem.copies
        ),
        calls=tuple(
            replace(call, options=tuple(replace(option, seconds=1.0) for option in call.options))
            for call in problem.calls
        ),
    )
