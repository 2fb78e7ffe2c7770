"""Why this plan and no other: solved alternatives, sensitivity, regret."""

import time

from automap.planner.check.trust import need_sound
from automap.planner.explanation.alternatives import Alternatives
from automap.planner.explanation.locating import locate, timing_of
from automap.planner.explanation.questions import questions
from automap.planner.explanation.regret import regret_of
from automap.planner.explanation.result import ExplainOptions, Explanation
from automap.planner.explanation.sensitivity import sensitivities
from automap.planner.explanation.solving import Contenders
from automap.planner.explanation.study import Study, TableCache, with_own_margin
from automap.planner.plan.types import Plan
from automap.planner.search import Selected

LEAST_MARGIN = 0.001
"""Another plan wins only if it is better by more than this share, and than the plan's own gap: ties
and the last digits of prices are no reason to move."""


def explain(
    plan: Plan, options: ExplainOptions | None = None, *, tables: TableCache | None = None
) -> Explanation:
    """Answer for a plan of the search, of a strategy, or of a placement of the caller's own.

    The tables of its job are priced once, and kept in `tables` for the next question.

    Raises:
        PlanCheckError: the plan contradicts itself or the prices of its job.
        SpecError: the plan's spec is not one of this version.
    """
    need_sound(plan)
    plan = with_own_margin(plan)
    options = options or ExplainOptions()
    parts, search_seconds = options.parts, options.search_seconds
    started = time.perf_counter()
    tables = tables or TableCache()
    given, selected = open_plan(plan, tables)
    margin = max(LEAST_MARGIN, plan.relative_gap)
    answers = []
    alternatives = Alternatives(given, plan, selected, seconds=search_seconds, tables=tables)
    if "alternatives" in parts:
        for question in questions(given, selected, fewer_gpus=options.fewer_gpus):
            answers.append(alternatives.answer(question))
    contenders = Contenders(alternatives.given, selected)
    for found in alternatives.found:
        contenders.add(found)
    return Explanation(
        name=plan.name,
        objective=plan.spec.search.objective,
        iteration_seconds=plan.iteration_seconds,
        objective_value=plan.search.objective_value,
        idle_share=alternatives.bill.idle_share,
        margin=margin,
        alternatives=answers,
        sensitivity=sensitivities(contenders, plan, margin=margin, search_seconds=search_seconds)
        if "sensitivity" in parts
        else [],
        regret=regret_of(
            contenders, scenarios=options.scenarios, margin=margin, search_seconds=search_seconds
        )
        if "regret" in parts
        else None,
        explained_in_seconds=time.perf_counter() - started,
    )


def open_plan(plan: Plan, tables: TableCache) -> tuple[Study, Selected]:
    """The priced job of a plan, and the plan by its rows."""
    given = tables.study(plan.spec)
    return locate(given, plan.placement(), timing_of(given, plan))
