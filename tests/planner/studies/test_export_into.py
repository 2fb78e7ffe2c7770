"""Plans written into launches: the same plan changes no byte, another one only its settings."""

import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from automap.planner.errors import NotImportableError
from automap.planner.exports.exporting import export
from automap.planner.imports.importing import import_launch, rewrite
from automap.planner.imports.launch import Answers, Imported, LaunchFile, LineChange, Rewritten
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import LengthSpec
from automap.planner.studies.advice import advise
from automap.planner.studies.export_into import export_into, with_text
from benchmarks.launch_corpus import file_of
from tests.helpers.framework_plans import SAMPLE, Wanted, plan_of

TARGET = "verl@0.9.1"
LAUNCHES: dict[str, dict[str, Any]] = {
    "backend-switch": {},
    "container": {},
    "dapo-32b": {},
    "functions": {},
    "grpo-7b": {},
    "grpo-arrays": {},
    "lora": {},
    "mixture-30b": {},
    "ppo-critic-7b": {},
    "ppo-megatron": {},
    "remax": {},
    "seeds": {"job": 2},
    "separate-async": {},
    "slurm": {},
}
OTHERWISE = (
    "backend-switch",
    "dapo-32b",
    "functions",
    "grpo-7b",
    "ppo-critic-7b",
    "separate-async",
)


def answers(**more: Any) -> Answers:
    """Lengths, whose longest are the launch's own."""
    fields = dict.fromkeys(LengthSpec.model_fields)
    prompt, response = (
        LengthSpec.model_construct(None, **{**fields, "mean": mean}) for mean in (120.0, 300.0)
    )
    return Answers(gpu="h100", prompt_length=prompt, response_length=response, **more)


def imported(files: list[LaunchFile], **more: Any) -> Imported:
    return import_launch(files, TARGET, answers(**more))


def priced(files: list[LaunchFile], **more: Any) -> Plan:
    found = imported(files, **more)
    return estimate(found.spec, found.placement)


def change(key: str, before: str | None, after: str) -> LineChange:
    return LineChange(key=key, before=before, after=after)


def written_with(file: LaunchFile, changes: list[LineChange], **more: Any) -> Rewritten:
    return rewrite([file], TARGET, answers(**more), changes)


def planned(found: Imported) -> Plan:
    search = found.spec.search.model_copy(update={"target": TARGET, "time_limit_seconds": 20.0})
    return make_plan(found.spec.model_copy(update={"search": search}))


