"""What a spec accepts where numbers belong, from YAML and from JSON alike."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from automap.planner.spec import JobSpec
from tests.helpers.specs import SMALL_ARCHITECTURE, job_spec

POOL = {"name": "a100", "gpu": "a100-80gb-sxm"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cluster__pools", [POOL | {"num_nodes": True}]),
        ("cluster__pools", [POOL | {"num_nodes": "16"}]),
        ("cluster__pools", [POOL | {"num_nodes": 2, "price_per_gpu_hour": "1.8"}]),
        ("workload__epochs", "2"),
        ("workload__epochs", 1.5),
        ("workload__packed_sequences", "yes"),
        ("workload__packed_sequences", 1),
        ("workload__response_length", {"mean": "512", "max": 1024}),
        ("workload__response_length", {"mean": 512, "max": True}),
        ("workload__response_length", {"histogram": [["512", 1]]}),
        ("models__actor", {"architecture": SMALL_ARCHITECTURE | {"num_layers": "12"}}),
        ("models__actor", {"architecture": SMALL_ARCHITECTURE | {"num_layers": True}}),
        ("search__seed", False),
        ("constraints__colocate", [["actor", 1]]),
        ("constraints__keep_free_gpus", {"a100": "1"}),
    ],
)
def test_only_numbers_pass_as_numbers(path: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        job_spec("ppo", **{path: value})


def test_whole_numbers_pass_as_seconds_and_lists_as_pairs() -> None:
    spec = job_spec(
        "ppo",
        workload__startup_seconds=60,
        search__time_limit_seconds=5,
        workload__response_length={"histogram": [[512, 1], [1024, 3]]},
        constraints__colocate=[["actor", "reference"]],
    )
    assert spec.workload.startup_seconds == 60.0
    assert spec.constraints.colocate == [("actor", "reference")]
    assert spec.workload.response_length.max_tokens == 1024


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (["actor", "reference"], [("actor", "reference")]),
        ([["actor", "reference"]], [("actor", "reference")]),
        (
            [["actor", "reference", "reward"]],
            [("actor", "reference"), ("actor", "reward"), ("reference", "reward")],
        ),
        ([], []),
    ],
)
def test_groups_of_roles_are_their_pairs(given: list[Any], pairs: list[tuple[str, str]]) -> None:
    constraints = job_spec(constraints__colocate=given, constraints__separate=given).constraints
    assert constraints.colocate == constraints.separate == pairs


@pytest.mark.parametrize(
    "changes",
    [
        {"constraints__separate": [["actor", "critic"]]},
        {"models__actor": {"architecture": SMALL_ARCHITECTURE}},
        {"models__actor": {"architecture": "gpt2", "lora": {"rank": 8}}},
        {"models__reward": {"function": True}},
        {"models__reward": {"function": True, "seconds_per_response": 0.1, "concurrency": 4}},
        {"models__reward": {"remote": {"requests_per_second": 2.0}}},
        {"models__reward": {"remote": {"seconds_per_response": 0.1, "concurrency": 4}}},
        {"workload__response_length": {"p50": 10, "p90": 20, "max": 30}},
        {"workload__response_length": {"histogram": [[1, 2], [3, 4]]}},
        {"workload__training_precision": "fp8"},
        {"search": {"objective": "fewest_gpus", "target_iteration_seconds": 60}},
        {"search": {"objective": "time", "staleness": 1, "robust": True}},
        {"search": {"staleness": 2, "continuous_rollouts": True, "keep_cache_at_sync": True}},
        {"constraints__parallelism": {"actor": {"num_gpus": 4, "sharding": "full"}}},
        {"cluster": "stored"},
        {
            "algorithm": None,
            "dataflow": {
                "calls": [{"id": "generate", "role": "actor", "kind": "generate"}],
                "edges": [{"source": "generate", "target": "generate", "distance": 1}],
            },
        },
    ],
    ids=lambda changes: ",".join(changes),
)
def test_a_spec_survives_its_own_json(changes: dict[str, Any]) -> None:
    spec = job_spec(**changes)
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert JobSpec.model_validate(json.loads(spec.model_dump_json())) == spec
    # What the command line sends to a service is shorter, and the same.
    sent = spec.model_dump(mode="json", exclude_unset=True)
    assert JobSpec.model_validate(sent) == spec


@pytest.mark.parametrize(
    ("search", "field", "remedy"),
    [
        ({"continuous_rollouts": True}, "continuous_rollouts", "set staleness to 1"),
        ({"keep_cache_at_sync": True, "staleness": 1}, "keep_cache_at_sync", "continuous_rollouts"),
        ({"continuous_rollouts": True, "staleness": 2, "streaming": True}, "streaming", "leave"),
        (
            {"continuous_rollouts": True, "staleness": 2, "generation_tail": True},
            "generation_tail",
            "leave",
        ),
    ],
)
def test_continuous_rollouts_need_slack_and_have_no_tail(
    search: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        job_spec("grpo", search=search)
    assert field in str(refused.value)
    assert remedy in str(refused.value)
