"""A request's body, read and checked."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

Content = TypeVar("Content", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Body(Generic[Content]):
    """A body that is what was asked for, and its data as they came."""

    content: Content
    data: object
