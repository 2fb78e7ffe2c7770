"""What the planner returns is sound, and stops being so when it is changed."""

import pytest

from automap.planner.check.check import recomputed_iteration_seconds, violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from tests.helpers.specs import job_spec
from tests.planner.check.broken_plans import shifted

pytestmark = pytest.mark.thorough

TWO_POOLS = {
    "pools": [
        {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2},
        {"name": "l40s", "gpu": "l40s", "num_nodes": 2},
    ]
}
ONE_NODE = {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 1}]}
SPECS: dict[str, JobSpec] = {
    "ppo": job_spec("ppo"),
    "grpo stale": job_spec("grpo", search__staleness=1, cluster=ONE_NODE),
    "no barrier": job_spec("grpo", search__iteration_barrier=False, cluster=ONE_NODE),
    "two pools": job_spec("grpo", cluster=TWO_POOLS),
    "cheapest": job_spec("ppo", search__objective="price", cluster=ONE_NODE),
    "fewest": job_spec("grpo", search__objective="fewest_gpus"),
    "even": job_spec("ppo", constraints={"require_even_batch": True}),
    "no means": job_spec(
        "ppo",
        constraints={
            "allow_offload": False,
            "allow_recompute": False,
            "allow_shadow_copies": False,
        },
    ),
    "function": job_spec("grpo", models__reward={"function": True, "seconds_per_response": 0.01}),
}
PLANS: dict[str, Plan] = {}


def planned(case: str) -> Plan:
    """The plan of a spec, made once."""
    if case not in PLANS:
        PLANS[case] = make_plan(SPECS[case].model_copy(update={"search": quick(SPECS[case])}))
    return PLANS[case]


def quick(spec: JobSpec) -> object:
    return spec.search.model_copy(update={"time_limit_seconds": 5.0})


@pytest.mark.parametrize("case", SPECS)
def test_a_returned_plan_is_sound(case: str) -> None:
    plan = planned(case)
    job = resolve(plan.spec)
    assert violations(job, plan) == []
    assert recomputed_iteration_seconds(job, plan) == pytest.approx(
        plan.iteration_seconds, rel=1e-9, abs=1e-6
    )


@pytest.mark.parametrize("case", SPECS)
def test_a_returned_plan_that_is_changed_is_not(case: str) -> None:
    plan = planned(case)
    job = resolve(plan.spec)
    first, last = plan.calls[0], plan.calls[-1]
    node = max(pool.gpus_per_node for pool in job.pools)
    for broken in (
        shifted(plan, first.id, 2 * plan.iteration_seconds),
        shifted(plan, last.id, -2 * plan.iteration_seconds),
        plan.model_copy(update={"iteration_seconds": 0.99 * plan.iteration_seconds}),
        plan.model_copy(update={"copies": plan.copies[1:]}),
        plan.model_copy(update={"calls": plan.calls[1:]}),
        plan.model_copy(
            update={
                "copies": [
                    copy.model_copy(update={"first_gpu": copy.first_gpu + 1000 * node})
                    for copy in plan.copies
                ]
            }
        ),
    ):
        assert violations(job, broken) != []
