"""A running job that drifts from its plan: what is raised on it, once, and its history."""

import copy
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient

from automap.planner.errors import InfeasibleError, Reason
from automap.service.queues import job_queue
from automap.service.runs import iteration_history
from automap.service.runs.drift_report import suggested
from automap.service.schemas.documents import JsonObject
from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow
from tests.service.support.job_claims import claim
from tests.service.support.watched_run import Run, Watch, iteration
from tests.service.support.workers import add_job, events, tiny_plan


@pytest.mark.slow_on("sqlite")
def test_a_drift_is_raised_once_and_survives_its_worker(database: Database) -> None:
    run = Run(database)
    run.iterate(9.0, 1.0, 3.0, *[1.0] * 5)  # the first one warms up, one is bad
    assert run.record.suggestions == []
    run.iterate(*[1.4] * 4)
    (first,) = run.record.suggestions
    assert first.suggestion.after_iteration == 11
    assert [(cause.kind, cause.calls) for cause in first.suggestion.causes] == [
        ("slowdown", ["actor.generate", "actor.train"])
    ]
    assert first.suggestion.replan is not None
    assert first.suggestion.replan.iterations_left == 989
    assert first.suggestion.replan.answer in suggested(first)
    # Another worker takes the job over, and the drift is the same.
    with database.transaction() as session:
        job_queue.release(session, run.held)
    again = claim(database)
    assert again is not None
    run.held, run.watch = again, Watch(database, run.settings, again)
    run.iterate(*[1.45] * 5)
    assert (run.watch.asked, run.told) == (0, [("raised", 11)])
    # It becomes worse, and then passes.
    run.iterate(*[1.8] * 3)
    run.iterate(*[1.02] * 4)
    assert run.told == [("raised", 11), ("raised", 20), ("over", 23)]
    second, first = run.record.suggestions
    assert (second.over_after_iteration, first.over_after_iteration) == (23, None)
    run.iterate(*[1.4] * 5)
    assert run.told[3:] == [("raised", 27)]


