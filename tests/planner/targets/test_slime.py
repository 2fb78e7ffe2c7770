"""Plans inside slime: what search and check hold them to."""

from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.slime import SLIME
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import Wanted, spec_of


def job(wanted: Wanted) -> JobSpec:
    search = {"max_out_of_memory_probability": None, "time_limit_seconds": 10.0}
    spec = spec_of(wanted)
    return inside(
        spec.model_copy(update={"search": spec.search.model_copy(update=search)}), SLIME.name
    )


@pytest.fixture(scope="module", params=["grpo", "ppo", "ahead"])
def plan(request: pytest.FixtureRequest) -> Plan:
    wanted = {
        "grpo": Wanted(model="qwen2.5-1.5b"),
        "ppo": Wanted(algorithm="ppo", model="qwen2.5-1.5b", num_nodes=1),
        "ahead": Wanted(model="qwen2.5-1.5b", num_nodes=1, staleness=1),
    }
    return make_plan(job(wanted[request.param]))


@pytest.mark.slow
def test_the_best_plan_is_sound_and_exported(plan: Plan) -> None:
    assert plan.spec.workload.rollout_engine == "sglang"
    assert plan.search.target == SLIME.name
    # Where iterations overlap, shared settings are often too many for so short a time.
    assert plan.search.status == "optimal" or plan.spec.search.staleness
    assert violations(resolve(plan.spec), plan) == []
    assert SLIME.name in plan.runs_with
    assert export(plan, SLIME.name).target == SLIME.name


def test_calls_of_a_kind_have_one_setting_and_the_rest_is_where_slime_has_it(plan: Plan) -> None:
    for kind in ("train", "forward"):
        calls = [c for c in plan.calls if c.kind == kind and c.copy_id]
        assert len({(c.micro_batch_size, c.recompute) for c in calls}) == 1
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    assert len({(copy.first_gpu, copy.num_gpus) for copy in homes.values()}) == 1
    assert homes["reference"].offload == "weights"
    apart = any(copy.kind == "shadow" for copy in plan.copies)
    if "critic" in homes or not apart:
        assert {copy.offload for copy in homes.values()} == {"weights"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "changes", "words"),
    [
        ("reference.forward", {"micro_batch_size": 1}, "has one micro_batch_size"),
        ("critic.train", {"recompute": "full"}, "has one recompute"),
    ],
)
def test_the_check_refuses_settings_that_differ(
    call: str, changes: dict[str, Any], words: str
) -> None:
    plan = make_plan(job(Wanted(algorithm="ppo", model="qwen2.5-1.5b", num_nodes=1)))
    calls = [c.model_copy(update=changes) if c.id == call else c for c in plan.placement().calls]
    placement = plan.placement().model_copy(update={"calls": calls})
    assert refusals(resolve(plan.spec), plan.placement(), SLIME) == []
    assert any(words in line for line in refusals(resolve(plan.spec), placement, SLIME))


@pytest.mark.slow
def test_the_check_refuses_what_stays_on_the_gpu() -> None:
    plan = make_plan(job(Wanted(algorithm="ppo", model="qwen2.5-1.5b", num_nodes=1)))
    copies = [
        copy.model_copy(update={"offload": "none"}) if copy.id == "actor" else copy
        for copy in plan.placement().copies
    ]
    placement = plan.placement().model_copy(update={"copies": copies})
    found = refusals(resolve(plan.spec), placement, SLIME)
    assert any("generates while actor is on the host" in line for line in found)
    assert any("offload is weights where several models train" in line for line in found)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (Wanted(algorithm="rloo"), "algorithm"),
        (Wanted(apart=True, staleness=2), "search.staleness"),
        (Wanted(workload=(("epochs", 2),)), "workload.epochs"),
        (Wanted(workload=(("packed_sequences", False),)), "workload.packed_sequences"),
        (Wanted(workload=(("rollout_engine", "vllm"),)), "workload.rollout_engine"),
        (Wanted(workload=(("precision", "fp16"),)), "workload.rollout_precision"),
        (Wanted(reward_model=True), "models.reward"),
        (Wanted(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_slime_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message
