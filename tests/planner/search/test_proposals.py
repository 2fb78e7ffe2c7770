"""Sizes that a first try proposes without a proof are placed at once, and leave fewer rows."""

import pytest

from automap.planner.planning import make_plan
from tests.helpers.small_jobs import small_job


def test_remax_with_a_shadow_is_proven_within_the_work_of_five_seconds() -> None:
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
            search__time_limit_seconds=5,
        )
    )
    assert found.search.stopped.startswith("the search is complete")


@pytest.mark.slow
def test_memory_is_not_counted_where_coarse_bytes_exclude_nothing() -> None:
    """Fifty rounds without it take the work of a second; with it, none of the limit is left."""
    found = make_plan(
        small_job(
            "rloo",
            models={
                "actor": {"architecture": "deepseek-v3", "lora": {"rank": 16}},
                "reward": {"remote": {"seconds_per_response": 8.0, "concurrency": 17476}},
            },
            cluster__pools=[{"name": "b200", "gpu": "b200", "num_nodes": 4096}],
            constraints={"parallelism": {"actor": {"tensor_parallel_size": 4}}},
            workload__training_stack="nemo-rl",
            workload__rollout_precision="fp8",
            workload__rollout_engine="sglang",
            workload__kl="reward",
            workload__updates_per_epoch=1,
            workload__prompts_per_iteration=32768,
            workload__responses_per_prompt=4,
            workload__prompt_length={"mean": 500, "max": 2000},
            workload__response_length={"p50": 682, "p90": 2046, "max": 8192},
            search__limit_by="work",
            search__time_limit_seconds=5,
        )
    )
    assert found.search.stopped.startswith("the search is complete")