def test_the_log_has_a_drift_once_until_it_is_over(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(database)
    with caplog.at_level("INFO", logger="automap.service.worker.drift_watch"):
        run.iterate(*[1.0] * 6, *[1.4] * 4, *[1.9] * 4, *[2.6] * 4)
        assert len(run.told) >= 2
        run.iterate(*[1.0] * 5)
    assert run.told[-1][0] == "over"
    job = run.held.job_id
    assert [each.getMessage() for each in caplog.records] == [
        f"job {job}: has drifted from its plan",
        f"job {job}: runs as planned again",
    ]


@pytest.mark.slow_on("sqlite")
def test_longer_responses_are_told_with_their_distribution(database: Database) -> None:
    run = Run(database, drift_threshold=0.3)
    run.iterate(*[1.0] * 7)
    run.iterate(*[1.0] * 3, tokens=20.0)
    assert run.told == []
    run.iterate(*[1.0] * 4, tokens=24.0)
    (raised,) = run.record.suggestions
    length = raised.suggestion.response_length
    assert length is not None
    assert (length.p50, length.p99, length.max) == (24.0, 24.0, 32)
    assert any("24 tokens in the mean, 1.50 times the 16" in line for line in suggested(raised))
    lengths = run.record.response_lengths
    assert lengths is not None
    assert (lengths.iterations, lengths.mean) == (13, pytest.approx((6 * 16 + 60 + 96) / 13))


@pytest.mark.slow_on("sqlite")
def test_a_replanning_that_fails_neither_ends_the_job_nor_is_tried_again(
    database: Database,
) -> None:
    run = Run(database)
    run.watch.error = InfeasibleError([Reason(summary="nothing fits any more")])
    run.iterate(*[1.4] * 12)
    (raised,) = run.record.suggestions
    assert raised.suggestion.replan is None
    assert "nothing fits any more" in str(raised.suggestion.problem)
    assert run.watch.asked == 1
    other = Run(database)
    other.watch.error = ZeroDivisionError("secret")
    other.iterate(*[1.4] * 8)
    assert other.record.suggestions[0].suggestion.problem is not None
    assert "secret" not in other.record.suggestions[0].suggestion.problem


@pytest.mark.slow_on("sqlite")
def test_the_first_iterations_are_compared_with_as_far_as_they_are_others(
    database: Database,
) -> None:
    run = Run(database)
    run.iterate(9.0, *[1.0] * 3, *[1.4] * 3)
    (raised,) = run.record.suggestions
    assert raised.suggestion.window.first == 3
    assert [cause.kind for cause in raised.suggestion.causes] == ["slowdown"]


@pytest.mark.slow_on("sqlite")
def test_nothing_is_raised_on_a_job_that_is_over_or_anothers(database: Database) -> None:
    run = Run(database)
    run.iterate(*[1.0] * 6)
    with database.transaction() as session:
        job_queue.release(session, run.held)
    assert claim(database) is not None
    progress = job_queue.Progress(20, 1000, measured_of([1.4] * 20))
    run.watch.look(progress)
    run.watch.wait()
    assert (run.watch.asked, run.told) == (1, [])
    # What nobody can read is logged, and that is all.
    run.watch.look(job_queue.Progress(20, 1000, {"iterations": 3, "suggestions": "?"}))


def measured_of(ratios: list[float]) -> JsonObject:
    found = iteration_history.with_events(
        None, [each for n, ratio in enumerate(ratios, 1) for each in iteration(n, ratio)]
    )
    return {"iterations": found}


@pytest.mark.slow_on("sqlite")
def test_suggestions_keep_a_distance_of_iterations(database: Database) -> None:
    run = Run(database, drift_pause_iterations=8)
    run.iterate(*[1.0] * 6, *[1.4] * 3)
    run.iterate(*[2.5] * 7)
    assert run.told == [("raised", 9)]
    run.iterate(2.5)
    assert run.told == [("raised", 9), ("raised", 17)]


def test_iterations_that_warm_up_or_run_again_count_as_they_should() -> None:
    known = iteration_history.read(measured_of([9.0, *[1.0] * 10])["iterations"])
    assert [each.number for each in known.recent] == list(range(2, 12))
    assert [each.number for each in known.first] == [2, 3, 4, 5, 6]
    document = known.model_dump(mode="json")
    restarted = [{"type": "state", "state": "starting workers"}]
    again = [each for number in (9, 10, 11, 12) for each in iteration(number, 2.0)]
    after = iteration_history.with_events(document, [*restarted, *again])
    known = iteration_history.read(after)
    # Iteration 9 warmed up the new processes: what it took before stands.
    seconds = [each.seconds / tiny_plan().iteration_seconds for each in known.recent[-4:]]
    assert [each.number for each in known.recent[-4:]] == [9, 10, 11, 12]
    assert seconds == pytest.approx([1.0, 2.0, 2.0, 2.0])
    assert [each.last for each in known.stretches] == list(range(2, 13))
    assert iteration_history.with_events(after, [{"type": "log", "message": "x"}]) is None


def test_a_history_keeps_its_means_in_a_bounded_number_of_stretches() -> None:
    ratios = [1.0 + 0.001 * number for number in range(1000)]
    known = iteration_history.read(measured_of(ratios)["iterations"])
    assert 32 <= len(known.stretches) <= 64
    assert sum(each.count for each in known.stretches) == 999
    assert known.stretches[0].first == 2
    for one, other in zip(known.stretches, known.stretches[1:], strict=False):
        assert one.last + 1 == other.first
        assert one.seconds < other.seconds
    first = known.stretches[0]
    mean = sum(ratios[1 : first.last]) / first.count
    assert first.seconds == pytest.approx(mean * tiny_plan().iteration_seconds)
    assert first.calls["actor.train"] == pytest.approx(mean * train_seconds())


def train_seconds() -> float:
    call = next(call for call in tiny_plan().calls if call.id == "actor.train")
    return call.measurable_seconds


def test_plans_are_shown_beside_their_runs_over_time(
    database: Database, client: TestClient
) -> None:
    run = Run(database)
    run.iterate(9.0, *[1.25] * 10, *[2.0] * 2)
    other = add_job(database)  # of another plan, which has not run
    plans = {item["id"]: item for item in client.get("/v1/plans").json()["items"]}
    plan_id = plan_of(database, run.job_id)
    assert plans[str(plan_id)]["runs"] == 1
    assert plans[str(plan_id)]["measured_iteration_seconds"] == pytest.approx(
        1.25 * tiny_plan().iteration_seconds
    )
    unrun = plans[str(plan_of(database, other))]
    assert (unrun["runs"], unrun["measured_iteration_seconds"]) == (0, None)
    shown = client.get(f"/v1/plans/{plan_id}/history").json()
    (job,) = shown["jobs"]
    assert job["iteration"]["relative_error"] == pytest.approx(1 / 1.25 - 1)
    assert set(job["calls"]) == {call.id for call in tiny_plan().calls}
    errors = [each["iteration"]["relative_error"] for each in job["stretches"]]
    assert errors == pytest.approx([1 / 1.25 - 1] * 10 + [1 / 2.0 - 1] * 2)
    assert job["stretches"][-1]["calls"]["actor.train"]["relative_error"] == pytest.approx(-0.5)
    everything = client.get("/v1/plans/history").json()
    assert [each["job_id"] for each in everything["items"]] == [str(run.job_id)]
    accuracy = {each["kind"]: each for each in everything["accuracy"]}
    # The reward is a function: its seconds are the spec's, no prediction of ours.
    assert set(accuracy) == {"iteration", "generate", "train"}
    assert accuracy["iteration"]["bias"] == pytest.approx(-0.2)
    assert accuracy["train"]["median_error"] == pytest.approx(0.2)
    assert client.get("/v1/plans/history?algorithm=ppo").json()["items"] == []
    later = {"created_after": "2100-01-01T00:00:00Z"}
    assert client.get("/v1/plans/history", params=later).json()["items"] == []
    assert client.get(f"/v1/plans/{uuid4()}/history").status_code == 404
    assert client.get("/v1/plans/history?algorithm=magic").status_code == 422


def plan_of(database: Database, job_id: UUID) -> UUID:
    with database.reading() as session:
        return session.get_one(JobRow, job_id).plan_id


def test_the_api_shows_a_job_with_what_was_suggested(
    database: Database, client: TestClient
) -> None:
    run = Run(database)
    run.iterate(*[1.0] * 6, *[1.5] * 5)
    shown = client.get(f"/v1/jobs/{run.job_id}").json()
    (raised,) = shown["suggestions"]
    assert raised["suggestion"]["replan"]["verdict"] in ("keep", "move")
    assert raised["suggestion"]["drift"]["replan"]
    assert shown["response_lengths"]["mean"] == 16.0
    (listed,) = client.get("/v1/jobs").json()["items"]
    assert "suggestions" not in listed
    assert (listed["drifting"], shown["drifting"]) == (True, True)
    last = [e for e in events(database, run.job_id) if e["type"] == "drift"]
    assert last[0]["suggestion"] == raised["suggestion"]


def test_a_plan_of_an_older_version_is_read_or_passed_over_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(database)
    plan = copy.deepcopy(run.held.plan)
    assert plan is not None
    # Every model had the concurrency that only a function has, once.
    plan["spec"]["models"]["actor"]["concurrency"] = 1  # type: ignore[call-overload, index]
    run.held = replace(run.held, plan=plan)
    run.watch = Watch(database, run.settings, run.held)
    run.iterate(1.0, *[1.4] * 5)
    assert len(run.record.suggestions) == 1
    run.held = replace(run.held, plan={"name": "from long ago"})
    run.watch = Watch(database, run.settings, run.held)
    caplog.clear()
    run.iterate(*[1.9] * 3)
    (told,) = [each for each in caplog.records if "compared" in each.message]
    assert told.levelname == "WARNING"
    assert "stored by an earlier version" in told.message
    assert told.exc_info is None
    assert len(run.record.suggestions) == 1