def said(plan: Plan) -> tuple[object, ...]:
    copies = [(each.id, each.first_gpu, each.num_gpus, each.offload) for each in plan.copies]
    layouts = [each.layout for each in plan.copies if each.role != "reference"]
    calls = sorted((each.id, each.micro_batch_size or 0, each.recompute) for each in plan.calls)
    return sorted(copies), layouts, calls


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_plan_that_a_launch_says_changes_no_byte_of_it(name: str) -> None:
    file = file_of(f"{name}.sh")
    plan = priced([file], **LAUNCHES[name])
    written = export_into(plan, [file], TARGET, **LAUNCHES[name])
    assert written.text == file.text
    assert (written.file, written.changed, written.added, written.removed) == (
        file.name,
        [],
        [],
        [],
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_an_export_takes_its_own_plan_without_a_change(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    file = LaunchFile("launch.sh", export(plan, TARGET).script)
    assert export_into(plan, [file], TARGET).text == file.text


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERWISE)
def test_another_plan_changes_only_the_command_and_is_read_back(name: str) -> None:
    file = file_of(f"{name}.sh")
    plan = planned(imported([file]))
    written = export_into(plan, [file], TARGET)
    files = with_text([file], written)
    again = priced(files)
    assert said(again) == said(plan)
    # The cache may be a larger one.
    assert again.iteration_seconds == pytest.approx(plan.iteration_seconds, rel=3e-3)
    checked = subprocess.run(["bash", "-n"], input=written.text, text=True, check=False)
    assert checked.returncode == 0
    lines, kept = file.text.splitlines(), {each.strip(" \\") for each in written.text.splitlines()}
    keys = [*written.changed, *written.removed]
    for line in lines:
        ends = re.search(r"(\$@|\$\{@(:2)?\}|log)\W*$", line)
        is_changed = any(f"{key}=" in line for key in keys)
        assert line.strip(" \\") in kept or is_changed or ends, line
    assert export_into(plan, files, TARGET).text == written.text


def test_a_value_of_a_variable_is_written_in_the_setting_and_said() -> None:
    file = file_of("dapo-32b.sh")
    changes = [change("actor_rollout_ref.rollout.tensor_model_parallel_size", "${gen_tp}", "2")]
    written = written_with(file, changes)
    assert "rollout.tensor_model_parallel_size=2 \\\n" in written.text
    assert "gen_tp=" in written.text
    assert [each.partition(": ")[2] for each in written.notes] == [
        "${gen_tp} was worked out, and is 2 now"
    ]
    assert len(written.text.splitlines()) == len(file.text.splitlines())


def test_what_cannot_be_changed_safely_is_refused_with_its_line() -> None:
    key = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    with pytest.raises(NotImportableError) as caught:
        written_with(file_of("seeds.sh"), [change(key, "16", "8")], job=2)
    [reason] = caught.value.reasons
    assert reason.summary.startswith("seeds.sh line 3: these words are of other commands as well")
    with pytest.raises(NotImportableError) as caught:
        written_with(file_of("container.sh"), [change(key, "4", "8")])
    [reason] = caught.value.reasons
    assert "container.sh line 2: the job's command is in a text within the script" in reason.summary
    assert f"{key}=8" in (reason.remedy or "")


def test_arguments_that_set_a_key_anew_are_not_overruled_in_silence() -> None:
    text = file_of("grpo-7b.sh").text.replace("$@", '"$@" trainer.nnodes=1')
    text = "run() {\n" + text.replace("set -x", ":") + "}\nrun trainer.nnodes=2\n"
    file = LaunchFile("launch.sh", text)
    changes = [change("trainer.balance_batch", None, "False"), change("trainer.nnodes", "1", "4")]
    found = written_with(file, changes)
    assert "trainer.nnodes=4" in found.text
    assert "run trainer.nnodes=2\n" in found.text


def test_a_key_that_the_user_gave_beside_the_files_is_added() -> None:
    file = file_of("grpo-7b.sh")
    key = "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
    given = answers(values={key.lstrip("+"): "1"})
    found = rewrite([file], TARGET, given, [change(key.lstrip("+"), "1", "2")])
    assert f"{key}=2" in found.text
    assert found.added == [key.lstrip("+")]


def test_a_configuration_is_overruled_on_the_command_line_and_never_written() -> None:
    files = [file_of(name) for name in ("config-a.sh", "config-a.yaml", "config-base.yaml")]
    changes = [change("data.train_batch_size", "1024", "512")]
    found = rewrite(files, TARGET, answers(), changes)
    assert found.file == "config-a.sh"
    assert "data.train_batch_size=512" in found.text
    told = "config-base.yaml line 8 sets data.train_batch_size as well"
    assert found.notes == [f"{told}: what the command ends with counts"]
    with pytest.raises(NotImportableError) as caught:
        rewrite([file_of("config-b.yaml")], TARGET, answers(), changes)
    assert "only scripts are written again" in str(caught.value)
    assert "data.train_batch_size=512" in (caught.value.reasons[0].remedy or "")


def test_keys_that_the_other_engine_lacks_are_taken_out() -> None:
    file, strategy = file_of("grpo-7b.sh"), "actor_rollout_ref.actor.strategy"
    text = file.text.replace("trainer.nnodes=", f"{strategy}=fsdp2 \\\n    trainer.nnodes=")
    plan = plan_of(Wanted(model="qwen2.5-7b", num_nodes=1))
    written = export_into(plan, [replace(file, text=text)], TARGET)
    assert strategy in written.removed
    assert "fsdp" not in written.text
    assert "model_engine=megatron" in written.text
    assert any("CUDA_DEVICE_MAX_CONNECTIONS" in each for each in written.notes)


def test_a_plan_with_a_model_that_the_launch_lacks_is_refused() -> None:
    plan = plan_of(Wanted(algorithm="ppo", model="qwen2.5-7b"))
    with pytest.raises(NotImportableError) as caught:
        export_into(plan, [file_of("grpo-7b.sh")], TARGET)
    told = "the plan has a model of the critic, and the launch no critic.model.path"
    assert told in str(caught.value)


@pytest.mark.slow
def test_a_launch_with_its_advice_is_read_as_advised() -> None:
    file = file_of("grpo-7b.sh")
    given = answers()
    advice = advise([file], TARGET, given)
    lines = [line for each in advice.changes for line in each.lines]
    assert lines
    files = with_text([file], rewrite([file], TARGET, given, lines))
    # What is passed to the script still comes last, and counts.
    assert files[0].text.endswith(" $@\n")
    found = import_launch(files, TARGET, given)
    assert estimate(found.spec, found.placement).iteration_seconds == advice.together_seconds


@pytest.mark.parametrize(("interval", "written"), [(None, "20"), (5, "5")])
def test_checkpoints_stay_those_of_the_launch_unless_the_job_says_how_often(
    interval: int | None, written: str
) -> None:
    text = file_of("grpo-7b.sh").text
    assert "trainer.save_freq=20" in text
    plan = planned(imported([file_of("grpo-7b.sh")]))
    workload = plan.spec.workload.model_copy(update={"checkpoint_every_iterations": interval})
    spec = plan.spec.model_copy(update={"workload": workload})
    plan = plan.model_copy(update={"spec": spec})
    found = export_into(plan, [file_of("grpo-7b.sh")], TARGET)
    assert f"trainer.save_freq={written}" in found.text
