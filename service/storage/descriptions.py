"""Names, labels and notes of plans and jobs: how they change, and how rows are found by them."""

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Select, exists, select
from sqlalchemy.orm import Session, joinedload, selectinload

from automap.service.errors.domain import ConflictError, InvalidInputError, NotFoundError
from automap.service.errors.fields import FieldError
from automap.service.schemas.descriptions import (
    MAX_LABELS,
    DescriptionPatch,
    ListQuery,
    NewDescription,
)
from automap.service.schemas.jobs import JobPatch
from automap.service.storage.tables import JobRow, JobTextRow, PlanRow, PlanTextRow

Row = TypeVar("Row", PlanRow, JobRow)
MEASUREMENT = "profile"
"""What a job without a plan is called."""


def text_of_plan(row: PlanRow) -> str:
    """What a plan is found by, in lower case."""
    models = dict.fromkeys(model.architecture for model in row.models)
    return _text(row, [row.spec_name, row.algorithm or "", *models])


def text_of_job(row: JobRow, text_of_its_plan: str = "") -> str:
    """What a job is found by, in lower case: what its plan was found by as well."""
    return _text(row, [text_of_its_plan])


def _text(row: PlanRow | JobRow, more: Iterable[str]) -> str:
    labels = [f"{key}:{value}" for key, value in row.labels.items()]
    return "\n".join([row.name, row.owner, *labels, *more, row.notes or ""]).lower()


def found_by(
    statement: Select[Row], table: type[Row], query: ListQuery, *, near: bool
) -> Select[Row]:
    """The rows with the text, the labels and the owner that were asked for.

    `near`: few rows are looked at, and the text of each is looked up; else all texts are read, or
    PostgreSQL's index of them. They are a fraction of the rows, for those hold whole plans.
    """
    if query.owner is not None:
        statement = statement.where(table.owner == query.owner)
    wanted = (query.q or "").lower().split()
    # As `_text` writes them, each in a line.
    wanted += [f"\n{each}\n" if ":" in each else f"\n{each}:" for each in _lower(query.label)]
    if wanted:
        statement = statement.where(_has_texts(table, wanted, near=near))
    for label in query.label:
        key, colon, value = label.partition(":")
        stored = table.labels[key].as_string()
        statement = statement.where(stored == value if colon else stored.is_not(None))
    return statement


def _lower(texts: Iterable[str]) -> list[str]:
    return [text.lower() for text in texts]


def _has_texts(
    table: type[PlanRow] | type[JobRow], wanted: Iterable[str], *, near: bool
) -> ColumnElement[bool]:
    if table is PlanRow:
        row_id, text = PlanTextRow.plan_id, PlanTextRow.text
    else:
        row_id, text = JobTextRow.job_id, JobTextRow.text
    having = [text.contains(each, autoescape=True) for each in wanted]
    if near:
        return exists().where(row_id == table.id, *having)
    return table.id.in_(select(row_id).where(*having))


def describe_new(row: PlanRow, described: NewDescription) -> None:
    """Say of a plan that is not stored yet what came with its spec."""
    row.name = described.name or row.name
    row.labels, row.notes = described.labels, described.notes
    row.text.text = text_of_plan(row)


def describe_plan(session: Session, plan_id: UUID, patch: DescriptionPatch) -> str:
    """Change what is said of a plan; what the audit log is to know.

    Raises:
        NotFoundError: there is no such plan.
        InvalidInputError: it would have too many labels.
    """
    row = session.scalars(
        select(PlanRow)
        .where(PlanRow.id == plan_id)
        .options(selectinload(PlanRow.models), joinedload(PlanRow.text))
        .with_for_update(of=PlanRow)
    ).one_or_none()
    if row is None:
        raise NotFoundError("plan", plan_id)
    changes = _describe(row, patch, usual=row.spec_name)
    row.text.text = text_of_plan(row)
    return "; ".join(changes)


def change_job(session: Session, job_id: UUID, patch: JobPatch) -> str:
    """Change what is said of a job, or its turn; what the audit log is to know.

    Raises:
        NotFoundError: there is no such job.
        InvalidInputError: it would have too many labels.
        ConflictError: another priority is wanted, and it waits for no turn.
    """
    row = session.scalars(
        select(JobRow)
        .where(JobRow.id == job_id)
        .options(joinedload(JobRow.plan).joinedload(PlanRow.text), joinedload(JobRow.text))
        .with_for_update(of=JobRow)
    ).one_or_none()
    if row is None:
        raise NotFoundError("job", job_id)
    changes = _describe(row, patch, usual=MEASUREMENT if row.plan is None else row.plan.spec_name)
    if patch.priority is not None and patch.priority != row.priority:
        if row.status != "queued":
            raise ConflictError(
                f"Job {job_id} is {row.status}: only a queued job can be given another priority"
            )
        changes.append(f"priority: {row.priority} -> {patch.priority}")
        row.priority = patch.priority
    row.text.text = text_of_job(row, "" if row.plan is None else row.plan.text.text)
    return "; ".join(changes)


def _describe(row: PlanRow | JobRow, patch: DescriptionPatch, *, usual: str) -> list[str]:
    given = patch.model_fields_set
    changes = []
    if "name" in given:
        row.name = patch.name or usual
    if "notes" in given:
        row.notes = patch.notes
    if patch.owner is not None and patch.owner != row.owner:
        changes.append(f"owner: {row.owner} -> {patch.owner}")
        row.owner = patch.owner
    merged = {**row.labels, **patch.labels}
    row.labels = {key: value for key, value in merged.items() if value is not None}
    if len(row.labels) > MAX_LABELS:
        error = FieldError(
            field="labels",
            value=str(len(row.labels)),
            message=f"there may be at most {MAX_LABELS} labels",
            remedy="take some off: null in place of a value",
        )
        raise InvalidInputError([error])
    return changes
