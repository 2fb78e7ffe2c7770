"""The parts of the running service that its use cases work with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from automap.service.planners.pool import PlannerPool
from automap.service.queues.dispatcher import Dispatcher
from automap.service.schemas.access import ALL_SCOPES, Scope
from automap.service.schemas.studies import StrategyDescription
from automap.service.settings import Settings
from automap.service.storage.database import Database


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: whose plans and jobs those are that a request makes."""

    owner: str = "local"
    scopes: frozenset[Scope] = ALL_SCOPES
    key_id: str | None = None
    """Which key was sent; none: none was asked for."""


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Settings, the database, the planner processes of requests, and those of the queue."""

    settings: Settings
    database: Database
    planners: PlannerPool
    dispatcher: Dispatcher
    is_wanted: Callable[[], bool] = lambda: True
    """Whether the client of the request that is answered is still there."""
    caller: Caller = Caller()
    """Who sent the request that is answered."""
    strategies: list[StrategyDescription] = field(default_factory=list)
    """What there is to compare with, once a planner process has told."""
