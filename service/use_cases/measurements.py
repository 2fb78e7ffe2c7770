"""Jobs that measure the cluster: checked and queued."""

from automap.planner import catalogue
from automap.planner.errors import SpecError
from automap.service.errors.domain import InvalidInputError
from automap.service.errors.fields import spec_error_field
from automap.service.queues import job_queue, measurement_events
from automap.service.schemas.base import Body
from automap.service.schemas.jobs import JobRecord
from automap.service.schemas.measurements import (
    Measure,
    MeasureJobSettings,
    MeasureRequest,
    ProfileJobRecord,
)
from automap.service.storage import descriptions, job_records
from automap.service.storage.database import utc_now
from automap.service.storage.idempotency import Answer, answering_once
from automap.service.storage.tables import JobRow, JobTextRow
from automap.service.use_cases.service_parts import ServiceParts


def post_measurement(
    service: ServiceParts, body: Body[MeasureRequest], *, key: str | None
) -> ProfileJobRecord:
    """Queue a job that measures; an earlier request with the same key answers instead.

    Raises:
        InvalidInputError: the catalogue does not know a model.
        KeyReusedError, RequestInProgressError: the key stands for another request.
    """
    settings = _settings(body)
    lease_seconds = service.settings.lease_seconds
    with answering_once(
        service.database, key, data=body.data, of="profile:", lease_seconds=lease_seconds
    ) as answer:
        if answer.made is None:
            return _queued(service, settings, answer)
        with service.database.reading() as session:
            return _as_profile(job_records.find_job(session, answer.made))


def _queued(
    service: ServiceParts, settings: MeasureJobSettings, answer: Answer
) -> ProfileJobRecord:
    with service.database.transaction() as session:
        row = JobRow(
            kind="profile",
            name=descriptions.MEASUREMENT,
            owner=service.caller.owner,
            labels={},
            plan=None,
            created_at=utc_now(),
            settings=settings.model_dump(mode="json"),
            iteration=0,
            iterations=0,
            measured=measurement_events.nothing_measured(settings.budget_seconds),
            attempts=0,
            log_offset=0,
        )
        row.text = JobTextRow(text=descriptions.text_of_job(row))
        job_queue.enqueue(session, row)
        answer.complete(session, job_id=row.id)
        return _as_profile(job_records.job_record(row))


def _as_profile(record: JobRecord | ProfileJobRecord) -> ProfileJobRecord:
    assert isinstance(record, ProfileJobRecord)
    return record


def _settings(body: Body[MeasureRequest]) -> MeasureJobSettings:
    """The request with its models looked up in the catalogue."""
    asked: Measure = body.content.measure
    models = {}
    for number, name in enumerate(asked.models):
        try:
            models[name] = catalogue.architecture(name, field=f"measure.models.{number}")
        except SpecError as error:
            raise InvalidInputError([spec_error_field(error, body.data)]) from None
    return MeasureJobSettings(
        models=models | asked.architectures,
        **asked.model_dump(exclude={"models", "architectures"}),
    )
