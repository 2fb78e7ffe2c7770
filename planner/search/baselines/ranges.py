"""Strategies that say where each model lies: the layouts and settings are the best there are.

The published strategies leave the layouts on their ranges to the user or to a rule. Here the solver
chooses them, so that what is compared is the placement.
"""

from collections.abc import Mapping

from planner.search.baselines.placing import DoesNotFit, Placed
from planner.search.baselines.shadows import Part, part_of, shadows_of
from planner.search.problem import CopyOption, PoolSlice, Problem, Range
from planner.search.pruning import prune
from planner.search.solve import Limits, minimise_period

Places = Mapping[int, Range]
"""Copy → its GPUs. Homes are all in it, shadows where they are to exist."""


def fastest_on(
    problem: Problem,
    places: Places,
    *,
    strategy: str,
    limits: Limits,
    claimed_seconds: float | None = None,
) -> Placed:
    """The layouts and settings of least period with every copy on given GPUs.

    Raises:
        DoesNotFit: a model has no layout for its range, or they do not fit beside one another.
    """
    part = _on(problem, places, strategy=strategy)
    pruned = prune(part.problem, upper_bound_seconds=None)
    firsts = tuple(
        places[copy].first if copy in places else None for copy in range(len(problem.copies))
    )
    outcome = minimise_period(
        pruned.problem, limits=limits, horizon_seconds=_slowest(part.problem), ranges=firsts
    )
    if outcome.solution is None:
        where = ", ".join(f"{problem.copies[copy].id} on {_gpus(places[copy])}" for copy in places)
        raise DoesNotFit(f"{strategy}: {where} do not fit beside one another")
    assignment = part.original(pruned.original(outcome.solution.assignment))
    return Placed(assignment, claimed_seconds)


def _on(problem: Problem, places: Places, *, strategy: str) -> Part:
    """The problem with the options of the given ranges; a call with a shadow there runs on it."""
    allowed = [
        set[int]()
        if (span := places.get(number)) is None
        else {
            at
            for at, option in enumerate(copy.options)
            if _lies_on(problem.pools[option.pool], option, span)
        }
        for number, copy in enumerate(problem.copies)
    ]
    shadows = {copy for copy in shadows_of(problem) if allowed[copy]}
    served = {
        number
        for number, call in enumerate(problem.calls)
        if any(option.copy in shadows for option in call.options)
    }
    part = part_of(
        problem,
        lambda call, option: (
            option.copy_option in allowed[option.copy]
            and (option.copy in shadows) == (call in served)
        ),
    )
    for copy, options in enumerate(allowed):
        if copy in places and not options:
            name = problem.copies[copy].id
            raise DoesNotFit(f"{strategy}: {name} has 0 layouts for {_gpus(places[copy])}")
    for call, left in zip(problem.calls, part.problem.calls, strict=True):
        if call.options and not left.options:
            raise DoesNotFit(f"{strategy}: {call.id} has 0 settings on the GPUs of its model")
    return part


def _lies_on(pool: PoolSlice, option: CopyOption, span: Range) -> bool:
    inside = pool.first_gpu <= span.first and span.end <= pool.first_gpu + pool.num_gpus
    return inside and option.num_gpus == span.count


def _gpus(span: Range) -> str:
    return f"GPUs {span.first} to {span.end - 1}"


def _slowest(problem: Problem) -> float:
    """A period that no sensible schedule exceeds: every call at its slowest, one by one."""
    calls = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in problem.calls
    )
    syncs = sum(
        max((option.sync_seconds for option in copy.options), default=0.0)
        for copy in problem.copies
    )
    return calls + syncs + 1e-3
