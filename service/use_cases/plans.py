"""What the plan routes do: resolve the spec, plan now or queue, price, compare."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import JsonValue, TypeAdapter

from automap.planner.errors import SpecError
from automap.planner.explanation.result import ExplainOptions, Explanation
from automap.planner.plan.types import Plan, Strategy
from automap.planner.replanning.result import Replan, ReplanOptions
from automap.planner.simulation.result import Simulation
from automap.planner.spec import ClusterSpec, JobSpec
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.planners.deadlines import SLOWEST_MACHINE, planning_deadline_seconds
from automap.service.planners.messages import (
    CompareRequest,
    EstimateRequest,
    ExplainRequest,
    PlannerRequest,
    PlanRequest,
    ReplanRequest,
    SimulateRequest,
    StrategiesRequest,
    spec_of,
)
from automap.service.queues import plan_queue
from automap.service.schemas.body import Body
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.studies import Comparison, StrategyDescription
from automap.service.schemas.studies import EstimateRequest as EstimateBody
from automap.service.schemas.studies import SimulateRequest as SimulateBody
from automap.service.storage import plan_records, profiles
from automap.service.storage.idempotency import Answer, answering_once
from automap.service.use_cases.service_parts import ServiceParts

_STRATEGIES = TypeAdapter(list[Strategy])
_DESCRIPTIONS = TypeAdapter(list[StrategyDescription])
_BRIEF_SECONDS = 120.0
"""For what searches nothing: an estimate, the strategies that need no time limit."""
_EXPLAIN_SECONDS = 900.0
"""For dozens of searches, each with a limit of its own."""


def post_plan(
    service: ServiceParts, body: Body[JobSpec], *, key: str | None, respond_async: bool
) -> PlanRecord:
    """Plan a job, or queue it; an earlier request with the same key answers instead."""
    with answering_once(
        service.database, key, data=body.data, lease_seconds=service.settings.lease_seconds
    ) as answer:
        if answer.made is None:
            return _make(service, body, answer, respond_async)
        with service.database.reading() as session:
            return plan_records.find_plan(session, answer.made)


def _make(
    service: ServiceParts, body: Body[JobSpec], answer: Answer, respond_async: bool
) -> PlanRecord:
    spec = resolve_spec(service, body.content)
    named = body.content.cluster if isinstance(body.content.cluster, str) else None
    row = plan_records.new_plan_row(spec, cluster_name=named)
    plan = None if respond_async else _plan_now(service, spec, answer)
    with service.database.transaction() as session:
        if plan is None:
            plan_queue.enqueue(session, row)
        else:
            plan_queue.store_succeeded(session, row, plan)
        session.flush()
        answer.complete(session, plan_id=row.id)
        record = plan_records.plan_record(row)
    if plan is None:
        service.dispatcher.wake()
    return record


def _plan_now(service: ServiceParts, spec: JobSpec, answer: Answer) -> dict[str, JsonValue]:
    def keep_key() -> bool:
        answer.extend()
        return True

    limit = planning_deadline_seconds(
        spec, overhead_seconds=service.settings.planning_overhead_seconds
    )
    folder = service.settings.profiles_folder
    profiles.lay_out(service.database, folder, spec)
    others = profiles.lay_out_for_remedies(service.database, folder, spec)
    request = PlanRequest(spec=spec, profiles=others)
    with service.planners.process() as process:
        plan = process.run(request, limit_seconds=limit, keep_going=keep_key)
    assert isinstance(plan, dict)
    return plan


def resolve_spec(service: ServiceParts, spec: JobSpec, *, prefix: str = "") -> JobSpec:
    """The spec with a stored cluster's definition in place of its name, and all names known.

    Raises:
        SpecError: something in it is wrong; its field begins with `prefix`.
    """
    from automap.planner.job.resolve import resolve

    with spec_at(prefix):
        limit = service.settings.max_time_limit_seconds
        if spec.search.time_limit_seconds > limit:
            raise SpecError(
                "search.time_limit_seconds",
                f"{spec.search.time_limit_seconds:g} s is more than this service allows",
                remedy=f"use at most {limit:g}",
            )
        cluster = _cluster(service, spec.cluster)
        # What the pools are is checked before which profiles are theirs.
        resolve(spec.model_copy(update={"cluster": cluster}), with_profiles=False)
        with service.database.reading() as session:
            cluster = profiles.checked_cluster(
                session, cluster, field="cluster.pools", with_defaults=True
            )
        return spec.model_copy(update={"cluster": cluster})


@contextmanager
def spec_at(prefix: str) -> Iterator[None]:
    """Locate what is wrong with a spec in the request, where the spec is at `prefix`.

    Raises:
        SpecError: as raised inside, its field below `prefix` if it is one of a spec.
    """
    try:
        yield
    except SpecError as error:
        at = prefix if error.field.split(".", maxsplit=1)[0] in JobSpec.model_fields else ""
        raise SpecError(at + error.field, error.message, remedy=error.remedy) from error


def _cluster(service: ServiceParts, cluster: ClusterSpec | str) -> ClusterSpec:
    if isinstance(cluster, ClusterSpec):
        return cluster
    with service.database.reading() as session:
        try:
            return ClusterSpec(pools=plan_records.find_cluster(session, cluster).pools)
        except NotFoundError:
            known = ", ".join(plan_records.cluster_names(session)) or "none yet"
    raise SpecError(
        "cluster",
        f"no cluster named {cluster!r} is stored",
        remedy=f"give its pools, or store it with POST /v1/clusters; stored are: {known}",
    )


def estimate(service: ServiceParts, body: Body[EstimateBody]) -> Plan:
    """The placement priced as a plan; a problem says why it does not fit."""
    spec = resolve_spec(service, body.content.spec, prefix="spec.")
    request = EstimateRequest(spec=spec, placement=body.content.placement)
    return Plan.model_validate(ask(service, request))


def compare(service: ServiceParts, record: PlanRecord, names: list[str]) -> Comparison:
    """Named strategies beside a plan that succeeded."""
    if record.plan is None:
        raise ConflictError(f"Plan {record.id} is {record.status}: there is nothing to compare")
    request = CompareRequest(
        spec=record.plan.spec, plan=record.plan, strategies=list(dict.fromkeys(names))
    )
    limit = planning_deadline_seconds(request.spec, overhead_seconds=_BRIEF_SECONDS)
    compared = ask(service, request, limit_seconds=limit)
    return Comparison(
        plan_id=record.id,
        iteration_seconds=record.plan.iteration_seconds,
        strategies=_STRATEGIES.validate_python(compared),
    )


def simulate(service: ServiceParts, record: PlanRecord, body: SimulateBody) -> Simulation:
    """Iterations of a plan that succeeded, with lengths drawn anew."""
    if record.plan is None:
        raise ConflictError(f"Plan {record.id} is {record.status}: there is nothing to simulate")
    request = SimulateRequest(
        plan=record.plan, iterations=body.iterations, seed=body.seed, trace=body.trace
    )
    return Simulation.model_validate(ask(service, request))


def explain(service: ServiceParts, record: PlanRecord, options: ExplainOptions) -> Explanation:
    """Why a stored plan is as it is."""
    if record.plan is None:
        raise ConflictError(f"Plan {record.id} is {record.status}: there is nothing to explain")
    request = ExplainRequest(plan=record.plan, options=options)
    return Explanation.model_validate(ask(service, request, limit_seconds=_EXPLAIN_SECONDS))


def replan(service: ServiceParts, record: PlanRecord, options: ReplanOptions) -> Replan:
    """Whether a stored plan that runs should be kept."""
    if record.plan is None:
        raise ConflictError(f"Plan {record.id} is {record.status}: there is nothing to replan")
    request = ReplanRequest(plan=record.plan, options=options)
    limit = SLOWEST_MACHINE * options.search_seconds + _BRIEF_SECONDS
    return Replan.model_validate(ask(service, request, limit_seconds=limit))


def strategies(service: ServiceParts) -> list[StrategyDescription]:
    """The strategies that compare knows."""
    return _DESCRIPTIONS.validate_python(ask(service, StrategiesRequest()))


def ask(
    service: ServiceParts,
    request: PlannerRequest,
    *,
    limit_seconds: float = _BRIEF_SECONDS,
    prefix: str = "",
) -> JsonValue:
    """What a planner process answers; `prefix` is where the request has the spec.

    Raises:
        PlanningError: the planner's own answer.
        PlannerProcessError, BusyError: it gave none.
    """
    with spec_at(prefix):
        if (spec := spec_of(request)) is not None:
            profiles.lay_out(service.database, service.settings.profiles_folder, spec)
        with service.planners.process() as process:
            return process.run(request, limit_seconds=limit_seconds)
