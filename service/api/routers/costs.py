from typing import Annotated

from fastapi import Query

from automap.service.api.dependencies import ReadSessionDep
from automap.service.api.openapi import problem_responses
from automap.service.api.routing import router_for_keys
from automap.service.schemas.costs import CostQuery, Costs
from automap.service.storage import budgets, costs

router = router_for_keys("jobs", "/v1/costs")


@router.get("", summary="Sum up what runs have cost", responses=problem_responses(422, 503))
def list_costs(query: Annotated[CostQuery, Query()], session: ReadSessionDep) -> Costs:
    """GPU hours and price of runs by day, owner, model, plan or label; those that run up to now.

    The price is that of the plan's cluster; GPUs without one are counted in hours. What was spent
    stays when plans and jobs are deleted.
    """
    found = costs.costs(session, query)
    return found.model_copy(update={"budgets": budgets.all_budgets(session)})
