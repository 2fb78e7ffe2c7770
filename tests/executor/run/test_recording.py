"""A run's files through a kill and another process: everything once, nothing lost."""

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from automap.executor.run.recording import CallEvents, Recording
from automap.executor.runtime.blame import CallName
from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration, FinishedRank
from automap.executor.runtime.placement import Device
from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord
from automap.executor.telemetry.events import MARK, Events, read_events
from automap.executor.telemetry.loggers import MetricsWriter
from automap.executor.telemetry.run_report import RunReport
from automap.planner.plan.types import Plan
from tests.executor.small_plans import Place, small_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan("rloo", {"actor": Place(0, 1), "reward": None}, kl="none")


class Process:
    """What the controller does of a run in a folder, and what is left when it is killed."""

    def __init__(self, plan: Plan, folder: Path, *loggers: str, resume: bool = True) -> None:
        given: dict[str, Any] = {"data": {"path": "/none"}, "metrics": {"loggers": loggers}}
        given["checkpoint"] = {"resume": resume}
        self.folder = folder
        self.recording = Recording(plan, RunSettings.model_validate(given), folder)
        self.events = Events()
        self.events.keep(folder / "events.jsonl")

    def iterate(self, *numbers: int, seconds: float, score: float | None = None) -> None:
        score = seconds if score is None else score
        for number in numbers:
            finished = FinishedIteration(
                number=number,
                started=0,
                ended=seconds,
                calls=(),
                multiplier=1,
                rollout_metrics={"rollout/response_tokens": 100.0, "critic/score/mean": score},
            )
            began = 1e9 + 1000 * number
            call = CallRecord(
                iteration=number,
                call_id="actor.generate",
                role="actor",
                kind="generate",
                method="generate",
                start_seconds=began,
                end_seconds=began + seconds / 2,
                ranks=(0,),
            )
            whole = call.model_copy(
                update={"call_id": "", "role": "", "kind": "iteration"}
                | {"end_seconds": began + seconds, "ranks": ()}
            )
            metrics = self.recording.add(finished, [call, whole])
            self.events.send("metrics", iteration=number, metrics=metrics)

    def is_killed(self) -> None:
        """In the middle of a line, in every file."""
        for path in [*self.folder.glob("*.jsonl"), *self.folder.glob("tensorboard/*")]:
            with path.open("ab") as file:
                file.write(b'{"step": 9, "iteration": 9, "ty')


def scalars(folder: Path, name: str) -> dict[int, float]:
    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {event.step: event.value for event in found.Scalars(name)}


def timeline(folder: Path) -> list[float]:
    """Starts of the iterations in seconds."""
    trace = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    return [event["ts"] / 1e6 for event in trace if event["ph"] == "X" and event["tid"] == 0]


