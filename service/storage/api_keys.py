"""Keys to the service: made, found by what a client sends, listed, revoked.

A key is `am_`, its id in hexadecimal, `_`, and a secret of 256 random bits. The id is no secret: by
it the row is found, and a key that leaked is recognised in a log or a repository. Of the secret the
table has a plain SHA-256. A slow hash is for what people choose, which can be guessed; nobody
guesses 256 random bits, and a slow one would cost every request tens of milliseconds.
"""

import hashlib
import hmac
import secrets
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from automap.service.errors.domain import NotFoundError
from automap.service.schemas.access import ApiKeyQuery, ApiKeyRecord, CreatedApiKey, NewApiKey
from automap.service.schemas.base import Page
from automap.service.storage.database import changes_a_row, utc_now
from automap.service.storage.paging import page_of
from automap.service.storage.tables import ApiKeyRow

PREFIX = "am_"
_SECRET_BYTES = 32
_USE_NOTED = timedelta(minutes=1)
"""So long a key's last use is not written again: reading a plan is to write nothing."""


def create(session: Session, new: NewApiKey) -> CreatedApiKey:
    """Store a new key; the answer alone has its secret."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    row = ApiKeyRow(
        id=uuid4(),
        digest=_digest(secret),
        owner=new.owner,
        note=new.note,
        scopes=list(new.scopes),
        created_at=utc_now(),
        expires_at=new.expires_at,
    )
    session.add(row)
    session.flush()
    return CreatedApiKey(**dict(_record(row)), key=f"{prefix_of(row.id)}_{secret}")


def find_sent(session: Session, sent: str) -> ApiKeyRecord | None:
    """The key that a client has sent, usable or not; None: there is none such."""
    key_id, secret = _parts(sent)
    row = None if key_id is None else session.get(ApiKeyRow, key_id)
    if row is None or not hmac.compare_digest(_digest(secret), row.digest):
        return None
    return _record(row)


def opens(session: Session, key_id: UUID) -> bool:
    """Whether a key that opened a while ago does so still."""
    row = session.get(ApiKeyRow, key_id)
    return row is not None and _record(row).usable


def is_use_to_be_noted(key: ApiKeyRecord) -> bool:
    """Whether its last use was noted long enough ago."""
    return key.last_used_at is None or utc_now() - key.last_used_at >= _USE_NOTED


def note_use(session: Session, key_id: UUID) -> None:
    """Write down that it is used now, unless another server just has."""
    stale = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at <= utc_now() - _USE_NOTED)
    used = update(ApiKeyRow).where(ApiKeyRow.id == key_id, stale).values(last_used_at=utc_now())
    changes_a_row(session, used)


def is_any(session: Session) -> bool:
    """Whether there has ever been a key."""
    return session.scalars(select(ApiKeyRow.id).limit(1)).first() is not None


def is_any_usable(session: Session) -> bool:
    """Whether some key is neither revoked nor expired."""
    lasting = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > utc_now())
    usable = select(ApiKeyRow.id).where(ApiKeyRow.revoked_at.is_(None), lasting)
    return session.scalars(usable.limit(1)).first() is not None


def list_keys(session: Session, query: ApiKeyQuery) -> Page[ApiKeyRecord]:
    """One page of keys, newest first, those that were revoked among them."""
    statement = select(ApiKeyRow)
    if query.owner is not None:
        statement = statement.where(ApiKeyRow.owner == query.owner)
    rows, next_cursor = page_of(session, statement, ApiKeyRow, query)
    return Page(items=[_record(row) for row in rows], next_cursor=next_cursor)


def revoke(session: Session, key_id: UUID) -> ApiKeyRecord:
    """Refuse a key from now on; one that is revoked already stays as it is.

    Raises:
        NotFoundError: there is none.
    """
    not_revoked = ApiKeyRow.id == key_id, ApiKeyRow.revoked_at.is_(None)
    changes_a_row(session, update(ApiKeyRow).where(*not_revoked).values(revoked_at=utc_now()))
    row = session.get(ApiKeyRow, key_id, populate_existing=True)
    if row is None:
        raise NotFoundError("key", key_id)
    return _record(row)


def _parts(sent: str) -> tuple[UUID | None, str]:
    prefix, _, rest = sent.partition("_")
    key_id, _, secret = rest.partition("_")
    if f"{prefix}_" != PREFIX or len(key_id) != 32:
        return None, ""
    try:
        return UUID(hex=key_id), secret
    except ValueError:
        return None, ""


def prefix_of(key_id: UUID) -> str:
    """What a key begins with, by which people know it."""
    return f"{PREFIX}{key_id.hex}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record(row: ApiKeyRow) -> ApiKeyRecord:
    is_over = row.expires_at is not None and row.expires_at <= utc_now()
    same = set(ApiKeyRecord.model_fields) & set(ApiKeyRow.__table__.columns.keys())
    return ApiKeyRecord.model_validate(
        {name: getattr(row, name) for name in same}
        | {"prefix": prefix_of(row.id), "usable": row.revoked_at is None and not is_over}
    )
