"""Memory alone: whether a job fits, and by how little the leanest placement exceeds the GPUs.

The formulation of the search with time left out.
"""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.cost.rows import distinct_rows
from automap.planner.layout import IntArray
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import memory_formulation
from automap.planner.search.model.problem import PoolSlice, Problem
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Limits, run
from automap.planner.search.model.variables import Formulation
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.space.structure import problem_of
from automap.planner.units import MIB

LIMITS = Limits.within(10.0, seed=0)
FOUND = (cp_model.OPTIMAL, cp_model.FEASIBLE)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one call takes on the fullest GPU of its range, and what that GPU has."""

    call: str
    """Id of the call."""
    required_bytes: int
    capacity_bytes: int
    num_gpus: int
    """GPUs of the range."""
    holder: str
    """The copy that holds most through the iteration on that GPU."""
    holder_bytes: int

    @property
    def over_bytes(self) -> int:
        """By how much it exceeds the GPU; not positive where it fits."""
        return self.required_bytes - self.capacity_bytes


def fits_in_memory(space: SearchSpace) -> bool:
    """True when some placement holds every GPU, host and constraint; time is left out."""
    if _exceeds_all_gpus(space):
        return False
    lean = _lean(space)
    if lean is None:
        return False
    formulation, excess = memory_formulation(lean)
    formulation.model.add(excess == 0)
    return run(formulation, LIMITS).status in FOUND


def least_excess(space: SearchSpace) -> MemoryNeed | None:
    """The call that exceeds its GPUs by most in the leanest placement, by as little as possible.

    It exceeds them by 0 where everything fits. None when there is no placement whatever the
    memory: the constraints, or the host memory, exclude each other.
    """
    lean = _lean(space)
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
    worst = _worst_call(lean, formulation, (leanest if leanest.status in FOUND else done).solver)
    capacity = max(pool.capacity_bytes for pool in space.problem.pools)
    return replace(worst, required_bytes=capacity + over * MIB, capacity_bytes=capacity)


def _worst_call(
    problem: Problem, formulation: Formulation, solver: cp_model.CpSolver
) -> MemoryNeed:
    """The need of the call, among those with a range, that exceeds its GPUs' memory by most."""
    placed = [
        (solver.value(copy.first), solver.value(copy.end), solver.value(copy.resident), choice.id)
        for copy, choice in zip(formulation.copies, problem.copies, strict=True)
    ]
    needs = []
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
            capacity = _pool_at(problem, first * formulation.unit).capacity_bytes // MIB
            needed = sum(resident for resident, _ in fullest) + solver.value(variables.transient)
            most, holder = max(fullest)
            count = (end - first) * formulation.unit
            needs.append((needed - capacity, call.id, count, holder, most, needed, capacity))
    _, call_id, count, holder, most, needed, capacity = max(needs)
    return MemoryNeed(call_id, needed * MIB, capacity * MIB, count, holder, most * MIB)


def _pool_at(problem: Problem, gpu: int) -> PoolSlice:
    return next(p for p in problem.pools if p.first_gpu <= gpu < p.first_gpu + p.num_gpus)


def _lean(space: SearchSpace) -> Problem | None:
    """The options that matter for memory; None where a call has none at all."""
    tables = _without_time(space.tables)
    lean = problem_of(space.problem, tables, _leaner_layouts(tables, _leanest(tables, space.rows)))
    served = [call.model is not None for call in tables.dataflow_calls]
    if any(not call.options for call, wanted in zip(lean.calls, served, strict=True) if wanted):
        return None
    # What a function or a service takes is of no table, and would not end within the one second.
    calls = tuple(replace(call, fixed_seconds=0.0) for call in lean.calls)
    return prune(replace(lean, calls=calls), upper_bound_seconds=None).problem


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


def _leanest(tables: Tables, rows: Rows) -> Rows:
    """On every layout the setting of each call that adds least."""
    calls = []
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        order = np.lexsort((table.transient_bytes, table.copy_row))
        owner = table.copy_row[order]
        leanest = np.zeros(len(table), dtype=bool)
        leanest[order[np.flatnonzero(np.diff(owner, prepend=-1))]] = True
        calls.append(leanest & mask)
    return Rows(rows.copies, calls)


def _leaner_layouts(tables: Tables, rows: Rows) -> Rows:
    """The layouts of each copy, per pool and number of GPUs, that no other is leaner than.

    What pruning would do among the options is done here among columns: there are many layouts.
    """
    kept = Rows(list(rows.copies), list(rows.calls))
    for number, copy in enumerate(tables.copies):
        held = _mib(copy.resident_bytes)
        needs = [held, _mib(copy.host_bytes)]
        served = [index for index, table in enumerate(tables.calls) if table.copy == number]
        for index in served:
            table, mask = tables.calls[index], rows.calls[index]
            peak = np.full(len(copy), np.iinfo(np.int64).max)
            peak[table.copy_row[mask]] = _mib(table.transient_bytes[mask])
            needs.append(np.where(peak < np.iinfo(np.int64).max, held + peak, peak))
        _, size = distinct_rows(copy.pool, copy.layouts.num_gpus)
        mine = np.flatnonzero(rows.copies[number])
        least = np.zeros(len(copy), dtype=bool)
        least[mine[_front(size[mine], np.stack(needs, axis=1)[mine])]] = True
        kept.copies[number] = least
        for index in served:
            kept.calls[index] = rows.calls[index] & least[tables.calls[index].copy_row]
    return kept


def _mib(num_bytes: IntArray) -> IntArray:
    """[row] MiB, rounded up, in which options count memory."""
    return np.asarray(-(-num_bytes // MIB), dtype=np.int64)


def _front(group: IntArray, needs: IntArray) -> list[int]:
    """Rows that no other of their group needs less than in every column; of equals the first."""
    front: list[int] = []
    order = np.lexsort((np.arange(len(group)), *needs.T[::-1], group))
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        left = rows
        while len(left):  # the first of those left needs least of the first column
            front.append(int(left[0]))
            left = left[(needs[left] < needs[left[0]]).any(axis=1)]
    return front


def _exceeds_all_gpus(space: SearchSpace) -> bool:
    """True when what the homes hold at least, wherever they lie, is more than all GPUs have."""
    held = 0
    for copy, mask in zip(space.tables.copies, space.rows.copies, strict=True):
        if copy.shadow_of is None and mask.any():
            held += int((copy.resident_bytes * copy.layouts.num_gpus)[mask].min())
    pools = space.problem.pools
    return held > sum(pool.num_gpus * pool.capacity_bytes for pool in pools)
