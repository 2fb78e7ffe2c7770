"""The programs as the planner sees them, against the graphs that the papers draw."""

import ast
import json
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from automap.planner.dataflow import algorithms
from automap.planner.dataflow.algorithms import PROGRAMS
from automap.planner.dataflow.algorithms.program import Data, Models, Ops, Program
from automap.planner.dataflow.graph import Call, Dataflow
from automap.planner.dataflow.trace import trace
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.spec import AlgorithmName, JobSpec, ModelSpec
from tests.helpers.specs import REMOVE, ROLES, job_spec

GOLDEN = Path(__file__).parents[2] / "golden"
PROGRAM_FILES = Path(algorithms.__file__).parent.glob("*.py")
GOLDEN_ALGORITHMS = ("ppo", "remax", "safe_rlhf", "grpo")


def traced(algorithm: str = "ppo", **changes: object) -> Dataflow:
    return resolve(job_spec(algorithm, **changes)).dataflow


def ids(dataflow: Dataflow) -> list[str]:
    return [call.id for call in dataflow.calls]


def call(dataflow: Dataflow, call_id: str) -> Call:
    return next(call for call in dataflow.calls if call.id == call_id)


def after(dataflow: Dataflow, call_id: str) -> set[str]:
    """Every call that must have ended before this one, through any chain."""
    direct = {e.source for e in dataflow.edges if e.target == call_id and e.distance == 0}
    return direct.union(*(after(dataflow, source) for source in direct))


def golden_text(algorithm: str) -> str:
    """One line per call: what it processes, what it waits for, whose weights it reads."""
    dataflow = traced(algorithm)
    lines = []
    for item in dataflow.calls:
        entry: dict[str, object] = {"call": item.id, "model": item.model}
        entry["sequences"] = item.num_sequences
        if item.kind == "train":
            entry["updates"] = item.num_updates
        incoming = [edge for edge in dataflow.edges if edge.target == item.id]
        entry["after"] = [edge.source for edge in incoming if edge.distance == 0]
        entry["after_previous"] = [edge.source for edge in incoming if edge.distance == 1]
        lines.append("    " + json.dumps(entry))
    head = {
        "algorithm": algorithm,
        "paper": PROGRAMS[algorithm].paper,
        "workload": "256 prompts × 4 responses, 8 updates, KL in the reward, log-probs recomputed",
        "staleness_allowed": dataflow.allows_staleness,
    }
    fields = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in head.items()]
    return "{\n" + ",\n".join([*fields, '  "calls": [\n' + ",\n".join(lines) + "\n  ]"]) + "\n}\n"


@pytest.mark.parametrize("algorithm", GOLDEN_ALGORITHMS)
def test_traced_graph_is_the_golden_one(algorithm: str) -> None:
    assert golden_text(algorithm) == (GOLDEN / f"dataflow_{algorithm}.json").read_text("utf-8")


def test_every_algorithm_name_has_a_program() -> None:
    assert set(get_args(AlgorithmName)) == set(PROGRAMS)


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_declared_roles_are_those_called(algorithm: str) -> None:
    """With every optional role given, exactly the declared roles are called."""
    assert set(ROLES[algorithm]) == set(PROGRAMS[algorithm].all_roles)
    called = {item.role for item in traced(algorithm).calls}
    assert called == set(PROGRAMS[algorithm].all_roles)


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_required_roles_are_enough_without_kl(algorithm: str) -> None:
    models = {role: {"architecture": "llama-2-7b"} for role in PROGRAMS[algorithm].roles}
    dataflow = traced(algorithm, models=models, workload__kl="none")
    assert {item.role for item in dataflow.calls} == set(models)


@pytest.mark.parametrize("path", sorted(PROGRAM_FILES), ids=lambda path: path.name)
def test_programs_import_only_the_standard_library_and_planner(path: Path) -> None:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").split(".")[0])
    assert modules <= {"automap", "collections", "dataclasses", "typing"}


def test_ppo_has_seven_calls_and_six_with_the_rollouts_log_probs() -> None:
    recomputed = traced()
    recorded = traced(workload__old_log_probs="rollout")
    assert len(recomputed.calls) == 7
    assert set(ids(recomputed)) - set(ids(recorded)) == {"actor.forward"}
    assert "actor.generate" in after(recorded, "actor.train")


def test_kl_moves_the_reference_between_reward_and_loss() -> None:
    in_reward, in_loss = traced(workload__kl="reward"), traced(workload__kl="loss")
    for train in ("actor.train", "critic.train"):
        assert "reference.forward" in after(in_reward, train)
    assert "reference.forward" in after(in_loss, "actor.train")
    assert "reference.forward" not in after(in_loss, "critic.train")
    assert "actor.forward" not in after(in_loss, "critic.train")
    assert "actor.forward" in after(in_loss, "actor.train")


def test_kl_none_drops_a_given_reference() -> None:
    job = resolve(job_spec(workload__kl="none"))
    assert "reference.forward" not in ids(job.dataflow)
    assert set(job.models) == {"actor", "critic", "reward"}


