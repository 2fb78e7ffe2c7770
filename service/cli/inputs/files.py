"""Files and standard input to specs, plans and settings; what is wrong becomes BadInputError."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from automap.executor.telemetry.run_report import RunReport
from automap.planner import Placement, Plan
from automap.planner.plan import Provenance
from automap.planner.spec import JobSpec
from automap.service.cli.inputs import examples
from automap.service.cli.inputs.kinds import need_kind, refuse_script, warn_of_other_version
from automap.service.cli.inputs.profile_folders import (
    with_absolute_profiles,
)
from automap.service.cli.terminal.failures import BadInputError, typed
from automap.service.errors.fields import FieldError, field_errors
from automap.service.runs.checked_settings import (
    RunSettings,
    anchored,
    settings_errors,
    spec_errors,
)
from automap.service.runs.function_files import function_errors
from automap.service.schemas.documents import (
    LOOKS,
    MAX_DOCUMENT_BYTES,
    PLACEMENT,
    PLAN,
    RECORD,
    REPORT,
    SETTINGS,
    SPEC,
    DocumentError,
    kind_of,
    load_document,
    mark_of,
)
from automap.service.schemas.placements import ANY_PLACEMENT

STANDARD_INPUT = "-"
MAX_PLAN_BYTES = 16 * MAX_DOCUMENT_BYTES

Parsed = TypeVar("Parsed")
_SPEC = TypeAdapter(JobSpec)
_PLAN = TypeAdapter(Plan)
_SETTINGS = TypeAdapter(RunSettings)


def read_spec(source: str) -> JobSpec:
    """The job spec in a file or on standard input, its config.json files read in."""
    return read_spec_of(read_document(source, max_bytes=MAX_DOCUMENT_BYTES), source)


def read_spec_of(document: object, source: str) -> JobSpec:
    """The job spec in a document that was read from `source`."""
    if kind_of(document) == SETTINGS:
        need_kind(document, _name(source), SPEC, remedies=_uses_of_settings(source))
    elif kind_of(document) is not None:
        need_kind(document, _name(source), SPEC, remedies=["give the spec that it was made of"])
    folder = Path.cwd() if source == STANDARD_INPUT else Path(source).parent
    document = with_absolute_profiles(_with_local_architectures(document, folder), folder)
    if isinstance(document, dict) and ":" in str(document.get("algorithm") or ""):
        return _spec_of_program(document, folder, source)
    return _validate(document, _SPEC, source, kind=SPEC)


def _spec_of_program(document: dict[str, object], folder: Path, source: str) -> JobSpec:
    """A spec whose algorithm is `file.py:NAME` or `module:NAME`, with the traced dataflow."""
    from automap.planner.dataflow import job_spec, load_program  # few specs need it

    file, _, name = str(document["algorithm"]).rpartition(":")
    if file.endswith(".py"):
        file = str((folder / Path(file).expanduser()).absolute())
    if document.get("dataflow") is not None:
        raise BadInputError(f"{_name(source)}: give either algorithm or dataflow, not both")
    program = load_program(f"{file}:{name}")
    try:
        return job_spec(document, program)
    except ValidationError as error:
        raise _mistakes(field_errors(error, document), source) from None


def read_placement(source: str, spec: JobSpec | None = None) -> Placement:
    """The placement in a file, which may also hold a plan or a service's record of a plan."""
    document = read_document(source, max_bytes=MAX_PLAN_BYTES)
    name = _name(source)
    need_kind(document, name, PLACEMENT, PLAN, RECORD)
    placement = _validate(document, ANY_PLACEMENT, source, kind=kind_of(document))
    plan = document.get("plan", document) if isinstance(document, dict) else {}
    if spec is not None and isinstance(plan, dict) and "provenance" in plan:
        provenance = _validate(plan["provenance"], TypeAdapter(Provenance), source)
        warn_of_other_version(provenance, spec, name)
    return placement


