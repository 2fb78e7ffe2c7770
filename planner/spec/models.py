"""The models of a job: weights with an architecture, functions and remote services."""

from math import ceil
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from automap.planner.catalogue import find_model
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.errors import FieldValueError
from automap.planner.spec.base import PositiveFloat, PositiveInt, SpecModel

MOST_UNASKED = 64
"""Most processes of a run that a service's rate brings about without a stated concurrency."""


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
        description="Requests that are open at once, a process each; default: as many as "
        f"requests_per_second needs, at most {MOST_UNASKED}, else one",
    )

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.seconds_per_response == 0 and self.requests_per_second is None:
            raise FieldValueError(
                "seconds_per_response",
                "a remote service takes time, and neither this nor requests_per_second is given",
                remedy="give seconds_per_response, requests_per_second, or both",
            )
        return self


def _with_catalogue_name(
    given: str | ModelArchitecture | None,
) -> str | ModelArchitecture | None:
    """The catalogue's own name for a model that it knows, so that equal jobs are equal specs."""
    found = find_model(given) if isinstance(given, str) else None
    return given if found is None else found.name


def _without_a_path(given: object) -> object:
    """The value itself; a text is how people try to say which function it is."""
    if isinstance(given, str):
        raise FieldValueError(
            "",
            "says only that a function scores; which one is for a run",
            remedy="write true, and name it in the run settings: functions: {ROLE: {path: …}}",
        )
    return given


class ModelSpec(SpecModel):
    """One model of the job, or a reward that is a function or a remote service: it needs no GPU."""

    architecture: Annotated[
        str | ModelArchitecture | None, AfterValidator(_with_catalogue_name)
    ] = Field(
        default=None,
        description="Name in the catalogue or on Hugging Face, path to a config.json (command line "
        "only), or sizes",
    )
    lora: LoraSpec | None = None
    function: Annotated[bool, BeforeValidator(_without_a_path)] = Field(
        default=False, description="True: a Python function on the host, no GPU"
    )
    seconds_per_response: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    concurrency: PositiveInt | None = Field(
        default=None,
        description="Responses the function scores at once, a process each; default: one",
    )

    remote: RemoteSpec | None = Field(
        default=None, description="The model is a service outside the cluster, no GPU"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = {
            "architecture": self.architecture is not None,
            "function": self.function,
            "remote": self.remote is not None,
        }
        given = [name for name, is_given in kinds.items() if is_given]
        if len(given) != 1:
            raise FieldValueError(
                given[-1] if given else "architecture",
                "a model is exactly one of an architecture, a function and a remote service, and "
                f"this has {' and '.join(given) or 'none of them'}",
                remedy=f"keep one of {', '.join(given)}"
                if given
                else "give its architecture, function: true, or remote",
            )
        what = {"function": "function", "remote": "remote service"}.get(given[0])
        if what is not None and self.lora is not None:
            raise FieldValueError("lora", f"a {what} has no weights here", remedy="remove lora")
        # Compared with the defaults: JSON that was written from a spec states those, too.
        for name in ("concurrency", "seconds_per_response"):
            if self.function or getattr(self, name) == type(self).model_fields[name].default:
                continue
            raise FieldValueError(
                name,
                f"is what a function has, and this is a {what or 'model with an architecture'}",
                remedy=f"write it under remote: {{{name}: …}}"
                if self.remote is not None
                else "remove it; the planner prices what the model takes",
            )
        return self

    @property
    def needs_gpus(self) -> bool:
        """True for a model with weights in the cluster."""
        return self.architecture is not None

    @property
    def open_requests(self) -> int:
        """Responses that a function or a remote service scores at once, a process each."""
        if self.remote is None:
            return self.concurrency or 1
        rate, each = self.remote.requests_per_second, self.remote.seconds_per_response
        needed = min(ceil((rate or 0.0) * each - 1e-9), MOST_UNASKED)
        return self.remote.concurrency or max(needed, 1)
