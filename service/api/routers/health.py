from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from automap import migrations
from automap.service.api.dependencies import DatabaseDep
from automap.service.api.openapi import problem_responses
from automap.service.api.routing import open_router
from automap.service.errors.domain import NotReadyError
from automap.service.schemas.catalogue import Health

router = open_router("health")


@router.get("/healthz", summary="Is the process alive?")
async def check_health() -> Health:  # on the event loop: threads may all be at work
    """Answers as long as the process serves requests; touches nothing else."""
    return Health()


@router.get("/readyz", summary="Can it answer requests?", responses=problem_responses(503))
def check_readiness(request: Request, database: DatabaseDep) -> Health:
    """Answers 200 when the database is reachable and its schema is the one this code expects."""
    expected = request.app.state.head_revision
    try:
        with database.reading() as session:
            current = migrations.current_revision(session.connection())
    except SQLAlchemyError:
        raise NotReadyError("The database does not answer") from None
    if current != expected:
        raise NotReadyError(f"The database is at revision {current}, this code expects {expected}")
    return Health()
