from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request, Response
from sqlalchemy.orm import Session

from automap.planner import ExplainOptions, Explanation, Launch, Replan, ReplanOptions, Simulation
from automap.planner.plan import PlanCosts, PlanDifference, plan_costs, plan_difference
from automap.planner.spec import JobSpec
from automap.service.api.bodies import body_docs, body_of, patch_docs
from automap.service.api.conditional import NOT_MODIFIED, KnownHeader, unless_known
from automap.service.api.csv_lists import csv_response, wants_csv
from automap.service.api.dependencies import (
    DatabaseDep,
    KeyDep,
    PreferHeader,
    ReadSessionDep,
    ServiceDep,
    SessionDep,
    ShortReadsDep,
)
from automap.service.api.examples import (
    COMPARE_EXAMPLES,
    DESCRIPTION_EXAMPLES,
    EXPLAIN_EXAMPLES,
    FRONT_EXAMPLES,
    REPLAN_EXAMPLES,
    SIMULATE_EXAMPLES,
    SPEC_EXAMPLES,
    WHAT_IF_EXAMPLES,
)
from automap.service.api.openapi import CSV_TOO, problem_responses, response_headers
from automap.service.api.owners import OwnersDep
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body, Page
from automap.service.schemas.descriptions import DescriptionPatch, NewDescription
from automap.service.schemas.history import HistoryPage, HistoryQuery, PlanHistory
from automap.service.schemas.plans import PlanQuery, PlanRecord, PlanSummary
from automap.service.schemas.studies import (
    CompareRequest,
    Comparison,
    FrontRecord,
    FrontRequest,
    SimulateRequest,
    WhatIfRecord,
    WhatIfRequest,
)
from automap.service.storage import descriptions, history, plan_documents, plan_records
from automap.service.use_cases import plans, several_plans, studies
from automap.service.use_cases.service_parts import ServiceParts

router = router_for_keys("plans", "/v1/plans")

SpecBody = Annotated[Body[JobSpec], Depends(body_of(JobSpec, what="The job spec"))]
CompareBody = Annotated[
    Body[CompareRequest], Depends(body_of(CompareRequest, what="The comparison"))
]
SimulateBody = Annotated[
    Body[SimulateRequest], Depends(body_of(SimulateRequest, what="The simulation", optional=True))
]
FrontBody = Annotated[Body[FrontRequest], Depends(body_of(FrontRequest, what="The request"))]
WhatIfBody = Annotated[Body[WhatIfRequest], Depends(body_of(WhatIfRequest, what="The request"))]
ExplainBody = Annotated[
    Body[ExplainOptions], Depends(body_of(ExplainOptions, what="The options", optional=True))
]
DescriptionBody = Annotated[
    Body[DescriptionPatch], Depends(body_of(DescriptionPatch, what="The description"))
]
ReplanBody = Annotated[
    Body[ReplanOptions], Depends(body_of(ReplanOptions, what="The situation", optional=True))
]
ExportTarget = Annotated[
    str,
    Query(max_length=100, description="Framework, for example verl@0.9.1, or verl"),
]
_UNFINISHED = ("queued", "running")


@router.post(
    "",
    status_code=201,
    response_model=PlanRecord,
    summary="Plan a job",
    responses={
        201: {"description": "Planned and stored", "headers": response_headers("Location")},
        202: {
            "model": PlanRecord,
            "description": "Queued; poll the Location",
            "headers": response_headers("Location", "Retry-After", "Preference-Applied"),
        },
        **problem_responses(400, 409, 413, 415, 422, 503, 504),
    },
    openapi_extra=body_docs(JobSpec, SPEC_EXAMPLES),
)
def create_plan(
    body: SpecBody,
    described: Annotated[NewDescription, Query()],
    service: ServiceDep,
    idempotency_key: KeyDep,
    prefer: PreferHeader = None,
) -> Response:
    """Find the best placement of a job, prove how good it is, and store it.

    Answers 201 with the plan once it is found. With `Prefer: respond-async` it answers 202 at once;
    poll the Location until `status` is `succeeded` or `failed`. A bad spec, and a job that fits no
    placement, are answered 422 and nothing is stored. The query names and labels the plan.
    """
    respond_async = "respond-async" in (prefer or "").lower()
    record = plans.post_plan(
        service, body, described, key=idempotency_key, respond_async=respond_async
    )
    headers = {"Location": f"/v1/plans/{record.plan_id}", **_later(record.status)}
    if respond_async:
        headers["Preference-Applied"] = "respond-async"
    status = 201 if record.status == "succeeded" else 202
    return Response(record.json, status, headers, media_type="application/json")


