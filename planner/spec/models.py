"""The models of a job: weights with an architecture, functions and remote services."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.architecture import ModelArchitecture
from planner.spec.base import PositiveFloat, PositiveInt, SpecModel

UNSTATED_CONCURRENCY = 64
"""Responses that a function is priced to score at once: it may call a service that batches."""


class LoraSpec(SpecModel):
    """Low-rank adapters on every linear layer; the base weights are frozen."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 16


class RemoteSpec(SpecModel):
    """A service outside the cluster that scores responses; a run reaches it through a function."""

    seconds_per_response: Annotated[float, Field(ge=0, le=1e6)] = Field(
        default=0.0, description="Seconds from a request to its answer, one response each"
    )
    requests_per_second: PositiveFloat | None = Field(
        default=None,
        description="Responses that the service scores in a second, however many are asked for at "
        "once; default: no such limit",
    )
    concurrency: PositiveInt | None = Field(
        default=None,
        description="Requests that are open at once, a process each; default: priced as "
        f"{UNSTATED_CONCURRENCY}, run in one process",
    )

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.seconds_per_response == 0 and self.requests_per_second is None:
            raise ValueError(
                "a remote service takes time: give seconds_per_response, requests_per_second, or "
                "both"
            )
        return self


class ModelSpec(SpecModel):
    """One model of the job, or a reward that is a function or a remote service: it needs no GPU."""

    architecture: str | ModelArchitecture | None = Field(
        default=None,
        description="Catalogue name, path to a config.json (command line only), or sizes",
    )
    lora: LoraSpec | None = None
    function: bool = Field(default=False, description="True: a Python function on the host, no GPU")
    seconds_per_response: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    concurrency: PositiveInt | None = Field(
        default=None,
        description="Responses the function scores at once, a process each; default: priced as "
        f"{UNSTATED_CONCURRENCY}, run in one process",
    )

    remote: RemoteSpec | None = Field(
        default=None, description="The model is a service outside the cluster, no GPU"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = (self.architecture is not None, self.function, self.remote is not None)
        if sum(kinds) != 1:
            raise ValueError(
                "give exactly one of an architecture, function: true and a remote service"
            )
        if not self.needs_gpus and self.lora is not None:
            what = "function" if self.function else "remote service"
            raise ValueError(f"a {what} has no weights here: remove lora")
        # A document that was written out states defaults too.
        given = {"concurrency": self.concurrency, "seconds_per_response": self.seconds_per_response}
        stray = {name for name, value in given.items() if value}
        if self.remote is not None and stray:
            raise ValueError(f"{', '.join(sorted(stray))} of a remote service belong under remote")
        return self

    @property
    def needs_gpus(self) -> bool:
        """True for a model with weights in the cluster."""
        return self.architecture is not None

    @property
    def open_requests(self) -> int | None:
        """Responses that a function or a remote service scores at once; None: not stated."""
        return self.concurrency if self.remote is None else self.remote.concurrency
