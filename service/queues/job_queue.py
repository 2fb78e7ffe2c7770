"""The life of a job, a run of a plan or a measurement of the cluster: a function per transition.

The jobs table is the queue. A worker claims a job by a lease, submits it to Ray under a name made
of the job's id and its attempt, follows what it prints, and writes everything guarded by the lease.
When a worker dies, the next one claims the job, finds the run in Ray by its name, and goes on
reading where the tables end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session, contains_eager

from automap.service.errors.domain import PlanFailedError, RunLostError
from automap.service.queues import job_log, leases, measurement_events
from automap.service.queues.claims import SUBMITTED, claimable, claims_alone, in_turn
from automap.service.queues.job_log import (
    add_events,
    add_text,
    last_of_attempt,
    next_number,
    time_of,
)
from automap.service.queues.leases import Lease
from automap.service.runs import call_seconds, iteration_history
from automap.service.runs.output import Printed
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import UNFINISHED, JobKind
from automap.service.schemas.problems import Problem, problem_of
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.telemetry import context

_PROOFS = "event_proofs"
"""In `measured`: the proofs that the next event of this attempt may follow."""


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A job that is ours as long as we renew its lease, as it was when we last wrote it."""

    lease: Lease[JobRow]
    kind: JobKind
    plan: JsonObject | None
    """The plan that a run follows; a measurement has none."""
    settings: JsonObject
    submission_id: str
    output: str
    log_offset: int
    origin: dict[str, str]
    """What the request that made it carries along."""
    was_running: bool
    """Ray has been seen to run this attempt."""

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.lease.row_id


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is, and what its run has measured."""

    iteration: int
    """Iterations that are done, of `iterations`."""
    iterations: int
    measured: JsonObject
    cancelling: bool = False
    """Its end was asked for."""
    log_offset: int = 0
    """Bytes of the attempt's output that are written down."""

    @property
    def proofs(self) -> list[str]:
        """What the next event of the attempt must follow."""
        known = self.measured.get(_PROOFS)
        return [str(proof) for proof in known] if isinstance(known, list) else []


def enqueue(session: Session, row: JobRow) -> None:
    """→ queued; a run waits for its plan if that is not made yet."""
    row.status = "queued"
    row.origin = context.carried()
    session.add(row)
    session.flush()
    _add_status(session, row)


def fail_unplanned(session: Session) -> None:
    """Queued → failed, where the plan failed or was cancelled."""
    rows = session.scalars(
        select(JobRow)
        .join(JobRow.plan)
        .where(JobRow.status == "queued", PlanRow.status.in_(["failed", "cancelled"]))
        .options(contains_eager(JobRow.plan).load_only(PlanRow.status, PlanRow.problem))
        .with_for_update(of=JobRow)
        .execution_options(populate_existing=True)
    )
    for row in rows.all():
        plan = row.plan
        assert plan is not None  # by the join
        failure = PlanFailedError(row.plan_id, plan.status, plan.problem)
        _end(session, row, "failed", problem_of(failure))


def any_submitted(session: Session) -> bool:
    """Whether some job has a run in Ray."""
    return (
        session.scalar(select(JobRow.id).where(JobRow.status.in_(SUBMITTED)).limit(1)) is not None
    )


def is_waiting(session: Session, *, new: bool) -> bool:
    """Whether there is a job to claim; without `new` only one that was submitted before."""
    found = select(JobRow.id).outerjoin(JobRow.plan).where(claimable(new=new)).limit(1)
    return session.scalar(found) is not None


def claim(
    session: Session, *, lease_seconds: float, runs_folder: str, new: bool
) -> JobClaim | None:
    """Queued with a plan → starting, or take over a submitted job that nobody holds.

    None: there is nothing to do, or another worker claims. Without `new` no queued job is taken.
    """
    if not claims_alone(session):
        return None
    candidates = in_turn(session, new=new).options(
        contains_eager(JobRow.plan).load_only(PlanRow.plan)
    )
    claimed = leases.claim(session, JobRow, candidates, seconds=lease_seconds)
    if claimed is None:
        return None
    row, lease = claimed
    if row.status == "queued":
        row.output = f"{runs_folder}/{row.id}"
        _begin_attempt(session, row)
    return _claim_of(row, lease, None if row.plan is None else row.plan.plan)


