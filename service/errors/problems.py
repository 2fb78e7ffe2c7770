"""Problem objects (RFC 9457): the only module that knows which HTTP status an error has."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    PlanningError,
    Reason,
    SpecError,
)
from automap.planner.studies.result import ExplainedInfeasibleError, Remedy
from automap.service.errors.fields import (
    MAX_ERRORS,
    FieldError,
    field_error,
    field_errors,
    spec_error_field,
)
from automap.service.errors.planner import (
    PlannerCancelledError,
    PlannerProcessError,
    PlannerTimeoutError,
)

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
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
        description="Why no placement fits, and the smallest changes with which one does",
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


class ProblemError(Exception):
    """Ends a request with a problem object."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = dict(headers or {})


def _problem(name: str, status: HTTPStatus, title: str, detail: str, **extra: Any) -> Problem:
    return Problem(type=TYPES + name, title=title, status=status.value, detail=detail, **extra)


def invalid_document(detail: str, *, line: int | None = None) -> ProblemError:
    """The body is no document that we read."""
    where = [] if line is None else [FieldError(field=f"line {line}", message=detail)]
    return ProblemError(
        _problem(
            "invalid-document", HTTPStatus.BAD_REQUEST, "Unreadable body", detail, errors=where
        )
    )


def invalid_fields(error: ValidationError, data: object, *, what: str) -> ProblemError:
    """The document is readable but not what was asked for."""
    errors = field_errors(error, data)
    return ProblemError(_invalid_spec(f"{what}: {_first(errors)}", errors))


def invalid_field(error: FieldError) -> ProblemError:
    """One value of the request is wrong."""
    return ProblemError(_invalid_spec(_first([error]), [error]))


def invalid_fields_found(errors: list[FieldError]) -> ProblemError:
    """Several values of the request are wrong."""
    return ProblemError(_invalid_spec(_first(errors), errors[:MAX_ERRORS]))


def _first(errors: list[FieldError]) -> str:
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].field}: {errors[0].message}{more}"


def _invalid_spec(detail: str, errors: list[FieldError]) -> Problem:
    return _problem(
        "invalid-spec",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid input",
        detail,
        errors=errors,
    )


def unsupported_media_type(given: str) -> ProblemError:
    """The body is neither JSON nor YAML."""
    return ProblemError(
        _problem(
            "unsupported-media-type",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "Unsupported content type",
            f"Content-Type {given[:100]!r}; send application/json or application/yaml",
        ),
        {"Accept-Post": "application/json, application/yaml"},
    )


def body_too_large(limit_bytes: int) -> ProblemError:
    """The body is larger than the service reads."""
    return ProblemError(
        _problem(
            "body-too-large",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "Body too large",
            f"A body may have at most {limit_bytes} bytes",
        ),
        {"Connection": "close"},
    )


def not_found(what: str, key: object) -> ProblemError:
    """Nothing has this name or id."""
    return ProblemError(
        _problem("not-found", HTTPStatus.NOT_FOUND, "Not found", f"There is no {what} {key}")
    )


def conflict(detail: str) -> ProblemError:
    """The request does not go with what is stored."""
    return ProblemError(_problem("conflict", HTTPStatus.CONFLICT, "Conflict", detail))


def request_in_progress() -> ProblemError:
    """Another request with the same Idempotency-Key is being answered."""
    return ProblemError(
        _problem(
            "request-in-progress",
            HTTPStatus.CONFLICT,
            "Request in progress",
            "A request with this Idempotency-Key is being answered; ask again later",
        ),
        {"Retry-After": "1"},
    )


def key_reused() -> ProblemError:
    """The Idempotency-Key stands for another request."""
    return ProblemError(
        _problem(
            "idempotency-key-reused",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Idempotency-Key used before",
            "This Idempotency-Key was used with another body; use a new key for a new request",
        )
    )


def unauthorized() -> ProblemError:
    """The API key is missing or unknown."""
    return ProblemError(
        _problem(
            "unauthorized",
            HTTPStatus.UNAUTHORIZED,
            "API key missing or unknown",
            "Send Authorization: Bearer KEY with one of the keys of this service",
        ),
        {"WWW-Authenticate": "Bearer"},
    )


def busy() -> ProblemError:
    """As many requests as allowed wait for a planner."""
    return ProblemError(
        _problem(
            "busy",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many requests wait for a planner",
            "Ask again later, or queue the job with Prefer: respond-async",
        ),
        {"Retry-After": "5"},
    )


def not_ready(detail: str) -> ProblemError:
    """The service cannot answer requests yet."""
    return ProblemError(
        _problem("not-ready", HTTPStatus.SERVICE_UNAVAILABLE, "Not ready", detail),
        {"Retry-After": "5"},
    )


