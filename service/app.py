"""The application: its parts put together, started and stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from automap import migrations
from automap.service.api import openapi, page
from automap.service.api.audit_log import AuditLog
from automap.service.api.auth import Keys
from automap.service.api.bodies import BodyLimit
from automap.service.api.error_responses import install_handlers
from automap.service.api.key_limits import KeyLimits
from automap.service.api.methods import CommonMethods
from automap.service.api.observation import Observation
from automap.service.api.origins import KnownOrigins
from automap.service.api.routers import (
    budgets,
    catalogue,
    clusters,
    costs,
    estimates,
    health,
    jobs,
    keys,
    metrics,
    plans,
    profiles,
)
from automap.service.api.scrape import DatabaseFigures
from automap.service.api.security_headers import SecurityHeaders
from automap.service.api.short_reads import ShortReads
from automap.service.planners.pool import PlannerPool
from automap.service.queues.dispatcher import Dispatcher
from automap.service.settings import Settings
from automap.service.storage.database import Database
from automap.service.telemetry.metrics import Metrics
from automap.service.use_cases.service_parts import ServiceParts

ROUTERS = tuple(
    each.router
    for each in (
        plans,
        jobs,
        costs,
        budgets,
        estimates,
        clusters,
        profiles,
        catalogue,
        keys,
        health,
        metrics,
    )
)
"""In the order of the API's description."""


def create_app(settings: Settings) -> FastAPI:
    """The service as an ASGI application; the database must have been migrated."""
    app = FastAPI(
        title="Automap",
        version=version("automap"),
        lifespan=_lifespan,
        docs_url=None,  # the framework's load from another host
        redoc_url=None,
    )
    database = Database(settings.database_url)
    app.state.settings = settings
    app.state.head_revision = migrations.head_revision()
    app.state.keys = known_keys = Keys(database, settings)
    app.state.limits = KeyLimits(settings)
    app.state.short_reads = ShortReads(database)
    app.state.metrics = figures = Metrics()
    figures.registry.register(DatabaseFigures(database))
    app.state.service = ServiceParts(
        settings=settings,
        database=database,
        planners=PlannerPool(
            size=settings.request_planners,
            max_waiting=settings.max_waiting_requests,
            profiles_folder=settings.profiles_folder,
            memory_bytes=settings.planner_memory_bytes,
            logs=settings.logs,
            metrics=figures,
        ),
        dispatcher=Dispatcher(database, settings, figures),
    )
    app.add_middleware(
        BodyLimit,
        max_body_bytes=settings.max_body_bytes,
        larger={profiles.PATH: settings.max_profile_bytes},
        seconds=settings.request_seconds,
    )
    app.add_middleware(CommonMethods, routes=app.routes)
    app.add_middleware(KnownOrigins, settings=settings, keys=known_keys)
    app.add_middleware(AuditLog, database=database, days=settings.audit_days)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Observation, metrics=figures)
    install_handlers(app)
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    page.install(app)
    openapi.install(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: ServiceParts = app.state.service
    service.planners.start()
    service.dispatcher.start()
    try:
        yield
    finally:
        service.planners.stop()
        service.dispatcher.stop()
        service.database.dispose()
