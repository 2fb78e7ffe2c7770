"""Run settings against the spec that they are for: mistakes by field, before anything runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from automap.executor.settings import DataSettings, FunctionSettings, PretrainSettings, RunSettings
from automap.planner import Plan
from automap.planner.dataflow import PROGRAMS
from automap.planner.job import refusal, resolve
from automap.planner.plan import refusals
from automap.planner.spec import JobSpec
from automap.planner.targets import ANY, AUTOMAP
from automap.service.errors.fields import FieldError, shown, value_at

__all__ = ["RunSettings", "anchored", "plan_errors", "resuming", "settings_errors", "spec_errors"]

DEFAULT_TRAINING = "default"
_Files = TypeVar("_Files", DataSettings, PretrainSettings)
_FUNCTION = re.compile(r"(?P<file>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


def settings_errors(settings: RunSettings, spec: JobSpec) -> list[FieldError]:
    """Everything about the settings that cannot be run with this spec."""
    return [
        *_role_errors(settings, spec),
        *_engine_errors(settings, spec),
        *_function_errors(settings),
        *_program_errors(settings, spec),
        *_path_errors(settings),
        *_data_errors(settings),
        *_schedule_errors(settings),
        *_correction_errors(settings, spec),
    ]


def spec_errors(spec: JobSpec, *, planned: bool) -> list[FieldError]:
    """What of a spec the executor's table of capabilities refuses, whatever the plan.

    With `planned` there is a plan, which says itself what runs it: not for what it was planned.

    Raises:
        SpecError: the spec contradicts itself.
    """
    job, found = resolve(spec, with_profiles=False), []
    target = spec.search.target
    if target not in (None, AUTOMAP.name) and not planned:
        what = (
            "can be priced, but not run: no software runs all of them"
            if target == ANY.name
            else "are exported, and run there"
        )
        found.append(
            FieldError(
                field="search.target",
                value=target,
                message=f"plans for {target} {what}",
                remedy=f"leave it out, or use automap; where runs_with of a plan for {target} says "
                "automap, give that plan",
            )
        )
    refused = refusal(AUTOMAP, spec, job.dataflow, job.models)
    if refused is not None:
        field, why = refused
        found.append(
            FieldError(
                field=field,
                value=shown(value_at(field, spec.model_dump(mode="json"))),
                message=f"plans of this job can be priced, but not run: {why}",
                remedy="plan it only, or change this",
            )
        )
    return found


def plan_errors(plan: Plan) -> list[str]:
    """What of a plan the executor cannot run, a sentence each."""
    job = resolve(plan.spec, with_profiles=False)
    return refusals(job, plan.placement(), AUTOMAP)


def anchored(settings: RunSettings, folder: Path) -> RunSettings:
    """The settings with their relative paths taken from `folder` and made absolute."""

    def absolute(path: Path) -> Path:
        return (folder / path.expanduser()).absolute()

    def absolute_code(path: str) -> str:
        file, _, name = path.rpartition(":")
        return f"{absolute(Path(file))}:{name}" if file.endswith(".py") else path

    def absolute_function(function: FunctionSettings) -> FunctionSettings:
        return function.model_copy(update={"path": absolute_code(function.path)})

    def absolute_files(data: _Files) -> _Files:
        tokenizer = None if data.tokenizer is None else absolute(data.tokenizer)
        return data.model_copy(update={"path": absolute(data.path), "tokenizer": tokenizer})

    data, pretrain = absolute_files(settings.data), settings.data.pretrain
    if pretrain is not None:
        data = data.model_copy(update={"pretrain": absolute_files(pretrain)})
    return settings.model_copy(
        update={
            "models": {role: absolute(path) for role, path in settings.models.items()},
            "functions": {
                role: absolute_function(function) for role, function in settings.functions.items()
            },
            "program": None if settings.program is None else absolute_code(settings.program),
            "data": data,
        }
    )


def resuming(settings: RunSettings) -> RunSettings:
    """The settings for another attempt of a run: what its folder holds is its own."""
    checkpoint = settings.checkpoint.model_copy(update={"resume": True})
    return settings.model_copy(update={"checkpoint": checkpoint})


def _correction_errors(settings: RunSettings, spec: JobSpec) -> Iterator[FieldError]:
    """Whether the losses make up for old rollouts; what a loss of one's own has is not known."""
    program = PROGRAMS.get(spec.algorithm or "")
    wrong = settings.algorithm.wrong_correction(
        staleness=spec.search.staleness,
        old_log_probs=spec.workload.old_log_probs,
        has_importance_ratio=program is None or program.has_importance_ratio,
    )
    if wrong is not None:
        yield FieldError(**wrong._asdict())


