"""Memory to spare: no searched plan exceeds its chance of running out, and less chance costs."""

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automap.planner.check.check import violations
from automap.planner.errors import InfeasibleError
from automap.planner.explanation.explain import explain
from automap.planner.explanation.result import ExplainOptions
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.infeasibility_report import explain_refusal
from tests.helpers.small_jobs import small_job

FIELD = "search__max_out_of_memory_probability"
TIGHT: dict[str, Any] = {
    "models": {role: {"architecture": "llama-2-13b"} for role in ("actor", "reference", "reward")},
    "workload__response_length": {"mean": 1000, "max": 2000},
}
"""On four A100 the fastest plan fills the memory: the margin decides what is fast."""
CHANCES = (0.01, 0.05, 0.2, 0.5, 1.0)


@cache
def tight_plan(chance: float) -> Plan:
    return make_plan(small_job(**TIGHT, **{FIELD: chance}))


def without_offload(**changes: Any) -> JobSpec:
    """A job that fits only where it may nearly fill the GPUs by estimate."""
    return small_job(**TIGHT, constraints={"allow_offload": False}, **changes)


def test_the_target_keeps_a_margin_and_research_and_strategies_keep_none() -> None:
    def resolved(**search: Any) -> float:
        return resolve(small_job(**search)).max_out_of_memory_probability

    assert resolved() == 0.05
    assert resolved(search__target="any") == resolved(search__strategy="verl") == 1.0
    assert resolved(search__target="any", **{FIELD: 0.2}) == 0.2


@pytest.mark.parametrize("chance", [0.0, -0.1, 1.1])
def test_only_a_chance_above_zero_is_accepted(chance: float) -> None:
    with pytest.raises(ValueError, match="max_out_of_memory_probability"):
        small_job(**{FIELD: chance})


@pytest.mark.parametrize("chance", CHANCES)
def test_no_call_of_a_searched_plan_exceeds_the_chance(chance: float) -> None:
    plan = tight_plan(chance)
    assert plan.search.status == "optimal"
    stated = [c.out_of_memory_probability for c in plan.calls if c.copy_id is not None]
    assert plan.out_of_memory_probability == max(p for p in stated if p is not None)
    assert plan.out_of_memory_probability <= min(chance, 0.5)


def test_a_smaller_chance_is_never_faster_and_here_it_is_slower() -> None:
    seconds = [tight_plan(chance).iteration_seconds for chance in CHANCES]
    assert all(later <= earlier for earlier, later in pairwise(seconds))
    assert seconds[1] > seconds[-1]


def test_from_one_half_on_plans_fill_the_gpus_by_estimate() -> None:
    half, whole = tight_plan(0.5), tight_plan(1.0)
    assert half.placement() == whole.placement()
    assert half.search.space == whole.search.space
    assert "usable memory, which then" not in whole.search.space
    assert "89.09 % of the usable memory" in tight_plan(0.05).search.space


def test_a_given_placement_may_exceed_the_chance_and_says_so() -> None:
    filled = tight_plan(1.0)
    found = estimate(tight_plan(0.05).spec, filled.placement())
    assert found.search.status == "given"
    assert found.iteration_seconds == filled.iteration_seconds
    assert found.out_of_memory_probability == filled.out_of_memory_probability
    assert (found.out_of_memory_probability or 0.0) > 0.05


def test_the_check_refuses_a_searched_plan_above_the_chance() -> None:
    """The plan of another margin, said to be the answer to this one."""
    asked = tight_plan(0.05).spec
    false = tight_plan(1.0).model_copy(update={"spec": asked})
    found = violations(resolve(asked), false)
    assert any("search.max_out_of_memory_probability allows 0.05" in line for line in found)


