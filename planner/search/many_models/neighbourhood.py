"""Large neighbourhood search: a plan's structure is kept except around a few models, and solved.

The structure is which of two copies lies below the other, and which of two calls on shared GPUs is
first. With all of it kept nothing is left but sizes, layouts and times: CP-SAT proves the best of
them in a blink. Freeing what concerns a few roles, drawn by chance, gives a little more; what is
shorter becomes the plan to go on from (Shaw, CP 1998; Pisinger and Ropke 2010).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import formulate
from automap.planner.search.model.problem import Problem, Range, Solution, chosen, copy_range
from automap.planner.search.model.solve import TICK_SECONDS, Budget, decode, run
from automap.planner.search.model.strengthening import only_values_of_options
from automap.planner.search.model.variables import Formulation, timed_nodes

FREED = 4
"""Roles that are freed at once."""
NEAR = 3
"""Sizes above and below its own that a copy may have while its role is kept."""
AT_ONCE = 2
"""Neighbourhoods that are solved at the same time, whatever the machine has: plans must repeat."""
TRIES = 500
TRY_SECONDS = 0.2
"""Deterministic seconds of one neighbourhood."""
BUILD_SECONDS = 0.03
"""What building and presolving its model counts as."""
STEP = 1e-3
"""What a plan must gain, as a share of its period."""
PRUNE = 1e-2
"""What is gained until options are dropped that are too slow by now."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A solution: where its copies lie, and when what on them starts."""

    problem: Problem
    solution: Solution
    ranges: dict[int, Range]
    """Per copy of the solution, where it lies; a shadow that is not used has none."""
    starts: list[float]
    """Seconds at which each call starts, then each weight sync."""
    owners: list[set[int]]
    """Copies on whose ranges they run; none for a sync that is not there."""

    @staticmethod
    def of(problem: Problem, solution: Solution) -> "Structure":
        """The structure of a solution."""
        assignment, timing = solution.assignment, solution.timing
        spans = [copy_range(problem, assignment, c) for c in range(len(problem.copies))]
        chosen_ = [chosen(problem, assignment, call) for call in range(len(problem.calls))]
        return Structure(
            problem,
            solution,
            {c: span for c, span in enumerate(spans) if span is not None},
            [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)],
            [
                *(set() if option is None else {option.copy} for option in chosen_),
                *(
                    set() if start is None else {sync.home, sync.shadow}
                    for sync, start in zip(problem.syncs, timing.sync_starts, strict=True)
                ),
            ],
        )

    @property
    def period(self) -> float:
        """Seconds of an iteration."""
        return self.solution.timing.period

    def share(self, one: int, other: int) -> bool:
        """True where two calls or syncs need a GPU both."""
        return any(
            self.ranges[a].overlaps(self.ranges[b])
            for a in self.owners[one] & self.ranges.keys()
            for b in self.owners[other] & self.ranges.keys()
        )


def improved(
    problem_within: Callable[[float], Problem],
    structure: Structure,
    *,
    bound_seconds: float,
    budget: Budget,
    near: int = NEAR,
    at_once: int = FREED,
    number: int = 0,
) -> list[Structure]:
    """Ever shorter structures that the neighbourhoods of one led to, itself first.

    `problem_within` gives the problem with the options that a period leaves; `at_once` roles are
    freed together. They may take any size, unless all stay even nearer to theirs than `NEAR`.
    Another `number` draws other roles.
    """
    draw = np.random.default_rng((budget.limits.seed, number))
    roles = sorted({copy.role for copy in structure.problem.copies})
    limit = structure.period
    problem, most = problem_within(limit), min(at_once, len(roles))
    found, freed = [structure], [set[str]()]
    for _ in range(TRIES):
        structure = found[-1]
        cutoff_seconds = structure.period * (1 - STEP)
        if budget.spent or cutoff_seconds <= bound_seconds:
            break
        tries = [(structure, each) for each in freed]
        shorter = shortest(
            problem,
            tries,
            cutoff_seconds=cutoff_seconds,
            budget=budget,
            near=near,
            most_seconds=TRY_SECONDS * 2.0 ** (at_once - FREED),
        )
        freed = [
            {roles[at] for at in draw.choice(len(roles), most, replace=False)}
            for _ in range(AT_ONCE)
        ]
        if shorter is None:
            continue
        found.append(shorter)
        if shorter.period < limit * (1 - PRUNE):
            limit = shorter.period
            problem = problem_within(limit)
    return found


