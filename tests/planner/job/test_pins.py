"""What the keys of constraints.pools and constraints.parallelism mean, and which are refused."""

from typing import Any

import pytest

from automap.planner.errors import SpecError
from automap.planner.job import pins
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.spec import ParallelismConstraint
from tests.helpers.specs import job_spec

THREE_POOLS = {
    "pools": [
        {"name": "h100", "gpu": "h100", "num_nodes": 4},
        {"name": "l40s", "gpu": "l40s", "num_nodes": 2},
        {"name": "rollout", "gpu": "l40s", "num_nodes": 2},
    ]
}
NO_SHADOWS = {"allow_shadow_copies": False}


def job(algorithm: str = "grpo", **constraints: Any) -> Job:
    return resolve(job_spec(algorithm, cluster=THREE_POOLS, constraints=constraints))


def refused(algorithm: str = "grpo", **constraints: Any) -> SpecError:
    with pytest.raises(SpecError) as error:
        job(algorithm, **constraints)
    assert error.value.remedy
    return error.value


@pytest.mark.parametrize(
    ("pools", "home", "shadow"),
    [
        ({}, None, None),
        ({"actor": "h100"}, "h100", "h100"),
        ({"actor.shadow": "l40s"}, None, "l40s"),
        ({"actor": "h100", "actor.shadow": "l40s"}, "h100", "l40s"),
        ({"actor": "h100", "actor.generate": "rollout"}, "h100", "rollout"),
        ({"actor.train": "h100"}, "h100", None),
        ({"actor.train": "h100", "actor.generate": "rollout"}, "h100", "rollout"),
        ({"actor.train": "h100", "actor.forward": "h100"}, "h100", None),
        ({"actor.generate": "rollout"}, None, None),
    ],
)
def test_pins_of_copies(pools: dict[str, str], home: str | None, shadow: str | None) -> None:
    made = job(pools=pools)
    assert (pins.home_pool(made, "actor"), pins.shadow_pool(made, "actor")) == (home, shadow)


def test_a_shadow_lies_only_where_it_can_serve() -> None:
    made = job(pools={"actor.generate": "rollout"})
    for name in ("h100", "l40s", "rollout"):
        assert pins.may_lie_in(made, "actor", name, shadow=False)
        assert pins.may_lie_in(made, "actor", name, shadow=True) == (name == "rollout")


def test_without_shadows_every_call_pins_the_home() -> None:
    made = job(pools={"actor.generate": "rollout"}, **NO_SHADOWS)
    assert pins.home_pool(made, "actor") == "rollout"


def test_a_reference_that_the_actor_serves_pins_the_actor() -> None:
    models = {"actor": {"architecture": "llama-2-7b", "lora": {}}, "reward": {"function": True}}
    spec = job_spec(
        "grpo",
        models=models,
        cluster=THREE_POOLS,
        constraints={"pools": {"reference.forward": "h100"}},
    )
    assert pins.home_pool(resolve(spec), "actor") == "h100"


def test_a_role_goes_before_a_call_of_the_same_name() -> None:
    calls = [
        {"id": "actor", "role": "actor", "kind": "generate"},
        {"id": "learn", "role": "actor", "kind": "train"},
    ]
    spec = job_spec(
        None,
        dataflow={"calls": calls, "edges": [{"source": "actor", "target": "learn"}]},
        models={"actor": {"architecture": "llama-2-7b"}},
        cluster=THREE_POOLS,
        constraints={"pools": {"actor": "h100", "learn": "h100"}},
    )
    made = resolve(spec)
    assert list(pins.call_keys(made)) == ["learn"]
    assert pins.call_pool(made, made.dataflow.calls[0]) is None


@pytest.mark.parametrize(
    ("algorithm", "pools", "key", "words"),
    [
        ("grpo", {"actor.genrate": "h100"}, "actor.genrate", "did you mean actor.generate?"),
        ("grpo", {"refrence": "h100"}, "refrence", "did you mean reference?"),
        ("grpo", {"actor.generate": "b200"}, "actor.generate", "use one of h100, l40s, rollout"),
        ("grpo", {"reward.shadow": "h100"}, "reward.shadow", "reward does not"),
        ("grpo", {"actor": "h100", "actor.train": "l40s"}, "actor.train", "home of actor"),
        ("grpo", {"actor.train": "h100", "actor.forward": "l40s"}, "actor.train", "home of actor"),
        (
            "remax",
            {"actor": "h100", "actor.generate": "l40s", "actor.generate.greedy": "rollout"},
            "actor.generate.greedy",
            "use h100 or l40s",
        ),
        (
            "grpo",
            {"actor": "h100", "actor.shadow": "l40s", "actor.generate": "rollout"},
            "actor.shadow",
            "actor.generate to rollout",
        ),
        (
            "grpo",
            {"actor.generate": "h100", "actor.shadow": "l40s", "actor.train": "h100"},
            "actor.shadow",
            "actor.generate to h100",
        ),
    ],
)
def test_pools_that_nothing_can_obey(
    algorithm: str, pools: dict[str, str], key: str, words: str
) -> None:
    error = refused(algorithm, pools=pools)
    assert error.field == f"constraints.pools.{key}"
    assert words in str(error)