def attempts_exhausted(attempts: int) -> Problem:
    """The job ended its server, or its server died, too often."""
    return _problem(
        "attempts-exhausted",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Planning was interrupted too often",
        f"The job was taken up {attempts} times and never finished; post it again to retry",
    )


def plan_failed(plan_id: object, status: str, cause: Mapping[str, Any] | None) -> Problem:
    """The plan that a job waits for will never be."""
    why = f": {cause['detail']}" if cause else ""
    return _problem(
        "plan-failed",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "There is no plan to run",
        f"Plan {plan_id} is {status}{why}",
        **{name: cause[name] for name in ("errors", "reasons") if cause and name in cause},
    )


def run_refused(cause: str) -> Problem:
    """The executor cannot run this plan with these settings."""
    return _problem("run-refused", HTTPStatus.UNPROCESSABLE_ENTITY, "The run was refused", cause)


def run_failed(cause: str) -> Problem:
    """The run ended with an error that trying again would not mend."""
    return _problem("run-failed", HTTPStatus.INTERNAL_SERVER_ERROR, "The run failed", cause)


def profile_refused(cause: str) -> Problem:
    """The cluster cannot be measured as it was asked for."""
    return _problem(
        "profile-refused", HTTPStatus.UNPROCESSABLE_ENTITY, "The profile was refused", cause
    )


def profile_failed(cause: str) -> Problem:
    """Not every kind of node was measured; what was measured is stored."""
    return _problem("profile-failed", HTTPStatus.INTERNAL_SERVER_ERROR, "The profile failed", cause)


def run_lost(attempts: int, reason: str) -> Problem:
    """The run was ended from outside as often as it is tried."""
    return _problem(
        "attempts-exhausted",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "The run was interrupted too often",
        f"The run was started {attempts} times and never finished; the last time {reason}",
    )


def internal_error() -> Problem:
    """Our bug; what it is stands in the log."""
    return _problem(
        "internal-error",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Internal error",
        "The service failed on this request; its log says how",
    )


def problem_of(error: PlanningError | PlannerProcessError, data: object) -> Problem:
    """An expected outcome of planning `data` as a problem."""
    if isinstance(error, SpecError):
        return _invalid_spec(str(error), [spec_error_field(error, data)])
    if isinstance(error, InfeasibleError):
        return _problem(
            "infeasible",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "No placement fits",
            str(error),
            reasons=error.reasons,
            **_explained(error),
        )
    if isinstance(error, NoSolutionInTimeError):
        return _problem(
            "no-solution-in-time",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "No plan within the time limit",
            str(error),
            lower_bound_seconds=error.lower_bound_seconds,
        )
    if isinstance(error, PlannerTimeoutError):
        return _problem(
            "planning-timeout",
            HTTPStatus.GATEWAY_TIMEOUT,
            "Planning took too long",
            f"{error}; ask for less: a smaller cluster, fewer models, a lower time limit",
        )
    if isinstance(error, PlannerCancelledError):
        return not_ready("The service is shutting down").problem
    return internal_error()


def _explained(error: InfeasibleError) -> dict[str, Any]:
    if not isinstance(error, ExplainedInfeasibleError):
        return {}
    return {"remedies": error.refusal.remedies, "untried": error.refusal.untried}


def _problem_json(problem: Problem) -> str:
    """What the problem says; the plans in it whole, as everywhere else."""
    document = problem.model_dump(mode="json", exclude_defaults=True, exclude={"remedies"})
    if problem.remedies:
        document["remedies"] = [
            remedy.model_dump(mode="json", by_alias=True) for remedy in problem.remedies
        ]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response."""
    return Response(
        _problem_json(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def install_handlers(app: FastAPI) -> None:
    """Let every error, ours and the framework's, leave the service as a problem object."""

    @app.exception_handler(ProblemError)
    def _given(_request: Request, error: ProblemError) -> Response:
        return problem_response(error.problem, error.headers)

    @app.exception_handler(RequestValidationError)
    def _invalid_request(_request: Request, error: RequestValidationError) -> Response:
        errors = [
            # Locations of query, path and header parameters: where it was, then its name.
            field_error(details, None).model_copy(
                update={"field": ".".join(str(part) for part in details["loc"])}
            )
            for details in error.errors()
        ]
        return problem_response(_invalid_spec(f"Invalid request: {_first(errors)}", errors))

    @app.exception_handler(HTTPException)
    def _http(_request: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        name = status.phrase.lower().replace(" ", "-")
        problem = _problem(name, status, status.phrase, str(error.detail))
        return problem_response(problem, error.headers)

    @app.exception_handler(OperationalError)
    def _database(_request: Request, error: OperationalError) -> Response:
        log.error("the database does not answer: %s", error)
        given = not_ready("The database does not answer")
        return problem_response(given.problem, given.headers)

    @app.exception_handler(Exception)
    def _bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(internal_error())
