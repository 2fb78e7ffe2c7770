"""What a run leaves in its folder: records, metrics, report and timeline, also when it fails."""

import logging
import math
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue, TypeAdapter

from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration
from automap.executor.runtime.planned import device_numbers, streamed_calls
from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord, RecordFile, read_records
from automap.executor.telemetry.chrome_trace import write_timeline
from automap.executor.telemetry.events import Events, read_events
from automap.executor.telemetry.loggers import MetricsWriter
from automap.executor.telemetry.metrics import timing_metrics, training_metrics
from automap.executor.telemetry.provenance import device_fingerprint, provenance
from automap.executor.telemetry.run_report import (
    DeviceFingerprint,
    RunOutcome,
    RunReport,
    RunState,
    build_report,
)
from automap.planner import Plan

logger = logging.getLogger(__name__)

REPORT_FILE = "report.json"
ATTEMPTS_FILE = "attempts.json"
_REPORT_SECONDS = 5.0
"""Between two reports of a run that goes on: each reads everything that was measured."""


class CallEvents:
    """Reports every call of the plan as it ends.

    All optimizer steps of a training are one, and so are a call's chunks of streamed responses, and
    turns of continuous rollouts between two trainings.
    """

    def __init__(self, plan: Plan, events: Events) -> None:
        workload = plan.spec.workload
        self._events = events
        self._ids = {call.id for call in plan.calls}
        self._ids |= {f"{sync.role}.sync" for sync in plan.transitions}
        self._steps = workload.epochs * workload.updates_per_epoch
        self._chunks = {
            call: generation.num_chunks
            for generation in streamed_calls(plan).values()
            for call in generation.takers
        }
        self._pending: dict[tuple[int, str], list[FinishedCall]] = {}
        self._turns: list[FinishedCall] = []
        """Turns of continuous rollouts since the last training."""
        self.iteration = 0
        """The one that runs; 0: none does."""

    def __call__(self, call: FinishedCall) -> None:
        name = call.name.id
        if self.iteration == 0 or name not in self._ids:
            return
        if call.name.method == "generate_turn":
            self._turns.append(call)
            return
        key = (call.iteration or self.iteration, name)
        parts = self._pending.setdefault(key, [])
        parts.append(call)
        is_step = call.name.method == "train_step"
        if len(parts) < (self._steps if is_step else self._chunks.get(name, 1)):
            return
        del self._pending[key]
        if is_step and self._turns:
            turns, self._turns = self._turns, []
            self._send(turns[0].name.id, key[0], turns)
        self._send(name, key[0], parts)

    def _send(self, name: str, iteration: int, parts: Sequence[FinishedCall]) -> None:
        self._events.send(
            "call",
            call=name,
            iteration=iteration,
            seconds=round(sum(part.seconds for part in parts), 6),
            bytes=sum(map(_moved_bytes, parts)),
            **_slowest(parts),
        )


def _moved_bytes(call: FinishedCall) -> int:
    """On the worst rank: rows fetched, and weights received."""
    fetched = max((rank.fetched_bytes for rank in call.ranks), default=0)
    return fetched + int(call.worst("reshard_received") + call.worst("weight_sync_received"))


def _slowest(parts: Sequence[FinishedCall]) -> dict[str, JsonValue]:
    """The rank that took longest beside the median of all others; nothing where there is one.

    By the ranks' own clocks. Where ranks wait for each other in a collective, all take alike.
    """
    seconds: dict[int, float] = defaultdict(float)
    for part in parts:
        for rank in part.ranks:
            seconds[rank.rank] += rank.seconds
    devices = sorted(parts[0].devices)
    if len(seconds) < 2 or len(seconds) != len(devices):  # a sync's ranks are of two groups
        return {}
    slowest, longest = max(seconds.items(), key=lambda each: each[1])
    others = median(value for other, value in seconds.items() if other != slowest)
    device = devices[slowest]
    return {
        "slowest": {
            "device": f"{device.pool}[{device.number}]",
            "seconds": round(longest, 6),
            "others_seconds": round(others, 6),
        }
    }