def test_a_plan_of_a_version_without_the_chance_loads_and_is_sound() -> None:
    plan = tight_plan(1.0)
    document = plan.model_dump(mode="json", by_alias=True)
    del document["out_of_memory_probability"]
    del document["spec"]["search"]["max_out_of_memory_probability"]
    for call in document["calls"]:
        del call["out_of_memory_probability"]
    loaded = Plan.model_validate(document)
    assert loaded.out_of_memory_probability is None
    assert not violations(resolve(loaded.spec), loaded)


@pytest.mark.slow
@given(
    chance=st.floats(0.001, 1.0),
    prompts=st.sampled_from([16, 64]),
    longest=st.integers(256, 4096),
    model=st.sampled_from(["qwen2.5-0.5b", "qwen2.5-3b", "llama-2-7b"]),
)
@settings(max_examples=8, deadline=None)
@pytest.mark.thorough
def test_random_jobs_keep_to_their_chance_and_gain_nothing_by_half_of_it(
    chance: float, prompts: int, longest: int, model: str
) -> None:
    def planned(allowed: float) -> Plan | None:
        changes: dict[str, Any] = {
            "models": {role: {"architecture": model} for role in ("actor", "reference", "reward")},
            "workload__prompts_per_iteration": prompts,
            "workload__response_length": {"mean": longest / 2, "max": longest},
            FIELD: allowed,
        }
        try:
            return make_plan(small_job(**changes))
        except InfeasibleError:
            return None

    plan, safer = planned(chance), planned(chance / 2)
    assert plan is not None or safer is None
    for each, allowed in ((plan, chance), (safer, chance / 2)):
        if each is not None:
            assert each.out_of_memory_probability is not None
            assert each.out_of_memory_probability <= allowed
    if plan is not None and safer is not None:
        assert plan.search.status == safer.search.status == "optimal"
        assert plan.iteration_seconds <= safer.iteration_seconds


@pytest.mark.slow
@pytest.mark.thorough
def test_where_only_the_margin_is_in_the_way_the_first_reason_says_what_would_do() -> None:
    with pytest.raises(InfeasibleError) as error:
        make_plan(without_offload())
    first = error.value.reasons[0]
    assert first.summary.startswith("no placement runs out of memory with")
    assert first.remedy is not None
    enough = float(first.remedy.rsplit(" ", 1)[1])
    plan = make_plan(without_offload(**{FIELD: enough}))
    assert enough - 0.01 < (plan.out_of_memory_probability or 0.0) <= enough
    with pytest.raises(InfeasibleError):
        make_plan(without_offload(**{FIELD: enough - 0.01}))


@pytest.mark.slow
@pytest.mark.thorough
def test_the_margin_is_a_remedy_with_a_plan() -> None:
    found = explain_refusal(without_offload(search__time_limit_seconds=60))
    assert found.reasons[0].summary.startswith("no placement runs out of memory with")
    (remedy,) = [each for each in found.remedies if each.kinds == ["margin"]]
    assert remedy.plan.iteration_seconds > 0


@pytest.mark.slow
@pytest.mark.thorough
def test_an_explanation_says_what_the_margin_costs() -> None:
    plan = tight_plan(0.05)
    answers = {
        each.question: each
        for each in explain(plan, ExplainOptions(parts=["alternatives"])).alternatives
    }
    margin = answers["no_memory_margin"]
    assert margin.outcome == "faster"
    assert margin.iteration_seconds == pytest.approx(tight_plan(1.0).iteration_seconds)
    assert all(
        each.outcome != "faster" for name, each in answers.items() if name != "no_memory_margin"
    )


@pytest.mark.slow
@pytest.mark.thorough
def test_a_placement_without_margin_is_explained_among_its_like() -> None:
    filled = estimate(tight_plan(0.05).spec, tight_plan(1.0).placement())
    answers = explain(filled, ExplainOptions(parts=["alternatives"])).alternatives
    assert answers
    assert all(each.outcome != "faster" for each in answers)
    assert "no_memory_margin" not in {each.question for each in answers}
