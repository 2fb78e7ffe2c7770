"""Programs of verl beside its trainer: a step ahead, fully asynchronous, and DAPO's recipe."""

from dataclasses import replace
from typing import Any

import pytest

from automap.planner.errors import NotImportableError
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.planning import estimate
from automap.planner.spec import LengthSpec
from automap.planner.studies.export_into import export_into
from benchmarks.launch_corpus import file_of

TARGET = "verl@0.9.1"
LENGTHS = {
    "prompt_length": LengthSpec(mean=100.0, max=512),
    "response_length": LengthSpec(mean=300.0, max=1024),
}


def read(name: str, *changes: tuple[str, str], **answers: Any) -> Imported:
    file = file_of(name)
    for old, new in changes:
        assert old in file.text
        file = replace(file, text=file.text.replace(old, new))
    return import_launch([file], TARGET, Answers(gpu="h100", **LENGTHS, **answers))


def told(imported: Imported, kind: str) -> str:
    return "\n".join(each.text for each in imported.remarks if each.kind == kind)


def ranges(imported: Imported) -> dict[str, tuple[int, int]]:
    return {each.id: (each.first_gpu, each.num_gpus) for each in imported.placement.copies}


def test_one_step_off_generates_on_its_own_gpus_a_step_ahead() -> None:
    found = read("one-step-off.sh")
    assert found.entry == "one_step_off_policy.main_ppo"
    assert ranges(found) == {"actor": (0, 6), "reference": (0, 6), "actor.shadow": (6, 2)}
    assert (found.spec.algorithm, found.spec.search.staleness) == ("grpo", 1)
    # What the engine keeps of its log-probabilities takes the place of a pass of the actor.
    assert found.spec.workload.old_log_probs == "rollout"
    assert "actor.forward" not in {each.id for each in found.placement.calls}
    assert "one step off" in told(found, "assumed")
    assert told(found, "unknown key") == ""
    # What the program does by itself is no setting of the launch.
    assert "trainer.v1.trainer_mode" not in {each.key for each in found.settings}
    assert hazards(found, estimate(found.spec, found.placement)) == []


def test_pools_of_rollouts_have_keys_of_their_own() -> None:
    found = read("one-step-off.sh", ("rollout.n_gpus_per_node=", "rollout.nnodes=1 +x="))
    assert ranges(found)["actor.shadow"][1] == 8
    values = {"trainer.n_gpus_per_node": "4", "rollout.n_gpus_per_node": "4"}
    assert ranges(read("one-step-off.sh", values=values))["actor.shadow"] == (4, 4)


def test_what_does_not_start_without_engines_apart_is_said() -> None:
    found = read("one-step-off.sh", ("actor_rollout_ref.hybrid_engine=False", ""))
    assert "does not start without it" in told(found, "does not fit")
    plan = estimate(found.spec, found.placement)
    assert any("hybrid_engine" in each.summary for each in hazards(found, plan))


def test_megatron_has_a_configuration_of_its_own() -> None:
    changes = ("one_step_off_ppo_trainer.yaml", "one_step_off_ppo_megatron_trainer")
    found = read("one-step-off.sh", changes)
    assert found.values["model_engine"] == "megatron"


def test_fully_asynchronous_batches_are_those_between_two_updates() -> None:
    found = read("fully-async.sh")
    workload = found.spec.workload
    assert (workload.prompts_per_iteration, workload.updates_per_epoch) == (32 * 1 * 4, 4)
    assert found.spec.search.staleness == 1
    assert ranges(found) == {"actor": (0, 8), "actor.shadow": (8, 8)}
    fresh = read("fully-async.sh", ("staleness_threshold=0.5", "staleness_threshold=0"))
    assert fresh.spec.search.staleness == 0
    older = read("fully-async.sh", ("staleness_threshold=0.5", "staleness_threshold=1.5"))
    assert older.spec.search.staleness == 2
    with pytest.raises(NotImportableError) as caught:
        read("fully-async.sh", ("sync_step=4", "sync_step=$(date)"))
    [reason] = caught.value.reasons
    assert "trigger_parameter_sync_step (line 8)" in reason.summary
    assert reason.remedy == "give it with --set sync_step=…"


def test_the_recipe_of_dapo_generates_more_prompts_than_it_trains_on() -> None:
    found = read("dapo-recipe.sh")
    workload = found.spec.workload
    assert found.spec.algorithm == "dapo"
    assert (workload.prompts_per_iteration, workload.updates_per_epoch) == (512, 16)
    assert workload.expected_acceptance == pytest.approx(1 / 3)
    assert told(found, "does not fit") == told(found, "unknown key") == ""
    assert "of no release of verl" in told(found, "assumed")
    plain = read("dapo-recipe.sh", ("filter_groups.enable=True", "filter_groups.enable=False"))
    assert (plain.spec.algorithm, plain.spec.workload.expected_acceptance) == ("grpo", 1.0)


def test_a_program_that_is_not_read_is_named_with_those_that_are() -> None:
    text = "python3 -m recipe.sppo.main_sppo data.train_batch_size=1\n"
    with pytest.raises(NotImportableError) as caught:
        import_launch([LaunchFile("x.sh", text)], TARGET, Answers(gpu="h100", **LENGTHS))
    [reason] = caught.value.reasons
    assert "line 1 starts recipe.sppo.main_sppo, which is not read" in reason.summary
    assert "one_step_off_policy.main_ppo" in (reason.remedy or "")


@pytest.mark.parametrize("name", ["one-step-off.sh", "fully-async.sh", "dapo-recipe.sh"])
def test_they_take_their_own_plans_without_a_change(name: str) -> None:
    found, file = read(name), file_of(name)
    plan = estimate(found.spec, found.placement)
    assert export_into(plan, [file], TARGET).text == file.text
