"""Jobs from the request to the end with the real executor, on a Ray that the worker starts."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from automap.executor.telemetry.events import read_events
from automap.executor.telemetry.run_report import RunReport
from automap.service.runs.checked_settings import RunSettings, anchored
from automap.service.schemas.jobs import JobRecord
from tests.executor.run.run_process import Traces
from tests.service.support.samples import Json
from tests.service.support.services import Service
from tests.service.support.workers import eventually, worker_environment

pytestmark = [pytest.mark.slow, pytest.mark.many_processes]

EXAMPLES = Path(__file__).parents[3] / "examples"
ITERATIONS = 4
MINUTES = 240.0
WITHOUT = ("RAY_ADDRESS", "AUTOMAP_RAY_ADDRESS", "AUTOMAP_RUN_COMMAND", "AUTOMAP_STOP_SECONDS")


class RealService(Service):
    """A service with all that it starts, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces = Traces()
        environment = worker_environment(
            f"sqlite:///{folder}/automap.db",
            folder / "runs",
            ray_folder=folder / "ray",
            lease_seconds=30,
            job_environment=",".join(self.traces.mark),
        )
        environment = {name: text for name, text in environment.items() if name not in WITHOUT}
        super().__init__({**environment, **self.traces.mark})

    def post(self, **settings: object) -> str:
        """The job of examples/tiny-grpo-cpu.yaml, with a few iterations."""
        spec = yaml.safe_load((EXAMPLES / "tiny-grpo-cpu.yaml").read_text())
        given = yaml.safe_load((EXAMPLES / "tiny-grpo-cpu.run.yaml").read_text())
        given |= {"iterations": ITERATIONS, "checkpoint": {"every_iterations": 1}} | settings
        ready = anchored(RunSettings.model_validate(given), EXAMPLES).model_dump(mode="json")
        answer = self.client.post("/jobs", json={"spec": spec, "settings": ready})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def follow(self, job_id: str) -> Iterator[Json]:
        """Its events until it is over; the service ends the stream."""
        for _, event in self.events(job_id, after=0):
            yield event

    def finished(self, job_id: str) -> JobRecord:
        def ended() -> JobRecord | None:
            job = self.job(job_id)
            return job if job.finished_at is not None else None

        job = eventually(ended, seconds=MINUTES)
        assert isinstance(job, JobRecord)
        return job

    def log(self, job_id: str) -> str:
        return self.client.get(f"/jobs/{job_id}/logs?tail=1000").text


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    service = RealService(tmp_path_factory.mktemp("service"))
    try:
        yield service
        service.kill(signal.SIGTERM)
        assert service.process.returncode == 0
        # Nobody needs the Ray that its worker started: it goes too.
        eventually(lambda: service.traces.processes() == [], seconds=30)
        assert service.traces.left_in_shared_memory() == []
    finally:
        service.traces.kill_all()


@pytest.fixture(scope="module")
def undisturbed(service: RealService) -> JobRecord:
    job = service.finished(service.post())
    assert job.status == "succeeded", (job.problem, service.log(str(job.id)))
    return job


def weights(job: JobRecord) -> bytes:
    assert job.output is not None
    return Path(job.output, "actor", "model.safetensors").read_bytes()


def numbers(path: Path, kind: str) -> list[int]:
    """The iterations of the events of a type, from the run's own file."""
    return [event["iteration"] for event in read_events(path, kind)]