@router.get(
    "",
    summary="List plans",
    response_model=Page[PlanSummary],
    responses={200: CSV_TOO, **problem_responses(422, 503)},
)
def list_plans(
    query: Annotated[PlanQuery, Query()], request: Request, database: DatabaseDep
) -> Response | Page[PlanSummary]:
    """Stored plans, newest first, page by page, without their documents; or all as CSV."""
    if not wants_csv(request, query):
        with database.reading() as session:
            return plan_records.list_plans(session, query)

    def page(session: Session, cursor: str | None, limit: int) -> Page[PlanSummary]:
        asked = query.model_copy(update={"cursor": cursor, "limit": limit})
        return plan_records.list_plans(session, asked)

    return csv_response(database, list(PlanSummary.model_fields), page, file="plans.csv")


@router.get("/history", summary="Compare plans with runs", responses=problem_responses(422, 503))
def list_plan_history(
    query: Annotated[HistoryQuery, Query()], session: ReadSessionDep
) -> HistoryPage:
    """Predicted against actual of the runs of all plans, newest first, and how wrong that was."""
    return history.history(session, query)


@router.get(
    "/{plan_id}",
    summary="Get a plan",
    response_model=PlanRecord,
    responses={**NOT_MODIFIED, **problem_responses(404, 422, 503)},
)
async def get_plan(
    plan_id: UUID, reads: ShortReadsDep, if_none_match: KnownHeader = None
) -> Response:
    """A plan with its spec, or the state of the job that will make it, or why there is none."""
    found = await reads.find(
        lambda session: plan_documents.unparsed_record(session, plan_id),
        lambda session: plan_documents.stored_record(session, plan_id),
    )
    return unless_known(found.json, if_none_match, headers=_later(found.status))


@router.get(
    "/{plan_id}/history",
    summary="Compare a plan with its runs",
    responses=problem_responses(404, 409, 422, 503),
)
def get_plan_history(plan_id: UUID, session: ReadSessionDep) -> PlanHistory:
    """Predicted against actual of every call, run by run and over time within each run."""
    return history.history_of_plan(session, plan_id)


@router.patch(
    "/{plan_id}",
    summary="Describe a plan",
    responses=problem_responses(400, 404, 413, 415, 422, 503),
    openapi_extra=patch_docs(DescriptionPatch, DESCRIPTION_EXAMPLES),
)
def describe_plan(
    plan_id: UUID, body: DescriptionBody, session: SessionDep, owners: OwnersDep
) -> PlanSummary:
    """Rename a plan, note something of it, put labels on it or take them off (RFC 7396).

    A key with the scope `admin` may give it to another `owner`; its jobs stay whose they are.
    """
    owners.note(descriptions.describe_plan(session, plan_id, owners.may_give(body.content)))
    session.flush()
    return plan_records.plan_summary(session, plan_id)


@router.delete(
    "/{plan_id}",
    status_code=204,
    summary="Delete a plan",
    responses=problem_responses(404, 409, 422, 503),
)
def delete_plan(plan_id: UUID, session: SessionDep) -> None:
    """Delete a plan with the records of its jobs; what these have cost stays.

    One that is queued or running is no longer made. While one of its jobs is not over, it stays.
    """
    plan_records.delete_plan(session, plan_id)


@router.post(
    "/{plan_id}/cancel",
    summary="Cancel a plan",
    responses=problem_responses(404, 409, 422, 503),
)
def cancel_plan(plan_id: UUID, session: SessionDep) -> PlanRecord:
    """End a plan that is queued or running, and keep its record; jobs that wait for it fail.

    One that was cancelled before is answered likewise; one that has ended otherwise is 409.
    """
    return plans.cancel_plan(session, plan_id)


