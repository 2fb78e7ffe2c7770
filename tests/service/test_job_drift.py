"""A running job that drifts from its plan: what is raised on it, once, and what it says."""

from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from planner.result import Plan
from service import job_queue, suggestions
from service.database import Database
from service.job_queue import JobClaim
from service.schemas import JobSuggestion
from service.settings import Settings
from service.worker.drift_watch import DriftWatch
from tests.service.samples import Json
from tests.service.test_job_queue import keep, printed, taken
from tests.service.workers import _PLAN, add_job, eventually, events, record

CALLS = ("actor.generate", "reward.forward", "actor.train")


@cache
def plan() -> Plan:
    return Plan.model_validate(_PLAN)


def iteration(
    number: int, ratio: float = 1.0, *, tokens: float = 16.0, **calls: float
) -> list[Json]:
    """The events of one: everything takes this many times what the plan says."""
    found: list[Json] = [
        {
            "type": "call",
            "call": call.id,
            "iteration": number,
            "seconds": calls.get(call.id, ratio) * (call.end_seconds - call.start_seconds),
        }
        for call in plan().calls
    ]
    lengths = {f"response_length/{name}": tokens for name in ("mean", "p50", "p90", "p99", "max")}
    found.append({"type": "metrics", "iteration": number, "metrics": lengths})
    seconds = ratio * plan().iteration_seconds
    found.append({"type": "iteration", "iteration": number, "iterations": 4, "seconds": seconds})
    return found


class Run:
    """A job that runs, as its worker sees it."""

    def __init__(self, database: Database, **changes: Any) -> None:
        self.database = database
        self.job_id = add_job(database, iterations=1000)
        self.held = taken(database)
        settings = Settings(lease_seconds=60, drift_pause_iterations=1, **changes)
        self.watch = DriftWatch(database, settings, self.held)
        self.number = 0

    def iterate(self, *ratios: float, **how: Any) -> None:
        for ratio in ratios:
            self.number += 1
            standing = keep(
                self.database, self.held, printed(*iteration(self.number, ratio, **how))
            )
            assert standing is not None
            self.watch.look(standing.progress)
            eventually(lambda: not self.watch._is_computing)

    @property
    def raised(self) -> list[JobSuggestion]:
        return record(self.database, self.job_id).suggestions


def test_a_slower_run_is_told_once_and_again_when_it_slows_down_more(database: Database) -> None:
    run = Run(database)
    run.iterate(9.0, *[1.0] * 6, 3.0, 1.02)  # one warms up, one is bad
    assert run.raised == []
    run.iterate(*[1.4] * 6)
    (first,) = run.raised
    print(first.model_dump_json(indent=1, exclude={"suggestion": {"replan": {"placement"}}}))


def test_history(database: Database, client) -> None:
    run = Run(database)
    run.iterate(9.0, *[1.0] * 70, 1.1)
    from service.routers import plans

    with database.reading() as session:
        from service import plan_history
        from service.schemas import HistoryQuery, PlanQuery
        from service import store

        print(store.list_plans(session, PlanQuery()))
        found = plan_history.history(session, HistoryQuery())
        print(found.model_dump_json(indent=1))
        one = plan_history.history_of_plan(session, found.items[0].plan_id)
        print(len(one.jobs[0].stretches), one.jobs[0].stretches[-1], one.jobs[0].stretches[0])
        from service.tables import JobRow
        import json

        row = session.get(JobRow, run.job_id)
        print(len(json.dumps(row.measured)))
    print(
        client.get("/v1/plans/history").status_code,
        client.get(f"/v1/plans/{one.plan_id}/history").status_code,
    )
