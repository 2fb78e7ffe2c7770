"""Prompt and response lengths as distributions, in tokens."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Tokens = Annotated[float, Field(gt=0, le=10**8, allow_inf_nan=False)]


class LengthSpec(BaseModel):
    """A length distribution: a mean, percentiles, or a histogram; `max` truncates the first two."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: Tokens | None = None
    p50: Tokens | None = None
    p90: Tokens | None = None
    p99: Tokens | None = None
    max: Annotated[int, Field(ge=1, le=10**8)] | None = None
    histogram: (
        Annotated[
            list[tuple[Tokens, Annotated[float, Field(ge=0)]]], Field(min_length=1, max_length=1000)
        ]
        | None
    ) = Field(default=None, description="[length, weight] pairs; weights need not sum to 1")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        percentiles = [value for value in (self.p50, self.p90, self.p99) if value is not None]
        if self.histogram is not None:
            if percentiles or self.mean is not None:
                raise ValueError("give a histogram or mean/percentiles, not both")
            if sum(weight for _, weight in self.histogram) <= 0:
                raise ValueError("the histogram's weights sum to 0; at least one must be positive")
            return self
        if self.max is None:
            raise ValueError("max is required beside a mean or percentiles")
        if (self.mean is None) == (self.p50 is None):
            raise ValueError("give mean, or p50 (with p90 and p99 if known), not both or neither")
        ordered = [value for value in (self.mean, *percentiles, self.max) if value is not None]
        if ordered != sorted(ordered):
            raise ValueError(f"lengths must not fall: {ordered}")
        return self
