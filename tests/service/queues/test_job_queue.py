"""The life of a job, transition by transition, without Ray. These commit for real."""

import threading
import time
from uuid import UUID, uuid4

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from automap.planner.spec import JobSpec
from automap.service.api.refusals import refusal_of
from automap.service.errors.domain import ConflictError, RunFailedError
from automap.service.queues import job_log, job_queue, plan_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.runs.output import Printed
from automap.service.schemas.problems import problem_of
from automap.service.storage import job_records, plan_records
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.job_claims import claim, finish, keep, printed, taken
from tests.service.support.workers import TINY, add_job, add_plan, events, record, run_settings


@pytest.fixture
def queued(database: Database) -> UUID:
    return add_job(database)


def retry(database: Database, held: JobClaim, *, max_attempts: int = 3) -> JobClaim | None:
    with database.transaction() as session:
        return job_queue.retry(session, held, max_attempts=max_attempts, reason="it fell")


def told(database: Database, job_id: UUID) -> list[object]:
    return [event["status"] for event in events(database, job_id) if event["type"] == "status"]


@pytest.mark.slow
def test_a_claim_takes_the_oldest_job_and_names_its_run(database: Database) -> None:
    ids = [add_job(database) for _ in range(3)]
    held = [taken(database) for _ in ids]
    assert [one.job_id for one in held] == ids
    assert claim(database) is None
    first = held[0]
    assert first.submission_id == f"automap-{first.job_id}-1"
    assert first.output == f"/runs/{first.job_id}"
    assert JobSpec.model_validate(first.plan["spec"]).name == "tiny"
    assert first.settings["data"]["path"] == "/stand-in/ok.jsonl"  # type: ignore[index,call-overload]
    job = record(database, first.job_id)
    assert (job.status, job.attempts, job.started_at) == ("starting", 1, None)
    assert told(database, first.job_id) == ["queued", "starting"]


