"""Jobs that run a plan: checked and queued, with their plan if need be, and cancelled."""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from automap.executor.folders import RunFolders
from automap.planner import Plan
from automap.planner.spec import JobSpec
from automap.service.errors.domain import ConflictError, InvalidInputError, NotFoundError
from automap.service.errors.fields import FieldError, shown, value_at
from automap.service.queues import job_queue, plan_queue, waiting
from automap.service.runs.checked_settings import (
    RunSettings,
    plan_errors,
    settings_errors,
    spec_errors,
)
from automap.service.runs.function_files import function_errors
from automap.service.schemas.base import Body
from automap.service.schemas.jobs import UNFINISHED, JobRecord, JobRequest
from automap.service.schemas.measurements import ProfileJobRecord
from automap.service.storage import budgets, job_records, plan_records
from automap.service.storage.idempotency import Answer, answering_once
from automap.service.storage.stored_documents import required
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.use_cases.folders import allowed_folders, folder_errors
from automap.service.use_cases.planner_tasks import resolve_spec
from automap.service.use_cases.service_parts import ServiceParts


def post_job(service: ServiceParts, body: Body[JobRequest], *, key: str | None) -> JobRecord:
    """Queue a job, and its plan before it; an earlier request with the same key answers instead.

    Raises:
        SpecError, InvalidInputError: something in the request is wrong.
        ConflictError: the plan to run failed or was cancelled.
        KeyReusedError, RequestInProgressError: the key stands for another request.
    """
    lease_seconds = service.settings.lease_seconds
    with answering_once(
        service.database, key, data=body.data, of="job:", lease_seconds=lease_seconds
    ) as answer:
        if answer.made is None:
            return _make(service, body, answer)
        with service.database.reading() as session:
            return _as_run(job_records.find_job(session, answer.made))


def _make(
    service: ServiceParts, body: Body[JobRequest], answer: Answer, *, retry_of: UUID | None = None
) -> JobRecord:
    request = body.content
    _check_choice(request)
    folders = allowed_folders(service.database, service.settings)
    spec = None
    if request.spec is not None:
        spec = resolve_spec(service, request.spec, prefix="spec.")
        _check_settings(request, spec, body.data, folders)
    with service.database.transaction() as session:
        if spec is not None:
            plan = _queued_plan(session, request, spec, owner=service.caller.owner)
        else:
            plan = _stored_plan(session, request, body.data, folders)
        row = job_records.new_job_row(
            plan,
            request.settings,
            name=request.name,
            owner=service.caller.owner,
            labels=request.labels,
            notes=request.notes,
            priority=request.priority,
            retry_of=retry_of,
        )
        job_queue.enqueue(session, row)
        answer.complete(session, job_id=row.id)
        record = _as_run(job_records.job_record(row))
        told = {
            "warnings": budgets.warnings(session, owner=row.owner, labels=row.labels),
            "waits_for": waiting.waits_for(session, row.id),
        }
    if spec is not None:
        service.dispatcher.wake()
    return record.model_copy(update=told)


def find_job(session: Session, job_id: UUID) -> JobRecord | ProfileJobRecord:
    """The job with this id, and what it waits for; of budgets it warns until a worker takes it.

    Raises:
        NotFoundError: there is none.
    """
    record = job_records.find_job(session, job_id)
    told: dict[str, object] = {"waits_for": waiting.waits_for(session, job_id)}
    if isinstance(record, JobRecord) and record.status == "queued":
        told["warnings"] = budgets.warnings(session, owner=record.owner, labels=record.labels)
    return record.model_copy(update=told)


def _as_run(record: JobRecord | ProfileJobRecord) -> JobRecord:
    assert isinstance(record, JobRecord)
    return record


def _check_choice(request: JobRequest) -> None:
    if (request.plan_id is None) == (request.spec is None):
        raise InvalidInputError(
            [
                FieldError(
                    field="plan_id",
                    value=None if request.plan_id is None else str(request.plan_id),
                    message="give either plan_id or spec, not both and not neither",
                    remedy="name a stored plan, or give the spec to plan first",
                )
            ]
        )


