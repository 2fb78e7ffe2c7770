"""Errors as responses: every one, ours and the framework's, leaves as a problem object."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.exceptions import HTTPException

from automap.planner.errors import PlanningError
from automap.service.api.paths import allow
from automap.service.api.refusals import HEADERS, refusal_of
from automap.service.api.security_headers import EVERYWHERE
from automap.service.errors import domain
from automap.service.errors.domain import PlannerProcessError
from automap.service.errors.fields import field_error
from automap.service.schemas.problems import TYPES, Problem
from automap.service.storage.writability import why_not_written
from automap.service.telemetry import context

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


def error_response(error: Exception, data: object = None) -> Response:
    """The response to an error; `data` is the body of the request, to name what is wrong in it."""
    headers = getattr(error, "headers", None) or HEADERS.get(type(error))
    return _response(refusal_of(error, data), headers)


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        _problem_json(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def _problem_json(problem: Problem) -> str:
    """What the problem says; the plans in it whole, as everywhere else."""
    document = problem.model_dump(mode="json", exclude_defaults=True, exclude={"remedies"})
    if problem.remedies:
        document["remedies"] = [
            remedy.model_dump(mode="json", by_alias=True) for remedy in problem.remedies
        ]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def http_error_response(request: Request, error: HTTPException) -> Response:
    """The response to an error of the framework's; of a method with those that there are."""
    phrase = HTTPStatus(error.status_code).phrase
    name = phrase.lower().replace(" ", "-")
    detail = str(error.detail)
    if detail == phrase:  # the framework's own, which says no more
        asked = f"{request.method} {request.url.path[:100]}"
        detail = f"{asked}: {phrase.lower()}; /docs and /openapi.json show what there is"
    problem = Problem(type=TYPES + name, title=phrase, status=error.status_code, detail=detail)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allow(request.app.routes, request.scope)
    return _response(problem, headers)


def install_handlers(app: FastAPI) -> None:
    """Let every error leave the service as a problem object."""

    @app.exception_handler(domain.ServiceError)
    @app.exception_handler(PlanningError)
    @app.exception_handler(PlannerProcessError)
    def _expected(request: Request, error: Exception) -> Response:
        return error_response(error, getattr(request.state, "data", None))

    @app.exception_handler(RequestValidationError)
    def _invalid_request(_request: Request, error: RequestValidationError) -> Response:
        errors = [
            # Locations of query, path and header parameters: where it was, then its name.
            field_error(details, None).model_copy(
                update={"field": ".".join(str(part) for part in details["loc"])}
            )
            for details in error.errors()
        ]
        return error_response(domain.InvalidInputError(errors, what="Invalid request"))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        return http_error_response(request, error)

    @app.exception_handler(OperationalError)
    @app.exception_handler(NoConnectionError)
    def _database(_request: Request, error: Exception) -> Response:
        why = why_not_written(error)
        said = "does not answer" if why is None else f"cannot be written: {why}"
        log.error("the database %s: %s", said, error)
        return error_response(domain.NotReadyError(f"The database {said}"))

    @app.exception_handler(Exception)
    def _bug(request: Request, error: Exception) -> Response:
        # What answers here stands outside of all middleware, so this is done once more.
        request_id = getattr(request.state, "request_id", "")
        with context.bound(request_id=request_id):
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        response = error_response(error)
        response.headers.update(EVERYWHERE)
        response.headers["X-Request-ID"] = request_id
        return response
