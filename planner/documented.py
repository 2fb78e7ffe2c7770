"""Models whose fields are described by the strings below them."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from pydantic import GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Documented:
    """A base of pydantic models: the string below a field is its description in the JSON schema.

    Sources are read when a schema is asked for. Pydantic's `use_attribute_docstrings` reads them
    when the class is made, which is an eighth of what importing the service takes.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """The schema as it would be, with descriptions of fields that have none."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        fields: dict[str, FieldInfo] = getattr(cls, "model_fields", {})
        for name, description in _descriptions(cls.__mro__).items():
            shown = name if name not in fields else fields[name].alias or name
            if shown in properties:
                properties[shown].setdefault("description", description)
        return schema


@cache
def _descriptions(bases: tuple[type, ...]) -> dict[str, str]:
    """Field → the string below it, of a class with these bases, itself the first."""
    found: dict[str, str] = {}
    for each in reversed(bases):
        found |= _of_module(each.__module__).get(each.__qualname__, {})
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """Qualified name of a class → field → the string below it."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (OSError, TypeError):
        return {}  # without a source there is nothing to be read
    return dict(_classes(ast.parse(source).body, ""))


def _classes(body: list[ast.stmt], outer: str) -> Iterator[tuple[str, dict[str, str]]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{outer}{statement.name}"
            yield name, _fields(statement.body)
            yield from _classes(statement.body, f"{name}.")


def _fields(body: list[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found
