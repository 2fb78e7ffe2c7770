"""Keep the running plan, or move? With measured seconds, or on a changed cluster.

Measured seconds correct the prices of their role and kind of call in every option; nothing is
priced again. The search begins with the running plan: first on ranges as large as its own, then
among everything that is better by more than a margin. It ends by a proof or by its limit.
"""

import time

from automap.planner.check.trust import need_sound
from automap.planner.explanation.factors import scaled
from automap.planner.explanation.study import TableCache, with_own_margin
from automap.planner.plan.types import Plan
from automap.planner.replanning.answer import answer_of
from automap.planner.replanning.cluster_state import (
    changed_spec,
    cluster_state_of,
    correction_factors,
    corrections_of,
)
from automap.planner.replanning.result import Replan, ReplanOptions
from automap.planner.replanning.warm_search import MARGIN, floor_of, search_warm
from automap.planner.search import Limits
from automap.planner.spec import WorkloadSpec


def replan(plan: Plan, options: ReplanOptions, *, tables: TableCache | None = None) -> Replan:
    """Keep or move, with gain, cost and break-even.

    Nothing is priced of which `tables` still has the tables.

    Raises:
        PlanCheckError: the plan contradicts itself or the prices of its job.
        SpecError: a call, pool or number of nodes that the plan does not have.
        InfeasibleError: no placement fits on what is left of the cluster.
    """
    started = time.perf_counter()
    need_sound(plan)
    plan = with_own_margin(plan)
    corrections = corrections_of(plan, options)
    spec = changed_spec(plan.spec, options)
    state = cluster_state_of(plan, spec, options, tables or TableCache())
    factors = correction_factors(state.study, corrections)
    now = scaled(state.study, factors)
    limits = Limits.within(options.search_seconds, seed=plan.spec.search.seed)
    floor = floor_of(plan, state, corrections)
    found = search_warm(now, state, factors, limits, floor)
    objective = plan.spec.search.objective
    common = {
        "keep_seconds": found.keep_seconds,
        "lower_bound_seconds": found.lower_bound if objective == "throughput" else None,
        "proven": found.is_proven,
        "margin": MARGIN,
        "iterations_left": _iterations_left(spec.workload, options),
        "corrections": corrections,
        "tables_kept": state.tables_kept,
        "replanned_in_seconds": 0.0,
    }
    answer = answer_of(plan, options, state, now, found, common)
    seconds = time.perf_counter() - started
    return answer.model_copy(update={"replanned_in_seconds": seconds})


def _iterations_left(workload: WorkloadSpec, options: ReplanOptions) -> int | None:
    """Iterations left by request or spec; None where neither says.

    A spec that gives no number has 1, and a run of one iteration is not worth the question.
    """
    given = options.iterations_left
    return given or (workload.iterations if workload.iterations > 1 else None)
