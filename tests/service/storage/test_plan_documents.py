"""Plans answered as they are stored are, byte for byte, what reading and writing them gives."""

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from automap.planner import Plan
from automap.planner.errors import InfeasibleError, Reason
from automap.planner.runs import planned_seconds
from automap.planner.spec import JobSpec
from automap.service.queues import job_queue, plan_queue
from automap.service.runs.checked_settings import RunSettings
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.problems import problem_of
from automap.service.storage import job_records, plan_documents, plan_records
from automap.service.storage.database import Database
from automap.service.storage.tables import PlanRow
from tests.service.support.samples import small_spec
from tests.service.support.watched_run import Run
from tests.service.support.workers import add_plan, run_settings, tiny_plan

REASON = Reason(summary="zu wenig „Speicher“ \x7f", phase="actor.train", over_bytes=2**40)


def queued(session: Session) -> PlanRow:
    spec = JobSpec.model_validate(small_spec())
    row = plan_records.new_plan_row(spec, cluster_name=None)
    plan_queue.enqueue(session, row)
    session.flush()
    return row


def claimed(session: Session) -> plan_queue.PlanClaim:
    held = plan_queue.claim(session, lease_seconds=60, max_attempts=3)
    assert held is not None
    return held


def queue_one(session: Session) -> None:
    queued(session)


def run_one(session: Session) -> None:
    queued(session)
    claimed(session)


def fail_one(session: Session) -> None:
    queued(session)
    problem = problem_of(InfeasibleError([REASON]))
    assert plan_queue.fail(session, claimed(session), problem)


def cancel_one(session: Session) -> None:
    assert plan_queue.cancel(session, queued(session).id)


def make_one(session: Session) -> None:
    queued(session)
    plan = tiny_plan().model_dump(mode="json", by_alias=True)
    assert plan_queue.succeed(session, claimed(session), plan)


def only_plan(database: Database) -> UUID:
    with database.reading() as session:
        return session.query(PlanRow.id).one()[0]  # type: ignore[no-any-return]


def answers(database: Database, plan_id: UUID) -> tuple[bytes, bytes]:
    """As stored, and by way of the models."""
    with database.reading() as session:
        stored = plan_documents.stored_record(session, plan_id).json
        record = plan_records.find_plan(session, plan_id)
    return stored, record.model_dump_json(by_alias=True).encode()


def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a document is parsed."""

    def parsed(*_: object) -> None:
        raise AssertionError("a document was parsed")

    monkeypatch.setattr(plan_records, "find_plan", parsed)


@pytest.mark.parametrize("bring_about", [queue_one, run_one, fail_one, cancel_one, make_one])
def test_a_plan_is_answered_as_stored(
    database: Database,
    bring_about: Callable[[Session], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with database.transaction() as session:
        bring_about(session)
    plan_id = only_plan(database)
    stored, parsed = answers(database, plan_id)
    assert stored == parsed
    no_models(monkeypatch)
    with database.reading() as session:
        assert plan_documents.stored_record(session, plan_id).json == stored
        unparsed = plan_documents.unparsed_record(session, plan_id)
    assert unparsed is not None
    assert unparsed.json == stored


def test_a_plan_that_was_run_shows_its_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(database)
    with database.transaction() as session:
        job_queue.run(session, run.held)
    run.iterate(1.0)
    run.iterate(1.25)
    plan_id = only_plan(database)
    no_models(monkeypatch)
    with database.reading() as session:
        stored = plan_documents.stored_record(session, plan_id).json
        assert plan_documents.unparsed_record(session, plan_id) is None, "its times are parsed"
    monkeypatch.undo()
    assert answers(database, plan_id) == (stored, stored)
    [job] = PlanRecord.model_validate_json(stored).jobs
    predicted = planned_seconds(tiny_plan())
    assert {each.call: each.predicted_seconds for each in job.calls} == predicted
    assert all(each.measured_seconds for each in job.calls)


def test_a_job_whose_plan_is_not_made_yet_is_shown_with_it(database: Database) -> None:
    with database.transaction() as session:
        row = queued(session)
        settings = RunSettings.model_validate(run_settings())
        job_queue.enqueue(session, job_records.new_job_row(row, settings))
        plan_id = row.id
    stored, parsed = answers(database, plan_id)
    assert stored == parsed
    [job] = PlanRecord.model_validate_json(stored).jobs
    assert job.calls == []


@pytest.mark.parametrize("written_as", [None, "another"])
def test_what_another_version_wrote_is_read(
    database: Database, written_as: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_id = add_plan(database)
    with database.transaction() as session:
        row = session.get_one(PlanRow, plan_id)
        assert row.plan is not None
        row.plan = {name: value for name, value in row.plan.items() if name != "runs_with"}
        session.execute(update(PlanRow).where(PlanRow.id == plan_id).values(written_as=written_as))
    stored, parsed = answers(database, plan_id)
    assert stored == parsed
    assert b'"runs_with"' in stored  # a field that it lacks has its default
    no_models(monkeypatch)
    with database.reading() as session:
        assert plan_documents.unparsed_record(session, plan_id) is None
        with pytest.raises(AssertionError, match="was parsed"):
            plan_documents.stored_record(session, plan_id)


def test_a_spec_of_another_version_keeps_its_outcome_from_being_taken_as_ours(
    database: Database,
) -> None:
    with database.transaction() as session:
        row = queued(session)
        row.written_as = "another"
        session.flush()
        plan = tiny_plan().model_dump(mode="json", by_alias=True)
        assert plan_queue.succeed(session, claimed(session), plan)
    with database.reading() as session:
        assert session.get_one(PlanRow, only_plan(database)).written_as is None


def test_the_form_changes_with_the_fields_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = PlanRecord.model_json_schema(mode="serialization")
    known = plan_documents.form()
    del schema["$defs"][Plan.__name__]["properties"]["warnings"]
    monkeypatch.setattr(PlanRecord, "model_json_schema", lambda mode: schema)
    plan_documents.form.cache_clear()
    try:
        assert plan_documents.form() != known
    finally:
        monkeypatch.undo()
        plan_documents.form.cache_clear()
