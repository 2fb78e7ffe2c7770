"""What is said of a body that is another document than the request takes: one mistake, not all."""

from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from automap.planner.spec import JobSpec
from automap.service.errors.fields import WHOLE_DOCUMENT, FieldError, field_errors
from automap.service.schemas.documents import LOOKS, SETTINGS, SPEC, kind_of

_RUN = "to run a job, send {spec: …, settings: …} or {plan_id: …, settings: …} to /v1/jobs"


def body_errors(error: ValidationError, data: object, content: type[BaseModel]) -> list[FieldError]:
    """Why `data` is no `content`; of what is another document only that, not what it lacks."""
    others = _other_documents(data, content)
    if any(other.field == WHOLE_DOCUMENT for other in others):
        return others
    inside = tuple(f"{other.field}." for other in others)
    return others + [
        each for each in field_errors(error, data) if not f"{each.field}.".startswith(inside)
    ]


def _other_documents(data: object, content: type[BaseModel]) -> list[FieldError]:
    if not isinstance(data, dict):
        return []
    if content is JobSpec:
        return [*_instead_of_a_spec(data)]
    return [*_without_its_field(data, content), *_in_a_wrong_field(data, content)]


def _instead_of_a_spec(data: dict[str, object]) -> Iterator[FieldError]:
    kind = kind_of(data)
    if "settings" in data and ("spec" in data or "plan_id" in data):
        yield _error(WHOLE_DOCUMENT, "this is a request for a run, not a job spec", _RUN)
    elif kind is None and kind_of(data.get("spec")) == SPEC:
        remedy = "send what `spec` holds, without `spec` around it"
        yield _error(WHOLE_DOCUMENT, "the job spec is inside of `spec`", remedy)
    elif kind not in (None, SPEC):
        remedy = _RUN if kind == SETTINGS else f"send the job spec; {LOOKS[SPEC]}"
        yield _error(WHOLE_DOCUMENT, f"this is {kind}, not {SPEC}", remedy)


def _without_its_field(data: dict[str, object], content: type[BaseModel]) -> Iterator[FieldError]:
    """A spec or settings where a request belongs that has a field for it."""
    for field, wanted in (("spec", SPEC), ("settings", SETTINGS)):
        if field in content.model_fields and field not in data and kind_of(data) == wanted:
            required = [name for name, each in content.model_fields.items() if each.is_required()]
            plan = ["plan_id"] if field == "settings" and "plan_id" in content.model_fields else []
            beside = ", ".join(f"{name}: …" for name in dict.fromkeys((*plan, field, *required)))
            remedy = f"send it as `{field}`, in {{{beside}}}"
            yield _error(WHOLE_DOCUMENT, f"this is {wanted}, not a request that has it", remedy)


def _in_a_wrong_field(data: dict[str, object], content: type[BaseModel]) -> Iterator[FieldError]:
    for field, wanted, other in (("spec", SPEC, SETTINGS), ("settings", SETTINGS, SPEC)):
        if field in content.model_fields and kind_of(data.get(field)) == other:
            remedy = f"{LOOKS[wanted]}; send this as `{'settings' if field == 'spec' else 'spec'}`"
            yield _error(field, f"this is {other}, not {wanted}", remedy)


def _error(field: str, message: str, remedy: str) -> FieldError:
    return FieldError(field=field, message=message, remedy=remedy)
