"""What POST /v1/profiles does to have the cluster measured: check the request, queue the job."""

from uuid import UUID

from planner import catalogue
from planner.errors import SpecError
from service import idempotency, job_queue, job_store, measurement_events, problems
from service.bodies import Body
from service.database import utc_now
from service.field_errors import spec_error_field
from service.measurement import Measure, MeasureJobSettings, MeasureRequest, ProfileJobRecord
from service.planning import Planning
from service.schemas import JobRecord
from service.tables import JobRow


def post_measurement(
    service: Planning, body: Body[MeasureRequest], *, key: str | None
) -> ProfileJobRecord:
    """Queue a job that measures; an earlier request with the same key answers instead."""
    settings = _settings(body)
    if key is None:
        return _queued(service, settings, None)
    taken = idempotency.take(
        service.database,
        key,
        fingerprint=idempotency.fingerprint(body.data, of="profile:"),
        lease_seconds=service.settings.lease_seconds,
    )
    if isinstance(taken, UUID):
        with service.database.reading() as session:
            return _as_profile(job_store.find_job(session, taken))
    return _queued(service, settings, taken)


def _queued(
    service: Planning, settings: MeasureJobSettings, held: idempotency.HeldKey | None
) -> ProfileJobRecord:
    with service.database.transaction() as session:
        row = JobRow(
            kind="profile",
            plan=None,
            created_at=utc_now(),
            settings=settings.model_dump(mode="json"),
            iteration=0,
            iterations=0,
            measured=measurement_events.nothing_yet(settings.budget_seconds),
            attempts=0,
            log_offset=0,
        )
        job_queue.enqueue(session, row)
        if held is not None:
            idempotency.complete(session, held, job_id=row.id)
        return _as_profile(job_store.job_record(row))


def _as_profile(record: JobRecord | ProfileJobRecord) -> ProfileJobRecord:
    assert isinstance(record, ProfileJobRecord)
    return record


def _settings(body: Body[MeasureRequest]) -> MeasureJobSettings:
    """The request with its models resolved; a problem if the catalogue does not know one."""
    asked: Measure = body.content.measure
    models = {}
    for number, name in enumerate(asked.models):
        try:
            models[name] = catalogue.architecture(name, field=f"measure.models.{number}")
        except SpecError as error:
            raise problems.invalid_field(spec_error_field(error, body.data)) from None
    return MeasureJobSettings(
        models=models | asked.architectures,
        **asked.model_dump(exclude={"models", "architectures"}),
    )