def _check_settings(
    request: JobRequest, spec: JobSpec, data: object, folders: RunFolders | None
) -> None:
    found = [*settings_errors(request.settings, spec), *folder_errors(request.settings, folders)]
    # Files are looked at where they may be used, and where the operator says which those are.
    found = found or list(function_errors(request.settings, files=folders is not None))
    mistakes = [
        error.model_copy(
            update={
                "field": f"settings.{error.field}",
                "value": error.value or shown(value_at(f"settings.{error.field}", data)),
            }
        )
        for error in found
    ]
    for error in spec_errors(spec, planned=request.spec is None):
        if request.spec is None:
            message = f"{error.field} of its spec: {error.message}"
            error = error.model_copy(update={"field": "plan_id", "message": message})
            mistakes.append(error.model_copy(update={"value": str(request.plan_id)}))
        else:
            mistakes.append(error.model_copy(update={"field": f"spec.{error.field}"}))
    if mistakes:
        raise InvalidInputError(mistakes)


def _queued_plan(session: Session, request: JobRequest, spec: JobSpec, *, owner: str) -> PlanRow:
    assert request.spec is not None
    named = request.spec.cluster if isinstance(request.spec.cluster, str) else None
    row = plan_records.new_plan_row(spec, cluster_name=named, owner=owner)
    plan_queue.enqueue(session, row)
    return row


def _stored_plan(
    session: Session, request: JobRequest, data: object, folders: RunFolders | None
) -> PlanRow:
    # Locked, so that it is neither deleted nor failed before the job is there to notice.
    row = session.scalars(
        select(PlanRow).where(PlanRow.id == request.plan_id).with_for_update()
    ).one_or_none()
    if row is None:
        error = FieldError(
            field="plan_id",
            value=str(request.plan_id),
            message="there is no plan with this id",
            remedy="use the id of a plan of this service, or give the spec",
        )
        raise InvalidInputError([error])
    if row.status in ("failed", "cancelled"):
        raise ConflictError(f"Plan {row.id} is {row.status}: there is nothing to run")
    _check_settings(request, required(JobSpec, row.spec, plan_id=row.id), data, folders)
    if row.plan is not None and (lacks := plan_errors(required(Plan, row.plan, plan_id=row.id))):
        error = FieldError(
            field="plan_id",
            value=str(request.plan_id),
            message=f"the plan can be priced, but not run: {'; '.join(lacks)}",
            remedy="plan with search.target: automap, and run that plan",
        )
        raise InvalidInputError([error])
    return row


def retry_job(service: ServiceParts, job_id: UUID, *, key: str | None) -> JobRecord:
    """Queue a new job like one that is over, checked as if it had been sent again.

    Raises:
        NotFoundError: there is none.
        ConflictError: it is not over, it measures profiles, or its plan is gone.
        InvalidInputError: its settings would be refused today.
        OlderVersionError: an earlier version has stored them, and this one reads them no more.
        KeyReusedError, RequestInProgressError: the key stands for another request.
    """
    with service.database.reading() as session:
        request = _again(session.get(JobRow, job_id), job_id)
    body = Body(content=request, data=request.model_dump(mode="json"))
    lease_seconds = service.settings.lease_seconds
    with answering_once(
        service.database, key, data=str(job_id), of="retry:", lease_seconds=lease_seconds
    ) as answer:
        if answer.made is None:
            return _make(service, body, answer, retry_of=job_id)
        with service.database.reading() as session:
            return _as_run(job_records.find_job(session, answer.made))


def _again(row: JobRow | None, job_id: UUID) -> JobRequest:
    """The request that would make such a job."""
    if row is None:
        raise NotFoundError("job", job_id)
    if row.status in UNFINISHED:
        raise ConflictError(f"Job {job_id} is {row.status}: it can be run again when it is over")
    if row.plan_id is None:
        raise ConflictError(f"Job {job_id} measures the cluster: start another measurement")
    return JobRequest(
        plan_id=row.plan_id,
        settings=required(RunSettings, row.settings, plan_id=row.plan_id),
        name=row.name,
        labels=row.labels,
        notes=row.notes,
        priority=row.priority,
    )


def cancel_job(session: Session, job_id: UUID) -> JobRecord | ProfileJobRecord:
    """The job, cancelled or about to be.

    Raises:
        NotFoundError: there is none.
        ConflictError: it has ended otherwise.
    """
    job_queue.cancel(session, job_id)
    record = job_records.find_job(session, job_id)
    if record.status in ("succeeded", "failed"):
        raise ConflictError(f"Job {job_id} has {record.status} already")
    return record
