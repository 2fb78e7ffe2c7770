"""The life of a queued plan: one function per transition. The plans table is the queue.

A server claims a plan with a lease and a token, works outside any transaction, and writes the
outcome guarded by the token. A server that dies stops renewing its lease; the plan is then claimed
again, and whatever the first one still writes affects no row. A plan that will never be takes the
jobs that wait for it along, in the same transaction.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Update, and_, or_, select, update
from sqlalchemy.orm import Session

from automap.service.errors.domain import PlanLostError
from automap.service.errors.problems import Problem, problem_of
from automap.service.queues import job_queue
from automap.service.schemas.documents import JsonObject
from automap.service.storage.database import changes_a_row, utc_now
from automap.service.storage.tables import PlanRow


@dataclass(frozen=True, slots=True)
class Claim:
    """A plan that is ours to make as long as we renew its lease."""

    plan_id: UUID
    token: UUID
    spec: JsonObject


def enqueue(session: Session, row: PlanRow) -> None:
    """→ queued."""
    row.status = "queued"
    session.add(row)


def claim(session: Session, *, lease_seconds: float, max_attempts: int) -> Claim | None:
    """queued, or running with an expired lease → running. None: there is nothing to do."""
    now = utc_now()
    _fail_exhausted(session, now, max_attempts)
    oldest = (
        select(PlanRow.id)
        .where(or_(PlanRow.status == "queued", _expired(now)))
        .order_by(PlanRow.created_at, PlanRow.id)
        .limit(1)
        # Two PostgreSQL servers take different rows; on SQLite this is left out of the SQL, where
        # only one transaction writes at a time.
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    token = uuid4()
    taken = session.execute(
        update(PlanRow)
        .where(PlanRow.id == oldest)
        .values(
            status="running",
            started_at=now,
            attempts=PlanRow.attempts + 1,
            lease_token=token,
            lease_expires_at=now + timedelta(seconds=lease_seconds),
        )
        .returning(PlanRow.id, PlanRow.spec)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return None if taken is None else Claim(plan_id=taken.id, token=token, spec=taken.spec)


def heartbeat(session: Session, held: Claim, *, lease_seconds: float) -> bool:
    """Renew the lease; False: the job is no longer ours."""
    expiry = utc_now() + timedelta(seconds=lease_seconds)
    return changes_a_row(session, _ours(held).values(lease_expires_at=expiry))


def succeed(session: Session, held: Claim, plan: JsonObject) -> bool:
    """Running → succeeded; False: the job is no longer ours and nothing was written."""
    return changes_a_row(
        session, _ours(held).values(**_finished("succeeded"), **plan_columns(plan))
    )


def fail(session: Session, held: Claim, problem: Problem) -> bool:
    """Running → failed; False: the job is no longer ours and nothing was written."""
    document = problem.model_dump(mode="json", by_alias=True)
    failed = changes_a_row(session, _ours(held).values(**_finished("failed"), problem=document))
    if failed:
        job_queue.fail_unplanned(session)
    return failed


def release(session: Session, held: Claim) -> bool:
    """Running → queued, without counting the attempt: we are shutting down."""
    return changes_a_row(
        session,
        _ours(held).values(
            status="queued",
            started_at=None,
            attempts=PlanRow.attempts - 1,
            lease_token=None,
            lease_expires_at=None,
        ),
    )


def cancel(session: Session, plan_id: UUID) -> bool:
    """Queued or running → cancelled; the server that holds it notices by its next heartbeat."""
    cancelled = changes_a_row(
        session,
        update(PlanRow)
        .where(PlanRow.id == plan_id, PlanRow.status.in_(["queued", "running"]))
        .values(**_finished("cancelled")),
    )
    if cancelled:
        job_queue.fail_unplanned(session)
    return cancelled


def store_succeeded(session: Session, row: PlanRow, plan: JsonObject) -> None:
    """→ succeeded: a plan that was made while its request waited."""
    row.status = "succeeded"
    row.attempts = 1
    row.started_at = row.created_at
    row.finished_at = utc_now()
    for name, value in plan_columns(plan).items():
        setattr(row, name, value)
    session.add(row)


def plan_columns(plan: JsonObject) -> dict[str, Any]:
    """The columns of a plan: the document and what lists show and filter by."""
    provenance = plan["provenance"]
    assert isinstance(provenance, dict)
    shown = (
        "iteration_seconds",
        "lower_bound_seconds",
        "relative_gap",
        "gpus_used",
        "price_per_iteration",
    )
    versions = ("code_version", "catalogue_version", "profile_versions")
    return {
        "plan": plan,
        **{name: plan[name] for name in shown},
        **{name: provenance[name] for name in versions},
    }


def _finished(status: str) -> dict[str, Any]:
    return {
        "status": status,
        "finished_at": utc_now(),
        "lease_token": None,
        "lease_expires_at": None,
    }


def _expired(now: datetime) -> Any:
    return and_(PlanRow.status == "running", PlanRow.lease_expires_at < now)


def _fail_exhausted(session: Session, now: datetime, max_attempts: int) -> None:
    """Running with an expired lease and no attempt left → failed."""
    problem = problem_of(PlanLostError(max_attempts)).model_dump(mode="json")
    exhausted = changes_a_row(
        session,
        update(PlanRow)
        .where(_expired(now), PlanRow.attempts >= max_attempts)
        .values(**_finished("failed"), problem=problem),
    )
    if exhausted:
        job_queue.fail_unplanned(session)


def _ours(held: Claim) -> Update:
    return update(PlanRow).where(
        PlanRow.id == held.plan_id,
        PlanRow.status == "running",
        PlanRow.lease_token == held.token,
    )