def cannot_take(session: Session, reason: str) -> None:
    """Tell those who follow the next job, once, why a worker that has room does not take it."""
    candidates = in_turn(session, new=True).where(JobRow.status == "queued").limit(1)
    row = session.scalars(candidates.with_for_update(of=JobRow, skip_locked=True)).one_or_none()
    if row is not None and why_queued(session, row.id) != reason:
        _add_status(session, row, reason=reason)


def why_queued(session: Session, job_id: UUID) -> str | None:
    """What a worker last said of a job that it could not take."""
    latest = job_log.latest(session, job_id)
    if latest.get("status") != "queued":
        return None
    reason = latest.get("reason")
    return reason if isinstance(reason, str) else None


def record(
    session: Session, held: JobClaim, printed: Printed, *, lease_seconds: float, max_log_bytes: int
) -> Progress | None:
    """Renew the lease and keep what the run printed; None: the job is no longer ours."""
    row = held.lease.row(session)
    if row is None:
        return None
    row.lease_expires_at = leases.expiry(lease_seconds)
    if printed:
        row.log_offset = printed.end_offset
        if printed.proofs:
            row.measured = {**row.measured, _PROOFS: list(printed.proofs)}
        add_text(session, row.id, printed.text, max_characters=max_log_bytes)
        add_events(session, row.id, _ingest(session, row, printed.events), bounded=True)
    return Progress(
        row.iteration,
        row.iterations,
        row.measured,
        cancelling=row.cancel_requested_at is not None,
        log_offset=row.log_offset,
    )


def _with_events(known: JsonObject, events: list[JsonObject]) -> JsonObject:
    """What the run has measured, call by call and iteration by iteration."""
    found = call_seconds.with_events(known, events)
    latest = iteration_history.with_events(known.get("iterations"), events)
    return found if latest is None else {**found, "iterations": latest}


def add_event(
    session: Session,
    held: JobClaim,
    event: JsonObject,
    *,
    annotate: Callable[[JsonObject, int], JsonObject | None],
) -> bool:
    """Add an event, and note it in `measured` by `annotate`, which gets that and its number.

    False, and nothing is written: the job is no longer ours, or there is nothing to note.
    """
    row = held.lease.row(session)
    if row is None:
        return False
    annotated = annotate(row.measured, next_number(session, row.id))
    if annotated is not None:
        row.measured = annotated
        add_events(session, row.id, [event])
    return annotated is not None


def run(session: Session, held: JobClaim) -> bool:
    """Starting → running, once Ray has started it; False: the job is no longer ours."""
    row = held.lease.row(session)
    if row is not None and row.status == "starting":
        row.status = "running"
        if row.kind == "profile":
            row.started_at = row.started_at or utc_now()
        _add_status(session, row)
    return row is not None


def retry(session: Session, held: JobClaim, *, max_attempts: int, reason: str) -> JobClaim | None:
    """→ starting, as a new attempt in the same folder; failed when there were enough.

    None: it failed, or is no longer ours.
    """
    row = held.lease.row(session)
    if row is None:
        return None
    if row.attempts >= max_attempts:
        _end(session, row, "failed", problem_of(RunLostError(row.attempts, reason)))
        return None
    _begin_attempt(session, row, reason=reason)
    return _claim_of(row, held.lease, held.plan)


def succeed(session: Session, held: JobClaim) -> bool:
    """→ succeeded, if the run has sent its report; False: it has not, or is no longer ours."""
    row = held.lease.row(session)
    if row is None or row.report is None:
        return False
    row.iteration = row.iterations
    _end(session, row, "succeeded")
    return True


def fail(session: Session, held: JobClaim, problem: Problem) -> bool:
    """→ failed; False: the job is no longer ours and nothing was written."""
    row = held.lease.row(session)
    if row is not None:
        _end(session, row, "failed", problem)
    return row is not None


