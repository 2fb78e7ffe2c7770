"""Why a request is refused: errors about a request itself, and what each refusal looks like."""

from collections.abc import Iterable, Mapping
from typing import Literal

from automap.service.errors import domain
from automap.service.errors.domain import PlannerCancelledError
from automap.service.errors.fields import FieldError
from automap.service.schemas.problems import OUTCOMES, Kind, Problem, problem_of
from automap.service.use_cases.service_parts import Caller


class InvalidDocumentError(domain.ServiceError):
    """The body is no document that the service reads."""

    def __init__(self, detail: str, *, line: int | None = None) -> None:
        where = [] if line is None else [FieldError(field=f"line {line}", message=detail)]
        super().__init__(detail, errors=where)


class UnsupportedMediaTypeError(domain.ServiceError):
    """The body is neither JSON nor YAML."""

    def __init__(self, given: str) -> None:
        super().__init__(f"Content-Type {given[:100]!r}; send application/json or application/yaml")


class BodyTooLargeError(domain.ServiceError):
    """The body is larger than the service reads."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"A body may have at most {limit_bytes} bytes")


class RequestTimeoutError(domain.ServiceError):
    """The body did not come in time."""

    def __init__(self, limit_seconds: float) -> None:
        super().__init__(
            f"The body of a request must come within {limit_seconds:g} s (AUTOMAP_REQUEST_SECONDS)"
        )


class UnknownHostError(domain.ServiceError):
    """The request is for a host that the service is not known by."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"Host {host[:100]!r} is no name of this service; name it in AUTOMAP_ALLOWED_HOSTS"
        )


class OtherUserError(domain.ServiceError):
    """Without keys a service on loopback is its user's alone."""

    def __init__(self) -> None:
        super().__init__(
            "This service has no keys and answers its own user alone; set AUTOMAP_API_KEYS to "
            "share it"
        )


class CrossSiteError(domain.ServiceError):
    """A page of another site made a browser send the request."""

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"A page of {origin[:100]!r} may not send requests to this service; name its host in "
            "AUTOMAP_ALLOWED_HOSTS if it is one of its own"
        )


class UnauthorizedError(domain.ServiceError):
    """The API key is missing or unknown."""

    def __init__(self) -> None:
        super().__init__("Send Authorization: Bearer KEY with one of the keys of this service")


class EndedKeyError(domain.ServiceError):
    """The API key is known and opens no more; `sender` is whose it is, who may do nothing."""

    def __init__(self, ended: Literal["revoked", "expired"], sender: Caller) -> None:
        super().__init__(f"This key is {ended}; ask whoever runs the service for another")
        self.sender = sender


class MissingScopeError(domain.ServiceError):
    """The key may not do what it was sent for."""

    def __init__(self, scope: str, has: Iterable[str]) -> None:
        super().__init__(
            f"This needs a key with the scope {scope!r}; this one has {', '.join(sorted(has))}"
        )
        self.headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}


class TooManyRequestsError(domain.ServiceError):
    """The key has asked for as much as it may; `limit` says of what, `setting` where it is set."""

    def __init__(self, limit: str, *, setting: str, retry_seconds: int) -> None:
        super().__init__(f"A key may have {limit} (AUTOMAP_{setting.upper()})")
        self.headers = {"Retry-After": str(retry_seconds)}


KINDS: Mapping[type[Exception], Kind] = {
    **OUTCOMES,
    InvalidDocumentError: Kind("invalid-document", 400, "Unreadable body"),
    UnauthorizedError: Kind("unauthorized", 401, "API key missing or unknown"),
    EndedKeyError: Kind("unauthorized", 401, "API key revoked or expired"),
    MissingScopeError: Kind("missing-scope", 403, "The key may not do this"),
    UnknownHostError: Kind("unknown-host", 403, "Not a host of this service"),
    OtherUserError: Kind("other-user", 403, "Another user's service"),
    CrossSiteError: Kind("cross-site", 403, "Sent by a page of another site"),
    domain.NotFoundError: Kind("not-found", 404, "Not found"),
    domain.ConflictError: Kind("conflict", 409, "Conflict"),
    domain.RequestInProgressError: Kind("request-in-progress", 409, "Request in progress"),
    RequestTimeoutError: Kind("request-timeout", 408, "Request not sent in time"),
    BodyTooLargeError: Kind("body-too-large", 413, "Body too large"),
    UnsupportedMediaTypeError: Kind("unsupported-media-type", 415, "Unsupported content type"),
    TooManyRequestsError: Kind("too-many-requests", 429, "A limit of the key is reached"),
    domain.InvalidInputError: Kind("invalid-spec", 422, "Invalid input"),
    domain.KeyReusedError: Kind("idempotency-key-reused", 422, "Idempotency-Key used before"),
    domain.BusyError: Kind("busy", 503, "Too many requests wait for a planner"),
    domain.NotReadyError: Kind("not-ready", 503, "Not ready"),
    PlannerCancelledError: Kind("not-ready", 503, "Not ready"),
}
"""The kind of problem that an error is to the client whose request it ends."""
_DETAILS: Mapping[type[Exception], str] = {
    domain.RequestInProgressError: "A request with this Idempotency-Key is being answered; "
    "ask again later",
    domain.KeyReusedError: "This Idempotency-Key was used with another request; use a new key for "
    "a new one",
    domain.BusyError: "Ask again later, or queue the job with Prefer: respond-async",
    PlannerCancelledError: "The service is shutting down",
}
"""What a client can do, in terms of headers, where the error knows none."""
HEADERS: Mapping[type[Exception], Mapping[str, str]] = {
    UnauthorizedError: {"WWW-Authenticate": "Bearer"},
    EndedKeyError: {"WWW-Authenticate": 'Bearer error="invalid_token"'},
    domain.RequestInProgressError: {"Retry-After": "1"},
    BodyTooLargeError: {"Connection": "close"},
    RequestTimeoutError: {"Connection": "close"},
    UnsupportedMediaTypeError: {"Accept-Post": "application/json, application/yaml"},
    domain.BusyError: {"Retry-After": "5"},
    domain.NotReadyError: {"Retry-After": "5"},
    PlannerCancelledError: {"Retry-After": "5"},
}


def refusal_of(error: Exception, data: object = None) -> Problem:
    """An error as the problem that a client gets; `data` is the body of its request."""
    problem = problem_of(error, data, kinds=KINDS)
    detail = _DETAILS.get(type(error), problem.detail)
    return problem.model_copy(update={"detail": detail})
