"""The string below a field is its description, as pydantic's own setting would have it."""

import subprocess
import sys

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.documented import Documented


class Plain(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    size: int = 1
    """How many there
    are."""
    bare: int = 1
    named: str = Field("", alias="other")
    """By another name."""
    said: str = Field("", description="Said so.")
    """Not this."""


class Lazy(Documented, BaseModel):
    size: int = 1
    """How many there
    are."""
    bare: int = 1
    named: str = Field("", alias="other")
    """By another name."""
    said: str = Field("", description="Said so.")
    """Not this."""


class Outer(Documented, BaseModel):
    class Inner(Lazy):
        more: int = 2
        """More of it."""

    inner: Inner = Inner()
    """A model in a model."""
    last: Lazy | None = None
    """Another."""


def test_the_schema_is_that_of_attribute_docstrings() -> None:
    theirs, ours = Plain.model_json_schema(), Lazy.model_json_schema()
    assert ours["properties"] == theirs["properties"]
    assert ours["properties"]["other"]["description"] == "By another name."
    assert ours["properties"]["said"]["description"] == "Said so."


def test_inherited_fields_and_fields_that_are_models_are_described() -> None:
    schema = Outer.model_json_schema()
    assert schema["properties"]["inner"]["description"] == "A model in a model."
    assert schema["properties"]["last"]["description"] == "Another."
    inner = schema["$defs"]["Inner"]["properties"]
    assert inner["size"]["description"] == "How many there\nare."
    assert inner["more"]["description"] == "More of it."
    assert "description" not in inner["bare"]


def test_no_source_is_read_until_a_schema_is_asked_for() -> None:
    script = (
        "import inspect; inspect.getsource = inspect.findsource = None; import automap.service.app"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