def test_remax_generates_twice_on_the_same_weights_and_has_no_critic() -> None:
    dataflow = traced("remax")
    greedy = call(dataflow, "actor.generate.greedy")
    assert greedy.num_sequences == 256, "one greedy response per prompt"
    assert call(dataflow, "actor.generate").num_sequences == 1024
    assert call(dataflow, "reward.forward.greedy").num_sequences == 256
    assert after(dataflow, "reward.forward.greedy") == {"actor.generate.greedy"}
    weights = {edge.target for edge in dataflow.edges if edge.source == "actor.train"}
    assert {"actor.generate", "actor.generate.greedy"} <= weights
    assert not any("critic" in item.role for item in dataflow.calls)


@pytest.mark.parametrize("algorithm", ["remax", "rloo"])
def test_without_a_ratio_log_probs_are_only_for_the_kl(algorithm: str) -> None:
    assert "actor.forward" in ids(traced(algorithm, workload__kl="reward"))
    assert "actor.forward" not in ids(traced(algorithm, workload__kl="loss"))
    assert "actor.forward" not in ids(traced(algorithm, workload__kl="none"))


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_staleness_needs_an_importance_ratio(algorithm: str) -> None:
    refused = algorithm in {"remax", "rloo"}
    assert PROGRAMS[algorithm].has_importance_ratio is not refused
    spec = job_spec(algorithm, search__staleness=1)
    if not refused:
        assert resolve(spec).dataflow.allows_staleness
        return
    with pytest.raises(SpecError) as error:
        resolve(spec)
    assert error.value.field == "search.staleness"


def test_safe_rlhf_with_one_critic_is_hybridflows() -> None:
    """HybridFlow (arXiv:2409.19256, figure 1) draws five models; the paper's own code has six."""
    dataflow = traced("safe_rlhf", models__cost_critic=REMOVE)
    assert {item.role for item in dataflow.calls} == set(ROLES["safe_rlhf"]) - {"cost_critic"}
    assert "cost.forward" in after(dataflow, "critic.train")
    assert "cost.forward" not in after(traced("safe_rlhf"), "critic.train")


@pytest.mark.parametrize("algorithm", ["ppo", "safe_rlhf"])
def test_pretrain_loss_adds_sequences_to_the_actors_training(algorithm: str) -> None:
    dataflow = traced(algorithm, workload__pretrain_loss=True, workload__epochs=2)
    extra = {item.id: item.extra_forward_sequences for item in dataflow.calls}
    assert extra.pop("actor.train") == 2 * 1024
    assert set(extra.values()) == {0}


def test_dapo_draws_more_than_it_trains_on() -> None:
    dataflow = traced("dapo", workload__expected_acceptance=0.3, workload__kl="none")
    assert {item.id: item.num_sequences for item in dataflow.calls} == {
        "actor.generate": 3414,  # 1024 / 0.3, rounded up
        "reward.forward": 3414,
        "actor.forward": 1024,
        "actor.train": 1024,
    }
    assert "reward.forward" in after(dataflow, "actor.forward")


@pytest.mark.parametrize("divisor", range(1, 60))
def test_repetitions_are_not_rounded_up_by_float_noise(divisor: int) -> None:
    dataflow = traced("dapo", workload__expected_acceptance=1 / divisor)
    assert call(dataflow, "actor.generate").num_sequences == 1024 * divisor


def test_epochs_and_updates_reach_every_train_call() -> None:
    dataflow = traced(workload__epochs=3)
    for item in dataflow.calls:
        trains = item.kind == "train"
        assert (item.epochs, item.num_updates) == ((3, 24) if trains else (1, 0))


def test_lora_actor_serves_the_reference_with_its_base() -> None:
    job = resolve(
        job_spec(models__reference=REMOVE, models__actor={"architecture": "llama-2-7b", "lora": {}})
    )
    assert call(job.dataflow, "reference.forward").model == "actor"
    assert "reference" not in job.models
    assert job.models["actor"].lora_rank == 16
    incoming = [edge for edge in job.dataflow.edges if edge.target == "reference.forward"]
    assert [edge.source for edge in incoming] == ["actor.generate"], "training keeps the base"


def test_explicit_reference_beside_a_lora_actor_has_its_own_copy() -> None:
    job = resolve(job_spec(models__actor={"architecture": "llama-2-7b", "lora": {"rank": 8}}))
    assert call(job.dataflow, "reference.forward").model == "reference"


def test_reward_function_takes_fixed_seconds_in_batches_of_its_concurrency() -> None:
    function = {"function": True, "seconds_per_response": 0.5, "concurrency": 100}
    job = resolve(job_spec("grpo", models__reward=function))
    reward = call(job.dataflow, "reward.forward")
    assert (reward.model, reward.fixed_seconds) == (None, 5.5)  # 1024 responses are 11 batches
    assert "reward" not in job.models