def test_a_new_process_goes_on_with_all_files(plan: Plan, tmp_path: Path) -> None:
    loggers = ("jsonl", "tensorboard")
    first = Process(plan, tmp_path, *loggers)
    first.recording.begin(0)
    first.iterate(1, 2, 3, seconds=1)
    first.is_killed()
    second = Process(plan, tmp_path, *loggers)
    second.recording.begin(2)
    second.iterate(3, 4, seconds=2)
    report = second.recording.write_report("succeeded")
    assert report.iterations == 4
    assert report.outcome.restarts == 1
    assert report.iteration_seconds.warm_up == [1, 2]  # those that began an attempt: 1 and 3
    spread = report.iteration_seconds.measured
    assert spread is not None
    assert (spread.min, spread.max, spread.count) == (1, 2, 2)
    rates = report.tokens_per_second.measured
    assert rates is not None
    assert (rates.max, rates.count) == (100, 2)  # iteration 2 was measured by the first process
    assert report.metrics["critic/score/mean"] == 2
    assert report == RunReport.model_validate_json((tmp_path / "report.json").read_bytes())
    expected = {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert {line["step"]: line["data"]["critic/score/mean"] for line in lines} == expected
    assert scalars(tmp_path, "critic/score/mean") == expected
    assert timeline(tmp_path) == [0, 1000, 2000, 3000]
    second.recording.close()


def test_metrics_come_back_without_their_file(plan: Plan, tmp_path: Path) -> None:
    first = Process(plan, tmp_path)
    first.recording.begin(0)
    first.iterate(1, 2, seconds=1)
    first.is_killed()
    second = Process(plan, tmp_path)
    second.recording.begin(2)
    report = second.recording.write_report("cancelled")
    assert not (tmp_path / "metrics.jsonl").exists()
    assert report.metrics["critic/score/mean"] == 1
    rates = report.tokens_per_second.measured
    assert rates is not None
    assert rates.count == 1
    second.recording.close()


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_without_a_checkpoint_keeps_its_attempts_unless_it_is_another(
    plan: Plan, tmp_path: Path, resume: bool
) -> None:
    first = Process(plan, tmp_path, "jsonl")
    first.recording.begin(0)
    first.iterate(1, 2, seconds=1)
    first.recording.begin(0)  # a worker died, say
    first.iterate(1, 2, seconds=1)
    began = first.recording.write_report("failed").outcome
    assert began.restarts == 1
    second = Process(plan, tmp_path, "jsonl", resume=resume)
    second.recording.begin(0)
    second.iterate(1, seconds=2)
    report = second.recording.write_report("succeeded")
    assert (report.iterations, report.outcome.restarts) == (1, 2 if resume else 0)
    assert (report.outcome.started_at == began.started_at) is resume
    assert report.iteration_seconds.warm_up == [2]
    assert timeline(tmp_path) == [0]
    second.recording.close()


def test_a_run_that_ends_before_it_begins_keeps_what_was_measured(
    plan: Plan, tmp_path: Path
) -> None:
    first = Process(plan, tmp_path, "jsonl")
    first.recording.begin(0)
    first.iterate(1, 2, seconds=1)
    started = first.recording.write_report("running").outcome.started_at
    report = Process(plan, tmp_path, "jsonl").recording.write_report("failed", "no checkpoint")
    assert (report.iterations, report.outcome.cause) == (2, "no checkpoint")
    assert report.outcome.started_at == started
    first.recording.close()


def test_events_have_their_time_and_survive_a_torn_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.jsonl"
    events = Events()
    events.send("log", message="to stdout alone")
    events.keep(path)
    events.send("state", state="running")
    events.close()
    with path.open("a") as file:
        file.write('{"type": "state", "sta')
    events = Events()
    events.keep(path)
    events.send("state", state="resumed")
    events.close()
    found = list(read_events(path, "state"))
    assert [event["state"] for event in found] == ["running", "resumed"]
    times = [datetime.fromisoformat(event["time"]) for event in found]
    assert times == sorted(times)
    assert times[0].utcoffset() == timedelta(0)
    assert list(read_events(path, "log")) == []
    assert capsys.readouterr().out.count("AUTOMAP-EVENT {") == 3


def test_numbers_that_are_not_finite_become_null(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Process(plan, tmp_path)
    first.recording.begin(0)
    capsys.readouterr()
    first.iterate(1, seconds=1, score=math.nan)
    first.events.send("finished", report={"rates": [math.inf, (1.0, -math.inf)]})
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    printed = [json.loads(line.removeprefix(MARK)) for line in capsys.readouterr().out.splitlines()]
    assert all(event.pop("proof") for event in printed)
    assert printed == [json.loads(line) for line in lines]
    metrics, finished = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert metrics["metrics"]["critic/score/mean"] is None
    assert metrics["metrics"]["rollout/response_tokens"] == 100
    assert finished["report"] == {"rates": [None, [1.0, None]]}
    second = Process(plan, tmp_path)
    second.recording.begin(1)
    assert second.recording.write_report("cancelled").metrics["critic/score/mean"] is None
    second.recording.close()


def test_a_tracking_server_that_is_gone_does_not_end_a_run(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close(self: MetricsWriter) -> None:
        raise RuntimeError("no answer from http://tracking")  # MLflow's are no OSError

    monkeypatch.setattr(MetricsWriter, "close", close)
    run = Process(plan, tmp_path, "jsonl")
    run.recording.begin(0)
    run.iterate(1, seconds=1)
    run.recording.close()
    assert "cannot close MetricsWriter: no answer from http://tracking" in caplog.text
    run.recording.close()  # and it is done with


def test_a_full_disk_is_told_where_it_can_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    events = Events()
    events.keep(tmp_path / "events.jsonl")
    events.check()
    events.send("call", call="actor.generate")  # in a thread that nobody may end
    assert "actor.generate" in capsys.readouterr().out
    with pytest.raises(OSError, match="No space left on device"):
        events.check()
    events.close()


def finished(method: str, *seconds: float) -> FinishedCall:
    """A call of the actor on as many devices, by what each rank took."""
    ranks = tuple(
        FinishedRank(
            rank=rank,
            started_at=0.0,
            seconds=took,
            fetched_bytes=0,
            fetched_blocks=0,
            put_bytes=0,
            measured={},
        )
        for rank, took in enumerate(seconds)
    )
    return FinishedCall(
        name=CallName(id="actor.train", role="actor", method=method),
        devices=frozenset(Device("h100", 8 + rank) for rank in range(len(seconds))),
        submitted=0.0,
        started=0.0,
        ended=max(seconds),
        ranks=ranks,
        num_rows=None,
        value=None,
    )


def test_events_of_calls_name_the_rank_that_took_longest(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = CallEvents(plan, Events())
    calls.iteration = 1
    calls(finished("train", 1.0, 3.0, 1.2, 1.1))
    calls(finished("train", 2.0))
    lines = capsys.readouterr().out.splitlines()
    first, second = (json.loads(line.removeprefix(MARK)) for line in lines)
    assert first["slowest"] == {"device": "h100[9]", "seconds": 3.0, "others_seconds": 1.1}
    assert "slowest" not in second
