"""Plans: made now or queued, cancelled, deleted."""

from uuid import UUID

from pydantic import JsonValue
from sqlalchemy.orm import Session

from automap.planner.spec import JobSpec
from automap.service.errors.domain import ConflictError
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.planners.messages import (
    PlanTask,
)
from automap.service.queues import plan_queue
from automap.service.schemas.base import Body
from automap.service.schemas.descriptions import NewDescription
from automap.service.schemas.plans import PlanRecord
from automap.service.storage import descriptions, plan_records, profile_files
from automap.service.storage.idempotency import Answer, answering_once
from automap.service.storage.plan_documents import StoredRecord, stored_record
from automap.service.telemetry import context
from automap.service.use_cases.planner_tasks import resolve_spec
from automap.service.use_cases.service_parts import ServiceParts


def post_plan(
    service: ServiceParts,
    body: Body[JobSpec],
    described: NewDescription,
    *,
    key: str | None,
    respond_async: bool,
) -> StoredRecord:
    """Plan a job, or queue it; an earlier request with the same key answers instead.

    Raises:
        PlanningError: there is no plan, or something in the spec is wrong.
        PlannerProcessError, BusyError: no planner process has answered.
        KeyReusedError, RequestInProgressError: the key stands for another request.
    """
    given = described.model_dump(exclude_unset=True)
    data = [body.data, given] if given else body.data
    with answering_once(
        service.database, key, data=data, lease_seconds=service.settings.lease_seconds
    ) as answer:
        plan_id = answer.made or _make(service, body, described, answer, respond_async)
    with service.database.reading() as session:
        return stored_record(session, plan_id)


def _make(
    service: ServiceParts,
    body: Body[JobSpec],
    described: NewDescription,
    answer: Answer,
    respond_async: bool,
) -> UUID:
    spec = resolve_spec(service, body.content)
    named = body.content.cluster if isinstance(body.content.cluster, str) else None
    row = plan_records.new_plan_row(spec, cluster_name=named, owner=service.caller.owner)
    descriptions.describe_new(row, described)
    with context.bound(plan_id=row.id):
        plan = None if respond_async else _plan_now(service, spec, answer)
    with service.database.transaction() as session:
        if plan is None:
            plan_queue.enqueue(session, row)
        else:
            plan_queue.store_succeeded(session, row, plan)
        session.flush()
        plan_id = row.id
        answer.complete(session, plan_id=plan_id)
    if plan is None:
        service.dispatcher.wake()
    return plan_id


def _plan_now(service: ServiceParts, spec: JobSpec, answer: Answer) -> dict[str, JsonValue]:
    def keep_key() -> bool:
        answer.extend()
        return service.is_wanted()

    limit = planning_deadline_seconds(
        spec, overhead_seconds=service.settings.planning_overhead_seconds
    )
    folder = service.settings.profiles_folder
    profile_files.materialise(service.database, folder, spec)
    others = profile_files.materialise_for_remedies(service.database, folder, spec)
    request = PlanTask(spec=spec, profiles=others)
    with service.planners.process(is_wanted=keep_key) as process:
        plan = process.run(request, limit_seconds=limit, keep_going=keep_key)
    assert isinstance(plan, dict)
    return plan


def cancel_plan(session: Session, plan_id: UUID) -> PlanRecord:
    """The plan, cancelled, if it was queued or running; the jobs that wait for it fail.

    Raises:
        NotFoundError: there is none.
        ConflictError: it has ended otherwise.
    """
    plan_queue.cancel(session, plan_id)
    record = plan_records.find_plan(session, plan_id)
    if record.status != "cancelled":
        raise ConflictError(f"Plan {plan_id} has {record.status} already")
    return record
