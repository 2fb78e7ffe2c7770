"""API keys: off unless configured; then /v1 wants one as a bearer token."""

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from automap.service.api.refusals import UnauthorizedError
from automap.service.settings import Settings

_bearer = HTTPBearer(auto_error=False, description="An API key of this service")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def require_key(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> None:
    """Let a request with a known key pass. Digests of one length leave nothing to time."""
    if credentials is None:
        raise UnauthorizedError
    settings: Settings = request.app.state.settings
    given = _digest(credentials.credentials)
    known = [hmac.compare_digest(given, _digest(k.get_secret_value())) for k in settings.api_keys]
    if not any(known):
        raise UnauthorizedError
    request.state.caller = given
