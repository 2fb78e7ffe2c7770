"""Keys and the audit log, in a database of ours or behind a running service."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from automap.service.cli.backends.client import Service
from automap.service.cli.options.access import AuditArguments, KeysArguments
from automap.service.cli.serving import database_url_from, need_database, unusable_database
from automap.service.cli.terminal.failures import BadInputError
from automap.service.errors.domain import NotFoundError
from automap.service.schemas.access import (
    ApiKeyQuery,
    ApiKeyRecord,
    AuditQuery,
    AuditRecord,
    CreatedApiKey,
    NewApiKey,
)
from automap.service.storage import api_keys, audit
from automap.service.storage.database import Database

_PAGE = 200


class Records(Protocol):
    """Where keys and the log are."""

    def create(self, new: NewApiKey) -> CreatedApiKey: ...

    def keys(self, owner: str | None) -> list[ApiKeyRecord]: ...

    def revoke(self, key_id: UUID) -> ApiKeyRecord: ...

    def requests(self, query: AuditQuery) -> list[AuditRecord]: ...


def records_of(given: KeysArguments | AuditArguments) -> Records:
    """The place that was named.

    Raises:
        BadInputError: two were named.
    """
    if given.server is None:
        return _InDatabase(given.database_url)
    if given.database_url is not None:
        raise BadInputError("--server and --database-url: give one of them")
    return _OnService(Service(given.server, given.api_key))


class _InDatabase:
    def __init__(self, url: str | None) -> None:
        self._url = database_url_from(url)

    def create(self, new: NewApiKey) -> CreatedApiKey:
        with self._session(new=True) as session:
            made = api_keys.create(session, new)
            audit.add_command(session, "automap keys create", about=str(made.id))
            return made

    def keys(self, owner: str | None) -> list[ApiKeyRecord]:
        found: list[ApiKeyRecord] = []
        query: ApiKeyQuery | None = ApiKeyQuery(owner=owner, limit=_PAGE)
        while query is not None:
            with self._session() as session:
                page = api_keys.list_keys(session, query)
            found += page.items
            following = page.next_cursor
            query = (following and query.model_copy(update={"cursor": following})) or None
        return found

    def revoke(self, key_id: UUID) -> ApiKeyRecord:
        with self._session() as session:
            try:
                revoked = api_keys.revoke(session, key_id)
            except NotFoundError as error:
                raise BadInputError(str(error)) from None
            audit.add_command(session, "automap keys revoke", about=str(key_id))
            return revoked

    def requests(self, query: AuditQuery) -> list[AuditRecord]:
        with self._session() as session:
            return audit.list_requests(session, query).items

    @contextmanager
    def _session(self, *, new: bool = False) -> Iterator[Session]:
        from automap import migrations

        if not new:
            need_database(self._url)
        database = Database(self._url)
        try:
            migrations.upgrade(database.engine)
            with database.transaction() as session:
                yield session
        except SQLAlchemyError as error:
            raise unusable_database(error) from error
        finally:
            database.dispose()


class _OnService:
    def __init__(self, service: Service) -> None:
        self._service = service

    def create(self, new: NewApiKey) -> CreatedApiKey:
        with self._service.telling():
            return self._service.client.create_key(new)

    def keys(self, owner: str | None) -> list[ApiKeyRecord]:
        with self._service.telling():
            return list(self._service.client.keys(owner=owner))

    def revoke(self, key_id: UUID) -> ApiKeyRecord:
        with self._service.telling():
            return self._service.client.revoke_key(key_id)

    def requests(self, query: AuditQuery) -> list[AuditRecord]:
        asked = query.model_dump(mode="json", exclude_none=True)
        with self._service.telling():
            return list(islice(self._service.client.audit(**asked), query.limit))
