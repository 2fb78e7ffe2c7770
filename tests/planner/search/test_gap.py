"""search.optimality_gap: the search stops early, and the plan says what is proven."""

from math import inf

import pytest
from pydantic import ValidationError
from rich.console import Console

from automap.planner.explanation.solving import best_within, limits_of
from automap.planner.explanation.study import study
from automap.planner.planning import make_plan
from automap.planner.spec import SearchSpec
from automap.planner.studies.pareto import pareto
from automap.service.cli.plan.details import totals
from automap.service.cli.plan.headline import headline
from tests.helpers.small_jobs import small_job


@pytest.mark.parametrize("objective", ["throughput", "price"])
def test_a_plan_within_the_gap_claims_no_more(objective: str) -> None:
    changes = {"search__objective": objective}
    best = make_plan(small_job(num_nodes=2, **changes))
    plan = make_plan(small_job(num_nodes=2, **changes, search__optimality_gap=0.2))
    assert best.search.status == "optimal"
    assert plan.search.status == "feasible"
    assert 0 < plan.relative_gap <= 0.2 + 1e-9
    assert plan.search.lower_bound <= best.search.objective_value * (1 + 1e-9)
    assert plan.search.objective_value * 0.8 <= best.search.objective_value * (1 + 1e-9)
    assert plan.search.stopped is not None
    assert plan.search.stopped.startswith("stopped at search.optimality_gap: no plan of the")
    assert "20 % better" in plan.search.stopped
    assert "proven to within 20%" in headline(plan)


def test_the_limit_may_come_first() -> None:
    limit = {
        "search__time_limit_seconds": 1e-6,
        "search__limit_by": "work",
        "search__optimality_gap": 1e-6,
    }
    plan = make_plan(small_job("safe_rlhf", num_nodes=2, **limit))
    assert plan.relative_gap > 1e-6
    assert plan.search.stopped is not None
    assert "time limit" in plan.search.stopped
    assert "not proven" in headline(plan)


@pytest.mark.parametrize(
    "setting",
    [{"robust": True}, {"objective": "fewest_gpus"}, {"strategy": "split"}],
)
def test_a_gap_is_refused_where_it_means_nothing(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"optimality_gap is 0.01, but must be 0"):
        SearchSpec.model_validate({"optimality_gap": 0.01, **setting})
    assert SearchSpec.model_validate(setting).optimality_gap == 0


@pytest.mark.parametrize(
    "changes", [{}, {"search__staleness": 1, "search__iteration_barrier": False}]
)
@pytest.mark.parametrize("gap", [0.01, 0.2])
def test_the_gap_is_what_ended_the_search(changes: dict[str, object], gap: float) -> None:
    plan = make_plan(small_job("grpo", num_nodes=2, **changes, search__optimality_gap=gap))
    assert plan.search.within_gap
    assert "proven to within" in headline(plan)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(totals(plan))
    assert "within search.optimality_gap" in shown.get()
    assert "time limit" not in shown.get()


def test_questions_are_answered_without_the_plans_gap() -> None:
    """Else a plan that a question finds within the gap would be called the best."""
    changes = {"search__objective": "price"}
    best = make_plan(small_job(num_nodes=2, **changes))
    loose = study(small_job(num_nodes=2, **changes, search__optimality_gap=0.2))
    solved = best_within(loose, inf, limits_of(loose, 30.0))
    assert solved.is_proven
    assert solved.lower_bound == pytest.approx(best.search.objective_value, rel=1e-9)


def test_a_front_has_its_own_tolerance() -> None:
    front = pareto(small_job(num_nodes=2, search__optimality_gap=0.2))
    assert front.proven
    assert {plan.search.status for plan in front.plans} == {"optimal"}
