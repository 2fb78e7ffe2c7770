"""What is wrong with a document, field by field: one shape for HTTP and command line."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from automap.planner.catalogue import gpu_type, node_type
from automap.planner.errors import FieldValueError, SpecError
from automap.planner.spec import NAME_PATTERN, PoolSpec
from automap.service.errors.valid_fields import meant_field, remedy_of_no_mapping, remedy_of_unknown

MAX_ERRORS = 50
VERSION_PATTERN = r"^[0-9a-f]{12}$"
"""The version of a stored profile: a hash."""
PRINTED_PATTERN = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""A text, of several lines perhaps, without control characters: a database cannot hold them all."""
ONE_LINE_PATTERN = r"^[^\x00-\x1f\x7f]+$"
"""A text of one line, not empty, without control characters."""
_MAX_VALUE_CHARACTERS = 200

_REMEDIES = {
    "missing": "add this field",
    "extra_forbidden": "remove this field, or correct its name",
    "uuid_parsing": "use the id that the plan was given",
    "union_tag_invalid": "use one of the valid kinds",
    "int_type": "write a whole number, without quotes or a unit",
    "int_parsing": "write a whole number, without quotes or a unit",
    "float_parsing": "write a number, without quotes or a unit",
    "bool_parsing": "write true or false",
    "int_from_float": "write a whole number",
    "float_type": "write a number, without quotes or a unit",
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "string_type": "write a text",
    "list_type": "write a list",
    "tuple_type": "write a list",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("of at most", "le"),
}
"""Pydantic's kind of error, in words, and where it keeps the limit."""
_LENGTHS = {
    "too_short": ("give at least {}", "min_length"),
    "too_long": ("give at most {}", "max_length"),
    "string_too_short": ("write at least {} characters", "min_length"),
    "string_too_long": ("write at most {} characters", "max_length"),
}
"""Pydantic's kind of error about a length, in words, and where it keeps the limit."""
_PATTERNS = {
    VERSION_PATTERN: "use the version that the profile was given: 12 hexadecimal digits",
    NAME_PATTERN: "use a letter, then up to 63 letters, digits, _ . or -",
    PRINTED_PATTERN: "leave out control characters",
    ONE_LINE_PATTERN: "write one line, without control characters",
}
"""What a text must match, in words."""
_NOT_A_MAPPING = ("model_type", "model_attributes_type", "dict_type")
WHOLE_DOCUMENT = "document"
"""The field of an error about what has no fields at all."""
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z][A-Za-z/]*)\s*")
_DATA = re.compile(r"([kKMGTP]?)(i?)(B|bytes?|b|bits?)")
_SECONDS = {"ms": 1e-3, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class FieldError(BaseModel):
    """One thing wrong: where, what was there, why it is wrong, and what to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(description="Path in the document, for example cluster.pools.0.gpu")
    value: JsonValue = Field(default=None, description="What was there, shortened")
    message: str
    remedy: str = ""


def field_errors(error: ValidationError, data: object) -> list[FieldError]:
    """Pydantic's errors about `data`, at most MAX_ERRORS, each with its path in the document."""
    # Cut before each is compared with all: a megabyte can be wrong in eighty thousand places.
    found = error.errors(include_url=False)[: 2 * MAX_ERRORS]
    misspelt = _misspelt(found, data)
    meant = [
        details
        for details in found
        if not _is_other_reading(details, found, data)
        and not (details["type"] == "missing" and details["loc"] in misspelt)
    ]
    return [field_error(details, data) for details in meant[:MAX_ERRORS]]


def _misspelt(found: Sequence[ErrorDetails], data: object) -> set[tuple[int | str, ...]]:
    """The fields that unknown ones probably are: each is one mistake, not also a missing field."""
    fields: set[tuple[int | str, ...]] = set()
    for details in found:
        if details["type"] == "extra_forbidden":
            path = _document_path(details["loc"], data, missing=False)
            fields.add((*details["loc"][:-1], meant_field(path, data)))
    return fields


def _is_other_reading(details: ErrorDetails, found: Sequence[ErrorDetails], data: object) -> bool:
    """True for "should be a string" where a mapping stands, and the other way round.

    A field such as `cluster: ClusterSpec | Name` fails once per reading; the one that was not meant
    only confuses. It goes when another error about the same field remains.
    """
    location = details["loc"]
    # A reading has a name behind the field's own, which the document has not.
    if not _not_meant(details) or len(_document_path(location, data, missing=False)) == len(
        location
    ):
        return False
    field = location[:-1]
    return any(other["loc"][: len(field)] == field and not _not_meant(other) for other in found)


def _not_meant(details: ErrorDetails) -> bool:
    kind, given = details["type"], details["input"]
    if kind == "string_type":
        return isinstance(given, (dict, list))
    return kind in _NOT_A_MAPPING and isinstance(given, str)


def field_error(details: ErrorDetails, data: object) -> FieldError:
    """A pydantic error as a `FieldError`, with the path that a user would write."""
    kind, context = details["type"], details.get("ctx", {})
    path = _document_path(details["loc"], data, missing=kind == "missing")
    if isinstance(raised := context.get("error"), FieldValueError):
        field = path_text([*path, *raised.field.split()])
        told = spec_error_field(SpecError(field, raised.message, remedy=raised.remedy), data)
        return told if raised.field else told.model_copy(update={"value": shown(details["input"])})
    message = details["msg"].removeprefix("Value error, ")
    remedy = _REMEDIES.get(kind, "")
    if kind in _NOT_A_MAPPING:
        message, remedy = "the document must be a mapping of fields", "write `name: value` lines"
        if path:
            message, remedy = "this must be a mapping of fields", remedy_of_no_mapping(path, data)
    elif kind == "extra_forbidden":
        remedy = remedy_of_unknown(path, data) or remedy
    else:
        remedy = _number(details, path, data) or _within_limits(kind, context) or remedy
        if "expected" in context:
            remedy = _valid_values(details.get("input"), str(context["expected"]))
    value = None if kind == "missing" else shown(details.get("input"))
    field = path_text(path) or (WHOLE_DOCUMENT if kind in _NOT_A_MAPPING else "")
    return FieldError(field=field, value=value, message=message, remedy=remedy)


def _within_limits(kind: str, context: Mapping[str, Any]) -> str:
    """What would be long, large or short enough, or match the pattern; empty: that is not it."""
    if kind in _BOUNDS:
        words, limit = _BOUNDS[kind]
        return f"use a number {words} {context[limit]}"
    if kind in _LENGTHS:
        words, limit = _LENGTHS[kind]
        return words.format(context[limit])
    return _PATTERNS.get(context.get("pattern", ""), "")


def _number(details: ErrorDetails, path: Sequence[str | int], data: object) -> str:
    """The number that a text with a unit means; empty: that is not what is wrong."""
    given = details.get("input")
    if details["type"] not in ("int_type", "float_type") or not isinstance(given, str) or not path:
        return ""
    number = in_base_unit(given, str(path[-1]))
    if number is None:
        return ""
    whole = details["type"] == "int_type" or number == round(number)
    exact = str(round(number) if whole else number)
    if path[-1] == "inter_node_bytes_per_second":
        return _network_per_gpu(given, number, exact, value_at(path_text(path[:-1]), data))
    return f"write {exact}, the same in the field's own unit"


def _network_per_gpu(given: str, number: float, exact: str, pool: object) -> str:
    """The number per GPU that a network's speed means: people know that of a whole node."""
    per_gpu = f"the field is bytes per second and GPU: write {exact} if each GPU has {given}"
    if (size := _gpus_of_a_node(pool)) is None:
        return f"{per_gpu}; if a node has, divide by its GPUs"
    return f"{per_gpu}, or {number / size:.15g} if a node of {size} has, {given} ÷ {size}"


def _gpus_of_a_node(pool: object) -> int | None:
    """GPUs of each node of a pool, by itself or by the catalogue; None: neither tells."""
    if not isinstance(pool, dict):
        return None
    rest = {name: each for name, each in pool.items() if not name.endswith("_bytes_per_second")}
    try:
        read = PoolSpec.model_validate(rest)
        return read.gpus_per_node or node_type(gpu_type(read.gpu).node).gpus_per_node
    except (SpecError, ValidationError):
        return None


def spec_error_field(error: SpecError, data: object) -> FieldError:
    """The planner's own complaint, with the value it complains about where it is in `data`."""
    return FieldError(
        field=error.field,
        value=shown(value_at(error.field, data)),
        message=error.message,
        remedy=error.remedy,
    )


def path_text(path: Sequence[str | int]) -> str:
    """`cluster.pools.0.gpu` for ("cluster", "pools", 0, "gpu"), as the planner writes it."""
    return ".".join(str(part) for part in path)


def value_at(field: str, data: object) -> object:
    """The value a path leads to; None where it leads nowhere."""
    for part in field.split("."):
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data


def shown(value: object) -> JsonValue:
    """The value itself if it is small, or the start of its JSON text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        text = value
    else:
        try:
            text = _start_of_json(value)
        except (TypeError, ValueError, RecursionError):
            text = type(value).__name__
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


def _start_of_json(value: object) -> str:
    """The first characters, as many as are shown: the value may be a document of megabytes."""
    text = ""
    for part in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += part
        if len(text) > _MAX_VALUE_CHARACTERS:
            break
    return text


def _document_path(
    location: tuple[int | str, ...], data: object, *, missing: bool
) -> list[str | int]:
    """The parts of pydantic's location that are in the document, without its names of unions."""
    path: list[str | int] = []
    for position, part in enumerate(location):
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]
            path.append(part)
        elif missing and position == len(location) - 1:
            path.append(part)
    return path


