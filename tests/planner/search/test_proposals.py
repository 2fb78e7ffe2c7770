"""Sizes that a first try proposes without a proof are placed at once, and leave fewer rows."""

from automap.planner.planning import make_plan
from tests.helpers.small_jobs import small_job


def test_remax_with_a_shadow_is_proven_within_the_work_of_three_seconds() -> None:
    """The strategies that start a search have no shadow, so their limit leaves too many rows.

    With that limit alone the work ends at a gap of 7 %.
    """
    found = make_plan(
        small_job(
            "remax",
            models={
                "actor": {"architecture": "mistral-7b"},
                "reference": {"architecture": "mistral-7b"},
                "reward": {"architecture": "qwen2.5-7b"},
            },
            cluster__pools=[{"name": "b200", "gpu": "b200", "num_nodes": 64}],
            workload__training_stack="fsdp",
            workload__prompts_per_iteration=2048,
            workload__updates_per_epoch=8,
            workload__prompt_length={"mean": 512, "max": 1024},
            workload__response_length={"mean": 256, "max": 512},
            search__limit_by="work",
            search__time_limit_seconds=3,
        )
    )
    assert found.search.stopped.startswith("the search is complete")
