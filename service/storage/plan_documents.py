"""A plan's record as the API answers it, without parsing the documents that it is made of.

Specs, plans and problems are stored as the API writes them. As long as the code knows them in the
same form, by the JSON Schema of a record, their text is the answer, and only the head around it is
built; of a plan that was run only the times of its calls are read, beside which those of its runs
are shown. What another version has stored is read, upgraded and written anew (`plan_records`).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import Connection, Text, bindparam, cast, exists, select
from sqlalchemy.orm import Session

from automap.service.errors.domain import NotFoundError
from automap.service.schemas.jobs import PlanJob
from automap.service.schemas.plans import PlanRecord
from automap.service.storage import history, job_records, plan_records
from automap.service.storage.history import Runs
from automap.service.storage.stored_documents import PlanTimes
from automap.service.storage.tables import JobRow, PlanRow

_DOCUMENTS = ("spec", "plan", "problem")
_KNOWN_MODELS: dict[UUID, dict[str, str]] = {}
_MOST_KNOWN = 10_000
"""Plans whose models are kept before all are forgotten."""


@cache
def form() -> str:
    """The form of records that this code knows; another one when any of their fields changes."""
    schema = json.dumps(PlanRecord.model_json_schema(mode="serialization"), sort_keys=True)
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A plan's record as the API answers it."""

    plan_id: UUID
    status: str
    json: bytes


def stored_record(session: Session, plan_id: UUID) -> StoredRecord:
    """The plan with this id.

    Raises:
        NotFoundError: there is none.
    """
    connection = session.connection()
    row = _row(connection, plan_id)
    if row.written_as == form():
        return _as_stored(connection, row, *_runs(session, row))
    record = plan_records.find_plan(session, plan_id)
    return StoredRecord(plan_id, record.status, record.model_dump_json(by_alias=True).encode())


def unparsed_record(connection: Connection, plan_id: UUID) -> StoredRecord | None:
    """The plan with this id; None: documents have to be parsed to answer it.

    Raises:
        NotFoundError: there is none.
    """
    row = _row(connection, plan_id)
    if row.was_run or row.written_as != form():
        return None
    return _as_stored(connection, row)


def _row(connection: Connection, plan_id: UUID) -> Any:
    row = connection.execute(_PLAN, {"plan_id": plan_id}).one_or_none()
    if row is None:
        raise NotFoundError("plan", plan_id)
    return row


def _as_stored(
    connection: Connection, row: Any, jobs: Sequence[PlanJob] = (), runs: Runs | None = None
) -> StoredRecord:
    head = to_json(plan_records.record_head(row, _models_of(connection, row.id), runs))
    documents = "".join(f'"{name}":{getattr(row, name) or "null"},' for name in _DOCUMENTS)
    last = b'"jobs":' + to_json(list(jobs))
    return StoredRecord(row.id, row.status, head[:-1] + b"," + documents.encode() + last + b"}")


def _models_of(connection: Connection, plan_id: UUID) -> dict[str, str]:
    """The models of a plan by role. They are written with it and never again, so they are kept."""
    models = _KNOWN_MODELS.get(plan_id)
    if models is None:
        if len(_KNOWN_MODELS) >= _MOST_KNOWN:
            _KNOWN_MODELS.clear()
        found = connection.execute(_MODELS, {"plan_id": plan_id})
        models = _KNOWN_MODELS[plan_id] = {each.role: each.architecture for each in found}
    return models


def _runs(session: Session, row: Any) -> tuple[Sequence[PlanJob], Runs | None]:
    """The jobs of a plan, and what is known of all its runs."""
    if not row.was_run:
        return (), None
    times = None if row.plan is None else PlanTimes.model_validate_json(row.plan)
    predicted = {} if times is None else times.planned_seconds()
    jobs = job_records.jobs_of_plan(session, row, predicted)
    return jobs, history.runs_of(session, [row.id]).get(row.id)


# Statements of the tables themselves, made once: building objects of rows that are only shown takes
# most of the time.
_plans, _models = PlanRow.metadata.tables["plans"], PlanRow.metadata.tables["plan_models"]
_PLAN = select(
    *(column for column in _plans.columns if column.name not in _DOCUMENTS),
    *(cast(_plans.columns[name], Text).label(name) for name in _DOCUMENTS),
    exists().where(JobRow.plan_id == _plans.columns.id).label("was_run"),
).where(_plans.columns.id == bindparam("plan_id"))
_MODELS = select(_models.columns.role, _models.columns.architecture).where(
    _models.columns.plan_id == bindparam("plan_id")
)
