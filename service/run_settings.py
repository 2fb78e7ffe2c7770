"""Run settings against the spec that they are for: mistakes by field, before anything runs."""

import re
from collections.abc import Iterator
from pathlib import Path

from executor.settings import FunctionSettings, RunSettings
from planner.spec import JobSpec
from service.field_errors import FieldError, shown

__all__ = ["RunSettings", "anchored", "resuming", "settings_errors"]

DEFAULT_TRAINING = "default"
_FUNCTION = re.compile(r"(?P<file>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


def settings_errors(settings: RunSettings, spec: JobSpec) -> list[FieldError]:
    """Everything about the settings that cannot be run with this spec."""
    return [
        *_role_errors(settings, spec),
        *_function_errors(settings),
        *_path_errors(settings),
        *_data_errors(settings),
        *_schedule_errors(settings),
    ]


def anchored(settings: RunSettings, folder: Path) -> RunSettings:
    """The settings with their relative paths taken from `folder` and made absolute."""

    def absolute(path: Path) -> Path:
        return (folder / path.expanduser()).absolute()

    def absolute_function(function: FunctionSettings) -> FunctionSettings:
        file, _, name = function.path.rpartition(":")
        if not file.endswith(".py"):
            return function
        return function.model_copy(update={"path": f"{absolute(Path(file))}:{name}"})

    tokenizer = settings.data.tokenizer
    data = settings.data.model_copy(
        update={
            "path": absolute(settings.data.path),
            "tokenizer": None if tokenizer is None else absolute(tokenizer),
        }
    )
    return settings.model_copy(
        update={
            "models": {role: absolute(path) for role, path in settings.models.items()},
            "functions": {
                role: absolute_function(function) for role, function in settings.functions.items()
            },
            "data": data,
        }
    )


def resuming(settings: RunSettings) -> RunSettings:
    """The settings for another attempt of a run: what its folder holds is its own."""
    checkpoint = settings.checkpoint.model_copy(update={"resume": True})
    return settings.model_copy(update={"checkpoint": checkpoint})


def _role_errors(settings: RunSettings, spec: JobSpec) -> Iterator[FieldError]:
    functions = [role for role, model in spec.models.items() if model.function]
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
            yield FieldError(
                field=f"functions.{role}",
                message="the spec says that this role is a function; the settings do not say which",
                remedy=f"add {role}: {{path: module:function}}",
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


def _path_errors(settings: RunSettings) -> Iterator[FieldError]:
    paths = {f"models.{role}": path for role, path in settings.models.items()}
    paths["data.path"] = settings.data.path
    if settings.data.tokenizer is not None:
        paths["data.tokenizer"] = settings.data.tokenizer
    for role, function in settings.functions.items():
        file = function.path.rpartition(":")[0]
        if file.endswith(".py"):
            paths[f"functions.{role}.path"] = Path(file)
    for field, path in paths.items():
        if not path.is_absolute():
            yield FieldError(
                field=field,
                value=shown(str(path)),
                message="is a relative path, and nothing says from where",
                remedy="give an absolute path on the machines that run the job",
            )


def _data_errors(settings: RunSettings) -> Iterator[FieldError]:
    data = settings.data
    if data.path.suffix not in (".parquet", ".jsonl"):
        yield FieldError(
            field="data.path",
            value=shown(str(data.path)),
            message="prompts are read from .parquet and .jsonl files",
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
