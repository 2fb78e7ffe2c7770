from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from planner.errors import SpecError
from planner.spec import Name
from service import problems, profiles, store
from service.bodies import Body, body_docs, body_of
from service.database import ReadSessionDep, SessionDep
from service.examples import CLUSTER_EXAMPLES
from service.openapi import problem_responses, response_headers
from service.problems import ProblemError
from service.schemas import ClusterRecord, NewCluster, Page, PageQuery

router = APIRouter(prefix="/clusters", tags=["clusters"])

ClusterBody = Annotated[Body[NewCluster], Depends(body_of(NewCluster, what="The cluster"))]


@router.post(
    "",
    status_code=201,
    summary="Store a cluster",
    responses={
        201: {"description": "Stored", "headers": response_headers("Location")},
        **problem_responses(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=body_docs(NewCluster, CLUSTER_EXAMPLES),
)
def create_cluster(body: ClusterBody, session: SessionDep, response: Response) -> ClusterRecord:
    """Store a cluster under a name; a spec may then say `cluster: NAME`."""
    try:
        store.check_gpus(body.content)
        profiles.checked_cluster(session, body.content, field="pools", with_defaults=False)
    except SpecError as error:
        raise ProblemError(problems.problem_of(error, body.data)) from None
    record = store.add_cluster(session, body.content)
    response.headers["Location"] = f"/v1/clusters/{record.name}"
    return record


@router.get("", summary="List clusters", responses=problem_responses(422, 503))
def list_clusters(
    query: Annotated[PageQuery, Query()], session: ReadSessionDep
) -> Page[ClusterRecord]:
    """Stored clusters, newest first, page by page."""
    return store.list_clusters(session, query)


@router.get("/{name}", summary="Get a cluster", responses=problem_responses(404, 422, 503))
def get_cluster(name: Name, session: ReadSessionDep) -> ClusterRecord:
    """A stored cluster."""
    return store.find_cluster(session, name)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    summary="Delete a cluster",
    responses=problem_responses(404, 422, 503),
)
def delete_cluster(name: Name, session: SessionDep) -> None:
    """Forget a cluster. Plans made with it keep its definition."""
    store.delete_cluster(session, name)