def shortest(
    problem: Problem,
    tries: Sequence[tuple[Structure, set[str]]],
    *,
    cutoff_seconds: float,
    budget: Budget,
    near: int = NEAR,
    most_seconds: float = TRY_SECONDS,
) -> Structure | None:
    """The shortest solution with one of the structures, but for its freed roles; None: not found.

    They are solved at the same time, so the longest counts.
    """
    limits = replace(
        budget.rest(), deterministic_seconds=max(min(most_seconds, budget.left), 1e-3), gap=0.0
    )
    formulations = [_kept(problem, *each, cutoff_seconds, near) for each in tries]
    with ThreadPoolExecutor(len(formulations)) as pool:
        runs = [*pool.map(partial(run, limits=limits, large=True), formulations)]
    # The time of a presolve that the limit cut is not reported.
    taken = [
        limits.deterministic_seconds
        if done.status == cp_model.UNKNOWN
        else done.deterministic_seconds
        for done in runs
    ]
    budget.take(max(taken) + BUILD_SECONDS * len(runs))
    found = [
        Structure.of(formulation.problem, decode(formulation, done))
        for formulation, done in zip(formulations, runs, strict=True)
        if done.status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    ]
    return min(found, key=lambda each: each.period, default=None)


def _kept(
    problem: Problem, structure: Structure, freed: set[str], cutoff_seconds: float, near: int
) -> Formulation:
    """The model of a structure, but for the freed roles."""
    free = {c for c, copy in enumerate(problem.copies) if copy.role in freed}
    problem = _with_near_sizes(problem, structure, free if near >= NEAR else set(), near)
    formulation = formulate(problem, tick_seconds=TICK_SECONDS, cutoff_seconds=cutoff_seconds)
    only_values_of_options(formulation)
    _keep_ranges(formulation, structure, free)
    _keep_orders(formulation, structure, free)
    formulation.model.minimize(formulation.period)
    return formulation


def _with_near_sizes(problem: Problem, structure: Structure, free: set[int], near: int) -> Problem:
    """The problem in which copies that are there and not free keep about the size they have."""
    copies, positions = [], []
    for c, copy in enumerate(problem.copies):
        sizes = np.unique([option.num_gpus for option in copy.options])
        if len(sizes) and c in structure.ranges and c not in free:
            at = int(np.abs(sizes - structure.ranges[c].count).argmin())
            sizes = sizes[max(at - near, 0) : at + near + 1]
        wanted = set(sizes.tolist())
        kept = [n for n, option in enumerate(copy.options) if option.num_gpus in wanted]
        positions.append({old: new for new, old in enumerate(kept)})
        copies.append(replace(copy, options=tuple(copy.options[n] for n in kept)))
    calls = tuple(
        replace(
            call,
            options=tuple(
                replace(option, copy_option=positions[option.copy][option.copy_option])
                for option in call.options
                if option.copy_option in positions[option.copy]
            ),
        )
        for call in problem.calls
    )
    return replace(problem, copies=tuple(copies), calls=calls)


def _keep_ranges(formulation: Formulation, structure: Structure, free: set[int]) -> None:
    """Which shadows are there, and which of two disjoint copies is the lower one."""
    model, ranges = formulation.model, structure.ranges
    for copy, choice in enumerate(formulation.problem.copies):
        if copy not in free and choice.shadow_of is not None:
            model.add(formulation.copies[copy].present == int(copy in ranges))
    kept = ranges.keys() - free
    for one in kept:
        for other in kept:
            if ranges[one].end <= ranges[other].first:
                model.add(formulation.copies[one].end <= formulation.copies[other].first)


def _keep_orders(formulation: Formulation, structure: Structure, free: set[int]) -> None:
    """Which of two calls or syncs on shared GPUs is first."""
    nodes, starts = timed_nodes(formulation), structure.starts
    kept = [node for node, copies in enumerate(structure.owners) if not copies & free]
    for one in kept:
        for other in kept:
            first = (starts[one], one) < (starts[other], other)
            if first and structure.share(one, other):
                formulation.model.add(nodes[one].end <= nodes[other].start)
