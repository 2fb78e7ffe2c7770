"""Changes that are proposed to a job."""

import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.infeasible.changes import another_framework, faster_gpus, larger_gpus
from automap.planner.job.resolution import resolve
from automap.planner.targets.verl import VERL
from tests.helpers.small_jobs import pool, small_job


@pytest.mark.parametrize(
    ("gpu", "others", "never"),
    [
        ("h100-80gb-sxm", "h200-141gb-sxm", "mi300x-192gb"),
        ("mi300x-192gb", "mi355x-288gb", "gb300-288gb"),
    ],
)
def test_other_gpus_run_the_same_software(gpu: str, others: str, never: str) -> None:
    """A change that takes away all that could run the plan helps nobody."""
    spec = small_job(cluster__pools=[pool(gpu=gpu)])
    [own] = spec.cluster.pools
    larger = [change for change, _ in larger_gpus(spec, own)]
    for changes in (larger, faster_gpus(spec, own)):
        names = [change.spec.cluster.pools[0].gpu for change in changes]
        assert others in names
        assert never not in names
        assert {gpu_type(name).is_assumed for name in names} == {gpu_type(gpu).is_assumed}


def test_a_gpu_with_a_little_more_memory_and_half_the_bandwidth_is_not_larger() -> None:
    spec = small_job(cluster__pools=[pool(gpu="h100-80gb-sxm")])
    [own] = spec.cluster.pools
    names = [change.spec.cluster.pools[0].gpu for change, _ in larger_gpus(spec, own)]
    assert gpu_type("a100-80gb-sxm").memory_bytes > gpu_type("h100-80gb-sxm").memory_bytes
    assert "a100-80gb-sxm" not in names
    assert "h200-141gb-sxm" in names


def test_another_framework_is_proposed_where_none_is_named_and_automap_is_to_run_it() -> None:
    change, *others = another_framework(small_job("grpo"))
    assert [each.spec.search.target for each in others] == ["openrlhf@0.11.2"]
    assert change.text == f"plan it for {VERL.name} (search.target: {VERL.name})"
    assert resolve(change.spec).target is VERL
    assert another_framework(small_job("grpo", search__target="automap")) == []
    assert another_framework(small_job("grpo", workload__rollout_engine="sglang")) == []
    assert another_framework(small_job("safe_rlhf")) == []
