"""What is said of a strategy that is a little better than the plan."""

import pytest

from automap.planner import Plan, make_plan
from automap.planner.assembly.comparison import simpler_in_words
from tests.helpers.small_jobs import small_job


@pytest.fixture(scope="module")
def simple() -> Plan:
    """One range of all GPUs; the best plan has more, as HybridFlow's has."""
    return make_plan(small_job("safe_rlhf", num_nodes=2, search__simplicity_tolerance=0.5))


def test_a_faster_strategy_lost_as_it_is_less_simple(simple: Plan) -> None:
    reasons = {each.name: str(each.reason) for each in simple.alternatives}
    assert reasons["hybridflow"].endswith(
        " s faster; the plan is simpler or leaves more memory free, and within 50 % of the best "
        "(search.simplicity_tolerance)"
    )
    assert reasons["standalone"].endswith(" s slower")
    assert reasons["colocate_all"] == "same placement"


def test_what_was_no_choice_is_not_said_to_be_less_simple(simple: Plan) -> None:
    """An alternative with more memory than the plan may use can be below the plan's bound."""
    search = simple.search
    assert simpler_in_words(simple, search.lower_bound) is not None
    assert simpler_in_words(simple, search.lower_bound * 0.99) is None
    assert simpler_in_words(simple, search.objective_value) is None
    best = simple.model_copy(
        update={"search": search.model_copy(update={"within_tolerance": None})}
    )
    assert simpler_in_words(best, search.lower_bound) is None
