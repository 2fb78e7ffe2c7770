"""The queue, claim by claim. These commit for real, in a database without a server."""

import threading
import time
from uuid import UUID, uuid4

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from automap.planner.spec import JobSpec
from automap.service.queues import job_queue, plan_queue
from automap.service.queues.leases import Lease
from automap.service.queues.plan_queue import PlanClaim
from automap.service.runs.checked_settings import RunSettings
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.problems import problem_of
from automap.service.storage import job_records, plan_records
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.samples import small_spec
from tests.service.support.workers import run_settings

SPEC = JobSpec.model_validate(small_spec())


@pytest.fixture
def queued(database: Database) -> UUID:
    return enqueue(database)


def enqueue(database: Database, owner: str = "local", *, job_priority: int | None = None) -> UUID:
    """Queue a plan, and a job of this priority that waits for it."""
    with database.transaction() as session:
        row = plan_records.new_plan_row(SPEC, cluster_name=None)
        row.owner = owner
        plan_queue.enqueue(session, row)
        session.flush()
        if job_priority is not None:
            settings = RunSettings.model_validate(run_settings())
            job = job_records.new_job_row(row, settings, owner=owner, priority=job_priority)
            job_queue.enqueue(session, job)
        return row.id


def claim(
    database: Database, *, lease_seconds: float = 60, max_attempts: int = 3
) -> PlanClaim | None:
    with database.transaction() as session:
        return plan_queue.claim(session, lease_seconds=lease_seconds, max_attempts=max_attempts)


def taken(database: Database, **changes: float) -> PlanClaim:
    held = claim(database, **changes)  # type: ignore[arg-type]
    assert held is not None
    return held


def record(database: Database, plan_id: UUID) -> PlanRecord:
    with database.reading() as session:
        return plan_records.find_plan(session, plan_id)


def fail(database: Database, held: PlanClaim) -> bool:
    with database.transaction() as session:
        return plan_queue.fail(session, held, problem_of(RuntimeError()))


def test_a_claim_takes_the_oldest_job(database: Database) -> None:
    ids = [enqueue(database) for _ in range(3)]
    assert [taken(database).plan_id for _ in ids] == ids
    assert claim(database) is None


def test_owners_take_turns(database: Database) -> None:
    ann = [enqueue(database, "ann") for _ in range(4)]
    bob = [enqueue(database, "bob") for _ in range(2)]
    cid = enqueue(database, "cid")
    expected = [ann[0], bob[0], cid, ann[1], bob[1], ann[2], ann[3]]
    assert [taken(database).plan_id for _ in expected] == expected


def test_a_plan_has_the_priority_of_the_job_that_waits_for_it(database: Database) -> None:
    plain = enqueue(database, "ann")
    low = enqueue(database, "bob", job_priority=-1)
    urgent = enqueue(database, "ann", job_priority=100)
    raised = enqueue(database, "ann", job_priority=1)
    with database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.plan_id == raised).values(priority=101))
    expected = [raised, urgent, plain, low]
    assert [taken(database).plan_id for _ in expected] == expected


def test_what_a_server_was_silent_about_comes_first(database: Database) -> None:
    lost = enqueue(database, "ann")
    taken(database, lease_seconds=0.01)
    enqueue(database, "bob", job_priority=100)
    time.sleep(0.05)
    assert taken(database).plan_id == lost


def test_a_claimed_job_runs_with_its_spec(database: Database, queued: UUID) -> None:
    held = taken(database)
    assert JobSpec.model_validate(held.spec) == SPEC
    job = record(database, queued)
    assert (job.status, job.attempts) == ("running", 1)
    assert job.started_at is not None


def test_two_claimers_never_get_the_same_job(database: Database) -> None:
    ids = {enqueue(database) for _ in range(20)}
    got: list[UUID] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        while (held := claim(database)) is not None:
            got.append(held.plan_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(ids)


def test_an_open_claim_hides_its_job_from_others(database: Database, queued: UUID) -> None:
    if database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite lets only one transaction write: the other waits")
    with database.transaction() as session:
        assert plan_queue.claim(session, lease_seconds=60, max_attempts=3) is not None
        started = time.perf_counter()
        assert claim(database) is None
        assert time.perf_counter() - started < 2  # skipped, not waited for


def test_an_expired_lease_is_claimed_again(database: Database, queued: UUID) -> None:
    first = taken(database, lease_seconds=0.01)
    time.sleep(0.05)
    second = taken(database)
    assert second.plan_id == queued
    assert second.lease.token != first.lease.token
    assert record(database, queued).attempts == 2


def test_a_renewed_lease_is_not(database: Database, queued: UUID) -> None:
    held = taken(database, lease_seconds=0.2)
    with database.transaction() as session:
        assert plan_queue.renew(session, held, lease_seconds=60)
    time.sleep(0.3)
    assert claim(database) is None


def test_a_stale_token_writes_nothing(database: Database, queued: UUID) -> None:
    stale = taken(database, lease_seconds=0.01)
    time.sleep(0.05)
    current = taken(database)
    assert not fail(database, stale)
    with database.transaction() as session:
        assert not plan_queue.renew(session, stale, lease_seconds=60)
        assert not plan_queue.release(session, stale)
    assert record(database, queued).status == "running"
    assert fail(database, current)
    assert not fail(database, current)  # finished once is finished


def test_attempts_are_bounded(database: Database, queued: UUID) -> None:
    for _ in range(2):
        taken(database, lease_seconds=0.01, max_attempts=2)
        time.sleep(0.05)
    assert claim(database, max_attempts=2) is None
    job = record(database, queued)
    assert (job.status, job.attempts) == ("failed", 2)
    assert job.problem is not None
    assert job.problem.type == "/problems/attempts-exhausted"


def test_a_released_job_is_queued_and_not_counted(database: Database, queued: UUID) -> None:
    held = taken(database)
    with database.transaction() as session:
        assert plan_queue.release(session, held)
    assert (record(database, queued).status, record(database, queued).attempts) == ("queued", 0)
    assert taken(database).plan_id == queued


@pytest.mark.parametrize("running", [False, True])
def test_a_cancelled_job_cannot_finish(database: Database, queued: UUID, running: bool) -> None:
    held = taken(database) if running else PlanClaim(Lease(PlanRow, queued, uuid4()), spec={})
    with database.transaction() as session:
        assert plan_queue.cancel(session, queued)
        assert not plan_queue.cancel(session, queued)
    assert not fail(database, held)
    assert claim(database) is None
    assert record(database, queued).status == "cancelled"


BROKEN: list[dict[str, object]] = [
    {"status": "unknown"},
    {"status": "running"},  # without a lease
    {"status": "failed", "finished_at": utc_now()},  # without a problem
    {"status": "succeeded", "finished_at": utc_now()},  # without a plan
    {"status": "cancelled"},  # without an end
    {"plan": {"of": "a queued job"}},
    {"lease_token": uuid4(), "lease_expires_at": utc_now()},  # of a queued job
]


@pytest.mark.parametrize("values", BROKEN, ids=lambda values: "-".join(values))
def test_the_database_refuses_impossible_states(
    database: Database, queued: UUID, values: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.execute(update(PlanRow).where(PlanRow.id == queued).values(**values))
