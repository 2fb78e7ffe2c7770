from typing import Annotated

from fastapi import Query, Request
from sqlalchemy.exc import SQLAlchemyError

from automap import migrations
from automap.service.api.dependencies import DatabaseDep
from automap.service.api.openapi import problem_responses
from automap.service.api.routing import open_router
from automap.service.errors.domain import NotReadyError
from automap.service.schemas.catalogue import Health

router = open_router("health")
ReadsOnly = Annotated[
    bool, Query(description="True: whether it can answer what reads, also where writes fail")
]


@router.get("/healthz", summary="Is the process alive?")
async def check_health() -> Health:  # on the event loop: threads may all be at work
    """Answers as long as the process serves requests; touches nothing else."""
    return Health()


@router.get("/readyz", summary="Can it answer requests?", responses=problem_responses(503))
def check_readiness(
    request: Request, database: DatabaseDep, reads_only: ReadsOnly = False
) -> Health:
    """Answers 200 when the database can be read and written, and has the schema that it should.

    Where writes fail, as on a full disk, the 503 says why; reading goes on, and `reads_only` asks
    for that alone. This is what the service has seen of its writes: it is 503 from one that failed
    on, for a minute at least; then a small write is tried.
    """
    expected = request.app.state.head_revision
    try:
        with database.reading() as session:
            current = migrations.current_revision(session.connection())
        why = None if reads_only else database.why_not_writable()
    except SQLAlchemyError:
        raise NotReadyError("The database does not answer") from None
    if current != expected:
        raise NotReadyError(f"The database is at revision {current}, this code expects {expected}")
    if why is not None:
        raise NotReadyError(f"The database cannot be written: {why}")
    return Health()