@pytest.mark.parametrize(
    ("service", "seconds"),
    [
        ({"seconds_per_response": 0.5, "concurrency": 100}, 5.5),  # 1024 responses are 11 rounds
        ({"seconds_per_response": 0.5}, 512.0),  # one after the other, in the one process of a run
        ({"requests_per_second": 64.0}, 16.0),
        ({"requests_per_second": 64.0, "seconds_per_response": 0.25}, 16.25),
        (
            {"requests_per_second": 64.0, "seconds_per_response": 2.0, "concurrency": 32},
            64.0,  # fewer requests are open than the rate would let through
        ),
    ],
)
def test_remote_reward_takes_time_and_no_gpu(service: dict[str, float], seconds: float) -> None:
    job = resolve(job_spec("grpo", models__reward={"remote": service}))
    reward = call(job.dataflow, "reward.forward")
    assert (reward.model, reward.fixed_seconds) == (None, seconds)
    assert "reward" not in job.models


REMOTE = {"remote": {"requests_per_second": 1.0}}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"remote": {}}, "seconds_per_response: a remote service takes time"),
        (REMOTE | {"function": True}, "remote: .* exactly one of .* this has function and remote"),
        (REMOTE | {"architecture": "llama-2-7b"}, "this has architecture and remote"),
        (REMOTE | {"lora": {}}, "lora: a remote service has no weights"),
        (REMOTE | {"concurrency": 2}, "concurrency: .* under remote: {concurrency: "),
        (REMOTE | {"seconds_per_response": 2.0}, "seconds_per_response: .* under remote"),
        (
            {"architecture": "gpt2", "seconds_per_response": 2.0},
            "seconds_per_response: .*remove it",
        ),
        ({"architecture": "gpt2", "concurrency": 2}, "concurrency: is what a function has"),
        ({}, "architecture: .* none of them"),
    ],
)
def test_what_a_remote_service_may_say(model: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSpec.model_validate(model)


def test_a_remote_service_is_read_as_it_is_written() -> None:
    model = ModelSpec.model_validate({"remote": {"requests_per_second": 64.0}})
    assert ModelSpec.model_validate_json(model.model_dump_json()) == model


def test_a_remote_service_only_scores() -> None:
    service = {"remote": {"requests_per_second": 64.0}}
    with pytest.raises(SpecError, match=r"models.reference.remote: grpo asks it for log-prob"):
        resolve(job_spec("grpo", models__reference=service))
    with pytest.raises(SpecError, match=r"models.critic.remote: .* asks it for values"):
        resolve(job_spec("ppo", models__critic=service))


def values_after_training(models: Models, prompts: Data, ops: Ops) -> None:
    """A user's algorithm: the values once more, with the trained critic."""
    rollout = models.actor.generate(prompts)
    values = models.critic.values(rollout)
    models.critic.train(rollout, loss="value", values=values, returns=values)
    again = models.critic.values(rollout)
    advantages = ops.apply(max, values, again)
    models.actor.train(rollout, loss="policy_gradient", advantages=advantages)


USERS = Program("users", values_after_training, ("actor", "critic"), (), False, "none")


def users_dataflow(spec: JobSpec) -> Dataflow:
    return trace(USERS, workload=spec.workload, models=spec.models)


def test_a_forward_after_training_waits_for_it_in_the_same_iteration() -> None:
    dataflow = users_dataflow(job_spec())
    assert "critic.forward.2" in ids(dataflow)
    assert "critic.train" in after(dataflow, "critic.forward.2")
    assert "critic.forward.2" in after(dataflow, "actor.train")
    weights = {(e.source, e.target) for e in dataflow.edges if e.distance == 1}
    assert weights == {("actor.train", "actor.generate"), ("critic.train", "critic.forward")}


def test_a_program_of_the_users_own_resolves() -> None:
    models = {role: {"architecture": "llama-2-7b"} for role in ("actor", "critic")}
    job = resolve(job_spec(models=models), program=USERS)
    assert {role for role, model in job.models.items() if model.trainable} == set(models)


@pytest.mark.parametrize(
    ("role", "algorithm"), [("critic", "ppo"), ("reference", "grpo"), ("actor", "grpo")]
)
def test_only_scoring_roles_may_be_functions(role: str, algorithm: str) -> None:
    with pytest.raises(SpecError) as error:
        resolve(job_spec(algorithm, **{f"models__{role}": {"function": True}}))
    assert error.value.field == f"models.{role}.function"


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "dapo"])
def test_group_baselines_need_two_responses(algorithm: str) -> None:
    with pytest.raises(SpecError) as error:
        resolve(job_spec(algorithm, workload__responses_per_prompt=1))
    assert error.value.field == "workload.responses_per_prompt"


def test_a_program_that_makes_up_data_is_told_so() -> None:
    def wrong(models: Models, prompts: Data, ops: Ops) -> None:
        models.actor.generate("prompts")

    spec = job_spec()
    with pytest.raises(TypeError, match="'prompts'"):
        trace(
            Program("wrong", wrong, ("actor",), (), True, "none"),
            workload=spec.workload,
            models=spec.models,
        )


# python -m tests.planner.dataflow.test_algorithms writes the golden files anew
if __name__ == "__main__":
    for name in GOLDEN_ALGORITHMS:
        (GOLDEN / f"dataflow_{name}.json").write_text(golden_text(name), "utf-8")
