"""A profile from beginning to end: what is left to do, shares of the budget, results kept."""

import math
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from automap.planner.profiles import Key
from automap.profiler.errors import ProfileError
from automap.profiler.machine import fingerprint
from automap.profiler.machine.background_load import BackgroundLoad, busy_cores
from automap.profiler.machine.cluster_spec import write_cluster
from automap.profiler.machine.device_use import use_of
from automap.profiler.machine.devices import Device, choose_device
from automap.profiler.machine.lock import device_lock, folder_lock
from automap.profiler.machine.watch import LEAST_LOOK_SECONDS, Watch, busy
from automap.profiler.measure.collectives import ENGINE_TABLE as ENGINE_ALL_REDUCE
from automap.profiler.measure.collectives import TABLE as COLLECTIVES
from automap.profiler.measure.collectives import engine_keys, measure_collectives
from automap.profiler.measure.host_work import TABLE as HOST_WORK
from automap.profiler.measure.host_work import keys as host_work_keys
from automap.profiler.measure.host_work import measure_host_work
from automap.profiler.measure.layer_validation import layer_errors
from automap.profiler.measure.layers import TABLE as LAYERS
from automap.profiler.measure.layers import keys as layer_keys
from automap.profiler.measure.layers import measure_layers
from automap.profiler.measure.operations import operation, warm_up
from automap.profiler.measure.shapes import COLLECTOR, Shape, collective_keys, shapes
from automap.profiler.results.held_out import held_out_errors
from automap.profiler.results.journal import Entry, Journal, identity
from automap.profiler.results.measurement import Measurement, Sampler, measure
from automap.profiler.results.profile_report import (
    DRIFT_SHARE,
    Conditions,
    ProfileReport,
    Progress,
    TableCoverage,
)
from automap.profiler.settings import MAX_RANKS, ProfileSettings

WEIGHTS = {
    "memory_bound": 4.0,
    "optimizer": 3.0,
    "host_copies": 3.0,
    "decode_attention": 12.0,
    "prefill_attention": 12.0,
    "prefill_attention_backward": 12.0,
    "moe": 12.0,
    "gemm": 34.0,
    COLLECTIVES: 20.0,
    ENGINE_ALL_REDUCE: 6.0,
    HOST_WORK: 50.0,
    LAYERS: 40.0,
}
"""Tables in the order in which they are measured, and their parts of the budget. What one leaves
over goes to those after it, and what all leave over to a second round of the operators."""
LEAST_LIMIT_SECONDS = 0.02
MOST_LIMIT_SECONDS = 1.0
"""Bounds of the time limit of one shape."""
PROCESSES = (COLLECTIVES, ENGINE_ALL_REDUCE, HOST_WORK, LAYERS)
"""Measured by processes beside this one, once."""
LEAST_ENGINE_BUDGET_SECONDS = 120.0
"""Engines take most of a minute to import and start: a shorter budget is too short for them."""
FEWEST_RUNS = 8
"""Executions of a shape, at least: operands, warm-up and the fewest samples."""
MOST_SHARE = 0.25
"""Share of what is left to a table that one shape may take."""
REFERENCE: Key = {"precision": "fp32", "collector": COLLECTOR, "m": 256, "n": 512, "k": 512}
"""Measured at the beginning and at the end: a clock that slows down shows."""
REFERENCE_SHARE = 0.02
"""Share of the budget that it may take, each time."""
Listener = Callable[[Progress], None]


def profile(settings: ProfileSettings, listener: Listener) -> ProfileReport:
    """Measure this machine into a folder, going on with what is there.

    Raises:
        ProfileError: no such device, it is in use, or the folder holds something else.
    """
    device = choose_device(settings.device)
    folder = _writable(settings.output)
    wait = settings.wait_seconds
    with (
        device_lock(fingerprint.device_keys(device), wait_seconds=wait),
        folder_lock(folder, wait_seconds=wait),
    ):
        return Session(settings, folder, device, listener).run()


def num_ranks(settings: ProfileSettings, device: Device) -> int:
    """How many processes measure collectives: as many as asked for and there are devices."""
    return min(settings.ranks or MAX_RANKS, device.count)