@pytest.mark.slow_on("sqlite")
def test_two_claimers_never_get_the_same_job(database: Database) -> None:
    ids = {add_job(database) for _ in range(12)}
    got: list[UUID] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        while (held := claim(database)) is not None:
            got.append(held.job_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(ids)
    assert all(record(database, job_id).attempts == 1 for job_id in ids)


def test_an_open_claim_hides_its_job_from_others(database: Database, queued: UUID) -> None:
    if database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite lets only one transaction write: the other waits")
    with database.transaction() as session:
        assert job_queue.claim(session, lease_seconds=60, runs_folder="/r", new=True) is not None
        started = time.perf_counter()
        assert claim(database) is None
        assert time.perf_counter() - started < 2  # skipped, not waited for


def test_an_expired_lease_is_taken_over_with_the_same_run(database: Database, queued: UUID) -> None:
    first = taken(database, lease_seconds=0.01)
    keep(database, first, printed(text="hello\n", end_offset=6))
    with database.transaction() as session:
        job_queue.run(session, first)
        session.execute(update(JobRow).values(lease_expires_at=utc_now()))
    time.sleep(0.02)
    second = claim(database, new=False)  # even by a worker that has no place for new jobs
    assert second is not None
    assert second.lease.token != first.lease.token
    assert second.submission_id == first.submission_id
    assert (second.log_offset, second.was_running) == (6, True)
    assert record(database, queued).attempts == 1


def test_a_job_that_runs_is_taken_over_before_a_new_one_starts(database: Database) -> None:
    waiting = add_job(database)
    running = add_job(database)
    with database.transaction() as session:
        session.execute(
            update(JobRow)
            .where(JobRow.id == running)
            .values(status="running", attempts=1, submission_id="name", output="/o")
        )
    assert [taken(database).job_id, taken(database).job_id] == [running, waiting]


def test_a_full_worker_takes_no_new_job(database: Database, queued: UUID) -> None:
    with database.reading() as session:
        assert not job_queue.is_waiting(session, new=False)
        assert job_queue.is_waiting(session, new=True)
    assert claim(database, new=False) is None


def test_a_stale_token_writes_nothing(database: Database, queued: UUID) -> None:
    stale = taken(database, lease_seconds=0.01)
    time.sleep(0.05)
    current = taken(database)
    before = events(database, queued)
    assert keep(database, stale, printed({"type": "log"}, text="late\n")) is None
    assert retry(database, stale) is None
    with database.transaction() as session:
        assert not job_queue.run(session, stale)
        assert not job_queue.succeed(session, stale)
        assert not job_queue.fail(session, stale, problem_of(RuntimeError()))
        assert not job_queue.cancelled(session, stale)
        job_queue.release(session, stale)
    job = record(database, queued)
    assert (job.status, job.attempts, job.report) == ("starting", 1, None)
    assert events(database, queued) == before
    finish(database, current)
    with database.transaction() as session:
        assert not job_queue.fail(session, current, problem_of(RuntimeError()))  # over once is over


def test_a_released_job_is_free_at_once_and_goes_on(database: Database, queued: UUID) -> None:
    held = taken(database)
    with database.transaction() as session:
        job_queue.run(session, held)
        job_queue.release(session, held)
    assert record(database, queued).status == "running"
    again = claim(database, new=False)
    assert again is not None
    assert again.submission_id == held.submission_id


def test_a_new_attempt_has_a_new_name_and_the_same_folder(database: Database, queued: UUID) -> None:
    first = taken(database)
    keep(database, first, printed(text="one\n", end_offset=400))
    second = retry(database, first)
    assert second is not None
    assert second.submission_id == f"automap-{queued}-2"
    assert (second.output, second.log_offset) == (first.output, 0)
    assert not second.was_running
    assert told(database, queued) == ["queued", "starting", "starting"]
    assert events(database, queued)[-1]["reason"] == "it fell"


def test_attempts_are_bounded(database: Database, queued: UUID) -> None:
    held = taken(database)
    again = retry(database, held, max_attempts=2)
    assert again is not None
    assert retry(database, again, max_attempts=2) is None
    job = record(database, queued)
    assert (job.status, job.attempts) == ("failed", 2)
    assert job.problem is not None
    assert job.problem.type == "/problems/attempts-exhausted"
    assert "started 2 times" in job.problem.detail
    assert "it fell" in job.problem.detail


def test_events_fill_progress_measurements_and_report(database: Database, queued: UUID) -> None:
    held = taken(database)
    for iteration in (1, 2, 3):
        call = {"type": "call", "call": "actor.train", "seconds": float(iteration), "bytes": 7}
        done = {"type": "iteration", "iteration": iteration, "seconds": 2.0 * iteration}
        keep(database, held, printed(call, done, end_offset=iteration))
    job = record(database, queued)
    assert (job.iteration, job.iterations, job.measured_iteration_seconds) == (3, 4, 4.0)
    trained = next(call for call in job.calls if call.call == "actor.train")
    assert (trained.measured_seconds, trained.measured_bytes, trained.count) == (2.0, 7, 3)
    assert trained.predicted_seconds is not None
    finish(database, held)
    job = record(database, queued)
    assert (job.status, job.report) == ("succeeded", {"seconds": 1.0})
    assert job.iteration == job.iterations
    last = events(database, queued)[-2:]
    assert [event["type"] for event in last] == ["finished", "status"]
    assert "report" not in last[0]  # once is enough


def test_progress_stays_within_its_bounds(database: Database, queued: UUID) -> None:
    held = taken(database)
    for given, shown in ((99, 4), (-1, 0), (10**400, 0), ("2", 0), (True, 0), (None, 0), (2, 2)):
        keep(database, held, printed({"type": "iteration", "iteration": given}))
        assert record(database, queued).iteration == shown


def test_success_needs_a_report(database: Database, queued: UUID) -> None:
    held = taken(database)
    keep(database, held, printed({"type": "finished", "report": "not a document"}))
    with database.transaction() as session:
        assert not job_queue.succeed(session, held)
    assert record(database, queued).status == "starting"


@pytest.mark.parametrize(
    "time", ["yesterday", "2026-01-01T00:00:00", 3, None, "0001-01-01T00:00:00+14:00"]
)
def test_an_event_has_a_time_whatever_it_says(
    database: Database, queued: UUID, time: object
) -> None:
    held = taken(database)
    before = utc_now()
    keep(database, held, printed({"type": "log", "time": time}))
    assert before.isoformat() <= events(database, queued)[-1]["time"] <= utc_now().isoformat()


@pytest.mark.slow_on("sqlite")
def test_the_log_is_read_from_its_end_and_the_oldest_goes(database: Database, queued: UUID) -> None:
    held = taken(database)
    for number in range(40):
        text = f"line {number} of this job\n" * 100
        keep(database, held, printed(text=text), max_log_bytes=20_000)

    def tail(lines: int) -> str:
        with database.reading() as session:
            return job_records.log_tail(session, queued, lines=lines)

    assert tail(1) == "line 39 of this job\n"
    assert tail(101).splitlines()[0] == "line 38 of this job"
    assert len(tail(100_000)) <= 20_000 + 2_100
    assert "line 5 of" not in tail(100_000)
    keep(database, held, printed(text="no end"))
    assert tail(2) == "line 39 of this job\nno end"


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_plan_that_will_never_be_takes_its_jobs_along(database: Database, end: str) -> None:
    with database.transaction() as session:
        plan = plan_records.new_plan_row(JobSpec.model_validate(TINY), cluster_name=None)
        plan_queue.enqueue(session, plan)
        row = job_records.new_job_row(plan, job_records.RunSettings.model_validate(run_settings()))
        job_queue.enqueue(session, row)
        plan_id, job_id = plan.id, row.id
    other = add_job(database)
    assert claim(database) is not None  # the other one
    assert claim(database) is None  # this one waits for its plan
    with database.transaction() as session:
        if end == "cancel":
            plan_queue.cancel(session, plan_id)
        else:
            held = plan_queue.claim(session, lease_seconds=60, max_attempts=3)
            assert held is not None
            plan_queue.fail(session, held, problem_of(RunFailedError("no placement fits")))
    job = record(database, job_id)
    assert job.status == "failed"
    assert job.problem is not None
    assert job.problem.type == "/problems/plan-failed"
    assert str(plan_id) in job.problem.detail
    assert ("no placement fits" in job.problem.detail) == (end == "fail")
    assert record(database, other).status == "starting"


def test_an_exhausted_plan_takes_its_job_along(database: Database) -> None:
    with database.transaction() as session:
        plan = plan_records.new_plan_row(JobSpec.model_validate(TINY), cluster_name=None)
        plan_queue.enqueue(session, plan)
        settings = job_records.RunSettings.model_validate(run_settings())
        row = job_records.new_job_row(plan, settings)
        job_queue.enqueue(session, row)
        job_id = row.id
    for _ in range(2):
        with database.transaction() as session:
            plan_queue.claim(session, lease_seconds=0.01, max_attempts=1)
        time.sleep(0.05)
    assert record(database, job_id).status == "failed"


def test_a_queued_job_is_cancelled_at_once(database: Database, queued: UUID) -> None:
    with database.transaction() as session:
        assert job_queue.cancel(session, queued)
        assert not job_queue.cancel(session, queued)
    assert claim(database) is None
    job = record(database, queued)
    assert (job.status, job.attempts, job.cancelling) == ("cancelled", 0, False)


def test_a_running_job_is_asked_to_end_once(database: Database, queued: UUID) -> None:
    held = taken(database)
    progress = keep(database, held, Printed())
    assert progress is not None
    assert (progress.cancelling, progress.log_offset) == (False, 0)
    with database.transaction() as session:
        assert job_queue.cancel(session, queued)
        assert job_queue.cancel(session, queued)
    assert record(database, queued).cancelling
    progress = keep(database, held, Printed())
    assert progress is not None
    assert progress.cancelling
    with database.transaction() as session:
        assert job_queue.cancelled(session, held)
    job = record(database, queued)
    assert (job.status, job.cancelling) == ("cancelled", False)
    assert told(database, queued) == ["queued", "starting", "starting", "cancelled"]
    assert [event.get("cancelling") for event in events(database, queued)].count(True) == 1


def test_the_last_failure_is_that_of_this_attempt(database: Database, queued: UUID) -> None:
    first = taken(database)
    keep(database, first, printed({"type": "failed", "cause": "one"}, {"type": "log"}))
    with database.transaction() as session:
        told = job_queue.last_failure(session, first)
    assert told is not None
    assert told["cause"] == "one"
    second = retry(database, first)
    assert second is not None
    with database.transaction() as session:
        assert job_queue.last_failure(session, second) is None


BROKEN: list[dict[str, object]] = [
    {"status": "unknown"},
    {"status": "starting"},  # without a submission
    {"status": "running"},
    {"status": "succeeded", "finished_at": utc_now(), "report": {}},
    {"status": "failed", "finished_at": utc_now()},  # without a problem
    {"status": "cancelled"},  # without an end
    {"finished_at": utc_now()},  # of a queued job
    {"problem": {"of": "a queued job"}},
    {"lease_token": uuid4(), "lease_expires_at": utc_now()},  # of a queued job
    {"attempts": 1},  # without a submission
    {"submission_id": "name", "attempts": 1},  # without a folder
    {
        "status": "succeeded",
        "finished_at": utc_now(),
        "attempts": 1,
        "submission_id": "name",
        "output": "/o",
    },  # without a report
    {"iteration": 5},  # of four
    {"iteration": -1},
    {"plan_id": uuid4()},  # of no plan
]


@pytest.mark.parametrize("values", BROKEN, ids=lambda values: "-".join(values))
def test_the_database_refuses_impossible_states(
    database: Database, queued: UUID, values: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.id == queued).values(**values))


