"""`automap profile --on-cluster` against a real service; the test itself plays the worker."""

import json
from uuid import UUID

import pytest
from sqlalchemy import delete, select

from automap.service.errors.domain import ProfileFailedError
from automap.service.queues import job_queue
from automap.service.schemas.measurements import ProfileJobRecord
from automap.service.schemas.problems import problem_of
from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow
from tests.cli.commands import call, jobs
from tests.service.support.job_claims import keep, printed, taken
from tests.service.support.measured_jobs import (
    add_measurement,
    finished_measurement,
    measured_kind,
    progress,
)
from tests.service.support.servers import serving
from tests.service.support.workers import eventually


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service with a database of its own: its address, and the database."""
    url = f"sqlite:///{tmp_path_factory.mktemp('measure')}/automap.db"
    with serving(url) as running:
        database = Database(url)
        yield running.address, database
        database.dispose()


@pytest.fixture
def server(served):
    return served[0]


@pytest.fixture
def database(served):
    """That of the service, without jobs."""
    with served[1].transaction() as session:
        session.execute(delete(JobRow))
    return served[1]


def queued(database: Database) -> list[UUID]:
    with database.reading() as session:
        return list(session.scalars(select(JobRow.id)))


def measure(database: Database, *, lost: str = "") -> None:
    """What a worker writes about a measurement."""
    held = taken(database)
    report = finished_measurement("cpu", failures=(lost,) if lost else ())
    keep(database, held, printed(progress(done=8), measured_kind(), report))
    with database.transaction() as session:
        if lost:
            assert job_queue.fail(session, held, problem_of(ProfileFailedError(lost)))
        else:
            assert job_queue.succeed(session, held)


@pytest.mark.slow
def test_a_measurement_is_started_and_followed_to_its_end(server, database):
    asked = ("--models", "tiny-llama", "--budget", "60", "--strict", "--make-default")
    process = jobs("profile", "--on-cluster", *asked, "--follow", server=server)
    (job_id,) = eventually(lambda: queued(database))
    measure(database)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "profile of the cluster: succeeded, 2 s of a budget of 60 s" in out
    assert "profile: " in out  # the cluster, ready for a job spec
    assert "cpu: gemm: 8 shapes" in err
    assert "cpu: stored as " in err
    with database.reading() as session:
        settings = session.get_one(JobRow, job_id).settings
    assert settings["models"]["tiny-llama"]["num_layers"] == 2
    assert (settings["strict"], settings["make_default"]) == (True, True)


def test_what_could_not_be_measured_fails_the_command(server, database, capsys):
    job_id = str(add_measurement(database))
    measure(database, lost="node-7: was lost")
    code, out, err = call(capsys, "jobs", job_id, "--follow", "--server", server)
    assert code == 1
    assert "node-7: was lost" in err
    assert "profile of the cluster: failed" in out
    code, out, _ = call(capsys, "jobs", job_id, "--server", server, "--json")
    assert code == 0
    assert ProfileJobRecord.model_validate_json(out).profiles[0].pool == "cpu"
    code, out, _ = call(capsys, "jobs", "--server", server)
    assert code == 0
    assert "profile of the" in out


def test_without_follow_it_is_queued(server, database, capsys):
    code, out, _ = call(capsys, "profile", "--on-cluster", "--server", server)
    assert code == 0
    (job_id,) = queued(database)
    assert out == f"Queued as {server}/v1/jobs/{job_id}\n"
    code, out, _ = call(capsys, "jobs", str(job_id), "--cancel", "--server", server, "--json")
    assert json.loads(out)["status"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--on-cluster",), "--on-cluster: give --server URL"),
        (("--on-cluster", "--server", "http://x", "--output", "f"), "leave out --output"),
        (("--on-cluster", "--server", "http://x", "--ray-address", "a"), "leave out --ray-address"),
        (("--follow",), "--follow: give --on-cluster"),
    ],
)
def test_options_that_do_not_go_together_are_named(capsys, arguments, message):
    code, out, err = call(capsys, "profile", *arguments)
    assert (code, out) == (2, "")
    assert message in err