def _valid_values(given: object, expected: str) -> str:
    """The valid values, and the one that was probably meant first."""
    valid = {each.lower(): each for each in re.findall(r"'([^']*)'", expected)}
    wanted = given[:100].lower() if isinstance(given, str) else ""
    near = [valid[each] for each in difflib.get_close_matches(wanted, valid, n=1, cutoff=0.6)]
    return f"did you mean {near[0]!r}? Use {expected}" if near else f"use {expected}"


def in_base_unit(text: str, field: str) -> float | None:
    """The number that a text such as 200Gb/s means in the unit of a field; None: it does not say.

    A link's speed in Gb or GB is one per second, as everybody writes it.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2]
    if field.endswith("_bytes_per_second"):
        unit = re.sub(r"(/s|/sec|ps)$", "", unit)
        scale = _bytes_of(unit)
    elif field.endswith("_bytes"):
        scale = _bytes_of(unit)
    elif field.endswith("_seconds") or "seconds_per_" in field:
        scale = _SECONDS.get(unit)
    else:
        return None
    return None if scale is None else number * scale


def _bytes_of(unit: str) -> float | None:
    found = _DATA.fullmatch(unit)
    if found is None:
        return None
    base = 1024 if found[2] else 1000
    bits = found[3].startswith("bit") or found[3] == "b"
    return float(base ** _POWERS[found[1]]) / (8 if bits else 1)