def read_runnable(source: str) -> JobSpec | Plan:
    """The plan in a file, which may hold a service's record of it, or else the job spec."""
    document = read_document(source, max_bytes=MAX_PLAN_BYTES)
    name = _name(source)
    kind = kind_of(document)
    if kind == SPEC:
        return read_spec_of(document, source)
    remedies = []
    if kind == SETTINGS:
        remedies = _uses_of_settings(source)
    elif kind == PLACEMENT:
        remedies = ["make it a plan: automap estimate SPEC PLACEMENT --output PLAN.json"]
    elif kind == REPORT:
        remedies = ["the plan of a run is the plan.json beside its report"]
    need_kind(document, name, PLAN, RECORD, SPEC, remedies=remedies)
    if kind == RECORD:
        assert isinstance(document, dict)
        document = document["plan"]
        if document is None:
            raise BadInputError(f"{name}: this record has no plan (yet)")
    plan = _validate(document, _PLAN, source, kind=PLAN)
    warn_of_other_version(plan.provenance, plan.spec, name)
    return plan


def read_report(source: str, *, remedy: str = "give the report.json of its run") -> RunReport:
    """The report of a run in a file."""
    document = read_document(source)
    need_kind(document, _name(source), REPORT, remedies=[remedy])
    return _validate(document, TypeAdapter(RunReport), source, kind=REPORT)


def read_run_settings(
    given: str | None, *, beside: str, spec: JobSpec, planned: bool = False
) -> RunSettings:
    """The run settings in a file, or in NAME.run.yaml beside NAME.yaml, checked against the spec.

    Relative paths in it start at its folder. `planned`: what is to run is a plan of the spec.
    """
    if mistakes := spec_errors(spec, planned=planned):
        raise _mistakes(mistakes, beside)
    source = given or _settings_beside(beside)
    document = read_document(source, max_bytes=MAX_DOCUMENT_BYTES)
    if kind_of(document) in (PLAN, RECORD, SPEC, REPORT):
        remedies = [
            f"give what NAME.run.yaml would hold: {LOOKS[SETTINGS]}",
            "`automap schema run-settings` prints all that they may have",
        ]
        need_kind(document, _name(source), SETTINGS, remedies=remedies)
    settings = _validate(document, _SETTINGS, source)
    folder = Path.cwd() if source == STANDARD_INPUT else Path(source).parent
    settings = anchored(settings, folder)
    mistakes = settings_errors(settings, spec) or list(function_errors(settings))
    if mistakes:
        raise _mistakes(mistakes, source)
    return settings


def _uses_of_settings(source: str) -> list[str]:
    """What takes run settings, and which spec was probably meant."""
    path = Path(source)
    spec = path.with_name(
        f"{path.name.removesuffix(path.suffix).removesuffix('.run')}{path.suffix}"
    )
    meant = [f"name the spec itself: {spec}"] if spec != path and spec.is_file() else [LOOKS[SPEC]]
    return [*meant, f"run it with these: automap run SPEC --settings {source}"]


def _settings_beside(source: str) -> str:
    names = (
        []
        if source == STANDARD_INPUT
        else [
            str(Path(source).with_suffix(f".run{ending}")) for ending in (".yaml", ".yml", ".json")
        ]
    )
    for name in names:
        if Path(name).is_file():
            return name
    raise BadInputError(
        "nothing says how to run this: there are no run settings",
        ["give them with --settings FILE" + (f", or write {names[0]}" if names else "")],
    )


def read_document(source: str, *, max_bytes: int = MAX_PLAN_BYTES) -> object:
    """What is in a file or on standard input, JSON or YAML."""
    content = _read_bytes(source, max_bytes=max_bytes)
    refuse_script(content, _name(source))
    is_json = source.endswith(".json") or content.lstrip()[:1] in (b"{", b"[")
    try:
        return load_document(content, media="json" if is_json else "yaml", max_bytes=max_bytes)
    except DocumentError as error:
        # YAML may begin with a bracket, too.
        with suppress(DocumentError):
            if is_json and not source.endswith(".json"):
                return load_document(content, media="yaml", max_bytes=max_bytes)
        raise BadInputError(f"{_name(source)}: {error}") from None


