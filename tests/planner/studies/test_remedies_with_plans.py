"""Every remedy of an impossible job is a plan of exactly the change that it names."""

import time
from typing import Any

import pytest

from automap.planner.errors import InfeasibleError
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.infeasibility_report import explain_refusal, make_plan_or_explain
from automap.planner.studies.result import ExplainedInfeasibleError, Refusal
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

SEVEN = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")}
ONE_GPU: dict[str, Any] = {"models": SEVEN, "cluster__pools": [pool(gpus_per_node=1)]}
LONG: dict[str, Any] = {
    "models": SEVEN,
    "cluster__pools": [pool(gpus_per_node=2)],
    "workload__response_length": {"mean": 2000, "max": 8000},
    "constraints": {"allow_offload": False, "allow_recompute": False},
    "search__max_out_of_memory_probability": 1,
}
PINNED: dict[str, Any] = {
    "models": {**SEVEN, "actor": {"architecture": "llama-2-70b", "lora": {"rank": 16}}},
    "workload__response_length": {"mean": 2000, "max": 32000},
    "constraints": {
        "parallelism": {"actor": {"num_gpus": 1}},
        "allow_offload": False,
        "allow_recompute": False,
    },
}


def changed_parts(spec: JobSpec, other: JobSpec) -> set[str]:
    """The top parts of a spec in which two differ, and the constraints one by one."""
    parts = {name for name in JobSpec.model_fields if getattr(spec, name) != getattr(other, name)}
    if "constraints" in parts:
        one, two = spec.constraints, other.constraints
        fields = type(one).model_fields
        parts = (parts - {"constraints"}) | {
            name for name in fields if getattr(one, name) != getattr(two, name)
        }
    return parts


def sound(spec: JobSpec, refusal: Refusal) -> None:
    """Plans of changed specs, which change nothing but what they name."""
    allowed = {
        "offload": {"allow_offload"},
        "recompute": {"allow_recompute"},
        "constraint": {"parallelism", "colocate", "separate", "pools", "require_even_batch"},
        "keep_free": {"keep_free_gpus"},
        "gpu": {"cluster"},
        "nodes": {"cluster"},
        "response_length": {"workload"},
        "adapters": {"models"},
        "target": {"search"},
        "margin": {"search"},
        "strategy": {"search"},
    }
    assert refusal.untried == []
    for remedy in refusal.remedies:
        may = set().union(*(allowed[kind] for kind in remedy.kinds))
        parts = changed_parts(spec, remedy.plan.spec)
        assert parts <= may
        assert len(parts) == len(remedy.kinds)
        assert remedy.plan.price_per_iteration > 0


@pytest.mark.slow
def test_each_change_alone_with_its_plan_the_least_first() -> None:
    spec = small_job(**LONG)
    refusal = explain_refusal(spec)
    sound(spec, refusal)
    kinds = [remedy.kinds for remedy in refusal.remedies]
    assert sorted(kinds[:2]) == [["offload"], ["recompute"]]
    assert sorted(kinds[2:4]) == [["gpu"], ["nodes"]]
    assert sorted(kinds[4:]) == [["adapters"], ["response_length"]]
    assert refusal.reasons[0].over_bytes
    assert all(reason.remedy is None for reason in refusal.reasons)
    recomputed = next(r.plan for r in refusal.remedies if r.kinds == ["recompute"])
    assert make_plan(recomputed.spec).iteration_seconds == recomputed.iteration_seconds


@pytest.mark.slow
def test_the_gpus_that_are_proposed_are_the_least_that_suffice() -> None:
    refusal = explain_refusal(small_job(**ONE_GPU))
    sound(small_job(**ONE_GPU), refusal)
    kinds = [remedy.kinds for remedy in refusal.remedies]
    assert sorted(kinds[:2]) == [["gpu"], ["nodes"]]
    assert kinds[2:] == [["adapters"]]
    (more,) = [remedy.plan for remedy in refusal.remedies if remedy.kinds == ["nodes"]]
    (pool_,) = more.spec.cluster.pools  # type: ignore[union-attr]
    assert pool_.num_nodes == 2
    (other,) = [remedy.plan for remedy in refusal.remedies if remedy.kinds == ["gpu"]]
    (pool_,) = other.spec.cluster.pools  # type: ignore[union-attr]
    assert pool_.gpu == "h200-141gb-sxm"
    smaller = {**ONE_GPU, "cluster__pools": [pool(gpus_per_node=1, gpu="h20")]}
    with pytest.raises(InfeasibleError):
        make_plan(small_job(**smaller), explain=lambda _: [])


@pytest.mark.slow
def test_two_changes_where_no_single_one_suffices() -> None:
    spec = small_job(**PINNED)
    refusal = explain_refusal(spec)
    sound(spec, refusal)
    assert refusal.remedies
    assert all(len(remedy.kinds) == 2 for remedy in refusal.remedies)
    assert sorted(refusal.remedies[0].kinds) == ["constraint", "recompute"]


@pytest.mark.slow
def test_a_target_is_raised_or_met_with_other_gpus() -> None:
    spec = small_job(
        search__objective="fewest_gpus", search__target_iteration_seconds=4.0, num_nodes=1
    )
    refusal = explain_refusal(spec)
    sound(spec, refusal)
    met = {remedy.kinds[0]: remedy.plan.iteration_seconds for remedy in refusal.remedies}
    assert set(met) == {"target", "nodes", "gpu"}
    assert met["target"] > 4.0 >= max(met["nodes"], met["gpu"])


def test_the_limit_ends_it_and_what_was_not_planned_is_said() -> None:
    started = time.perf_counter()
    refusal = explain_refusal(small_job(**LONG), limit_seconds=0.0)
    assert refusal.reasons
    assert refusal.remedies == []
    assert time.perf_counter() - started < 10


def test_planning_explains_where_the_spec_asks_for_it() -> None:
    feasible = small_job(search__explain_infeasible=True)
    assert make_plan_or_explain(feasible).iteration_seconds > 0
    strategy = small_job(search__explain_infeasible=True, search__strategy="one_step_off")
    with pytest.raises(ExplainedInfeasibleError) as error:
        make_plan_or_explain(strategy)
    assert "search.staleness" in error.value.reasons[0].summary
    (remedy,) = error.value.refusal.remedies
    assert remedy.kinds == ["strategy"]
    plain = strategy.model_copy(
        update={"search": strategy.search.model_copy(update={"explain_infeasible": False})}
    )
    with pytest.raises(InfeasibleError) as refused:
        make_plan_or_explain(plain)
    assert not isinstance(refused.value, ExplainedInfeasibleError)
    assert refused.value.reasons[0].remedy.startswith("set search.staleness to 1, or leave out ")
    # As it says; and where the job may have no staleness, it does not say so.
    search = plain.search.model_copy(update={"staleness": 1})
    assert make_plan_or_explain(plain.model_copy(update={"search": search})).iteration_seconds > 0
    with pytest.raises(InfeasibleError) as refused:
        make_plan_or_explain(small_job("remax", search__strategy="one_step_off"))
    assert refused.value.reasons[0].remedy.startswith("leave out search.strategy")
