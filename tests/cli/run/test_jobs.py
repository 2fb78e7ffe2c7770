"""`automap submit` and `automap jobs` against a real service; the test itself plays the worker."""

import json
import re
import shlex
import signal
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from sqlalchemy import delete, select

from automap.service.errors.domain import RunFailedError, RunRefusedError
from automap.service.queues import job_queue
from automap.service.schemas.jobs import JobRecord
from automap.service.schemas.problems import problem_of
from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow
from tests.cli.commands import call, jobs
from tests.helpers.tiny_runs import run_report
from tests.service.support.job_claims import finish, keep, printed, taken
from tests.service.support.servers import serving
from tests.service.support.watched_run import Run
from tests.service.support.workers import (
    TINY,
    add_job,
    add_plan,
    eventually,
    record,
    run_settings,
    tiny_plan,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service with a database of its own: its address, and the database."""
    url = f"sqlite:///{tmp_path_factory.mktemp('jobs')}/automap.db"
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


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.dump(TINY), encoding="utf-8")
    settings = yaml.dump(run_settings(data={"path": "data/ok.jsonl"}))
    (tmp_path / "tiny.run.yaml").write_text(settings, encoding="utf-8")
    return file


def run_through(database: Database, job_id: UUID) -> None:
    """What a worker writes about a run that ends well."""
    held = eventually(lambda: _taken(database))
    assert held.job_id == job_id
    for iteration in (1, 2, 3, 4):
        call = {"type": "call", "call": "actor.train", "seconds": 0.25, "bytes": 2**20}
        done = {"type": "iteration", "iteration": iteration, "iterations": 4, "seconds": 0.5}
        keep(database, held, printed(call, done, text="all is well\n", end_offset=iteration))
    finish(database, held)


def _taken(database: Database):
    try:
        return taken(database)
    except AssertionError:
        return None


def test_a_spec_is_submitted_and_followed_to_its_end(server, database, spec):
    process = jobs("submit", str(spec), "--follow", server=server)
    listed = eventually(lambda: _jobs(database))
    run_through(database, listed[0])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "tiny: succeeded, iteration 4 of 4" in out
    assert "actor.train" in out
    assert "queued" in err
    assert "iteration 4 of 4" in err
    settings = record(database, listed[0]).settings
    assert settings.data.path == spec.parent / "data" / "ok.jsonl"


def _jobs(database: Database) -> list[UUID]:
    with database.reading() as session:
        return list(session.scalars(select(JobRow.id)))


def test_a_stored_plan_is_submitted_by_its_id_and_its_record(
    server, database, spec, capsys, tmp_path
):
    plan_id = add_plan(database)
    settings = ("--settings", str(spec.parent / "tiny.run.yaml"))
    code, out, err = call(capsys, "submit", str(plan_id), *settings, "--server", server)
    assert code == 0, err
    assert out.startswith(f"Queued as {server}/v1/jobs/")
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"id": str(plan_id), "plan": {}, "spec": {}}))
    code, out, err = call(capsys, "submit", str(file), *settings, "--server", server, "--json")
    assert code == 0, err
    assert JobRecord.model_validate_json(out).plan_id == plan_id


def test_what_cannot_be_submitted_is_bad_input(server, database, spec, capsys, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"iteration_seconds": 1, "copies": []}))
    settings = ("--settings", str(spec.parent / "tiny.run.yaml"))
    code, _, err = call(capsys, "submit", str(file), *settings, "--server", server)
    assert code == 2
    assert "automap plan SPEC --server URL" in err
    (spec.parent / "tiny.run.yaml").write_text(yaml.dump(run_settings(iterations=0)))
    code, _, err = call(capsys, "submit", str(spec), "--server", server)
    assert code == 2
    assert "iterations" in err
    unknown = "00000000-0000-0000-0000-000000000000"
    code, _, err = call(capsys, "submit", unknown, *settings, "--server", server)
    assert code == 2
    assert "There is no plan" in err


def test_jobs_are_listed_and_shown(server, database, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    job_id = add_job(database)
    run_through(database, job_id)
    other = add_job(database)
    code, out, _ = call(capsys, "jobs", "--server", server)
    assert code == 0
    assert out.index(str(other)) < out.index(str(job_id))  # newest first
    assert "4/4" in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = call(capsys, "jobs", "--server", server, "--json")
    assert [item["id"] for item in json.loads(out)["items"]] == [str(other), str(job_id)]
    code, out, _ = call(capsys, "jobs", str(job_id), "--server", server)
    assert "tiny: succeeded" in out
    assert "0.250" in out
    assert "waits for" not in out
    code, out, _ = call(capsys, "jobs", str(other), "--server", server)
    assert "waits for a worker: none has taken it yet, and no other job runs" in out
    code, out, _ = call(capsys, "jobs", str(job_id), "--server", server, "--logs")
    assert out == "all is well\n" * 4
    code, out, _ = call(capsys, "jobs", str(job_id), "--server", server, "--follow")
    assert code == 0
    code, out, _ = call(capsys, "jobs", str(job_id), "--server", server, "--json")
    assert json.loads(out)["report"] == {"seconds": 1.0}


def test_what_is_said_of_a_job_goes_with_it(server, database, spec, capsys):
    said = ["--name", "night run", "--notes", "after the fix", "--priority", "-5"]
    labels = ["--label", "team=math", "--label", "empty="]
    submit = ["submit", str(spec), "--json", "--server", server]
    code, out, err = call(capsys, *submit, *said, *labels)
    assert code == 0, err
    job = record(database, UUID(json.loads(out)["id"]))
    assert (job.name, job.notes, job.priority) == ("night run", "after the fix", -5)
    assert job.labels == {"team": "math", "empty": ""}
    for wrong, text in (
        (["--label", "team:math"], "--label: 'team:math' is no label"),
        (["--label", "a b=c"], "labels"),
        (["--priority", "1001"], "--priority"),
        (["--name", ""], "name"),
    ):
        code, _, err = call(capsys, *submit, *wrong)
        assert (code, text in err) == (2, True), err
    assert len(_jobs(database)) == 1


def test_a_drifting_job_says_so_and_teaches_a_spec(server, database, spec, capsys, tmp_path):
    run = Run(database)
    run.iterate(*[1.0] * 6, *[1.4] * 3, tokens=24.0)
    code, out, _ = call(capsys, "jobs", str(run.job_id), "--server", server)
    assert code == 0
    shown = " ".join(out.split())
    assert "Other than planned" in shown
    assert "responses have 24 tokens in the mean, 1.50 times the 16 that were planned" in shown
    assert "keep: " in shown or "move: " in shown
    learnt = tmp_path / "learnt.yaml"
    to_spec = ("--spec", str(spec), "--output-spec", str(learnt))
    job = str(run.job_id)
    code, out, err = call(capsys, "calibrate", job, "--server", server, *to_spec)
    assert code == 0, err
    lengths = yaml.safe_load(learnt.read_text())["workload"]["response_length"]
    assert lengths == {"p50": 24.0, "p90": 24.0, "p99": 24.0, "max": 32}
    finish(database, run.held)
    code, _, err = call(capsys, "jobs", job, "--server", server, "--follow")
    assert code == 0
    assert "1.50 times the 16 that were planned" in " ".join(err.split())
    code, _, err = call(capsys, "calibrate", str(add_job(database)), "--server", server, *to_spec)
    assert code == 2
    assert "has measured no iteration yet: it is queued" in " ".join(err.split())
    code, _, err = call(capsys, "calibrate", job, *to_spec)
    assert code == 2
    assert "a job of a service needs --server URL" in " ".join(err.split())


def test_a_job_that_has_drifted_shows_commands_that_work(server, database, capsys, tmp_path):
    run = Run(database)
    report = run_report(tiny_plan(), 1.5, tokens=16.0)
    finish(database, run.held, report.model_dump(mode="json"))
    code, out, err = call(capsys, "jobs", str(run.job_id), "--server", server)
    assert code == 0, err
    (replan,) = re.findall("automap (replan .*)", out)
    (calibrate,) = re.findall("automap (calibrate .*);", out)
    code, out, err = call(capsys, *shlex.split(replan), "--json")
    assert code == 0, err
    corrected = [each["ratio"] for each in json.loads(out)["corrections"]]
    assert corrected
    assert corrected == [pytest.approx(1.5, rel=1e-2)] * len(corrected)
    learnt = calibrate.replace("FOLDER", str(tmp_path / "learnt"))
    code, _, err = call(capsys, *shlex.split(learnt))
    assert code == 0, err
    assert (tmp_path / "learnt" / "corrections.json").is_file()


def test_the_history_of_plans_is_shown(server, database, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = call(capsys, "history", "--server", server)
    assert (code, out) == (0, "no plan was run yet\n")
    run = Run(database)
    run.iterate(9.0, *[1.25] * 6, *[2.0] * 2)
    plan_id = str(run.record.plan_id)
    code, out, _ = call(capsys, "history", "--server", server)
    assert code == 0
    assert plan_id in out
    assert "-20.0%" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["iteration", "generate", "train"]
    code, out, _ = call(capsys, "history", plan_id, "--server", server)
    assert code == 0
    assert f"job {run.job_id}: starting, 9 iterations" in out
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["8", "9"]
    assert "-50.0%" in out
    code, out, _ = call(capsys, "history", plan_id, "--server", server, "--json")
    assert json.loads(out)["jobs"][0]["stretches"][-1]["first_iteration"] == 9
    for wrong in ("seven", "00000000-0000-0000-0000-000000000000"):
        assert call(capsys, "history", wrong, "--server", server)[0] == 2


def test_a_job_is_cancelled(server, database, capsys):
    job_id = add_job(database)
    code, out, _ = call(capsys, "jobs", str(job_id), "--server", server, "--cancel")
    assert code == 0
    assert "cancelled" in out
    code, _, err = call(capsys, "jobs", str(job_id), "--server", server, "--follow")
    assert code == 130
    for wrong in ("seven", "00000000-0000-0000-0000-000000000000"):
        assert call(capsys, "jobs", wrong, "--server", server)[0] == 2
    assert "the job was cancelled" in err


def test_a_failed_job_fails_who_follows_it(server, database, capsys):
    for error, expected in ((RunFailedError("it burnt"), 1), (RunRefusedError("no prompts"), 2)):
        job_id = add_job(database)
        held = taken(database)
        with database.transaction() as session:
            job_queue.fail(session, held, problem_of(error))
        code, _, err = call(capsys, "jobs", str(job_id), "--server", server, "--follow")
        assert code == expected
        assert str(error) in err


def test_ctrl_c_stops_following_only(server, database):
    job_id = add_job(database)
    process = jobs("jobs", str(job_id), "--follow", server=server)
    assert process.stderr is not None
    assert "queued" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the job goes on" in err
    assert record(database, job_id).status == "queued"


def test_a_server_that_is_not_there(capsys, spec):
    arguments = ("--server", "http://127.0.0.1:9")
    for command in (("jobs",), ("submit", str(spec))):
        code, _, err = call(capsys, *command, *arguments)
        assert code == 2
        assert "cannot reach http://127.0.0.1:9" in err
    assert Path(spec).exists()


@pytest.mark.slow
def test_jobs_are_labelled_found_run_again_and_summed_up(server, database, capsys):
    def told(*arguments: str) -> str:
        code, out, err = call(capsys, *arguments, "--server", server)
        assert code in (0, None), err
        return out

    def refused(*arguments: str) -> str:
        code, _, err = call(capsys, *arguments, "--server", server)
        assert code == 2
        return err

    job_id, plan_id = str(add_job(database)), str(add_plan(database))
    assert told("label", job_id, "team=math", "old-", "--name", "night") == "night: team=math\n"
    assert "no labels" in told("label", plan_id, "--notes", "x")
    assert told("label", job_id, "--owner", "ada") == "night: team=math, now of ada\n"
    assert job_id in told("jobs", "--owner", "ada")
    assert "owner: local -> ada" in " ".join(told("audit", "--json").split())
    told("label", job_id, "--owner", "local")
    assert "KEY=VALUE" in refused("label", job_id, "team")
    assert "only jobs have a turn" in refused("label", plan_id, "--priority", "3")
    for options in (("--find", "NIGHT"), ("--label", "team:math"), ("--owner", "local")):
        assert job_id in told("jobs", *options)
    assert job_id not in told("jobs", "--find", "day")
    assert "when it is over" in refused("jobs", job_id, "--retry")
    told("jobs", job_id, "--cancel")
    assert json.loads(told("jobs", job_id, "--retry", "--json"))["retry_of"] == job_id
    assert "no run has used a GPU" in told("costs", "--by", "owner")
    assert "of the" in told("costs", plan_id)
    assert "no budgets" in told("budgets", "list")
    assert "10.00" in told("budgets", "set", "owner:local", "--amount", "10")
    shown = told("budgets", "set", "owner:local", "--amount", "20")
    assert "20.00" in shown
    assert "10.00" not in shown
    # What is no budget does not take the place of one.
    assert "--amount: " in refused("budgets", "set", "owner:local", "--amount", "-1")
    assert "--unit: " in refused("budgets", "set", "owner:local", "--amount", "1", "--unit", "eur")
    assert "WHOSE: write owner:NAME" in refused("budgets", "set", "local", "--amount", "1")
    assert "20.00" in told("budgets", "list")
    assert "no budgets" in told("budgets", "remove", "owner:local")
    shown = told("diff", plan_id, plan_id)
    assert "the placements are the same" in shown
    assert "iteration_seconds" in shown