class Session:
    """One run of the profiler into one folder."""

    def __init__(
        self, settings: ProfileSettings, folder: Path, device: Device, listener: Listener
    ) -> None:
        self._settings, self._device, self._listener = settings, device, listener
        self._start = time.monotonic()
        self._folder = folder
        self._tried: set[tuple[str, ...]] = set()
        self._identity = fingerprint.identity(device)
        self._before = fingerprint.check_same(self._folder, self._identity)

    def run(self) -> ProfileReport:
        use = use_of(self._device)
        time.sleep(LEAST_LOOK_SECONDS)
        others = list(use.since_last().others)
        if others and self._settings.strict:
            raise busy(others)
        state = {**fingerprint.conditions(self._device), "busy": bool(others), "others": others}
        self._sessions = [*(self._before or {}).get("sessions", []), {}]
        self._keep(state, {})
        with closing(Journal(self._folder)) as journal, self._background() as load:
            self._load = load
            already = len(journal.entries)
            warm_up(self._device)
            self._start = time.monotonic()
            sampler = self._device.sampler(operation(self._device, "gemm", REFERENCE))
            reference = self._reference(sampler)
            self._watch = Watch(
                use,
                reference=sampler,
                usual=reference,
                budget_seconds=self._settings.budget_seconds,
                strict=self._settings.strict,
            )
            wanted = self.wanted()
            again = [table for table in wanted if table not in PROCESSES]
            for tables in (list(wanted), again):
                self._measure_round({table: wanted[table] for table in tables}, journal)
            drift = self._reference(sampler) / reference - 1.0
            seconds = time.monotonic() - self._start
            coverage = [_coverage(table, wanted[table], journal) for table in wanted]
            entries = list(journal.entries.values())
            layers = layer_errors(self._device.gpu, journal)
            rows = journal.rows()
        ended = fingerprint.conditions(self._device)
        conditions = _conditions(state, drift, self._watch)
        results = {"ended": ended, "seconds": round(seconds, 1), "drift": round(drift, 4)}
        results |= {"layers": [each.model_dump(mode="json") for each in layers]} if layers else {}
        seen = conditions.model_dump(include={"throttled", "others", "slowed"})
        self._keep(state, {**results, **seen})
        write_cluster(self._folder, self._device, rows)
        return ProfileReport(
            folder=str(self._folder),
            device=self._device.gpu.name,
            resumed=already,
            seconds=seconds,
            budget_seconds=self._settings.budget_seconds,
            tables=[each for each in coverage if each.wanted],
            held_out=held_out_errors(self._device.gpu, entries),
            layers=layers,
            conditions=conditions,
        )

    def _background(self) -> AbstractContextManager[BackgroundLoad]:
        return busy_cores(self._device, self._settings.budget_seconds)

    def _keep(self, state: dict[str, Any], results: dict[str, Any]) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        request = {
            "models": sorted(self._settings.models),
            "budget_seconds": self._settings.budget_seconds,
        }
        known = self._sessions[-1] or {"started_at": started, **request, "began": state}
        self._sessions[-1] = {**known, **results}
        document = {"identity": self._identity, "sessions": self._sessions}
        fingerprint.write(self._folder, document)

    def _reference(self, sampler: Sampler) -> float:
        limit = min(REFERENCE_SHARE * self._settings.budget_seconds, MOST_LIMIT_SECONDS)
        return measure(sampler, limit_seconds=limit).seconds

    def wanted(self) -> dict[str, list[Shape]]:
        """Table → the shapes that this session is to measure, in the order of their worth."""
        models = list(self._settings.models.values())
        budget = self._settings.budget_seconds
        found = shapes(self._device, models, budget_seconds=budget)
        keys = collective_keys(num_ranks(self._settings, self._device))
        found[COLLECTIVES] = [
            Shape(COLLECTIVES, key, 0.0, float(key["size_bytes"])) for key in keys
        ]
        reduced = (
            engine_keys(self._device, num_ranks(self._settings, self._device))
            if self._engines_fit
            else []
        )
        found[ENGINE_ALL_REDUCE] = [
            Shape(ENGINE_ALL_REDUCE, key, 0.0, float(key["size_bytes"])) for key in reduced
        ]
        engines = host_work_keys() if self._engines_fit else []
        found[HOST_WORK] = [Shape(HOST_WORK, key, 0.0, 0.0) for key in engines]
        whole = layer_keys(self._device, models, budget_seconds=budget) if engines else []
        found[LAYERS] = [Shape(LAYERS, key, 0.0, 0.0) for key in whole]
        return {table: found[table] for table in self._settings.tables or WEIGHTS}

    @property
    def _engines_fit(self) -> bool:
        """Whether there is time for processes that import and start engines."""
        asked_for = {ENGINE_ALL_REDUCE, HOST_WORK, LAYERS}.intersection(self._settings.tables)
        return bool(asked_for) or self._settings.budget_seconds >= LEAST_ENGINE_BUDGET_SECONDS

    def _measure_round(self, wanted: Mapping[str, Sequence[Shape]], journal: Journal) -> None:
        rest = list(wanted)
        while rest:
            open_tables = [table for table in rest if self._missing(wanted[table], journal)]
            table = rest.pop(0)
            self._measure_table(table, wanted[table], self._deadline(table, open_tables), journal)
            journal.write_tables()

    def _missing(self, wanted: Sequence[Shape], journal: Journal) -> list[Shape]:
        """Shapes without a measurement; one that fails is tried once a session."""
        return [
            shape
            for shape in wanted
            if (entry := journal.entries.get(identity(shape.table, shape.key))) is None
            or (entry.measurement is None and entry.identity not in self._tried)
        ]

    def _deadline(self, table: str, open_tables: Sequence[str]) -> float:
        """This table's part of what is left of the budget to those that still miss shapes."""
        now, end = time.monotonic(), self._start + self._settings.budget_seconds
        rest = sum(WEIGHTS[name] for name in {table, *open_tables})
        return now + max(end - now, 0.0) * WEIGHTS[table] / rest

    def _measure_table(
        self, table: str, wanted: Sequence[Shape], deadline: float, journal: Journal
    ) -> None:
        missing = self._missing(wanted, journal)
        done = len(wanted) - len(missing)
        self._report(table, done, len(wanted))
        if table in (COLLECTIVES, ENGINE_ALL_REDUCE):
            self._load.pause()
            entries = measure_collectives(
                self._device,
                [shape.key for shape in missing],
                ranks=num_ranks(self._settings, self._device),
                deadline=deadline,
                table=table,
            )
        elif table == HOST_WORK:
            wanted_keys = [shape.key for shape in missing]
            kind = self._device.kind
            entries = measure_host_work(wanted_keys, device=kind, deadline=deadline)
        elif table == LAYERS:
            wanted_keys = [shape.key for shape in missing]
            entries = measure_layers(wanted_keys, device=self._device.kind, deadline=deadline)
        else:
            entries = self._watched(self._operators(missing, deadline))
        for number, entry in enumerate(entries):
            journal.append(entry)
            self._tried.add(entry.identity)
            self._report(table, done + number + 1, len(wanted))
        self._load.resume()
        if table in PROCESSES:
            self._watch.skip()

    def _watched(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries some seconds later, marked with what was the matter meanwhile."""
        waiting: list[Entry] = []
        for entry in entries:
            waiting.append(entry)
            if self._watch.is_due:
                yield from self._watch.marked(waiting)
                waiting.clear()
        yield from self._watch.marked(waiting)

    def _operators(self, missing: Sequence[Shape], deadline: float) -> Iterator[Entry]:
        fair = (deadline - time.monotonic()) / max(len(missing), 1)
        # What takes more than its share waits until the others are done.
        ordered = sorted(missing, key=lambda shape: FEWEST_RUNS * shape.roofline_seconds > fair)
        known: list[tuple[float, float]] = []
        for number, shape in enumerate(ordered):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            if FEWEST_RUNS * expected_seconds(shape.roofline_seconds, known) > left * MOST_SHARE:
                continue
            each = left / (len(ordered) - number)
            limit = min(max(2 * each, LEAST_LIMIT_SECONDS), MOST_LIMIT_SECONDS)
            entry = self._measured(shape, limit)
            if entry.measurement is not None:
                insort(known, (shape.roofline_seconds, entry.measurement.seconds))
            yield entry
            self._device.release()

    def _measured(self, shape: Shape, limit_seconds: float) -> Entry:
        found: Measurement | None = None
        failed = ""
        try:
            sampler = self._device.sampler(operation(self._device, shape.table, shape.key))
            found = measure(sampler, limit_seconds=limit_seconds)
        except (RuntimeError, NotImplementedError, MemoryError) as error:
            # Out of memory, or no kernel for this shape: the profile goes on without it.
            failed = (str(error).splitlines() or [type(error).__name__])[0][:200]
        return Entry(shape.table, shape.key, found, failed)

    def _report(self, table: str, done: int, wanted: int) -> None:
        self._listener(
            Progress(
                table=table,
                done=done,
                wanted=wanted,
                seconds=time.monotonic() - self._start,
                budget_seconds=self._settings.budget_seconds,
            )
        )


def expected_seconds(roofline: float, known: Sequence[tuple[float, float]]) -> float:
    """What a shape may take, from (roofline, seconds) of those measured, ascending.

    As many times its roofline as the largest measured shape that is no larger than it.
    """
    below = bisect_right(known, (roofline, math.inf)) - 1
    if below < 0:
        return roofline
    return known[below][1] * max(roofline / known[below][0], 1.0)


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ProfileError(
            f"--output: cannot write to {folder}: {error.strerror or error}",
            ["give a folder that can be made or written to"],
        ) from None
    return folder.absolute()


def _coverage(table: str, wanted: Sequence[Shape], journal: Journal) -> TableCoverage:
    found = [
        journal.entries[key]
        for shape in wanted
        if (key := identity(table, shape.key)) in journal.entries
    ]
    measured = [entry.measurement for entry in found if entry.measurement is not None]
    intervals = [each.relative_interval for each in measured]
    return TableCoverage(
        table=table,
        wanted=len(wanted),
        measured=len(measured),
        failed=len(found) - len(measured),
        samples=sum(each.samples for each in measured),
        rejected=sum(each.rejected for each in measured),
        disturbed=sum(each.disturbed for each in measured),
        busy=sum(each.busy for each in measured),
        throttled=sum(each.throttled for each in measured),
        median_interval=float(torch.tensor(intervals).median()) if intervals else None,
    )


def _conditions(began: dict[str, Any], drift: float, watch: Watch) -> Conditions:
    return Conditions(
        load=began["load"],
        cores=began["cores"],
        busy=began["busy"],
        drift=drift,
        throttled=drift > DRIFT_SHARE or bool(watch.slowed),
        others=watch.others or began["others"],
        slowed=watch.slowed,
    )