@router.post(
    "/pareto",
    status_code=201,
    summary="Find the Pareto front",
    responses=problem_responses(400, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(FrontRequest, FRONT_EXAMPLES),
)
def create_front(body: FrontBody, service: ServiceDep) -> FrontRecord:
    """All plans that no other beats in both the seconds and the price of an iteration, stored.

    Each is the fastest plan on its nodes; the spec of each keeps all other nodes free.
    """
    return several_plans.find_front(service, body.content)


@router.post(
    "/what-if",
    status_code=201,
    summary="Plan a job on several clusters",
    responses={
        201: {"description": "Planned and stored"},
        202: {"model": WhatIfRecord, "description": "Queued; poll the plans"},
        **problem_responses(400, 413, 415, 422, 503, 504),
    },
    openapi_extra=body_docs(WhatIfRequest, WHAT_IF_EXAMPLES),
)
def create_variants(
    body: WhatIfBody, service: ServiceDep, response: Response, prefer: PreferHeader = None
) -> WhatIfRecord:
    """The best plan for each number of nodes and type of GPU of one pool, stored.

    A cluster on which nothing fits has the reasons instead. With `Prefer: respond-async` every plan
    is queued, and the answer 202 has the records to poll.
    """
    respond_async = "respond-async" in (prefer or "").lower()
    answer = several_plans.plan_variants(service, body.content, respond_async=respond_async)
    if respond_async:
        response.status_code = 202
        response.headers["Preference-Applied"] = "respond-async"
    return answer


@router.post(
    "/{plan_id}/compare",
    summary="Compare a plan with strategies",
    responses=problem_responses(400, 404, 409, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(CompareRequest, COMPARE_EXAMPLES),
)
def compare_plan(plan_id: UUID, body: CompareBody, service: ServiceDep) -> Comparison:
    """What named strategies would cost on the same job, or why they cannot run it."""
    return studies.compare(service, _stored(service, plan_id), body.content.strategies)


@router.get(
    "/{plan_id}/explain",
    summary="Explain a plan",
    responses=problem_responses(404, 409, 422, 503, 504),
)
def explain_plan(plan_id: UUID, service: ServiceDep) -> Explanation:
    """Why this plan and no other: solved alternatives, how wrong estimates may be, and regret."""
    return studies.explain(service, _stored(service, plan_id), ExplainOptions())


@router.post(
    "/{plan_id}/explain",
    summary="Explain parts of a plan",
    responses=problem_responses(400, 404, 409, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(ExplainOptions, EXPLAIN_EXAMPLES, optional=True),
)
def explain_plan_in_part(plan_id: UUID, body: ExplainBody, service: ServiceDep) -> Explanation:
    """Why this plan and no other, in part: which parts, how many fewer GPUs, how many scenarios."""
    return studies.explain(service, _stored(service, plan_id), body.content)


@router.get(
    "/{plan_id}/export",
    summary="Export a plan to another framework",
    responses=problem_responses(404, 409, 422, 503, 504),
)
def export_plan(plan_id: UUID, target: ExportTarget, service: ServiceDep) -> Launch:
    """A complete launch: settings, each with its decision, and a script that starts Ray with them.

    A plan that the framework cannot be told is answered 422 with every reason.
    """
    return studies.export(service, _stored(service, plan_id), target)


@router.get(
    "/{plan_id}/diff",
    summary="Compare two stored plans",
    responses=problem_responses(404, 409, 422, 503),
)
def diff_plans(
    plan_id: UUID, other: Annotated[UUID, Query(alias="with")], session: ReadSessionDep
) -> PlanDifference:
    """This plan and another, of the same job or not: seconds, bytes, price, placement, spec."""
    before, after = (plan_records.made_plan(session, each) for each in (plan_id, other))
    return plan_difference(before, after)


@router.get(
    "/{plan_id}/costs",
    summary="Price a plan before it runs",
    responses=problem_responses(404, 409, 422, 503),
)
def get_plan_costs(plan_id: UUID, session: ReadSessionDep) -> PlanCosts:
    """What an iteration, the run and a million tokens will cost, in all and by type of GPU.

    What runs have cost is `GET /v1/costs`.
    """
    return plan_costs(plan_records.made_plan(session, plan_id))


@router.post(
    "/{plan_id}/replan",
    summary="Keep a running plan, or move",
    responses=problem_responses(400, 404, 409, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(ReplanOptions, REPLAN_EXAMPLES, optional=True),
)
def replan_plan(plan_id: UUID, body: ReplanBody, service: ServiceDep) -> Replan:
    """With measured seconds, or nodes lost or added: the gain, what a move costs, the break-even.

    Nothing is stored. `placement` of the answer is what POST /v1/estimates takes.
    """
    return studies.replan(service, _stored(service, plan_id), body.content)


@router.post(
    "/{plan_id}/simulate",
    summary="Simulate a plan's iterations",
    responses=problem_responses(400, 404, 409, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(SimulateRequest, SIMULATE_EXAMPLES, optional=True),
)
def simulate_plan(plan_id: UUID, body: SimulateBody, service: ServiceDep) -> Simulation:
    """Iterations as discrete events, with prompt and response lengths drawn anew in each.

    Median and 95th percentile of an iteration, each call's spread, and which GPUs stand idle.
    """
    return studies.simulate(service, _stored(service, plan_id), body.content)


def _stored(service: ServiceParts, plan_id: UUID) -> PlanRecord:
    with service.database.reading() as session:
        return plan_records.find_plan(session, plan_id)


def _later(status: str) -> dict[str, str]:
    return {"Retry-After": "1"} if status in _UNFINISHED else {}