def cancelled(session: Session, held: JobClaim) -> bool:
    """→ cancelled, now that nothing runs any more; False: the job is no longer ours."""
    row = held.lease.row(session)
    if row is not None:
        _end(session, row, "cancelled")
    return row is not None


def release(session: Session, held: JobClaim) -> None:
    """Let another worker take the job over at once; what runs goes on running."""
    held.lease.release(session)


def cancel(session: Session, job_id: UUID) -> bool:
    """Queued → cancelled; ask for the end of one that runs. False: there is none, or it is over.

    A worker that holds the job ends the run in Ray, and says so here when it has.
    """
    row = session.scalars(
        select(JobRow).where(JobRow.id == job_id, JobRow.status.in_(UNFINISHED)).with_for_update()
    ).one_or_none()
    if row is None:
        return False
    if row.status == "queued":
        _end(session, row, "cancelled")
    elif row.cancel_requested_at is None:
        row.cancel_requested_at = utc_now()
        _add_status(session, row, cancelling=True)
    return True


def last_failure(session: Session, held: JobClaim) -> JsonObject | None:
    """The last event `failed` of this attempt."""
    return last_of_attempt(session, held.job_id, "failed")


def _claim_of(row: JobRow, lease: Lease[JobRow], plan: JsonObject | None) -> JobClaim:
    assert (plan is not None) == (row.kind == "run")
    assert row.submission_id is not None
    assert row.output is not None
    return JobClaim(
        lease=lease,
        kind="run" if row.kind == "run" else "profile",
        plan=plan,
        settings=row.settings,
        submission_id=row.submission_id,
        output=row.output,
        log_offset=row.log_offset,
        origin=dict(row.origin or {}),
        was_running=row.status == "running",
    )


def _begin_attempt(session: Session, row: JobRow, **more: JsonValue) -> None:
    row.status = "starting"
    row.attempts += 1
    row.submission_id = f"automap-{row.id}-{row.attempts}"
    row.log_offset = 0
    row.measured = {name: value for name, value in row.measured.items() if name != _PROOFS}
    _add_status(session, row, attempt=row.attempts, **more)


def _end(session: Session, row: JobRow, status: str, problem: Problem | None = None) -> None:
    for name, value in leases.ended(status).items():
        setattr(row, name, value)
    if problem is not None:
        row.problem = problem.document()
    said = last_of_attempt(session, row.id, "finished", "failed")
    if said is not None:  # a worker may notice days later, and the run held nothing meanwhile
        row.finished_at = _within(row, time_of(said))
    _add_status(session, row)


def _within(row: JobRow, time: datetime) -> datetime:
    """A time by a run's clock, which another may be set against, in the job's own life."""
    return min(max(time, row.started_at or row.created_at), utc_now())


def _add_status(session: Session, row: JobRow, **more: JsonValue) -> None:
    """Add an event with the status, for those who follow the job."""
    add_events(session, row.id, [{"type": "status", "status": row.status, **more}])


def _ingest(session: Session, row: JobRow, events: list[JsonObject]) -> list[JsonObject]:
    """The events, after the row has taken from them what it shows itself."""
    if row.kind == "profile":
        return [measurement_events.ingest(session, row, event) for event in events]
    row.measured = _with_events(row.measured, events)
    return [_ingest_run_event(row, event) for event in events]


def _ingest_run_event(row: JobRow, event: JsonObject) -> JsonObject:
    if event["type"] == "iteration" and (done := call_seconds.number(event.get("iteration"))):
        row.iteration = min(max(int(done), 0), row.iterations)
    if row.started_at is None and _has_devices(event):
        row.started_at = _within(row, time_of(event))
    if event["type"] != "finished":
        return event
    report = event.get("report")
    if isinstance(report, dict):
        row.report = report
        row.measured = call_seconds.with_report(row.measured, report)
    return {name: value for name, value in event.items() if name != "report"}


def _has_devices(event: JsonObject) -> bool:
    """Whether a run that says so holds its devices, and no longer waits for those of others."""
    if event["type"] == "state":
        return event.get("state") in ("starting workers", "running")
    return event["type"] in ("call", "iteration", "finished")
