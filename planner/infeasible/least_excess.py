"""How many bytes the leanest placement of a job is over; the same formulation, time left out."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.search.candidates.tables import Tables
from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import memory_formulation
from automap.planner.search.model.problem import PoolSlice, Problem
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Limits, run
from automap.planner.search.model.variables import Formulation
from automap.planner.search.space.search_space import Rows, problem_of, rows_up_to
from automap.planner.units import MIB

LIMITS = Limits.within(10.0, seed=0)
FOUND = (cp_model.OPTIMAL, cp_model.FEASIBLE)


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
    holder: str
    """The copy that holds most through the iteration on the fullest of those GPUs."""
    holder_bytes: int


def fits_somewhere(problem: Problem, tables: Tables) -> bool:
    """True when some placement holds every GPU, host and constraint; time is left out."""
    if _exceeds_all_gpus(problem, tables):
        return False
    lean = _lean(problem, tables)
    if lean is None:
        return False
    formulation, excess = memory_formulation(lean)
    formulation.model.add(excess == 0)
    return run(formulation, LIMITS).status in FOUND


def least_shortfall(problem: Problem, tables: Tables) -> Shortfall | None:
    """The least overflow over all placements.

    None when there is no placement whatever the memory: the constraints, or the host memory,
    exclude each other.
    """
    lean = _lean(problem, tables)
    if lean is None:
        return None
    formulation, excess = memory_formulation(lean)
    formulation.model.minimize(excess)
    done = run(formulation, LIMITS)
    if done.status not in FOUND:
        return None
    over = done.solver.value(excess)
    # Calls that are not to blame must not look so: with that excess, all as lean as they can be.
    formulation.model.add(excess <= over)
    held = cp_model.LinearExpr.sum([copy.resident for copy in formulation.copies])
    added = cp_model.LinearExpr.sum([call.transient for call in formulation.calls])
    formulation.model.minimize(len(formulation.calls) * held + added)
    leanest = run(formulation, LIMITS)
    worst = _worst_calls(lean, formulation, (leanest if leanest.status in FOUND else done).solver)
    return Shortfall(
        over_bytes=over * MIB,
        capacity_bytes=max(pool.capacity_bytes for pool in problem.pools),
        calls=tuple(need.call for need in worst),
        num_gpus=worst[0].num_gpus,
        holder=worst[0].holder,
        holder_bytes=worst[0].holder_mib * MIB,
    )


@dataclass(frozen=True, slots=True, order=True)
class _Need:
    """One call of the leanest placement on the fullest GPU of its range."""

    over_mib: int
    call: str
    num_gpus: int
    holder: str
    holder_mib: int


def _worst_calls(
    problem: Problem, formulation: Formulation, solver: cp_model.CpSolver
) -> list[_Need]:
    """Every call that has a range, the one that is over by most first."""
    placed = [
        (solver.value(copy.first), solver.value(copy.end), solver.value(copy.resident), choice.id)
        for copy, choice in zip(formulation.copies, problem.copies, strict=True)
    ]
    worst = []
    for call, variables in zip(problem.calls, formulation.calls, strict=True):
        for copy, bound in variables.bound.items():
            if not solver.boolean_value(bound):
                continue
            first, end = placed[copy][:2]
            fullest = max(
                (
                    [(resident, name) for a, b, resident, name in placed if a <= start < b]
                    for start, *_ in placed
                    if first <= start < end
                ),
                key=lambda there: sum(resident for resident, _ in there),
            )
            pool = _pool_at(problem, first * formulation.unit)
            needed = sum(resident for resident, _ in fullest) + solver.value(variables.transient)
            over = needed - pool.capacity_bytes // MIB
            most, holder = max(fullest)
            count = (end - first) * formulation.unit
            worst.append(_Need(over, call.id, count, holder, most))
    return sorted(worst, reverse=True)


def _pool_at(problem: Problem, gpu: int) -> PoolSlice:
    return next(p for p in problem.pools if p.first_gpu <= gpu < p.first_gpu + p.num_gpus)


def _lean(problem: Problem, tables: Tables) -> Problem | None:
    """The options that matter for memory; None where a call has none at all."""
    timeless = _without_time(tables)
    lean = problem_of(problem, timeless, _leanest_rows(problem, timeless))
    if any(not call.options for call in lean.calls if _has_table(lean, tables, call.id)):
        return None
    return prune(lean, upper_bound_seconds=None).problem


def _has_table(problem: Problem, tables: Tables, call_id: str) -> bool:
    number = next(n for n, call in enumerate(problem.calls) if call.id == call_id)
    return tables.dataflow_calls[number].model is not None


def _without_time(tables: Tables) -> Tables:
    """Every candidate equally fast: pruning then keeps what is lean in memory."""
    return replace(
        tables,
        copies=[
            replace(copy, sync_seconds=np.zeros_like(copy.sync_seconds), node_sync_seconds=None)
            for copy in tables.copies
        ],
        calls=[replace(call, seconds=np.ones_like(call.seconds)) for call in tables.calls],
    )


def _leanest_rows(problem: Problem, tables: Tables) -> Rows:
    """On every layout the setting of each call that adds least; what fits the pools' GPUs."""
    rows = rows_up_to(tables, tuple(pool.num_gpus for pool in problem.pools))
    calls = []
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        order = np.lexsort((table.transient_bytes, table.copy_row))
        owner = table.copy_row[order]
        leanest = np.zeros(len(table), dtype=bool)
        leanest[order[np.flatnonzero(np.diff(owner, prepend=-1))]] = True
        calls.append(leanest & mask)
    return Rows(rows.copies, calls)


def _exceeds_all_gpus(problem: Problem, tables: Tables) -> bool:
    """True when what the homes hold at least, wherever they lie, is more than all GPUs have."""
    rows = rows_up_to(tables, tuple(pool.num_gpus for pool in problem.pools))
    held = 0
    for copy, mask in zip(tables.copies, rows.copies, strict=True):
        if copy.shadow_of is None and mask.any():
            held += int((copy.resident_bytes * copy.layouts.num_gpus)[mask].min())
    return held > sum(pool.num_gpus * pool.capacity_bytes for pool in problem.pools)
