"""A dataflow of the user's own."""

from typing import Annotated, Literal

from pydantic import Field

from automap.planner.spec.base import Name, PositiveFloat, SpecModel

CallKind = Literal["generate", "forward", "train"]


class DataflowCallSpec(SpecModel):
    """One call of an explicit dataflow."""

    id: Name
    role: Name
    kind: CallKind
    expected_rounds: PositiveFloat = Field(
        default=1.0, description="Mean repetitions per iteration"
    )


class DataflowEdgeSpec(SpecModel):
    """`target` needs what `source` makes, `distance` iterations earlier."""

    source: Name
    target: Name
    distance: Annotated[int, Field(ge=0, le=16)] = 0
    streamed: bool | None = Field(
        default=None,
        description="Let the target take the source's responses while the source still generates; "
        "default: as search.streaming says",
    )


class DataflowSpec(SpecModel):
    """A user's own dataflow: calls and edges, never code."""

    calls: Annotated[list[DataflowCallSpec], Field(min_length=1, max_length=64)]
    edges: list[DataflowEdgeSpec] = Field(default=[], max_length=1024)
