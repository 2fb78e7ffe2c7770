from typing import Annotated

from fastapi import Depends

from automap.planner import Plan
from automap.service.api.bodies import body_docs, body_of
from automap.service.api.dependencies import ServiceDep
from automap.service.api.examples import ESTIMATE_EXAMPLES
from automap.service.api.openapi import problem_responses
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body
from automap.service.schemas.studies import EstimateRequest, StrategyDescription
from automap.service.use_cases import studies

router = router_for_keys("estimates")

EstimateBody = Annotated[
    Body[EstimateRequest], Depends(body_of(EstimateRequest, what="The estimate"))
]


@router.post(
    "/estimates",
    summary="Price a placement",
    responses=problem_responses(400, 413, 415, 422, 503, 504),
    openapi_extra=body_docs(EstimateRequest, ESTIMATE_EXAMPLES),
)
def create_estimate(body: EstimateBody, service: ServiceDep) -> Plan:
    """What a placement of your own would cost, by the same model; nothing is searched or stored.

    A placement that does not fit is answered 422 with the call whose memory overflows and by how
    many bytes.
    """
    return studies.estimate(service, body.content)


@router.get("/strategies", summary="List strategies", responses=problem_responses(503, 504))
def list_strategies(service: ServiceDep) -> list[StrategyDescription]:
    """The named ways to place a job that a plan can be compared with."""
    return studies.strategies(service)
