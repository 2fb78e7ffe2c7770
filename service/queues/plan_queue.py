"""The life of a queued plan: one function per transition. The plans table is the queue.

A server claims a plan by a lease, makes it, and writes the outcome guarded by the lease. A plan
that will never be takes the jobs that wait for it along, in the same transaction.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, case, func, literal, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from automap.service.errors.domain import PlanLostError
from automap.service.queues import job_queue, leases
from automap.service.queues.leases import Lease
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.problems import Problem, problem_of
from automap.service.storage import plan_documents
from automap.service.storage.database import changes_a_row, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.telemetry import context

TURNS_WITHIN = timedelta(days=7)
"""Plans asked for longer ago are no turn of their owner's: an index finds the others."""


@dataclass(frozen=True, slots=True)
class PlanClaim:
    """A plan that is ours to make as long as we renew its lease."""

    lease: Lease[PlanRow]
    spec: JsonObject
    attempt: int = 1
    """From 1; more: a server that held the plan was silent for longer than its lease."""
    origin: dict[str, str] = field(default_factory=dict)
    """What the request that made it carries along."""

    @property
    def plan_id(self) -> UUID:
        """The plan's id."""
        return self.lease.row_id


def enqueue(session: Session, row: PlanRow) -> None:
    """→ queued."""
    row.status = "queued"
    row.origin = context.carried()
    row.written_as = plan_documents.form()
    session.add(row)


def claim(session: Session, *, lease_seconds: float, max_attempts: int) -> PlanClaim | None:
    """queued, or running with an expired lease → running. None: there is nothing to do."""
    _fail_exhausted(session, max_attempts)
    claimed = leases.claim(session, PlanRow, _in_turn(session), seconds=lease_seconds)
    if claimed is None:
        return None
    row, lease = claimed
    row.status = "running"
    row.started_at = utc_now()
    row.attempts += 1
    return PlanClaim(lease, row.spec, row.attempts, dict(row.origin or {}))


def renew(session: Session, held: PlanClaim, *, lease_seconds: float) -> bool:
    """Renew the lease; False: the plan is no longer ours."""
    return held.lease.renew(session, seconds=lease_seconds)


def succeed(session: Session, held: PlanClaim, plan: JsonObject) -> bool:
    """Running → succeeded; False: the plan is no longer ours and nothing was written."""
    return _end(session, held.lease.is_held, "succeeded", **plan_columns(plan), **_written())


def fail(session: Session, held: PlanClaim, problem: Problem) -> bool:
    """Running → failed; False: the plan is no longer ours and nothing was written."""
    document = problem.document()
    return _end(session, held.lease.is_held, "failed", problem=document, **_written())


def release(session: Session, held: PlanClaim) -> bool:
    """Running → queued, without counting the attempt: we are shutting down."""
    return held.lease.release(
        session, status="queued", started_at=None, attempts=PlanRow.attempts - 1
    )


def cancel(session: Session, plan_id: UUID) -> bool:
    """Queued or running → cancelled; the server that holds it notices when it renews its lease."""
    unfinished = PlanRow.status.in_(["queued", "running"])
    return _end(session, (PlanRow.id == plan_id) & unfinished, "cancelled")


def store_succeeded(session: Session, row: PlanRow, plan: JsonObject) -> None:
    """→ succeeded: a plan that was made while its request waited."""
    row.status = "succeeded"
    row.origin = context.carried()
    row.written_as = plan_documents.form()
    row.attempts = 1
    row.started_at = row.created_at
    row.finished_at = utc_now()
    for name, value in plan_columns(plan).items():
        setattr(row, name, value)
    session.add(row)


def plan_columns(plan: JsonObject) -> dict[str, Any]:
    """The columns of a plan: the document and what lists show and filter by."""
    provenance, search = plan["provenance"], plan["search"]
    assert isinstance(provenance, dict)
    assert isinstance(search, dict)
    shown = ("iteration_seconds", "gpus_used", "price_per_iteration")
    proof = ("lower_bound_seconds", "relative_gap")
    given = search["status"] == "given"  # nobody searched: its bound is its own seconds
    versions = ("code_version", "catalogue_version", "profile_versions")
    return {
        "plan": plan,
        **{name: plan[name] for name in shown},
        **{name: None if given else plan[name] for name in proof},
        **{name: provenance[name] for name in versions},
    }


def _in_turn(session: Session) -> Select[PlanRow]:
    """What may be claimed now, in the order in which servers take it.

    What a server was silent about comes first; then by the priority of the jobs that wait for the
    plan, by the turn of its owner, and by age.
    """
    claimable = or_(PlanRow.status == "queued", leases.is_expired(PlanRow))
    waiting = and_(JobRow.plan_id == PlanRow.id, JobRow.status == "queued")
    priority = select(func.max(JobRow.priority)).where(waiting).scalar_subquery()
    return (
        select(PlanRow)
        .where(claimable)
        .order_by(
            PlanRow.status == "queued",
            func.coalesce(priority, 0).desc(),
            _place_of_owner(session),
            PlanRow.created_at,
            PlanRow.id,
        )
    )


def _place_of_owner(session: Session) -> ColumnElement[int]:
    """From 0: first whose last plan was begun the longest ago."""
    queued = select(PlanRow.owner).where(PlanRow.status == "queued")
    owners = session.scalars(queued.distinct()).all()
    if len(owners) < 2:
        return literal(0)
    begun = (
        select(PlanRow.owner, func.max(PlanRow.started_at))
        .where(PlanRow.owner.in_(owners), PlanRow.created_at > utc_now() - TURNS_WITHIN)
        .where(PlanRow.started_at.is_not(None))
        .group_by(PlanRow.owner)
        .order_by(func.max(PlanRow.started_at))
    )
    places = {row.owner: place for place, row in enumerate(session.execute(begun), start=1)}
    return case(places, value=PlanRow.owner, else_=0) if places else literal(0)


def _fail_exhausted(session: Session, max_attempts: int) -> None:
    """Running with an expired lease and no attempt left → failed."""
    problem = problem_of(PlanLostError(max_attempts)).document()
    exhausted = leases.is_expired(PlanRow) & (PlanRow.attempts >= max_attempts)
    _end(session, exhausted, "failed", problem=problem, **_written())


def _written() -> dict[str, Any]:
    """The form that an outcome is written in, if the spec beside it has the same."""
    now = plan_documents.form()
    return {"written_as": case((PlanRow.written_as == now, now), else_=None)}


def _end(session: Session, which: ColumnElement[bool], status: str, **values: Any) -> bool:
    """Write the outcome, and end the jobs that wait for a plan that will never be.

    False: there is no such plan and nothing was written.
    """
    outcome = update(PlanRow).where(which).values(**leases.ended(status), **values)
    changed = changes_a_row(session, outcome)
    if changed and status != "succeeded":
        job_queue.fail_unplanned(session)
    return changed
