from typing import Annotated

from fastapi import Depends, Query, Response

from automap.planner.spec import Name
from automap.service.api.bodies import body_docs, body_of
from automap.service.api.dependencies import ReadSessionDep, SessionDep
from automap.service.api.examples import CLUSTER_EXAMPLES
from automap.service.api.openapi import problem_responses, response_headers
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body, Page, PageQuery
from automap.service.schemas.catalogue import ClusterRecord, NewCluster
from automap.service.storage import clusters, profiles

router = router_for_keys("clusters", "/v1/clusters")

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
    clusters.check_gpus(body.content)
    profiles.checked_cluster(session, body.content, field="pools", with_defaults=False)
    record = clusters.add(session, body.content)
    response.headers["Location"] = f"/v1/clusters/{record.name}"
    return record


@router.get("", summary="List clusters", responses=problem_responses(422, 503))
def list_clusters(
    query: Annotated[PageQuery, Query()], session: ReadSessionDep
) -> Page[ClusterRecord]:
    """Stored clusters, newest first, page by page."""
    return clusters.list_clusters(session, query)


@router.get("/{name}", summary="Get a cluster", responses=problem_responses(404, 422, 503))
def get_cluster(name: Name, session: ReadSessionDep) -> ClusterRecord:
    """A stored cluster."""
    return clusters.find(session, name)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    summary="Delete a cluster",
    responses=problem_responses(404, 422, 503),
)
def delete_cluster(name: Name, session: SessionDep) -> None:
    """Forget a cluster. Plans made with it keep its definition."""
    clusters.remove(session, name)