def read_text(source: str, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """The text of a file or of standard input."""
    content = _read_bytes(source, max_bytes=max_bytes)
    if len(content) > max_bytes:
        raise BadInputError(f"{_name(source)}: larger than {max_bytes} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{_name(source)}: not text: {error.reason}") from None


def _read_bytes(source: str, *, max_bytes: int) -> bytes:
    # One byte more than allowed shows that there is too much; an endless pipe ends there as well.
    try:
        if source == STANDARD_INPUT:
            return sys.stdin.buffer.read(max_bytes + 1)
        with Path(source).open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        hint = examples.hint(source)
        raise BadInputError(f"cannot read {source}: there is no such file", hint) from None
    except IsADirectoryError:
        raise BadInputError(f"cannot read {source}: it is a folder, not a file") from None
    except OSError as error:
        raise BadInputError(f"cannot read {source}: {error.strerror or error}") from None


def _validate(
    document: object, model: TypeAdapter[Parsed], source: str, *, kind: str | None = None
) -> Parsed:
    try:
        return model.validate_python(document)
    except ValidationError as error:
        raise _mistakes(field_errors(error, document), source, _taken_for(document, kind)) from None


def _taken_for(document: object, kind: str | None) -> str:
    """What kind of document it was read as, and why."""
    mark = mark_of(document, kind) if kind else ""
    return f", read as {kind} for its {mark}" if mark else ""


def _mistakes(mistakes: Sequence[FieldError], source: str, taken: str = "") -> BadInputError:
    number = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return BadInputError(f"{_name(source)}{taken}: {number}", error_lines(mistakes))


def wrong_options(mistakes: Sequence[FieldError], options: Mapping[str, str]) -> BadInputError:
    """What is wrong with a request, by the options that it was made of."""
    lines = error_lines(
        each.model_copy(update={"field": typed(each.field, options) or each.field})
        for each in mistakes
    )
    return BadInputError(lines[0], lines[1:])


def error_lines(mistakes: Iterable[FieldError]) -> list[str]:
    """A line per mistake: `field: message (got value; remedy)`."""
    lines = []
    for mistake in mistakes:
        got = "" if mistake.value is None else f"got {json.dumps(mistake.value)}"
        # "Input should be 'a' or 'b'" needs no "use 'a' or 'b'" beside it.
        remedy = "" if mistake.remedy.removeprefix("use ") in mistake.message else mistake.remedy
        notes = "; ".join(note for note in (got, remedy) if note)
        lines.append(f"{mistake.field}: {mistake.message}" + (f" ({notes})" if notes else ""))
    return lines


def _name(source: str) -> str:
    return "standard input" if source == STANDARD_INPUT else source


def _with_local_architectures(document: object, folder: Path) -> object:
    """The document with each `architecture: ./path/config.json` replaced by the sizes in it."""
    if not isinstance(document, dict) or not isinstance(models := document.get("models"), dict):
        return document
    resolved = {
        role: _with_sizes(model, folder, role) if isinstance(model, dict) else model
        for role, model in models.items()
    }
    return {**document, "models": resolved}


def _with_sizes(model: dict[str, object], folder: Path, role: object) -> dict[str, object]:
    """The model itself, unless its architecture looks like a path, as org/name never does."""
    path = model.get("architecture")
    if not isinstance(path, str):
        return model
    if not (path.endswith(".json") or path.startswith(("./", "../", "/", "~/"))):
        return model
    return {**model, "architecture": _load_config(path, folder, f"models.{role}.architecture")}


def _load_config(path: str, folder: Path, field: str) -> object:
    from automap.planner.catalogue import load_config  # few specs need it

    return load_config(folder / Path(path).expanduser(), field=field).model_dump(mode="json")
