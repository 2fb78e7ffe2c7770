"""Which fields a mapping may have, by its place in a document, and which was probably meant."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from automap.executor.settings import RunSettings
from automap.planner.plan import placement_json_schema
from automap.planner.spec import ClusterSpec, job_spec_json_schema
from automap.service.errors.names_elsewhere import FIELDS, INSTEAD

Schema = Mapping[str, Any]
Path = Sequence[str | int]

_MOST_LISTED = 24


def meant_field(path: Path, data: object) -> str:
    """The field that was probably meant by the last part of a path; empty: none is near."""
    return _meant(str(path[-1]), _missing_beside(path, data)) if path else ""


def remedy_of_unknown(path: Path, data: object) -> str:
    """What to do about a field that its mapping does not have; empty: nothing is known of it."""
    root = _root(path, data)
    if root is None:
        return ""
    document, inside = root
    if meant := meant_field(path, data):
        named = meant + _limit_of(str(path[-1]), meant, _at(path, data))
        return f"did you mean {named!r}? Otherwise remove it"
    if document == "spec" and (told := _of_elsewhere(inside)):
        return told
    if len(inside) == 1 and (place := _place(str(path[-1]), document)):
        return f"it belongs in {place}"
    known = _missing_beside(path, data)
    return f"remove it; other fields here are {', '.join(known)}" if _tells(known) else ""


def remedy_of_no_mapping(path: Path, data: object) -> str:
    """What to write in place of what is no mapping: its fields, where they are few."""
    root = _root(path, data)
    known = [] if root is None else _fields(_schemas()[root[0]], root[1])
    remedy = "give its fields by name" + (f": {', '.join(known)}" if _tells(known) else "")
    given = _at(path, data)
    is_length = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if {"mean", "max"} <= set(known) and is_length:
        remedy += f"; {{mean: {given}, max: {given}}} if all are that long"
    return remedy


def field_of_spec(name: str) -> str:
    """The field of a job spec whose name begins with these words; empty: none on top or below."""
    spec = _schemas()["spec"]
    fields = {part: part for part in spec["properties"]}
    for part in spec["properties"]:
        fields |= {f"{part}.{field}": field for field in _fields(spec, [part])}
    exact = (path for path, field in fields.items() if field == name)
    longer = (path for path, field in fields.items() if field.startswith(f"{name}_"))
    return next(chain(exact, longer), "")


def _limit_of(name: str, meant: str, given: object) -> str:
    """A limit of tokens, as frameworks have it, as the length that a job has; empty: it is none."""
    is_limit = name in FIELDS and meant.endswith("_length") and isinstance(given, int)
    return f": {{mean: MEAN, max: {given}}}" if is_limit else ""


def _of_elsewhere(path: Path) -> str:
    """What to write in a job spec for what only frameworks call so; empty: nothing is known."""
    name = str(path[-1])
    if name in INSTEAD:
        return INSTEAD[name]
    field = FIELDS.get(name, "")
    if field in _fields(_schemas()["spec"], path[:-1]):
        return f"it is {field!r} here, which is given: remove it"
    place = _place(field, "spec")
    return f"write {place}.{field}" if place else ""


def _missing_beside(path: Path, data: object) -> list[str]:
    """The fields that the mapping around the end of a path may have, and has not."""
    root = _root(path, data)
    if root is None:
        return []
    document, inside = root
    there = _at(path[:-1], data)
    if not isinstance(there, dict):
        there = ()
    return [name for name in _fields(_schemas()[document], inside[:-1]) if name not in there]


def _at(path: Path, data: Any) -> object:
    """What stands at a path; a path of an error is always there."""
    for part in path:
        data = data[part]
    return data


def _tells(known: Sequence[str]) -> bool:
    return 0 < len(known) <= _MOST_LISTED


def _meant(name: str, known: Sequence[str]) -> str:
    """The known field that is near, or the only one that has the name among its words."""
    if name in FIELDS or name in INSTEAD:
        return FIELDS[name] if FIELDS.get(name) in known else ""
    if near := difflib.get_close_matches(name[:100], known, n=1, cutoff=0.75):
        return near[0]
    within = [each for each in known if f"_{name}_" in f"_{each}_"]
    return within[0] if len(within) == 1 else ""


def _place(name: str, document: str) -> str:
    """Where a field belongs that stands on top of a document; empty: nowhere."""
    schema = _schemas()[document]
    places = [str(part) for part in schema["properties"] if name in _fields(schema, [part])]
    if places:
        return places[0]
    belongs = document == "spec" and name in _schemas()["settings"]["properties"]
    return "the run settings, NAME.run.yaml" if belongs else ""


@cache
def _schemas() -> Mapping[str, Schema]:
    """The documents by the name of the field that holds them in a request."""
    return {
        "spec": job_spec_json_schema(),
        "settings": RunSettings.model_json_schema(),
        "placement": placement_json_schema(),
        "plan": placement_json_schema(),
        "cluster": ClusterSpec.model_json_schema(),
    }


def _root(path: Path, data: object) -> tuple[str, Path] | None:
    """Which document a path is in, and the path from there; None: another one."""
    if not isinstance(data, dict):
        return None
    shared = {
        document: sum(name in data for name in schema["properties"] if name != "name")
        for document, schema in _schemas().items()  # many another document has a name
    }
    likeliest = max(shared, key=shared.__getitem__)
    if shared[likeliest]:
        return likeliest, path
    return (str(path[0]), path[1:]) if len(path) > 1 and path[0] in shared else None


def _fields(schema: Schema, path: Path) -> list[str]:
    """The fields that a mapping at a path may have, in any of its readings."""
    nodes = list(_readings(schema, schema))
    for part in path:
        nodes = [
            reading
            for node in nodes
            for below in _below(node, part)
            for reading in _readings(below, schema)
        ]
    return list(dict.fromkeys(name for node in nodes for name in node.get("properties", ())))


def _below(node: Schema, part: str | int) -> Iterator[Schema]:
    """What a part of a path leads to from an object or a list."""
    if isinstance(part, int):
        if isinstance(items := node.get("items"), dict):
            yield items
    elif part in node.get("properties", {}):
        yield node["properties"][part]
    else:
        values = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
        yield from (each for each in values if isinstance(each, dict))


def _readings(node: Schema, whole: Schema) -> Iterator[Schema]:
    """A schema with its references followed and its alternatives apart."""
    if "$ref" in node:
        yield from _readings(whole["$defs"][node["$ref"].rpartition("/")[2]], whole)
        return
    alternatives = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    if not alternatives:
        yield node
    for each in alternatives:
        yield from _readings(each, whole)
