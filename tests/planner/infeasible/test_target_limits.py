"""Jobs that fit nowhere because of the limits of the framework that is to run them."""

from typing import Any

import pytest

from automap.planner.errors import InfeasibleError, Reason
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import inside
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough


def job(model: str, target: str, *, num_nodes: int, **changes: Any) -> JobSpec:
    """GRPO without a reference, on nodes of eight H100."""
    sizes = {"architecture": model}
    spec = small_job(
        "grpo",
        models={"actor": sizes, "reward": {"function": True}},
        workload__kl="none",
        cluster__pools=[pool(num_nodes, gpu="h100-80gb-sxm", gpus_per_node=8)],
        **changes,
    )
    return inside(spec, target)  # type: ignore[arg-type]


def reasons(spec: JobSpec) -> list[Reason]:
    with pytest.raises(InfeasibleError) as error:
        make_plan(spec)
    return error.value.reasons


def test_the_limits_that_keep_a_job_from_fitting_are_named_with_bytes() -> None:
    spec = job("qwen2.5-32b", "trl@1.16.0", num_nodes=1)
    [told] = [each for each in reasons(spec) if "the limits of trl@1.16.0" in each.summary]
    assert told.phase is not None
    assert told.phase.startswith("actor.")
    assert "without them its leanest layout needs " in told.summary
    assert "GiB per GPU that may be filled" in told.summary
    assert told.remedy is not None
    assert "automap compare SPEC --targets all" in told.remedy
    # It is true: there is a plan without the target.
    free = spec.search.model_copy(update={"target": None})
    assert make_plan(spec.model_copy(update={"search": free})).copies


def test_sizes_that_a_framework_lacks_are_named() -> None:
    split = {"parallelism": {"actor": {"tensor_parallel_size": 2}}}
    spec = job("qwen2.5-0.5b", "openrlhf@0.11.2", num_nodes=1, constraints=split)
    found = [each.summary for each in reasons(spec)]
    assert any("has no layout" in each for each in found)
    assert any(
        "without this limit alone it would fit: zero: no expert or pipeline or tensor" in each
        for each in found
    )


def test_a_job_that_fits_nowhere_at_all_does_not_blame_the_framework() -> None:
    spec = job("llama-3.1-405b", "openrlhf@0.11.2", num_nodes=1)
    assert not any("the limits of" in each.summary for each in reasons(spec))


def test_remedies_that_a_framework_refuses_are_not_tried() -> None:
    """Adapters, which TRL's table lacks, ended the explanation with the refusal of another job."""
    spec = job("deepseek-v3", "trl@1.16.0", num_nodes=2)
    resolve(spec)
    found = reasons(spec)
    assert found
    assert not any("adapters instead" in (each.remedy or "") for each in found)
