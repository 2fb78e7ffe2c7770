"""Problem objects (RFC 9457): what every failure looks like, to clients and in the database.

A plan or job that failed is stored with its problem, `status` included, as HTTP then shows it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    Reason,
    SpecError,
)
from automap.planner.studies import ExplainedInfeasibleError, Remedy
from automap.service.errors import domain
from automap.service.errors.domain import PlannerTimeoutError
from automap.service.errors.fields import FieldError, spec_error_field

TYPES = "/problems/"


class Problem(BaseModel):
    """What went wrong, for people and for programs; docs/reference/http.md lists the types."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(examples=["/problems/invalid-spec"])
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []
    reasons: list[Reason] = Field(
        default=[],
        description="Why no placement fits, and the smallest changes with which one does; or why a "
        "framework cannot be told a plan, and what it could do instead",
    )
    remedies: list[Remedy] = Field(
        default=[],
        description="With search.explain_infeasible: changes with which a placement fits, each "
        "with its plan; those first that change least",
    )
    untried: list[str] = Field(
        default=[], description="Changes with which it would fit, but no time was left to plan"
    )
    lower_bound_seconds: float | None = Field(
        default=None, description="What a search had proven when its time was over"
    )

    def document(self) -> dict[str, Any]:
        """JSON of the problem, to be stored with a plan or job."""
        return self.model_dump(mode="json", by_alias=True)


class Kind(NamedTuple):
    """A type of problem."""

    name: str
    status: int
    title: str


OUTCOMES: Mapping[type[Exception], Kind] = {
    domain.PlanFailedError: Kind("plan-failed", 422, "There is no plan to run"),
    domain.OlderVersionError: Kind("older-version", 409, "Stored by an earlier version"),
    domain.RunRefusedError: Kind("run-refused", 422, "The run was refused"),
    domain.ProfileRefusedError: Kind("profile-refused", 422, "The profile was refused"),
    domain.RunFailedError: Kind("run-failed", 500, "The run failed"),
    domain.ProfileFailedError: Kind("profile-failed", 500, "The profile failed"),
    domain.PlanLostError: Kind("attempts-exhausted", 500, "Planning was interrupted too often"),
    domain.RunLostError: Kind("attempts-exhausted", 500, "The run was interrupted too often"),
    SpecError: Kind("invalid-spec", 422, "Invalid input"),
    InfeasibleError: Kind("infeasible", 422, "No placement fits"),
    NotExportableError: Kind("not-exportable", 422, "The framework cannot be told this plan"),
    NoSolutionInTimeError: Kind("no-solution-in-time", 422, "No plan within the time limit"),
    PlannerTimeoutError: Kind("planning-timeout", 504, "Planning took too long"),
    domain.PlannerMemoryError: Kind("planning-memory", 422, "Planning needs too much memory"),
    domain.PlannerDiedError: Kind("planner-killed", 500, "The planner process was killed"),
    Exception: Kind("internal-error", 500, "Internal error"),
}
"""How plans and jobs fail, by class of error or its nearest base; any other is our bug."""


def problem_of(
    error: Exception, data: object = None, *, kinds: Mapping[type[Exception], Kind] = OUTCOMES
) -> Problem:
    """An error as a problem; fields that it names have their value from `data`, as it was sent."""
    kind = next(kinds[each] for each in type(error).__mro__ if each in kinds)
    return Problem(
        type=TYPES + kind.name, title=kind.title, status=kind.status, **_fields(error, data)
    )


def _fields(error: Exception, data: object) -> dict[str, Any]:
    """The detail, and the further fields of a problem that the error has data for."""
    detail = str(error)
    match error:
        case domain.ServiceError():
            return {"detail": detail, "errors": error.errors, "reasons": error.reasons}
        case SpecError():
            return {"detail": detail, "errors": [spec_error_field(error, data)]}
        case ExplainedInfeasibleError(refusal=refusal):
            fixes = {"remedies": refusal.remedies, "untried": refusal.untried}
            return {"detail": detail, "reasons": error.reasons, **fixes}
        case InfeasibleError() | NotExportableError():
            return {"detail": detail, "reasons": error.reasons}
        case NoSolutionInTimeError():
            return {"detail": detail, "lower_bound_seconds": error.lower_bound_seconds}
        case domain.PlannerDiedError():
            return {"detail": detail}
        case PlannerTimeoutError() | domain.PlannerMemoryError():
            less = "ask for less: a smaller cluster, fewer models, a lower time limit"
            return {"detail": f"{detail}; {less}"}
    return {"detail": "The service failed on this request; its log says how"}
