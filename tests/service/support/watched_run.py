"""A run of the tiny job that a worker watches for drift."""

from typing import Any

from automap.planner.plan.types import Plan
from automap.planner.runs.suggestion import RunWindow, Suggestion, suggest
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import JobRecord
from automap.service.settings import Settings
from automap.service.storage.database import Database
from automap.service.worker.drift_watch import DriftWatch
from tests.service.support.job_claims import keep, printed, taken
from tests.service.support.samples import Json
from tests.service.support.workers import add_job, events, record, tiny_plan


def iteration(number: int, ratio: float = 1.0, *, tokens: float = 16.0) -> list[JsonObject]:
    """The events of one: everything takes this many times what the plan says."""
    found: list[JsonObject] = [
        {
            "type": "call",
            "call": call.id,
            "iteration": number,
            "seconds": ratio * call.measurable_seconds,
        }
        for call in tiny_plan().calls
    ]
    metrics: Json = {f"response_length/{name}": tokens for name in ("mean", "p50", "p90", "p99")}
    found.append({"type": "metrics", "iteration": number, "metrics": metrics})
    seconds = ratio * tiny_plan().iteration_seconds
    found.append({"type": "iteration", "iteration": number, "seconds": seconds})
    return found


class Watch(DriftWatch):
    """Answers in this process, unless it is told to fail."""

    error: Exception | None = None
    asked = 0

    def answer(self, plan: Plan, run_window: RunWindow) -> Suggestion:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return suggest(plan, run_window)


class Run:
    """A job that runs, as its worker sees it."""

    def __init__(self, database: Database, **changes: Any) -> None:
        self.database = database
        self.settings = Settings(**{"drift_pause_iterations": 1, **changes})
        self.job_id = add_job(database, iterations=1000)
        self.held = taken(database)
        self.watch = Watch(database, self.settings, self.held)
        self.number = 0

    def iterate(self, *ratios: float, **how: Any) -> None:
        for ratio in ratios:
            self.number += 1
            self.keep(*iteration(self.number, ratio, **how))

    def keep(self, *what: JsonObject) -> None:
        progress = keep(self.database, self.held, printed(*what))
        assert progress is not None
        self.watch.look(progress)
        self.watch.wait()

    @property
    def record(self) -> JobRecord:
        return record(self.database, self.job_id)

    @property
    def told(self) -> list[tuple[object, object]]:
        """State and iteration of all events about drift."""
        found = events(self.database, self.job_id)
        return [(e["state"], e["iteration"]) for e in found if e["type"] == "drift"]
