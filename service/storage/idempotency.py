"""Idempotency keys: the same key with the same body gives the same plan or job, made once."""

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automap.service.errors.domain import KeyReusedError, RequestInProgressError
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import IdempotencyRow

KEPT_SECONDS = 24 * 3600
"""How long a key is remembered once what it stands for exists."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key that this request is answering."""

    key: str
    token: UUID


def fingerprint(data: object, *, of: str = "") -> str:
    """The same for the same data, whatever its media type, white space and order of fields.

    `of` is what the data ask for, unless it is a plan: no key stands for a plan and for a job.
    """
    text = of + json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def take(database: Database, key: str, *, fingerprint: str, lease_seconds: float) -> HeldKey | UUID:
    """Hold the key for this request; or the plan or job that an earlier one made.

    Raises a problem: the key was used for another body, or its request is still being answered.
    """
    held = HeldKey(key=key, token=uuid4())
    expires_at = utc_now() + timedelta(seconds=lease_seconds)
    with database.transaction() as session:
        session.execute(delete(IdempotencyRow).where(IdempotencyRow.expires_at < utc_now()))
    try:
        with database.transaction() as session:
            session.add(
                IdempotencyRow(
                    key=key,
                    fingerprint=fingerprint,
                    plan_id=None,
                    job_id=None,
                    lease_token=held.token,
                    expires_at=expires_at,
                )
            )
    except IntegrityError:
        return _made_earlier(database, key, fingerprint)
    return held


def _made_earlier(database: Database, key: str, fingerprint: str) -> UUID:
    with database.reading() as session:
        row = session.scalars(select(IdempotencyRow).where(IdempotencyRow.key == key)).one_or_none()
    if row is not None and row.fingerprint != fingerprint:
        raise KeyReusedError
    made = None if row is None else row.plan_id or row.job_id
    if made is None:  # it is being answered, or failed between our two statements
        raise RequestInProgressError
    return made


def extend(session: Session, held: HeldKey, *, lease_seconds: float) -> None:
    """Keep holding the key while the request is being answered."""
    expires_at = utc_now() + timedelta(seconds=lease_seconds)
    session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.key == held.key, IdempotencyRow.lease_token == held.token)
        .values(expires_at=expires_at)
    )


def complete(
    session: Session, held: HeldKey, *, plan_id: UUID | None = None, job_id: UUID | None = None
) -> None:
    """Let the key stand for the plan or job, in the transaction that stores it."""
    completed = session.execute(
        update(IdempotencyRow)
        .where(IdempotencyRow.key == held.key, IdempotencyRow.lease_token == held.token)
        .values(
            plan_id=plan_id,
            job_id=job_id,
            lease_token=None,
            expires_at=utc_now() + timedelta(seconds=KEPT_SECONDS),
        )
        .returning(IdempotencyRow.key)
    ).one_or_none()
    if completed is None:  # our lease ran out and another request took the key
        raise RequestInProgressError


def give_up(session: Session, held: HeldKey) -> None:
    """Forget the key: its request failed, and a corrected one may use it again."""
    session.execute(
        delete(IdempotencyRow).where(
            IdempotencyRow.key == held.key, IdempotencyRow.lease_token == held.token
        )
    )
