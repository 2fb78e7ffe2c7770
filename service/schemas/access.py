"""What the API sends and takes of keys and of the audit log, and what keys may do."""

from datetime import datetime
from typing import Annotated, Literal, get_args
from uuid import UUID

from pydantic import AfterValidator, Field

from automap.service.schemas.base import ApiModel, Moment, PageQuery

Scope = Literal["read", "plan", "run", "admin"]
"""What a key may do: look, plan, run code on the cluster, manage keys and read the audit log. None
of them includes another."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
USUAL_SCOPES: tuple[Scope, ...] = ("read", "plan", "run")
ALL_SCOPES = frozenset(SCOPES)


def _ordered(scopes: list[Scope]) -> list[Scope]:
    return [scope for scope in SCOPES if scope in scopes]


# Printable and without blanks: names go into logs, lists and command lines.
OWNER = r"[A-Za-z0-9][A-Za-z0-9._@+-]*"
Owner = Annotated[str, Field(min_length=1, max_length=64, pattern=rf"^{OWNER}$")]
GivenScopes = Annotated[
    list[Scope],
    Field(min_length=1, max_length=len(SCOPES)),
    AfterValidator(_ordered),
]
Note = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NewApiKey(ApiModel):
    """A key to make."""

    owner: Owner = Field(description="Whose plans and jobs those are that it makes")
    scopes: GivenScopes = Field(default=list(USUAL_SCOPES), description="What it may do")
    note: Note = Field(default="", description="What it is for")
    expires_at: Moment | None = Field(
        default=None, description="With time zone; null: it is good until it is revoked"
    )


class ApiKeyRecord(ApiModel):
    """A key, without its secret."""

    id: UUID
    prefix: str = Field(description="What the key itself begins with, to tell a leaked one by")
    owner: str
    scopes: list[Scope]
    note: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute; null: never")
    revoked_at: datetime | None
    usable: bool = Field(description="Neither revoked nor expired")


class CreatedApiKey(ApiKeyRecord):
    """A key that was just made, with its secret: it is shown this once."""

    key: str


class ApiKeyQuery(PageQuery):
    """Which keys."""

    owner: Owner | None = None


class AuditRecord(ApiModel):
    """A request that could change something, or was refused; or a command that changed keys."""

    id: UUID
    created_at: datetime
    owner: str | None = Field(
        description="Null: nobody whom the service knows; `cli`: a command on the database itself"
    )
    key_id: str | None = Field(
        description="The key's id, or environment-N; null: none was asked for, or known"
    )
    method: str = Field(description="Of a command `CLI`")
    route: str = Field(description="Of a command its name, such as `automap keys revoke`")
    resource_id: str | None = Field(description="What it was about, or has made")
    change: str | None = Field(
        default=None, description="Of a change of owner: `owner: ada -> bob`"
    )
    status: int
    remote_address: str | None
    request_id: str | None = Field(
        default=None,
        description="As its `X-Request-ID` and the service's log have it; null: a command, or "
        "written by an earlier version",
    )


class AuditQuery(PageQuery):
    """Which requests; all given filters hold together."""

    owner: Owner | None = None
    key_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    resource_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CLI"] | None = None
    min_status: Annotated[int, Field(ge=100, le=599)] | None = Field(
        default=None, description="400: only what was refused or failed"
    )
    created_after: Moment | None = Field(default=None, description="With time zone, exclusive")
    created_before: Moment | None = Field(default=None, description="With time zone, exclusive")
