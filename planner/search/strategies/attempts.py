"""The named strategies on priced tables: what each may use, its placement, its exact schedule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from automap.planner.search.candidates.tables import Tables
from automap.planner.search.model.solve import Limits
from automap.planner.search.space.processes import ProcessSpaces
from automap.planner.search.space.rows import (
    Rows,
    Selected,
    all_rows,
    period_of,
    rows_of,
    rows_with_counts,
    rows_without_tails,
)
from automap.planner.search.space.schedules import schedule, schedule_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STRATEGIES, DoesNotFit, Index, StrategyInfo

STARTING_COUNTS = 20
"""Range sizes that the strategies which start a search choose from; on larger clusters the sizes
are thinned to so many."""
MIXED = (
    "none of the few layouts tried for it, which models of one process share, has a placement; the "
    "search tries all"
)
PROCESS_TRIES = 4
"""Layouts of a process in which strategies are placed to start a search."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of a strategy: a placement, or the reason why there is none."""

    strategy: str
    selected: Selected | None
    reason: str
    claimed_seconds: float | None = None
    """Seconds of an iteration by the strategy's own cost model."""
    note: str = ""
    """What of its placement is not as the strategy's description says."""


def attempted(
    space: SearchSpace,
    names: Sequence[str],
    limits: Limits,
    most_counts: int | None = STARTING_COUNTS,
) -> list[Attempt]:
    """The named strategies; one whose candidates leave some call without any has no placement."""
    needed = [n for n, call in enumerate(space.tables.dataflow_calls) if call.model is not None]
    result = []
    for each in _with_shared_processes(space, names, limits, most_counts):
        missing = [n for n in needed if each.selected and each.selected.call_rows[n] is None]
        if missing:
            call = space.tables.dataflow_calls[missing[0]].id
            result.append(Attempt(each.strategy, None, f"no candidate of {call} fits on any range"))
        else:
            result.append(replace(each, selected=schedule_in_place(space, each.selected, limits)))
    return result


def _with_shared_processes(
    space: SearchSpace, names: Sequence[str], limits: Limits, most_counts: int | None
) -> list[Attempt]:
    """What the strategies place; where models share a process, in the first few of its layouts."""
    if not space.tables.has_processes:
        return attempt(space, names, limits=limits, most_counts=most_counts)
    best = {name: Attempt(name, None, MIXED) for name in names}
    choices = ProcessSpaces(space)
    for _ in range(PROCESS_TRIES):
        choice = choices.next(inf)
        if choice is None:
            break
        for each in attempt(choice.space, names, limits=limits, most_counts=most_counts):
            known = best[each.strategy].selected
            if each.selected is not None and period_of(each.selected) < period_of(known):
                lifted = replace(each, selected=choice.lift(each.selected))
                best[each.strategy] = lifted
    return list(best.values())


def attempt(
    space: SearchSpace, names: Sequence[str], *, limits: Limits, most_counts: int | None = None
) -> list[Attempt]:
    """Place the named strategies and schedule each exactly; `most_counts` thins out the sizes."""
    rows = space.rows if most_counts is None else space.rows.both(thinned(space, most_counts))
    indices: dict[Callable[[Tables], Rows] | None, Index | str] = {}
    attempts = []
    for name in names:
        info = STRATEGIES[name]
        if info.rows not in indices:
            indices[info.rows] = _index(space, rows, info.rows)
        index = indices[info.rows]
        attempts.append(
            Attempt(name, None, f"{name}: {index}")
            if isinstance(index, str)
            else _attempted(info, index, limits)
        )
    return attempts


def _index(
    space: SearchSpace, rows: Rows, restriction: Callable[[Tables], Rows] | None
) -> Index | str:
    """The options that a strategy may use, or which call it leaves without any."""
    rows = rows.both(rows_without_tails(space.tables))  # of which no strategy knows
    if restriction is not None:
        rows = rows.both(restriction(space.tables))
    if space.is_complete(rows):
        return Index(space.options(rows))
    if restriction is None:
        return "some model has no layout that fits"
    served = {table.call for n, table in enumerate(space.tables.calls) if rows.calls[n].any()}
    without = [
        call.id
        for number, call in enumerate(space.tables.dataflow_calls)
        if call.model is not None and number not in served
    ]
    calls = ", ".join(without) or "some model"
    count = sum(int(mask.sum()) for mask in rows.copies)
    return (
        f"none of the {count} layouts that it may use fits {calls}, or the constraints exclude it"
    )


def _attempted(info: StrategyInfo, index: Index, limits: Limits) -> Attempt:
    try:
        placed = info.place(index, limits)
    except DoesNotFit as reason:
        return Attempt(info.name, None, reason.reason)
    solution = schedule(index.problem, placed.assignment, limits=limits)
    if solution is None:
        return Attempt(info.name, None, "its placement leaves no feasible schedule")
    rows = rows_of(index.problem, solution)
    return Attempt(info.name, rows, "", placed.claimed_seconds, placed.note)


def thinned(space: SearchSpace, most: int) -> Rows:
    """The rows of at most `most` sizes, evenly spread in ln(size), the largest among them."""
    sizes = sorted(
        {
            int(size)
            for copy, mask in zip(space.tables.copies, space.rows.copies, strict=True)
            for size in np.unique(copy.layouts.num_gpus[mask])
        }
    )
    if len(sizes) <= most:
        return all_rows(space.tables)
    wanted = np.geomspace(max(sizes[-1] / 64, sizes[0]), sizes[-1], most)
    kept = {min(sizes, key=lambda size: abs(size - want)) for want in wanted}
    # Halves and quarters are what split placements use.
    kept |= {size for size in sizes if sizes[-1] % size == 0 and sizes[-1] // size <= 16}
    return rows_with_counts(space.tables, kept)
