"""Plans inside NeMo-RL: what search and check hold them to."""

from typing import Any

import pytest

from automap.planner import Plan, export
from automap.planner.check.check import violations
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.nemo_rl import NEMO_RL
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import Wanted, spec_of


def job(wanted: Wanted) -> JobSpec:
    search = {"max_out_of_memory_probability": None, "time_limit_seconds": 10.0}
    spec = spec_of(wanted)
    return inside(
        spec.model_copy(update={"search": spec.search.model_copy(update=search)}), NEMO_RL.name
    )


@pytest.fixture(scope="module", params=["together", "ahead", "dtensor"])
def plan(request: pytest.FixtureRequest) -> Plan:
    small = Wanted(model="qwen2.5-1.5b", num_nodes=1)
    wanted = {
        "together": small.but(num_nodes=2),
        "ahead": small.but(staleness=2),
        "dtensor": small.but(workload=(("training_stack", "fsdp"),)),
    }
    return make_plan(job(wanted[request.param]))


@pytest.mark.slow
def test_the_best_plan_is_sound_and_exported(plan: Plan) -> None:
    assert plan.search.target == NEMO_RL.name
    # Where iterations overlap, shared settings are often too many for so short a time.
    assert plan.search.status == "optimal" or plan.spec.search.staleness
    assert violations(resolve(plan.spec), plan) == []
    assert NEMO_RL.name in plan.runs_with
    assert export(plan, NEMO_RL.name).files["recipe.yaml"]


def test_policy_and_reference_are_where_nemo_rl_has_them(plan: Plan) -> None:
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    assert len({(copy.first_gpu, copy.num_gpus, copy.engine) for copy in homes.values()}) == 1
    assert homes["reference"].offload == "weights"
    apart = any(copy.kind == "shadow" for copy in plan.copies)
    assert apart or homes["actor"].offload == "weights"
    assert apart or not plan.spec.search.staleness
    assert len({c.micro_batch_size for c in plan.calls if c.kind == "forward" and c.copy_id}) == 1
    assert all(copy.layout.virtual_pipeline_parallel_size == 1 for copy in plan.copies)


@pytest.mark.slow
def test_the_check_refuses_what_stays_on_the_gpu_and_what_differs() -> None:
    plan = make_plan(job(Wanted(model="qwen2.5-1.5b", num_nodes=1)))
    assert all(copy.kind == "home" for copy in plan.copies)
    placement, found = plan.placement(), resolve(plan.spec)
    assert refusals(found, placement, NEMO_RL) == []

    def but(what: str, name: str, **values: Any) -> list[str]:
        items = [
            each.model_copy(update=values) if each.id == name else each
            for each in getattr(placement, what)
        ]
        return refusals(found, placement.model_copy(update={what: items}), NEMO_RL)

    stays = but("copies", "actor", offload="none")
    assert any("generates while actor is on the host" in line for line in stays)
    differs = but("calls", "reference.forward", micro_batch_size=1)
    assert any("has one micro_batch_size" in line for line in differs)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (Wanted(algorithm="ppo"), "algorithm"),
        (Wanted(algorithm="rloo"), "algorithm"),
        (Wanted(workload=(("epochs", 2),)), "workload.epochs"),
        (Wanted(workload=(("packed_sequences", False),)), "workload.packed_sequences"),
        (Wanted(workload=(("rollout_engine", "sglang"),)), "workload.rollout_engine"),
        (Wanted(workload=(("old_log_probs", "rollout"),)), "workload.old_log_probs"),
        (Wanted(workload=(("precision", "fp16"),)), "workload.rollout_precision"),
        (Wanted(reward_model=True), "models.reward"),
        (Wanted(engine="fsdp", lora=8), "models.actor"),
    ],
)
def test_a_job_that_nemo_rl_cannot_run_is_refused_by_its_field(wanted: Wanted, field: str) -> None:
    with pytest.raises(SpecError, match="cannot run this job") as error:
        resolve(job(wanted))
    assert f"cannot run this job: {field}:" in error.value.message


def test_an_algorithm_that_it_lacks_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(SpecError, match="it is ppo, and there are dapo, grpo, reinforce_plus_plus"):
        resolve(job(Wanted(algorithm="ppo")))