def _role_errors(settings: RunSettings, spec: JobSpec) -> Iterator[FieldError]:
    functions = [role for role, model in spec.models.items() if not model.needs_gpus]
    models = [role for role in spec.models if role not in functions]
    for field, given, valid, what in (
        ("models", settings.models, models, "model"),
        ("functions", settings.functions, functions, "function"),
        ("training", settings.training, [*models, DEFAULT_TRAINING], "model"),
    ):
        for role in given:
            if role not in valid:
                yield FieldError(
                    field=f"{field}.{role}",
                    value=role,
                    message=f"the spec has no {what} in a role of this name",
                    remedy=f"use {', '.join(valid)}" if valid else "remove it",
                )
    for role in functions:
        if role not in settings.functions:
            what = "function" if spec.models[role].function else "remote service"
            yield FieldError(
                field=f"functions.{role}",
                message=f"the spec says that this role is a {what}; the settings do not say which"
                + ("" if what == "function" else " function asks it"),
                remedy=f"add {role}: {{path: module:function}}",
            )


def _engine_errors(settings: RunSettings, spec: JobSpec) -> Iterator[FieldError]:
    """Engines named for models that the table of capabilities says they do not know."""
    job = resolve(spec, with_profiles=False)
    for role in job.models:
        name = settings.training_of(role).engine
        known = [engine.name for engine in job.engines_of(role, AUTOMAP).engines]
        if name is not None and known and name not in known:
            key = role if role in settings.training else DEFAULT_TRAINING
            yield FieldError(
                field=f"training.{key}.engine",
                value=name,
                message=f"{name} does not run the model of {role} as the spec has it",
                remedy=f"leave it out, or use {' or '.join(known)}",
            )


def _function_errors(settings: RunSettings) -> Iterator[FieldError]:
    for role, function in settings.functions.items():
        if not _FUNCTION.fullmatch(function.path):
            yield FieldError(
                field=f"functions.{role}.path",
                value=shown(function.path),
                message="does not name a function",
                remedy="write module:function or /path/to/file.py:function",
            )


def _program_errors(settings: RunSettings, spec: JobSpec) -> Iterator[FieldError]:
    if spec.dataflow is None and settings.program is not None:
        yield FieldError(
            field="program",
            value=shown(settings.program),
            message=f"the spec names the built-in algorithm {spec.algorithm}",
            remedy="leave program out, or write a spec with a dataflow",
        )
    if spec.dataflow is not None and settings.program is None:
        yield FieldError(
            field="program",
            message="the spec is an explicit dataflow; the settings do not say which program runs "
            "it",
            remedy="add program: module:NAME",
        )
    if settings.program is not None and not _FUNCTION.fullmatch(settings.program):
        yield FieldError(
            field="program",
            value=shown(settings.program),
            message="does not name a program",
            remedy="write module:NAME or /path/to/file.py:NAME",
        )


def _path_errors(settings: RunSettings) -> Iterator[FieldError]:
    paths = {f"models.{role}": path for role, path in settings.models.items()}
    for name, data in (("data", settings.data), ("data.pretrain", settings.data.pretrain)):
        if data is not None:
            paths[f"{name}.path"] = data.path
            if data.tokenizer is not None:
                paths[f"{name}.tokenizer"] = data.tokenizer
    code = {f"functions.{role}.path": each.path for role, each in settings.functions.items()}
    if settings.program is not None:
        code["program"] = settings.program
    for field, path in code.items():
        file = path.rpartition(":")[0]
        if file.endswith(".py"):
            paths[field] = Path(file)
    for field, file_path in paths.items():
        if not file_path.is_absolute():
            yield FieldError(
                field=field,
                value=shown(str(file_path)),
                message="is a relative path, and nothing says from where",
                remedy="give an absolute path on the machines that run the job",
            )


def _data_errors(settings: RunSettings) -> Iterator[FieldError]:
    data = settings.data
    for name, files in (("data", data), ("data.pretrain", data.pretrain)):
        if files is not None and files.path.suffix not in (".parquet", ".jsonl"):
            yield FieldError(
                field=f"{name}.path",
                value=shown(str(files.path)),
                message="rows are read from .parquet and .jsonl files",
                remedy="give a file with one of these endings",
            )
    if data.chat_template and data.tokenizer is None:
        yield FieldError(
            field="data.tokenizer",
            message="chat_template: true needs a tokenizer",
            remedy="give the tokenizer's folder, or remove chat_template",
        )


def _schedule_errors(settings: RunSettings) -> Iterator[FieldError]:
    for role, training in settings.training.items():
        optimizer = training.optimizer
        field = f"training.{role}.optimizer"
        if optimizer.decay != "constant" and optimizer.decay_steps is None:
            yield FieldError(
                field=f"{field}.decay_steps",
                message=f"decay: {optimizer.decay} ends after a number of steps",
                remedy="give decay_steps, or use decay: constant",
            )
        if optimizer.minimum_learning_rate > optimizer.learning_rate:
            yield FieldError(
                field=f"{field}.minimum_learning_rate",
                value=optimizer.minimum_learning_rate,
                message=f"is above the learning rate, {optimizer.learning_rate:g}",
                remedy="use a number of at most the learning rate",
            )
