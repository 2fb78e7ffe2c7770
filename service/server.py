"""Run the service: migrate, then serve until a signal ends it."""

import logging

import uvicorn

import migrations
from service.app import create_app
from service.database import Database
from service.settings import Settings

SHUTDOWN_SECONDS = 10
"""What a request may still take once the service has been asked to stop."""


def serve(settings: Settings) -> None:
    """Bring the database up to date and answer requests; returns after SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    migrate(settings)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def migrate(settings: Settings) -> None:
    """Bring the database to the newest revision; harmless where it is there already."""
    database = Database(settings.database_url)
    try:
        migrations.upgrade(database.engine)
    finally:
        database.dispose()


if __name__ == "__main__":
    serve(Settings())
