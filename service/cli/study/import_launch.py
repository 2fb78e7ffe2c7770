"""`automap import`: the launch of another framework as a job and a placement, and what it costs."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import typer
import yaml
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from automap.planner import Imported, Plan, hazards, import_launch
from automap.planner.catalogue import ModelArchitecture, load_config
from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks import framework
from automap.planner.imports import Answers, LaunchFile, recognised
from automap.planner.runs import FormatName, mean_lengths
from automap.planner.spec import LengthSpec
from automap.planner.targets import TARGETS
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.inputs.files import error_lines, read_document
from automap.service.cli.inputs.launches import read_launch
from automap.service.cli.inputs.metric_logs import read_log
from automap.service.cli.options.plans import ImportArguments, LaunchAnswers
from automap.service.cli.plan.headline import headline
from automap.service.cli.plan.inputs import working
from automap.service.cli.plan.view import print_plan
from automap.service.cli.study.verdicts import (
    RUNS,
    SECTIONS,
    in_words,
    of_kind,
    reporting_unfit,
    show_failure,
    show_remarks,
    verdict_of,
)
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import EXIT_NO_PLAN, BadInputError, naming_options
from automap.service.cli.terminal.files import make_folder, need_no_file, write_file
from automap.service.errors.fields import field_errors

SPEC, PLACEMENT = "spec.yaml", "placement.json"
_LENGTHS = TypeAdapter(LengthSpec)


def run_import(given: ImportArguments) -> None:
    """Read a launch, write what it says, and price it."""
    folder = None if given.out is None else Path(given.out)
    if folder is not None:
        need_no_file(folder)
    backend = backend_of(given.where)
    imported = _imported(given)
    if folder is not None:
        make_folder(folder)
        spec = imported.spec.model_dump(mode="json", exclude_unset=True)
        write_file(str(folder / SPEC), yaml.safe_dump(spec, sort_keys=False).rstrip("\n"))
        placement = imported.placement.model_dump_json(indent=2, by_alias=True, exclude_none=True)
        write_file(str(folder / PLACEMENT), placement)
    if not given.show.json:
        _show(imported, given, folder)
    with (
        naming_options({"placement": given.files[0]}),
        working("Pricing it", given.show),
        reporting_unfit(imported, quiet=given.show.json),
    ):
        plan = backend.estimate(imported.spec, imported.placement)
    found = hazards(imported, plan)
    if given.show.json:
        _write_json(imported, plan, found)
    else:
        _show_plan(imported, plan, found, given)
    if verdict_of(imported, found) != RUNS:
        raise typer.Exit(EXIT_NO_PLAN)


def _imported(given: ImportArguments) -> Imported:
    files = read_launch(given.files)
    source, answers = answers_of(given.said, files)
    with reporting_launch(given.files):
        return import_launch(files, source, answers)


@contextmanager
def reporting_launch(
    files: Iterable[str], *, target: str = "--from", refused: str = "not imported"
) -> Iterator[None]:
    """What is wrong with a launch or with what is said of it, in the words of the command line."""
    with naming_options({"target": target, "gpu": "--gpu"}):
        try:
            yield
        except NotImportableError as error:
            refusal = f"{', '.join(files)}: {refused}"
            raise BadInputError(refusal, in_words(error.reasons)) from None


def answers_of(given: LaunchAnswers, files: list[LaunchFile]) -> tuple[str, Answers]:
    """The framework of a launch, as the user or the files say, and what he says beside them."""
    source = given.source
    if source is None:
        with reporting_launch([each.name for each in files]):
            source = recognised(files, Answers(given.gpu, values_of(given.set), job=given.job))
    logged = _logged(given, source)
    return source, Answers(
        gpu=given.gpu,
        values=values_of(given.set),
        prompt_length=_lengths(given.prompt_lengths, "--prompt-lengths") or logged.get("prompt"),
        response_length=_lengths(given.lengths, "--lengths") or logged.get("response"),
        models={role: _model(role, named) for role, named in _models(given)},
        job=given.job,
        gpus_per_node=given.gpus_per_node,
    )


def values_of(given: Iterable[str] | None) -> dict[str, str]:
    """What `--set` gives by name."""
    return dict(_pair("--set", each) for each in given or [])


def _models(given: LaunchAnswers) -> Iterable[tuple[str, str]]:
    return (_pair("--model", each) for each in given.model or [])


def _pair(option: str, given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.strip():
        raise BadInputError(f"{option} {given[:80]!r}: give NAME=VALUE")
    return name.strip(), value


def _model(role: str, named: str) -> str | ModelArchitecture:
    """A model of the catalogue by name, or the one in a config.json."""
    path = Path(named).expanduser()
    if path.exists() or named.endswith(".json"):
        return load_config(path, field=f"--model {role}")
    return named


def _lengths(given: str | None, option: str) -> LengthSpec | None:
    """Lengths as FIELD=N pairs, or in a file as a spec has them."""
    if given is None:
        return None
    document: object
    if "=" not in given:
        document = read_document(given)
    else:
        document = dict(_number(option, each) for each in given.split(","))
    if isinstance(document, dict) and "histogram" not in document and "max" not in document:
        # The launch says the longest.
        fields = {
            name: document[name] for name in ("mean", "p50", "p90", "p99") if name in document
        }
        if fields and len(fields) == len(document):
            return _without_maximum(fields, option)
    return _valid(document, option)


def _without_maximum(fields: dict[str, Any], option: str) -> LengthSpec:
    """Checked with a maximum that no launch exceeds, and kept without."""
    valid = _valid({**fields, "max": 10**8}, option)
    return LengthSpec.model_construct(
        **{name: getattr(valid, name) for name in LengthSpec.model_fields if name != "max"},
        max=None,
    )


def _valid(document: object, option: str) -> LengthSpec:
    try:
        return _LENGTHS.validate_python(document)
    except ValidationError as error:
        raise BadInputError(
            f"{option}: no lengths", error_lines(field_errors(error, document))
        ) from None


def _number(option: str, given: str) -> tuple[str, float | int]:
    name, value = _pair(option, given)
    try:
        number = float(value)
    except ValueError:
        raise BadInputError(f"{option} {given[:80]!r}: {value[:40]!r} is no number") from None
    return name, int(number) if name == "max" and number.is_integer() else number


def _logged(given: LaunchAnswers, target: str) -> dict[str, LengthSpec]:
    """Mean lengths from the framework's own log."""
    if given.log is None:
        return {}
    name = target.partition("@")[0]
    if name not in get_args(FormatName):
        raise BadInputError(f"--log: no log of {name} is read")
    with naming_options({given.log: given.log}):
        found = mean_lengths(read_log(given.log), name)  # type: ignore[arg-type]
    if not found:
        raise BadInputError(f"{given.log}: it has no lengths of prompts or responses")
    return {what: _without_maximum({"mean": mean}, "--log") for what, mean in found.items()}


