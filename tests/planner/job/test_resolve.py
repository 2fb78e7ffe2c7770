"""Resolving a spec: what a job looks like, and every refusal with its field."""

from typing import Any

import pytest

from automap.planner.errors import SpecError
from automap.planner.job.resolution import length_warnings, resolve
from tests.helpers.specs import REMOVE, ROLES, SMALL_ARCHITECTURE, job_spec

LLAMA = {"architecture": "llama-2-7b"}
POOL = {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2}


def refused(algorithm: str = "ppo", **changes: Any) -> SpecError:
    with pytest.raises(SpecError) as error:
        resolve(job_spec(algorithm, **changes))
    assert error.value.remedy
    return error.value


def test_models_of_ppo() -> None:
    models = resolve(job_spec()).models
    assert {role for role, model in models.items() if model.trainable} == {"actor", "critic"}
    assert {role for role, model in models.items() if model.scalar_head} == {"critic", "reward"}
    assert models["actor"].architecture.num_layers == 32


def test_models_come_in_the_order_of_their_first_calls() -> None:
    job = resolve(job_spec())
    backwards = dict(reversed(job.spec.models.items()))
    turned = resolve(job.spec.model_copy(update={"models": backwards}))
    first_calls = dict.fromkeys(call.model for call in job.dataflow.calls)
    assert list(turned.models) == list(job.models) == list(first_calls)


def test_inline_architecture() -> None:
    job = resolve(job_spec(models__actor={"architecture": SMALL_ARCHITECTURE}))
    assert job.models["actor"].architecture.hidden_size == 768


def test_catalogue_alias_with_a_slash_is_no_path() -> None:
    job = resolve(job_spec(models__actor={"architecture": "meta-llama/Llama-2-7b-hf"}))
    assert job.models["actor"].architecture == job.models["critic"].architecture


def test_pools_lie_one_after_another() -> None:
    pools = [POOL, {"name": "h100", "gpu": "h100", "num_nodes": 3}]
    job = resolve(job_spec(cluster={"pools": pools}, constraints__keep_free_gpus={"h100": 5}))
    assert [(pool.first_gpu, pool.num_gpus) for pool in job.pools] == [(0, 16), (16, 24)]
    assert [pool.kept_free_gpus for pool in job.pools] == [0, 5]
    assert job.num_gpus == 40


def test_pool_defaults_and_overrides() -> None:
    default = resolve(job_spec()).pools[0]
    assert (default.gpus_per_node, default.nvlink_domain_gpus) == (8, 8)
    changed = dict(
        POOL,
        gpus_per_node=4,
        price_per_gpu_hour=0,
        inter_node_bytes_per_second=1e9,
        host_link_bytes_per_second=2e9,
        intra_node_bytes_per_second=3e9,
    )
    pool = resolve(job_spec(cluster={"pools": [changed]})).pools[0]
    assert pool.price_per_gpu_hour == 0
    assert pool.inter_node_bytes_per_second == 1e9
    assert pool.host_link_bytes_per_second == 2e9
    assert pool.intra_node_bytes_per_second == 3e9
    assert pool.nvlink_domain_gpus == 4, "NVLink of half a box stays inside the half"
    assert pool.host_memory_bytes == default.host_memory_bytes // 2


def test_nvlink_domain_over_several_nodes_stays() -> None:
    pools = [{"name": "rack", "gpu": "gb200", "num_nodes": 18}]
    pool = resolve(job_spec(cluster={"pools": pools})).pools[0]
    assert (pool.gpus_per_node, pool.nvlink_domain_gpus) == (4, 72)


def test_length_warnings_name_the_models_that_are_too_short() -> None:
    assert length_warnings(resolve(job_spec())) == []
    long = job_spec(workload__response_length={"p50": 2000, "p90": 4000, "max": 8192})
    warnings = length_warnings(resolve(long))
    assert len(warnings) == 4
    assert "models.actor" in warnings[0]
    assert "9216" in warnings[0]
    assert "4096" in warnings[0]


def test_length_warnings_name_an_assumed_spread() -> None:
    spec = job_spec(workload__response_length={"mean": 500, "max": 2048})
    (warning,) = length_warnings(resolve(spec))
    assert warning.startswith("workload.response_length: the spread is not given")


@pytest.mark.parametrize("algorithm", ROLES)
def test_every_required_role_is_asked_for(algorithm: str) -> None:
    optional = {"reference", "cost_critic"}
    for role in set(ROLES[algorithm]) - optional:
        error = refused(algorithm, **{f"models__{role}": REMOVE})
        assert error.field == f"models.{role}"


