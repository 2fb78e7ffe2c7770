from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request, Response

from automap.service.api.auth import Keys
from automap.service.api.bodies import body_docs, body_of
from automap.service.api.dependencies import ReadSessionDep, SessionDep
from automap.service.api.examples import KEY_EXAMPLES
from automap.service.api.openapi import problem_responses, response_headers
from automap.service.api.routing import router_for_keys
from automap.service.schemas.access import (
    ApiKeyQuery,
    ApiKeyRecord,
    AuditQuery,
    AuditRecord,
    CreatedApiKey,
    NewApiKey,
)
from automap.service.schemas.base import Body, Page
from automap.service.storage import api_keys, audit

router = router_for_keys("access")

KeyBody = Annotated[Body[NewApiKey], Depends(body_of(NewApiKey, what="The key"))]


@router.post(
    "/keys",
    status_code=201,
    summary="Make a key",
    responses={
        201: {"description": "Made", "headers": response_headers("Location")},
        **problem_responses(400, 413, 415, 422, 503),
    },
    openapi_extra=body_docs(NewApiKey, KEY_EXAMPLES),
)
def create_key(
    body: KeyBody, session: SessionDep, request: Request, response: Response
) -> CreatedApiKey:
    """Make a key. Its secret is in this answer, and nowhere else.

    From the first one on the service asks for keys.
    """
    made = api_keys.create(session, body.content)
    keys: Keys = request.app.state.keys
    keys.look_again()
    response.headers["Location"] = f"/v1/keys/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return made


@router.get("/keys", summary="List keys", responses=problem_responses(422, 503))
def list_keys(
    query: Annotated[ApiKeyQuery, Query()], session: ReadSessionDep
) -> Page[ApiKeyRecord]:
    """Keys, newest first, page by page, without their secrets; those that were revoked as well."""
    return api_keys.list_keys(session, query)


@router.delete("/keys/{key_id}", summary="Revoke a key", responses=problem_responses(404, 422, 503))
def revoke_key(key_id: UUID, session: SessionDep) -> ApiKeyRecord:
    """Refuse a key from now on. It stays in the list, and what was done with it in the log."""
    return api_keys.revoke(session, key_id)


@router.get("/audit", summary="Read the audit log", responses=problem_responses(422, 503))
def list_audit(query: Annotated[AuditQuery, Query()], session: ReadSessionDep) -> Page[AuditRecord]:
    """Requests that could change something, or were refused: who, what, when, from where.

    Newest first, page by page.
    """
    return audit.list_requests(session, query)
