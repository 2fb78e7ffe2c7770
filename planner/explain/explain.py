"""Why this plan and no other: solved alternatives, sensitivity, regret."""

import time

from planner.check.trust import need_sound
from planner.explain.alternatives import Alternatives
from planner.explain.locating import located, timing_of
from planner.explain.questions import questions
from planner.explain.regret import regret_of
from planner.explain.result import ExplainOptions, Explanation
from planner.explain.sensitivity import sensitivities
from planner.explain.solving import Pool
from planner.explain.study import Study, study
from planner.result import Plan
from planner.search.selected import Selected

LEAST_MARGIN = 0.001
"""Another plan wins only if it is better by more than this share, and than the plan's own gap: ties
and the last digits of prices are no reason to move."""


def explain(plan: Plan, options: ExplainOptions | None = None) -> Explanation:
    """Answer for a plan of the search, of a strategy, or of a placement of the caller's own.

    The tables of its job are priced once and kept for the next question.

    Raises:
        PlanCheckError: the plan contradicts itself or the prices of its job.
        SpecError: the plan's spec is not one of this version.
    """
    need_sound(plan)
    options = options or ExplainOptions()
    parts, search_seconds = options.parts, options.search_seconds
    started = time.perf_counter()
    given, selected = opened(plan)
    margin = max(LEAST_MARGIN, plan.relative_gap)
    answers = []
    alternatives = Alternatives(given, plan, selected, seconds=search_seconds)
    if "alternatives" in parts:
        for question in questions(given, selected, fewer_gpus=options.fewer_gpus):
            answers.append(alternatives.answer(question))
    pool = Pool(alternatives.given, selected)
    for found in alternatives.found:
        pool.add(found)
    return Explanation(
        name=plan.name,
        objective=plan.spec.search.objective,
        iteration_seconds=plan.iteration_seconds,
        objective_value=plan.search.objective_value,
        idle_share=alternatives.bill.idle_share,
        margin=margin,
        alternatives=answers,
        sensitivity=sensitivities(pool, plan, margin=margin, search_seconds=search_seconds)
        if "sensitivity" in parts
        else [],
        regret=regret_of(
            pool, scenarios=options.scenarios, margin=margin, search_seconds=search_seconds
        )
        if "regret" in parts
        else None,
        explained_in_seconds=time.perf_counter() - started,
    )


def opened(plan: Plan) -> tuple[Study, Selected]:
    """The priced job of a plan, and the plan by its rows."""
    given = study(plan.spec)
    return located(given, plan.placement(), timing_of(given, plan))
