"""Search: CP-SAT on the formulation, exact seconds, and a bound that holds despite rounding."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import formulate
from automap.planner.search.model.problem import (
    Assignment,
    CallChoice,
    CopyChoice,
    Problem,
    Solution,
    chosen,
)
from automap.planner.search.model.strengthening import strengthen
from automap.planner.search.model.timing import exact_timing
from automap.planner.search.model.variables import Formulation, timed_nodes
from automap.planner.search.proven import Proven

TICK_SECONDS = 1e-6
"""Prices are whole microseconds, so ticks lose nothing: the proven gap is 0, not 1e-4."""
MOST_TICKS = 10**12
"""Longer periods get coarser ticks, so that GPUs × ticks stay far inside 64 bits."""
FIRST_LIMIT_SECONDS = 0.5
"""Deterministic seconds of the first try of a run that restarts."""
DETERMINISTIC_PER_SECOND = 0.45
"""Deterministic seconds that a search spends per second of a limit that counts work, about what a
2020s core does: such a search repeats even where it is cut."""
MOST_DETERMINISTIC_PER_SECOND = 4.0
"""Deterministic seconds per second that no core reaches: with them only the clock ends a search."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to search, in the solver's deterministic seconds, and with what seed."""

    deterministic_seconds: float = 30.0 * DETERMINISTIC_PER_SECOND
    seed: int = 0
    gap: float = 0.0
    """A period that is shorter by no more than this share of the best one is not looked for."""
    deadline: float = inf
    """Reading of time.perf_counter at which to end; without one, the work alone is counted."""

    @staticmethod
    def within(time_limit_seconds: float, *, seed: int, gap: float = 0.0) -> "Limits":
        """Limits of the work that about so many seconds are enough for."""
        return Limits(time_limit_seconds * DETERMINISTIC_PER_SECOND, seed, gap)

    @staticmethod
    def until(deadline: float, *, seed: int, gap: float = 0.0) -> "Limits":
        """Limits of the clock, whatever work is done until then."""
        seconds = max(deadline - time.perf_counter(), 1e-3)
        return Limits(seconds * MOST_DETERMINISTIC_PER_SECOND, seed, gap, deadline)

    @property
    def clock_seconds(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return self.deadline - time.perf_counter()

    def part(self, share: float) -> "Limits":
        """Limits of so large a share of the work, and of the time until the deadline."""
        deadline = self.deadline
        if deadline < inf:
            deadline = time.perf_counter() + share * max(self.clock_seconds, 0.0)
        work = share * self.deterministic_seconds
        return replace(self, deterministic_seconds=work, deadline=deadline)


class Budget:
    """What is left of a search's limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.deterministic_seconds
        """Deterministic seconds of work."""

    @property
    def likely_left(self) -> float:
        """Deterministic seconds that a usual core gets done until the deadline, or all that are."""
        return min(self.left, DETERMINISTIC_PER_SECOND * max(self.limits.clock_seconds, 0.0))

    @property
    def spent(self) -> bool:
        """True when nothing is left, of work or of time."""
        return self.left <= 0 or self.limits.clock_seconds <= 0

    @contextmanager
    def share(self, part: float) -> Iterator[None]:
        """Inside, only such a part of what is left may be used; the rest is there again after."""
        kept, whole = (1.0 - part) * self.left, self.limits
        self.left, self.limits = self.left - kept, whole.part(part)
        yield
        self.left, self.limits = self.left + kept, whole

    def rest(self) -> Limits:
        """Limits for the next solver run."""
        return replace(self.limits, deterministic_seconds=max(self.left, 1e-3))

    def take(self, seconds: float) -> None:
        """Count what a run has used."""
        self.left -= seconds


def run_restarting(
    formulation: Formulation,
    budget: Budget,
    *,
    first_limit_seconds: float = FIRST_LIMIT_SECONDS,
    large: bool = False,
    after: int = 0,
    tries: int | None = None,
) -> "Run":
    """Run CP-SAT with another seed and twice the limit until it is done or the budget is spent.

    Times to a proof are heavy-tailed: most seeds take a blink, a few a minute. `tries` ends it
    after so many runs, and `after` as many were made before.
    """
    limit, seed = first_limit_seconds * 2.0**after, budget.limits.seed + after
    for number in itertools.count(1):
        limits = replace(
            budget.limits, seed=seed, deterministic_seconds=max(min(limit, budget.left), 1e-3)
        )
        done = replace(run(formulation, limits, large=large), tries=number)
        budget.take(done.deterministic_seconds)
        is_done = done.status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        if is_done or budget.spent or number == tries:
            break
        limit, seed = 2.0 * limit, seed + 1
    return done


def minimise_period(
    problem: Problem,
    *,
    limits: Limits,
    cutoff_seconds: float,
    ranges: tuple[int | None, ...] | None = None,
) -> Proven[Solution]:
    """Least period of at most `cutoff_seconds`, proven unless the limit ends the search.

    Rounding to ticks is subtracted from the bound. A cutoff far above the period has coarse ticks,
    so what is found is then the cutoff of a search with finer ones.

    `ranges` fixes the first GPU of every copy that has one.
    """
    found = _within(problem, limits, cutoff_seconds, ranges)
    if found.solution is None or cutoff_seconds <= MOST_TICKS * TICK_SECONDS:
        return found
    left = limits.deterministic_seconds - found.deterministic_seconds
    if left <= 0:
        return replace(found, is_proven=False)
    rest = replace(limits, deterministic_seconds=left)
    finer = _within(problem, rest, found.solution.timing.period, ranges)
    return Proven(
        finer.solution or found.solution,
        max(finer.lower_bound, found.lower_bound),
        finer.is_proven,
        found.deterministic_seconds + finer.deterministic_seconds,
    )


def _within(
    problem: Problem,
    limits: Limits,
    cutoff_seconds: float,
    ranges: tuple[int | None, ...] | None,
) -> Proven[Solution]:
    """`minimise_period` with the ticks that its cutoff allows."""
    tick = max(TICK_SECONDS, cutoff_seconds / MOST_TICKS)
    formulation = formulate(problem, tick_seconds=tick, cutoff_seconds=cutoff_seconds)
    strengthen(formulation)
    formulation.model.minimize(formulation.period)
    if ranges is not None:
        fix_ranges(formulation, ranges)
    budget = Budget(limits)
    solver = run_restarting(formulation, budget)
    used = limits.deterministic_seconds - budget.left
    status = solver.status
    proven = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if status == cp_model.INFEASIBLE:
        # A period just within the cutoff may be beyond it once its seconds are whole ticks.
        hidden = rounding_seconds(formulation) if tick > TICK_SECONDS else 0.0
        return Proven(None, max(cutoff_seconds - hidden, 0.0), True, used)
    bound = max(solver.best_objective_bound * tick - rounding_seconds(formulation), 0.0)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Proven(None, bound, False, used)
    solution = decode(formulation, solver)
    # Exact times may reach the bound where the solver's own rough period has not yet.
    proven |= solution.timing.period - bound < tick / 2
    return Proven(solution, bound, proven, used)


def canonical_solution(
    problem: Problem, *, limits: Limits, period_seconds: float
) -> Solution | None:
    """The canonical one of the solutions with a period of at most `period_seconds`.

    It has the fewest GPUs over all copies, then the least sum of first GPUs, then the least sum of
    option numbers: one weighted sum, in which each outweighs those after it. The solver has one
    worker, so that chance has no part in it. None where the limits end the search first.
    """
    tick = max(TICK_SECONDS, period_seconds / MOST_TICKS)
    formulation = formulate(problem, tick_seconds=tick, cutoff_seconds=period_seconds)
    strengthen(formulation)
    formulation.model.minimize(_tie_sum(formulation))
    done = run_restarting(formulation, Budget(limits))
    if done.status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return decode(formulation, done)


def _tie_sum(formulation: Formulation) -> cp_model.LinearExpr:
    copies = formulation.copies
    every = [copy.takes for copy in copies] + [call.takes for call in formulation.calls]
    most_numbers = sum(map(len, every)) + 1
    most_firsts = (formulation.axis + 1) * len(copies)
    terms: list[cp_model.LinearExprT] = []
    for copy, choice in zip(copies, formulation.problem.copies, strict=True):
        sizes = [option.num_gpus // formulation.unit for option in choice.options]
        weight = most_firsts * most_numbers
        terms.append(cp_model.LinearExpr.weighted_sum(copy.takes, [weight * n for n in sizes]))
        terms.append(copy.first * most_numbers)
    for takes in every:
        terms.append(cp_model.LinearExpr.weighted_sum(takes, list(range(len(takes)))))
    return cp_model.LinearExpr.sum(terms)


def fix_ranges(formulation: Formulation, first_gpus: tuple[int | None, ...]) -> None:
    """Pin every copy's first GPU."""
    for copy, first in zip(formulation.copies, first_gpus, strict=True):
        if first is not None:
            formulation.model.add(copy.first == first // formulation.unit)


def rounding_seconds(formulation: Formulation) -> float:
    """What rounding up to ticks can add to a period: the most of every call and sync, summed."""
    problem, tick = formulation.problem, formulation.tick_seconds

    def most(values: list[float]) -> float:
        return max((formulation.ticks(value) * tick - value for value in values), default=0.0)

    calls = [
        most([option.seconds for option in call.options] or [call.fixed_seconds])
        + most([ready for option in call.options for ready in option.chunk_ready_seconds])
        + most(
            [option.tail.main_phase_seconds for option in call.options if option.tail is not None]
        )
        for call in problem.calls
    ]
    # A lag is rounded up to a tick once more.
    lags = tick * sum(edge.streamed for edge in problem.precedences) if tick > TICK_SECONDS else 0.0
    syncs = [
        most([o.sync_seconds for c in (s.home, s.shadow) for o in problem.copies[c].options])
        for s in problem.syncs
    ]
    return max(sum(calls) + sum(syncs) + lags, 0.0)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished solver."""

    status: cp_model.CpSolverStatus
    solver: cp_model.CpSolver
    tries: int = 1
    """The number of the run among those with other seeds."""

    @property
    def best_objective_bound(self) -> float:
        """Proven bound in ticks."""
        return self.solver.best_objective_bound

    @property
    def deterministic_seconds(self) -> float:
        """Work done, in the solver's own unit: the same on every machine."""
        return self.solver.response_proto.deterministic_time


def run(formulation: Formulation, limits: Limits, *, large: bool = False) -> Run:
    """Run CP-SAT: deterministic for the same model, seed, workers and limit."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    # One worker: these models are small, and a single thread repeats exactly.
    parameters.num_workers = 1
    parameters.random_seed = limits.seed
    parameters.max_deterministic_time = limits.deterministic_seconds
    # Without a deadline work decides; the clock only guards against a stalled machine.
    parameters.max_time_in_seconds = max(
        min(10.0 + 20.0 * limits.deterministic_seconds, limits.clock_seconds), 1e-3
    )
    parameters.relative_gap_limit = 0.0
    # Probing and repeated presolve cost more than they save on models that are already pruned.
    parameters.cp_model_probing_level = 0
    parameters.max_presolve_iterations = 1
    parameters.symmetry_level = 0
    parameters.find_big_linear_overlap = False
    parameters.cp_model_use_sat_presolve = False
    if not formulation.problem.barrier:
        # Around a cycle bounds creep by ticks; the linear relaxation adds the cycle up at once.
        parameters.linearization_level = 2
    if large:
        # On a model of hundreds of options this work pays for itself many times.
        parameters.cp_model_use_sat_presolve = True
        shadows = any(c.shadow_of is not None and c.options for c in formulation.problem.copies)
        if formulation.problem.barrier and not shadows:
            # Its linear relaxation is large and says little; with a weight sync it says enough.
            parameters.linearization_level = 0
    elif limits.deterministic_seconds <= FIRST_LIMIT_SECONDS:
        # Most runs are over in milliseconds: more of presolve, and cuts, pay where they are not.
        parameters.presolve_inclusion_work_limit = 0
        parameters.auto_detect_greater_than_at_least_one_of = False
        parameters.cut_level = 0
    status = solver.solve(formulation.model)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"invalid model: {formulation.model.validate()}")
    return Run(status, solver)


def decode(formulation: Formulation, run: Run) -> Solution:
    """The solver's choices with exact seconds."""
    problem, solver = formulation.problem, run.solver

    def taken(literals: list[cp_model.IntVar]) -> int | None:
        return next((i for i, literal in enumerate(literals) if solver.value(literal)), None)

    options = tuple(taken(copy.takes) for copy in formulation.copies)
    firsts = tuple(
        None if option is None else solver.value(copy.first) * formulation.unit
        for option, copy in zip(options, formulation.copies, strict=True)
    )
    calls = tuple(taken(call.takes) for call in formulation.calls)
    assignment = Assignment(options, firsts, calls)
    timed = timed_nodes(formulation)
    starts = [float(solver.value(node.start)) for node in timed]
    stages = [0 if node.stage is None else solver.value(node.stage) for node in timed]
    return Solution(assignment, exact_timing(problem, assignment, starts, stages))


def pinned(problem: Problem, assignment: Assignment) -> Problem:
    """The problem with everything but the times fixed: one option for every copy and call."""
    copies, calls = [], []
    for copy, option in zip(problem.copies, assignment.copy_options, strict=True):
        options = () if option is None else (copy.options[option],)
        copies.append(CopyChoice(copy.id, copy.role, copy.shadow_of, options))
    for index, call in enumerate(problem.calls):
        choice = chosen(problem, assignment, index)
        options_of_call = () if choice is None else (replace(choice, copy_option=0),)
        calls.append(CallChoice(call.id, options_of_call, call.fixed_seconds))
    return replace(problem, copies=tuple(copies), calls=tuple(calls))
