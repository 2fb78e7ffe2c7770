"""The parts of the running service that its use cases work with."""

from dataclasses import dataclass

from automap.service.planners.pool import PlannerPool
from automap.service.queues.dispatcher import Dispatcher
from automap.service.settings import Settings
from automap.service.storage.database import Database


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Settings, the database, the planner processes of requests, and those of the queue."""

    settings: Settings
    database: Database
    planners: PlannerPool
    dispatcher: Dispatcher