class Attempt(BaseModel):
    """Where and when an attempt of the run began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    after_iteration: int
    started_at: AwareDatetime


_ATTEMPTS = TypeAdapter(list[Attempt])


class Recording:
    """The files of a run through all its attempts, whichever process they were made by."""

    def __init__(self, plan: Plan, settings: RunSettings, folder: Path) -> None:
        self._plan = plan
        self._settings = settings
        self._folder = folder
        self._numbers = device_numbers(plan)
        self._attempts: list[Attempt] | None = None
        self._metrics: dict[int, dict[str, float]] = {}
        self._records: list[CallRecord] = []
        self._record_file: RecordFile | None = None
        self._writer: MetricsWriter | None = None
        self._reported_at = -math.inf
        self.device: DeviceFingerprint | None = None
        """What the workers run on, once one has said so."""

    def begin(self, resumed_iteration: int) -> None:
        """An attempt that goes on after an iteration; what is known of later ones is dropped.

        The first attempt of this process goes on with the run in the folder, also where that left
        no checkpoint, unless the settings say not to resume: then it is a new run.
        """
        self.close()
        if self._attempts is None and self._settings.checkpoint.resume:
            self._read(resumed_iteration)
        self._attempts = self._attempts or []
        attempt = Attempt(after_iteration=resumed_iteration, started_at=datetime.now(UTC))
        self._attempts.append(attempt)
        _replace(self._folder / ATTEMPTS_FILE, _ATTEMPTS.dump_json(self._attempts, indent=1))
        path = self._folder / "records.jsonl"
        self._record_file = RecordFile(path, resumed_iteration=resumed_iteration)
        self._records = read_records(path)
        self._metrics = {n: m for n, m in self._metrics.items() if n <= resumed_iteration}
        self._writer = MetricsWriter(
            self._folder,
            self._settings.metrics,
            run_name=self._plan.name,
            resumed_iteration=resumed_iteration,
            config=self._settings.model_dump(mode="json"),
        )

    def _read(self, up_to: int) -> None:
        """What other processes have left in the folder: all attempts, and iterations up to one."""
        path = self._folder / ATTEMPTS_FILE
        self._attempts = _ATTEMPTS.validate_json(path.read_bytes()) if path.exists() else []
        self._records = read_records(self._folder / "records.jsonl")
        # Not metrics.jsonl, which the settings may leave out. Of an iteration that was run twice
        # the later event counts.
        self._metrics = {
            event["iteration"]: {
                name: math.nan if value is None else value
                for name, value in event["metrics"].items()
            }
            for event in read_events(self._folder / "events.jsonl", "metrics")
            if event["iteration"] <= up_to
        }

    def add(self, iteration: FinishedIteration, records: Sequence[CallRecord]) -> dict[str, float]:
        """An iteration that is done; its metrics."""
        metrics = self._metrics_of(iteration, records)
        self._metrics[iteration.number] = metrics
        assert self._writer is not None, "begin was called"
        self._writer.write(iteration.number, metrics)
        self.add_records(records)
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self.write_report("running")
        return metrics

    def add_records(self, records: Sequence[CallRecord]) -> None:
        """Calls outside iterations, such as checkpoints, come by themselves."""
        assert self._record_file is not None, "begin was called"
        self._record_file.append(records)
        self._records += records

    def write_report(self, state: RunState, cause: str = "") -> RunReport:
        """report.json and timeline.json as of now, whole or not at all."""
        if self._attempts is None:  # the run has ended before its first attempt
            self._read(sys.maxsize)
        attempts = self._attempts or []
        outcome = RunOutcome(
            state=state,
            cause=cause,
            restarts=max(len(attempts) - 1, 0),
            started_at=attempts[0].started_at if attempts else None,
            ended_at=None if state == "running" else datetime.now(UTC),
        )
        device = self.device or device_fingerprint(num_devices=len(self._numbers))
        report = build_report(
            self._plan,
            self._records,
            outcome=outcome,
            provenance=provenance(device),
            metrics=self._metrics,
            warm_up=_warm_up(attempts),
        )
        _replace(self._folder / REPORT_FILE, report.model_dump_json(indent=1).encode())
        names = {
            number: f"{device.pool} {device.number}" for device, number in self._numbers.items()
        }
        write_timeline(self._folder / "timeline.json", self._records, device_names=names)
        self._reported_at = time.monotonic()
        return report

    def close(self) -> None:
        """Close the files of an attempt; that one will not close changes nothing of how it ended.

        A disk that refuses has said so before, a tracking server that is gone ends no run.
        """
        for file in (self._record_file, self._writer):
            if file is not None:
                try:
                    file.close()
                except Exception as error:
                    logger.warning("cannot close %s: %s", type(file).__name__, error)
        self._record_file = self._writer = None

    def _metrics_of(
        self, iteration: FinishedIteration, records: Sequence[CallRecord]
    ) -> dict[str, float]:
        metrics: dict[str, float] = dict(iteration.rollout_metrics)
        for role, steps in _training_steps(iteration).items():
            metrics |= training_metrics(role, steps)
        if "cost" in self._plan.spec.models:
            metrics["actor/lagrange_multiplier"] = iteration.multiplier
        return metrics | timing_metrics(
            records,
            prompt_tokens=int(metrics.get("rollout/prompt_tokens", 0)),
            response_tokens=int(metrics.get("rollout/response_tokens", 0)),
            num_devices=len(self._numbers),
        )


def _warm_up(attempts: Sequence[Attempt]) -> set[int]:
    """The first iterations of the attempts, without those that a later attempt ran anew."""
    found: set[int] = set()
    for attempt in attempts:
        kept = {number for number in found if number <= attempt.after_iteration}
        found = kept | {attempt.after_iteration + 1}
    return found


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, or leave the old one."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def _training_steps(iteration: FinishedIteration) -> dict[str, list[Mapping[str, float]]]:
    """Role → what every optimizer step returned, the same on all data-parallel ranks."""
    steps: dict[str, list[Mapping[str, float]]] = {}
    for call in iteration.calls:
        if call.name.method == "train_step" and isinstance(call.value, list):
            steps.setdefault(call.name.role, []).append(call.value[0])
    return steps
