"""An optimizer that updates on the host: what it takes from the GPU, and what a step costs."""

import numpy as np
import pytest
from pydantic import ValidationError

from automap.planner.catalogue.hardware import Pool
from automap.planner.check.check import violations
from automap.planner.cost import constants, memory
from automap.planner.cost.pricing import Pricing
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.infeasible.changes import optimizer_on_host
from automap.planner.job.resolution import resolve
from automap.planner.layout import OFFLOADS, RECOMPUTES
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.verl import VERL
from tests.helpers.cost_model import ints, layouts, model, workload
from tests.helpers.small_jobs import small_job

MOE = "qwen3-30b-a3b"
NONE, OPTIMIZER, WEIGHTS = range(len(OFFLOADS))


def on_one_node(*, on_host: bool, **changes: object) -> JobSpec:
    """GRPO of Qwen3-30B-A3B on eight H100 in slime, whose recipe for them updates on the host."""
    roles = {role: {"architecture": MOE} for role in ("actor", "reference")}
    return JobSpec.model_validate(
        {
            "name": "moe",
            "algorithm": "grpo",
            "models": roles | {"reward": {"function": True}},
            "workload": {
                "prompts_per_iteration": 32,
                "responses_per_prompt": 8,
                "prompt_length": {"mean": 200, "max": 1024},
                "response_length": {"mean": 3000, "max": 8192},
                "updates_per_epoch": 1,
                "kl": "loss",
                "optimizer_cpu_offload": on_host,
            },
            "cluster": {"pools": [{"name": "h100", "gpu": "h100", "num_nodes": 1}]},
            "search": {"target": "slime", **changes},
        }
    )


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(on_one_node(on_host=True))


@pytest.mark.parametrize("offload", [NONE, OPTIMIZER, WEIGHTS])
def test_masters_and_moments_are_on_the_host_whatever_else_is(offload: int) -> None:
    llama, rows = model("llama-3.1-8b"), layouts(data=8, sharding=1, offload=offload)
    plain, on_gpu = memory.home_resident_bytes(llama, workload(), rows)
    resident, on_host = memory.home_resident_bytes(
        llama, workload(optimizer_cpu_offload=True), rows
    )
    _, _, state = memory.training_state(llama, workload(), rows)
    assert resident.optimizer[0] == 0
    assert resident.weights[0] == plain.weights[0]
    assert resident.gradients[0] == plain.gradients[0]
    # Masters and moments are 12 bytes each; gradients are copied to 4 more.
    assert on_host[0] == on_gpu[0] + (state[0] if offload == NONE else 0) + state[0] // 3


def test_a_step_takes_its_copies_and_one_threads_traffic() -> None:
    jobs = [
        resolve(small_job(workload__optimizer_cpu_offload=each, search__target="any"))
        for each in (False, True)
    ]
    rows = layouts(data=8, sharding=1)
    (call,) = (each for each in jobs[0].dataflow.calls if each.id == "actor.train")
    found = [
        Pricing(job)
        .train(
            call,
            job.pools[0],
            rows,
            micro_batch_size=ints(1),
            recompute=ints(RECOMPUTES.index("none")),
        )
        .seconds.optimizer[0]
        for job in jobs
    ]
    updated = _updated(jobs[0].models["actor"].architecture.num_parameters() / 8, jobs[0].pools[0])
    assert found[1] - found[0] == pytest.approx(call.num_updates * updated, rel=0.05)


def _updated(parameters: float, pool: Pool) -> float:
    """4 bytes of gradient there, 2 of weight back; 34 bytes of traffic on the host."""
    link = pool.host_link_bytes_per_second * constants.HOST_LINK_EFFICIENCY
    return parameters * (6 / link + 34 / constants.HOST_UPDATE_BYTES_PER_SECOND)


def test_the_usual_recipe_of_one_node_is_planned(plan: Plan) -> None:
    with pytest.raises(InfeasibleError) as raised:
        make_plan(on_one_node(on_host=False))
    remedies = [reason.remedy for reason in raised.value.reasons]
    assert any("workload.optimizer_cpu_offload: true" in each for each in remedies if each)
    (home,) = (copy for copy in plan.copies if copy.role == "actor")
    whole = 12 * resolve(plan.spec).models["actor"].architecture.num_parameters() / 8
    assert home.host_bytes > 0.95 * whole
    assert violations(resolve(plan.spec), plan) == []


def test_the_interval_of_a_step_on_the_host_is_wide(plan: Plan) -> None:
    (train,) = (call for call in plan.calls if call.kind == "train")
    assert train.seconds_interval is not None
    most = train.seconds_by_part.optimizer * (np.exp(0.9) - 1)
    assert train.seconds_interval.high > train.end_seconds - train.start_seconds + most


@pytest.mark.parametrize("target", ["automap", "trl", "openrlhf", "areal"])
def test_what_updates_on_gpus_alone_refuses_it(target: str) -> None:
    spec = small_job(workload__optimizer_cpu_offload=True, search__target=target)
    with pytest.raises(SpecError, match=r"workload.optimizer_cpu_offload: it is true"):
        resolve(spec)


def test_it_is_proposed_only_to_a_target_that_can_and_where_something_trains() -> None:
    assert optimizer_on_host(on_one_node(on_host=True)) == []
    assert optimizer_on_host(small_job(search__target="automap")) == []
    # Named none, it is planned for the first that can then, and the change says so.
    (change,) = optimizer_on_host(small_job())
    assert change.text.endswith(f"as {VERL.name} can")
    assert resolve(change.spec).target is VERL
    # Planned for the first framework that can, it is proposed as where that is named.
    (change,) = optimizer_on_host(small_job(workload__rollout_engine="sglang"))
    assert resolve(change.spec).target is VERL
    sgd = small_job(search__target="any", workload__optimizer="sgd")
    assert optimizer_on_host(sgd) == []
    (change,) = optimizer_on_host(on_one_node(on_host=False))
    assert change.spec.workload.optimizer_cpu_offload


def test_one_that_is_not_adam_is_refused_as_masters_would_stay_on_the_gpus() -> None:
    with pytest.raises(ValidationError, match="keeps masters on the GPUs with optimizer=sgd"):
        small_job(workload__optimizer_cpu_offload=True, workload__optimizer="sgd")