def test_a_plan_with_a_job_that_is_not_over_stays(database: Database, queued: UUID) -> None:
    plan_id = record(database, queued).plan_id
    with (
        pytest.raises(ConflictError) as caught,
        database.transaction() as session,
    ):
        plan_records.delete_plan(session, plan_id)
    assert refusal_of(caught.value).type == "/problems/conflict"
    finish(database, taken(database))
    with database.transaction() as session:
        plan_records.delete_plan(session, plan_id)
    with database.transaction() as session:
        assert session.get(JobRow, queued) is None  # its runs are forgotten with it
        assert session.get(PlanRow, plan_id) is None


def test_a_plan_shows_its_latest_runs(database: Database) -> None:
    plan_id = add_plan(database)
    with database.transaction() as session:
        plan = session.get_one(PlanRow, plan_id)
        settings = job_records.RunSettings.model_validate(run_settings(iterations=2))
        for _ in range(25):
            job_queue.enqueue(session, job_records.new_job_row(plan, settings))
    held = taken(database)
    keep(database, held, printed({"type": "iteration", "iteration": 1, "seconds": 3.0}))
    finish(database, held)
    with database.reading() as session:
        shown = plan_records.find_plan(session, plan_id)
    assert len(shown.jobs) == 20
    assert all(job.iterations == 2 for job in shown.jobs)
    with database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.id != held.job_id).values(created_at=utc_now()))
        session.execute(update(JobRow).where(JobRow.id == held.job_id).values(created_at=utc_now()))
    with database.reading() as session:
        (latest, *_) = plan_records.find_plan(session, plan_id).jobs
    assert latest.id == held.job_id
    assert latest.measured_iteration_seconds == 3.0
    assert latest.predicted_iteration_seconds == shown.iteration_seconds


def test_the_next_worker_knows_what_the_next_event_must_prove(database: Database) -> None:
    add_job(database)
    held = taken(database, lease_seconds=0.01)
    proven = Printed(events=[{"type": "state"}], end_offset=7, proofs=["a", "b"])
    progress = keep(database, held, proven)
    assert progress is not None
    assert progress.proofs == ["a", "b"]
    with database.transaction() as session:
        again = job_queue.retry(session, held, max_attempts=3, reason="it was killed")
    assert again is not None
    progress = keep(database, again, Printed())
    assert progress is not None
    assert progress.proofs == []  # another process, with proofs of its own


def test_a_job_keeps_so_many_events_at_most(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "MAX_EVENTS", 4)
    job_id = add_job(database)
    held = taken(database)  # queued and starting were the first two
    keep(database, held, printed(*({"type": "log", "message": str(i)} for i in range(9))))
    keep(database, held, printed({"type": "iteration", "iteration": 3, "seconds": 1.0}))
    keep(database, held, printed({"type": "finished", "report": {}}))
    kinds = [event["type"] for event in events(database, job_id)]
    assert kinds == ["status", "status", "log", "log", "finished"]
    assert record(database, job_id).iteration == 3
