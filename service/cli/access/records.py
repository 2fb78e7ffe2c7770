"""Keys and the audit log, in a database of ours or behind a running service."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlencode
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from automap.service.cli.backends.client import Service, parsed
from automap.service.cli.options.access import AuditArguments, KeysArguments
from automap.service.cli.serving import settings_from, unusable_database
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
from automap.service.schemas.base import Page
from automap.service.storage import api_keys, audit
from automap.service.storage.database import Database

_PAGE = 200


class Records(Protocol):
    """Where keys and the log are."""

    def create(self, new: NewApiKey) -> CreatedApiKey: ...

    def keys(self, query: ApiKeyQuery) -> Page[ApiKeyRecord]: ...

    def revoke(self, key_id: UUID) -> ApiKeyRecord: ...

    def requests(self, query: AuditQuery) -> Page[AuditRecord]: ...


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
        self._url = settings_from(database_url=url).database_url

    def create(self, new: NewApiKey) -> CreatedApiKey:
        with self._session() as session:
            return api_keys.create(session, new)

    def keys(self, query: ApiKeyQuery) -> Page[ApiKeyRecord]:
        with self._session() as session:
            return api_keys.list_keys(session, query)

    def revoke(self, key_id: UUID) -> ApiKeyRecord:
        with self._session() as session:
            try:
                return api_keys.revoke(session, key_id)
            except NotFoundError as error:
                raise BadInputError(str(error)) from None

    def requests(self, query: AuditQuery) -> Page[AuditRecord]:
        with self._session() as session:
            return audit.list_requests(session, query)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        from automap import migrations

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
        answer = self._service.ask("POST", "keys", data=new.model_dump(mode="json"))
        return parsed(CreatedApiKey, answer.content, self._service)

    def keys(self, query: ApiKeyQuery) -> Page[ApiKeyRecord]:
        page: Page[ApiKeyRecord] = self._page("keys", query, Page[ApiKeyRecord])
        return page

    def revoke(self, key_id: UUID) -> ApiKeyRecord:
        answer = self._service.ask("DELETE", f"keys/{key_id}")
        return parsed(ApiKeyRecord, answer.content, self._service)

    def requests(self, query: AuditQuery) -> Page[AuditRecord]:
        page: Page[AuditRecord] = self._page("audit", query, Page[AuditRecord])
        return page

    def _page(self, path: str, query: ApiKeyQuery | AuditQuery, model: Any) -> Any:
        asked = urlencode(query.model_dump(mode="json", exclude_none=True))
        answer = self._service.ask("GET", f"{path}?{asked}")
        return parsed(model, answer.content, self._service)


def all_keys(records: Records, owner: str | None) -> list[ApiKeyRecord]:
    """Every key, page by page."""
    found: list[ApiKeyRecord] = []
    query: ApiKeyQuery | None = ApiKeyQuery(owner=owner, limit=_PAGE)
    while query is not None:
        page = records.keys(query)
        found += page.items
        following = page.next_cursor
        query = (following and query.model_copy(update={"cursor": following})) or None
    return found


@contextmanager
def refusing_options() -> Iterator[None]:
    """Report values that options cannot have, a line each.

    Raises:
        BadInputError: in place of every ValidationError.
    """
    try:
        yield
    except ValidationError as error:
        lines = [
            f"--{str(each['loc'][0]).replace('_', '-')}: "
            f"{str(each['msg']).removeprefix('Value error, ')}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise BadInputError("options are wrong", lines) from None
