"""What software does of itself once rollouts are stale: batches, caches, and what is waited for."""

from typing import Any

import pytest

from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec, SearchSpec, with_version
from automap.planner.studies.conversion import inside_another
from automap.planner.studies.exported import export
from automap.planner.studies.target_cost import target_costs
from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.tables import TARGETS
from tests.helpers.small_jobs import pool, small_job

NEVER_DRAIN = {"areal@1.0.4": False, "skyrl@0.3.0": True, "verl@0.9.1": False}
"""Targets whose stale rollouts never come in batches → whether they keep caches at a sync."""
AS_ASKED = ("automap", "nemo-rl@0.7.0", "any")
IN_BATCHES = ("slime@0.3.1", "openrlhf@0.11.2")


def job(target: str, staleness: int, **search: Any) -> JobSpec:
    return small_job(
        models={
            "actor": {"architecture": "qwen2.5-0.5b"},
            "reward": {"function": True, "seconds_per_response": 1e-3, "concurrency": 64},
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
    rules = TARGETS[with_version(target)].continuous  # type: ignore[index]
    assert rules is not None
    asked = SearchSpec(staleness=4)
    refused = rules.refuses(asked, "grpo")
    assert refused is not None
    assert refused[0] == "search.continuous_rollouts"
    kept = NEVER_DRAIN[target]
    flows = {"continuous_rollouts": True, "keep_cache_at_sync": kept}
    assert rules.refuses(asked.model_copy(update=flows), "grpo") is None
    other = rules.refuses(
        asked.model_copy(update={**flows, "keep_cache_at_sync": not kept}), "grpo"
    )
    # SkyRL can be told to compute caches again.
    assert (other is None) == (target == "skyrl@0.3.0")


def test_what_a_spec_says_stays_said_and_what_it_leaves_open_stays_open() -> None:
    for given in ({}, {"continuous_rollouts": False}, {"continuous_rollouts": True}):
        spec = job("any", 4, **given)
        for text in (spec.model_dump_json(), spec.model_dump_json(exclude_unset=True)):
            again = JobSpec.model_validate_json(text)
            assert again.search.continuous_rollouts == given.get("continuous_rollouts")
    with pytest.raises(SpecError, match="never generates in batches"):
        resolve(
            JobSpec.model_validate_json(job("verl", 4, continuous_rollouts=False).model_dump_json())
        )


@pytest.mark.parametrize("target", ["openrlhf@0.11.2", "skyrl@0.3.0", "nemo-rl@0.7.0"])
def test_what_one_target_filled_in_is_left_to_the_next(target: str) -> None:
    filled = resolve(job("areal", 4)).spec
    assert filled.search.continuous_rollouts
    search = resolve(inside_another(filled, target)).spec.search
    kept = {"skyrl@0.3.0": (True, False), "nemo-rl@0.7.0": (True, False)}.get(target, (None, None))
    assert (search.continuous_rollouts, search.keep_cache_at_sync) == kept


def test_what_keeps_a_target_from_flowing_is_said_of_the_staleness() -> None:
    one = small_job(
        models__reward={"function": True},
        workload__kl="none",
        cluster__pools=[pool(1, gpu="h100", gpus_per_node=1)],
        search={"target": "verl", "staleness": 2},
    )
    with pytest.raises(SpecError) as refused:
        resolve(one)
    assert refused.value.field == "search.staleness"
    assert "the cluster has one GPU" in refused.value.message
    assert refused.value.remedy == "set it to 0 or 1"


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


def test_a_frameworks_name_alone_is_enough_for_every_study() -> None:
    plan = make_plan(job("verl", 1))
    assert plan.spec.search.target == "verl@0.9.1"
    assert export(plan, "verl").script == export(plan, "verl@0.9.1").script
    [cost] = target_costs(plan.spec, ["verl"], by_limit=False)  # type: ignore[list-item]
    assert cost.target == "verl@0.9.1"
