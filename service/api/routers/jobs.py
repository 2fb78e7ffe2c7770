from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse
from sqlalchemy.orm import Session

from automap.service.api.auth import Keys
from automap.service.api.bodies import body_docs, body_of, patch_docs
from automap.service.api.csv_lists import csv_response, wants_csv
from automap.service.api.dependencies import (
    DatabaseDep,
    KeyDep,
    ReadSessionDep,
    ServiceDep,
    SessionDep,
)
from automap.service.api.event_stream import EVENT_SCHEMA, event_stream
from automap.service.api.examples import JOB_EXAMPLES, JOB_PATCH_EXAMPLES
from automap.service.api.openapi import CSV_TOO, problem_responses, response_headers
from automap.service.api.owners import OwnersDep
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body, Page
from automap.service.schemas.jobs import (
    UNFINISHED,
    JobPatch,
    JobQuery,
    JobRecord,
    JobRequest,
    JobSummary,
)
from automap.service.schemas.measurements import AnyJobRecord, AnyJobSummary, ProfileJobRecord
from automap.service.storage import descriptions, job_records
from automap.service.use_cases import jobs

router = router_for_keys("jobs", "/v1/jobs")

JobBody = Annotated[Body[JobRequest], Depends(body_of(JobRequest, what="The job"))]
PatchBody = Annotated[Body[JobPatch], Depends(body_of(JobPatch, what="The description"))]
LastEventHeader = Annotated[
    int,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=2**31 - 1,
        description="Id of the last event that was received; the stream goes on after it",
    ),
]
TailQuery = Annotated[int, Query(ge=1, le=100_000, description="The last so many lines")]


@router.post(
    "",
    status_code=202,
    summary="Run a plan",
    responses={
        202: {
            "description": "Queued; poll the Location",
            "headers": response_headers("Location", "Retry-After"),
        },
        **problem_responses(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=body_docs(JobRequest, JOB_EXAMPLES),
)
def create_job(
    body: JobBody,
    service: ServiceDep,
    response: Response,
    idempotency_key: KeyDep,
) -> JobRecord:
    """Queue a run of a stored plan, or of a spec that is planned first.

    A worker submits it to Ray; poll the Location, or follow its events. Settings that do not go
    with the spec, and what the executor cannot run whatever the plan (`search.target: any` among
    it), are answered 422 and nothing is stored. A plan that fails takes the job along.
    """
    record = jobs.post_job(service, body, key=idempotency_key)
    response.headers["Location"] = f"/v1/jobs/{record.id}"
    _ask_again_later(response, record)
    return record


@router.get(
    "",
    summary="List jobs",
    response_model=Page[AnyJobSummary],
    responses={200: CSV_TOO, **problem_responses(422, 503)},
)
def list_jobs(
    query: Annotated[JobQuery, Query()], request: Request, database: DatabaseDep
) -> Response | Page[AnyJobSummary]:
    """Jobs, newest first, page by page, without their documents; or all as CSV."""
    if not wants_csv(request, query):
        with database.reading() as session:
            return job_records.list_jobs(session, query)

    def page(session: Session, cursor: str | None, limit: int) -> Page[AnyJobSummary]:
        asked = query.model_copy(update={"cursor": cursor, "limit": limit})
        return job_records.list_jobs(session, asked)

    columns = ["kind", *(name for name in JobSummary.model_fields if name != "kind")]
    return csv_response(database, columns, page, file="jobs.csv")


@router.get("/{job_id}", summary="Get a job", responses=problem_responses(404, 422, 503))
def get_job(job_id: UUID, session: ReadSessionDep, response: Response) -> AnyJobRecord:
    """How far a job is, and its report.

    Of a queued one what it waits for, by the rule by which workers take jobs; of a run what its
    calls took beside what was predicted; of a profile the versions stored, and the cluster that was
    found.
    """
    record = jobs.find_job(session, job_id)
    _ask_again_later(response, record)
    return record


@router.patch(
    "/{job_id}",
    summary="Describe a job, or change its priority",
    responses=problem_responses(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=patch_docs(JobPatch, JOB_PATCH_EXAMPLES),
)
def describe_job(
    job_id: UUID, body: PatchBody, session: SessionDep, owners: OwnersDep
) -> AnyJobRecord:
    """Rename a job, note something of it, put labels on it or take them off (RFC 7396).

    A queued one may be given another `priority`: the workers look at it as they take the next job.
    A key with the scope `admin` may give it to another `owner`, to whose costs it then belongs.
    """
    owners.note(descriptions.change_job(session, job_id, owners.may_give(body.content)))
    session.flush()
    return jobs.find_job(session, job_id)


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events; `data` is a JSON object. Ends when the job has.",
            "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
        },
        204: {"description": "The job is over and all its events were received"},
        **problem_responses(404, 422, 503),
    },
)
def follow_job(
    job_id: UUID, request: Request, service: ServiceDep, last_event_id: LastEventHeader = 0
) -> Response:
    """What has happened in a job and what happens next, as server-sent events.

    A client that lost its connection sends the last id it got as `Last-Event-ID` and misses
    nothing; browsers do so by themselves, and stop at 204. So does one whose stream ended because
    the service was stopped; with a key that was revoked or has expired it is then refused.
    """
    with service.database.reading() as session:
        over = job_records.is_over(session, job_id)
        if over and not job_records.events_after(session, job_id, last_event_id, limit=1):
            return Response(status_code=204)
    keys: Keys = request.app.state.keys
    return event_stream(
        service.database,
        job_id,
        after=last_event_id,
        poll_seconds=service.settings.poll_seconds,
        is_admitted=partial(keys.still_admit, service.caller),
    )


@router.get(
    "/{job_id}/logs",
    summary="Read what a job has printed",
    response_class=PlainTextResponse,
    responses=problem_responses(404, 422, 503),
)
def get_job_logs(job_id: UUID, session: ReadSessionDep, tail: TailQuery = 1000) -> str:
    """The last lines of the output of a job, all attempts one after another."""
    return job_records.log_tail(session, job_id, lines=tail)


@router.post(
    "/{job_id}/retry",
    status_code=202,
    summary="Run a job again",
    responses={
        202: {
            "description": "Queued; poll the Location",
            "headers": response_headers("Location", "Retry-After"),
        },
        **problem_responses(404, 409, 422, 503),
    },
)
def retry_job(
    job_id: UUID, service: ServiceDep, response: Response, idempotency_key: KeyDep
) -> JobRecord:
    """Queue a new job of the same plan and settings as one that is over."""
    record = jobs.retry_job(service, job_id, key=idempotency_key)
    response.headers["Location"] = f"/v1/jobs/{record.id}"
    _ask_again_later(response, record)
    return record


@router.post(
    "/{job_id}/cancel",
    summary="Cancel a job",
    responses={
        200: {"description": "It is cancelled"},
        202: {
            "model": AnyJobRecord,
            "description": "It is being ended; poll it",
            "headers": response_headers("Retry-After"),
        },
        **problem_responses(404, 409, 422, 503),
    },
)
def cancel_job(job_id: UUID, session: SessionDep, response: Response) -> AnyJobRecord:
    """Cancel a job that waits (200), or ask for the end of one that runs (202)."""
    record = jobs.cancel_job(session, job_id)
    response.status_code = 202 if record.status in UNFINISHED else 200
    _ask_again_later(response, record)
    return record


def _ask_again_later(response: Response, record: JobRecord | ProfileJobRecord) -> None:
    if record.status in UNFINISHED:
        response.headers["Retry-After"] = "1"
