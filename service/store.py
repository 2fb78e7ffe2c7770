"""Rows in, API objects out: all queries that are not queue transitions."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Select, delete, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer, selectinload

from planner.catalogue import architectures, gpu_type, normalised
from planner.result import Plan
from planner.spec import ClusterSpec, JobSpec
from service import problems
from service.database import utc_now
from service.field_errors import FieldError
from service.problems import Problem
from service.schemas import (
    ClusterRecord,
    NewCluster,
    Page,
    PageQuery,
    PlanQuery,
    PlanRecord,
    PlanSummary,
)
from service.tables import ClusterRow, PlanModelRow, PlanRow

Row = TypeVar("Row", PlanRow, ClusterRow)


def new_plan_row(spec: JobSpec, *, cluster_name: str | None) -> PlanRow:
    """The row of a job whose spec names no stored cluster any more."""
    return PlanRow(
        created_at=utc_now(),
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


def canonical_model(name: str) -> str:
    """The catalogue's own name for a model given by any of its names; others stay as they are."""
    wanted = normalised(name)
    for entry in architectures().values():
        if wanted in map(normalised, (entry.name, *entry.aliases)):
            return entry.name
    return name


def find_plan(session: Session, plan_id: UUID) -> PlanRecord:
    """The plan with this id; a `not-found` problem if there is none."""
    row = session.scalars(
        select(PlanRow).where(PlanRow.id == plan_id).options(selectinload(PlanRow.models))
    ).one_or_none()
    if row is None:
        raise problems.not_found("plan", plan_id)
    return plan_record(row)


def delete_finished_plan(session: Session, plan_id: UUID) -> bool:
    """False: there is none, or it has not finished."""
    finished = PlanRow.status.not_in(["queued", "running"])
    statement = delete(PlanRow).where(PlanRow.id == plan_id, finished).returning(PlanRow.id)
    return session.execute(statement).one_or_none() is not None


def list_plans(session: Session, query: PlanQuery) -> Page[PlanSummary]:
    """One page of plans, newest first."""
    statement = select(PlanRow).options(
        selectinload(PlanRow.models),
        *(
            defer(column, raiseload=True)
            for column in (PlanRow.spec, PlanRow.plan, PlanRow.problem)
        ),
    )
    if query.status is not None:
        statement = statement.where(PlanRow.status == query.status)
    if query.algorithm is not None:
        statement = statement.where(PlanRow.algorithm == query.algorithm)
    if query.cluster is not None:
        statement = statement.where(PlanRow.cluster_name == query.cluster)
    if query.model is not None:
        model = canonical_model(query.model)
        statement = statement.where(PlanRow.models.any(PlanModelRow.architecture == model))
    if query.created_after is not None:
        statement = statement.where(PlanRow.created_at > query.created_after)
    if query.created_before is not None:
        statement = statement.where(PlanRow.created_at < query.created_before)
    rows, next_cursor = _page(session, statement, PlanRow, query)
    return Page(items=[_summary(row) for row in rows], next_cursor=next_cursor)


def plan_record(row: PlanRow) -> PlanRecord:
    """The row as the API shows it."""
    return PlanRecord(
        **dict(_summary(row)),
        attempts=row.attempts,
        spec=JobSpec.model_validate(row.spec),
        plan=None if row.plan is None else Plan.model_validate(row.plan),
        problem=None if row.problem is None else Problem.model_validate(row.problem),
    )


def _summary(row: PlanRow) -> PlanSummary:
    same = set(PlanSummary.model_fields) - {"cluster", "models"}
    return PlanSummary.model_validate(
        {name: getattr(row, name) for name in same}
        | {
            "cluster": row.cluster_name,
            "models": {model.role: model.architecture for model in row.models},
        }
    )


def add_cluster(session: Session, new: NewCluster) -> ClusterRecord:
    """Store a cluster; a `conflict` problem if its name is taken."""
    spec = ClusterSpec(pools=new.pools)
    row = ClusterRow(name=new.name, spec=spec.model_dump(mode="json"))
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise problems.conflict(
            f"A cluster named {new.name} exists; delete it first, or choose another name"
        ) from None
    return _cluster_record(row)


def check_gpus(cluster: ClusterSpec) -> None:
    """Raise a SpecError for the first pool whose GPU the catalogue does not know."""
    for index, pool in enumerate(cluster.pools):
        gpu_type(pool.gpu, field=f"pools.{index}.gpu")


def find_cluster(session: Session, name: str) -> ClusterRecord:
    """The cluster of this name; a `not-found` problem if there is none."""
    row = session.scalars(select(ClusterRow).where(ClusterRow.name == name)).one_or_none()
    if row is None:
        raise problems.not_found("cluster", name)
    return _cluster_record(row)


def cluster_names(session: Session, limit: int = 20) -> list[str]:
    """Some names of stored clusters, to suggest."""
    return list(session.scalars(select(ClusterRow.name).order_by(ClusterRow.name).limit(limit)))


def list_clusters(session: Session, query: PageQuery) -> Page[ClusterRecord]:
    """One page of clusters, newest first."""
    rows, next_cursor = _page(session, select(ClusterRow), ClusterRow, query)
    return Page(items=[_cluster_record(row) for row in rows], next_cursor=next_cursor)


def delete_cluster(session: Session, name: str) -> None:
    """Forget a cluster; plans made with it keep its definition. `not-found` if there is none."""
    statement = delete(ClusterRow).where(ClusterRow.name == name).returning(ClusterRow.id)
    if session.execute(statement).one_or_none() is None:
        raise problems.not_found("cluster", name)


def _cluster_record(row: ClusterRow) -> ClusterRecord:
    spec = ClusterSpec.model_validate(row.spec)
    return ClusterRecord(name=row.name, created_at=row.created_at, pools=spec.pools)


def _page(
    session: Session, statement: Select[Row], table: type[Row], query: PageQuery
) -> tuple[Sequence[Row], str | None]:
    """Rows after the cursor, newest first: what is inserted meanwhile cannot shift the pages."""
    order = tuple_(table.created_at, table.id)
    if query.cursor is not None:
        created_at, row_id = _read_cursor(query.cursor)
        # Typed like the columns, so that SQLite compares them in the form it stores.
        place = tuple_(created_at, row_id, types=[table.created_at.type, table.id.type])
        statement = statement.where(order < place)
    statement = statement.order_by(table.created_at.desc(), table.id.desc())
    rows = session.scalars(statement.limit(query.limit + 1)).all()
    if len(rows) <= query.limit:
        return rows, None
    shown = rows[: query.limit]
    return shown, _cursor(shown[-1].created_at, shown[-1].id)


def _cursor(created_at: datetime, row_id: UUID) -> str:
    text = f"{created_at.isoformat()}|{row_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        moment, row_id = base64.urlsafe_b64decode(padded).decode("ascii").split("|")
        created_at = datetime.fromisoformat(moment)
        if created_at.tzinfo is None:
            raise ValueError("no time zone")
        return created_at, UUID(row_id)
    except (ValueError, binascii.Error):
        error = FieldError(
            field="query.cursor",
            value=cursor,
            message="is no cursor of this service",
            remedy="pass the next_cursor of the page before, unchanged",
        )
        raise problems.invalid_field(error) from None
