"""Plans: rows in, API objects out; all queries that are no transitions of the queue."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session, defer, selectinload

from automap.planner import Plan
from automap.planner.catalogue import find_model
from automap.planner.runs import planned_seconds
from automap.planner.spec import JobSpec
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.schemas.base import Page
from automap.service.schemas.jobs import PlanJob
from automap.service.schemas.plans import PlanQuery, PlanRecord, PlanSummary
from automap.service.storage import costs, descriptions, history, job_records
from automap.service.storage.database import utc_now
from automap.service.storage.history import Runs
from automap.service.storage.paging import filtered_page
from automap.service.storage.stored_documents import as_stored, required, stored_problem
from automap.service.storage.tables import JobRow, PlanModelRow, PlanRow, PlanTextRow


def new_plan_row(spec: JobSpec, *, cluster_name: str | None, owner: str = "local") -> PlanRow:
    """The row of a job whose spec names no stored cluster any more."""
    row = PlanRow(
        id=uuid4(),
        created_at=utc_now(),
        name=spec.name,
        owner=owner,
        labels={},
        spec_name=spec.name,
        algorithm=spec.algorithm,
        cluster_name=cluster_name,
        objective=spec.search.objective,
        spec=spec.model_dump(mode="json"),
        attempts=0,
        models=[
            PlanModelRow(role=role, architecture=canonical_model(model.architecture))
            for role, model in spec.models.items()
            if isinstance(model.architecture, str)
        ],
    )
    row.text = PlanTextRow(text=descriptions.text_of_plan(row))
    return row


def canonical_model(name: str) -> str:
    """The catalogue's own name for a model given by any of its names; others stay as they are."""
    found = find_model(name)
    return name if found is None else found.name


def find_plan(session: Session, plan_id: UUID) -> PlanRecord:
    """The plan with this id.

    Raises:
        NotFoundError: there is none.
    """
    row = session.scalars(
        select(PlanRow).where(PlanRow.id == plan_id).options(selectinload(PlanRow.models))
    ).one_or_none()
    if row is None:
        raise NotFoundError("plan", plan_id)
    runs = history.runs_of(session, [row.id]).get(row.id)
    record = plan_record(row, (), runs)
    predicted = planned_seconds(record.plan) if isinstance(record.plan, Plan) else {}
    jobs = job_records.jobs_of_plan(session, row, predicted)
    return record.model_copy(update={"jobs": jobs})


def delete_plan(session: Session, plan_id: UUID) -> None:
    """Delete it with its runs, but what they have cost.

    A server that is making it notices when it renews its lease, and can write nothing of it.

    Raises:
        NotFoundError: there is none.
        ConflictError: one of its jobs is not over.
    """
    # Locked before we look for jobs: a job that is being posted holds the plan until it is there.
    if not session.scalars(select(PlanRow.id).where(PlanRow.id == plan_id).with_for_update()).all():
        raise NotFoundError("plan", plan_id)
    if job_records.has_unfinished(session, plan_id):
        raise ConflictError(
            f"Plan {plan_id} has a job that is not over; cancel it first, or the plan if that is "
            "what it waits for"
        )
    costs.keep(session, session.scalars(select(JobRow.id).where(JobRow.plan_id == plan_id)).all())
    session.execute(delete(PlanRow).where(PlanRow.id == plan_id))


def list_plans(session: Session, query: PlanQuery) -> Page[PlanSummary]:
    """One page of plans, newest first."""

    def matching(near: bool) -> Select[PlanRow]:
        return _matching(query, near=near)

    rows, next_cursor = filtered_page(session, matching, PlanRow, query, sort=query.sort)
    runs = history.runs_of(session, [row.id for row in rows]) if rows else {}
    return Page(
        items=[_summary(row, _models(row), runs.get(row.id)) for row in rows],
        next_cursor=next_cursor,
    )


def _matching(query: PlanQuery, *, near: bool) -> Select[PlanRow]:
    documents = (PlanRow.spec, PlanRow.plan, PlanRow.problem)
    statement = select(PlanRow).options(
        selectinload(PlanRow.models), *(defer(each, raiseload=True) for each in documents)
    )
    statement = descriptions.found_by(statement, PlanRow, query, near=near)
    if query.status is not None:
        statement = statement.where(PlanRow.status == query.status)
    if query.algorithm is not None:
        statement = statement.where(PlanRow.algorithm == query.algorithm)
    if query.cluster is not None:
        statement = statement.where(PlanRow.cluster_name == query.cluster)
    if query.model is not None:
        using = PlanModelRow.architecture == canonical_model(query.model)
        users = select(PlanModelRow.plan_id).where(using)
        statement = statement.where(PlanRow.models.any(using) if near else PlanRow.id.in_(users))
    if query.created_after is not None:
        statement = statement.where(PlanRow.created_at > query.created_after)
    if query.created_before is not None:
        statement = statement.where(PlanRow.created_at < query.created_before)
    return statement


def plan_record(row: PlanRow, jobs: Sequence[PlanJob] = (), runs: Runs | None = None) -> PlanRecord:
    """The row as the API shows it, with its latest jobs."""
    return PlanRecord(
        **record_head(row, _models(row), runs),
        jobs=list(jobs),
        spec=as_stored(JobSpec, row.spec),
        plan=None if row.plan is None else as_stored(Plan, row.plan),
        problem=stored_problem(row.problem),
    )


def made_plan(session: Session, plan_id: UUID) -> Plan:
    """The plan of a record.

    Raises:
        NotFoundError: there is no such record.
        ConflictError: it has no plan (yet).
        OlderVersionError: an earlier version has stored it, and this one reads it no more.
    """
    row = session.get(PlanRow, plan_id)
    if row is None:
        raise NotFoundError("plan", plan_id)
    if row.plan is None:
        raise ConflictError(f"Plan {plan_id} is {row.status}: there is nothing to compare or price")
    return required(Plan, row.plan, plan_id=plan_id)


def plan_summary(session: Session, plan_id: UUID) -> PlanSummary:
    """A stored plan, without its documents."""
    row = session.get_one(PlanRow, plan_id, options=[selectinload(PlanRow.models)])
    return _summary(row, _models(row), history.runs_of(session, [row.id]).get(row.id))


def record_head(
    columns: Any,
    models: Mapping[str, str],
    runs: Runs | None = None,
) -> dict[str, Any]:
    """The fields of a record before its documents.

    Args:
        columns: A row of the table, or what has its columns as attributes.
        models: Its roles, each with the catalogue's name of its model.
        runs: What is known of all its runs.
    """
    summary = _summary(columns, models, runs)
    return {**dict(summary), "attempts": columns.attempts}


def _models(row: PlanRow) -> dict[str, str]:
    return {model.role: model.architecture for model in row.models}


_SAME = frozenset(PlanSummary.model_fields) & set(PlanRow.__table__.columns.keys())
"""Fields of a summary that are columns of the table."""


def _summary(columns: Any, models: Mapping[str, str], runs: Runs | None = None) -> PlanSummary:
    return PlanSummary.model_validate(
        {name: getattr(columns, name) for name in _SAME}
        | {"cluster": columns.cluster_name, "models": models}
        | ({} if runs is None else {"runs": runs.count, "measured_iteration_seconds": runs.latest})
    )
