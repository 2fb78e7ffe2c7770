"""A plan that is exported to another framework than its own is priced there."""

import pytest

from automap.planner import NotExportableError, Plan, estimate, export
from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import can_be_told
from automap.planner.spec import JobSpec
from tests.helpers.framework_plans import Wanted, plan_of

OWN, OTHER = "nemo-rl@0.7.0", "verl@0.9.1"


def inside(spec: JobSpec, target: str) -> JobSpec:
    return spec.model_copy(update={"search": spec.search.model_copy(update={"target": target})})


def of_size(micro_batch: int) -> Plan:
    """A plan for NeMo-RL, whose software makes norms and activations again, unlike verl's."""
    plan = plan_of(Wanted())
    calls = [
        call.model_copy(update={"micro_batch_size": micro_batch, "recompute": "selective"})
        if call.kind == "train"
        else call
        for call in plan.placement().calls
    ]
    placement = plan.placement().model_copy(update={"calls": calls})
    return estimate(inside(plan.spec, OWN), placement)


def test_seconds_are_those_of_the_framework() -> None:
    plan = of_size(1)
    there = estimate(inside(plan.spec, OTHER), plan.placement())
    assert there.iteration_seconds != pytest.approx(plan.iteration_seconds, rel=1e-3)
    assert f"{there.iteration_seconds:.1f} s per iteration" in export(plan, OTHER).script
    own = export(plan, OWN)
    written = own.script + "".join(own.files.values())
    assert f"{plan.iteration_seconds:.1f} s per iteration" in written


def test_what_does_not_fit_there_is_refused_with_its_bytes() -> None:
    plan = of_size(64)
    export(plan, OWN)
    with pytest.raises(NotExportableError, match="with the software of verl") as caught:
        export(plan, OTHER)
    [reason] = caught.value.reasons
    assert reason.phase == "actor.train"
    assert reason.over_bytes is not None
    assert reason.over_bytes > 0
    assert reason.remedy == f"plan it for that: search.target {OTHER}"


def test_a_plan_names_only_those_with_whose_software_it_fits() -> None:
    """Else `runs with` would promise a launch that the export of the same plan then refuses."""
    assert {OWN, OTHER} <= set(of_size(1).runs_with)
    plan = of_size(64)
    assert OTHER in can_be_told(resolve(plan.spec), plan.placement())
    assert OTHER not in plan.runs_with
    assert OWN in plan.runs_with
    misstated = plan.model_copy(update={"runs_with": [*plan.runs_with, OTHER]})
    assert any("runs_with" in line for line in violations(resolve(plan.spec), misstated))


def test_software_that_the_framework_lacks_is_said_with_its_seconds() -> None:
    plan = of_size(1)
    workload = plan.spec.workload.model_copy(update={"training_stack": "torchtitan"})
    spec = inside(plan.spec.model_copy(update={"workload": workload}), "any")
    made = estimate(spec, plan.placement())
    launch = export(made, OTHER)
    assert f"{made.iteration_seconds:.1f} s per iteration" in launch.script
    assert any("workload.training_stack: it is torchtitan" in each for each in launch.assumptions)
    assert "# - seconds are those of the software that the plan was made for" in launch.script
