"""What the routes of several plans do: the Pareto front, what-if; each plan is stored."""

from collections.abc import Sequence

from pydantic import JsonValue

from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.spec import JobSpec
from automap.planner.studies.result import Front, Variant, WhatIf
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.planners.messages import FrontRequest, WhatIfRequest
from automap.service.queues import plan_queue
from automap.service.schemas.body import Body
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.studies import FrontRecord, VariantRecord, WhatIfRecord
from automap.service.schemas.studies import FrontRequest as FrontBody
from automap.service.schemas.studies import WhatIfRequest as WhatIfBody
from automap.service.storage import plan_records, profiles
from automap.service.use_cases.plans import ask, resolve_spec, spec_at
from automap.service.use_cases.service_parts import ServiceParts


def find_front(service: ServiceParts, body: Body[FrontBody]) -> FrontRecord:
    """The front of a job; its plans are stored."""
    spec = resolve_spec(service, body.content.spec, prefix="spec.")
    request = FrontRequest(spec=spec, tolerance=body.content.tolerance)
    limit = planning_deadline_seconds(
        spec, overhead_seconds=service.settings.planning_overhead_seconds
    )
    front = Front.model_validate(ask(service, request, limit_seconds=limit, prefix="spec."))
    return FrontRecord(
        plans=_stored(service, front.plans, cluster_name=_name(body.content.spec)),
        **{name: getattr(front, name) for name in FrontRecord.model_fields if name != "plans"},
    )


def plan_variants(
    service: ServiceParts, body: Body[WhatIfBody], *, respond_async: bool
) -> WhatIfRecord:
    """A job planned on several clusters, now or as soon as the queue allows."""
    asked = body.content
    spec = resolve_spec(service, asked.spec, prefix="spec.")
    name = _name(asked.spec)
    defaults = _default_profiles(service, body)
    if respond_async:
        return _queued(service, body, spec, defaults)
    request = WhatIfRequest(
        spec=spec, nodes=asked.nodes, gpus=asked.gpus, pool=asked.pool, profiles=defaults
    )
    variants = max(len(asked.nodes), 1) * max(len(asked.gpus), 1)
    _refuse_long(service, spec, variants)
    limit = variants * planning_deadline_seconds(spec, overhead_seconds=0.0)
    answer = WhatIf.model_validate(
        ask(
            service,
            request,
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


def _default_profiles(service: ServiceParts, body: Body[WhatIfBody]) -> dict[str, str]:
    """Those that pools of the GPU types asked for are priced with."""
    folder = service.settings.profiles_folder
    return profiles.lay_out_defaults(service.database, folder, body.content.gpus)


def _queued(
    service: ServiceParts, body: Body[WhatIfBody], spec: JobSpec, defaults: dict[str, str]
) -> WhatIfRecord:
    """A queued plan for every cluster."""
    from automap.planner.studies.what_if import cases_of

    asked = body.content
    with spec_at("spec."):
        # Profiles are laid out where planner processes run, not here.
        cases = cases_of(
            spec,
            nodes=asked.nodes,
            gpus=asked.gpus,
            pool=asked.pool,
            profiles=defaults,
            with_profiles=False,
        )
    variants = []
    with service.database.transaction() as session:
        for case in cases:
            row = plan_records.new_plan_row(case.job.spec, cluster_name=_name(asked.spec))
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
            row = plan_records.new_plan_row(plan.spec, cluster_name=cluster_name)
            document: dict[str, JsonValue] = plan.model_dump(mode="json", by_alias=True)
            plan_queue.store_succeeded(session, row, document)
            session.flush()
            records.append(plan_records.plan_record(row))
    return records


def _name(spec: JobSpec) -> str | None:
    return spec.cluster if isinstance(spec.cluster, str) else None
