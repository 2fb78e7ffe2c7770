"""search.optimality_gap: the search stops early, and the plan says what is proven."""

import pytest
from pydantic import ValidationError

from planner.planning import make_plan
from planner.spec import SearchSpec
from service.cli.render import headline
from tests.small_jobs import small_job


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
    limit = {"search__time_limit_seconds": 1e-6, "search__optimality_gap": 1e-6}
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
