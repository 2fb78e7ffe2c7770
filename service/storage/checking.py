"""Whether a database is sound: its file, its revision, its references, its documents."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.orm import Session

from automap import migrations
from automap.migrations import text_index
from automap.planner import Plan
from automap.planner.spec import JobSpec
from automap.service.runs.checked_settings import RunSettings
from automap.service.storage.database import Base, Database, utc_now
from automap.service.storage.stored_documents import readable
from automap.service.storage.tables import JobEventRow, JobRow, PlanRow


class Finding(BaseModel):
    """One thing that is wrong with a database, or worth knowing."""

    weight: Literal["fault", "note"]
    """A fault must be mended; a note is no danger."""
    what: str
    count: int = 1


def check(database: Database) -> list[Finding]:
    """What is wrong, and what is worth knowing; the rows of another revision are not looked at."""
    with database.reading() as session:
        found = list(_integrity(session))
        revision = migrations.current_revision(session.connection())
        head = migrations.head_revision()
        if revision != head:
            what = f"at revision {revision}, this version's is {head}: automap db upgrade"
            return [*found, Finding(weight="fault", what=what)]
        for part in (_orphans, _gaps, _documents, _expired, _unindexed):
            found += part(session)
    return found


def _integrity(session: Session) -> Iterator[Finding]:
    """What SQLite says of its file. PostgreSQL's pages are checked as they are read."""
    if session.get_bind().dialect.name != "sqlite":
        return
    for line in session.scalars(sa.text("PRAGMA integrity_check")):
        if line != "ok":
            yield Finding(weight="fault", what=f"the file is damaged: {line}")


def _orphans(session: Session) -> Iterator[Finding]:
    """Rows that refer to a row which is not there."""
    for table in Base.metadata.sorted_tables:
        for key in table.foreign_key_constraints:
            [column], parent = list(key.columns), key.referred_table.alias("parent")
            [element] = key.elements
            there = sa.exists().where(parent.c[element.column.name] == column)
            lost = sa.select(sa.func.count()).select_from(table).where(column.is_not(None), ~there)
            if count := session.scalar(lost):
                what = f"{table.name}.{column.name} names no row of {key.referred_table.name}"
                yield Finding(weight="fault", what=what, count=count)


def _gaps(session: Session) -> Iterator[Finding]:
    """Jobs whose events are not numbered from 1 without gaps."""
    numbered = (
        sa.select(JobEventRow.job_id)
        .group_by(JobEventRow.job_id)
        .having(sa.func.count() != sa.func.max(JobEventRow.sequence))
        .subquery()
    )
    if count := session.scalar(sa.select(sa.func.count()).select_from(numbered)):
        yield Finding(weight="fault", what="jobs have gaps in their events", count=count)


def _documents(session: Session) -> Iterator[Finding]:
    """Documents that this version cannot read, by the version that wrote them."""
    yield from _unread(
        session,
        PlanRow,
        {"plan": _is_plan, "spec": _is_spec},
        writer=lambda row: row.code_version or "a version that is not known",
    )
    yield from _unread(
        session,
        JobRow,
        {"settings": lambda settings, row: row.kind != "run" or _is(RunSettings, settings)},
        writer=lambda row: "a version that is not known",
    )


def _unread(
    session: Session,
    table: Any,
    columns: dict[str, Callable[[Any, Any], bool]],
    *,
    writer: Callable[[Any], str],
) -> Iterator[Finding]:
    older: Counter[tuple[str, str]] = Counter()
    broken: Counter[str] = Counter()
    for row_id in session.scalars(sa.select(table.id)).all():
        try:
            row = session.get_one(table, row_id)
        except ValueError:  # it is not even JSON
            broken[table.__tablename__] += 1
            continue
        for name, reads in columns.items():
            document = getattr(row, name)
            if document is not None and not reads(document, row):
                older[name, writer(row)] += 1
        session.expunge(row)
    for name, count in broken.items():
        yield Finding(weight="fault", what=f"{name}: documents are no JSON", count=count)
    for (name, version), count in older.items():
        what = f"{table.__tablename__}.{name} of {version} is shown as it was stored"
        yield Finding(weight="note", what=what, count=count)


def _is(kind: type[BaseModel], document: Any) -> bool:
    return readable(kind, document) is not None


def _is_plan(document: Any, _: PlanRow) -> bool:
    return _is(Plan, document)


def _is_spec(document: Any, _: PlanRow) -> bool:
    return _is(JobSpec, document)


def _expired(session: Session) -> Iterator[Finding]:
    """Rows whose holder has died; whoever runs next takes them."""
    for table, who in ((PlanRow, "API"), (JobRow, "worker")):
        expired = (
            sa.select(sa.func.count()).select_from(table).where(table.lease_expires_at < utc_now())
        )
        if count := session.scalar(expired):
            what = f"{table.__tablename__} wait for the next {who}: their lease has expired"
            yield Finding(weight="note", what=what, count=count)


def _unindexed(session: Session) -> Iterator[Finding]:
    """Texts that PostgreSQL reads all of for each search."""
    if tables := text_index.lacking(session.connection()):
        what = (
            f"{' and '.join(tables)} are searched without an index, which needs PostgreSQL's "
            f"extension {text_index.EXTENSION}: automap db upgrade makes it, or says why not"
        )
        yield Finding(weight="note", what=what)
