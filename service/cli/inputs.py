"""Files and standard input to a JobSpec or a Placement; whatever is wrong becomes BadInputError."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from planner.result import Placement
from planner.spec import JobSpec
from service.cli.failures import BadInputError
from service.documents import MAX_DOCUMENT_BYTES, DocumentError, load_document
from service.field_errors import FieldError, field_errors
from service.placements import ANY_PLACEMENT

STANDARD_INPUT = "-"
MAX_PLAN_BYTES = 16 * MAX_DOCUMENT_BYTES

Parsed = TypeVar("Parsed")
_SPEC = TypeAdapter(JobSpec)


def read_spec(source: str) -> JobSpec:
    """The job spec in a file or on standard input, its config.json files read in."""
    document = _read_document(source, max_bytes=MAX_DOCUMENT_BYTES)
    folder = Path.cwd() if source == STANDARD_INPUT else Path(source).parent
    return _validate(_with_local_architectures(document, folder), _SPEC, source)


def read_placement(source: str) -> Placement:
    """The placement in a file, which may also hold a plan or a service's record of a plan."""
    document = _read_document(source, max_bytes=MAX_PLAN_BYTES)
    return _validate(document, ANY_PLACEMENT, source)


def _read_document(source: str, *, max_bytes: int) -> object:
    content = _read_bytes(source, max_bytes=max_bytes)
    is_json = source.endswith(".json") or content.lstrip()[:1] in (b"{", b"[")
    try:
        return load_document(content, media="json" if is_json else "yaml", max_bytes=max_bytes)
    except DocumentError as error:
        raise BadInputError(f"{_name(source)}: {error}") from None


def _read_bytes(source: str, *, max_bytes: int) -> bytes:
    # One byte more than allowed shows that there is too much; an endless pipe ends there as well.
    try:
        if source == STANDARD_INPUT:
            return sys.stdin.buffer.read(max_bytes + 1)
        with Path(source).open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        raise BadInputError(f"cannot read {source}: {error.strerror or error}") from None


def _validate(document: object, model: TypeAdapter[Parsed], source: str) -> Parsed:
    try:
        return model.validate_python(document)
    except ValidationError as error:
        mistakes = field_errors(error, document)
        number = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise BadInputError(f"{_name(source)}: {number}", error_lines(mistakes)) from None


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
    from planner.catalogue.huggingface import load_config  # few specs need it

    return load_config(folder / Path(path).expanduser(), field=field).model_dump(mode="json")
