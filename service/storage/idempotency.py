"""Idempotency keys: the same key with the same body gives the same plan or job, made once.

A key belongs to the request that is being answered, by a lease that other servers respect, until
it stands for what that request has made.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from automap.service.errors.domain import KeyReusedError, RequestInProgressError
from automap.service.storage.database import Database, changes_a_row, utc_now
from automap.service.storage.tables import IdempotencyRow

KEPT_SECONDS = 24 * 3600
"""How long a key is remembered once what it stands for exists."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to all requests with a key; without a key, to this request alone."""

    database: Database
    key: str | None
    token: UUID
    lease_seconds: float
    made: UUID | None = None
    """The plan or job that an earlier request has made."""

    def extend(self) -> None:
        """Hold the key longer: the request is still being answered."""
        if self.key is None:
            return
        expires_at = utc_now() + timedelta(seconds=self.lease_seconds)
        with self.database.transaction() as session:
            session.execute(
                update(IdempotencyRow).where(*self._is_held()).values(expires_at=expires_at)
            )

    def complete(
        self, session: Session, *, plan_id: UUID | None = None, job_id: UUID | None = None
    ) -> None:
        """Let the key stand for the plan or job, in the transaction that stores it.

        Raises:
            RequestInProgressError: the lease ran out and another request has taken the key.
        """
        if self.key is None:
            return
        values: dict[str, Any] = {
            "plan_id": plan_id,
            "job_id": job_id,
            "lease_token": None,
            "expires_at": utc_now() + timedelta(seconds=KEPT_SECONDS),
        }
        completing = update(IdempotencyRow).where(*self._is_held()).values(**values)
        if not changes_a_row(session, completing):
            raise RequestInProgressError

    def give_up(self) -> None:
        """Forget the key if it is still held: a corrected request may use it again."""
        if self.key is None:
            return
        with self.database.transaction() as session:
            session.execute(delete(IdempotencyRow).where(*self._is_held()))

    def _is_held(self) -> tuple[ColumnElement[bool], ...]:
        return IdempotencyRow.key == self.key, IdempotencyRow.lease_token == self.token


@contextmanager
def answering_once(
    database: Database, key: str | None, *, data: object, of: str = "", lease_seconds: float
) -> Iterator[Answer]:
    """Answer a request with `data` once per key: complete the answer, unless it was `made` before.

    A request that fails frees its key. Without a key every request is answered anew. `of` is what
    the data ask for, unless it is a plan: no key stands for a plan and for a job.

    Raises:
        KeyReusedError: the key was used with other data.
        RequestInProgressError: another request with the key is being answered.
    """
    answer = take(database, key, fingerprint(data, of=of), lease_seconds=lease_seconds)
    answered = False
    try:
        yield answer
        answered = True
    finally:
        if not answered:
            answer.give_up()


def fingerprint(data: object, *, of: str = "") -> str:
    """A hash of the data, whatever their media type, white space and order of fields."""
    text = of + json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def take(database: Database, key: str | None, fingerprint: str, *, lease_seconds: float) -> Answer:
    """Hold the key for this request, or find what an earlier one has made.

    Raises:
        KeyReusedError: the key was used with other data.
        RequestInProgressError: another request with the key is being answered.
    """
    answer = Answer(database, key, uuid4(), lease_seconds)
    if key is None:
        return answer
    with database.transaction() as session:
        session.execute(delete(IdempotencyRow).where(IdempotencyRow.expires_at < utc_now()))
    row = IdempotencyRow(
        key=key,
        fingerprint=fingerprint,
        plan_id=None,
        job_id=None,
        lease_token=answer.token,
        expires_at=utc_now() + timedelta(seconds=lease_seconds),
    )
    try:
        with database.transaction() as session:
            session.add(row)
    except IntegrityError:
        made = _made_earlier(database, key, fingerprint)
        return Answer(database, key, answer.token, lease_seconds, made)
    return answer


def _made_earlier(database: Database, key: str, fingerprint: str) -> UUID:
    with database.reading() as session:
        row = session.scalars(select(IdempotencyRow).where(IdempotencyRow.key == key)).one_or_none()
    if row is not None and row.fingerprint != fingerprint:
        raise KeyReusedError
    made = None if row is None else row.plan_id or row.job_id
    if made is None:  # it is being answered, or failed between our two statements
        raise RequestInProgressError
    return made
