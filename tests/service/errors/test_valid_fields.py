"""What is said of fields that a mapping does not have, and of mappings that are none."""

from typing import Any

import pytest
from pydantic import ValidationError

from automap.executor.settings import RunSettings
from automap.planner.spec import JobSpec, job_spec_json_schema
from automap.service.errors.fields import FieldError, field_errors
from automap.service.errors.names_elsewhere import FIELDS, INSTEAD
from automap.service.errors.valid_fields import field_of_spec
from tests.service.support.samples import changed, small_spec

SPEC = small_spec()
SETTINGS = {"data": {"path": "/rows.jsonl"}}


def told(data: Any, content: type[JobSpec | RunSettings] = JobSpec) -> list[FieldError]:
    with pytest.raises(ValidationError) as caught:
        content.model_validate(data)
    return field_errors(caught.value, data)


@pytest.mark.parametrize(
    ("path", "value", "field", "remedy"),
    [
        ("models.actor", {"model": "gpt2"}, "models.actor.model", "'architecture'"),
        ("models.actor", {"archtecture": "gpt2"}, "models.actor.archtecture", "'architecture'"),
        ("models.actor", {"name": "gpt2"}, "models.actor.name", "'architecture'"),
        ("search", {"time_limit": 5}, "search.time_limit", "'time_limit_seconds'"),
        (
            "constraints",
            {"parallelism": {"actor": {"tp": 8}}},
            "constraints.parallelism.actor.tp",
            "'tensor_parallel_size'",
        ),
        ("search", {"banana": 5}, "search.banana", "objective, "),
        ("iterations", 5, "iterations", "it belongs in workload"),
        ("seed", 5, "seed", "it belongs in search"),
        ("data", {"path": "x"}, "data", "the run settings"),
        ("models.actor", "gpt2", "models.actor", "by name: architecture, lora"),
        ("models.actor.lora", 16, "models.actor.lora", "by name: rank"),
        ("workload.prompt_length", 512, "workload.prompt_length", "by name: mean, "),
        ("workload.prompt_length", 512, "workload.prompt_length", "{mean: 512, max: 512} if all"),
        ("cluster", [{"gpu": "h100"}], "cluster", "write {pools: "),
        ("cluster", {"gpu": "h100", "num_nodes": 1}, "cluster", "write {pools: "),
        ("cluster", "64xH100", "cluster", "write {pools: "),
        ("cluster", 64, "cluster", "write {pools: "),
        ("workload.rollout_n", 8, "workload.rollout_n", "it is 'responses_per_prompt' here"),
        ("workload.n", 8, "workload.n", "it is 'responses_per_prompt' here, which is given"),
        ("num_generations", 8, "num_generations", "write workload.responses_per_prompt"),
        ("train_batch_size", 64, "train_batch_size", "write workload.prompts_per_iteration"),
        ("workload.mini_batch_size", 64, "workload.mini_batch_size", "workload.updates_per_epoch"),
        ("ppo_mini_batch_size", 64, "ppo_mini_batch_size", "workload.updates_per_epoch"),
        ("max_response_length", 64, "max_response_length", "write workload.response_length"),
        ("workload.kl_coef", 0.1, "workload.kl_coef", "write workload.kl: loss, reward or none"),
        ("algorithm", "dr_grpo", "algorithm", "write grpo to plan it"),
        ("algorithm", "drgrpo", "algorithm", "write grpo to plan it"),
        ("algorithm", "gspo", "algorithm", "write grpo to plan it"),
        ("models.reward", {"function": "a.py:f"}, "models.reward.function", "run settings"),
        ("workload.rollout_engine", "vLLM", "workload.rollout_engine", "did you mean 'vllm'?"),
        ("algorithm", "own.py:PROGRAM", "algorithm", "automap plan"),
        ("algorithm", "DPO", "algorithm", "for example grpo"),
    ],
)
def test_one_mistake_is_told_with_what_would_be_valid(
    path: str, value: Any, field: str, remedy: str
) -> None:
    (error,) = told(changed(SPEC, path, value))
    assert error.field == field
    assert error.value is not None
    assert remedy in error.remedy


def test_a_field_that_is_there_is_not_what_an_unknown_one_was_meant_to_be() -> None:
    (error,) = told(changed(SPEC, "cluster.pools.0.gpus", 8))
    assert error.remedy.startswith("remove it; other fields here are ")
    assert " gpu," not in error.remedy
    assert "gpus_per_node" in error.remedy


def test_a_name_of_another_framework_is_read_beside_what_is_missing() -> None:
    workload = dict(SPEC["workload"])
    workload["response_tokens"] = workload.pop("response_length")
    (error,) = told({**SPEC, "workload": workload})
    assert error.field == "workload.response_tokens"
    assert "'response_length'" in error.remedy


@pytest.mark.parametrize(
    ("field", "name", "remedy"),
    [
        ("responses_per_prompt", "rollout_n", "did you mean 'responses_per_prompt'?"),
        ("prompts_per_iteration", "train_batch_size", "did you mean 'prompts_per_iteration'?"),
        (
            "response_length",
            "max_response_length",
            "did you mean 'response_length: {mean: MEAN, max: 64}'?",
        ),
        ("prompt_length", "max_prompt_length", "did you mean 'prompt_length: {mean: MEAN, max: 64"),
    ],
)
def test_a_name_of_another_framework_in_place_of_a_field_is_one_mistake(
    field: str, name: str, remedy: str
) -> None:
    workload = {key: value for key, value in SPEC["workload"].items() if key != field}
    (error,) = told({**SPEC, "workload": {**workload, name: 64}})
    assert error.field == f"workload.{name}"
    assert remedy in error.remedy


def test_names_elsewhere_are_of_fields_that_there_are() -> None:
    known = str(job_spec_json_schema())
    assert all(f"'{field}'" in known for field in FIELDS.values())
    assert not FIELDS.keys() & INSTEAD.keys()


def test_run_settings_have_fields_of_their_own() -> None:
    (error,) = told({**SETTINGS, "training": {"actor": {"banana": 1}}}, RunSettings)
    assert error.field == "training.actor.banana"
    assert "micro_batch_tokens" in error.remedy


def test_of_another_document_nothing_is_said() -> None:
    """A stored cluster is no spec, although both have a name."""
    (error,) = [each for each in told({"name": "lab", "gpu": "h100"}) if each.field == "gpu"]
    assert error.remedy == "remove this field, or correct its name"


def test_an_option_that_is_a_field_of_the_spec() -> None:
    assert field_of_spec("objective") == "search.objective"
    assert field_of_spec("time_limit") == "search.time_limit_seconds"
    assert field_of_spec("algorithm") == "algorithm"
    assert field_of_spec("nodes") == ""
