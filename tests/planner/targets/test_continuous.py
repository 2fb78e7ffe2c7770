"""What software does of itself once rollouts are stale: batches, caches, and what is waited for."""

from typing import Any

import pytest

from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.targets.continuous import ContinuousRules
from tests.helpers.small_jobs import pool, small_job

NEVER_DRAIN = {"areal@1.0.4": False, "skyrl@0.3.0": True, "verl@0.9.1": False}
"""Targets whose stale rollouts never come in batches → whether they keep caches at a sync."""
AS_ASKED = ("automap", "nemo-rl@0.7.0", "any")
IN_BATCHES = ("slime@0.3.1", "openrlhf@0.11.2")


def job(target: str, staleness: int, **search: Any) -> JobSpec:
    return small_job(
        models={
            "actor": {"architecture": "qwen2.5-0.5b"},
            "reward": {"function": True, "seconds_per_response": 1e-3},
        },
        workload__kl="none",
        workload__updates_per_epoch=1,
        workload__responses_per_prompt=4,
        workload__prompts_per_iteration=128,
        workload__response_length={"mean": 512, "max": 4096},
        workload__rollout_engine="sglang" if target.startswith("slime") else "vllm",
        cluster__pools=[pool(2, gpu="h100", gpus_per_node=8)],
        search={"target": target, "staleness": staleness, **search},
    )


@pytest.mark.parametrize("target", NEVER_DRAIN)
def test_what_never_drains_is_planned_so_where_the_spec_says_nothing(target: str) -> None:
    found = resolve(job(target, 4))
    assert found.spec.search.continuous_rollouts
    assert found.spec.search.keep_cache_at_sync is NEVER_DRAIN[target]
    assert found.training_slack == 1
    # With one batch in training nothing of a staleness of 1 is left: both ways are the same.
    assert not resolve(job(target, 1)).spec.search.continuous_rollouts
    assert not resolve(job(target, 0)).spec.search.continuous_rollouts


@pytest.mark.parametrize("target", [*AS_ASKED, *IN_BATCHES])
def test_others_come_in_batches_unless_the_spec_asks(target: str) -> None:
    staleness = 1 if target in IN_BATCHES else 4
    assert not resolve(job(target, staleness)).spec.search.continuous_rollouts
    if target in AS_ASKED:
        found = resolve(job(target, 4, continuous_rollouts=True))
        assert found.training_slack == (1 if target.startswith("nemo") else 2)


@pytest.mark.parametrize("target", NEVER_DRAIN)
def test_a_plan_in_batches_runs_with_none_that_never_drains(target: str) -> None:
    def runs(spec: JobSpec) -> bool:
        return target in make_plan(spec).runs_with

    limits = {"time_limit_seconds": 5.0}
    assert not runs(job("any", 4, **limits))
    if target != "skyrl@0.3.0":  # its layouts are few
        keeps = NEVER_DRAIN[target]
        asked = {"continuous_rollouts": True, "keep_cache_at_sync": keeps}
        assert runs(job(target, 4, **asked, **limits))


def test_where_nothing_waits_for_the_oldest_the_plan_says_how_old_it_gets() -> None:
    plans: dict[str, Plan] = {t: make_plan(job(t, 2)) for t in ("areal@1.0.4", "verl@0.9.1")}
    areal, verl = (plan.continuous for plan in plans.values())
    assert areal is not None
    assert verl is not None
    assert areal.seconds < verl.seconds
    said = [line for line in plans["areal@1.0.4"].warnings if "not how old" in line]
    assert len(said) == 1
    assert not [line for line in plans["verl@0.9.1"].warnings if "not how old" in line]


def test_the_slack_of_training_is_one_batch_or_half_of_the_staleness() -> None:
    one, half = ContinuousRules(), ContinuousRules(trains_one_batch=False)
    assert [one.training_slack(s) for s in (1, 2, 4, 9)] == [1, 1, 1, 1]
    assert [half.training_slack(s) for s in (1, 2, 4, 9)] == [1, 1, 2, 4]
