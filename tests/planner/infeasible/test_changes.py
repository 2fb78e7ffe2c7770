"""Changes that are proposed to a job."""

import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.infeasible.changes import faster_gpus, larger_gpus
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