def test_a_rollout_elsewhere_needs_a_shadow() -> None:
    error = refused(pools={"actor": "h100", "actor.generate": "l40s"}, **NO_SHADOWS)
    assert error.field == "constraints.pools.actor.generate"
    assert "constraints.allow_shadow_copies is false" in str(error)
    error = refused(pools={"actor.shadow": "l40s"}, **NO_SHADOWS)
    assert "constraints.allow_shadow_copies is false" in str(error)


def test_a_function_has_no_pool() -> None:
    spec = job_spec(
        "grpo",
        models__reward={"function": True},
        cluster=THREE_POOLS,
        constraints={"pools": {"reward.forward": "h100"}},
    )
    with pytest.raises(SpecError, match="needs no GPU"):
        resolve(spec)


def test_what_is_fixed_of_a_call_goes_before_its_role() -> None:
    fixed = {
        "actor": {"micro_batch_size": 2, "generation_tensor_parallel_size": 2},
        "actor.train": {"micro_batch_size": 4, "recompute": "full"},
        "actor.generate": {"tensor_parallel_size": 4},
        "actor.shadow": {"num_gpus": 16},
    }
    made = job(parallelism=fixed)
    calls = {call.id: call for call in made.dataflow.calls}
    forward, train = (pins.settings(made, calls[f"actor.{k}"]) for k in ("forward", "train"))
    assert forward is not None
    assert train is not None
    assert (forward.micro_batch_size, forward.recompute) == (2, None)
    assert (train.micro_batch_size, train.recompute) == (4, "full")
    assert pins.engine_sizes(made, calls["actor.generate"]).tensor_parallel_size == 4
    assert pins.shadow_sizes(made, "actor") == [
        ParallelismConstraint(num_gpus=16, tensor_parallel_size=4)
    ]


@pytest.mark.parametrize(
    ("key", "fixed", "name", "words"),
    [
        ("actor.train", {"tensor_parallel_size": 2}, "tensor_parallel_size", "parallelism.actor"),
        ("actor.forward", {"recompute": "full"}, "recompute", "use micro_batch_size"),
        ("actor.generate", {"micro_batch_size": 2}, "micro_batch_size", "use num_gpus"),
        ("actor.shadow", {"sharding": "full"}, "sharding", "a shadow"),
        (
            "actor.generate",
            {"generation_tensor_parallel_size": 2},
            "generation_tensor_parallel_size",
            "write tensor_parallel_size",
        ),
        ("actor.generate", {"tensor_parallel_size": 3}, "tensor_parallel_size", "1, 2, 4"),
        ("actor.generate", {"num_gpus": 64}, "num_gpus", "at most 32"),
        ("actor.shadow", {"num_gpus": 8, "tensor_parallel_size": 3}, "num_gpus", "multiple of 3"),
    ],
)
def test_sizes_that_cannot_be(key: str, fixed: dict[str, Any], name: str, words: str) -> None:
    error = refused(parallelism={key: fixed})
    assert error.field == f"constraints.parallelism.{key}.{name}"
    assert words in str(error)


def test_sizes_that_contradict_the_only_copy_that_serves() -> None:
    sizes = {"actor.shadow": {"num_gpus": 8}, "actor.generate": {"num_gpus": 16}}
    assert refused(parallelism=sizes).field == "constraints.parallelism.actor.shadow.num_gpus"
    sizes = {"actor": {"num_gpus": 8}, "actor.generate": {"num_gpus": 16}}
    error = refused(parallelism=sizes, **NO_SHADOWS)
    assert error.field == "constraints.parallelism.actor.generate.num_gpus"
    job(parallelism=sizes)  # on a shadow


def test_a_pinned_call_has_the_gpus_of_its_pool_alone() -> None:
    error = refused(
        pools={"actor.generate": "l40s"}, parallelism={"actor.generate": {"num_gpus": 32}}
    )
    assert "at most 16" in error.remedy


def test_recomputation_of_a_call_against_what_the_job_allows() -> None:
    error = refused(parallelism={"actor.train": {"recompute": "full"}}, allow_recompute=False)
    assert error.field == "constraints.parallelism.actor.train.recompute"
