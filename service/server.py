"""Run the service: migrate, then serve until a signal ends it."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import uvicorn
from sqlalchemy import inspect

from automap import migrations
from automap.executor.private_folders import is_open_to_all
from automap.executor.telemetry import traces
from automap.migrations import text_index
from automap.service.api.auth import Keys
from automap.service.api.connections import allow_many_files, limited_protocol
from automap.service.api.sockets import bound_sockets
from automap.service.app import create_app
from automap.service.environment import hide_environment
from automap.service.settings import Settings, misspelt_settings
from automap.service.storage import api_keys
from automap.service.storage.database import Database, sqlite_file
from automap.service.storage.tables import ApiKeyRow
from automap.service.telemetry import logs
from automap.service.use_cases.service_parts import ServiceParts
from automap.service.worker.process import WorkerProcess

log = logging.getLogger(__name__)


_TURN_SECONDS = 5e-4
"""How long one thread may keep the interpreter from another that wants it. Python's own 5 ms are
what a short answer waits for whenever a thread stores a plan."""
_TO_ANSWER_SECONDS = 2.0
"""What requests have to tell their clients that they were given up."""


class OpenServiceError(Exception):
    """Anybody on the network could run code, and the settings do not say that this is meant."""


class _Server(uvicorn.Server):
    """Says where it answers, and what else ends when it is asked to.

    Uvicorn accepts no connection any more and waits for requests in flight. Meanwhile the queue and
    the worker let go of what they hold, so that others take it up at once; and before the wait is
    over, what still is being planned is given up, so that its client is told.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        at_once: Sequence[Callable[[], None]],
        at_last: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._at_once = at_once
        self._at_last = at_last

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = self.config.timeout_graceful_shutdown or 0
        ending = threading.Timer(max(limit - _TO_ANSWER_SECONDS, limit / 2), self._at_last)
        ending.daemon = True
        ending.start()
        threads = [threading.Thread(target=each, daemon=True) for each in self._at_once]
        for thread in threads:
            thread.start()
        await super().shutdown(sockets)
        ending.cancel()
        for thread in threads:
            thread.join()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            log.info("Serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)


def serve(settings: Settings, worker: WorkerProcess | None = None) -> None:
    """Bring the database up to date and answer requests; returns after SIGINT or SIGTERM.

    A worker is started once the database is ready, and stopped at the end.

    Raises:
        OpenServiceError: it would be open to the network without keys.
        AddressError: it cannot listen there; the database is as it was.
    """
    hide_environment()
    sys.setswitchinterval(_TURN_SECONDS)
    logs.set_up(settings.logs)
    for line in misspelt_settings(os.environ, settings.job_environment):
        log.warning(line)
    traces.start("automap-api")
    allow_many_files()
    with ExitStack() as listening:
        # Bound, but not yet listening: nobody is answered before the database is ready.
        sockets = bound_sockets(settings.host, settings.port)
        for listener in sockets:
            listening.enter_context(listener)
        _refuse_open(settings)
        migrate(settings)
        if worker is not None:
            worker.start()
            listening.callback(worker.stop)
        app = create_app(settings)
        gc.collect()
        gc.freeze()  # what was imported stays: a request need not wait while all of it is looked at
        service: ServiceParts = app.state.service
        keys: Keys = app.state.keys
        keys.look()
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                http=limited_protocol(
                    request_seconds=settings.request_seconds,
                    is_our_users_alone=lambda: settings.on_loopback and not keys.are_asked_for,
                ),
                timeout_graceful_shutdown=settings.shutdown_seconds,
            ),
            at_once=[service.dispatcher.stop, *([] if worker is None else [worker.stop])],
            at_last=service.planners.stop,
        )
        # uvicorn raises the signal again after it has shut down; SIGTERM, too, lets us go on then.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server.run(sockets=sockets)
        except KeyboardInterrupt:
            return
        except SystemExit:
            # The application's start-up failed and the log says why; uvicorn's own code for it
            # is the one that means "no feasible plan" here.
            sys.exit(1)


def _refuse_open(settings: Settings) -> None:
    if settings.on_loopback or settings.api_keys or settings.allow_without_keys:
        return
    exist, usable = _stored_keys(settings)
    if usable:
        return
    at = f"{settings.host}:{settings.port}"
    raise OpenServiceError(
        f"nobody could use {at}: all keys are revoked or expired; make one with automap keys create"
        if exist
        else f"anybody who reaches {at} could run code: make a key with automap keys create, set "
        "AUTOMAP_API_KEYS, listen on 127.0.0.1, or say AUTOMAP_ALLOW_WITHOUT_KEYS=1"
    )


def _stored_keys(settings: Settings) -> tuple[bool, bool]:
    """Whether the database, migrated or not, has keys, and whether one of them opens."""
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        return False, False  # a look would make the file
    database = Database(settings.database_url)
    try:
        if not inspect(database.engine).has_table(ApiKeyRow.__tablename__):
            return False, False
        with database.reading() as session:
            return api_keys.is_any(session), api_keys.is_any_usable(session)
    finally:
        database.dispose()


def migrate(settings: Settings) -> None:
    """Bring the database to the newest revision; harmless where it is there already."""
    database = Database(settings.database_url)
    try:
        migrations.upgrade(database.engine)
        text_index.make(database.engine)
        log.info("the database is at revision %s", migrations.head_revision())
    finally:
        database.dispose()
    file = sqlite_file(settings.database_url)
    if file is not None and is_open_to_all(file):
        log.warning("every user of this machine can read the database %s: chmod 600 it", file)
