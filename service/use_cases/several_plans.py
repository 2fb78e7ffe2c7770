"""Several plans of one job, each stored: the Pareto front, what-if."""

from collections.abc import Sequence

from pydantic import JsonValue

from automap.planner import Front, Plan, WhatIf
from automap.planner.errors import SpecError
from automap.planner.spec import JobSpec
from automap.planner.studies import Variant
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.planners.messages import FrontTask, WhatIfTask
from automap.service.queues import plan_queue
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.studies import (
    FrontRecord,
    FrontRequest,
    VariantRecord,
    WhatIfRecord,
    WhatIfRequest,
)
from automap.service.storage import plan_records, profile_files
from automap.service.use_cases.planner_tasks import ask, resolve_spec, spec_at
from automap.service.use_cases.service_parts import ServiceParts


def find_front(service: ServiceParts, request: FrontRequest) -> FrontRecord:
    """The Pareto front of a job; its plans are stored.

    Raises:
        PlanningError: there is no plan, or something in the request is wrong.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    spec = resolve_spec(service, request.spec, prefix="spec.")
    task = FrontTask(spec=spec, tolerance=request.tolerance)
    limit = planning_deadline_seconds(
        spec, overhead_seconds=service.settings.planning_overhead_seconds
    )
    front = Front.model_validate(ask(service, task, limit_seconds=limit, prefix="spec."))
    return FrontRecord(
        plans=_stored(service, front.plans, cluster_name=_name(request.spec)),
        **{name: getattr(front, name) for name in FrontRecord.model_fields if name != "plans"},
    )


def plan_variants(
    service: ServiceParts, request: WhatIfRequest, *, respond_async: bool
) -> WhatIfRecord:
    """A job planned on several clusters, now or as soon as the queue allows.

    Raises:
        PlanningError: something in the request is wrong.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    spec = resolve_spec(service, request.spec, prefix="spec.")
    name = _name(request.spec)
    defaults = profile_files.materialise_defaults(
        service.database, service.settings.profiles_folder, request.gpus
    )
    if respond_async:
        return _queued(service, request, spec, defaults)
    task = WhatIfTask(
        spec=spec, nodes=request.nodes, gpus=request.gpus, pool=request.pool, profiles=defaults
    )
    variants = max(len(request.nodes), 1) * max(len(request.gpus), 1)
    _refuse_long(service, spec, variants)
    limit = variants * planning_deadline_seconds(spec, overhead_seconds=0.0)
    answer = WhatIf.model_validate(
        ask(
            service,
            task,
            limit_seconds=limit + service.settings.planning_overhead_seconds,
            prefix="spec.",
        )
    )
    plans = [each.plan for each in answer.variants if each.plan is not None]
    records = iter(_stored(service, plans, cluster_name=name))
    return WhatIfRecord(
        variants=[
            _variant_record(each, None if each.plan is None else next(records))
            for each in answer.variants
        ]
    )


def _refuse_long(service: ServiceParts, spec: JobSpec, variants: int) -> None:
    """All searches together must not take longer than a service lets one plan take."""
    most = service.settings.max_time_limit_seconds
    seconds = variants * spec.search.time_limit_seconds
    if seconds > most:
        raise SpecError(
            "spec.search.time_limit_seconds",
            f"{variants} searches of {spec.search.time_limit_seconds:g} s are more than the "
            f"{most:g} s that a request may wait for",
            remedy=f"use at most {most / variants:g}, or send Prefer: respond-async",
        )


def _queued(
    service: ServiceParts, request: WhatIfRequest, spec: JobSpec, defaults: dict[str, str]
) -> WhatIfRecord:
    """A queued plan for every cluster."""
    from automap.planner.studies import cases_of

    with spec_at("spec."):
        # Profiles are laid out where planner processes run, not here.
        cases = cases_of(
            spec,
            nodes=request.nodes,
            gpus=request.gpus,
            pool=request.pool,
            profiles=defaults,
            with_profiles=False,
        )
    variants = []
    with service.database.transaction() as session:
        for case in cases:
            row = plan_records.new_plan_row(
                case.job.spec, cluster_name=_name(request.spec), owner=service.caller.owner
            )
            plan_queue.enqueue(session, row)
            session.flush()
            variants.append(
                VariantRecord(
                    pool=case.pool,
                    gpu=case.gpu,
                    num_nodes=case.num_nodes,
                    num_gpus=case.num_gpus,
                    plan=plan_records.plan_record(row),
                )
            )
    service.dispatcher.wake()
    return WhatIfRecord(variants=variants)


def _variant_record(variant: Variant, plan: PlanRecord | None) -> VariantRecord:
    same = set(VariantRecord.model_fields) - {"plan"}
    return VariantRecord(plan=plan, **{name: getattr(variant, name) for name in same})


def _stored(
    service: ServiceParts, plans: Sequence[Plan], *, cluster_name: str | None
) -> list[PlanRecord]:
    """Every plan as a stored one, in one transaction."""
    records = []
    with service.database.transaction() as session:
        for plan in plans:
            row = plan_records.new_plan_row(
                plan.spec, cluster_name=cluster_name, owner=service.caller.owner
            )
            document: dict[str, JsonValue] = plan.model_dump(mode="json", by_alias=True)
            plan_queue.store_succeeded(session, row, document)
            session.flush()
            records.append(plan_records.plan_record(row))
    return records


def _name(spec: JobSpec) -> str | None:
    return spec.cluster if isinstance(spec.cluster, str) else None
