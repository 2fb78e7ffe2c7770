"""Calls without any layout name the settings that leave them without one."""

import pytest

from automap.planner.infeasible.no_layout import without_layout
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from tests.helpers.small_jobs import small_job


def test_a_job_that_has_layouts_has_nothing_to_name() -> None:
    assert without_layout(resolve(small_job("grpo"))) == []


@pytest.mark.parametrize(
    ("parallelism", "named"),
    [
        (
            {"actor.train": {"micro_batch_size": 100_000}},
            "constraints.parallelism.actor.train.micro_batch_size (100000)",
        ),
        (
            {"actor": {"pipeline_parallel_size": 5}},
            "constraints.parallelism.actor.pipeline_parallel_size (5)",
        ),
    ],
)
def test_the_setting_at_fault_is_named(parallelism: dict[str, dict[str, int]], named: str) -> None:
    spec = small_job("grpo", constraints={"parallelism": parallelism}, num_nodes=2)
    found = {each.phase: each for each in without_layout(resolve(spec))}
    assert "actor.train" in found
    assert named in found["actor.train"].summary
    # It is true: without it there is a plan.
    free = spec.constraints.model_copy(update={"parallelism": {}})
    assert make_plan(spec.model_copy(update={"constraints": free})).copies