def test_missing_reference_names_all_ways_out() -> None:
    error = refused(models__reference=REMOVE)
    assert error.field == "models.reference"
    assert "workload.kl" in error.remedy
    assert "lora" in error.remedy


@pytest.mark.parametrize(
    ("algorithm", "changes", "field", "remedy"),
    [
        ("grpo", {"models__critic": LLAMA}, "models.critic", "actor, reward, reference"),
        ("ppo", {"models__actor": {"architecture": "llama-9"}}, "models.actor.architecture", ""),
        ("ppo", {"models__actor": {"architecture": "./a"}}, "models.actor.architecture", "inline"),
        (
            "ppo",
            {"models__actor": {"architecture": "/etc/config.json"}},
            "models.actor.architecture",
            "command line",
        ),
        ("ppo", {"models__reward": dict(LLAMA, lora={})}, "models.reward.lora", "remove"),
        ("ppo", {"workload__expected_acceptance": 0.5}, "workload.expected_acceptance", "dapo"),
        ("grpo", {"workload__pretrain_loss": True}, "workload.pretrain_loss", "ppo"),
        ("remax", {"search__staleness": 1}, "search.staleness", "set it to 0"),
        (
            "remax",
            {"search": {"staleness": 1, "continuous_rollouts": True, "target": "any"}},
            "search.staleness",
            "set it to 0",
        ),
        (
            "grpo",
            {
                "search": {"staleness": 2, "continuous_rollouts": True},
                "constraints": {"allow_shadow_copies": False},
            },
            "constraints.allow_shadow_copies",
            "leave out one",
        ),
        (
            "grpo",
            {"search": {"staleness": 2, "continuous_rollouts": True, "target": "slime@0.3.1"}},
            "search.target",
            "search.continuous_rollouts",
        ),
        (
            "grpo",
            {"search": {"staleness": 2, "continuous_rollouts": False, "target": "verl@0.9.1"}},
            "search.target",
            "search.continuous_rollouts",
        ),
        (
            "grpo",
            {
                "search": {
                    "staleness": 2,
                    "continuous_rollouts": True,
                    "keep_cache_at_sync": True,
                    "target": "areal@1.0.4",
                }
            },
            "search.target",
            "search.keep_cache_at_sync",
        ),
        ("ppo", {"cluster": "stored"}, "cluster", "pools"),
        ("ppo", {"cluster": {"pools": [dict(POOL, gpu="a101")]}}, "cluster.pools.0.gpu", "a100"),
        (
            "ppo",
            {"cluster": {"pools": [dict(POOL, nvlink_domain_gpus=3)]}},
            "cluster.pools.0.nvlink_domain_gpus",
            "8",
        ),
        (
            "ppo",
            {"workload__prompts_per_iteration": 10**9, "workload__responses_per_prompt": 100},
            "workload",
            "within",
        ),
        (
            "dapo",
            {"workload__expected_acceptance": 1e-12},
            "workload.expected_acceptance",
            "acceptance",
        ),
        (
            "ppo",
            {"constraints__keep_free_gpus": {"a100": 16}},
            "constraints.keep_free_gpus.a100",
            "at most 15",
        ),
        (
            "ppo",
            {"constraints__keep_free_gpus": {"b200": 1}},
            "constraints.keep_free_gpus.b200",
            "a100",
        ),
    ],
)
def test_refusals(algorithm: str, changes: dict[str, Any], field: str, remedy: str) -> None:
    error = refused(algorithm, **changes)
    assert error.field == field
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("precision", "gpu", "words"),
    [
        ("int4", "v100-32gb", "v100-32gb of pool a100 has no kernels for 4-bit weights"),
        ("nvfp4", "cpu", "cpu of pool a100 has no kernels for 4-bit weights"),
        ("mxfp4", "b200", "a format of routed experts, but models.actor has none"),
    ],
)
def test_4_bit_weights_that_cannot_be_had_are_refused(precision: str, gpu: str, words: str) -> None:
    changes = {"workload__rollout_precision": precision, "workload__precision": "bf16"}
    pools = [dict(POOL, gpu=gpu)]
    error = refused("grpo", cluster={"pools": pools}, search__target="any", **changes)
    assert error.field == "workload.rollout_precision"
    assert words in error.message


def test_nvfp4_is_for_gpus_without_4_bit_arithmetic_too() -> None:
    """Engines unpack its weights there (Marlin kernels, from Ampere on)."""
    for gpu in ("a100", "l40s", "h100", "b200"):
        pools = [dict(POOL, gpu=gpu)]
        changes = {"workload__rollout_precision": "nvfp4", "cluster": {"pools": pools}}
        assert resolve(job_spec("grpo", **changes)).target.name == "any"
