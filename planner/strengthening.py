"""Redundant constraints: every solution satisfies them, and they raise the bound that is proven.

At any moment the calls that run lie on disjoint GPUs of a pool with N GPUs. So for every dual
feasible function f (Σ n_i ≤ N implies Σ f(n_i) ≤ 1) the weighted lengths Σ f(n_k) d_k of calls that
must all run inside a stretch of time are at most that stretch. f(n) = n/N is the area bound; with

    f_q(n) = n/N where (q + 1) n/N is whole, else ⌊(q + 1) n/N⌋ / q

f_1 says that calls on more than half of the pool run one after another (Fekete and Schepers 2001).
In a cyclic schedule every GPU's load is at most P, so the calls of one copy, and of two copies that
share a GPU, sum to at most P; and along every path v → … → u closed by an edge (u, v, δ), the
durations sum to at most δ P. Stretches under the barrier: from the end of u to the start of v for the calls between u and v,
from 0 to v for its ancestors, from u to P for its descendants, and P for all.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.formulation import Formulation

FUNCTIONS = (0, 1, 2, 3)
"""0 is the area bound, q ≥ 1 is f_q."""


def dual_feasible_weight(function: int, count: int, total: int) -> int:
    """f(count) × total × max(function, 1) as a whole number; see the module's head."""
    scale = max(function, 1)
    if function == 0 or (function + 1) * count % total == 0:
        return count * scale
    return total * ((function + 1) * count // total)


def strengthen(formulation: Formulation) -> None:
    """Add the redundant constraints to a model."""
    calls = range(len(formulation.calls))
    parts = [_parts(formulation, call) for call in calls]
    _weighted_lengths(formulation, parts, calls, None, None)
    _gpus_over_time(formulation)
    if formulation.problem.barrier:
        _stretches(formulation, parts)
    else:
        _loads(formulation)
        _cycles(formulation)


def reachable(formulation: Formulation) -> list[set[int]]:
    """For every call the calls that must start after its end, within the iteration."""
    count = len(formulation.calls)
    following: list[set[int]] = [set() for _ in range(count)]
    for edge in formulation.problem.precedences:
        if edge.distance == 0:
            following[edge.source].add(edge.target)
    for _ in range(count):
        for call in range(count):
            following[call] |= {later for after in following[call] for later in following[after]}
    return following


def _stretches(formulation: Formulation, parts: "list[list[_Part]]") -> None:
    after = reachable(formulation)
    calls = range(len(formulation.calls))
    before = [{u for u in calls if v in after[u]} for v in calls]
    for u in calls:
        _weighted_lengths(formulation, parts, after[u], u, None)
        _weighted_lengths(formulation, parts, before[u], None, u)
        for v in after[u]:
            _weighted_lengths(formulation, parts, after[u] & before[v], u, v)


def _weighted_lengths(
    formulation: Formulation,
    parts: "list[list[_Part]]",
    calls: Iterable[int],
    source: int | None,
    target: int | None,
) -> None:
    """Σ f(n_k) d_k over `calls` ≤ the stretch from the end of source to the start of target."""
    of_calls = [part for call in calls for part in parts[call]]
    stretch: cp_model.LinearExprT
    stretch = formulation.period if target is None else formulation.calls[target].start
    if source is not None:
        stretch = stretch - formulation.calls[source].end
    for index, pool in enumerate(formulation.problem.pools):
        here = [part for part in of_calls if part.pool == index]
        seen: set[tuple[float, ...]] = set()
        for function in FUNCTIONS if here else ():
            weights = [dual_feasible_weight(function, part.count, pool.num_gpus) for part in here]
            total = pool.num_gpus * max(function, 1)
            shares = tuple(weight / total for weight in weights)
            if shares in seen or not any(weights):
                continue
            seen.add(shares)
            divisor = math.gcd(total, *weights)
            length = cp_model.LinearExpr.weighted_sum(
                [part.ticks for part in here], [weight // divisor for weight in weights]
            )
            formulation.model.add(length <= total // divisor * stretch)


@dataclass(frozen=True, slots=True)
class _Part:
    """The ticks of a call if it runs on ranges of one size in one pool, otherwise 0."""

    pool: int
    count: int
    ticks: cp_model.IntVar


def _parts(formulation: Formulation, call: int) -> list[_Part]:
    """One variable per size keeps the cuts short: they have a term per size, not per option."""
    groups: dict[tuple[int, int], list[tuple[cp_model.IntVar, int]]] = defaultdict(list)
    options = formulation.problem.calls[call].options
    variables = formulation.calls[call]
    for option, take in zip(options, variables.takes, strict=True):
        copy = formulation.problem.copies[option.copy].options[option.copy_option]
        groups[copy.pool, copy.num_gpus].append((take, formulation.ticks(option.seconds)))
    if len(groups) == 1:
        (pool, count), _ = groups.popitem()
        return [_Part(pool, count, variables.duration)]
    parts = []
    for (pool, count), terms in groups.items():
        ticks = formulation.model.new_int_var(0, max(t for _, t in terms), "")
        literals, values = zip(*terms, strict=True)
        formulation.model.add(ticks >= cp_model.LinearExpr.weighted_sum(literals, values))
        parts.append(_Part(pool, count, ticks))
    return parts


def _gpus_over_time(formulation: Formulation) -> None:
    """A Cumulative over time: the GPUs of calls that run at once are at most all GPUs."""
    if not formulation.problem.barrier:
        return
    model, intervals, demands = formulation.model, [], []
    for call in formulation.calls:
        for copy, bound in call.bound.items():
            intervals.append(
                model.new_optional_interval_var(call.start, call.duration, call.end, bound, "")
            )
            demands.append(formulation.copies[copy].count)
    model.add_cumulative(intervals, demands, formulation.axis)


def _loads(formulation: Formulation) -> None:
    """Σ d_k over the calls of a copy, or of two that overlap, ≤ P; syncs load both their copies."""
    loads = [_load(formulation, copy) for copy in range(len(formulation.copies))]
    for one, load in enumerate(loads):
        formulation.model.add(load <= formulation.period)
        for other in range(one):
            # A sync is in both loads, but runs once where its copies share GPUs.
            twice = cp_model.LinearExpr.sum(_syncs_of(formulation, one, other))
            _shared_load(formulation, one, other, load + loads[other] - twice)


def _shared_load(
    formulation: Formulation, one: int, other: int, load: cp_model.LinearExprT
) -> None:
    """Either two copies lie apart, or one is absent, or their load is at most P."""
    model = formulation.model
    first, second = formulation.copies[one], formulation.copies[other]
    before, after, shared = (model.new_bool_var("") for _ in range(3))
    model.add_bool_or([before, after, shared])
    model.add(first.end <= second.first).only_enforce_if(before)
    model.add(second.end <= first.first).only_enforce_if(after)
    model.add(load <= formulation.period).only_enforce_if([shared, first.present, second.present])


def _syncs_of(formulation: Formulation, *copies: int) -> list[cp_model.IntVar]:
    """Loads of the syncs that touch all the given copies."""
    return [
        variables.load
        for sync, variables in zip(formulation.problem.syncs, formulation.syncs, strict=True)
        if {*copies} <= {sync.home, sync.shadow}
    ]


def _load(formulation: Formulation, copy: int) -> cp_model.LinearExpr:
    variables, weights = [*_syncs_of(formulation, copy)], [1] * len(_syncs_of(formulation, copy))
    for call, chosen in zip(formulation.problem.calls, formulation.calls, strict=True):
        for option, take in zip(call.options, chosen.takes, strict=True):
            if option.copy == copy:
                variables.append(take)
                weights.append(formulation.ticks(option.seconds))
    return cp_model.LinearExpr.weighted_sum(variables, weights)


def _cycles(formulation: Formulation) -> None:
    """Σ d along v → … → u ≤ δ P for every edge (u, v, δ), through the sync where there is one."""
    model, problem, period = formulation.model, formulation.problem, formulation.period
    for edge in problem.precedences:
        if edge.distance > 0:
            for path in _paths(formulation, edge.target, edge.source):
                model.add(_length(formulation, path) <= edge.distance * period)
    for sync, variables in zip(problem.syncs, formulation.syncs, strict=True):
        for index, call in enumerate(formulation.calls):
            bound = call.bound.get(sync.shadow)
            if bound is None:
                continue
            for path in _paths(formulation, index, sync.train):
                length = _length(formulation, path) + variables.load
                model.add(length <= sync.distance * period).only_enforce_if(bound)


def _length(formulation: Formulation, path: list[int]) -> cp_model.LinearExpr:
    return cp_model.LinearExpr.sum([formulation.calls[call].duration for call in path])


def _paths(formulation: Formulation, source: int, target: int) -> list[list[int]]:
    """The paths from one call to another inside an iteration; at most 64, enough for any program."""
    found: list[list[int]] = []
    open_paths = [[source]]
    while open_paths and len(found) < 64:
        path = open_paths.pop()
        if path[-1] == target:
            found.append(path)
            continue
        open_paths += [
            [*path, edge.target]
            for edge in formulation.problem.precedences
            if edge.distance == 0 and edge.source == path[-1]
        ]
    return found
