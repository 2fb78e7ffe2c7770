from fastapi import Request, Response
from prometheus_client.exposition import choose_encoder

from automap.service.api.openapi import problem_responses
from automap.service.api.routing import router_for_keys

router = router_for_keys("health", prefix="")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "In the text format of Prometheus, or of OpenMetrics if that is asked",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        },
        **problem_responses(),
    },
)
def read_metrics(request: Request) -> Response:
    """Requests, queues, planner processes, proofs, leases: of this process, and of the database.

    With keys it asks for one, as Prometheus sends it by `authorization.credentials`.
    """
    encoder, content_type = choose_encoder(request.headers.get("accept", ""))
    text = encoder(request.app.state.metrics.registry)
    return Response(text, headers={"Content-Type": content_type})