def test_a_job_runs_to_its_end_and_is_stored(service: RealService, undisturbed: JobRecord) -> None:
    report = RunReport.model_validate(undisturbed.report)
    assert (report.outcome.state, report.iterations) == ("succeeded", ITERATIONS)
    assert undisturbed.iteration == ITERATIONS
    plan = service.client.get(f"/plans/{undisturbed.plan_id}").json()
    (run,) = (run for run in plan["jobs"] if run["id"] == str(undisturbed.id))
    calls = {call["call"]: call for call in run["calls"]}
    planned = [call["id"] for call in plan["plan"]["calls"]]
    assert set(planned) <= set(calls)
    for name in planned:
        assert calls[name]["predicted_seconds"] > 0
        assert calls[name]["measured_seconds"] > 0
        assert calls[name]["count"] == ITERATIONS
    check_its_history(service, undisturbed, planned)
    told = list(service.follow(str(undisturbed.id)))
    steps = [event["iteration"] for event in told if event["type"] == "iteration"]
    assert steps == list(range(1, ITERATIONS + 1))
    statuses = [event["status"] for event in told if event["type"] == "status"]
    assert statuses == ["queued", "starting", "running", "succeeded"]
    times = [event["time"] for event in told if event["type"] in ("call", "iteration", "finished")]
    assert times == sorted(times)
    log = service.log(str(undisturbed.id))
    assert "-m automap.executor.run --plan plan.json" in log
    assert "AUTOMAP-EVENT" not in log


def check_its_history(service: RealService, job: JobRecord, planned: list[str]) -> None:
    """All but the first iteration, which warms up, call by call."""
    lengths = job.response_lengths
    assert lengths is not None
    assert lengths.iterations == ITERATIONS - 1
    assert 0 < (lengths.p50 or 0) <= (lengths.p99 or 0) <= (lengths.max or 0)
    history = service.client.get(f"/plans/{job.plan_id}/history").json()
    (run,) = (run for run in history["jobs"] if run["job_id"] == str(job.id))
    assert [each["last_iteration"] for each in run["stretches"]] == list(range(2, ITERATIONS + 1))
    assert all(set(planned) <= set(each["calls"]) for each in run["stretches"])
    assert all(each["response_tokens"] > 0 for each in run["stretches"])


def test_a_killed_controller_is_a_new_attempt_with_the_same_end(
    service: RealService, undisturbed: JobRecord
) -> None:
    job_id = service.post(checkpoint={"every_iterations": 1, "resume": False})
    output = eventually(lambda: service.job(job_id).output, seconds=MINUTES)
    path = Path(output, "events.jsonl")
    eventually(lambda: ITERATIONS - 1 in numbers(path, "call"), seconds=MINUTES)
    (controller,) = service.traces.controllers()
    doomed = {controller, *service.traces.workers()}
    os.kill(controller, signal.SIGKILL)
    eventually(lambda: not doomed & set(service.traces.processes()), seconds=30)
    assert ITERATIONS not in numbers(path, "iteration"), "it was killed too late"
    job = service.finished(job_id)
    assert (job.status, job.attempts) == ("succeeded", 2), (job.problem, service.log(job_id))
    told = list(service.follow(job_id))
    reasons = [event["reason"] for event in told if "reason" in event]
    assert reasons == ["it was ended from outside (exit code -9)"]
    logs = [event["message"] for event in told if event["type"] == "log"]
    assert any(message.startswith("resuming after iteration") for message in logs), logs
    report = RunReport.model_validate(job.report)
    assert (report.iterations, report.outcome.restarts) == (ITERATIONS, 1)
    assert weights(job) == weights(undisturbed)


def test_cancel_frees_everything_within_seconds(
    service: RealService, undisturbed: JobRecord
) -> None:
    job_id = service.post(iterations=10_000)
    for event in service.follow(job_id):
        if event["type"] == "iteration":
            break
    service.traces.note_shared_memory()
    doomed = {*service.traces.controllers(), *service.traces.workers()}
    assert len(doomed) >= 3
    asked = time.monotonic()
    assert service.client.post(f"/jobs/{job_id}/cancel").status_code == 202
    job = service.finished(job_id)
    assert job.status == "cancelled", job.problem
    eventually(lambda: not doomed & set(service.traces.processes()), seconds=5)
    assert time.monotonic() - asked < 30
    # The next one finds all devices free.
    again = service.finished(service.post())
    assert again.status == "succeeded", again.problem
    assert weights(again) == weights(undisturbed)
