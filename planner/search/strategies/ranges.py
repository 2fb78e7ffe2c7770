"""Strategies that say where each model lies: the layouts and settings are the best there are.

The published strategies leave the layouts on their ranges to the user or to a rule. Here the solver
chooses them, so that what is compared is the placement.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from automap.planner.search.model.problem import Assignment, CopyOption, PoolSlice, Problem, Range
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Limits, minimise_period
from automap.planner.search.space.schedules import slowest_period
from automap.planner.search.strategies.placements import Placements, State
from automap.planner.search.strategies.placing import DoesNotFit, Placed
from automap.planner.search.strategies.shadows import Part, part_of, shadows_of

MEMORY_WEIGHTS = (0.0, 0.1, 1.0, 10.0)
"""Iterations that a whole GPU's memory is worth, in the options that a descent starts from."""
MOST_EFFORT = 2.0
"""Deterministic seconds of the solver: layouts are to be good, nothing is to be proven of them."""
LOOSE = 1.0 + 1e-6
"""The limit on the solver's period, as a multiple of the seconds of the known layouts."""

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
        DoesNotFit: the ranges break a pair that the constraints demand, a model has no layout for
            its range, or they do not fit beside one another.
    """
    _check_pairs(problem, places, strategy=strategy)
    part = _on(problem, places, strategy=strategy)
    known = _descended(Placements(part.problem), places)
    limit = slowest_period(part.problem) if known is None else known.seconds * LOOSE
    pruned = prune(part.problem, upper_bound_seconds=limit)
    firsts = tuple(
        places[copy].first if copy in places else None for copy in range(len(problem.copies))
    )
    brief = replace(limits, deterministic_seconds=min(limits.deterministic_seconds, MOST_EFFORT))
    found = (
        None
        if pruned.hopeless
        else minimise_period(
            pruned.problem, limits=brief, cutoff_seconds=limit, ranges=firsts
        ).solution
    )
    if found is not None:
        return Placed(part.original(pruned.original(found.assignment)), claimed_seconds)
    if known is None:
        where = ", ".join(f"{problem.copies[copy].id} on {_gpus(places[copy])}" for copy in places)
        raise DoesNotFit(f"{strategy}: {where} do not fit beside one another")
    return Placed(part.original(known.assignment), claimed_seconds)


@dataclass(frozen=True, slots=True)
class _Known:
    seconds: float
    """Simulated seconds of an iteration."""
    assignment: Assignment


def _descended(placements: Placements, places: Places) -> _Known | None:
    """The best option of one copy after another, until none is better; None: nothing fits so.

    From the fastest options, from those of least bytes, and from compromises between them.
    """
    problem = placements.problem
    runs_on = [next((o.copy for o in call.options), None) for call in problem.calls]
    firsts = [places[copy].first if copy in places else 0 for copy in range(len(problem.copies))]
    usable = [_usable(placements, copy, runs_on) for copy in range(len(problem.copies))]
    if any(not usable[copy] for copy in places):
        return None
    best: _Known | None = None
    scale = sum(min(_seconds(placements, copy, o) for o in usable[copy]) for copy in places)
    for weight in MEMORY_WEIGHTS:
        options = [
            min(usable[copy], key=partial(_burden, placements, copy, weight * scale))
            if copy in places
            else None
            for copy in range(len(problem.copies))
        ]
        state = State(options, firsts, runs_on)
        value = placements.valued(state)
        improved = value is not None
        while improved and value is not None:
            improved = False
            for copy in places:
                for option in usable[copy]:
                    other = state.copy()
                    other.options[copy] = option
                    found = placements.valued(other)
                    if found is not None and found.seconds < value.seconds * (1 - 1e-9):
                        state, value, improved = other, found, True
        if value is not None and value.fits and (best is None or value.seconds < best.seconds):
            best = _Known(value.seconds, placements.assignment(state, value))
    return best


def _usable(placements: Placements, copy: int, runs_on: list[int | None]) -> list[int]:
    """The options of a copy on which each of its calls has a setting."""
    calls = [call for call, on in enumerate(runs_on) if on == copy]
    return [
        option
        for option in range(len(placements.problem.copies[copy].options))
        if calls and all((copy, option) in placements.settings[call] for call in calls)
    ]


def _burden(placements: Placements, copy: int, byte_seconds: float, option: int) -> float:
    """Seconds, and `byte_seconds` for a whole GPU's memory."""
    choice = placements.problem.copies[copy].options[option]
    share = choice.resident_bytes / placements.problem.pools[choice.pool].capacity_bytes
    return _seconds(placements, copy, option) + byte_seconds * share


def _seconds(placements: Placements, copy: int, option: int) -> float:
    """Seconds of all calls on the copy, each with its fastest setting for this option."""
    settings = (each.get((copy, option)) for each in placements.settings)
    return sum(each[0].seconds for each in settings if each)


def _check_pairs(problem: Problem, places: Places, *, strategy: str) -> None:
    """Raise where the ranges contradict the spec's colocated or separate pairs."""
    broken = [
        (pair, "on the same GPUs")
        for pair in problem.colocate
        if places[pair[0]] != places[pair[1]]
    ] + [(pair, "apart") for pair in problem.separate if places[pair[0]].overlaps(places[pair[1]])]
    if broken:
        pair, demand = broken[0]
        where = " and ".join(f"{problem.copies[copy].id} on {_gpus(places[copy])}" for copy in pair)
        raise DoesNotFit(f"{strategy} puts {where}, which the constraints want {demand}")


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
            raise DoesNotFit(f"{strategy}: {name} has no layout for {_gpus(places[copy])}")
    for call, left in zip(problem.calls, part.problem.calls, strict=True):
        if call.options and not left.options:
            raise DoesNotFit(
                f"{strategy}: none of the {len(call.options)} settings of {call.id} is for the "
                "GPUs of its model"
            )
    return part


def _lies_on(pool: PoolSlice, option: CopyOption, span: Range) -> bool:
    inside = pool.first_gpu <= span.first and span.end <= pool.first_gpu + pool.num_gpus
    return inside and option.num_gpus == span.count


def _gpus(span: Range) -> str:
    return f"GPUs {span.first} to {span.end - 1}"
