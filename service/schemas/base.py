"""What all that the API sends and takes is made of: models, pages, moments, names."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)

from automap.service.errors.fields import ONE_LINE_PATTERN

Item = TypeVar("Item")
Content = TypeVar("Content", bound=BaseModel)
_NUMBER = re.compile(r"\s*[-+]?[0-9._]+(e[-+]?[0-9]+)?\s*", re.IGNORECASE)


class ApiModel(BaseModel):
    """Frozen and strict, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Page(ApiModel, Generic[Item]):
    """Newest first; `next_cursor` is null on the last page."""

    items: list[Item]
    next_cursor: str | None = None


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("this moment is outside the years 1 to 9999 in UTC") from None


OlderDocument = Annotated[
    dict[str, JsonValue],
    Field(description="What an earlier version stored, as it is, where this one reads it no more"),
]


def _written_out(given: object) -> object:
    """Refuse seconds since 1970, which would be read as a moment and are no date-time."""
    if isinstance(given, int | float) or (isinstance(given, str) and _NUMBER.fullmatch(given)):
        raise ValueError("give a date and a time, as 2026-01-31T12:00:00Z")
    return given


Moment = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_written_out), AfterValidator(_in_utc)
]


ModelName = Annotated[str, Field(min_length=1, max_length=200, pattern=ONE_LINE_PATTERN)]


Cursor = Annotated[str, Field(min_length=1, max_length=800, description="next_cursor of a page")]


class PageQuery(ApiModel, strict=False):
    """Which page of a list; all that a query holds is text."""

    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@dataclass(frozen=True, slots=True)
class Body(Generic[Content]):
    """A body that is what was asked for, and its data as they came."""

    content: Content
    data: object
