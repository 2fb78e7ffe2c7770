from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Response

from automap.service.api.bodies import body_docs, body_of
from automap.service.api.dependencies import ReadSessionDep, SessionDep
from automap.service.api.examples import BUDGET_EXAMPLES
from automap.service.api.openapi import problem_responses, response_headers
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body, Page, PageQuery
from automap.service.schemas.budgets import BudgetRecord, NewBudget
from automap.service.storage import budgets

router = router_for_keys("jobs", "/v1/budgets")

BudgetBody = Annotated[Body[NewBudget], Depends(body_of(NewBudget, what="The budget"))]


@router.post(
    "",
    status_code=201,
    summary="Set a budget",
    responses={
        201: {"description": "Set", "headers": response_headers("Location")},
        **problem_responses(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=body_docs(NewBudget, BUDGET_EXAMPLES),
)
def create_budget(body: BudgetBody, session: SessionDep, response: Response) -> BudgetRecord:
    """Have jobs of an owner, or with a label, warned when a month's sum is used up, or will be.

    Nothing is refused: the answer to `POST /v1/jobs` has the warning, `GET /v1/costs` and a metric.
    """
    made = budgets.add(session, body.content)
    response.headers["Location"] = f"/v1/budgets/{made.id}"
    return made


@router.get("", summary="List budgets", responses=problem_responses(422, 503))
def list_budgets(
    query: Annotated[PageQuery, Query()], session: ReadSessionDep
) -> Page[BudgetRecord]:
    """Budgets with what was spent this month and is expected by its end, newest first."""
    return budgets.list_budgets(session, query)


@router.delete(
    "/{budget_id}",
    status_code=204,
    response_class=Response,
    summary="Delete a budget",
    responses=problem_responses(404, 422, 503),
)
def delete_budget(budget_id: UUID, session: SessionDep) -> None:
    """Forget a budget; what was spent stays in the costs."""
    budgets.remove(session, budget_id)
