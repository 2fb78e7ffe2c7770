"""The base of every part of the job spec: strict models, names and numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class SpecModel(BaseModel):
    """A frozen part of the spec.

    An unknown field is an error, and so is `true` or `"16"` where a number belongs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
