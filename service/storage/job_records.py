"""Jobs as the API shows them: all queries on jobs that are no transitions."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from pydantic import ValidationError
from sqlalchemy import Select, exists, select
from sqlalchemy.orm import Session, contains_eager, defer, joinedload

from automap.planner.runs import Suggestion
from automap.planner.spec import JobSpec
from automap.service.errors.domain import NotFoundError
from automap.service.runs import call_seconds, iteration_history, suggestion_notes
from automap.service.runs.checked_settings import RunSettings
from automap.service.runs.drift_report import drift_of
from automap.service.schemas.base import Page
from automap.service.schemas.jobs import (
    UNFINISHED,
    JobQuery,
    JobRecord,
    JobState,
    JobSuggestion,
    JobSummary,
    PlanJob,
)
from automap.service.schemas.measurements import (
    AnyJobRecord,
    AnyJobSummary,
    MeasuredKind,
    MeasureJobSettings,
    ProfileJobRecord,
    ProfileJobSummary,
    TableProgress,
)
from automap.service.storage import descriptions
from automap.service.storage.clusters import found_cluster
from automap.service.storage.database import utc_now
from automap.service.storage.paging import filtered_page
from automap.service.storage.stored_documents import (
    as_stored,
    predicted_seconds,
    required,
    stored_problem,
)
from automap.service.storage.tables import JobEventRow, JobLogRow, JobRow, JobTextRow, PlanRow

JOBS_SHOWN = 20
"""How many runs of a plan are shown: the latest."""
_DOCUMENTS = (JobRow.settings, JobRow.report, JobRow.problem)


def new_job_row(
    plan: PlanRow,
    settings: RunSettings,
    *,
    name: str | None = None,
    owner: str = "local",
    labels: Mapping[str, str] | None = None,
    notes: str | None = None,
    priority: int = 0,
    retry_of: UUID | None = None,
) -> JobRow:
    """The row of a run of this plan, whose text has been loaded."""
    spec = required(JobSpec, plan.spec, plan_id=plan.id)
    row = JobRow(
        id=uuid4(),
        name=name or plan.spec_name,
        owner=owner,
        labels=dict(labels or {}),
        notes=notes,
        priority=priority,
        retry_of=retry_of,
        plan=plan,
        created_at=utc_now(),
        settings=settings.model_dump(mode="json"),
        iteration=0,
        iterations=settings.iterations or spec.workload.iterations,
        measured=call_seconds.NOTHING,
        attempts=0,
        log_offset=0,
    )
    row.text = JobTextRow(text=descriptions.text_of_job(row, plan.text.text))
    return row


def find_job(session: Session, job_id: UUID) -> AnyJobRecord:
    """The job with this id.

    Raises:
        NotFoundError: there is none.
    """
    row = session.scalars(
        select(JobRow).where(JobRow.id == job_id).options(joinedload(JobRow.plan))
    ).one_or_none()
    if row is None:
        raise NotFoundError("job", job_id)
    return job_record(row, suggestions_of(session, row))


def list_jobs(session: Session, query: JobQuery) -> Page[AnyJobSummary]:
    """One page of jobs, newest first."""

    def matching(near: bool) -> Select[JobRow]:
        return _matching(query, near=near)

    rows, next_cursor = filtered_page(session, matching, JobRow, query, sort=query.sort)
    return Page(items=[_job_summary(row) for row in rows], next_cursor=next_cursor)


def _matching(query: JobQuery, *, near: bool) -> Select[JobRow]:
    shown = (PlanRow.spec_name, PlanRow.algorithm, PlanRow.iteration_seconds)
    statement = (
        select(JobRow)
        .outerjoin(JobRow.plan)
        .options(
            contains_eager(JobRow.plan).load_only(*shown, raiseload=True),
            *(defer(column, raiseload=True) for column in _DOCUMENTS),
        )
    )
    statement = descriptions.found_by(statement, JobRow, query, near=near)
    if query.kind is not None:
        statement = statement.where(JobRow.kind == query.kind)
    if query.status is not None:
        statement = statement.where(JobRow.status == query.status)
    if query.plan_id is not None:
        statement = statement.where(JobRow.plan_id == query.plan_id)
    if query.algorithm is not None:
        statement = statement.where(PlanRow.algorithm == query.algorithm)
    if query.created_after is not None:
        statement = statement.where(JobRow.created_at > query.created_after)
    if query.created_before is not None:
        statement = statement.where(JobRow.created_at < query.created_before)
    return statement


def _job_summary(row: JobRow) -> JobSummary | ProfileJobSummary:
    if row.plan is None:
        return ProfileJobSummary(**_profile_summary(row))
    return JobSummary(**_summary(row, row.plan))


def jobs_of_plan(session: Session, plan: Any, predicted: Mapping[str, float]) -> list[PlanJob]:
    """The latest runs of a plan, what they measured beside what it predicts.

    Args:
        session: The database.
        plan: Its row, or what has its columns as attributes.
        predicted: Seconds of its calls; none: there is no plan yet, or an earlier version's.
    """
    rows = session.scalars(
        select(JobRow)
        .where(JobRow.plan_id == plan.id)
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(JOBS_SHOWN)
        .options(*(defer(column, raiseload=True) for column in _DOCUMENTS))
    ).all()
    return [
        PlanJob(**_summary(row, plan), calls=call_seconds.calls_of(predicted, row.measured))
        for row in rows
    ]


def job_record(
    row: JobRow, suggested: Sequence[JobSuggestion] = ()
) -> JobRecord | ProfileJobRecord:
    """The row, which has its plan with it, as the API shows it."""
    if row.plan is None:
        return _profile_record(row)
    return JobRecord(
        **_summary(row, row.plan),
        calls=call_seconds.calls_of(predicted_seconds(row.plan.plan), row.measured),
        settings=as_stored(RunSettings, row.settings),
        submission_id=row.submission_id,
        output=row.output,
        report=row.report,
        response_lengths=iteration_history.read(row.measured.get("iterations")).observed_lengths,
        suggestions=list(suggested),
        drift=drift_of(row.report),
        problem=stored_problem(row.problem),
    )


def _profile_record(row: JobRow) -> ProfileJobRecord:
    known: Any = row.measured
    return ProfileJobRecord(
        **_profile_summary(row),
        settings=MeasureJobSettings.model_validate(row.settings),
        tables=[TableProgress(table=name, **each) for name, each in known["tables"].items()],
        submission_id=row.submission_id,
        output=row.output,
        cluster=found_cluster(row),
        report=row.report,
        problem=stored_problem(row.problem),
    )


def _profile_summary(row: JobRow) -> dict[str, Any]:
    known: Any = row.measured
    return _state(row) | {
        "seconds": known["seconds"],
        "budget_seconds": known["budget_seconds"],
        "profiles": [MeasuredKind(pool=pool, **each) for pool, each in known["profiles"].items()],
    }


def has_unfinished(session: Session, plan_id: UUID) -> bool:
    """Whether some job of this plan is not over."""
    unfinished = exists().where(JobRow.plan_id == plan_id, JobRow.status.in_(UNFINISHED))
    return bool(session.scalar(select(unfinished)))


def is_over(session: Session, job_id: UUID) -> bool:
    """Whether nothing more will happen in this job.

    Raises:
        NotFoundError: there is none.
    """
    status = session.scalar(select(JobRow.status).where(JobRow.id == job_id))
    if status is None:
        raise NotFoundError("job", job_id)
    return status not in UNFINISHED


def events_after(
    session: Session, job_id: UUID, sequence: int, *, limit: int
) -> Sequence[JobEventRow]:
    """The next events of a job, in order."""
    return session.scalars(
        select(JobEventRow)
        .where(JobEventRow.job_id == job_id, JobEventRow.sequence > sequence)
        .order_by(JobEventRow.sequence)
        .limit(limit)
    ).all()


def log_tail(session: Session, job_id: UUID, *, lines: int) -> str:
    """The last lines that a job has printed.

    Raises:
        NotFoundError: there is no such job.
    """
    if session.get(JobRow, job_id, options=[defer(column) for column in _DOCUMENTS]) is None:
        raise NotFoundError("job", job_id)
    pieces: list[str] = []
    found = 0
    latest = session.scalars(
        select(JobLogRow.text)
        .where(JobLogRow.job_id == job_id)
        .order_by(JobLogRow.end_position.desc())
        .execution_options(yield_per=16)
    )
    for text in latest:
        pieces.append(text)
        found += text.count("\n")
        if found > lines:
            break
    text = "".join(reversed(pieces))
    ending = "\n" if text.endswith("\n") else ""
    return "\n".join(text.removesuffix("\n").split("\n")[-lines:]) + ending


def _summary(row: JobRow, plan: Any) -> dict[str, Any]:
    return _state(row) | {
        "plan_id": plan.id,
        "iteration": row.iteration,
        "iterations": row.iterations,
        "drifting": row.status in UNFINISHED and suggestion_notes.is_active(row.measured),
        "spec_name": plan.spec_name,
        "algorithm": plan.algorithm,
        "predicted_iteration_seconds": plan.iteration_seconds,
        "measured_iteration_seconds": call_seconds.iteration_seconds(row.measured),
    }


def _state(row: JobRow) -> dict[str, Any]:
    same = set(JobState.model_fields) & set(JobRow.__table__.columns.keys())
    over = row.status not in UNFINISHED
    return {name: getattr(row, name) for name in same} | {
        "cancelling": row.cancel_requested_at is not None and not over
    }


def suggestions_of(session: Session, row: JobRow) -> list[JobSuggestion]:
    """The suggestions that were raised on a job, the latest first."""
    known = {each.event: each for each in suggestion_notes.raised(row.measured)}
    if not known:
        return []
    rows = session.scalars(
        select(JobEventRow)
        .where(JobEventRow.job_id == row.id, JobEventRow.sequence.in_(known))
        .order_by(JobEventRow.sequence.desc())
    )
    found = ((each, _suggestion(each.document.get("suggestion"))) for each in rows)
    return [
        JobSuggestion(
            event=event.sequence,
            time=event.time,
            over_after_iteration=known[event.sequence].over_after_iteration,
            suggestion=suggestion,
        )
        for event, suggestion in found
        if suggestion is not None
    ]


def _suggestion(document: Any) -> Suggestion | None:
    try:
        return Suggestion.model_validate(document)
    except ValidationError:  # another version's
        return None
