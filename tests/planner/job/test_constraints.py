"""Every contradiction among constraints is refused with its field; what can hold is not."""

from typing import Any

import pytest

from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from tests.helpers.specs import REMOVE, job_spec

MOE = {"architecture": "qwen3-30b-a3b"}
TWO_POOLS = {
    "pools": [
        {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2},
        {"name": "h100", "gpu": "h100", "num_nodes": 4},
    ]
}


def refused(constraints: dict[str, Any], **changes: Any) -> SpecError:
    with pytest.raises(SpecError) as error:
        resolve(job_spec(constraints=constraints, **changes))
    assert error.value.remedy
    return error.value


def sizes(role: str, **fixed: Any) -> dict[str, Any]:
    return {"parallelism": {role: fixed}}


@pytest.mark.parametrize(
    "constraints",
    [
        {"pools": {"actor": "h100", "critic": "h100"}, "colocate": [("actor", "critic")]},
        {"colocate": [("actor", "critic")], "separate": [("actor", "reward")]},
        sizes("actor", num_gpus=32, tensor_parallel_size=8),
        sizes("actor", tensor_parallel_size=8, pipeline_parallel_size=2, recompute="full"),
        sizes("reference", num_gpus=8, sharding="full", micro_batch_size=4),
        sizes("critic", data_parallel_size=3),
        sizes("actor", tensor_parallel_size=16) | {"tensor_parallel_across_nodes": True},
        sizes("actor", data_parallel_size=16, micro_batch_size=8) | {"require_even_batch": True},
    ],
)
def test_constraints_that_can_hold(constraints: dict[str, Any]) -> None:
    resolve(job_spec(constraints=constraints, cluster=TWO_POOLS))


@pytest.mark.parametrize(
    ("constraints", "field"),
    [
        ({"pools": {"judge": "a100"}}, "constraints.pools.judge"),
        ({"pools": {"actor": "b200"}}, "constraints.pools.actor"),
        (sizes("judge"), "constraints.parallelism.judge"),
        ({"colocate": [("actor", "judge")]}, "constraints.colocate.0"),
        ({"separate": [("actor", "actor")]}, "constraints.separate.0"),
        (
            {"colocate": [("actor", "critic")], "separate": [("critic", "actor")]},
            "constraints.separate.0",
        ),
        (
            {
                "colocate": [("actor", "critic"), ("critic", "reward")],
                "separate": [("reference", "reward"), ("actor", "reward")],
            },
            "constraints.separate.1",
        ),
        (
            {"colocate": [("actor", "critic")], "pools": {"actor": "a100", "critic": "h100"}},
            "constraints.pools.critic",
        ),
        (
            {
                "colocate": [("actor", "critic")],
                "parallelism": {"actor": {"num_gpus": 8}, "critic": {"num_gpus": 16}},
            },
            "constraints.parallelism.critic.num_gpus",
        ),
    ],
)
def test_contradictory_roles_and_pools(constraints: dict[str, Any], field: str) -> None:
    assert refused(constraints, cluster=TWO_POOLS).field == field


@pytest.mark.parametrize(
    ("role", "fixed", "name", "remedy"),
    [
        ("actor", {"num_gpus": 33}, "num_gpus", "at most 32"),
        ("actor", {"num_gpus": 8, "tensor_parallel_size": 3}, "num_gpus", "multiple of 3"),
        (
            "actor",
            {
                "num_gpus": 16,
                "tensor_parallel_size": 2,
                "pipeline_parallel_size": 2,
                "context_parallel_size": 1,
                "data_parallel_size": 2,
            },
            "num_gpus",
            "set num_gpus to 8",
        ),
        ("actor", {"tensor_parallel_size": 3}, "tensor_parallel_size", "1, 2, 4, 8, 16, 32"),
        ("actor", {"tensor_parallel_size": 16}, "tensor_parallel_size", "at most 8"),
        (
            "actor",
            {"generation_tensor_parallel_size": 5},
            "generation_tensor_parallel_size",
            "1, 2, 4",
        ),
        ("critic", {"generation_tensor_parallel_size": 2}, "generation_tensor_parallel_size", ""),
        ("actor", {"pipeline_parallel_size": 33}, "pipeline_parallel_size", "at most 32"),
        ("actor", {"expert_parallel_size": 2}, "expert_parallel_size", "use 1"),
        ("reward", {"recompute": "full"}, "recompute", "leave"),
        ("reward", {"sharding": "gradient"}, "sharding", "leave"),
        ("actor", {"data_parallel_size": 129}, "data_parallel_size", "at most 128"),
    ],
)
def test_impossible_sizes(role: str, fixed: dict[str, Any], name: str, remedy: str) -> None:
    """1,024 sequences in 8 updates: an update has 128; the largest pool has 32 GPUs."""
    error = refused(sizes(role, **fixed), cluster=TWO_POOLS)
    assert error.field == f"constraints.parallelism.{role}.{name}"
    assert remedy in error.remedy


def test_a_pinned_role_has_its_pool_alone() -> None:
    constraints = {"pools": {"actor": "a100"}} | sizes("actor", num_gpus=32)
    assert "16" in refused(constraints, cluster=TWO_POOLS).remedy


def test_kept_free_gpus_are_not_usable() -> None:
    constraints = {"keep_free_gpus": {"a100": 8}} | sizes("actor", num_gpus=16)
    assert "at most 8" in refused(constraints).remedy


def test_sizes_without_num_gpus_multiply() -> None:
    fixed = {"tensor_parallel_size": 8, "pipeline_parallel_size": 4}
    assert refused(sizes("actor", **fixed)).field == "constraints.parallelism.actor"


def test_experts_must_divide() -> None:
    error = refused(sizes("actor", expert_parallel_size=3), models__actor=MOE)
    assert error.field == "constraints.parallelism.actor.expert_parallel_size"
    assert "128" in error.remedy


def test_even_batch() -> None:
    constraints = sizes("actor", data_parallel_size=3) | {"require_even_batch": True}
    assert refused(constraints).field == "constraints.parallelism.actor.data_parallel_size"
    uneven = refused({"require_even_batch": True}, workload__updates_per_epoch=7)
    assert uneven.field == "workload.updates_per_epoch"


def test_recompute_that_is_not_allowed() -> None:
    constraints = sizes("actor", recompute="full") | {"allow_recompute": False}
    assert refused(constraints).field == "constraints.parallelism.actor.recompute"


@pytest.mark.parametrize(
    ("changes", "role", "why"),
    [
        ({"workload__kl": "none"}, "reference", "kl none"),
        ({"models__reward": {"function": True}}, "reward", "function"),
        (
            {
                "models__reference": REMOVE,
                "models__actor": {"architecture": "llama-2-7b", "lora": {}},
            },
            "reference",
            "base",
        ),
    ],
)
def test_roles_without_weights_say_why(changes: dict[str, Any], role: str, why: str) -> None:
    error = refused({"colocate": [("actor", role)]}, **changes)
    assert error.field == "constraints.colocate.0"
    assert why in error.message
