"""The linear relaxation of the relaxed problem: a lower bound on the period for all sizes at once.

Copies and calls may mix their options, x_co, z_kj ∈ [0, 1]; of time and GPUs the precedences and
the weighted lengths of bounds.py are kept:

    d_k = Σ_j d_j z_kj,  w_kq = Σ_j w_jq z_kj,  Σ_j z_kj = 1,  Σ_{j of o} z_kj ≤ x_co
    s_v ≥ s_u + d_u  along edges,  Σ_{k inside a stretch} w_kq ≤ its length,  s_k + d_k ≤ P → min

Here a call pays for its speed with GPU-seconds, which bounds.py cannot see: it takes the least of
either. No scenario is told apart. Sections of time (sections.py) say when the GPU-seconds are
there.
"""

from collections import defaultdict
from dataclasses import dataclass

from automap.planner.layout import FloatArray
from automap.planner.search.many_models.linear_program import LinearProgram
from automap.planner.search.many_models.sections import Part, Program, Timed, cut, exclude
from automap.planner.search.model.bounds import Bounds
from automap.planner.search.model.problem import Problem

ROUNDS = 10
"""How often rows that the solution violates are added, where the bound is what counts."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An optimum of the linear relaxation."""

    bound_seconds: float
    """No solution with a period of at most the horizon has a shorter one."""
    starts: FloatArray
    """Per call."""
    shares: list[FloatArray]
    """Per copy: how much of each option is taken."""


def relax(problem: Problem, *, horizon_seconds: float, rounds: int = ROUNDS) -> Relaxation:
    """The linear relaxation of a problem with a barrier, for periods of at most the horizon.

    Rows that the solution violates are added up to `rounds` times.
    """
    assert problem.barrier, "phases of a cyclic schedule have no stretches"
    bounds, linear = Bounds(problem), LinearProgram()
    (period,) = linear.variables(1, horizon_seconds)
    starts = linear.variables(len(problem.calls), horizon_seconds)
    copies = [linear.variables(len(copy.options), 1.0) for copy in problem.copies]
    program = Program(linear, bounds, horizon_seconds, period, copies)
    _choose(linear, problem, copies)
    weights = []
    for call in bounds.calls:
        timed, of_call = _call(program, call, starts[call])
        program.calls.append(timed)
        weights.append(of_call)
    for edge in problem.precedences:
        if edge.distance == 0:
            source = program.calls[edge.source]
            before = {source.start: -1.0} if edge.streamed else source.until_end()
            linear.at_least({starts[edge.target]: 1.0, **before}, 0.0)
    for timed in program.calls:
        linear.at_least({period: 1.0, **timed.until_end()}, 0.0)
    for (first, last), inside in bounds.stretches.items():
        length = {period if last is None else starts[last]: 1.0}
        length |= {} if first is None else program.calls[first].until_end()
        for column in zip(*(weights[call] for call in inside), strict=True):
            linear.at_least({**length, **dict.fromkeys(column, -1.0)}, 0.0)
    beside = cut(program)
    bound, values = linear.solve()
    for _ in range(rounds):
        if not values.any() or not exclude(program, beside, values):
            break
        again, values = linear.solve()
        bound = max(bound, again)
    return Relaxation(bound, values[list(starts)], [values[list(takes)] for takes in copies])


def _choose(linear: LinearProgram, problem: Problem, copies: list[range]) -> None:
    """A home takes one option, a shadow at most one."""
    for copy, takes in zip(problem.copies, copies, strict=True):
        if takes and copy.shadow_of is None:
            linear.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
        elif takes:
            linear.at_least(dict.fromkeys(takes, -1.0), -1.0)


def _call(program: Program, call: int, start: int) -> tuple[Timed, range]:
    """A call, and the variables of its weights, tied to the copies' options."""
    linear, bounds = program.linear, program.bounds
    choice = bounds.problem.calls[call]
    (seconds,) = linear.variables(1, program.horizon_seconds)
    minimum = bounds.minimum(call, list(choice.options))
    weights = linear.variables(len(minimum.weights), 2.0 * program.horizon_seconds)
    if not choice.options:
        (whole,) = linear.variables(1, 1.0)
        linear.at_least({whole: 1.0}, 1.0, equal=True)
        linear.at_least({seconds: 1.0, whole: -choice.fixed_seconds}, 0.0, equal=True)
        return Timed(start, seconds, [Part(whole, choice.fixed_seconds)]), weights
    takes = linear.variables(len(choice.options), 1.0)
    linear.at_least(dict.fromkeys(takes, 1.0), 1.0, equal=True)
    settings: dict[tuple[int, int], list[int]] = defaultdict(list)
    parts, columns, synced = [], [], {}
    for option, take in zip(choice.options, takes, strict=True):
        settings[option.copy, option.copy_option].append(take)
        on = bounds.problem.copies[option.copy].options[option.copy_option]
        parts.append(Part(take, option.seconds, option.copy, on.pool, on.num_gpus))
        columns.append(bounds.weights(call, option))
        if bounds.seconds(call, option) > option.seconds:
            synced[take] = option.seconds - bounds.seconds(call, option)
    for (copy, number), mine in settings.items():
        linear.at_least({program.copies[copy][number]: 1.0, **dict.fromkeys(mine, -1.0)}, 0.0)
    linear.at_least(
        {seconds: 1.0, **{each.takes: -each.seconds for each in parts}}, 0.0, equal=True
    )
    for variable, values in zip(weights, zip(*columns, strict=True), strict=True):
        terms = {take: -value for take, value in zip(takes, values, strict=True) if value}
        linear.at_least({variable: 1.0, **terms}, 0.0)
    if synced:  # nothing but the weight sync can come before the call
        linear.at_least({start: 1.0, **synced}, 0.0)
    return Timed(start, seconds, parts), weights
