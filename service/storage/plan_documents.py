"""A plan's record as the API answers it, without parsing the documents that it is made of.

Specs, plans and problems are stored as the API writes them. As long as the code knows them in the
same form, by the JSON Schema of a record, their text is the answer, and only the head around it is
built. What another version has stored is read, upgraded and written anew (`plan_records`), and so
are plans that were run, beside which their runs are shown.
"""

import hashlib
import json
from functools import cache
from typing import Any
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import Select, Text, cast, exists, select
from sqlalchemy.orm import Session, defer, selectinload

from automap.service.errors.domain import NotFoundError
from automap.service.schemas.plans import PlanRecord
from automap.service.storage import plan_records
from automap.service.storage.tables import JobRow, PlanRow

_DOCUMENTS = ("spec", "plan", "problem")


@cache
def form() -> str:
    """The form of records that this code knows; another one when any of their fields changes."""
    schema = json.dumps(PlanRecord.model_json_schema(mode="serialization"), sort_keys=True)
    return hashlib.sha256(schema.encode()).hexdigest()[:16]


def plan_json(session: Session, plan_id: UUID) -> tuple[str, bytes]:
    """The status of a plan, and its record as JSON.

    Raises:
        NotFoundError: there is none.
    """
    found = session.execute(_statement(plan_id)).one_or_none()
    if found is None:
        raise NotFoundError("plan", plan_id)
    row, was_run, *texts = found
    if was_run or row.written_as != form():
        record = plan_records.find_plan(session, plan_id)
        return record.status, record.model_dump_json(by_alias=True).encode()
    stored = dict(zip(_DOCUMENTS, texts, strict=True))
    head = plan_records.record_head(row)
    fields = (
        f'"{name}":'.encode()
        + ((stored[name] or "null").encode() if name in stored else to_json(head[name]))
        for name in PlanRecord.model_fields
    )
    return row.status, b"{" + b",".join(fields) + b"}"


def _statement(plan_id: UUID) -> Select[*tuple[Any, ...]]:
    columns = [getattr(PlanRow, name) for name in _DOCUMENTS]
    return (
        select(
            PlanRow,
            exists().where(JobRow.plan_id == PlanRow.id),
            *(cast(column, Text) for column in columns),
        )
        .where(PlanRow.id == plan_id)
        .options(
            selectinload(PlanRow.models),
            *(defer(column, raiseload=True) for column in columns),
        )
    )
