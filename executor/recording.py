"""What a run leaves in its folder: records, metrics, report and timeline, also when it fails."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from executor.events import Events
from executor.loggers import MetricsWriter
from executor.metrics import timing_metrics, training_metrics
from executor.provenance import device_fingerprint, provenance
from executor.records import CallRecord, RecordFile, read_records
from executor.report import DeviceFingerprint, RunOutcome, RunReport, build_report
from executor.runtime.controller import device_numbers
from executor.runtime.records import FinishedCall, FinishedIteration
from executor.settings import RunSettings
from executor.timeline import write_timeline
from planner.result import Plan

REPORT_FILE = "report.json"
_REPORT_SECONDS = 5.0
"""Between two reports of a run that goes on: each reads everything that was measured."""


class CallEvents:
    """Tells of every call of the plan as it ends; all optimizer steps of a training are one."""

    def __init__(self, plan: Plan, events: Events) -> None:
        workload = plan.spec.workload
        self._events = events
        self._ids = {call.id for call in plan.calls}
        self._ids |= {f"{sync.role}.sync" for sync in plan.transitions}
        self._steps = workload.epochs * workload.updates_per_epoch
        self._pending: dict[str, list[FinishedCall]] = {}
        self.iteration = 0
        """The one that runs; 0: none does."""

    def __call__(self, call: FinishedCall) -> None:
        name = call.name.id
        if self.iteration == 0 or name not in self._ids:
            return
        parts = self._pending.setdefault(name, [])
        parts.append(call)
        if call.name.method == "train_step" and len(parts) < self._steps:
            return
        del self._pending[name]
        self._events.send(
            "call",
            call=name,
            iteration=self.iteration,
            seconds=round(sum(part.seconds for part in parts), 6),
            bytes=sum(map(_moved_bytes, parts)),
        )


def _moved_bytes(call: FinishedCall) -> int:
    """On the worst rank: rows fetched, and weights received."""
    fetched = max((rank.fetched_bytes for rank in call.ranks), default=0)
    return fetched + int(call.worst("reshard_received") + call.worst("weight_sync_received"))


class Recording:
    """The files of a run through all its attempts."""

    def __init__(self, plan: Plan, settings: RunSettings, folder: Path, events: Events) -> None:
        self._plan = plan
        self._settings = settings
        self._folder = folder
        self._events = events
        self._numbers = device_numbers(plan)
        self._device: DeviceFingerprint | None = None
        self._warm_up: set[int] = set()
        self._metrics: dict[int, dict[str, float]] = {}
        self._records: list[CallRecord] = []
        self._record_file: RecordFile | None = None
        self._writer: MetricsWriter | None = None
        self._reported_at = -math.inf

    def begin(self, resumed_iteration: int, device: DeviceFingerprint) -> None:
        """An attempt that goes on after an iteration; what is known of later ones is dropped."""
        self.close()
        self._device = device
        self._warm_up.add(resumed_iteration + 1)
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

    def add(
        self, iteration: FinishedIteration, records: Sequence[CallRecord], outcome: RunOutcome
    ) -> dict[str, float]:
        """An iteration that is done; its metrics."""
        metrics = self._metrics_of(iteration, records)
        self._metrics[iteration.number] = metrics
        assert self._writer is not None, "begin was called"
        self._writer.write(iteration.number, metrics)
        self.add_records(records)
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self.write_report(outcome)
        return metrics

    def add_records(self, records: Sequence[CallRecord]) -> None:
        """Calls outside iterations, such as checkpoints, come by themselves."""
        assert self._record_file is not None, "begin was called"
        self._record_file.append(records)
        self._records += records

    def write_report(self, outcome: RunOutcome) -> RunReport:
        """report.json and timeline.json as of now, whole or not at all."""
        device = self._device or device_fingerprint(num_devices=len(self._numbers))
        report = build_report(
            self._plan,
            self._records,
            outcome=outcome,
            provenance=provenance(device),
            metrics=self._metrics,
            warm_up=self._warm_up,
        )
        partial = self._folder / f"{REPORT_FILE}.partial"
        partial.write_text(report.model_dump_json(indent=1), encoding="utf-8")
        partial.replace(self._folder / REPORT_FILE)
        names = {
            number: f"{device.pool} {device.number}" for device, number in self._numbers.items()
        }
        write_timeline(self._folder / "timeline.json", self._records, device_names=names)
        self._reported_at = time.monotonic()
        return report

    def close(self) -> None:
        """Close the files of an attempt."""
        if self._record_file is not None:
            self._record_file.close()
        if self._writer is not None:
            self._writer.close()
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


def _training_steps(iteration: FinishedIteration) -> dict[str, list[Mapping[str, float]]]:
    """Role → what every optimizer step returned, the same on all data-parallel ranks."""
    steps: dict[str, list[Mapping[str, float]]] = {}
    for call in iteration.calls:
        if call.name.method == "train_step" and isinstance(call.value, list):
            steps.setdefault(call.name.role, []).append(call.value[0])
    return steps
