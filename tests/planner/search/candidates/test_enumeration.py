"""The space of layouts: which groups stay inside an NVLink domain."""

import numpy as np
import pytest

from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search.candidates import enumeration
from automap.planner.spec import JobSpec
from tests.helpers.specs import job_spec


def job_on(architecture: str = "llama-2-7b", across: bool = False, **pool: object) -> Job:
    pools = [{"name": "p", "gpu": "a100-80gb-sxm", "num_nodes": 2, **pool}]
    models = {role: {"architecture": architecture} for role in ("actor", "reference", "reward")}
    constraints = {"tensor_parallel_across_nodes": across}
    spec = job_spec(
        "grpo",
        models=models,
        cluster__pools=pools,
        constraints=constraints,
        search__target="any",
    )
    return resolve(spec)


def largest(job: Job, name: str) -> int:
    return int(getattr(enumeration.home_layouts(job, "actor", job.pools[0]), name).max())


@pytest.mark.parametrize(
    ("pool", "across", "reach"),
    [
        ({}, False, 8),
        ({"nvlink_domain_gpus": 4}, False, 4),
        ({"nvlink_domain_gpus": 1}, False, 1),
        ({"gpus_per_node": 6, "nvlink_domain_gpus": 3}, False, 1),
        ({"gpus_per_node": 4, "nvlink_domain_gpus": 8}, False, 8),
        ({"gpus_per_node": 4, "nvlink_domain_gpus": 8, "num_nodes": 4}, False, 4),
        ({"nvlink_domain_gpus": 4}, True, 16),
    ],
)
def test_tensor_groups_stay_in_their_nvlink_domain(pool: dict, across: bool, reach: int) -> None:
    assert largest(job_on(across=across, **pool), "tensor_parallel_size") == reach


def test_a_constraint_fixes_the_sizes_of_the_home_and_the_settings_of_the_calls() -> None:
    fixed = {"num_gpus": 4, "tensor_parallel_size": 2, "generation_tensor_parallel_size": 4}
    job = resolve(job_spec("grpo", constraints__parallelism={"actor": fixed}))
    (pool,) = job.pools
    home = enumeration.home_layouts(job, "actor", pool)
    assert set(home.num_gpus.tolist()) == {4}
    assert set(home.tensor_parallel_size.tolist()) == {2}
    shadow = enumeration.shadow_layouts(job, "actor", pool)
    assert set(shadow.num_gpus.tolist()) == {4, 8, 16}
    assert set(shadow.tensor_parallel_size.tolist()) == {4}
    # And the published schema says so.
    words = JobSpec.model_json_schema()["$defs"]["ParallelismConstraint"]["description"]
    assert "of a role's home" in words
    assert "shadow" in words


@pytest.mark.parametrize(("domain", "reach"), [(8, 8), (4, 4), (2, 2)])
def test_expert_groups_stay_in_their_nvlink_domain(domain: int, reach: int) -> None:
    job = job_on("mixtral-8x7b", nvlink_domain_gpus=domain)
    assert largest(job, "expert_parallel_size") == reach
    engine = enumeration.engines(job, job.dataflow.calls[0], job.pools[0], 16)
    assert engine.expert_parallel_size.max() == reach
    assert engine.tensor_parallel_size.max() == reach


def test_cache_budgets_rise_from_the_least_to_the_full_budget() -> None:
    """What a GPU can hold between the two is tried in fine steps, also where full is far above."""
    least, full = np.array([2, 2, 2]) * 2**30, np.array([3, 40, 4000]) * 2**30
    usable = 72 * 2**30
    tried = enumeration.cache_budgets(least, full, usable_bytes=usable)
    assert (np.diff(tried, axis=0) >= 0).all()
    assert (tried[0] == least).all()
    assert (tried[-1] == np.minimum(full, usable)).all()
    assert (np.diff(tried, axis=0) <= usable // 24 + 1).all()