def _write_json(imported: Imported, plan: Plan, found: list[Reason]) -> None:
    document = imported.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["verdict"] = verdict_of(imported, found)
    document["hazards"] = [each.model_dump(mode="json", exclude_none=True) for each in found]
    document["plan"] = plan.model_dump(mode="json", by_alias=True)
    console.write_json(json.dumps(document, indent=2))


def _show(imported: Imported, given: ImportArguments, folder: Path | None) -> None:
    """What was read, and everything to know about it."""
    out = console.stdout_console()
    used = sum(1 for each in imported.settings if each.decides)
    line = f"{imported.file} line {imported.line}: {used} of {len(imported.settings)} settings"
    told = f"{line} for {imported.target} decide something of a plan"
    out.print(Text(told), soft_wrap=True)
    if folder is not None:
        out.print(Text(f"{folder / SPEC}, {folder / PLACEMENT}: what they say"), soft_wrap=True)
    if given.show.quiet:
        return
    usual = set() if given.details else {*framework(imported.target).assumptions}
    for kind, heading in SECTIONS.items():
        remarks = of_kind(imported, kind)
        show_remarks([each for each in remarks if each.text not in usual], heading, out)
        left = sum(each.text in usual for each in remarks)
        if left:
            line = f"  {left} more of {imported.target}, as for every launch: --details"
            out.print(Text(line), soft_wrap=True)


def _show_plan(imported: Imported, plan: Plan, found: list[Reason], given: ImportArguments) -> None:
    """The verdict, and the price; of what would not run as it says the price alone."""
    out = console.stdout_console()
    if found:
        show_failure(in_words(found))
        out.print(Text("\nwere it to run as it says, it would be"))
        others = [name for name in plan.runs_with if name != imported.target]
        update = {"out_of_memory_probability": None, "runs_with": others}
        plan = plan.model_copy(update=update)
    elif imported.target not in plan.runs_with:
        # Budgets of tokens are priced as so many sequences, which need not divide a batch.
        update = {"runs_with": [*plan.runs_with, imported.target]}
        plan = plan.model_copy(update=update)
    if verdict_of(imported, found) == RUNS and not given.show.quiet:
        out.print(_fits(imported, plan))
    if given.show.quiet:
        out.print(headline(plan), soft_wrap=True)
        return
    out.print()
    print_plan(plan, out, unicode=console.unicode_output(), with_details=given.details)


def _fits(imported: Imported, plan: Plan) -> Text:
    """The verdict of a launch that runs as it says: that it fits, or how likely it does not."""
    target = next(target for name, target in TARGETS.items() if name == imported.target)
    allowed = target.max_out_of_memory_probability
    chance = plan.out_of_memory_probability or 0.0
    if chance <= allowed:
        return Text(f"\n{RUNS}", style="bold green")
    told = f"may run out of memory ({formats.chance(chance)}), and else runs as it says"
    return Text(f"\n{told}", style="bold yellow")
